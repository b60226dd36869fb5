"""A preloaded library is a guest in every helper process: it must not be noticed."""

import re
import subprocess

from helpers import LIB, PYTHON, ROOT, environment, preloaded, run


def tool(*command):
    return subprocess.run([str(x) for x in command], check=True, capture_output=True, text=True, timeout=60).stdout


def test_silent_in_a_shell():
    result = preloaded(["sh", "-c", "echo x; /bin/true"])
    assert (result.out, result.err) == ("x\n", "")


def test_no_call_no_file(tmp_path):
    """Statistics of processes that never multiply would bury the others."""
    preloaded(["sh", "-c", "/bin/true; echo x"], OZ2_STATS=tmp_path / "%p.json", OZ2_REPORT=tmp_path / "%p.html")
    assert list(tmp_path.iterdir()) == []


LOOK = """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("threads", status["Threads"].strip())
print("files", sorted(os.readlink("/proc/self/fd/" + x) for x in os.listdir("/proc/self/fd")
                      if os.path.exists("/proc/self/fd/" + x)))
print("masked", status["SigBlk"].strip(), status["SigIgn"].strip(), status["SigCgt"].strip())
print("mapped", sorted({os.path.basename(line.split()[5]) for line in open("/proc/self/maps")
                        if len(line.split()) > 5} - {"liboz2blas.so"}))
"""


def test_loading_does_nothing():
    """No thread, no open file, no signal handler, no further library but libgcc_s."""
    without = run([PYTHON, "-c", LOOK], environment()).out.splitlines()
    loaded = preloaded([PYTHON, "-c", LOOK]).out.splitlines()
    assert loaded[0] == "threads 1"
    without[-1] = without[-1].replace("'libgcc_s.so.1', ", "")
    loaded[-1] = loaded[-1].replace("'libgcc_s.so.1', ", "")
    pipes = re.compile(r"(pipe|socket):\[\d+\]")
    assert [pipes.sub("pipe", x) for x in loaded] == [pipes.sub("pipe", x) for x in without]


def test_exported_symbols():
    """Exactly the committed list: a symbol too many captures a name of someone else."""
    lines = (ROOT / "tests" / "symbols.txt").read_text().splitlines()
    wanted = sorted(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))
    found = sorted(line.split()[-1] for line in tool("nm", "-D", "--defined-only", LIB).splitlines())
    assert found == wanted


def dynamic():
    """The dynamic section as (tag, value) pairs."""
    rows = re.findall(r"^ 0x[0-9a-f]+ \((\w+)\)\s+(.*)$", tool("readelf", "-dW", LIB), re.M)
    assert rows
    return rows


def values(tag):
    return [value for name, value in dynamic() if name == tag]


def test_soname_and_needed():
    assert values("SONAME") == ["Library soname: [liboz2blas.so.0]"]
    needed = {re.search(r"\[(.*)\]", value).group(1) for value in values("NEEDED")}
    allowed = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert needed <= allowed


def test_flags():
    """NODELETE: threads of ours may run in code that dlclose would take away.
    No STATIC_TLS: it runs out where the library is loaded late. No TEXTREL."""
    assert any("NODELETE" in value for value in values("FLAGS_1"))
    assert not any("STATIC_TLS" in value or "TEXTREL" in value for value in values("FLAGS"))
    tls = re.findall(r"^\s+TLS(?:\s+0x[0-9a-f]+){4}\s+(0x[0-9a-f]+)", tool("readelf", "-lW", LIB), re.M)
    assert all(int(size, 16) <= 1024 for size in tls), "thread-local storage comes off small stacks"


def test_no_initialiser_of_ours():
    """Each entry of .init_array is one that every Rust library has: frame_dummy
    of the C compiler and the function by which std keeps argc and argv."""
    start, size = (int(re.match(r"\w+", values(tag)[0]).group(0), 0) for tag in ("INIT_ARRAY", "INIT_ARRAYSZ"))
    entries = {}
    for line in tool("readelf", "-rW", LIB).splitlines():
        found = re.match(r"([0-9a-f]{12,16})\s+\w+\s+R_\w+_RELATIVE\s+([0-9a-f]+)$", line.strip())
        if found and start <= int(found.group(1), 16) < start + size:
            entries[int(found.group(1), 16)] = int(found.group(2), 16)
    assert len(entries) == size // 8, "every entry has a relocation that names its function"
    names = {}
    for line in tool("nm", "-C", LIB).splitlines():
        found = re.match(r"([0-9a-f]+) [tTwW] (.*)", line)
        if found:
            names.setdefault(int(found.group(1), 16), found.group(2))
    unknown = [names.get(x, hex(x)) for x in entries.values()
               if not re.search(r"^frame_dummy$|^std::.*ARGV_INIT_ARRAY", names.get(x, ""))]
    # A stripped library has no names; two entries are then what Rust brings.
    assert unknown == [] or (not names and len(entries) <= 2), unknown


def test_statistics_do_not_reach_the_program():
    """Not even with every message on: standard output belongs to the program."""
    result = preloaded(["sh", "-c", "echo x"], OZ2_LOG="trace", OZ2_STATS="stderr")
    assert result.out == "x\n"
