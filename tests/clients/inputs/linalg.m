% linalg.m: products of size 2000 and factorisations of size 500; residuals relative to the data, and norms.
1;
function report(name, got, want, result)
  printf("%-10s residual %.3e norm %.14e\n", name, max(max(abs(got - want)))/max(max(abs(want))), norm(result, "fro"));
end
rand("seed", 42);
n = 2000; a = rand(n) - .5; b = rand(n) - .5;
c = a*b; report("a*b", c(7,:), sum(a(7,:)'.*b, 1), c);
n = 500; a = rand(n) - .5; b = rand(n) - .5;
s = a'*a + eye(n);
x = s\b; report("s\\b", s*x, b, x);
[l,u,p] = lu(a); report("lu", l*u, p*a, u);
h = chol(s); report("chol", h'*h, s, h);
[q,t] = qr(a); report("qr", q*t, a, t);
[v,d] = eig(s); report("eig", v*d*v', s, d);
[v,d] = eig(a); report("eig any", a*v, v*d, sort(abs(diag(d))));
[u,d,v] = svd(a); report("svd", u*d*v', a, d);
i = inv(s); report("inv", i*s, eye(n), i);
e = expm(a/10); report("expm", e*expm(-a/10), eye(n), e);
z = complex(a, b); w = z*z; report("complex", w(7,:), sum(z(7,:).'.*z, 1), w);
