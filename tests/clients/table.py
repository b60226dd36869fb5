"""The table of clients: programs that call DGEMM, how they are run, and what of their output is compared."""

from dataclasses import dataclass

MPI = "openmpi-bin"
SCALAPACK = "libscalapack-openmpi-dev"
SCALAPACK_TESTS = "$LIBS/scalapack/openmpi-tests"


@dataclass(frozen=True)
class Client:
    """A program and a run of it.

    packages: of Debian, the first is the program. pypi: in place of them or besides, the first likewise. command: as a user types it,
    in a folder with the inputs; without "oz2run " it is the plain run; $LIBS is Debian's folder of libraries. files: inputs, from
    tests/clients/inputs. prepare: makes more inputs. lines: what is compared, patterns of compare.selected. headline: a pattern whose
    group is shown as the result, in the lines that are compared. outputs: files that are read after stdout. tolerance: of numbers,
    relative to max(1, |x|). symbol: what the program calls. processes: how many must have made calls. intercepted: False where no call
    can be seen. threads: OMP_NUM_THREADS and OPENBLAS_NUM_THREADS; 0: as many as it takes by itself. noise: patterns of lines on stderr
    that come and go without the library.
    """

    name: str
    command: str
    lines: tuple
    headline: str
    symbol: str
    packages: tuple = ()
    pypi: tuple = ()
    files: tuple = ()
    prepare: str = ""
    outputs: tuple = ()
    tolerance: float = 1e-11
    processes: int = 1
    intercepted: bool = True
    threads: int = 1
    quick: bool = False
    noise: tuple = ()
    remark: str = ""


# Lines of our own inputs, "name residual 1e-16 norm 123".
RESIDUALS = (r"^\S.* residual .*",)
NORM = r"norm +(\S+)"
NUMPY = r"scipy_cblas_dgemm64_"
HPCC_LINES = (r"^WALL .*(PASSED|FAILED)", r"^Scaled residual: .*", r"^\|\|Ax-b.*", r"^Success=.*")
RESIDUAL_UNITS = "the numbers compared are residuals in units of eps, of which 16 are allowed"
ENERGY = r"(-?\d+\.\d{5,})"


def hpcc(name, size, block, ranks, **more):
    """HPL and its companions. ranks: a grid of 1 x ranks."""
    prepare = "sed -i 's/^SIZE /%d /; s/^BLOCK /%d /; s/^RANKS /%d /' hpccinf.txt" % (size, block, ranks)
    return Client(
        name, "mpirun -np %d oz2run hpcc" % ranks, HPCC_LINES, r"Ax-b.*= *(\S+)", "cblas_dgemm", packages=("hpcc", MPI),
        files=("hpccinf.txt",), prepare=prepare, outputs=("hpccoutf.txt",), tolerance=0.1, processes=ranks, **more)


def pdgemm(ranks, **more):
    return Client(
        "pdgemm-%d" % ranks, "mpirun -np %d oz2run ./pdgemm 2000 256" % ranks, (r"^pdgemm.*", r"^pdgesv.*"), NORM, "dgemm_",
        packages=(SCALAPACK, MPI, "gfortran"), files=("pdgemm.f90",),
        prepare="mpif90 -O2 -o pdgemm pdgemm.f90 -lscalapack-openmpi", processes=ranks, **more)


def espresso(name, repeat, **more):
    return Client(
        name, "oz2run pw.x -in si.in", (r"^!.*", r"Total force = +\S+"), r"^!.*= *(\S+)", "dgemm_",
        packages=("quantum-espresso", "quantum-espresso-data"), files=("si_qe.py",),
        prepare="python3 si_qe.py %d > si.in" % repeat, **more)


def psi4(name, threads, **more):
    return Client(
        name, "oz2run psi4 -n %d water.psi4 water.out" % threads, (r"\* .*total energy.*", r"Total Energy.*=.*"),
        r"CCSD\(T\) total energy (\S+)", "dgemm_", packages=("psi4",), files=("water.psi4",), outputs=("water.out",),
        threads=threads, **more)


CLIENTS = (
    Client("numpy", "oz2run python numpy_linalg.py", RESIDUALS, NORM, NUMPY + ", scipy_dgemm_", pypi=("numpy", "scipy"),
           files=("numpy_linalg.py",), threads=0, quick=True, remark="a @ a.T is dsyrk; LAPACK inside the wheels is not seen"),
    Client("numpy-fork", "oz2run python numpy_fork.py", (r"^(?:norm|fork|spawn).*",), NORM, NUMPY, pypi=("numpy",),
           files=("numpy_fork.py",),
           remark="fork, spawn, fork beside a product of another thread (OpenBLAS with several threads can hang there, plain too)"),
    Client("numpy-debian", "oz2run /usr/bin/python3 numpy_linalg.py", RESIDUALS, NORM, "cblas_dgemm, dgemm_",
           packages=("python3-numpy",), files=("numpy_linalg.py",), threads=0, quick=True,
           remark="OpenBLAS's LAPACK calls dgemm_ but for LU and Cholesky"),
    Client("scikit-learn", "oz2run python sklearn_models.py", (r"^\S.*",), r"cross validation (\S+)", NUMPY + ", scipy_dgemm_",
           pypi=("scikit-learn", "numpy", "scipy"), files=("sklearn_models.py",), threads=0),
    Client("statsmodels", "oz2run python stats_models.py", (r"^\S.*",), r"varmax (\S+)", "scipy_dgemm_", pypi=("statsmodels",),
           files=("stats_models.py",), remark="products of 4 x 4"),
    Client("numba", "oz2run python numba_product.py", (r"^\S.*",), r"product (\S+)", "scipy_dgemm_", pypi=("numba", "scipy"),
           files=("numba_product.py",), threads=0),
    Client("joblib", "oz2run python joblib_fork.py", (r"^\S.*",), r"parent (\S+)", NUMPY, pypi=("joblib", "numpy"),
           files=("joblib_fork.py",), threads=0, remark="processes by fork and exec, by fork alone, threads"),
    Client("pyscf", "oz2run python pyscf_h2o.py", (r"^\S.*",), r"CCSD\(T\) +(\S+)", "dgemm_, " + NUMPY, pypi=("pyscf",),
           files=("pyscf_h2o.py",)),
    Client("torch-debian", "oz2run /usr/bin/python3 torch_product.py", (r"^\S.*",), r"product (\S+)", "dgemm_",
           packages=("python3-torch",), files=("torch_product.py",), remark="LAPACK inside is not seen; workers are forked"),
    Client("jax", "oz2run python jax_product.py", (r"^\S.*",), r"product (\S+)", "none", pypi=("jax",), files=("jax_product.py",),
           intercepted=False, threads=0, remark="multiplies by code of its own (Eigen)"),
    Client("r", "oz2run Rscript linalg.R", RESIDUALS, NORM, "dgemm_", packages=("r-base-core",), files=("linalg.R",), threads=0,
           remark="crossprod is dsyrk; %*% with NaN in it does not call the BLAS"),
    Client("r-fork", "oz2run Rscript fork.R", (r"^(?:parent|child).*",), r"parent (\S+)", "dgemm_", packages=("r-base-core",),
           files=("fork.R",), threads=0, quick=True, remark="children of mclapply leave by _exit"),
    Client("octave", "oz2run octave-cli --no-window-system linalg.m", RESIDUALS, NORM, "dgemm_", packages=("octave",),
           files=("linalg.m",), threads=0),
    Client("octave-lapack", "LD_PRELOAD=$LIBS/lapack/liblapack.so.3 oz2run octave-cli --no-window-system linalg.m", RESIDUALS, NORM,
           "dgemm_", packages=("octave", "liblapack3"), files=("linalg.m",), threads=0, remark="with the reference LAPACK: LU too"),
    Client("octave-sparse", "oz2run octave-cli --no-window-system suitesparse.m", RESIDUALS, NORM, "dgemm_", packages=("octave",),
           files=("suitesparse.m",), quick=True, remark="UMFPACK and CHOLMOD; fronts of 32 columns"),
    Client("scilab", "oz2run scilab-cli -nb -f linalg.sce", RESIDUALS, NORM, "dgemm_", packages=("scilab-cli",),
           files=("linalg.sce",), threads=0),
    hpcc("hpcc-small", 1000, 128, 2, quick=True, remark=RESIDUAL_UNITS),
    hpcc("hpcc-1", 4000, 512, 1, remark=RESIDUAL_UNITS),
    hpcc("hpcc-2", 4000, 512, 2, remark=RESIDUAL_UNITS),
    pdgemm(2, quick=True, remark="pdgemm against exact integers: no error at all; and pdgesv"),
    pdgemm(4, remark="the same on a grid of 2 x 2"),
    Client("pblas-test", "mpirun -np 4 oz2run %s/PBLAS/dpb3tst | sort" % SCALAPACK_TESTS, (r"^.*(?:PASSED|FAILED).*",), r"(PASSED)",
           "dgemm_", packages=("scalapack-mpi-test", MPI), prepare="cp %s/PBLAS/PDBLAS3TST.dat ." % SCALAPACK_TESTS, tolerance=0,
           processes=4, remark="the tester of ScaLAPACK's PBLAS"),
    Client("scalapack-lu", "mpirun -np 4 oz2run %s/xdlu" % SCALAPACK_TESTS, (r"^.*tests.*",),
           r"(\d+) tests completed and passed", "dgemm_",
           packages=("scalapack-mpi-test", MPI), prepare="cp %s/LU.dat ." % SCALAPACK_TESTS, tolerance=0, processes=4,
           remark="the tester of ScaLAPACK's LU"),
    Client("mumps", "mpirun -np 1 oz2run ./mumps3d 32", (r"^mumps.*",), NORM, "dgemm_",
           packages=("libmumps-dev", MPI, "gfortran"), files=("mumps3d.f90",),
           prepare="mpif90 -O2 -I/usr/include -o mumps3d mumps3d.f90 -ldmumps -lmumps_common", quick=True),
    Client("lapack-test", "LD_LIBRARY_PATH=$LIBS/lapack:$LIBS/openblas-pthread oz2run $LIBS/lapack/xlintstd < large.in",
           (r"^.*(?:threshold|failed|Illegal|\*\*\*).*",), r"\( *(\d+) tests run", "dgemm_", packages=("liblapack-test", "liblapack3"),
           files=("lapack_sizes.sed",), prepare="sed -f lapack_sizes.sed $LIBS/lapack/dtest.in > large.in", tolerance=0,
           remark="sizes 100 and 132; tests/process/test_lapack.py runs all testers"),
    Client("ilp64", "oz2run ./ilp64", (r"^\S.*",), r"^dgemm_ ([\d.]+)$", "dgemm_, cblas_dgemm, 64-bit integers",
           packages=("libblas64-dev", "gcc"), files=("ilp64.c",), prepare="gcc -O2 -o ilp64 ilp64.c -lblas64 -lm", tolerance=0,
           remark="leading dimensions of 2^32"),
    espresso("qe-si8", 1, quick=True, remark="plane waves at Gamma; with k points it calls ZGEMM"),
    espresso("qe-si64", 2),
    Client("nwchem", "mpirun -np 1 oz2run nwchem.openmpi h2o.nw", (r"^.*(?:total energy|Total SCF|Total MP2).*",),
           r"CCSD\(T\) total energy.* +(-\S+)", "dgemm_", packages=("nwchem-openmpi", "nwchem-data", MPI), files=("h2o.nw",)),
    Client("cp2k", "mpirun -np 1 oz2run cp2k -i water-cp2k.inp", (r"^.*ENERGY.*",), ENERGY, "dgemm_",
           packages=("cp2k", "cp2k-data", MPI), files=("water-cp2k.inp",)),
    psi4("psi4", 1),
    psi4("psi4-threads", 2, remark="the library is called by several OpenMP threads at once"),
    Client("gpaw", "oz2run gpaw python gpaw_si.py", (r"^(?:silicon|water) .*",), r"silicon (\S+)", "dgemm_, cblas_dgemm",
           packages=("gpaw", "gpaw-data"), files=("gpaw_si.py",)),
    Client("openmolcas", "MOLCAS_MEM=1500 MOLCAS_WORKDIR=$PWD oz2run pymolcas h2o.molcas", (r"^.*Total.*energy.*", "Happy landing"),
           r"CASPT2.*(-\d+\.\d+)", "dgemm_, 64-bit integers", packages=("openmolcas",), files=("h2o.molcas",), tolerance=2e-10,
           remark="energies are printed to 8 digits"),
    Client("bagel", "BAGEL_NUM_THREADS=1 oz2run BAGEL h2o.bagel.json", (r"^.*total energy:.*", r"^ *\d+ +0 \* +(-\S+)"),
           r"MP2 total energy: (\S+)", "cblas_dgemm, dgemm_", packages=("bagel",), files=("h2o.bagel.json",)),
    Client("abinit", "oz2run abinit si8.abi", (r"^.* etotal.*",), r"etotal\S* +(\S+)", "dgemm_", packages=("abinit", "abinit-data"),
           files=("si8.abi",)),
    Client("elk", "oz2run elk-lapw", (r"^ total energy +: .*",), ENERGY, "dgemm_, zgemm_", packages=("elk-lapw",), files=("elk.in",),
           outputs=("INFO.OUT",), tolerance=2e-10, remark="another BLAS changes the energy by 9e-11"),
)
