#!/usr/bin/env python3
"""Runs cases.jsonl against a BLAS shared library through ctypes.

  check_cases.py LIB [options]
    --cases FILE       other case file (default: cases.jsonl beside this file)
    --only TEXT        only ids that contain TEXT
    --int64            plain names (dgemm_, cblas_dgemm) take 64-bit integers
    --global           load LIB into the global scope and take the symbols from
                       there (what LD_PRELOAD put in front of LIB wins)
    --apis LIST        comma list out of f,c,f64,c64 (default: all exported)
    --strict           lax behaviour (known deviations of others) also fails
    --skip-heavy       leave out cases with 20-GiB address ranges
    --process          also run the process-level checks
    --no-shim          do not override xerbla, read error numbers from messages
    --timeout S        per case (default 120)
    -v                 one line per call

Prints 'N passed, N failed' last and lists failing names; exit status 1 if any
failed.  Every case runs through every exported entry point, column- and
row-major, with A, B, C each ending right before (or starting right after) an
unmapped page, A and B write-protected, all padding of A and B filled with NaN
and all padding of C filled with a sentinel that must survive.
"""
import argparse
import ctypes as ct
import json
import math
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
M64 = (1 << 64) - 1
PAGE = os.sysconf("SC_PAGE_SIZE")
INF = math.inf

# ---------------------------------------------------------------- case data


def from_bits(b):
    return struct.unpack("<d", struct.pack("<Q", b))[0]


def untok(t):
    if not isinstance(t, str):
        return float(t)
    if t.startswith("bits:"):
        return from_bits(int(t[5:], 16))
    if t in ("nan", "inf", "-inf"):
        return float(t)
    return float.fromhex(t)


def tok_bits(t):
    """64-bit pattern of a token (keeps NaN payloads)."""
    if isinstance(t, str) and t.startswith("bits:"):
        return int(t[5:], 16)
    return struct.unpack("<Q", struct.pack("<d", untok(t)))[0]


def splitmix(x):
    z = (x + 0x9E3779B97F4A7C15) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def rnd(seed, r, c):
    return splitmix(splitmix(seed) ^ ((r << 32) | c))


def element(g, r, c, rows, cols):
    if "rows" in g:
        return from_bits(tok_bits(g["rows"][r][c]))
    kind = g["gen"]
    if kind == "int":
        return float(g["lo"] + rnd(g["seed"], r, c) % (g["hi"] - g["lo"] + 1))
    if kind == "f53":
        h = rnd(g["seed"], r, c)
        e = g["emin"] + splitmix(h) % (g["emax"] - g["emin"] + 1)
        v = math.ldexp(float((h & ((1 << 52) - 1)) | (1 << 52)), e - 52)
        return -v if h >> 63 else v
    if kind == "const":
        return untok(g["v"])
    if kind == "eye":
        return untok(g.get("v", "0x1p+0")) if r == c else 0.0
    if kind == "perm":
        return 1.0 if c == (g["mul"] * r + g["add"]) % cols else 0.0
    if kind in ("rowpow", "colpow"):
        v = element(g["base"], r, c, rows, cols)
        return math.ldexp(v, g["off"] + g["step"] * (r if kind == "rowpow" else c))
    if kind == "set":
        for rr, cc, t in g["at"]:
            if (rr, cc) == (r, c):
                return untok(t)
        return element(g["base"], r, c, rows, cols)
    raise ValueError(kind)


BUILT = {}


def build(g, rows, cols):
    """All elements. A case runs in some 30 ways with the same few matrices, so
    they are kept until the next case."""
    key = json.dumps([g, rows, cols])
    if key not in BUILT:
        if len(BUILT) >= 6:
            BUILT.clear()
        BUILT[key] = [[element(g, r, c, rows, cols) for c in range(cols)]
                      for r in range(rows)]
    return BUILT[key]


def is_t(tr):
    return tr[0] in "tTcC"


# ---------------------------------------------------------- guarded memory

libc = ct.CDLL(None, use_errno=True)
libc.mmap.restype = ct.c_void_p
libc.mmap.argtypes = [ct.c_void_p, ct.c_size_t, ct.c_int, ct.c_int, ct.c_int,
                      ct.c_long]
libc.munmap.argtypes = [ct.c_void_p, ct.c_size_t]
libc.mprotect.argtypes = [ct.c_void_p, ct.c_size_t, ct.c_int]
PROT_NONE, PROT_R, PROT_RW = 0, 1, 3
MAP_FLAGS = 0x02 | 0x20 | 0x4000          # private, anonymous, no reserve
PAD_AB = 0x7FF80000BADBAD00               # quiet NaN in the padding of A, B
PAD_C = 0x7FF8C0FFEEC0FFEE                # sentinel in the padding of C
CANARY = 0xA5


class Unmappable(Exception):
    pass


class Region:
    """nbytes between two unmapped pages, flush with the one or the other."""

    def __init__(self, nbytes, end=True, misalign=0):
        self.span = -(-(nbytes + 8) // PAGE) * PAGE
        self.base = libc.mmap(None, self.span + 2 * PAGE, PROT_NONE, MAP_FLAGS,
                              -1, 0)
        if self.base in (None, ct.c_void_p(-1).value):
            raise Unmappable()
        self.lo = self.base + PAGE
        self.n = nbytes
        if end:
            self.addr = self.lo + self.span - nbytes
            self.addr -= (8 - misalign) % 8 if misalign else 0
        else:
            self.addr = self.lo + misalign
        self.big = nbytes > (1 << 28)
        if not self.big:
            libc.mprotect(self.lo, self.span, PROT_RW)
            ct.memset(self.lo, CANARY, self.span)
        self.pages = set()

    def open_for(self, off, n):
        """Make bytes off..off+n usable (only needed for big regions)."""
        if not self.big:
            return
        a = (self.addr + off) // PAGE * PAGE
        b = self.addr + off + n
        while a < b:
            if a not in self.pages:
                libc.mprotect(a, PAGE, PROT_RW)
                ct.memset(a, CANARY, PAGE)
                self.pages.add(a)
            a += PAGE

    def protect(self, prot):
        if self.big:
            for a in self.pages:
                libc.mprotect(a, PAGE, prot)
        else:
            libc.mprotect(self.lo, self.span, prot)

    def snapshot(self):
        if self.big:
            return {a: ct.string_at(a, PAGE) for a in sorted(self.pages)}
        return {self.lo: ct.string_at(self.lo, self.span)}

    def free(self):
        libc.munmap(self.base, self.span + 2 * PAGE)


class Matrix:
    """A stored rows x cols matrix in guarded memory."""

    def __init__(self, values, rows, cols, ld, colmajor, pad, end, misalign=0,
                 extra=0):
        self.rows, self.cols, self.ld, self.cm = rows, cols, ld, colmajor
        outer, inner = (cols, rows) if colmajor else (rows, cols)
        self.outer, self.inner = outer, inner
        n = (outer - 1) * ld + inner if outer and inner else 0
        self.count = max(n, extra)
        self.reg = Region(8 * self.count, end, misalign)
        self.addr = self.reg.addr
        padb = struct.pack("<Q", pad)
        self.used = set()
        if self.reg.big:
            for o in range(outer):
                self.reg.open_for(8 * o * ld, 8 * inner)
        elif self.count:
            ct.memmove(self.addr, padb * self.count, 8 * self.count)
        for o in range(outer):
            if values is None:
                col = padb * inner
            elif colmajor:
                col = struct.pack("<%dd" % inner, *[r[o] for r in values])
            else:
                col = struct.pack("<%dd" % inner, *values[o])
            if inner:
                ct.memmove(self.addr + 8 * o * ld, col, 8 * inner)

    def read(self):
        out = [[0.0] * self.cols for _ in range(self.rows)]
        for o in range(self.outer):
            raw = struct.unpack("<%dd" % self.inner,
                                ct.string_at(self.addr + 8 * o * self.ld,
                                             8 * self.inner))
            for i, v in enumerate(raw):
                if self.cm:
                    out[i][o] = v
                else:
                    out[o][i] = v
        return out

    def outside_changed(self, before):
        """True if a byte changed that is not an element of the matrix."""
        after = self.reg.snapshot()
        for a, x in before.items():
            y = after[a]
            if x == y:
                continue
            x, y = bytearray(x), bytearray(y)
            for o in range(self.outer):
                s = self.addr + 8 * o * self.ld - a
                e = s + 8 * self.inner
                s, e = max(s, 0), min(e, len(x))
                if s < e:
                    x[s:e] = y[s:e]
            if x != y:
                return True
        return False


# ------------------------------------------------------------------ calling

SHIM = r"""
#include <stddef.h>
int shim_called; long long shim_info; int shim_kind;
static void note(long long i, int k) { shim_called++; shim_info = i; shim_kind = k; }
#define F(n) void n(const char *s, const int *i, size_t l) { note(*i, 1); }
F(xerbla_) F(xerbla) F(XERBLA) F(xerbla_64_) F(xerbla_64) F(xerbla64_) F(scipy_xerbla_) F(scipy_xerbla_64_)
#define C(n) void n(int i, const char *r, const char *f, ...) { note(i, 2); }
C(cblas_xerbla) C(cblas_xerbla64_) C(cblas_xerbla_64) C(scipy_cblas_xerbla) C(scipy_cblas_xerbla64_)
"""

MESSAGE = re.compile(r"parameter\s*(?:number\s*)?(\d+)", re.I)


class Lib:
    def __init__(self, path, use_global, int64, shim):
        self.shim = ct.CDLL(shim, mode=ct.RTLD_GLOBAL) if shim else None
        mode = os.RTLD_NOW | (ct.RTLD_GLOBAL if use_global else ct.RTLD_LOCAL)
        self.h = ct.CDLL(path, mode=mode)
        src = ct.CDLL(None) if use_global else self.h
        self.fn = {}
        for pre in ("", "scipy_"):
            plain = "64" if int64 else ""
            for api, names in (("f" + plain, ["dgemm_"]),
                               ("c" + plain, ["cblas_dgemm"]),
                               ("f64", ["dgemm_64_", "dgemm_64", "dgemm64_"]),
                               ("c64", ["cblas_dgemm64_", "cblas_dgemm_64"])):
                for nm in names:
                    try:
                        f = getattr(src, pre + nm)
                    except AttributeError:
                        continue
                    f.restype = None
                    if api[0] == "c":
                        it = ct.c_int64 if api.endswith("64") else ct.c_int
                        f.argtypes = [ct.c_int] * 3 + [it] * 3 + [
                            ct.c_double, ct.c_void_p, it, ct.c_void_p, it,
                            ct.c_double, ct.c_void_p, it]
                    key = api if api not in self.fn else api + "'" + nm
                    self.fn[key] = f

    def shim_take(self):
        if not self.shim:
            return None
        c = ct.c_int.in_dll(self.shim, "shim_called")
        v = ct.c_longlong.in_dll(self.shim, "shim_info").value
        kd = ct.c_int.in_dll(self.shim, "shim_kind").value
        n, c.value = c.value, 0
        return (n, v & 0xFFFFFFFF if v >= 0 else v, kd)


CB_TRANS = {"n": 111, "t": 112, "c": 113}


def cb_trans(ch):
    return CB_TRANS.get(ch[0].lower(), 999)


def call_f(fn, wide, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
           hidden):
    keep = []

    def num(v):
        # four or eight bytes, junk behind
        raw = struct.pack("<q", v) + b"\x5a" * 8 if wide else \
            struct.pack("<i", v) + b"\x5a" * 12
        x = ct.create_string_buffer(raw, 16)
        keep.append(x)
        return ct.addressof(x)

    def real(v):
        x = ct.c_double(v)
        keep.append(x)
        return ct.addressof(x)

    def ch(s):
        x = ct.create_string_buffer(s.encode() + b"\xfe\xfe\xfe\xfe", len(s) + 4)
        keep.append(x)
        return ct.addressof(x)

    args = [ch(ta), ch(tb), num(m), num(n), num(k), real(alpha), a, num(lda),
            b, num(ldb), real(beta), c, num(ldc)]
    args = [ct.c_void_p(x) for x in args]
    if hidden == "right":
        args += [ct.c_size_t(len(ta)), ct.c_size_t(len(tb))]
    elif hidden == "junk":
        args += [ct.c_size_t(M64), ct.c_size_t(0)]
    fn(*args)


libm = ct.CDLL("libm.so.6")
FE_ALL, FE_INVALID = 0x3D, 1


def fenv_state():
    one = [2.0 ** -1022]
    return (libm.fegetround(), libm.fegetexcept(), one[0] * 0.5 != 0.0,
            (one[0] / 4) * 4 != 0.0)


def plans(case, lib):
    """(label, api key, layout, end, hidden) for every way to run the case."""
    out = []
    for key in lib.fn:
        if key[0] == "f":
            out.append((key + "/hidden", key, "C", True, "right"))
            out.append((key + "/bare", key, "C", False, "none"))
            if case["rule"] != "error":
                out.append((key + "/junk", key, "C", True, "junk"))
        else:
            out.append((key + "/col", key, "C", True, None))
            out.append((key + "/row", key, "R", False, None))
    if case["rule"] == "error":
        lay = case["layout"]
        out = [p for p in out if p[2] == lay or p[1][0] == "f" and lay == "C"]
        out = [p for p in out if p[1][0] == "c" or lay == "C"]
        out = [p for p in out if not p[0].endswith("/bare")]
    return out


def swapped(case):
    c = dict(case)
    c.update(transa=case["transb"], transb=case["transa"], m=case["n"],
             n=case["m"], lda=case["ldb"], ldb=case["lda"])
    return c


def special(spec, end):
    if spec == "null":
        return None, 0
    if spec == "noaccess":
        r = Region(64, True)
        r.protect(PROT_NONE)
        return r, r.lo + 64
    raise ValueError(spec)


def run_plan(lib, case, plan):
    """Returns (list of faults, list of lax notes, result rows or None)."""
    label, key, layout, end, hidden = plan
    faults, lax, soft = [], [], []
    ta, tb, m, n, k = (case[x] for x in ("transa", "transb", "m", "n", "k"))
    cm = case["layout"] == "C"
    alpha, beta = untok(case["alpha"]), untok(case["beta"])
    mis = case.get("misalign", [0, 0, 0])
    err = case["rule"] == "error"
    if err:
        ra = ca = rb = cb = 2
        mm = nn = 2
        extra, lds = 8, (2, 2, 2)
    else:
        ra, ca = (k, m) if is_t(ta) else (m, k)
        rb, cb = (n, k) if is_t(tb) else (k, n)
        mm, nn = m, n
        extra, lds = 0, (case["lda"], case["ldb"], case["ldc"])
    regs = []

    def make(spec, r, c, ld, pad, mi):
        if spec in ("null", "noaccess"):
            reg, addr = special(spec, end)
            if reg:
                regs.append(reg)
            return None, addr
        mat = Matrix(build(spec, r, c), r, c, ld, cm, pad, end, mi, extra)
        regs.append(mat.reg)
        return mat, mat.addr

    try:
        A, pa = make(case["A"], ra, ca, lds[0], PAD_AB, mis[0])
        if case["B"] == "=A":
            B, pb = A, pa
        else:
            B, pb = make(case["B"], rb, cb, lds[1], PAD_AB, mis[1])
        alias = case["C"] == "=A"
        if alias:
            C, pc = A, pa
        else:
            C, pc = make(case["C"], mm, nn, lds[2], PAD_C, mis[2])
    except Unmappable:
        for r in regs:
            r.free()
        return ["skip: address space"], [], [], None
    snapA = A.reg.snapshot() if A else None
    snapB = B.reg.snapshot() if B and B is not A else None
    snapC = C.reg.snapshot() if C else None
    if A and not alias:
        A.reg.protect(PROT_R)
    if B and B is not A:
        B.reg.protect(PROT_R)
    lib.shim_take()
    env0 = fenv_state()
    libm.feclearexcept(FE_ALL)
    wide = "64" in key
    swap = (layout == "R") == cm                     # need the transposed view
    cc = swapped(case) if swap else case
    x, y = (pb, pa) if swap else (pa, pb)
    if key[0] == "f":
        call_f(lib.fn[key], wide, cc["transa"], cc["transb"], cc["m"], cc["n"],
               cc["k"], alpha, x, cc["lda"], y, cc["ldb"], beta, pc,
               cc["ldc"], hidden)
    else:
        order = case.get("order", 102 if layout == "C" else 101)
        lib.fn[key](order, cb_trans(cc["transa"]), cb_trans(cc["transb"]),
                    cc["m"], cc["n"], cc["k"], alpha, x, cc["lda"], y,
                    cc["ldb"], beta, pc, cc["ldc"])
    flags = libm.fetestexcept(FE_ALL)
    env1 = fenv_state()
    if env1 != env0:
        faults.append("floating-point environment changed %r -> %r" % (env0, env1))
    shim = lib.shim_take()
    rows = None
    if err:
        want = case["expect"]
        ok = [want["fortran"]] if key[0] == "f" else [want["cblas"]]
        if shim and shim[0]:
            if shim[1] not in ok:
                if key[0] == "c" and shim[1] == want["fortran"]:
                    if shim[2] != 1:        # xerbla_ gets Fortran numbers
                        lax.append("cblas_xerbla got the Fortran number %d" % shim[1])
                else:
                    faults.append("error number %d, not %s" % (shim[1], ok))
        else:
            lax.append("?error")                 # the parent looks at the output
        if C and C.reg.snapshot() != snapC:
            if case.get("lax") and "?error" in lax:
                lax.append("computes as if the argument were legal")
            else:
                faults.append("C changed although an argument is illegal")
    else:
        if shim and shim[0]:
            faults.append("xerbla(%d) for a legal call" % shim[1])
        if A and not alias and A.reg.snapshot() != snapA:
            faults.append("A changed")
        if B and B is not A and B.reg.snapshot() != snapB:
            faults.append("B changed")
        if C and not alias and C.outside_changed(snapC):
            faults.append("bytes outside the elements of C changed")
        if alias and A.outside_changed(snapA):
            faults.append("bytes outside the matrix changed")
        if case["rule"] == "unchanged":
            if C and C.reg.snapshot() != snapC:
                if case.get("lax") and only_zero_signs(snapC, C.reg.snapshot()):
                    lax.append("-0 in C became +0 (no quick return)")
                else:
                    faults.append("C changed")
        elif case["rule"] != "nocrash":
            rows = C.read()
            f = compare(case, rows)
            if f:
                faults.append(f)
        finite = all_finite(case) and rows is not None and all(
            math.isfinite(v) for r in rows for v in r)
        if finite and flags & FE_INVALID:
            soft.append("FE_INVALID raised for finite data")
    for r in regs:
        r.free()
    return faults, lax, soft, rows


def only_zero_signs(before, after):
    for a, x in before.items():
        y = after[a]
        for i in range(0, len(x), 8):
            u, v = x[i:i + 8], y[i:i + 8]
            if u != v and (u[:7] + bytes([u[7] & 127])).strip(b"\0") + \
                    (v[:7] + bytes([v[7] & 127])).strip(b"\0"):
                return False
    return True


def all_finite(case):
    def fin(s):
        t = json.dumps(s)
        return "nan" not in t and "inf" not in t and "bits:7ff" not in t
    return fin(case["A"]) and fin(case["B"]) and fin(case["alpha"]) and \
        fin(case["beta"])


def same(x, w, sign=False):
    if w != w:
        return x != x
    if x != x:
        return False
    if sign and w == 0:
        return x == 0 and math.copysign(1, x) == math.copysign(1, w)
    return x == w


HASHED = {}


def fnv(rows):
    """FNV-1a; kept, because every way to run a case should give the same."""
    key = b"".join(struct.pack("<%dd" % len(r), *r) for r in rows)
    if key not in HASHED:
        HASHED.clear()
        HASHED[key] = fnv_of(rows)
    return HASHED[key]


def fnv_of(rows):
    h = 0xCBF29CE484222325
    for r in rows:
        for v in r:
            b = 0x7FF8000000000000 if v != v else 0 if v == 0 else \
                struct.unpack("<Q", struct.pack("<d", v))[0]
            for byte in b.to_bytes(8, "little"):
                h = ((h ^ byte) * 0x100000001B3) & M64
    return "%016x" % h


def compare(case, rows):
    rule, e = case["rule"], case["expect"]
    if rule == "hash":
        if fnv(rows) != e["fnv1a64"]:
            return "wrong checksum; C[0][0]=%r want %s, C[-1][-1]=%r want %s" % (
                rows[0][0], e["first"], rows[-1][-1], e["last"])
        return None
    worst = 0.0
    for i, r in enumerate(rows):
        for j, v in enumerate(r):
            if rule == "oneof":
                ok = [e["exact"][i][j]] + e["any"]
                if not any(same(v, untok(t)) for t in ok):
                    return "C[%d][%d] = %s, not one of %s" % (i, j, v.hex(), ok)
                continue
            w = untok(e["values"][i][j])
            if rule == "bound" and math.isfinite(w):
                lim = untok(e["absbound"][i][j])
                if not (abs(v - w) <= lim):
                    return "C[%d][%d] = %s, want %s within %s" % (
                        i, j, v.hex(), w.hex(), lim.hex())
                continue
            if not same(v, w, rule == "bits"):
                return "C[%d][%d] = %s, want %s" % (i, j, v.hex(), w.hex())
    return None


# ------------------------------------------------------------------- worker


def worker(args):
    """Reads case lines on stdin, answers one JSON line per plan on fd OUT."""
    out = os.fdopen(os.dup(1), "w")
    log = os.open(args.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    lib = Lib(args.lib, args.use_global, args.int64, args.shim)
    apis = set(args.apis.split(",")) if args.apis else None
    if apis:
        lib.fn = {k: v for k, v in lib.fn.items() if k.split("'")[0] in apis}
    print(json.dumps({"apis": sorted(lib.fn)}), file=out, flush=True)
    for line in sys.stdin:
        req = json.loads(line)
        case = req["case"]
        for x, plan in enumerate(plans(case, lib)):
            if x < req["from"]:
                continue
            print(json.dumps({"start": x, "label": plan[0]}), file=out, flush=True)
            libc.fflush(None)
            pos = os.fstat(log).st_size
            faults, lax, soft, rows = run_plan(lib, case, plan)
            libc.fflush(None)
            said = os.pread(os.open(args.log, os.O_RDONLY), 4000, pos).decode(
                "utf-8", "replace") if os.fstat(log).st_size > pos else ""
            print(json.dumps({"plan": x, "label": plan[0], "faults": faults,
                              "lax": lax, "soft": soft, "said": said}),
                  file=out, flush=True)
        print(json.dumps({"done": case["id"]}), file=out, flush=True)


class Worker:
    def __init__(self, args, shim):
        self.log = tempfile.mktemp(prefix="cases-log-")
        cmd = [sys.executable, os.path.abspath(__file__), args.lib, "--worker",
               "--log", self.log]
        if shim:
            cmd += ["--shim", shim]
        if args.int64:
            cmd.append("--int64")
        if args.use_global:
            cmd.append("--global")
        if args.apis:
            cmd += ["--apis", args.apis]
        self.p = subprocess.Popen(cmd, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, bufsize=0)
        self.buf = b""
        self.hello = self.line(60)

    def line(self, timeout):
        end = time.time() + timeout
        while b"\n" not in self.buf:
            left = end - time.time()
            if left <= 0 or not select.select([self.p.stdout], [], [], left)[0]:
                return "timeout"
            got = os.read(self.p.stdout.fileno(), 65536)
            if not got:
                return None
            self.buf += got
        a, self.buf = self.buf.split(b"\n", 1)
        return json.loads(a)

    def ask(self, case, start):
        try:
            self.p.stdin.write((json.dumps({"case": case, "from": start}) + "\n").encode())
        except BrokenPipeError:
            pass

    def said(self):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()[-4000:]
        except OSError:
            return ""

    def close(self):
        # The end of its input lets the worker exit, so that a library that
        # writes statistics at exit gets to it.
        self.p.stdin.close()
        try:
            self.p.wait(10)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.p.stdout.close()
        try:
            os.unlink(self.log)
        except OSError:
            pass


def compile_shim():
    d = tempfile.mkdtemp(prefix="cases-shim-")
    src, so = os.path.join(d, "shim.c"), os.path.join(d, "shim.so")
    with open(src, "w") as f:
        f.write(SHIM)
    for cc in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if cc:
            try:
                if subprocess.run([cc, "-shared", "-fPIC", "-o", so, src],
                                  stderr=subprocess.DEVNULL).returncode == 0:
                    return so
            except OSError:
                pass
    return None


def settle_error(case, label, text, died, res):
    """No override was called: look for a message, then decide."""
    want = case["expect"]
    right = want["fortran"] if label[0] == "f" else want["cblas"]
    m = MESSAGE.search(text)
    if m:
        num = int(m.group(1))
        if num == right:
            if died:
                res["lax"].append("reports %d, but ends the process" % num)
            else:
                res["lax"].append("reports %d, but not through an overridable xerbla" % num)
        elif label[0] == "c" and num == want["fortran"]:
            res["lax"].append("cblas error reported with Fortran number %d%s" % (
                num, ", ends the process" if died else ""))
        else:
            res["faults"].append("message names parameter %d, not %d" % (num, right))
    elif died:
        res["faults"].append("process ended (%s) without a message" % died)
    elif case.get("lax"):
        res["lax"].append("accepted silently")
    else:
        res["faults"].append("illegal argument not reported")


def end_of(p):
    rc = p.wait()
    if rc < 0:
        try:
            return signal.Signals(-rc).name
        except ValueError:
            return "signal %d" % -rc
    return "exit %d" % rc


def main():
    ap = argparse.ArgumentParser(usage=__doc__)
    ap.add_argument("lib")
    ap.add_argument("--cases", default=os.path.join(HERE, "cases.jsonl"))
    ap.add_argument("--only")
    ap.add_argument("--int64", action="store_true")
    ap.add_argument("--global", dest="use_global", action="store_true")
    ap.add_argument("--apis")
    ap.add_argument("--strict", action="store_true")
    ap.add_argument("--skip-heavy", action="store_true")
    ap.add_argument("--process", action="store_true")
    ap.add_argument("--no-shim", action="store_true")
    ap.add_argument("--timeout", type=float, default=120)
    ap.add_argument("-v", action="store_true")
    ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    ap.add_argument("--probe", help=argparse.SUPPRESS)
    ap.add_argument("--shim", help=argparse.SUPPRESS)
    ap.add_argument("--log", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.worker:
        return worker(args)
    if args.probe:
        return probe(args)
    shim = None if args.no_shim else compile_shim()
    if not shim and not args.no_shim:
        print("note: no C compiler, error numbers are read from messages only")
    cases = [json.loads(x) for x in open(args.cases) if x.strip()]
    if args.only:
        cases = [c for c in cases if args.only in c["id"]]
    if args.skip_heavy:
        cases = [c for c in cases if not c.get("heavy")]
    w = Worker(args, shim)
    if not isinstance(w.hello, dict) or not w.hello["apis"]:
        why = [x for x in w.said().splitlines() if x.strip()][-1:] or [""]
        print("cannot load %s or it has no DGEMM: %s" % (args.lib, why[0]))
        return 2
    print("entry points: " + " ".join(w.hello["apis"]))
    bad, laxed, soft, chatty, skipped, passed = [], {}, {}, [], [], 0
    calls = 0
    for case in cases:
        start, faults, done = 0, [], False
        while not done:
            w.ask(case, start)
            cur = None
            while True:
                r = w.line(args.timeout)
                if r is None or r == "timeout":
                    why = "no answer in %g s" % args.timeout if r == "timeout" else end_of(w.p)
                    text = w.said()
                    res = {"faults": [], "lax": []}
                    label = cur["label"] if cur else "?"
                    if case["rule"] == "error" and r is None and \
                            case["layout"] and not why.startswith("SIG"):
                        settle_error(case, label, text, why, res)
                    else:
                        res["faults"].append("process ended: " + why if r is None else why)
                    calls += 1
                    faults += ["%s: %s" % (label, f) for f in res["faults"]]
                    for x in res["lax"]:
                        laxed.setdefault(case["id"], []).append("%s: %s" % (label, x))
                    if args.v:
                        print("   %s %s %s" % (case["id"], label, res))
                    start = cur["start"] + 1 if cur else 99
                    w.close()
                    w = Worker(args, shim)
                    break
                if "start" in r:
                    cur = r
                    continue
                if "done" in r:
                    done = True
                    break
                calls += 1
                if "?error" in r["lax"]:
                    r["lax"].remove("?error")
                    settle_error(case, r["label"], r["said"], None, r)
                elif r["said"].strip() and case["rule"] != "error":
                    chatty.append(case["id"])
                    r["lax"].append("prints during a legal call")
                if r["faults"] and r["faults"][0].startswith("skip"):
                    skipped.append(case["id"])
                    r["faults"] = []
                faults += ["%s: %s" % (r["label"], f) for f in r["faults"]]
                for x in r["lax"]:
                    laxed.setdefault(case["id"], []).append("%s: %s" % (r["label"], x))
                for x in r["soft"]:
                    soft.setdefault(x, set()).add(case["id"])
                if args.v:
                    print("   %s %s %s" % (case["id"], r["label"],
                                           r["faults"] or r["lax"] or "ok"))
        if args.strict and laxed.get(case["id"]):
            faults += laxed[case["id"]]
        if faults:
            bad.append((case, faults))
        else:
            passed += 1
    w.close()
    for case, faults in bad:
        print("FAIL %s (%s) %s" % (case["id"], case["kind"], case.get("note", "")))
        seen = set()
        for f in faults:
            t = f.split(": ", 1)[1]
            if t not in seen:
                seen.add(t)
                who = [g.split(": ", 1)[0] for g in faults if g.split(": ", 1)[1] == t]
                print("     %s  [%s]" % (t, " ".join(who)))
    if chatty:
        print("lax  prints during legal calls: %d cases" % len(set(chatty)))
    for cid, notes in laxed.items():
        if cid in chatty and len({n.split(": ", 1)[1] for n in notes}) == 1:
            continue
        print("lax  %s: %s" % (cid, "; ".join(sorted({n.split(": ", 1)[1] for n in notes}))))
    for text, ids in soft.items():
        print("soft %s: %s" % (text, " ".join(sorted(ids))))
    if skipped:
        print("skip %s: not enough address space" % " ".join(sorted(set(skipped))))
    if args.process:
        p, f = process_checks(args, w.hello["apis"])
        passed += p
        bad += f
    print("%d calls" % calls)
    print("%d passed, %d failed" % (passed, len(bad)))
    return 1 if bad else 0


# ----------------------------------------------------- process-level checks


def easy(lib):
    """A plain call f(m, n, k, A, B) -> C on lists, and raw pointers."""
    key = sorted(lib.fn)[0]
    if "f" in lib.fn or "f64" in lib.fn:
        key = "f" if "f" in lib.fn else "f64"
    fn = lib.fn[key]

    def raw(m, n, k, a, b, c, alpha=1.0, beta=0.0):
        if key[0] == "f":
            call_f(fn, "64" in key, "N", "N", m, n, k, alpha, a, max(m, 1), b,
                   max(k, 1), beta, c, max(m, 1), "right")
        else:
            fn(102, 111, 111, m, n, k, alpha, a, max(m, 1), b, max(k, 1), beta,
               c, max(m, 1))
    return raw


def arr(vals):
    return (ct.c_double * len(vals))(*vals)


def demo(raw, m, n, k, s=1):
    a = arr([float((i * 7 + s) % 11 - 5) for i in range(m * k)])
    b = arr([float((i * 5 + 3 * s) % 13 - 6) for i in range(k * n)])
    c = (ct.c_double * (m * n))(*([math.nan] * (m * n)))
    raw(m, n, k, ct.addressof(a), ct.addressof(b), ct.addressof(c))
    # check one column and one row exactly
    for j in (0, n - 1):
        for i in (0, m // 2, m - 1):
            w = sum(a[i + l * m] * b[l + j * k] for l in range(k))
            if c[i + j * m] != w:
                return "C[%d,%d] = %r, want %r" % (i, j, c[i + j * m], w)
    return None


def status(field):
    for ln in open("/proc/self/status"):
        if ln.startswith(field + ":"):
            return int(ln.split()[1])
    return 0


def rss():
    return status("VmRSS")


def mxcsr_tools():
    """(get, set) of MXCSR through a page of machine code; x86-64 only."""
    if os.uname().machine != "x86_64":
        return None
    p = libc.mmap(None, PAGE, 7, 0x22, -1, 0)
    if p in (None, ct.c_void_p(-1).value):
        return None
    ct.memmove(p, b"\x0f\xae\x1f\xc3", 4)
    ct.memmove(p + 16, b"\x0f\xae\x17\xc3", 4)
    st = ct.CFUNCTYPE(None, ct.c_void_p)(p)
    ld = ct.CFUNCTYPE(None, ct.c_void_p)(p + 16)
    box = ct.c_uint32()

    def get():
        st(ct.addressof(box))
        return box.value

    def put(v):
        box.value = v
        ld(ct.addressof(box))
    return get, put


def probe(args):
    """Runs one process-level check; prints nothing and exits 0 if good."""
    import threading
    name = args.probe
    t0 = time.time()
    lib = Lib(args.lib, args.use_global, args.int64, None)
    load = time.time() - t0
    raw = easy(lib)

    def die(text):
        sys.stderr.write("PROBE " + text + "\n")
        sys.stderr.flush()
        os._exit(1)

    def need(x):
        if x:
            die(x)

    if name == "load-idle":
        n = status("Threads")
        v = status("VmSize") // 1024
        sys.stderr.write("NOTE loads in %.0f ms, %d threads before the first call, "
                         "%d MiB of address space\n" % (load * 1e3, n, v))
    elif name == "small-stack":
        threading.stack_size(128 * 1024)
        box = []
        t = threading.Thread(target=lambda: box.append(demo(raw, 200, 180, 170)))
        t.start()
        t.join()
        need(box[0] if box else "no result")
    elif name == "fork-then-call":
        need(demo(raw, 300, 200, 150))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if demo(raw, 300, 200, 150, 2) is None else 3)
        for _ in range(300):
            p, st = os.waitpid(pid, os.WNOHANG)
            if p:
                break
            time.sleep(0.1)
        else:
            os.kill(pid, signal.SIGKILL)
            die("child of fork hangs in DGEMM")
        if st:
            die("child of fork: status %d" % st)
        need(demo(raw, 300, 200, 150, 3))
    elif name == "fork-fresh":
        pid = os.fork()
        if pid == 0:
            os._exit(0 if demo(raw, 300, 200, 150, 2) is None else 3)
        if os.waitpid(pid, 0)[1]:
            die("child fails")
        need(demo(raw, 300, 200, 150, 3))
    elif name == "eight-threads":
        # each thread multiplies its own constant matrices: C = k*(s+1)
        res = []
        gate = threading.Barrier(8)

        def go(s):
            m, n, k = 96 + s, 80 + s, 120
            a, b = arr([s + 1.0] * (m * k)), arr([1.0] * (k * n))
            c = (ct.c_double * (m * n))()
            want = struct.pack("<d", k * (s + 1.0)) * (m * n)
            gate.wait()
            for _ in range(60):
                ct.memset(c, 0xFF, 8 * m * n)
                raw(m, n, k, ct.addressof(a), ct.addressof(b), ct.addressof(c))
                if bytes(c) != want:
                    res.append("thread %d of 8: wrong result" % s)
                    return
            res.append(None)
        ts = [threading.Thread(target=go, args=(s,)) for s in range(8)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        if len(res) != 8 or any(res):
            die(str([r for r in res if r][:1] or len(res)))
    elif name == "thread-churn":
        def one():
            demo(raw, 33, 33, 33)
        for x in range(1200):
            t = threading.Thread(target=one)
            t.start()
            t.join()
            if x == 200:
                r0, v0 = rss(), status("VmSize")
        if rss() - r0 > 40000:
            die("resident memory grows %d KiB over 1000 threads" % (rss() - r0))
        if status("VmSize") - v0 > 4000000:
            die("address space grows %d KiB over 1000 threads" % (status("VmSize") - v0))
    elif name == "repeat-memory":
        for x in range(3000):
            need(demo(raw, 20 + x % 5, 21, 22))
            if x == 500:
                r0 = rss()
        if rss() - r0 > 20000:
            die("resident memory grows %d KiB over 2500 calls" % (rss() - r0))
    elif name == "trap-fpe":
        # traps on; C is NaN with beta = 0, data finite
        need(demo(raw, 5, 5, 5))
        libm.feenableexcept(1 | 4 | 8)
        for s in range(3):
            demo(raw, 37, 29, 41, s)
        libm.fedisableexcept(0x3D)
    elif name == "round-down":
        for mode in (0x400, 0x800, 0xC00):
            libm.fesetround(mode)
            r = demo(raw, 60, 50, 70)
            got = libm.fegetround()
            libm.fesetround(0)
            need(r)
            if got != mode:
                die("rounding mode not kept")
        # fractions: any rounding allowed, garbage not
        k = 64
        a = arr([1.0 / (i + 3) for i in range(k)])
        b = arr([1.0 / (i + 7) for i in range(k)])
        c = arr([0.0])
        want = math.fsum(x * y for x, y in zip(a, b))
        for mode in (0x400, 0x800, 0xC00):
            libm.fesetround(mode)
            raw(1, 1, k, ct.addressof(a), ct.addressof(b), ct.addressof(c))
            libm.fesetround(0)
            if not abs(c[0] - want) <= 2 * (k + 3) * 2.0 ** -53 * want:
                die("rounding mode %x gives %r, want about %r" % (mode, c[0], want))
    elif name == "ftz-host":
        tools = mxcsr_tools()
        if tools:
            get, put = tools
            old = get()
            put(old | 0x8040)
            r = demo(raw, 60, 50, 70)
            new = get()
            put(old)
            need(r)
            if new & 0xFFC0 != (old | 0x8040) & 0xFFC0:
                die("FTZ/DAZ of the host changed: %x" % new)
    elif name == "dlclose":
        need(demo(raw, 300, 200, 150))
        import _ctypes
        h = lib.h._handle
        lib = raw = None
        _ctypes.dlclose(h)
        time.sleep(0.2)
    elif name == "exit-from-thread":
        def go():
            demo(raw, 200, 200, 200)
            libc.exit(0)
        t = threading.Thread(target=go)
        t.start()
        t.join(30)
        die("exit() in a thread did not end the process")
    elif name == "address-limit":
        import resource
        lim = status("VmSize") * 1024 + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (lim, lim))
        need(demo(raw, 150, 150, 150))
    elif name == "bits":
        h = 0xCBF29CE484222325
        m, n, k = 150, 140, 300
        a = arr([((splitmix(i) >> 11) * 2.0 ** -53 - 0.5) for i in range(m * k)])
        b = arr([((splitmix(i + 77777) >> 11) * 2.0 ** -53 - 0.5) for i in range(k * n)])
        c = (ct.c_double * (m * n))()
        raw(m, n, k, ct.addressof(a), ct.addressof(b), ct.addressof(c))
        for byte in bytes(c):
            h = ((h ^ byte) * 0x100000001B3) & M64
        sys.stderr.write("HASH %016x\n" % h)
    os_exit = 0
    if name not in ("dlclose", "exit-from-thread"):
        sys.exit(os_exit)


PROBES = ["load-idle", "small-stack", "fork-fresh", "fork-then-call",
          "eight-threads", "thread-churn", "repeat-memory", "trap-fpe",
          "round-down", "ftz-host", "dlclose", "exit-from-thread",
          "address-limit"]


def one_probe(args, name, env=None):
    cmd = [sys.executable, os.path.abspath(__file__), args.lib, "--probe", name]
    if args.int64:
        cmd.append("--int64")
    if args.use_global:
        cmd.append("--global")
    e = dict(os.environ)
    e.update(env or {})
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=e)
    try:
        out = p.communicate(timeout=args.timeout)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        return "no end in %g s" % args.timeout, ""
    if p.returncode:
        last = [x for x in out.splitlines() if x.startswith("PROBE")] or out.splitlines()[-1:]
        why = "signal %d" % -p.returncode if p.returncode < 0 else "exit %d" % p.returncode
        return "%s %s" % (why, " ".join(last)), out
    return None, out


def process_checks(args, apis):
    good, bad = 0, []
    for name in PROBES:
        why, out = one_probe(args, name)
        for ln in out.splitlines():
            if ln.startswith("NOTE"):
                print("note %s: %s" % (name, ln[5:]))
        if why:
            print("FAIL process/%s: %s" % (name, why))
            bad.append((name, [why]))
        else:
            good += 1
    hs = []
    for t in ("1", "2", "2", "4"):
        env = {v: t for v in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                              "BLIS_NUM_THREADS", "RAYON_NUM_THREADS",
                              "MKL_NUM_THREADS")}
        why, out = one_probe(args, "bits", env)
        hs.append(why or [x for x in out.splitlines() if "HASH" in x][0])
    if len(set(hs)) == 1:
        print("note bits: the same for 1, 2 and 4 threads")
    else:
        print("soft bits differ between 1, 2, 2, 4 threads: %s" % hs)
    return good, bad


if __name__ == "__main__":
    sys.exit(main())
