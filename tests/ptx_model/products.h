// What the kernels (kernel.cpp) and their test (products.cpp) know of each other.
#pragma once

struct Arguments {
    int entry;   // which kernel of the file
    unsigned long long map_a[16], map_b[16];
    const signed char *a, *b;
    int rows, columns, pitch, planes;
    const int* modulus_of;
    signed char* out;
    int add, band;
};

struct Shape {
    int tile_rows, cluster, threads, shared;
};

Shape shape_of(int entry);
// One thread of a kernel. The argument is an Arguments.
void call_kernel(void* arguments);
// The kernel's reduction modulo the l-th modulus.
int residue_of(int sum, int l);
