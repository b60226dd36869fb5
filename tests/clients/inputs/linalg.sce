// linalg.sce: products of size 1500 and factorisations of size 500; residuals relative to the data, and norms.
function report(name, got, want, result)
    mprintf("%-6s residual %.3e norm %.14e\n", name, max(abs(got - want))/max(abs(want)), norm(result, "fro"));
endfunction
rand("seed", 42); n = 1500; a = rand(n,n) - .5; b = rand(n,n) - .5;
c = a*b; report("a*b", c(7,:), sum((a(7,:)'*ones(1,n)).*b, 'r'), c);
n = 500; a = rand(n,n) - .5; b = rand(n,n) - .5; s = a*a' + eye(n,n);
x = s\b; report("s\b", s*x, b, x);
[q,r] = qr(a); report("qr", q*r, a, r);
[v,d] = spec(s); report("spec", v*d*v', s, d);
exit
