# The functions of include/oz2blas.h and one exact product, for a Python in
# which the library is preloaded. Tests put their own lines below these.
import ctypes
import json

lib = ctypes.CDLL(None)
lib.oz2_version.restype = ctypes.c_char_p
for name in ("oz2_get_stats", "oz2_last_call"):
    getattr(lib, name).argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    getattr(lib, name).restype = ctypes.c_size_t
lib.oz2_get_option.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
lib.oz2_get_option.restype = ctypes.c_size_t
lib.oz2_set_option.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
lib.oz2_reset_stats.restype = None


def text_of(function, *arguments):
    needed = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(needed + 64)
    assert function(*arguments, buffer, len(buffer)) < len(buffer)
    return buffer.value.decode()


def stats():
    return json.loads(text_of(lib.oz2_get_stats))


def last_call():
    return json.loads(text_of(lib.oz2_last_call))


def get_option(name):
    return text_of(lib.oz2_get_option, name.encode())


def set_option(name, value):
    name, value = (None if text is None else text.encode() for text in (name, value))
    return lib.oz2_set_option(name, value)


def product(m, n, k):
    """C = A B with A(i,h) = i - h and B(h,j) = h + j, compared entry by entry."""
    a = (ctypes.c_double * (m * k))(*[i - h for h in range(k) for i in range(m)])
    b = (ctypes.c_double * (k * n))(*[h + j for j in range(n) for h in range(k)])
    c = (ctypes.c_double * (m * n))(*[float("nan")] * (m * n))
    integers = [ctypes.byref(ctypes.c_int(x)) for x in (m, n, k)]
    one, zero = ctypes.byref(ctypes.c_double(1)), ctypes.byref(ctypes.c_double(0))
    lib.dgemm_(b"N", b"N", *integers, one, a, integers[0], b, integers[2], zero, c, integers[0],
               ctypes.c_size_t(1), ctypes.c_size_t(1))
    for j in range(n):
        for i in range(m):
            want = sum((i - h) * (h + j) for h in range(k))
            assert c[i + j * m] == want, (i, j, c[i + j * m], want)
