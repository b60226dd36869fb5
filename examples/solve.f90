! A program that calls LAPACK, which calls the BLAS: a system of linear equations with a known solution.
program solve
  implicit none
  integer, parameter :: n = 300
  double precision :: a(n, n), b(n), x(n)
  integer :: pivots(n), info, i
  call random_number(a)
  x = [(i, i = 1, n)]
  b = matmul(a, x)
  call dgesv(n, 1, a, n, pivots, b, n, info)
  if (info /= 0 .or. maxval(abs(b - x)) > 1d-6*n) stop 1
  print '(a)', 'solved'
end program
