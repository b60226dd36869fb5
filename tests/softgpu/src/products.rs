//! The matrix products of cuBLAS: 8-bit integers into 32 bits, and doubles. Column-major, as cuBLAS.

use crate::kernel::Launch;
use crate::memory::Memory;
use crate::status::Outcome;

/// alpha or beta: the bytes, or where on the device they will be.
#[derive(Clone, Copy)]
pub enum Scalar {
    Host([u8; 8]),
    Device(u64),
}

/// One operand of a batch: address, leading dimension and distance of one matrix to the next, in elements.
#[derive(Clone, Copy)]
pub struct Operand {
    pub address: u64,
    pub ld: usize,
    pub stride: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Int8,
    Double,
}

/// op(A) is m x k, op(B) is k x n.
pub struct Product {
    pub kind: Type,
    pub transposed: [bool; 2],
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: Scalar,
    pub beta: Scalar,
    pub a: Operand,
    pub b: Operand,
    pub c: Operand,
    pub batch: usize,
    pub workspace: Option<(u64, usize)>,
}

impl Product {
    /// What a failure of its execution is ordered by.
    pub fn launch_name(&self) -> &'static str {
        match self.kind {
            Type::Int8 => "launch:gemm",
            Type::Double => "launch:dgemm",
        }
    }
}

/// A matrix in memory that was looked up.
struct Matrix<T> {
    start: *mut T,
    ld: usize,
    transposed: bool,
}

impl<T: Copy> Matrix<T> {
    /// Matrix number `i` of a batch, `rows` x `columns` in memory.
    fn find(
        memory: &Memory,
        device: usize,
        operand: &Operand,
        i: usize,
        (rows, columns): (usize, usize),
        transposed: bool,
    ) -> Outcome<Matrix<T>> {
        let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
        let size = size_of::<T>();
        let elements = if rows == 0 || columns == 0 { 0 } else { (columns - 1) * operand.ld + rows };
        let offset = operand.stride.wrapping_mul((i * size) as i64);
        let address = operand.address.wrapping_add_signed(offset);
        let start = memory.on_device(address, elements * size, device)?.cast();
        Ok(Matrix { start, ld: operand.ld, transposed })
    }

    /// Element (row, column) of op(matrix).
    ///
    /// # Safety
    /// It lies in the matrix that was looked up.
    unsafe fn at(&self, row: usize, column: usize) -> T {
        let (row, column) = if self.transposed { (column, row) } else { (row, column) };
        self.start.add(column * self.ld + row).read_unaligned()
    }
}

pub fn run(product: &Product, memory: &Memory, device: usize) -> Outcome {
    match product.kind {
        Type::Int8 => int8(product, memory, device),
        Type::Double => double(product, memory, device),
    }
}

/// Long rows of equal length, padded with zeros to whole vectors.
struct Packed {
    values: Vec<i16>,
    length: usize,
}

impl Packed {
    fn new(rows: usize, length: usize, value: impl Fn(usize, usize) -> i8) -> Packed {
        let padded = length.next_multiple_of(32);
        let mut values = vec![0; rows * padded];
        for (row, slots) in values.chunks_exact_mut(padded.max(1)).enumerate() {
            for (i, slot) in slots[..length].iter_mut().enumerate() {
                *slot = i16::from(value(row, i));
            }
        }
        Packed { values, length: padded }
    }

    fn row(&self, row: usize) -> &[i16] {
        &self.values[row * self.length..][..self.length]
    }
}

/// Inner products of one row with four, modulo 2^32 as the tensor cores have it. Written so that the compiler sees the
/// instruction that multiplies pairs of 16-bit numbers and adds them.
#[inline(always)]
fn dots(x: &[i16], y: [&[i16]; 4]) -> [i32; 4] {
    y.map(|y| x.iter().zip(y).fold(0i32, |sum, (&x, &y)| sum.wrapping_add(i32::from(x) * i32::from(y))))
}

#[target_feature(enable = "avx2")]
fn dots_avx2(x: &[i16], y: [&[i16]; 4]) -> [i32; 4] {
    dots(x, y)
}

fn int8(product: &Product, memory: &Memory, device: usize) -> Outcome {
    let Product { m, n, k, .. } = *product;
    let alpha: i32 = product.alpha.value(memory, device)?;
    let beta: i32 = product.beta.value(memory, device)?;
    let avx2 = is_x86_feature_detected!("avx2");
    for i in 0..product.batch {
        let c: Matrix<i32> = Matrix::find(memory, device, &product.c, i, (m, n), false)?;
        let a: Matrix<i8> = Matrix::find(memory, device, &product.a, i, (m, k), product.transposed[0])?;
        let b: Matrix<i8> = Matrix::find(memory, device, &product.b, i, (k, n), product.transposed[1])?;
        // SAFETY: rows and columns stay in the matrices that were just looked up.
        let left = Packed::new(m, k, |row, l| unsafe { a.at(row, l) });
        let right = Packed::new(n, k, |column, l| unsafe { b.at(l, column) });
        for first in (0..n).step_by(4) {
            let columns = [0, 1, 2, 3].map(|j| right.row((first + j).min(n - 1)));
            for row in 0..m {
                let x = left.row(row);
                // SAFETY: AVX2 was found.
                let sums = if avx2 { unsafe { dots_avx2(x, columns) } } else { dots(x, columns) };
                for (column, sum) in (first..n).zip(sums) {
                    // SAFETY: as above; C is read only where beta asks for it.
                    unsafe {
                        let target = c.start.add(column * c.ld + row);
                        let old = if beta == 0 { 0 } else { beta.wrapping_mul(target.read_unaligned()) };
                        target.write_unaligned(alpha.wrapping_mul(sum).wrapping_add(old));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Flips a bit of one sum, as a broken unit would; the number says where.
pub fn flip(product: &Product, memory: &Memory, device: usize, number: usize) -> Outcome {
    let Product { m, n, batch, .. } = *product;
    let c: Matrix<i32> = Matrix::find(memory, device, &product.c, number % batch, (m, n), false)?;
    let (row, column) = (number * 7 % m, number * 5 % n);
    // SAFETY: an entry of the matrix that was just looked up.
    unsafe {
        let target = c.start.add(column * c.ld + row);
        target.write_unaligned(target.read_unaligned() ^ 1 << (number % 7));
    }
    Ok(())
}

/// The result of a product kernel of the library (kernels/product_*.cu).
pub struct Residues {
    out: u64,
    rows: usize,
    columns: usize,
    planes: usize,
}

impl Residues {
    pub fn of(launch: &Launch) -> Residues {
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes[..launch.arguments[at].len()].copy_from_slice(&launch.arguments[at]);
            u64::from_ne_bytes(bytes)
        };
        let [rows, columns, planes] = [2, 3, 5].map(|at| number(at) as usize);
        Residues { out: number(7), rows, columns, planes }
    }

    /// As [`flip`], of one residue.
    pub fn flip(&self, memory: &Memory, device: usize, number: usize) -> Outcome {
        let (plane, row, column) = (number % self.planes, number * 7 % self.rows, number * 5 % self.columns);
        let at = (plane * self.columns + column) * self.rows + row;
        let target = memory.on_device(self.out + at as u64, 1, device)?;
        // SAFETY: on_device vouches for the byte.
        unsafe { *target ^= 1 << (number % 7) };
        Ok(())
    }
}

fn double(product: &Product, memory: &Memory, device: usize) -> Outcome {
    let Product { m, n, k, .. } = *product;
    let alpha: f64 = product.alpha.value(memory, device)?;
    let beta: f64 = product.beta.value(memory, device)?;
    for i in 0..product.batch {
        let c: Matrix<f64> = Matrix::find(memory, device, &product.c, i, (m, n), false)?;
        let mut columns = vec![0.0; m * n];
        if alpha != 0.0 {
            let a: Matrix<f64> = Matrix::find(memory, device, &product.a, i, (m, k), product.transposed[0])?;
            let b: Matrix<f64> = Matrix::find(memory, device, &product.b, i, (k, n), product.transposed[1])?;
            // SAFETY: rows and columns stay in the matrices that were just looked up.
            let left: Vec<f64> = (0..m * k).map(|at| unsafe { a.at(at % m, at / m) }).collect();
            for (j, column) in columns.chunks_exact_mut(m.max(1)).enumerate() {
                for l in 0..k {
                    let factor = unsafe { b.at(l, j) };
                    column.iter_mut().zip(&left[l * m..]).for_each(|(sum, x)| *sum += x * factor);
                }
            }
        }
        for (at, sum) in columns.into_iter().enumerate() {
            // SAFETY: as above; C is read only where beta asks for it.
            unsafe {
                let target = c.start.add(at / m * c.ld + at % m);
                let old = if beta == 0.0 { 0.0 } else { beta * target.read_unaligned() };
                target.write_unaligned(if alpha == 0.0 { old } else { alpha * sum + old });
            }
        }
    }
    Ok(())
}
