/* The CUDA driver as a program sees it that uses CUDA itself, and questions to
 * the software device. Looked up by name: nothing is linked. */
#include "oz2test.h"

/* A function of the driver, or NULL where it is not loaded and not to be found. */
__attribute__((unused))
static void *cuda_symbol(const char *name, int load)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
    return library ? dlsym(library, name) : NULL;
}

/* CU(name, (types), arguments): a call that must succeed. */
#define CU(name, types, ...)                                               \
    do {                                                                   \
        int (*function) types = (int (*) types)cuda_symbol(#name, 1);      \
        if (!function)                                                     \
            fail("no " #name);                                             \
        int status = function(__VA_ARGS__);                                \
        if (status)                                                        \
            fail("%s:%d: " #name " = %d", __FILE__, __LINE__, status);     \
    } while (0)

/* Bytes of device memory in use, or 0 where the driver was never loaded. */
__attribute__((unused))
static uint64_t used(int device)
{
    uint64_t (*get)(int) = (uint64_t (*)(int))cuda_symbol("softgpu_used", 0);
    return get ? get(device) : 0;
}

/* No write outside an allocation, no lost device. */
__attribute__((unused))
static void need_well(int device)
{
    int (*lost)(int) = (int (*)(int))cuda_symbol("softgpu_lost", 0);
    if (lost && lost(device))
        fail("device %d is lost: %d", device, lost(device));
}

/* 1 if any object is mapped that has this in its file name. */
__attribute__((unused))
static int mapped(const char *part)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0;
    if (!file)
        fail("no /proc/self/maps");
    while (fgets(line, sizeof line, file))
        found |= strstr(line, part) != NULL;
    fclose(file);
    return found;
}
