//! Strassen's product in Winograd's form, modulo p: seven products of half the size in place of eight, and exact, since every sum is
//! a sum of residues (docs/strassen.md).
//!
//! An operand is cut into quadrants by its lines (rows of A, columns of B) and by the inner dimension. Of each operand seven
//! combinations are formed, one for each product:
//!
//! | product | M1 | M2 | M3 | M4 | M5 | M6 | M7 |
//! |---|---|---|---|---|---|---|---|
//! | of A | A11 | A12 | S4 = A12 - S2 | A22 | S1 = A21 + A22 | S2 = S1 - A11 | S3 = A11 - A21 |
//! | of B | B11 | B21 | B22 | T4 = T2 - B21 | T1 = B12 - B11 | T2 = B22 - T1 | T3 = B22 - B12 |
//!
//! C11 = M1 + M2, C12 = M1 + M6 + M5 + M3, C21 = M1 + M6 + M7 - M4, C22 = M1 + M6 + M7 + M5. With two levels each of the seven products
//! is computed in the same way.

use super::moduli::MODULI;

/// Products of a level.
pub const PRODUCTS: usize = 7;
/// Levels that there may be.
pub const MOST_LEVELS: usize = 2;

/// How many levels products are to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// So many at most.
    pub most: usize,
    /// A level is for products with at least so many rows, columns and elements of the inner dimension.
    pub least: usize,
}

impl Levels {
    /// The plain product.
    pub const NONE: Self = Self { most: 0, least: 0 };

    /// The levels of a product of so many rows, columns and elements of the inner dimension, which are filled up to multiples of
    /// `granules`: no part is smaller than one.
    pub fn for_block(self, sizes: [usize; 3], granules: [usize; 3]) -> usize {
        let may_be_cut = |level: &usize| {
            sizes.iter().zip(granules).all(|(size, granule)| {
                let part = size.div_ceil(granule).div_ceil(1 << level) * granule;
                part > granule && part >= self.least
            })
        };
        (0..self.most.min(MOST_LEVELS)).take_while(may_be_cut).count()
    }
}

/// Where the quadrants are among the seven combinations before these are formed, by half of the lines and half of the inner
/// dimension. That of A21 and B12 becomes S3 and T3.
pub const PLACES_OF_ROWS: [[usize; 2]; 2] = [[0, 1], [6, 3]];
pub const PLACES_OF_COLUMNS: [[usize; 2]; 2] = [[0, 1], [6, 2]];

/// The numbers of the combinations that [`of_rows`] and [`of_columns`] give.
pub const FORMED_OF_ROWS: [usize; 4] = [4, 5, 6, 2];
pub const FORMED_OF_COLUMNS: [usize; 4] = [4, 5, 6, 3];

/// A modulus for sums of its canonical residues.
#[derive(Clone, Copy)]
pub struct Modulus {
    /// p modulo 256.
    p: u8,
    /// The largest canonical residue.
    most: u8,
}

impl Modulus {
    pub fn new(l: usize) -> Self {
        Self { p: MODULI[l] as u8, most: ((MODULI[l] - 1) / 2) as u8 }
    }

    /// The canonical residues of x - y, of canonical ones. All in bytes, so that a register holds as many as it can: the difference
    /// wraps, and by how much it is positive or negative is told by differences that do not. For p = 256 to wrap is right.
    #[inline(always)]
    pub fn difference<const N: usize>(self, x: &[i8; N], y: &[i8; N]) -> [i8; N] {
        let mut out = [0; N];
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            let (a, b) = (x as u8 ^ 0x80, y as u8 ^ 0x80);
            let above = if a.saturating_sub(b) > self.most { self.p } else { 0 };
            let below = if b.saturating_sub(a) > self.most { self.p } else { 0 };
            *out = a.wrapping_sub(b).wrapping_sub(above).wrapping_add(below) as i8;
        }
        out
    }

    /// The canonical residues of x + y.
    #[inline(always)]
    pub fn sum<const N: usize>(self, x: &[i8; N], y: &[i8; N]) -> [i8; N] {
        // -(-128) is -128 modulo 256, and no other modulus has it.
        self.difference(x, &y.map(i8::wrapping_neg))
    }

    /// S1, S2, S3, S4 of A11, A12, A21, A22.
    #[inline(always)]
    pub fn of_rows<const N: usize>(self, [a11, a12, a21, a22]: &[[i8; N]; 4]) -> [[i8; N]; 4] {
        let s1 = self.sum(a21, a22);
        let s2 = self.difference(&s1, a11);
        [s1, s2, self.difference(a11, a21), self.difference(a12, &s2)]
    }

    /// T1, T2, T3, T4 of B11, B21, B12, B22.
    #[inline(always)]
    pub fn of_columns<const N: usize>(self, [b11, b21, b12, b22]: &[[i8; N]; 4]) -> [[i8; N]; 4] {
        let t1 = self.difference(b12, b11);
        let t2 = self.difference(b22, &t1);
        [t1, t2, self.difference(b22, b12), self.difference(&t2, b21)]
    }
}

/// A block that a step writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// C11, C12, C21, C22 by their numbers.
    C(usize),
    /// What belongs to a level alone.
    X,
    Y,
}

/// What is done with the blocks of C and two others, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A product (M1 is 0), put into a block, or added to what is there.
    Set(usize, Block),
    Add(usize, Block),
    /// A product and X, or X less a product, put into a block of C, and what C is to be added to.
    AddX(usize, usize),
    SubtractFromX(usize, usize),
    /// X + Y, put into a block of C, and what C is to be added to.
    TakeXAndY(usize),
}

impl Step {
    /// The product that is computed.
    pub fn product(&self) -> Option<usize> {
        match *self {
            Self::Set(m, _) | Self::Add(m, _) | Self::AddX(m, _) | Self::SubtractFromX(m, _) => Some(m),
            Self::TakeXAndY(_) => None,
        }
    }
}

/// The steps of a level. The products are added up where they are wanted, so that two blocks beside C are enough: X is M1, then
/// M1 + M6, then M1 + M6 + M7, and Y is M5.
pub const STEPS: [Step; 9] = [
    Step::Set(0, Block::X),
    Step::AddX(1, 0),
    Step::Add(5, Block::X),
    Step::Set(4, Block::Y),
    Step::TakeXAndY(1),
    Step::Add(2, Block::C(1)),
    Step::Add(6, Block::X),
    Step::SubtractFromX(3, 2),
    Step::TakeXAndY(3),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::moduli::{MAX_MODULI, canonical};
    use super::super::reference::strassen::{Matrix, plain, strassen};
    use super::*;

    #[test]
    fn sums_and_differences_of_all_residues() {
        for l in 0..MAX_MODULI {
            let modulus = Modulus::new(l);
            let residues = || (-128..=127i64).filter(|&x| i64::from(canonical(x, l)) == x);
            assert_eq!(residues().count(), MODULI[l] as usize);
            for (x, y) in residues().flat_map(|x| residues().map(move |y| (x, y))) {
                assert_eq!(
                    i32::from(modulus.sum(&[x as i8], &[y as i8])[0]),
                    canonical(x + y, l),
                    "{x} + {y}"
                );
                let difference = modulus.difference(&[x as i8], &[y as i8])[0];
                assert_eq!(i32::from(difference), canonical(x - y, l), "{x} - {y}");
            }
        }
    }

    #[test]
    fn levels_end_at_the_smallest_parts() {
        let levels = |most, least, sizes| Levels { most, least }.for_block(sizes, [32, 32, 64]);
        assert_eq!(levels(0, 0, [999, 999, 999]), 0);
        assert_eq!(levels(2, 0, [32, 999, 999]), 0);
        assert_eq!(levels(2, 0, [999, 999, 64]), 0);
        assert_eq!(levels(2, 0, [33, 64, 65]), 1);
        assert_eq!(levels(2, 0, [65, 65, 129]), 2);
        assert_eq!(levels(9, 0, [9999, 9999, 9999]), MOST_LEVELS);
        assert_eq!(levels(2, 4096, [4095, 8192, 8192]), 1, "4095 is filled up");
        assert_eq!(levels(2, 4096, [4000, 8192, 8192]), 0);
        assert_eq!(levels(2, 4096, [8192, 8192, 8192]), 2);
        assert_eq!(levels(2, usize::MAX, [1 << 40, 1 << 40, 1 << 40]), 0);
    }

    fn matrix(l: usize, rows: usize, columns: usize, values: &mut impl Iterator<Item = i64>) -> Matrix {
        Matrix::from_fn(rows, columns, |_, _| canonical(values.next().unwrap(), l).into())
    }

    /// alpha AB + add C by [`STEPS`], and by the sums of [`Modulus`], as an engine does it; the sizes are multiples of 2^levels.
    fn by_steps(l: usize, levels: usize, a: &Matrix, b: &Matrix, c: &mut Matrix, add: bool, negate: bool) {
        let modulus = Modulus::new(l);
        if levels == 0 {
            let product = plain(a, b, l);
            let sign = if negate { -1 } else { 1 };
            for (c, x) in c.values.iter_mut().zip(&product.values) {
                *c = canonical(sign * x + if add { *c } else { 0 }, l).into();
            }
            return;
        }
        // The combinations of an operand whose quadrants are by lines, then by the inner dimension.
        let combine = |quadrants: [Matrix; 4], places: [[usize; 2]; 2], formed: [usize; 4], rows: bool| {
            let of = |at: usize| quadrants.each_ref().map(|q| [q.values[at] as i8]);
            let mut all: [Matrix; PRODUCTS] = std::array::from_fn(|_| quadrants[0].clone());
            (0..4).for_each(|q| all[places[q / 2][q % 2]] = quadrants[q].clone());
            for at in 0..quadrants[0].values.len() {
                let sums = if rows { modulus.of_rows(&of(at)) } else { modulus.of_columns(&of(at)) };
                formed.iter().zip(sums).for_each(|(&number, [x])| all[number].values[at] = x.into());
            }
            all
        };
        let a = combine(a.quadrants(), PLACES_OF_ROWS, FORMED_OF_ROWS, true);
        let [b11, b12, b21, b22] = b.quadrants();
        let b = combine([b11, b21, b12, b22], PLACES_OF_COLUMNS, FORMED_OF_COLUMNS, false);
        // What is in X and Y before is not looked at.
        let (mut x, mut y) = (a[0].clone(), a[0].clone());
        let mut quadrants = c.quadrants();
        (x.rows, x.columns) = (quadrants[0].rows, quadrants[0].columns);
        x.values = vec![77; x.rows * x.columns];
        y.clone_from(&x);
        for step in STEPS {
            let mut take = |q: usize, y: Option<&Matrix>| {
                for at in 0..x.values.len() {
                    let byte = |m: &Matrix| [m.values[at] as i8];
                    let mut sum = byte(&x);
                    if let Some(y) = y {
                        sum = modulus.sum(&sum, &byte(y));
                    }
                    if add {
                        sum = modulus.sum(&sum, &byte(&quadrants[q]));
                    }
                    quadrants[q].values[at] = sum[0].into();
                }
            };
            let (number, block, add, negate) = match step {
                Step::Set(number, block) => (number, block, false, negate),
                Step::Add(number, block) => (number, block, true, negate),
                Step::AddX(number, q) | Step::SubtractFromX(number, q) => {
                    take(q, None);
                    (number, Block::C(q), true, negate != matches!(step, Step::SubtractFromX(..)))
                }
                Step::TakeXAndY(q) => {
                    take(q, Some(&y));
                    continue;
                }
            };
            let into = match block {
                Block::C(q) => &mut quadrants[q],
                Block::X => &mut x,
                Block::Y => &mut y,
            };
            by_steps(l, levels - 1, &a[number], &b[number], into, add, negate);
        }
        *c = Matrix::of_quadrants(&quadrants);
    }

    proptest! {
        /// The formulas of the reference are the product, for every modulus, one and two levels, odd sizes too.
        #[test]
        fn the_reference_is_the_plain_product(
            (m, n, k) in (1usize..10, 1usize..10, 1usize..10), values in prop::collection::vec(any::<i64>(), 200),
        ) {
            let mut values = values.into_iter().cycle().map(|x| x / 4);
            for l in 0..MAX_MODULI {
                let (a, b) = (matrix(l, m, k, &mut values), matrix(l, k, n, &mut values));
                for levels in 0..=MOST_LEVELS {
                    prop_assert_eq!(strassen(&a, &b, l, levels), plain(&a, &b, l), "l {} levels {}", l, levels);
                }
            }
        }

        /// And so are the steps of the engines, also where they add to C and subtract.
        #[test]
        fn the_steps_are_the_plain_product(
            (m, n, k) in (1usize..3, 1usize..3, 1usize..3), values in prop::collection::vec(any::<i64>(), 200),
            add in any::<bool>(), negate in any::<bool>(),
        ) {
            let mut values = values.into_iter().cycle().map(|x| x / 4);
            for l in 0..MAX_MODULI {
                for levels in 0..=MOST_LEVELS {
                    let (m, n, k) = (m << levels, n << levels, k << levels);
                    let (a, b) = (matrix(l, m, k, &mut values), matrix(l, k, n, &mut values));
                    let before = matrix(l, m, n, &mut values);
                    let (mut got, mut want) = (before.clone(), before);
                    by_steps(l, levels, &a, &b, &mut got, add, negate);
                    by_steps(l, 0, &a, &b, &mut want, add, negate);
                    prop_assert_eq!(got, want, "l {} levels {}", l, levels);
                }
            }
        }
    }
}
