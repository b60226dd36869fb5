"""dgemm_ of a shared library, and what it tells of itself; the native product."""
import contextlib
import ctypes
import json
from collections import Counter

import numpy as np


class Blas:
    """dgemm_ with 32-bit integers; plain: a BLAS without oz2_ functions."""

    def __init__(self, path, plain=False):
        library = ctypes.CDLL(str(path))
        self.dgemm = library.dgemm_
        self.dgemm.restype = None
        self.library, self.plain = library, plain
        if plain:
            return
        library.oz2_version.restype = ctypes.c_char_p
        library.oz2_last_call.restype = ctypes.c_size_t
        library.oz2_last_call.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.oz2_set_option.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        library.oz2_get_option.restype = ctypes.c_size_t
        library.oz2_get_option.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]

    def product(self, a, b, c0=None):
        """A B, or c0 - A B."""
        (m, k), n = a.shape, b.shape[1]
        a, b = np.asfortranarray(a), np.asfortranarray(b)
        if c0 is None:
            alpha, beta, c = 1.0, 0.0, np.full((m, n), np.nan, order="F")   # beta = 0: C may hold anything
        else:
            alpha, beta, c = -1.0, 1.0, np.array(c0, order="F")
        number = lambda x: ctypes.byref(ctypes.c_int32(x))
        real = lambda x: ctypes.byref(ctypes.c_double(x))
        at = lambda x: x.ctypes.data_as(ctypes.c_void_p)
        self.dgemm(b"N", b"N", number(m), number(n), number(k), real(alpha), at(a), number(m), at(b), number(k), real(beta), at(c), number(m),
                   ctypes.c_size_t(1), ctypes.c_size_t(1))
        return c

    def version(self):
        return "plain BLAS" if self.plain else self.library.oz2_version().decode()

    def last_call(self):
        return {"route": "plain"} if self.plain else json.loads(text_of(self.library.oz2_last_call))

    @contextlib.contextmanager
    def options(self, **options):
        """Options of the library for a while."""
        before = {name: text_of(self.library.oz2_get_option, name.encode()) for name in options}
        try:
            self.set(options)
            yield
        finally:
            self.set(before)

    def set(self, options):
        for name, value in options.items():
            status = self.library.oz2_set_option(name.encode(), str(value).encode())
            if status:
                raise ValueError(f"oz2_set_option({name}, {value}): status {status}")


def text_of(function, *arguments):
    """The text of a function that works as snprintf does."""
    size = function(*arguments, None, 0) + 1
    text = ctypes.create_string_buffer(size)
    function(*arguments, text, size)
    return text.value.decode()


def path_taken(call):
    """What oz2_last_call says of a call, in a few words."""
    route = call.get("route", "?")
    if route == "native":
        return f"native: {call.get('reason')}"
    if route != "emulated":
        return route
    words = [call["plan"]] if call.get("plan") else []
    lines = call.get("rows_native") or 0, call.get("columns_native") or 0
    if any(lines):
        words.append(f"{lines[0]} rows, {lines[1]} columns native")
    return "emulated" + (f": {'; '.join(words)}" if words else "")


class Recorded:
    """A product that counts the paths its calls took."""

    def __init__(self, blas):
        self.blas, self.paths, self.last = blas, Counter(), {}

    def __call__(self, a, b):
        c = self.blas.product(a, b)
        self.last = self.blas.last_call()
        self.paths[path_taken(self.last)] += 1
        return c


def native_product(path, shown):
    """(a function of two matrices and perhaps C, its name): numpy, or dgemm_ of a shared library."""
    if path:
        return Blas(path, plain=True).product, shown(path)
    name = "numpy " + np.__version__
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        name += f" with {blas['name']} {blas['version']}"
    except (TypeError, KeyError):                    # an old numpy, or one that was built without this note
        pass

    def product(a, b, c0=None):
        with np.errstate(all="ignore"):
            return a @ b if c0 is None else c0 - a @ b
    return product, name
