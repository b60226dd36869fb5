/* fenv flush|rounding|traps|flags: DGEMM in a program with a floating-point
 * environment of its own. The call comes first of all, so that the threads of
 * the library, if it has any, are born into that environment. */
#include "oz2test.h"
#include <fenv.h>
#include <xmmintrin.h>

enum { CONTROL = 0xFFC0, FLUSH = 0x8040 };

static void same_control(unsigned before)
{
    if ((_mm_getcsr() & CONTROL) != (before & CONTROL))
        fail("MXCSR was %04x and is %04x", before, _mm_getcsr());
}

/* Multiplies with the given control word. What the test itself computes, before
 * and after, needs a clean one. */
static void multiply_with(unsigned control, struct product *p)
{
    unsigned clean = _mm_getcsr();
    _mm_setcsr(control);
    multiply(p);
    same_control(control);
    _mm_setcsr(clean);
}

/* Two exact products, one of them with subnormal input, and a rounded one, of
 * which it returns the hash. */
static uint64_t work(unsigned control, int subnormal)
{
    struct product p = integers(300, 200, 150, 1, 0, 0);
    multiply_with(control, &p);
    check_integers(&p, 0);
    done(&p);
    if (subnormal) {
        p = integers(90, 100, 110, 2, -1074, 1000);
        multiply_with(control, &p);
        check_integers(&p, -74);
        done(&p);
    }
    p = fractions(310, 190, 170, 3);
    multiply_with(control, &p);
    uint64_t h = hash(&p);
    done(&p);
    return h;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    int emulating = counter("emulated") >= 0;
    alarm(120);
    if (!strcmp(mode, "flush")) {
        unsigned clean = _mm_getcsr();
        uint64_t flushed = work(clean | FLUSH, emulating);
        if (work(clean, 1) != flushed)
            fail("other bits with FTZ and DAZ");
        need_emulated(6);
    } else if (!strcmp(mode, "rounding")) {
        static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
        uint64_t first = 0;
        for (int i = 0; i < 4; i++) {
            fesetround(modes[i]);
            unsigned control = _mm_getcsr();
            fesetround(FE_TONEAREST);
            uint64_t h = work(control, 1);
            if (i == 0)
                first = h;
            else if (h != first && emulating)
                fail("other bits with rounding mode %d", i);
        }
        need_emulated(12);
    } else if (!strcmp(mode, "traps")) {
        /* Nothing is invalid in integers, nor inexact: no trap may go off. */
        feenableexcept(FE_ALL_EXCEPT);
        unsigned control = _mm_getcsr();
        exact(300, 200, 150, 1);
        exact(31, 17, 23, 2);
        same_control(control);
        /* Fractions are inexact natively too; nothing else is allowed. */
        fedisableexcept(FE_INEXACT);
        control = _mm_getcsr();
        struct product p = fractions(310, 190, 170, 3);
        multiply(&p);
        same_control(control);
        need_emulated(3);
    } else if (!strcmp(mode, "flags")) {
        /* Raised flags stay, and none is added that native DGEMM would not add. */
        feclearexcept(FE_ALL_EXCEPT);
        struct product p = integers(300, 200, 150, 1, 0, 0);
        multiply(&p);
        if (fetestexcept(FE_ALL_EXCEPT))
            fail("exact integers raise %x", fetestexcept(FE_ALL_EXCEPT));
        check_integers(&p, 0);
        struct product q = fractions(310, 190, 170, 3);
        feclearexcept(FE_ALL_EXCEPT);
        feraiseexcept(FE_DIVBYZERO);
        multiply(&q);
        if ((fetestexcept(FE_ALL_EXCEPT) & ~FE_INEXACT) != FE_DIVBYZERO)
            fail("fractions leave %x", fetestexcept(FE_ALL_EXCEPT));
        need_emulated(2);
    } else {
        fail("usage: fenv flush|rounding|traps|flags");
    }
    printf("good\n");
    return 0;
}
