# fork.R: products in the parent, then in forked children (mclapply), then in the parent again.
library(parallel)
n <- 400
set.seed(1)
a <- matrix(rnorm(n * n), n)
product <- function(i) norm(a %*% a, "F")
cat(sprintf("parent %.14e\n", product(0)))
cat(sprintf("child %.14e\n", unlist(mclapply(1:4, product, mc.cores = 2))), sep = "")
cat(sprintf("parent %.14e\n", product(0)))
