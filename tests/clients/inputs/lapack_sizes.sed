# Of LAPACK's dtest.in: sizes 100 and 132 in place of seven small ones, blocks of 32, the families of routines that call DGEMM.
s/^7 .*values of \([MN]\)$/2 values of \1/
s/^7 .*values of [MN] .*/2 sizes/
s/^0 1 2 3 5 10 50 .*/100 132/
s/^5 .*values of NB.*/1 block size/
s/^1 3 3 3 20 .*/32/
s/^1 0 5 9 1 .*/0/
/^D\(GB\|GT\|PS\|PP\|PB\|PT\|SR\|SK\|SA\|S2\|SP\|TP\|TB\|RQ\|QL\|QP\|TZ\|EQ\|QX\|XQ\|TQ\|TS\|HH\)/d
