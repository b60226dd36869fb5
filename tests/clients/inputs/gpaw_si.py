"""gpaw_si.py: energies of eight silicon atoms in plane waves and of water on a grid."""

from ase.build import bulk, molecule
from gpaw import GPAW, PW

silicon = bulk("Si", cubic=True)
silicon[0].position += (0.05, 0, 0)
silicon.calc = GPAW(mode=PW(250), xc="LDA", txt=None, convergence={"energy": 1e-9, "density": 1e-8, "eigenstates": 1e-12})
print("silicon %.11f" % silicon.get_potential_energy())
water = molecule("H2O")
water.center(3.0)
water.calc = GPAW(mode="lcao", basis="dzp", h=0.25, xc="LDA", txt=None, convergence={"energy": 1e-9, "density": 1e-8})
print("water %.11f" % water.get_potential_energy())
