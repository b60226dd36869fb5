"""pyscf_h2o.py: energies of water by Hartree-Fock, MP2, coupled clusters and density functional theory."""

from pyscf import cc, dft, gto, mp, scf

water = gto.M(atom="O 0 0 .1173; H 0 .7572 -.4692; H 0 -.7572 -.4692", basis="cc-pvtz", verbose=0)
rhf = scf.RHF(water).run(conv_tol=1e-12)
print("RHF     %.11f" % rhf.e_tot)
print("DF-RHF  %.11f" % scf.RHF(water).density_fit().run(conv_tol=1e-12).e_tot)
print("MP2     %.11f" % mp.MP2(rhf).run().e_tot)
ccsd = cc.CCSD(rhf).run(conv_tol=1e-10)
print("CCSD    %.11f" % ccsd.e_tot)
print("CCSD(T) %.11f" % (ccsd.e_tot + ccsd.ccsd_t()))
print("B3LYP   %.11f" % dft.RKS(water, xc="b3lyp").run(conv_tol=1e-12).e_tot)
