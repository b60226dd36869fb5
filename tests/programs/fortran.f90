! One DGEMM of 300 x 200 x 150 as a Fortran program calls it, compared with the
! sum in twice the precision. Prints the error in units of u |A| |B|.
program fortran
  implicit none
  integer, parameter :: dp = kind(1d0), qp = selected_real_kind(30)
  integer, parameter :: m = 300, n = 200, k = 150
  real(dp) :: a(m, k), b(k, n), c(m, n)
  real(qp) :: exact, size, worst
  integer :: i, j
  call random_number(a)
  call random_number(b)
  a = a - 0.5_dp
  b = b - 0.5_dp
  c = 0
  call dgemm('No transpose', 'N', m, n, k, 1d0, a, m, b, k, 0d0, c, m)
  worst = 0
  do j = 1, n, 7
     do i = 1, m, 7
        exact = sum(real(a(i, :), qp) * real(b(:, j), qp))
        size = sum(abs(real(a(i, :), qp) * real(b(:, j), qp))) * 2.0_qp**(-53)
        worst = max(worst, abs(c(i, j) - exact) / size)
     end do
  end do
  print '(a, f10.4)', 'error', worst
end program fortran
