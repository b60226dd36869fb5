/* The error handlers of a host program. The newest call is kept for the target to look at. */
#include <stddef.h>
#include <stdint.h>

int calls, place;

void xerbla_(const char *name, const int32_t *info, size_t length)
{
    (void)name;
    (void)length;
    calls++;
    place = *info;
}

void xerbla_64_(const char *name, const int64_t *info, size_t length)
{
    (void)name;
    (void)length;
    calls++;
    place = (int)*info;
}

void cblas_xerbla(int info, const char *name, const char *form, ...)
{
    (void)name;
    (void)form;
    calls++;
    place = info;
}

void cblas_xerbla64_(int info, const char *name, const char *form, ...)
{
    (void)name;
    (void)form;
    calls++;
    place = info;
}
