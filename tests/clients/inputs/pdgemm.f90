! pdgemm N NB: C = A B by ScaLAPACK against the exact product (small integers: every sum is exact in double precision), and the
! solution of (A + N I) X = B by pdgesv. All ranks form the grid. Prints errors, the norm of X, PASS or FAIL.
program pdgemm_client
  use mpi
  implicit none
  integer :: n, nb, context, me, ranks, rows, columns, row, column, local_rows, local_columns, info, i, j, k, gi, gj, error
  integer :: descriptor(9), grid(2)
  integer, external :: numroc, indxl2g
  double precision, allocatable :: a(:,:), b(:,:), c(:,:), x(:,:), y(:,:)
  integer, allocatable :: pivots(:)
  double precision :: worst, s
  n = argument(1); nb = argument(2)
  call blacs_pinfo(me, ranks)
  grid = 0; call MPI_Dims_create(ranks, 2, grid, error)
  call blacs_get(-1, 0, context); call blacs_gridinit(context, 'R', grid(1), grid(2))
  call blacs_gridinfo(context, rows, columns, row, column)
  local_rows = numroc(n, nb, row, 0, rows); local_columns = numroc(n, nb, column, 0, columns)
  call descinit(descriptor, n, n, nb, nb, 0, 0, context, max(1, local_rows), info)
  allocate(a(local_rows,local_columns), b(local_rows,local_columns), c(local_rows,local_columns), pivots(local_rows+nb))
  do j = 1, local_columns
     gj = indxl2g(j, nb, column, 0, columns)
     do i = 1, local_rows
        gi = indxl2g(i, nb, row, 0, rows); a(i,j) = entry_a(gi,gj); b(i,j) = entry_b(gi,gj)
     end do
  end do

  c = 0
  call pdgemm('N', 'N', n, n, n, 1d0, a, 1, 1, descriptor, b, 1, 1, descriptor, 0d0, c, 1, 1, descriptor)
  worst = 0
  do j = 1, local_columns, 13
     gj = indxl2g(j, nb, column, 0, columns)
     do i = 1, local_rows, 11
        gi = indxl2g(i, nb, row, 0, rows); s = 0
        do k = 1, n; s = s + entry_a(gi,k)*entry_b(k,gj); end do
        worst = max(worst, abs(s - c(i,j)))
     end do
  end do
  worst = over_all(worst, MPI_MAX)
  if (me == 0) print '(a,i0,a,i0,a,es10.3,1x,a)', 'pdgemm grid ', rows, 'x', columns, ' error ', worst, &
       merge('PASS', 'FAIL', worst == 0)

  do j = 1, local_columns
     gj = indxl2g(j, nb, column, 0, columns)
     do i = 1, local_rows
        if (indxl2g(i, nb, row, 0, rows) == gj) a(i,j) = a(i,j) + n
     end do
  end do
  c = a; x = b; y = b
  call pdgesv(n, n, c, 1, 1, descriptor, pivots, x, 1, 1, descriptor, info)
  call pdgemm('N', 'N', n, n, n, 1d0, a, 1, 1, descriptor, x, 1, 1, descriptor, -1d0, y, 1, 1, descriptor)
  worst = over_all(maxval(abs(y)), MPI_MAX)/n
  s = sqrt(over_all(sum(x**2), MPI_SUM))
  if (me == 0) print '(a,i0,a,es10.3,a,es21.14,1x,a)', 'pdgesv info ', info, ' residual ', worst, ' norm ', s, &
       merge('PASS', 'FAIL', worst < 1d-13 .and. info == 0)
  call blacs_gridexit(context); call blacs_exit(0)
contains
  integer function argument(which)
    integer, intent(in) :: which
    character(len=16) :: text
    call get_command_argument(which, text); read(text, *) argument
  end function
  double precision function over_all(mine, operation)
    double precision, intent(in) :: mine
    integer, intent(in) :: operation
    call MPI_Allreduce(mine, over_all, 1, MPI_DOUBLE_PRECISION, operation, MPI_COMM_WORLD, error)
  end function
  pure double precision function entry_a(i, j)
    integer, intent(in) :: i, j
    entry_a = mod(i*7 + j*3, 19) - 9
  end function
  pure double precision function entry_b(i, j)
    integer, intent(in) :: i, j
    entry_b = mod(i*5 + j*11, 23) - 11
  end function
end program
