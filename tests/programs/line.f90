! A line that the runtime library keeps until the process ends, where standard output is a file.
subroutine print_line() bind(c)
   print *, 'a line'
end subroutine print_line
