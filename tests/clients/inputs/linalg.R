# linalg.R [N [M]]: products of size M and factorisations of size N; residuals relative to the data, and norms.
sizes <- as.integer(c(commandArgs(TRUE), "500", "2000")[1:2])
set.seed(42)
report <- function(name, got, want, result = got)
    cat(sprintf("%-12s residual %.3e norm %.14e\n", name, max(abs(got - want)) / max(abs(want)), norm(as.matrix(result), "F")))
n <- sizes[2]
a <- matrix(rnorm(n * n), n); b <- matrix(rnorm(n * n), n)
c <- a %*% b
report("%*%", c[7, ], colSums(a[7, ] * b), c)

n <- sizes[1]
a <- matrix(rnorm(n * n), n); b <- matrix(rnorm(n * n), n)
s <- crossprod(a) + diag(n)
x <- solve(s, b); report("solve", s %*% x, b, x)
x <- chol(s); report("chol", t(x) %*% x, s, x)
q <- qr(a, LAPACK = TRUE); report("qr", qr.Q(q) %*% qr.R(q), a[, q$pivot], qr.R(q))
e <- eigen(s, symmetric = TRUE); report("eigen", e$vectors %*% (e$values * t(e$vectors)), s, e$values)
v <- svd(a); report("svd", v$u %*% (v$d * t(v$v)), a, v$d)
f <- lm.fit(cbind(1, a[, 1:50]), b[, 1]); report("lm.fit", f$fitted.values + f$residuals, b[, 1], f$coefficients)
