#!/usr/bin/env python3
"""Compile kernels/*.cu to PTX with NVRTC alone: no nvcc, no driver, no GPU.

    scripts/ptx             # writes kernels/ptx/NAME.compute_75.ptx and NAME.compute_80.ptx (product_*: what has the instructions)
    scripts/ptx --check     # writes nothing; fails if a committed file is not what the source gives
    scripts/ptx --cubins    # also compiles everything for every architecture with the newest NVRTC, and tells registers and spills

The PTX comes from NVRTC 12.0 (PTX ISA 8.0: drivers from 525 on load it) and is the same byte for byte on every machine. Both
compilers are installed from PyPI into virtual environments under target/, at the first use.
"""
import argparse
import ctypes
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
PTX = KERNELS / "ptx"
# 75 is the oldest that CUDA 13 knows; 80 has what the newer ones gain from. Every later GPU runs the second.
VIRTUAL = ["compute_75", "compute_80"]
REAL = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
# Kernels with instructions that not every GPU has. The letter a: only compute capability 9.0, none later.
ONLY = {"product_mma": (["compute_80"], REAL[1:]), "product_wgmma": (["compute_90a"], ["sm_90a"])}
# a * b + c rounds twice unless the source says __fma_rn, on the device as on the software device.
OPTIONS = ["--std=c++17", "--fmad=false"]


class Nvrtc:
    def __init__(self, environment):
        found = sorted(pathlib.Path(environment).glob("lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*"))
        if not found:
            sys.exit(f"ptx: no libnvrtc in {environment}; remove that folder and run scripts/ptx again")
        self.library = ctypes.CDLL(str(found[0]))

    def _text(self, program, kind):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{kind}")(program, buffer)
        return buffer.raw

    def compile(self, source, architecture, *options):
        """The PTX or cubin of a file, and what the compiler said."""
        program = ctypes.c_void_p()
        text = source.read_bytes()
        if self.library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None):
            sys.exit("ptx: nvrtcCreateProgram failed")
        options = [f"--gpu-architecture={architecture}", *OPTIONS, *options]
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = self.library.nvrtcCompileProgram(program, len(options), array)
        log = self._text(program, "ProgramLog").rstrip(b"\0").decode().strip()
        if status:
            sys.exit(f"ptx: {source.name} for {architecture}:\n{log}")
        out = self._text(program, "PTX" if architecture.startswith("compute") else "CUBIN")
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return out, log


def architectures(source):
    """For which a file is compiled: virtual ones to PTX, real ones to cubins."""
    return ONLY.get(source.stem, (VIRTUAL, REAL))


def make(nvrtc, check):
    """Writes or compares the PTX of every file; the number of stale files."""
    want = {}
    for source in sorted(KERNELS.glob("*.cu")):
        for architecture in architectures(source)[0]:
            code, log = nvrtc.compile(source, architecture)
            if log:
                print(log, file=sys.stderr)
            # A function that this NVRTC declares but does not have becomes a call that no driver can link.
            if missing := re.findall(rb"\.extern \.func [^;]*?(\w+)\s*\(", code):
                sys.exit(f"ptx: {source.name} calls {b', '.join(missing).decode()}, which NVRTC 12.0 does not have")
            want[PTX / f"{source.stem}.{architecture}.ptx"] = code.rstrip(b"\0")
    stale = [path for path, code in want.items() if not path.exists() or path.read_bytes() != code]
    stale += [path for path in sorted(PTX.glob("*.ptx")) if path not in want]
    if check:
        for path in stale:
            print(f"ptx: {path.relative_to(ROOT)} is stale: run scripts/ptx and commit what it writes", file=sys.stderr)
        return len(stale)
    PTX.mkdir(exist_ok=True)
    for path in stale:
        if path in want:
            path.write_bytes(want[path])
        else:
            path.unlink()
        print(f"{path.relative_to(ROOT)} {'written' if path in want else 'removed'}")
    return 0


def usage(log):
    """(kernel, registers, bytes of spills, bytes of shared memory) from what `ptxas -v` says."""
    entry, spills = None, 0
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            entry, spills = found[1], 0
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(found[1]) + int(found[2])
        elif (found := re.search(r"Used (\d+) registers", line)) and entry:
            shared = re.search(r"(\d+) bytes smem", line)
            yield entry, int(found[1]), spills, int(shared[1]) if shared else 0
            entry = None


def cubins(nvrtc):
    """Compiles everything for every architecture and prints a table of the resources."""
    table = {}
    for source in sorted(KERNELS.glob("*.cu")):
        for architecture in architectures(source)[1]:
            code, log = nvrtc.compile(source, architecture, "--ptxas-options=-v")
            print(f"{source.name} {architecture}: {len(code)} bytes", file=sys.stderr)
            for entry, registers, spills, shared in usage(log):
                table.setdefault(entry, {})[architecture] = f"{registers}" + (f"+{spills}B" if spills else "")
                table[entry]["shared"] = str(shared)
    print("Registers a thread, and bytes of spills where there are any; shared memory of a block in bytes.")
    columns = [*REAL, "sm_90a", "shared"]
    print(f"{'kernel':25}" + "".join(f"{name:>9}" for name in columns))
    for entry, row in table.items():
        print(f"{entry:25}" + "".join(f"{row.get(name, '-'):>9}" for name in columns))


def main():
    parser = argparse.ArgumentParser(prog="scripts/ptx", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a committed file is stale")
    parser.add_argument("--cubins", action="store_true", help="compile for every architecture too")
    parser.add_argument("--pinned", help=argparse.SUPPRESS)
    parser.add_argument("--current", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    stale = make(Nvrtc(arguments.pinned), arguments.check)
    if arguments.cubins:
        cubins(Nvrtc(arguments.current))
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
