"""Fixtures: the library, a native BLAS under it, compiled test programs."""

import subprocess

import pytest

import helpers


@pytest.fixture(scope="session", autouse=True)
def everything_is_there():
    """Stops at once with one clear line, in place of a hundred failures."""
    needed = [helpers.LIB, helpers.OZ2RUN, helpers.ARCHIVE, helpers.NETLIB / "xblat3d", helpers.NETLIB64 / "xblat3d",
              helpers.LAPACK / "xlintstd", helpers.LAPACK / "liblapack.so.3", *helpers.BLAS.values(), *helpers.BLAS64.values()]
    missing = [str(path) for path in needed if not path.exists()]
    if missing:
        pytest.exit("missing: %s; run scripts/test, which installs and builds" % " ".join(missing), 2)


@pytest.fixture
def lib():
    return helpers.LIB


@pytest.fixture(params=sorted(helpers.BLAS))
def blas(request):
    """Each native BLAS in turn, by name."""
    return request.param


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """build(source, *flags, libraries=()) compiles a test program once.

    The default is a program linked to the BLAS with the name libblas.so.3, as
    programs are; LD_LIBRARY_PATH chooses which one that is when it runs.
    """
    folder = tmp_path_factory.mktemp("programs")
    made = {}

    def compile_program(source, *flags, libraries=(helpers.BLAS["reference"],)):
        key = (source, flags, tuple(libraries))
        if key not in made:
            path = helpers.PROGRAMS / source
            target = folder / ("%s-%d" % (path.stem, len(made)))
            if path.suffix == ".f90":
                command = ["gfortran", "-O2", "-Wall"]
            else:
                command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
            command += [*flags, "-o", target, path, *libraries, "-lm", "-ldl"]
            done = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            made[key] = target
        return made[key]

    return compile_program


@pytest.fixture(scope="session")
def alone(tmp_path_factory, build):
    """alone(source, *flags): a program linked to the library and to no BLAS.

    The loader looks for the name in the SONAME, which the build folder lacks.
    """
    folder = tmp_path_factory.mktemp("alone")
    (folder / "liboz2blas.so.0").symlink_to(helpers.LIB)
    (folder / "liboz2blas.so").symlink_to(helpers.LIB)

    def compile_alone(source, *flags):
        libraries = ("-L%s" % folder, "-l:liboz2blas.so", "-Wl,-rpath,%s" % folder)
        # The library must see an xerbla_ that the program defines.
        return build(source, "-rdynamic", *flags, libraries=libraries)

    return compile_alone
