% suitesparse.m: SuiteSparse on a Laplacian in three dimensions: UMFPACK (solve, lu) and CHOLMOD (chol).
1;
function report(name, residual, result)
  printf("%-10s residual %.3e norm %.14e\n", name, residual, norm(result, "fro"));
end
m = 16; e = ones(m,1); T = spdiags([-e 2*e -e], -1:1, m, m); I = speye(m);
A = kron(kron(T,I),I) + kron(kron(I,T),I) + kron(kron(I,I),T);
n = rows(A); rand("seed", 42); b = rand(n,1) - .5;
U = A + spdiags(0.3*ones(n,1), 1, n, n);
x = U\b; report("umfpack", norm(U*x - b)/norm(b), x);
[R,p,Q] = chol(A); report("cholmod", norm(R'*R - Q'*A*Q, 1)/norm(A, 1), R);
[l,u,p,q] = lu(U); report("lu", norm(l*u - p*U*q, 1)/norm(U, 1), u);
