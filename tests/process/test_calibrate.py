"""oz2run --calibrate, and what the library makes of its file."""

import re

import pytest

import helpers
from helpers import BLAS, OZ2RUN, environment, run

# One call of 700 x 700 x 700, and what became of it.
CALL = """
import ctypes, sys
import numpy as np
a = np.random.default_rng(1).random((700, 700))
oz2 = ctypes.CDLL(None)
a @ a
text = ctypes.create_string_buffer(1000)
oz2.oz2_last_call(text, len(text))
print(text.value.decode())
"""
# Its class.
SIZE, THINNESS = 2, 3


def files(folder):
    return sorted(folder.rglob("*.calibration"))


def calibrated(tmp_path, *arguments, **options):
    env = environment(OZ2_MIN_SIZE=None, XDG_CONFIG_HOME=tmp_path, OZ2_NATIVE=BLAS["openblas"], **options)
    return run([OZ2RUN, *arguments], env, check=False)


def test_a_measurement_is_kept_and_told(tmp_path):
    result = calibrated(tmp_path, "--calibrate=1", OZ2_NUM_THREADS=1)
    assert result.rc == 0, str(result)
    (file,) = files(tmp_path)
    assert str(file) in result.out and "252 x 252 x 64" in result.out, str(result)
    lines = file.read_text().splitlines()[1:]
    ways = {line.split()[1] for line in lines}
    assert {"native:openblas-pthread/libopenblas-r0.3.21.so", "native:openblas-pthread/libblas.so.3"} & ways, lines
    assert all(re.fullmatch(r"1 \S+ \d \d \d+\.\d{3}", line) for line in lines), lines
    told = calibrated(tmp_path, "--doctor")
    assert re.search(r"^calibration +%s$" % re.escape(str(file)), told.out, re.M), str(told)
    # With other threads the first ones stay.
    assert calibrated(tmp_path, "--calibrate=1", "--num-threads", "2").rc == 0
    assert set(lines) < set(file.read_text().splitlines()[1:])


def test_without_time_or_a_folder_nothing_is_kept(tmp_path):
    result = calibrated(tmp_path, "--calibrate=1e-9", OZ2_NUM_THREADS=1)
    assert result.rc == 2 and "not enough" in result.err and not files(tmp_path), str(result)
    (tmp_path / "oz2blas").write_text("in the way")
    result = calibrated(tmp_path, "--calibrate=1", OZ2_NUM_THREADS=1)
    assert result.rc == 2 and "cannot write" in result.err, str(result)
    for words in (["--calibrate=0"], ["--calibrate=x"]):
        assert calibrated(tmp_path, *words).rc == 2


def test_doctor_tells_of_no_calibration(tmp_path):
    assert "none (oz2run --calibrate" in calibrated(tmp_path, "--doctor").out


@pytest.fixture
def engine():
    name = helpers.host_engine()
    if name == "portable":
        pytest.skip("the time model learns nothing of the portable engine")
    return name


@pytest.fixture(scope="module")
def head_and_name(tmp_path_factory):
    """The first line of a file for this machine, and its name."""
    folder = tmp_path_factory.mktemp("calibrated")
    assert calibrated(folder, "--calibrate=1", OZ2_NUM_THREADS=1).rc == 0
    (file,) = files(folder)
    return file.read_text().splitlines()[0], file.name


@pytest.mark.parametrize("native, emulated, route", [(50, 1, "emulated"), (0.02, 1, "native"), (50, 60, "native")])
def test_the_file_decides_where_a_call_goes(tmp_path, engine, head_and_name, native, emulated, route):
    head, name = head_and_name
    (tmp_path / "oz2blas").mkdir()
    file = tmp_path / "oz2blas" / name
    env = environment(preload=[helpers.LIB], OZ2_MIN_SIZE=None, OZ2_NUM_THREADS=1, OZ2_ENGINE=engine, XDG_CONFIG_HOME=tmp_path)
    blas = provider(env)
    file.write_text("%s\n1 native:%s %d %d %g\n1 %s %d %d %g\n" % (
        head, blas, SIZE, THINNESS, native, engine, SIZE, THINNESS, emulated))
    result = run([helpers.PYTHON, "-c", CALL], env)
    assert '"route":"%s"' % route in result.out and result.err == "", str(result)
    # What was measured of another BLAS says nothing about this one.
    if route == "emulated":
        file.write_text(file.read_text().replace(blas, "lib/other.so").replace(" 1\n", " 60\n"))
        result = run([helpers.PYTHON, "-c", CALL], env)
        assert '"reason":"no gain"' in result.out, str(result)


def provider(env):
    """The BLAS of NumPy's wheel, as the file names it."""
    code = "import numpy; print([l.split()[-1] for l in open('/proc/self/maps') if 'openblas' in l][0])"
    path = run([helpers.PYTHON, "-c", code], env).out.strip()
    return "/".join(path.split("/")[-2:])


@pytest.mark.parametrize("text", ["", "oz2blas 9.9.9\n1 amx 2 2 0.01\n", "\0\xff\n" * 1000, "oz2blas 0.1.0\n" + "x" * 100_000])
def test_a_broken_file_does_nothing(tmp_path, head_and_name, text):
    (tmp_path / "oz2blas").mkdir()
    (tmp_path / "oz2blas" / head_and_name[1]).write_bytes(text.encode("latin-1"))
    env = environment(preload=[helpers.LIB], OZ2_MIN_SIZE=None, OZ2_NUM_THREADS=1, XDG_CONFIG_HOME=tmp_path)
    result = run([helpers.PYTHON, "-c", CALL], env)
    assert '"route":' in result.out and result.err == "", str(result)


# A call, perhaps one of 300 x 300 x 300 before it, and what became of the last.
AFTER = """
import ctypes, sys
import numpy as np
a, small = np.random.default_rng(1).random((700, 700)), np.random.default_rng(2).random((300, 300))
oz2 = ctypes.CDLL(None)
small @ small if sys.argv[1] == "after" else None
a @ a
text = ctypes.create_string_buffer(1000)
oz2.oz2_last_call(text, len(text))
print(text.value.decode())
"""


def test_threads_of_the_native_blas_are_waited_for(tmp_path, engine, head_and_name):
    """A call that hardly gains goes native while the threads of the BLAS may still look for work after a call before it."""
    head, name = head_and_name
    # The tile unit is not always equally fast.
    engine = "avx512" if engine == "amx" else engine
    (tmp_path / "oz2blas").mkdir()
    env = environment(preload=[helpers.LIB], OZ2_MIN_SIZE=None, OZ2_NUM_THREADS=2, OZ2_ENGINE=engine, XDG_CONFIG_HOME=tmp_path)
    blas = provider(env)

    def is_emulated(native, when):
        lines = [head, "2 native:%s %d 3 %g" % (blas, SIZE, native), "2 native:%s 1 3 0.02" % blas]
        (tmp_path / "oz2blas" / name).write_text("\n".join(lines) + "\n")
        result = run([helpers.PYTHON, "-c", AFTER, when], env)
        return '"route":"emulated"' in result.out

    # How slow the native BLAS must be for the call to gain.
    low, high = 0.02, 50.0
    assert is_emulated(high, "alone") and not is_emulated(low, "alone")
    while high > 1.03 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_emulated(middle, "alone") else (middle, high)
    assert is_emulated(1.05 * high, "alone") and not is_emulated(1.05 * high, "after")
    assert is_emulated(2 * high, "after")
