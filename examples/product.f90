! A program as there are many: it multiplies two matrices with the DGEMM of its BLAS, checks the result, and knows nothing of oz2blas.
program product
  implicit none
  integer, parameter :: n = 200
  double precision :: a(n, n), b(n, n), c(n, n)
  integer :: i, j, wrong
  do j = 1, n
    do i = 1, n
      a(i, j) = modulo(i + 2*j, 19) - 9
      b(i, j) = modulo(3*i + j, 17) - 8
    end do
  end do
  call dgemm('N', 'N', n, n, n, 1d0, a, n, b, n, 0d0, c, n)
  ! Small integers: every sum is exact.
  wrong = count(c /= matmul(a, b))
  print '(i0, a, i0, a)', n*n, ' entries, ', wrong, ' wrong'
  if (wrong /= 0) stop 1
end program
