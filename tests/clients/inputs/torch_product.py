"""torch_product.py: double precision on the CPU, and products in the forked workers of a DataLoader."""

import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
a = torch.randn(1500, 1500, dtype=torch.float64)
print("product %.14e" % torch.linalg.norm(a @ a))
a = a[:500, :500].contiguous()
s = a @ a.T + torch.eye(500, dtype=torch.float64)
print("cholesky %.14e" % torch.linalg.norm(torch.linalg.cholesky(s)))
print("eigvalsh %.14e" % torch.linalg.eigvalsh(s)[-1])
print("solve %.14e" % torch.linalg.norm(torch.linalg.solve(s, a)))


class Products(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return float(torch.linalg.norm(a @ a))


for batch in DataLoader(Products(), batch_size=2, num_workers=2):
    print("workers", *("%.14e" % x for x in batch))
