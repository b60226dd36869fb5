//! The LU factorisation with partial pivoting, as LAPACK's DGETRF does it: most of its work is DGEMM, with a short inner
//! dimension and a C that is added to.
//!
//! A panel of columns is factorised, its row interchanges are made in the other columns, a triangular system gives the rows
//! of U, and one DGEMM updates the rest. Only that DGEMM differs between the contenders; all the rest is OpenBLAS for all of
//! them.

use crate::blas::OpenBlas;
use crate::gemm::{Contender, uniform};
use crate::race::Work;
use crate::record::Note;

pub struct Lu<'a> {
    n: usize,
    block: usize,
    a: Vec<f64>,
    /// L and U, where A was.
    factors: Vec<f64>,
    /// Row i was interchanged with this row, counted from 1.
    pivots: Vec<i32>,
    lapack: &'a OpenBlas,
    contenders: &'a [Contender],
    /// Of the first factorisation of each contender.
    pub errors: Vec<Option<f64>>,
}

impl<'a> Lu<'a> {
    pub fn new(n: usize, block: usize, lapack: &'a OpenBlas, contenders: &'a [Contender]) -> Self {
        Self {
            n,
            block,
            a: uniform(n * n, 3),
            factors: vec![0.0; n * n],
            pivots: vec![0; n],
            lapack,
            contenders,
            errors: vec![None; contenders.len()],
        }
    }

    /// One panel of columns from `j` on, and what follows from it.
    fn step(&mut self, entrant: usize, j: usize) {
        let width = self.block.min(self.n - j);
        let next = j + width;
        let (columns_left, rows) = (j as i32, (self.n - j) as i32);
        let (rest, inner, ld) = ((self.n - next) as i32, width as i32, self.n as i32);
        let (first, last) = (j as i32 + 1, next as i32);
        let (library, mut info) = (self.lapack, 0);
        let base = self.factors.as_mut_ptr();
        let at = |row: usize, column: usize| base.wrapping_add(row + column * ld as usize);
        // SAFETY: all blocks lie inside the n x n matrix; the pivots from j on are those of the panel.
        unsafe {
            (library.getrf)(&rows, &inner, at(j, j), &ld, self.pivots.as_mut_ptr().add(j), &mut info);
        }
        assert_eq!(info, 0, "the panel at {j} is singular");
        for pivot in &mut self.pivots[j..next] {
            *pivot += columns_left;
        }
        let (pivots, one) = (self.pivots.as_ptr(), 1);
        let (no, left, lower, unit) = (c"N".as_ptr(), c"L".as_ptr(), c"L".as_ptr(), c"U".as_ptr());
        // SAFETY: as above.
        unsafe {
            (library.laswp)(&columns_left, base, &ld, &first, &last, pivots, &one);
            if rest == 0 {
                return;
            }
            let (below, right, corner) = (at(next, j), at(j, next), at(next, next));
            (library.laswp)(&rest, at(0, next), &ld, &first, &last, pivots, &one);
            (library.trsm)(left, lower, no, unit, &inner, &rest, &1.0, at(j, j), &ld, right, &ld, 1, 1, 1, 1);
            let gemm = self.contenders[entrant].gemm;
            gemm(no, no, &rest, &rest, &inner, &-1.0, below, &ld, right, &ld, &1.0, corner, &ld, 1, 1);
        }
    }

    /// The largest entry of P A - L U, in units of n u times the largest entry of A.
    fn backward_error(&self) -> f64 {
        let n = self.n;
        let upper = |i: usize, j: usize| if i <= j { self.factors[i + j * n] } else { 0.0 };
        let mut product: Vec<f64> = (0..n * n).map(|at| upper(at % n, at / n)).collect();
        let (size, left, lower, no, unit) =
            (n as i32, c"L".as_ptr(), c"L".as_ptr(), c"N".as_ptr(), c"U".as_ptr());
        let (l, lu) = (self.factors.as_ptr(), product.as_mut_ptr());
        // SAFETY: both matrices are n x n.
        unsafe {
            (self.lapack.trmm)(left, lower, no, unit, &size, &size, &1.0, l, &size, lu, &size, 1, 1, 1, 1);
        }
        let mut worst = 0.0f64;
        for (column, product) in self.a.chunks(n).zip(product.chunks(n)) {
            let mut permuted = column.to_vec();
            for (row, &pivot) in self.pivots.iter().enumerate() {
                permuted.swap(row, pivot as usize - 1);
            }
            for (x, y) in permuted.iter().zip(product) {
                let error = (x - y).abs();
                // max() alone would hide a NaN.
                worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
            }
        }
        let largest = self.a.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        worst / (n as f64 * largest * f64::EPSILON / 2.0)
    }
}

impl Work for Lu<'_> {
    fn prepare(&mut self, entrant: usize) {
        self.factors.copy_from_slice(&self.a);
        if let Some(library) = self.contenders[entrant].ours {
            library.reset_stats();
        }
    }

    fn call(&mut self, entrant: usize) {
        for j in (0..self.n).step_by(self.block) {
            self.step(entrant, j);
        }
    }

    fn note(&mut self, entrant: usize) -> Option<Note> {
        let library = self.contenders[entrant].ours;
        let stats = library.map(|library| library.stats());
        if self.errors[entrant].is_none() {
            self.errors[entrant] = Some(self.backward_error());
        }
        let count = |stats: &serde_json::Value, name: &str| stats[name].as_u64().unwrap_or(0);
        stats.map(|stats| {
            let (calls, emulated) = (count(&stats, "calls"), count(&stats, "emulated"));
            Note { route: format!("emulated: {emulated} of {calls}"), phases: Default::default() }
        })
    }

    fn repeatable(&self) -> bool {
        false
    }
}
