! Multiplies matrices of several classes with DGEMM and prints one line each,
! fields separated by tabs:
!   class, size, seconds, error, moduli, route
! The error is the largest of |C - AB| / (u |A||B|), u = 2^-53, over 12 rows; AB
! is summed in quadruple precision, in which every product of two doubles is
! exact. Moduli and route come from oz2_last_call where the library is loaded.
program demo
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64
  implicit none
  integer, parameter :: dp = kind(1d0), qp = selected_real_kind(30)
  integer, parameter :: n = 768, rows = 12
  character(len=*), parameter :: classes(6) = [character(len=16) :: &
       'uniform', 'normal', 'integers -9..9', 'float32 data', &
       'exp(normal)', 'exp(2 normal)']
  real(dp), allocatable :: a(:, :), b(:, :), c(:, :)
  integer :: which

  interface
     ! The library may be there or not, so its function is looked up by name.
     function dlsym(handle, name) bind(c, name='dlsym') result(address)
       import :: c_ptr, c_funptr, c_char
       type(c_ptr), value :: handle
       character(kind=c_char), intent(in) :: name(*)
       type(c_funptr) :: address
     end function dlsym
  end interface
  abstract interface
     function last_call(json, size) bind(c) result(length)
       import :: c_char, c_size_t
       character(kind=c_char), intent(out) :: json(*)
       integer(c_size_t), value :: size
       integer(c_size_t) :: length
     end function last_call
  end interface

  allocate (a(n, n), b(n, n), c(n, n))
  call fix_seed()
  do which = 1, size(classes)
     call fill(a, classes(which))
     call fill(b, classes(which))
     call measure(trim(classes(which)))
  end do

contains

  subroutine fix_seed()
    integer :: length, i
    call random_seed(size=length)
    call random_seed(put=[(20240 + 7*i, i = 1, length)])
  end subroutine fix_seed

  subroutine fill(x, class)
    real(dp), intent(out) :: x(:, :)
    character(len=*), intent(in) :: class
    real(dp), allocatable :: z(:, :)
    call random_number(x)
    select case (class)
    case ('uniform')
       x = x - 0.5_dp
    case ('normal')
       x = normal()
    case ('integers -9..9')
       x = floor(19*x) - 9
    case ('float32 data')
       x = real(real(x - 0.5_dp, kind(1e0)), dp)
    case ('exp(normal)')
       z = normal()
       x = (x - 0.5_dp)*exp(z)
    case ('exp(2 normal)')
       z = normal()
       x = (x - 0.5_dp)*exp(2*z)
    end select
  end subroutine fill

  function normal() result(z)
    real(dp), allocatable :: z(:, :), u(:, :), v(:, :)
    allocate (u(n, n), v(n, n))
    call random_number(u)
    call random_number(v)
    z = sqrt(-2*log(1 - u))*cos(2*acos(-1d0)*v)
  end function normal

  subroutine measure(class)
    character(len=*), intent(in) :: class
    integer(int64) :: start, finish, rate
    real(dp) :: seconds, best
    integer :: i
    best = huge(best)
    do i = 1, 2                   ! the first call pays for the start of threads
       c = 0
       call system_clock(start, rate)
       call dgemm('N', 'N', n, n, n, 1d0, a, n, b, n, 0d0, c, n)
       call system_clock(finish)
       seconds = real(finish - start, dp)/real(rate, dp)
       best = min(best, seconds)
    end do
    print '(a, a, i0, a, f0.4, a, f0.3, a, a)', class, &
         char(9), n, char(9), best, char(9), error(), char(9), what_happened()
  end subroutine measure

  function error() result(worst)
    real(dp) :: worst
    real(qp) :: row(n), exact(n), size(n)
    integer :: i, h
    worst = 0
    do i = 1, n, n/rows
       exact = 0
       size = 0
       do h = 1, n
          row = real(a(i, h), qp)*real(b(h, :), qp)
          exact = exact + row
          size = size + abs(row)
       end do
       worst = max(worst, real(maxval(abs(c(i, :) - exact)/(size*2.0_qp**(-53))), dp))
    end do
  end function error

  ! "moduli TAB route", from the JSON of oz2_last_call.
  function what_happened() result(text)
    character(len=:), allocatable :: text
    character(kind=c_char, len=1024) :: json
    type(c_funptr) :: address
    procedure(last_call), pointer :: ask
    integer(c_size_t) :: length
    address = dlsym(c_null_ptr, 'oz2_last_call'//c_null_char)
    if (.not. c_associated(address)) then
       text = '-'//char(9)//'not loaded'
       return
    end if
    call c_f_procpointer(address, ask)
    length = ask(json, int(len(json), c_size_t))
    text = member(json(:length), 'route')
    if (member(json(:length), 'reason') /= 'null') text = text//': '//member(json(:length), 'reason')
    text = member(json(:length), 'moduli')//char(9)//text
  end function what_happened

  ! The value of a member of a flat JSON object, without quotes.
  function member(json, name) result(text)
    character(len=*), intent(in) :: json, name
    character(len=:), allocatable :: text
    integer :: first, last
    first = index(json, '"'//name//'":') + len(name) + 3
    last = first + scan(json(first:), ',}') - 2
    if (json(first:first) == '"') then
       first = first + 1
       last = first + index(json(first:), '"') - 2
    end if
    text = json(first:last)
  end function member
end program demo
