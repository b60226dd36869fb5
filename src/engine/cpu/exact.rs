//! The plan on the CPU for lines that are all exact ([`crate::ozaki::exact`]): one tile of the bound product in place of all.

use std::sync::{Mutex, PoisonError};

use super::driver::Run;
use super::kernels::PANEL;
use super::products::Products;
use super::workspace::vector;
use crate::engine::Settings;
use crate::gemm::Rectangle;
use crate::ozaki::exact;
use crate::ozaki::needs::Entries;
use crate::ozaki::plan::{self, Plan};
use crate::ozaki::wide::Magnitude;
use crate::route::Reason;

impl Run<'_> {
    /// The plan for lines that are all exact with few bits, where N is clear from them and one tile of the bound product. None where
    /// it is not.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn exact(&self, products: &Products) -> Result<Option<Plan>, Reason> {
        let (a, b) = (&products.a, &products.b);
        let Settings { moduli, check, accuracy, .. } = *self.settings;
        if !products.are_packed() || !exact::needs_are_known(a, b, self.call.k, accuracy) {
            return Ok(None);
        }
        let (above, (i, j)) = exact::largest(a, b).unwrap_or((Magnitude::NONE, (0, 0)));
        let least = |largest| plan::least_moduli(moduli, check, largest);
        if least(above).is_none_or(|n| n > plan::good_enough(check)) {
            return Ok(None);
        }
        if least(above) > Some(2) {
            let tile = Rectangle { i: i / PANEL * PANEL, j: j / PANEL * PANEL, rows: 1, columns: 1 };
            let (number, below) = (products.number_of(&tile), Mutex::new(Magnitude::NONE));
            let visit = |at: Rectangle, g: Entries| {
                let entries = (0..at.columns).flat_map(|j| (0..at.rows).map(move |i| (i, j)));
                let of = |(i, j)| exact::of_entry(g.get(j * PANEL + i), &a[at.i + i], &b[at.j + j]);
                let largest = entries.map(of).max().unwrap_or(Magnitude::NONE);
                *below.lock().unwrap_or_else(PoisonError::into_inner) = largest;
            };
            // SAFETY: by the contract of this function.
            unsafe { products.for_each(&|tile| tile == number, &visit)? };
            if least(below.into_inner().unwrap_or_else(PoisonError::into_inner)) != least(above) {
                return Ok(None);
            }
        }
        let (mut row_needs, mut column_needs) = (vector(a.len(), 0)?, vector(b.len(), 0)?);
        exact::needs(a, &mut row_needs);
        exact::needs(b, &mut column_needs);
        Ok(plan::auto(moduli, check, a, b, above, row_needs, column_needs).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels::portable;
    use super::super::view::View;
    use super::*;
    use crate::gemm::{Gemm, Sizes, Transpose};
    use crate::options::Mode;
    use crate::ozaki::moduli::MAX_MODULI;
    use crate::ozaki::plan::{Accuracy, Way};
    use crate::ozaki::strassen::Levels;

    const SIZE: usize = 70;

    /// The plan without the bound product, and with it, for A and B of the same numbers.
    fn plans(value: impl Fn(usize) -> f64) -> (Option<Plan>, Plan) {
        let a: Vec<f64> = (0..SIZE * SIZE).map(value).collect();
        let mut c = vec![0.0; SIZE * SIZE];
        let sizes = Sizes { m: SIZE, n: SIZE, k: SIZE, lda: SIZE, ldb: SIZE, ldc: SIZE };
        let transposes = (Transpose::No, Transpose::No);
        let call = Gemm::new(transposes, sizes, (1.0, 0.0), a.as_ptr(), a.as_ptr(), c.as_mut_ptr()).unwrap();
        let settings = Settings {
            mode: Mode::Auto,
            moduli: MAX_MODULI,
            worth: MAX_MODULI,
            accuracy: Accuracy::Fp64,
            check: false,
            strassen: Levels::NONE,
            threads: 1,
            workspace: None,
        };
        let run = Run::new(&portable::KERNELS, &call, &settings);
        // SAFETY: the matrices are as large as the call says.
        unsafe {
            let mut products = Products::scan(&run, View::new(&call).unwrap()).unwrap();
            let quick = run.exact(&products).unwrap();
            (quick, run.attempt(&mut products, Way::Plain).unwrap().0.unwrap())
        }
    }

    #[test]
    fn exact_lines_need_no_bound_product_unless_n_is_in_doubt() {
        let random = |at: usize| (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
        for (most, moduli) in [(3, 2), (100, 3), (100_000, 5), (30_000_000, 7)] {
            let (quick, whole) = plans(|at| (random(at) % (2 * most + 1)) as f64 - most as f64);
            assert_eq!(quick, Some(whole.clone()), "{most}");
            assert_eq!(whole.moduli, moduli, "{most}");
        }
        // Single precision has different exponents in a line.
        let (quick, whole) = plans(|at| f64::from(random(at) as f32 / (1u64 << 53) as f32 + 0.01));
        assert_eq!(quick, Some(whole));
        // Large elements of rows meet small ones of columns only: two moduli do, and Cauchy and Schwarz ask for three.
        let (quick, whole) =
            plans(|at| if at / SIZE < SIZE / 2 && at % SIZE >= SIZE / 2 { 50.0 } else { 7.0 });
        assert_eq!((quick, whole.moduli), (None, 2));
        // Real numbers.
        assert_eq!(plans(|at| 1.0 / (1.0 + at as f64)).0, None);
    }
}
