"""si_qe.py REPEAT: an input of Quantum ESPRESSO, REPEAT^3 cells of eight silicon atoms at the point Gamma, where it calls DGEMM.

One atom is moved, so that the forces are not zero by symmetry.
"""

import sys

repeat = int(sys.argv[1])
cell = [(0, 0, 0), (0, .5, .5), (.5, 0, .5), (.5, .5, 0), (.25, .25, .25), (.25, .75, .75), (.75, .25, .75), (.75, .75, .25)]
steps = [(i, j, k) for i in range(repeat) for j in range(repeat) for k in range(repeat)]
atoms = [[(x + s) / repeat for x, s in zip(atom, step)] for step in steps for atom in cell]
atoms[0] = [x + 0.01 / repeat for x in atoms[0]]
print("""&control
  calculation='scf', prefix='si', pseudo_dir='/usr/share/espresso/pseudo', outdir='./tmp', tprnfor=.true., disk_io='none'
/
&system
  ibrav=1, celldm(1)=%.6f, nat=%d, ntyp=1, ecutwfc=16.0, nosym=.true.
/
&electrons
  conv_thr=1.0d-11, diagonalization='david'
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS crystal""" % (10.26 * repeat, len(atoms)))
for atom in atoms:
    print(" Si %.10f %.10f %.10f" % tuple(atom))
print("K_POINTS gamma")
