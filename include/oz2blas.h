/* oz2blas: what a program may ask of the library. GEMM itself has the names of a BLAS and needs no header.
 *
 * Made by cbindgen from src/abi/control.rs; do not edit. Every function may be called from any thread.
 * Licence: MIT OR Apache-2.0.
 */

#ifndef OZ2BLAS_H
#define OZ2BLAS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the library, such as "0.1.0".
 */
const char *oz2_version(void);

/*
 The statistics of the process as JSON. Like snprintf: writes at most `size` bytes, always terminates them, and returns the
 length of the whole text without its zero. `json` may be null if `size` is 0.

 # Safety

 `json` is null or can hold `size` bytes.
 */
size_t oz2_get_stats(char *json,
                     size_t size);

/*
 The last outermost GEMM of the calling thread as JSON ({"route":"none"} before one); returns as oz2_get_stats does.

 # Safety

 `json` is null or can hold `size` bytes.
 */
size_t oz2_last_call(char *json,
                     size_t size);

/*
 Sets all counters of the statistics to zero.
 */
void oz2_reset_stats(void);

/*
 Sets an option for all calls that start from now on; it wins over the environment. `name` is in any case, without OZ2_.
 Returns 0 done, 1 unknown name, 2 bad value, 3 too late (after the first GEMM call, for what is read once).

 # Safety

 `name` and `value` are null or C strings.
 */
int oz2_set_option(const char *name,
                   const char *value);

/*
 The value of an option in force, as it was written; returns as oz2_get_stats does, and 0 with an empty text for an unknown
 name.

 # Safety

 `name` is null or a C string; `value` is null or can hold `size` bytes.
 */
size_t oz2_get_option(const char *name,
                      char *value,
                      size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OZ2BLAS_H */
