//! Strassen's product in Winograd's form on matrices of residues, from the formulas alone.

use super::super::moduli::MODULI;

/// Integers, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<i64>,
}

impl Matrix {
    pub fn from_fn(rows: usize, columns: usize, mut value: impl FnMut(usize, usize) -> i64) -> Self {
        let at = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
        Self { rows, columns, values: at.map(|(i, j)| value(i, j)).collect() }
    }

    /// Zero outside of the matrix.
    pub fn at(&self, i: usize, j: usize) -> i64 {
        if i < self.rows && j < self.columns { self.values[i * self.columns + j] } else { 0 }
    }

    /// The quadrants 11, 12, 21, 22, of equal size: an odd matrix is filled up with zeros.
    pub fn quadrants(&self) -> [Self; 4] {
        let (rows, columns) = (self.rows.div_ceil(2), self.columns.div_ceil(2));
        [(0, 0), (0, 1), (1, 0), (1, 1)]
            .map(|(r, c)| Self::from_fn(rows, columns, |i, j| self.at(r * rows + i, c * columns + j)))
    }

    pub fn of_quadrants(quadrants: &[Self; 4]) -> Self {
        let (rows, columns) = (quadrants[0].rows, quadrants[0].columns);
        Self::from_fn(2 * rows, 2 * columns, |i, j| {
            quadrants[i / rows * 2 + j / columns].at(i % rows, j % columns)
        })
    }
}

/// The canonical residue.
fn canonical(x: i64, l: usize) -> i64 {
    let p = i64::from(MODULI[l]);
    let r = (x % p + p) % p;
    if 2 * r > p - 1 { r - p } else { r }
}

/// The product modulo the `l`-th modulus.
pub fn plain(a: &Matrix, b: &Matrix, l: usize) -> Matrix {
    Matrix::from_fn(a.rows, b.columns, |i, j| {
        canonical((0..a.columns).map(|h| a.at(i, h) * b.at(h, j)).sum(), l)
    })
}

/// The same with so many levels.
pub fn strassen(a: &Matrix, b: &Matrix, l: usize, levels: usize) -> Matrix {
    if levels == 0 {
        return plain(a, b, l);
    }
    let plus = |x: &Matrix, y: &Matrix| {
        Matrix::from_fn(x.rows, x.columns, |i, j| canonical(x.at(i, j) + y.at(i, j), l))
    };
    let minus = |x: &Matrix, y: &Matrix| {
        Matrix::from_fn(x.rows, x.columns, |i, j| canonical(x.at(i, j) - y.at(i, j), l))
    };
    let ([a11, a12, a21, a22], [b11, b12, b21, b22]) = (a.quadrants(), b.quadrants());
    let s1 = plus(&a21, &a22);
    let s2 = minus(&s1, &a11);
    let s3 = minus(&a11, &a21);
    let s4 = minus(&a12, &s2);
    let t1 = minus(&b12, &b11);
    let t2 = minus(&b22, &t1);
    let t3 = minus(&b22, &b12);
    let t4 = minus(&t2, &b21);
    let product = |x: &Matrix, y: &Matrix| strassen(x, y, l, levels - 1);
    let m1 = product(&a11, &b11);
    let m2 = product(&a12, &b21);
    let m3 = product(&s4, &b22);
    let m4 = product(&a22, &t4);
    let m5 = product(&s1, &t1);
    let m6 = product(&s2, &t2);
    let m7 = product(&s3, &t3);
    let u2 = plus(&m1, &m6);
    let u3 = plus(&u2, &m7);
    let u4 = plus(&u2, &m5);
    let whole = Matrix::of_quadrants(&[plus(&m1, &m2), plus(&u4, &m3), minus(&u3, &m4), plus(&u3, &m5)]);
    Matrix::from_fn(a.rows, b.columns, |i, j| whole.at(i, j))
}
