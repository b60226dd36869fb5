! Forty routines of all three levels and all four types, on integers, so that every result is exact. Linked with -loz2blas alone.
program whole
  implicit none
  integer, parameter :: n = 4
  integer :: failures = 0
  double precision :: x(n), y(n), a(n, n), b(n, n), c(n, n), t(n, n), packed(10), band(2, n), h(5)
  real :: sx(n), sy(n)
  complex(kind(1d0)) :: z(n), w(n), za(n, n), zc(n, n)
  complex :: cx(n), cy(n)
  double precision, external :: ddot, dnrm2, dasum, dsdot, dznrm2, dzasum
  real, external :: sdot, sasum, snrm2
  complex(kind(1d0)), external :: zdotu, zdotc
  complex, external :: cdotc
  integer, external :: idamax, isamax, izamax
  integer :: i, j
  x = [1d0, -2d0, 3d0, -4d0]; y = [5d0, 6d0, 7d0, 8d0]
  sx = real(x); sy = real(y)
  z = cmplx(x, y, kind(1d0)); w = cmplx(y, x, kind(1d0)); cx = cmplx(sx, sy); cy = cmplx(sy, sx)
  do j = 1, n
    do i = 1, n
      a(i, j) = i + 2*j; b(i, j) = i*j - 3; za(i, j) = cmplx(i - j, i + j, kind(1d0))
    end do
  end do
  ! level 1
  call check(ddot(n, x, 1, y, 1), dot_product(x, y), 'ddot')
  call check(ddot(n, x, -1, y, 1), dot_product(x(n:1:-1), y), 'ddot reversed')
  call check(dble(sdot(n, sx, 1, sy, 1)), dot_product(x, y), 'sdot')
  call check(dsdot(n, sx, 1, sy, 1), dot_product(x, y), 'dsdot')
  call check(dasum(n, x, 1), 10d0, 'dasum')
  call check(dble(sasum(n, sx, 1)), 10d0, 'sasum')
  call check(dnrm2(2, [3d0, 4d0], 1), 5d0, 'dnrm2')
  call check(dble(snrm2(2, [3., 4.], 1)), 5d0, 'snrm2')
  call check(dznrm2(1, [(3d0, 4d0)], 1), 5d0, 'dznrm2')
  call check(dzasum(n, z, 1), 36d0, 'dzasum')
  call check(dble(idamax(n, x, 1)), 4d0, 'idamax')
  call check(dble(isamax(n, sx, 1)), 4d0, 'isamax')
  call check(dble(izamax(n, z, 1)), 4d0, 'izamax')
  call check(dble(zdotu(n, z, 1, w, 1)), dble(sum(z*w)), 'zdotu')
  call check(aimag(zdotc(n, z, 1, w, 1)), aimag(dot_product(z, w)), 'zdotc')
  call check(dble(aimag(cdotc(n, cx, 1, cy, 1))), aimag(dot_product(z, w)), 'cdotc')
  c(:, 1) = y; call daxpy(n, 2d0, x, 1, c, 1); call check_all(c(:, 1), y + 2*x, 'daxpy')
  sy = real(y); call saxpy(n, 2., sx, 1, sy, 1); call check_all(dble(sy), y + 2*x, 'saxpy')
  c(:, 1) = x; call dscal(n, -3d0, c, 1); call check_all(c(:, 1), -3*x, 'dscal')
  call dcopy(n, x, 1, c, 1); call check_all(c(:, 1), x, 'dcopy')
  c(:, 2) = y; call dswap(n, c, 1, c(:, 2), 1); call check_all(c(:, 1), y, 'dswap')
  c(:, 1) = x; c(:, 2) = y; call drot(n, c, 1, c(:, 2), 1, 0d0, 1d0); call check_all(c(:, 2), -x, 'drot')
  h = [-1d0, 2d0, 0d0, 0d0, 1d0]; c(:, 1) = x; c(:, 2) = y
  call drotm(n, c, 1, c(:, 2), 1, h); call check_all(c(:, 1), 2*x, 'drotm')
  zc(:, 1) = z; call zscal(n, (0d0, 1d0), zc, 1); call check_all(dble(zc(:, 1)), -y, 'zscal')
  zc(:, 1) = w; call zaxpy(n, (1d0, 0d0), z, 1, zc, 1); call check_all(dble(zc(:, 1)), x + y, 'zaxpy')
  ! level 2
  c(:, 1) = y; call dgemv('T', n, n, 1d0, a, n, x, 1, 1d0, c, 1); call check_all(c(:, 1), y + matmul(x, a), 'dgemv')
  c = a; call dger(n, n, 1d0, x, 1, y, 1, c, n); call check(c(2, 3), a(2, 3) + x(2)*y(3), 'dger')
  t = b; call dsymv('U', n, 1d0, t, n, x, 1, 0d0, c, 1); call check_all(c(:, 1), matmul(b, x), 'dsymv')
  t = b; call dsyr('L', n, 1d0, x, 1, t, n); call check(t(3, 2), b(3, 2) + x(3)*x(2), 'dsyr')
  t = b; call dsyr2('L', n, 1d0, x, 1, y, 1, t, n); call check(t(4, 1), b(4, 1) + x(4)*y(1) + y(4)*x(1), 'dsyr2')
  c(:, 1) = x; call dtrmv('U', 'N', 'U', n, a, n, c, 1); call check(c(4, 1), x(4), 'dtrmv')
  call dtrsv('U', 'N', 'U', n, a, n, c, 1); call check_all(c(:, 1), x, 'dtrsv')
  packed = [b(1:1, 1), b(1:2, 2), b(1:3, 3), b(1:4, 4)]
  call dspmv('U', n, 1d0, packed, x, 1, 0d0, c, 1); call check_all(c(:, 1), matmul(b, x), 'dspmv')
  band(1, :) = 1; band(2, :) = 2
  call dsbmv('U', n, 1, 1d0, band, 2, x, 1, 0d0, c, 1); call check(c(2, 1), x(1) + 2*x(2) + x(3), 'dsbmv')
  zc(:, 1) = 0; call zgemv('N', n, n, (1d0, 0d0), za, n, z, 1, (0d0, 0d0), zc, 1)
  call check_all(dble(zc(:, 1)), dble(matmul(za, z)), 'zgemv')
  zc = za; call zgerc(n, n, (1d0, 0d0), z, 1, w, 1, zc, n); call check(aimag(zc(1, 2)), aimag(za(1, 2) + z(1)*conjg(w(2))), 'zgerc')
  ! level 3
  call dgemm('N', 'T', n, n, n, 1d0, a, n, b, n, 0d0, c, n); call check(c(3, 4), dot_product(a(3, :), b(4, :)), 'dgemm')
  c = 0; call dsyrk('L', 'N', n, n, 1d0, a, n, 0d0, c, n); call check(c(4, 2), dot_product(a(4, :), a(2, :)), 'dsyrk')
  c = 0; call dsyr2k('L', 'N', n, n, 1d0, a, n, b, n, 0d0, c, n)
  call check(c(4, 2), dot_product(a(4, :), b(2, :)) + dot_product(b(4, :), a(2, :)), 'dsyr2k')
  call dsymm('L', 'U', n, n, 1d0, b, n, a, n, 0d0, c, n); call check(c(2, 3), dot_product(b(2, :), a(:, 3)), 'dsymm')
  c = b; call dtrmm('L', 'U', 'N', 'U', n, n, 1d0, a, n, c, n); call check(c(4, 3), b(4, 3), 'dtrmm')
  call dtrsm('L', 'U', 'N', 'U', n, n, 1d0, a, n, c, n); call check_all(c(:, 2), b(:, 2), 'dtrsm')
  call zgemm('C', 'N', n, n, n, (1d0, 0d0), za, n, za, n, (0d0, 0d0), zc, n)
  call check(aimag(zc(1, 3)), aimag(dot_product(za(:, 1), za(:, 3))), 'zgemm')
  call zherk('U', 'N', n, n, 1d0, za, n, 0d0, zc, n)
  call check(dble(zc(1, 2)), dble(dot_product(za(2, :), za(1, :))), 'zherk')
  if (failures == 0) print '(a)', 'good'
contains
  subroutine check(got, want, name)
    double precision, intent(in) :: got, want
    character(*), intent(in) :: name
    if (got /= want) then
      print *, name, got, want
      failures = failures + 1
    end if
  end subroutine
  subroutine check_all(got, want, name)
    double precision, intent(in) :: got(:), want(:)
    character(*), intent(in) :: name
    if (any(got /= want)) then
      print *, name, got, want
      failures = failures + 1
    end if
  end subroutine
end program
