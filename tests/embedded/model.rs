//! What the routines are compared with: the definitions, on small integers, so that every result is exact in every type; and
//! matrices as they are stored, with NaN wherever nothing may be read.

use num_complex::Complex;

use crate::api::{C64, Number};
use crate::common::Random;

pub const NAN: C64 = Complex::new(f64::NAN, f64::NAN);
pub const ZERO: C64 = Complex::new(0.0, 0.0);
pub const ONE: C64 = Complex::new(1.0, 0.0);

pub fn pick<X: Copy>(random: &mut Random, from: &[X]) -> X {
    from[random.below(from.len() as u64) as usize]
}

/// A small integer, complex for a complex type.
pub fn integer<T: Number>(random: &mut Random) -> C64 {
    let mut part = || random.below(5) as f64 - 2.0;
    C64::new(part(), if T::COMPLEX { part() } else { 0.0 })
}

/// A factor: zero and one are special to the routines.
pub fn factor<T: Number>(random: &mut Random) -> C64 {
    match random.below(4) {
        0 => ZERO,
        1 => ONE,
        _ => integer::<T>(random),
    }
}

/// A number whose inverse is exact.
pub fn invertible<T: Number>(random: &mut Random) -> C64 {
    let numbers = [ONE, -ONE, ONE * 2.0, C64::new(0.0, 1.0), C64::new(1.0, -1.0), C64::new(1.0, 1.0)];
    pick(random, &numbers[..if T::COMPLEX { 6 } else { 3 }])
}

#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    pub rows: usize,
    pub columns: usize,
    entries: Vec<C64>,
}

impl Dense {
    pub fn new(rows: usize, columns: usize, mut value: impl FnMut(usize, usize) -> C64) -> Self {
        let mut entries = Vec::new();
        for j in 0..columns {
            entries.extend((0..rows).map(|i| value(i, j)));
        }
        Self { rows, columns, entries }
    }

    pub fn random<T: Number>(random: &mut Random, rows: usize, columns: usize) -> Self {
        Self::new(rows, columns, |_, _| integer::<T>(random))
    }

    /// A symmetric or Hermitian matrix.
    pub fn symmetric<T: Number>(random: &mut Random, n: usize, hermitian: bool) -> Self {
        let x = Self::random::<T>(random, n, n);
        Self::new(n, n, |i, j| match (i < j, hermitian) {
            _ if i == j => {
                if hermitian {
                    x.at(i, i).re.into()
                } else {
                    x.at(i, i)
                }
            }
            (true, _) => x.at(i, j),
            (false, true) => x.at(j, i).conj(),
            (false, false) => x.at(j, i),
        })
    }

    /// A triangle, of which at most `reach` off-diagonals are not zero. Its inverse times integers is exact.
    pub fn triangle<T: Number>(random: &mut Random, n: usize, upper: bool, unit: bool, reach: usize) -> Self {
        Self::new(n, n, |i, j| {
            let entry = integer::<T>(random);
            if i == j {
                if unit { ONE } else { invertible::<T>(random) }
            } else if (i < j) == upper && i.abs_diff(j) <= reach {
                entry
            } else {
                ZERO
            }
        })
    }

    pub fn at(&self, i: usize, j: usize) -> C64 {
        assert!(i < self.rows);
        self.entries[i + j * self.rows]
    }

    pub fn op(&self, letter: u8) -> Self {
        match letter {
            b'N' => self.clone(),
            b'T' => Self::new(self.columns, self.rows, |i, j| self.at(j, i)),
            _ => Self::new(self.columns, self.rows, |i, j| self.at(j, i).conj()),
        }
    }

    pub fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows);
        let sum = |i, j| (0..self.columns).map(|h| self.at(i, h) * other.at(h, j)).sum();
        Self::new(self.rows, other.columns, sum)
    }

    pub fn scaled(&self, by: C64) -> Self {
        Self::new(self.rows, self.columns, |i, j| self.at(i, j) * by)
    }

    pub fn plus(&self, other: &Self) -> Self {
        Self::new(self.rows, self.columns, |i, j| self.at(i, j) + other.at(i, j))
    }

    pub fn column(values: &[C64]) -> Self {
        Self::new(values.len(), 1, |i, _| values[i])
    }
}

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Full,
    /// With so many diagonals below and above the main one.
    Band(usize, usize),
    /// The upper triangle, or the lower one.
    Packed(bool),
}

/// A stored matrix. What is not an entry of it is NaN and must stay so.
#[derive(Clone, Debug)]
pub struct Stored<T> {
    pub data: Vec<T>,
    entries: Vec<(usize, usize, usize)>,
    pub ld: i64,
}

impl<T: Number> Stored<T> {
    /// The entries are those for which there is a value.
    pub fn new(
        row_major: bool,
        form: Form,
        (rows, columns): (usize, usize),
        value: impl Fn(usize, usize) -> Option<C64>,
    ) -> Self {
        // A row-major matrix is the transposed one in column-major order.
        let (long, lines, form) = match (row_major, form) {
            (false, form) => (rows, columns, form),
            (true, Form::Full) => (columns, rows, Form::Full),
            (true, Form::Band(below, above)) => (columns, rows, Form::Band(above, below)),
            (true, Form::Packed(upper)) => (columns, rows, Form::Packed(!upper)),
        };
        let ld = match form {
            Form::Full => long.max(1) + 2,
            Form::Band(below, above) => below + above + 2,
            Form::Packed(_) => 0,
        };
        let length = if let Form::Packed(_) = form { long * (long + 1) / 2 } else { ld * lines };
        let place = |i: usize, j: usize| match form {
            Form::Full => i + j * ld,
            Form::Band(_, above) => above + i - j + j * ld,
            Form::Packed(true) => (0..j).map(|before| before + 1).sum::<usize>() + i,
            Form::Packed(false) => (0..j).map(|before| long - before).sum::<usize>() + i - j,
        };
        let mut out = Self { data: vec![T::of(NAN); length], entries: Vec::new(), ld: ld as i64 };
        for i in 0..rows {
            for j in 0..columns {
                if let Some(value) = value(i, j) {
                    let place = if row_major { place(j, i) } else { place(i, j) };
                    out.data[place] = T::of(value);
                    out.entries.push((place, i, j));
                }
            }
        }
        out
    }

    pub fn full(row_major: bool, matrix: &Dense) -> Self {
        Self::new(row_major, Form::Full, (matrix.rows, matrix.columns), |i, j| Some(matrix.at(i, j)))
    }

    /// A vector: a row of a matrix of |increment| times as many columns. The first element is the last one in memory where the
    /// increment is negative.
    pub fn vector(values: &[C64], increment: i64) -> Self {
        let (n, step) = (values.len(), increment.unsigned_abs() as usize);
        let mut data = vec![T::of(NAN); (n * step + 1).saturating_sub(step)];
        let mut entries = Vec::new();
        for i in 0..n {
            let place = step * if increment < 0 { n - 1 - i } else { i };
            data[place] = T::of(values[i]);
            entries.push((place, i, 0));
        }
        Self { data, entries, ld: increment }
    }

    /// All entries are what they should be, and nothing else has changed.
    pub fn check(&self, want: &Dense, what: &dyn std::fmt::Debug) {
        let mut expected = vec![None; self.data.len()];
        for &(place, i, j) in &self.entries {
            expected[place] = Some(want.at(i, j));
        }
        for (place, want) in expected.into_iter().enumerate() {
            let got = self.data[place].value();
            match want {
                Some(want) => assert_eq!(got, want, "{} at {place}: {what:?}", T::LETTER),
                None => assert!(
                    got.re.is_nan() && (!T::COMPLEX || got.im.is_nan()),
                    "{} wrote {got} at {place}: {what:?}",
                    T::LETTER
                ),
            }
        }
    }
}

/// The same data, bit for bit, NaN included.
pub fn assert_unchanged<T: Number>(now: &Stored<T>, before: &Stored<T>, what: &dyn std::fmt::Debug) {
    let bits = |x: &Stored<T>| -> Vec<(u64, u64)> {
        x.data.iter().map(|x| (x.value().re.to_bits(), x.value().im.to_bits())).collect()
    };
    assert_eq!(bits(now), bits(before), "an operand changed: {what:?}");
}

/// The entries of a triangle as a routine gets them. Of a Hermitian diagonal the imaginary part is not there, of a unit one
/// nothing.
pub fn of_triangle(
    matrix: &Dense,
    upper: bool,
    reach: usize,
    diagonal: impl Fn(C64) -> Option<C64>,
) -> impl Fn(usize, usize) -> Option<C64> {
    move |i, j| {
        if i == j {
            diagonal(matrix.at(i, i))
        } else {
            ((i < j) == upper && i.abs_diff(j) <= reach).then(|| matrix.at(i, j))
        }
    }
}

/// The real part, beside NaN for a complex type.
pub fn real_beside_nan(value: C64) -> Option<C64> {
    Some(C64::new(value.re, f64::NAN))
}
