! mumps3d M: LU of the matrix of convection and diffusion on a grid of M^3 points by MUMPS. Prints the residual and the norm of x.
program mumps3d
  use mpi
  implicit none
  include 'dmumps_struc.h'
  type(dmumps_struc) :: id
  integer :: m, i, j, k, error
  character(len=8) :: text
  double precision, allocatable :: b(:), r(:)
  call MPI_Init(error)
  call get_command_argument(1, text); read(text, *) m
  id%comm = MPI_COMM_WORLD; id%job = -1; id%sym = 0; id%par = 1
  call dmumps(id)
  id%icntl(1:4) = [6, 0, 0, 1]; id%icntl(14) = 60
  if (id%myid == 0) then
     id%n = m**3; id%nnz = 0
     allocate(id%irn(7*id%n), id%jcn(7*id%n), id%a(7*id%n), id%rhs(id%n), b(id%n), r(id%n))
     do k = 1, m; do j = 1, m; do i = 1, m
        call put(i, j, k, 0, 0, 0, 6.5d0)
        call put(i, j, k, -1, 0, 0, -1.2d0); call put(i, j, k, 1, 0, 0, -0.8d0)
        call put(i, j, k, 0, -1, 0, -1.1d0); call put(i, j, k, 0, 1, 0, -0.9d0)
        call put(i, j, k, 0, 0, -1, -1d0);   call put(i, j, k, 0, 0, 1, -1d0)
     end do; end do; end do
     do i = 1, id%n; b(i) = mod(i*37, 101) - 50; end do
     id%rhs = b
  end if
  id%job = 6
  call dmumps(id)
  if (id%myid == 0) then
     r = b
     do i = 1, int(id%nnz); r(id%irn(i)) = r(id%irn(i)) - id%a(i)*id%rhs(id%jcn(i)); end do
     print '(a,i0,a,es10.3,a,es21.14)', 'mumps info ', id%infog(1), ' residual ', norm2(r)/norm2(b), ' norm ', norm2(id%rhs)
  end if
  id%job = -2
  call dmumps(id); call MPI_Finalize(error)
contains
  subroutine put(i, j, k, di, dj, dk, value)
    integer, intent(in) :: i, j, k, di, dj, dk
    double precision, intent(in) :: value
    if (min(i+di, j+dj, k+dk) < 1 .or. max(i+di, j+dj, k+dk) > m) return
    id%nnz = id%nnz + 1; id%a(id%nnz) = value
    id%irn(id%nnz) = i + m*(j-1 + m*(k-1)); id%jcn(id%nnz) = id%irn(id%nnz) + di + m*(dj + m*dk)
  end subroutine
end program
