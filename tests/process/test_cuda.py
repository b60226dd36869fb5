"""The CUDA engine in real programs, one process each, on the software device.

Every test asks the statistics which engine did the calls, so none of them can
pass because everything went elsewhere. See tests/softgpu for what the device
can show, and docs/gpu.md for what is promised here.
"""

import ctypes
import json
import os
import re
import subprocess
import sys

import pytest

from helpers import BLAS, LIB, OZ2RUN, PROGRAMS, PYTHON, ROOT, environment, host_engine, run
from test_cases import ALL, CASES
from test_python import COMMON

# What computes where CUDA does not.
HOST = host_engine()
CUDA = ROOT / "src" / "engine" / "cuda"
# All that would be teardown: nothing of it may ever be called.
TEARDOWN = re.compile(r"cuCtxDestroy|cuDevicePrimaryCtxRe(lease|set)|cublasDestroy|cuStreamDestroy|"
                      r"cuEventDestroy|cuModuleUnload")


def hardware():
    """The machine has a driver of its own: tests without one are not possible."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


without_hardware = pytest.mark.skipif(hardware(), reason="this machine has a CUDA driver")


@pytest.fixture(scope="session")
def device():
    """The folder with libcuda and libcublas, built once."""
    made = subprocess.run([ROOT / "scripts" / "softgpu", "--folder"], capture_output=True, text=True, timeout=900)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture
def gpu(device):
    """gpu(command, ...): runs a program on the software device.

    preload: the library, unless the program loads it by itself (None). Options
    are variables, as in helpers.environment. good: a C program, whose last word
    must be "good".
    """

    def start(command, preload=(LIB,), folder=device, good=True, check=True, timeout=120, **options):
        options = {"OZ2_ENGINE": "cuda", **options}
        env = environment(preload=preload or (), blas="reference", **options)
        for name in [name for name in env if name.startswith("SOFTGPU_") and name not in options]:
            del env[name]
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(folder or ""), env["LD_LIBRARY_PATH"]]))
        result = run(command, env, check=check, timeout=timeout)
        if good:
            assert "good" in result.out.split("\n") and "plain" not in result.out, str(result)
        assert "softgpu: " not in result.err, str(result)
        return result

    return start


def engines(result):
    """Calls by engine, of the process that was started."""
    return result.own()["engines"]


def only_cuda(result, calls):
    assert engines(result) == {"cuda": calls} and result.own()["native"] == 0, str(result)
    return result


def silent(result):
    assert result.err == "", str(result)
    return result


def reasons(result):
    return result.own()["reasons"]


def hash_of(result):
    (found,) = re.findall(r"^hash (\w+)$", result.out, re.M)
    return found


def used(result):
    """Bytes in use at the end on devices 0 and 1."""
    (line,) = re.findall(r"^used (\d+) (\d+)$", result.out, re.M)
    return [int(number) for number in line]


@pytest.fixture
def trace(tmp_path):
    """A trace of every call: options for it, and the names called, in order."""

    class Trace:
        file = tmp_path / "trace"
        options = {"SOFTGPU_TRACE": "all", "SOFTGPU_TRACE_FILE": tmp_path / "trace"}

        def lines(self):
            return self.file.read_text().split("\n") if self.file.exists() else []

        def count(self, name):
            return sum(line.startswith(name + " = ") for line in self.lines())

    return Trace()


# Each catches what the others forgive: tests/softgpu/README.md.
MODES = [
    {"SOFTGPU_MODE": "lazy", "SOFTGPU_ORDER": "forward"},
    {"SOFTGPU_MODE": "random", "SOFTGPU_ORDER": "reverse", "SOFTGPU_SEED": "7"},
]
modes = pytest.mark.parametrize("mode", MODES, ids=["lazy", "random"])


# --------------------------------------------------------------- real programs


def python(gpu, code, **options):
    result = silent(gpu([OZ2RUN, PYTHON, "-c", COMMON + code], preload=None, good=False, **options))
    return result, json.loads(result.out.splitlines()[-1])


@modes
def test_numpy_matmul(gpu, mode):
    result, (calls, error) = python(gpu, "c = a @ b; print(json.dumps([calls(), error(a, b, c)]))", **mode)
    only_cuda(result, 1)
    assert calls == [1, 1] and error < 3


def test_scipy_dgemm(gpu):
    result, same = python(gpu, """
from scipy.linalg.blas import dgemm
x = rng.integers(-99, 99, (70, 50)).astype(float); y = rng.integers(-99, 99, (60, 70)).astype(float)
z = rng.integers(-99, 99, (50, 60)).astype(float)
c = dgemm(2.0, x, y, beta=-1.0, c=z, trans_a=True, trans_b=True)
print(json.dumps(bool(np.array_equal(c, 2 * (x.T.astype(int) @ y.T.astype(int)) - z))))""")
    only_cuda(result, 1)
    assert same


def test_numpy_nan_goes_native(gpu):
    result, same = python(gpu, """
np.seterr(all="ignore")
a[3, 4] = np.nan
z = a @ b
y = b @ rng.uniform(size=(200, 60))
print(json.dumps([bool(np.isnan(z[3]).all()), int(np.isnan(z).sum()), bool(np.isfinite(y).all())]))""")
    assert same == [True, 200, True]
    assert engines(result) == {"cuda": 1} and reasons(result) == {"non-finite": 1}, str(result)


def test_fortran(gpu, build):
    result = silent(gpu([OZ2RUN, build("fortran.f90")], preload=None, good=False))
    only_cuda(result, 1)
    assert float(result.out.split()[1]) < 3, str(result)


@modes
def test_product(gpu, build, mode):
    for sizes in ((300, 200, 150), (1, 1, 1), (7, 1, 64), (1, 9, 33), (65, 64, 63), (129, 3, 257)):
        silent(only_cuda(gpu([build("product.c"), *sizes], **mode), 5))


@pytest.mark.parametrize("capability", ["75", "80", "90", "120"])
def test_every_generation(gpu, build, capability):
    silent(only_cuda(gpu([build("product.c"), 70, 60, 50], SOFTGPU_CC=capability), 5))


def test_same_bits_as_the_portable_engine(gpu, build):
    """In all modes of both, whatever the blocks are."""
    for options in ({}, {"OZ2_MODE": "accurate"}, {"OZ2_MODE": "fast", "OZ2_MODULI": "16"}):
        command = [build("product.c", "-DANY_ROUTE"), 140, 130, 150]
        portable = gpu(command, OZ2_ENGINE="portable", **options)
        assert "cuda" not in engines(portable), str(portable)
        calls = engines(portable)["portable"]
        for mode in [*MODES, {"SOFTGPU_MODE": "eager"}, {"OZ2_WORKSPACE": "900K"}]:
            result = gpu(command, **options, **mode)
            assert engines(result) == {"cuda": calls}, str(result)
            assert hash_of(result) == hash_of(portable), str(result)


@pytest.mark.parametrize("capability, file", [("75", None), ("80", "product_mma"), ("86", "product_mma"), ("90", "product_wgmma"),
                                              ("100", "product_mma"), ("120", "product_mma")])
def test_fused_product(gpu, build, capability, file):
    """OZ2_CUDA_PRODUCT=fused: a kernel by the exact compute capability, where there is one, and the same bits."""
    command = [build("product.c", "-DANY_ROUTE"), 270, 130, 150]
    plain = gpu(command, SOFTGPU_CC=capability, OZ2_LOG="debug")
    assert "fused" not in plain.err, str(plain)
    fused = gpu(command, SOFTGPU_CC=capability, OZ2_LOG="debug", OZ2_CUDA_PRODUCT="fused")
    (said,) = [line for line in fused.err.splitlines() if "fused" in line]
    assert (file or "no fused product for this device") in said, str(fused)
    assert engines(fused) == engines(plain) and hash_of(fused) == hash_of(plain), str(fused)


def test_clusters(gpu, build):
    """OZ2_CUDA_CLUSTER chooses the kernels of the fused product where there is a choice; always the same bits."""
    command = [build("product.c", "-DANY_ROUTE"), 270, 130, 150]
    plain, seen = gpu(command), {}
    for cluster in (None, "1", "2", "3"):
        result = gpu(command, OZ2_CUDA_PRODUCT="fused", OZ2_CUDA_CLUSTER=cluster, OZ2_LOG="debug")
        assert engines(result) == engines(plain) and hash_of(result) == hash_of(plain), str(result)
        (said,) = [line for line in result.err.splitlines() if "fused" in line]
        seen[cluster] = re.findall(r"oz2_product_wgmma_(\d+_\d)", said)
    assert seen == {None: ["256_2", "128_1"], "1": ["256_1", "128_1"], "2": ["256_2", "128_2"], "3": ["256_1", "128_1"]}, seen


def without(device, name, folder):
    """A folder with a copy of the software device whose driver lacks a function."""
    source = os.path.realpath(os.path.join(device, "libcuda.so.1"))
    with open(source, "rb") as file:
        image = file.read()
    assert image.count(name.encode() + b"\0") >= 1
    (folder / "device.so").write_bytes(image.replace(name.encode() + b"\0", name.encode()[:-1] + b"?\0"))
    for link in ("libcuda.so.1", "libcublas.so.12"):
        (folder / link).symlink_to("device.so")
    return folder


def test_graphs(gpu, build, device, trace, tmp_path):
    """Small fused products are replayed, unless OZ2_CUDA_GRAPHS=0 or the driver has no graphs; always the same bits."""
    command = [build("product.c", "-DANY_ROUTE"), 70, 60, 50]
    plain = gpu(command)
    options = {"OZ2_CUDA_PRODUCT": "fused", "OZ2_LOG": "debug", **trace.options}
    result = gpu(command, **options)
    calls = engines(result)["cuda"]
    assert trace.count("cuGraphLaunch") == calls > 1 and "graphs" not in result.err, str(result)
    assert hash_of(result) == hash_of(plain)
    assert hash_of(gpu(command, OZ2_CUDA_GRAPHS="0", **options)) == hash_of(plain)
    assert trace.count("cuGraphLaunch") == calls
    # No graphs without the fused product, and none where phases are timed one by one.
    gpu(command, **{**options, "OZ2_CUDA_PRODUCT": "cublas"})
    gpu(command, **{**options, "OZ2_LOG": "trace"})
    assert trace.count("cuGraphLaunch") == calls
    for name in ("cuGraphCreate", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2"):
        (tmp_path / name).mkdir()
        lacking = gpu(command, folder=without(device, name, tmp_path / name), **options)
        (said,) = [line for line in lacking.err.splitlines() if "graphs" in line]
        assert name in said and "the CUDA driver has no graphs" in said, str(lacking)
        assert engines(lacking) == engines(plain) and hash_of(lacking) == hash_of(plain), str(lacking)
    assert trace.count("cuGraphLaunch") == calls
    # A failure is told once, however many calls follow.
    failing = gpu(command, SOFTGPU_FAULT="cuGraphInstantiateWithFlags=999", **options)
    (said,) = [line for line in failing.err.splitlines() if "graphs" in line]
    assert "kernels are launched one by one" in said and engines(failing) == engines(plain), str(failing)
    assert hash_of(failing) == hash_of(plain)


# ------------------------------------------------------------------- the cases

HEAVY = "k-131075"  # two cases that take the software device a second for each call


def cases(gpu, *arguments, **options):
    """check_cases.py on the library alone, over the builtin BLAS."""
    command = [sys.executable, CASES / "check_cases.py", LIB, "--strict", *arguments]
    result = gpu(command, preload=None, good=False, check=False, timeout=300, OZ2_NATIVE="builtin", **options)
    assert result.rc == 0, str(result)
    return result


@modes
def test_cases(gpu, mode, tmp_path):
    lines = (CASES / "cases.jsonl").read_text().splitlines(keepends=True)
    light = [line for line in lines if HEAVY not in json.loads(line)["id"]]
    (tmp_path / "light.jsonl").write_text("".join(light))
    assert len(lines) - len(light) == 2
    result = cases(gpu, "--cases", tmp_path / "light.jsonl", **mode)
    assert result.out.splitlines()[-1] == "71 passed, 0 failed", str(result)
    (stats,) = [one for one in result.stats if one["calls"] > 500]
    assert stats["engines"]["cuda"] > 500 and set(stats["engines"]) == {"cuda"}, str(result)


def test_heavy_cases(gpu):
    result = cases(gpu, "--only", HEAVY, "--apis", "f")
    assert result.out.splitlines()[-1] == "2 passed, 0 failed", str(result)
    assert max(one["engines"].get("cuda", 0) for one in result.stats) >= 2, str(result)


def test_cases_of_processes(gpu):
    """Forks, 128 KiB of stack, traps, rounding modes, dlclose, exit from a thread, an address limit."""
    result = cases(gpu, "--only", "none", "--process")
    assert result.out.splitlines()[-1] == ALL.replace("86", "13"), str(result)
    assert sum(one["engines"].get("cuda", 0) > 0 for one in result.stats) >= 10, str(result)


# ------------------------------------------------------------- memory, devices


@modes
def test_little_memory(gpu, build, trace, mode):
    """The call goes in blocks, with the same bits."""
    command = [build("product.c"), 300, 200, 500]
    whole = only_cuda(gpu(command, **trace.options), 5)
    products = trace.count("cublasGemmStridedBatchedEx")
    assert products == 10, "one for the bound and one for all moduli: %d" % products
    blocks = silent(only_cuda(gpu(command, SOFTGPU_MEM="34M", **mode, **trace.options), 5))
    assert trace.count("cublasGemmStridedBatchedEx") > products + 20, "there were no blocks"
    assert hash_of(blocks) == hash_of(whole)


def test_no_memory_for_cublas(gpu, build):
    """Its workspace does not fit: it does without."""
    silent(only_cuda(gpu([build("product.c"), 70, 60, 50], SOFTGPU_MEM="16M"), 5))


def test_too_little_memory(gpu, build):
    """Not even the smallest blocks fit: told, and computed by the next engine or natively."""
    result = gpu([build("product.c"), 70, 60, 50], OZ2_ENGINE="auto", SOFTGPU_MEM="16K")
    assert engines(result) == {HOST: 5}, str(result)
    assert 1 <= len(result.err.splitlines()) <= 3, str(result)
    result = gpu([build("product.c", "-DANY_ROUTE"), 70, 60, 50], SOFTGPU_MEM="16K")
    assert engines(result) == {} and result.total("native") == 5, str(result)
    assert reasons(result)["no memory"] >= 1, str(result)
    assert 1 <= len(result.err.splitlines()) <= 4, str(result)


def test_memory_is_kept_and_does_not_grow(gpu, build):
    once = only_cuda(gpu([build("cuda_calls.c"), 0, 1, 90, 80, 70]), 1)
    often = only_cuda(gpu([build("cuda_calls.c"), 0, 40, 90, 80, 70]), 40)
    assert used(once) == used(often) and used(once)[0] > 0, "%s\n%s" % (once, often)


@pytest.mark.parametrize("devices, places", [
    (None, (1, 0)), ("auto", (1, 0)), ("0", (1, 0)), ("1", (0, 1)), ("1,7", (0, 1)), ("0,1", (1, 1)), ("all", (1, 1)),
])
def test_devices(gpu, build, devices, places):
    """Eight threads at once, on the devices that are to be used and on no others."""
    result = silent(gpu([build("cuda_calls.c"), 8, 6, 100, 90, 80], OZ2_DEVICES=devices, SOFTGPU_DEVICES=2))
    only_cuda(result, 48)
    assert tuple(int(bytes > 0) for bytes in used(result)) == places, str(result)


@pytest.mark.parametrize("devices", ["none", "7"])
def test_no_device_is_chosen(gpu, build, devices):
    result = gpu([build("cuda_calls.c"), 0, 2, 60, 50, 40], OZ2_DEVICES=devices, OZ2_ENGINE="auto")
    assert engines(silent(result)) == {HOST: 2} and used(result) == [0, 0], str(result)
    result = gpu([build("cuda_calls.c", "-DANY_ROUTE"), 0, 2, 60, 50, 40], OZ2_DEVICES=devices)
    assert reasons(result) == {"engine unavailable": 2} and len(result.err.splitlines()) == 1, str(result)


@pytest.mark.parametrize("variable", [
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK", "SLURM_LOCALID",
])
def test_local_rank(gpu, build, variable):
    for rank, places in (("0", (1, 0)), ("1", (0, 1)), ("4", (1, 0)), ("7", (0, 1))):
        result = gpu([build("cuda_calls.c"), 0, 1, 60, 50, 40], SOFTGPU_DEVICES=2, **{variable: rank})
        only_cuda(silent(result), 1)
        assert tuple(int(bytes > 0) for bytes in used(result)) == places, str(result)


def test_many_threads(gpu, build):
    """The first call of the process comes from 96 threads at once; and one on 128 KiB of stack."""
    silent(only_cuda(gpu([build("threads.c"), "many"], SOFTGPU_DEVICES=2, OZ2_DEVICES="all"), 384))
    silent(only_cuda(gpu([build("threads.c"), "small"]), 1))


# ---------------------------------------------------------------------- faults

# Every function that the engine calls, from its own tables.
ENTRY_POINTS = sorted(set(re.findall(r"^        (cu(?:blas)?[A-Z]\w+)\(", (CUDA / "library.rs").read_text(), re.M)))
KERNELS = sorted(set(re.findall(r'c"(oz2_\w+)"', (CUDA / "device.rs").read_text())))
SEARCH = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount"}
# Called for the doctor, and for matrices on the device: tested there.
ELSEWHERE = {"cuDeviceGetName", "cuMemcpy2DAsync_v2", "cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"}
# Only called for the fused products: tests/cuda.rs has their faults.
ELSEWHERE |= {"cuFuncSetAttribute", "cuTensorMapEncodeTiled"} | {name for name in ENTRY_POINTS if name.startswith("cuGraph")}


def survives(result, needs_line=True):
    """Right results (the program looks at them), and the log says it a few times at most."""
    lines = result.err.splitlines()
    assert len(lines) <= 4 and all(line.startswith("oz2blas: ") for line in lines), str(result)
    assert lines or not needs_line, str(result)
    assert result.total("calls") == 5, str(result)
    return result


@pytest.fixture(scope="session")
def portable_hash(build):
    env = environment(preload=[LIB], blas="reference", OZ2_ENGINE="portable")
    return hash_of(run([build("product.c"), 70, 60, 50], env))


def test_the_tables_are_found():
    assert len(ENTRY_POINTS) > 25 and "cuLaunchKernel" in ENTRY_POINTS and "cublasCreate_v2" in ENTRY_POINTS
    assert len(KERNELS) > 8 and "oz2_scan" in KERNELS


@pytest.mark.parametrize("code", ["100", "2", "999", "12345"])
@pytest.mark.parametrize("name", [name for name in ENTRY_POINTS if name not in ELSEWHERE])
def test_first_call_fails(gpu, build, portable_hash, trace, name, code):
    """Codes: no device, no memory, unknown, and one that nobody has heard of."""
    command = [build("product.c"), 70, 60, 50]
    result = gpu(command, OZ2_ENGINE="auto", SOFTGPU_FAULT="%s=%s" % (name, code), **trace.options)
    assert trace.lines().count("%s = %s" % (name, code)) == 1, str(result)
    survives(result, needs_line=False)
    assert hash_of(result) == portable_hash, str(result)
    if name in SEARCH:
        assert engines(result) == {HOST: 5} and result.err == "", str(result)
        return
    # Either a line in the log, or nothing was lost by it.
    assert result.err or engines(result) == {"cuda": 5}, str(result)
    assert sum(engines(result).values()) == 5, str(result)


def test_call_fails_later(gpu, build, trace):
    """The last call of each entry point, and one in the middle; the device is lost with it."""
    command = [build("product.c"), 70, 60, 50]
    gpu(command, **trace.options)
    repeated = {name: trace.count(name) for name in ENTRY_POINTS if trace.count(name) > 1}
    assert len(repeated) > 15
    for name, count in repeated.items():
        for number in sorted({count // 2, count}):
            result = gpu(command, OZ2_ENGINE="auto", SOFTGPU_FAULT="%s@%d=719!" % (name, number))
            # Where the last call of all fails, nothing need have been lost.
            survives(result, needs_line=number < count and name not in SEARCH)
            assert sum(engines(result).values()) == 5, str(result)


@pytest.mark.parametrize("name", [*KERNELS, "gemm", "copy", "set"])
def test_kernel_fails(gpu, build, portable_hash, name):
    """Heard of at a later synchronisation; the device stays lost."""
    for number in (1, 3):
        fault = "launch:%s@%d=719!" % (name, number)
        for mode in MODES:
            result = survives(gpu([build("product.c"), 70, 60, 50], OZ2_ENGINE="auto", SOFTGPU_FAULT=fault, **mode),
                              needs_line=False)
            assert hash_of(result) == portable_hash, str(result)
            if engines(result) != {"cuda": 5}:
                assert "CUDA device 0" in result.err and engines(result)[HOST] >= 1, str(result)


@pytest.mark.parametrize("fault", [
    "launch:oz2_residues@3=719!", "cuMemcpyDtoHAsync_v2@2=700!", "cublasGemmStridedBatchedEx@3=14!", "*@300=719!",
])
def test_lost_device_and_named_engine(gpu, build, fault):
    """With OZ2_ENGINE=cuda the native BLAS does the rest, and the device is not tried again at once."""
    result = gpu([build("product.c", "-DANY_ROUTE"), 70, 60, 50], SOFTGPU_FAULT=fault)
    survives(result)
    assert set(engines(result)) <= {"cuda"} and reasons(result)["engine fault"] >= 1, str(result)
    assert len(result.err.splitlines()) == 1, str(result)


def test_lost_device_in_blocks(gpu, build):
    """A part of C is written already: only the rest is computed elsewhere."""
    command = [build("product.c"), 300, 200, 500]
    for number in (9, 15, 21, 30):
        result = gpu(command, OZ2_ENGINE="auto", SOFTGPU_MEM="34M",
                     SOFTGPU_FAULT="cublasGemmStridedBatchedEx@%d=14!" % number)
        survives(result)


def test_failed_device_is_left_alone(gpu, build, trace):
    """Not opened a second time within the calls of this program, not even by those that waited."""
    for threads in (0, 8):
        trace.file.unlink(missing_ok=True)
        result = gpu([build("cuda_calls.c"), threads, 10, 60, 50, 40], OZ2_ENGINE="auto",
                     SOFTGPU_FAULT="launch:oz2_reduce@3=719!", **trace.options)
        assert engines(result)[HOST] >= 5 and "CUDA device 0" in result.err, str(result)
        assert trace.count("cuDevicePrimaryCtxRetain") == 1, "threads: %d" % threads


def test_one_of_two_devices_fails(gpu, build):
    """The other one does the work."""
    result = gpu([build("cuda_calls.c"), 8, 8, 60, 50, 40], OZ2_ENGINE="auto", OZ2_DEVICES="all", SOFTGPU_DEVICES=2,
                 SOFTGPU_FAULT="launch:oz2_reduce@3=719!")
    assert engines(result)["cuda"] > 40 and sum(engines(result).values()) == 64, str(result)
    assert len(result.err.splitlines()) == 1, str(result)


# ------------------------------------------------------------------- libraries


def links(folder, device, *names):
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(os.path.realpath(os.path.join(device, "libcuda.so.1")))
    return folder


@without_hardware
@pytest.mark.parametrize("names", [(), ("libcuda.so.1",), ("libcublas.so.12",)], ids=["nothing", "driver", "cublas"])
def test_library_is_missing(gpu, build, device, tmp_path, names):
    folder = links(tmp_path / "cuda", device, *names)
    command = [build("product.c"), 70, 60, 50]
    result = silent(gpu(command, folder=folder, OZ2_ENGINE="auto"))
    assert engines(result) == {HOST: 5}, str(result)
    command = [build("product.c", "-DANY_ROUTE"), 70, 60, 50]
    result = gpu(command, folder=folder)
    assert engines(result) == {} and reasons(result) == {"engine unavailable": 5}, str(result)
    (line,) = result.err.splitlines()
    assert "warning" in line and "OZ2_ENGINE=cuda" in line, str(result)


@pytest.mark.parametrize("options", [{"SOFTGPU_DEVICES": "0"}, {"SOFTGPU_FAULT": "cuInit=100"}])
def test_no_device(gpu, build, options):
    result = silent(gpu([build("product.c"), 70, 60, 50], OZ2_ENGINE="auto", **options))
    assert engines(result) == {HOST: 5}, str(result)
    result = gpu([build("product.c", "-DANY_ROUTE"), 70, 60, 50], **options)
    assert reasons(result) == {"engine unavailable": 5} and len(result.err.splitlines()) == 1, str(result)


@without_hardware
def test_cuda_path(gpu, build, device, tmp_path):
    """The folder is named by an option, in place of LD_LIBRARY_PATH."""
    silent(only_cuda(gpu([build("product.c"), 70, 60, 50], folder=None, OZ2_CUDA_PATH=device), 5))
    driver = links(tmp_path / "driver", device, "libcuda.so.1")
    cublas = links(tmp_path / "cublas", device, "libcublas.so.12")
    silent(only_cuda(gpu([build("product.c"), 70, 60, 50], folder=driver, OZ2_CUDA_PATH=cublas), 5))


@without_hardware
def test_cublas_of_a_python_package(gpu, build, device, tmp_path):
    """As pip installs it: beside the packages that the program has loaded."""
    driver = links(tmp_path / "driver", device, "libcuda.so.1")
    packages = tmp_path / "lib" / "site-packages"
    (packages / "nvidia" / "cublas").mkdir(parents=True)
    links(packages / "nvidia" / "cublas" / "lib", device, "libcublas.so.12")
    extension = packages / "extension.so"
    extension.write_bytes(build("nothread.c", "-shared", "-fPIC", "-Dpthread_create=unused", libraries=()).read_bytes())
    silent(only_cuda(gpu([build("product.c"), 70, 60, 50], folder=driver, preload=(LIB, extension)), 5))


def test_what_is_found_is_told(gpu, build):
    result = gpu([build("product.c"), 70, 60, 50], OZ2_LOG="info", SOFTGPU_DEVICES=2, OZ2_DEVICES="all")
    only_cuda(result, 5)
    (line,) = [line for line in result.err.splitlines() if "CUDA" in line]
    assert "INFO" in line and "2" in line, str(result)


def test_doctor(gpu):
    for options, words in (({"SOFTGPU_DEVICES": 2, "OZ2_DEVICES": "all"}, ["device 0 softgpu 0", "device 1 softgpu 1"]),
                           ({"SOFTGPU_FAULT": "cuDeviceGetName=999"}, ["device 0 unknown"]),
                           ({"SOFTGPU_DEVICES": 0}, ["cuda: not available"])):
        result = gpu([OZ2RUN, "--doctor"], preload=None, good=False, **options)
        assert all(word in result.out for word in words), str(result)


@pytest.mark.parametrize("options", [
    {"OZ2_ENGINE": None, "sizes": (100, 90, 80)},
    {"OZ2_ENGINE": None, "sizes": (31, 400, 400)},
    {"OZ2_ENGINE": None, "OZ2_MODE": "native", "sizes": (300, 300, 300)},
    {"OZ2_ENGINE": None, "OZ2_DEVICES": "none", "sizes": (300, 300, 300)},
    {"OZ2_ENGINE": "portable", "OZ2_MIN_SIZE": "0", "sizes": (150, 150, 150)},
], ids=["small", "thin", "native", "none", "portable"])
def test_nothing_is_loaded(gpu, build, options):
    """Nor at the start of a program."""
    options = dict(options)
    sizes = options.pop("sizes")
    options.setdefault("OZ2_MIN_SIZE", None)
    result = silent(gpu([build("cuda_calls.c", "-DANY_ROUTE"), 0, 5, *sizes], **options))
    assert "before 0\nmapped 0\n" in result.out and result.total("calls") == 5, str(result)


def test_it_is_loaded_at_the_first_large_call(gpu, build):
    """The counterpart: the question is a good one."""
    result = only_cuda(gpu([build("cuda_calls.c"), 0, 1, 60, 50, 40]), 1)
    assert "before 0\nmapped 1\n" in result.out, str(result)


# ----------------------------------------------------------- forks and the end


@pytest.mark.parametrize("mode", ["fresh", "after", "thread", "nested", "busy"])
def test_fork(gpu, build, mode):
    """The child computes with the next engine (auto) or natively (cuda), the parent goes on with CUDA."""
    parent = gpu([build("fork.c"), mode], OZ2_ENGINE="auto", timeout=100)
    assert set(engines(silent(parent))) == {"cuda"}, str(parent)
    parent = gpu([build("fork.c", "-DANY_ROUTE"), mode], timeout=100)
    assert set(engines(parent)) == {"cuda"} and parent.own()["native"] == 0, str(parent)
    assert parent.err == "", str(parent)


def test_fork_while_cuda_starts(gpu, build, device, tmp_path):
    """A driver takes a second to start. Children that are forked in that time must not wait for it for ever."""
    real = os.path.realpath(os.path.join(device, "libcuda.so.1"))
    slow = build("cuda_slow.c", "-shared", "-fPIC", "-Wl,--no-as-needed", libraries=(real,))
    folder = links(tmp_path / "slow", device, "libcublas.so.12")
    (folder / "libcuda.so.1").symlink_to(slow)
    result = silent(gpu([build("fork.c"), "busy"], folder=folder, OZ2_ENGINE="auto", timeout=30))
    assert engines(result).get("cuda", 0) >= 1, str(result)


def test_fork_of_a_program_that_started_cuda(gpu):
    """The library is not used before the fork: only the driver says that it does not work in the child."""
    result = gpu([OZ2RUN, PYTHON, "-c", COMMON + """
import os
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
x, y = np.rint(a * 9), np.rint(b * 9)
def right(): return bool(np.array_equal(x @ y, x.astype(int) @ y.astype(int)))
child = os.fork()
if child == 0:
    os._exit(0 if right() else 3)
assert os.waitpid(child, 0)[1] == 0
print("good" if right() else "wrong")"""], preload=None, OZ2_ENGINE="auto")
    only_cuda(silent(result), 1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_with_numpy(gpu, method):
    result = gpu([OZ2RUN, PYTHON, PROGRAMS / "pool.py", method], preload=None, OZ2_ENGINE="auto")
    assert max(one["engines"].get("cuda", 0) for one in silent(result).stats) >= 2, str(result)


@pytest.mark.parametrize("mode", ["exit", "leave"])
def test_exit_while_another_thread_is_inside(gpu, build, trace, mode):
    for devices in (1, 2, 1, 2):
        result = silent(gpu([build("threads.c"), mode], SOFTGPU_DEVICES=devices, OZ2_DEVICES="all", **trace.options))
        assert engines(result)["cuda"] >= 1 and result.total("native") == 0, str(result)
    assert trace.count("cublasGemmStridedBatchedEx") >= 8
    assert not [line for line in trace.lines() if TEARDOWN.match(line)]


def test_no_teardown(gpu, build, trace):
    """Nothing at all is called at exit."""
    only_cuda(silent(gpu([build("cuda_calls.c"), 4, 3, 60, 50, 40], **trace.options)), 12)
    lines = trace.lines()
    assert lines[-2:] == ["end", ""] and trace.count("cuInit") == 1, lines[-5:]
    assert not [line for line in lines if TEARDOWN.match(line)]


# ------------------------------------------------- programs that use CUDA too


@modes
def test_current_context(gpu, build, mode):
    """What is current in a thread is the same after a call, from several threads; 9 calls in each."""
    for devices in ("0", "1", "all"):
        only_cuda(silent(gpu([build("cuda_context.c"), 4], SOFTGPU_DEVICES=2, OZ2_DEVICES=devices, **mode)), 45)


@pytest.mark.parametrize("name", [
    "cuStreamCreate", "cuModuleLoadDataEx", "cublasCreate_v2", "cuMemAlloc_v2@5", "cuMemGetInfo_v2",
    "cuLaunchKernel@20", "cuMemcpyDtoHAsync_v2@9", "cuEventSynchronize@7",
])
def test_current_context_after_faults(gpu, build, name):
    for code in ("2", "999"):
        result = gpu([build("cuda_context.c"), 2], OZ2_ENGINE="auto", SOFTGPU_DEVICES=2,
                     SOFTGPU_FAULT="%s=%s" % (name, code))
        assert sum(engines(result).values()) == 27, str(result)


@pytest.mark.parametrize("options", [
    *MODES, {"SOFTGPU_MODE": "eager"}, {"OZ2_WORKSPACE": "100K"}, {"OZ2_MODE": "accurate"},
], ids=["lazy", "random", "eager", "blocks", "accurate"])
def test_matrices_on_the_device(gpu, build, options):
    """All 27 ways to have A, B and C in host, device and managed memory, three calls each."""
    only_cuda(silent(gpu([build("cuda_memory.c"), 0], **options)), 81)


def test_matrices_on_the_second_device(gpu, build):
    """Where the library works on the same one."""
    only_cuda(silent(gpu([build("cuda_memory.c"), 1], SOFTGPU_DEVICES=2, OZ2_DEVICES="1")), 81)


@pytest.mark.parametrize("fault", ["cuMemcpy2DAsync_v2=999", "cuMemcpy2DAsync_v2@2=2", "cuMemcpyDtoHAsync_v2@3=999",
                                   "cuPointerGetAttributes=1", "cuPointerGetAttributes@3=999"])
def test_faults_with_managed_memory(gpu, build, fault):
    """The host can read it too, so that every engine can take over."""
    result = gpu([build("cuda_memory.c", "-DANY_ROUTE"), 0, "mmm", "hhm", "mhm"], SOFTGPU_FAULT=fault)
    assert result.total("calls") == 9 and len(result.err.splitlines()) <= 3, str(result)
    result = gpu([build("cuda_memory.c"), 0, "mmm", "hhm", "mhm"], OZ2_ENGINE="auto", SOFTGPU_FAULT=fault)
    assert engines(result) == {"cuda": 9} or result.err and sum(engines(result).values()) == 9, str(result)


def test_matrices_in_the_memory_of_another_device(gpu, build):
    """A kernel of one device must not run into the memory of the other, which would lose the device for the program."""
    result = gpu([build("cuda_memory.c", "-DANY_ROUTE"), 1, "ddd", "hdh", "mhd"], SOFTGPU_DEVICES=2, OZ2_DEVICES="0")
    assert result.total("calls") == 9, str(result)


def test_matrices_on_the_device_that_cannot_be_emulated(gpu, build):
    """A native BLAS cannot read them: they are computed on copies."""
    result = gpu([build("cuda_memory.c", "-DANY_ROUTE"), 0, "ddd", "dhd", "hdh", "mdd"], OZ2_WORKSPACE="1K")
    (stats,) = result.stats
    assert stats["reasons"] == {"no memory": 12} and stats["emulated"] == 0, str(result)


@pytest.mark.parametrize("fault", ["cuMemcpyDtoHAsync_v2@3=999", "cuCtxSynchronize=12345", "cuStreamSynchronize@2=999",
                                   "cublasGemmStridedBatchedEx@2=13", "cuMemcpy2DAsync_v2=999"])
def test_faults_with_matrices_on_the_device(gpu, build, fault):
    """A fault that does not lose the device: what is missing is computed on copies."""
    result = gpu([build("cuda_memory.c", "-DANY_ROUTE"), 0, "ddd", "dhd", "hhd"], SOFTGPU_FAULT=fault)
    assert result.total("calls") == 9 and 0 < len(result.err.splitlines()) <= 4, str(result)


def test_gpu_check_rehearsed(device, tmp_path):
    """The script that a person runs on real hardware, with everything in it once on tiny sizes."""
    env = environment(OZ2_MIN_SIZE=None)
    env["LD_LIBRARY_PATH"] = device
    env.update(OUT=str(tmp_path), OZ2_LIB=str(LIB))
    result = run([ROOT / "scripts" / "gpu-check", "--rehearse"], env, timeout=400)
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["checks"] > 40 and report["wrong"] == [], str(result)
    assert {row["engine"] for row in report["device"]} == {"cuda"} and len(report["host"]) == 2, str(result)
    assert set(report["phases"]["64"]) == {"scan", "plan", "residues", "product", "reduce", "reconstruct", "store"}
    assert [row["n"] for row in report["rns"]] == [4, 8, 16] and all(row["radix"] > 0 for row in report["rns"]), str(result)
    product = report["product"]
    checks = list(product["checks"].values())
    assert checks[:5] == ["right, 6 cases"] * 5 and product["left_out"] == [] == product["different"], str(result)
    assert len(checks) == 7 and all(re.fullmatch(r"right, [5-8] cases", found) for found in checks[5:]), str(result)
    assert len(product["times"]) == 3 * 6 and [len(rows) for rows in product["calls"].values()] == [3] * 5, str(result)
    levels = [{row["strassen"] for row in rows} for rows in product["calls"].values()]
    assert levels == [{0}, {0}, {0}, {1}, {2}], str(result)
    table = (tmp_path / "gpu.md").read_text()
    for question in ("graphs gain?", "a level of Strassen's form gains?", "a second level gains?"):
        assert "| %s |" % question in table and "| NO |" not in table, table
    assert {row["engine"] for rows in product["calls"].values() for row in rows} == {"cuda"}, str(result)
    assert (tmp_path / "gpu.md").read_text() in result.out
