//! A validated call: C = alpha op(A) op(B) + beta C, column-major, with 64-bit sizes.

/// op(X): X itself or its transpose (the conjugate transpose of a real matrix is its transpose).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transpose {
    No,
    Yes,
}

/// Where a matrix starts: a number, so that a call is a plain value that every thread may hold. What may be done there is for
/// the engines to know.
#[derive(Clone, Copy, Debug)]
struct Address(usize);

impl Address {
    fn plus(self, elements: usize) -> Self {
        Self(self.0.wrapping_add(elements.wrapping_mul(size_of::<f64>())))
    }
}

/// A matrix to read, as vectors ("lines") that are scaled each by one power of two: the rows of op(A) or the columns of op(B).
/// Addresses need no alignment.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    start: Address,
    /// Number of lines.
    pub count: usize,
    /// Elements of a line.
    pub length: usize,
    /// Distance between lines, in elements.
    pub line_stride: usize,
    /// Distance between the elements of a line, in elements.
    pub element_stride: usize,
}

/// The m x n matrix C, column-major.
#[derive(Clone, Copy, Debug)]
pub struct MatMut {
    start: Address,
    pub rows: usize,
    pub columns: usize,
    /// Leading dimension: the distance between columns, in elements.
    pub ld: usize,
}

/// A validated call. Whoever makes one vouches for the memory behind it, as the caller of a BLAS does.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f64,
    pub beta: f64,
    /// The m rows of op(A), each of k elements.
    pub a: Lines,
    /// The n columns of op(B), each of k elements.
    pub b: Lines,
    pub c: MatMut,
    /// The caller's matrices are row-major: the rows of C here are its columns there.
    pub row_major: bool,
}

impl Lines {
    /// The first element of the first line.
    pub fn pointer(&self) -> *const f64 {
        std::ptr::with_exposed_provenance(self.start.0)
    }
}

impl Lines {
    /// The stored matrix as (number of runs, elements of a run, distance between runs): a run is contiguous.
    pub fn runs(&self) -> (usize, usize, usize) {
        if self.element_stride == 1 {
            (self.count, self.length, self.line_stride)
        } else {
            (self.length, self.count, self.element_stride)
        }
    }

    /// Lines of our own, one after the other.
    pub fn dense(start: *const f64, count: usize, length: usize) -> Self {
        let start = Address(start.expose_provenance());
        Self { start, count, length, line_stride: length, element_stride: 1 }
    }

    /// How a BLAS is told of the lines of op(A): as a transposed matrix or not, and its leading dimension.
    pub fn stored(&self) -> (Transpose, usize) {
        // A single line may be contiguous in an untransposed matrix too, of leading dimension 1.
        if self.element_stride == 1 && self.line_stride >= self.length {
            (Transpose::Yes, self.line_stride)
        } else {
            (Transpose::No, self.element_stride)
        }
    }

    /// The same lines where their runs follow each other without gaps.
    pub fn dense_at(&self, start: *const f64) -> Self {
        let start = Address(start.expose_provenance());
        if self.element_stride == 1 {
            Self { start, line_stride: self.length, ..*self }
        } else {
            Self { start, element_stride: self.count, ..*self }
        }
    }
}

impl MatMut {
    /// A matrix of our own.
    pub fn own(start: *mut f64, rows: usize, columns: usize, ld: usize) -> Self {
        Self { start: Address(start.expose_provenance()), rows, columns, ld }
    }

    /// The same matrix without gaps between its columns.
    pub fn dense_at(&self, start: *mut f64) -> Self {
        Self { start: Address(start.expose_provenance()), ld: self.rows, ..*self }
    }

    /// The columns, to be read.
    pub fn as_lines(&self) -> Lines {
        let (count, length) = (self.columns, self.rows);
        Lines { start: self.start, count, length, line_stride: self.ld, element_stride: 1 }
    }

    /// The first entry.
    pub fn pointer(&self) -> *mut f64 {
        std::ptr::with_exposed_provenance_mut(self.start.0)
    }
}

/// A rectangle of C: rows i.. and columns j...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    pub i: usize,
    pub j: usize,
    pub rows: usize,
    pub columns: usize,
}

impl Rectangle {
    /// What is left without some rows and columns (in ascending order), in parts.
    pub fn without(&self, rows: &[usize], columns: &[usize]) -> Vec<Self> {
        let rows = stretches(self.i, self.rows, rows);
        let mut out = Vec::new();
        for (j, columns) in stretches(self.j, self.columns, columns) {
            out.extend(rows.iter().map(|&(i, rows)| Self { i, j, rows, columns }));
        }
        out
    }
}

/// The stretches of first.. between the lines that are out, as (first, count).
fn stretches(first: usize, count: usize, out: &[usize]) -> Vec<(usize, usize)> {
    let end = first + count;
    let mut all = Vec::new();
    let mut start = first;
    for line in out.iter().copied().filter(|line| (first..end).contains(line)).chain([end]) {
        if line > start {
            all.push((start, line - start));
        }
        start = line + 1;
    }
    all
}

/// The sizes of a call, column-major: what the BLAS arguments say, after all checks but that of the address range.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub lda: usize,
    pub ldb: usize,
    pub ldc: usize,
}

/// Bytes from the first to the last element of a column-major matrix; None where an address space cannot hold them.
fn extent(rows: usize, columns: usize, ld: usize) -> Option<usize> {
    if rows == 0 || columns == 0 {
        return Some(0);
    }
    let elements = (columns - 1).checked_mul(ld)?.checked_add(rows)?;
    elements.checked_mul(size_of::<f64>()).filter(|&bytes| isize::try_from(bytes).is_ok())
}

impl Gemm {
    /// None where the matrices would not fit in the address space.
    pub fn new(
        transposes: (Transpose, Transpose),
        sizes: Sizes,
        scalars: (f64, f64),
        a: *const f64,
        b: *const f64,
        c: *mut f64,
    ) -> Option<Self> {
        let Sizes { m, n, k, lda, ldb, ldc } = sizes;
        let (ta, tb) = transposes;
        // Products of smaller numbers fit, which spares nearly every call the question.
        const SAFE_BITS: u32 = (isize::BITS - 4) / 2;
        if (m | n | k | lda | ldb | ldc) >> SAFE_BITS != 0 {
            let stored =
                |t, rows, columns| if t == Transpose::No { (rows, columns) } else { (columns, rows) };
            let (rows, columns) = stored(ta, m, k);
            extent(rows, columns, lda)?;
            let (rows, columns) = stored(tb, k, n);
            extent(rows, columns, ldb)?;
            extent(m, n, ldc)?;
        }
        let lines = |start: *const f64, count, ld, contiguous| {
            let (line_stride, element_stride) = if contiguous { (ld, 1) } else { (1, ld) };
            Lines { start: Address(start.expose_provenance()), count, length: k, line_stride, element_stride }
        };
        Some(Self {
            m,
            n,
            k,
            alpha: scalars.0,
            beta: scalars.1,
            a: lines(a, m, lda, ta == Transpose::Yes),
            b: lines(b, n, ldb, tb == Transpose::No),
            c: MatMut { start: Address(c.expose_provenance()), rows: m, columns: n, ld: ldc },
            row_major: false,
        })
    }

    /// The same call for a rectangle of C alone.
    pub fn part(&self, r: Rectangle) -> Self {
        let shifted = |lines: Lines, first: usize, count: usize| Lines {
            start: lines.start.plus(first * lines.line_stride),
            count,
            ..lines
        };
        let start = self.c.start.plus(r.i + r.j * self.c.ld);
        Self {
            m: r.rows,
            n: r.columns,
            a: shifted(self.a, r.i, r.rows),
            b: shifted(self.b, r.j, r.columns),
            c: MatMut { start, rows: r.rows, columns: r.columns, ld: self.c.ld },
            ..*self
        }
    }

    /// m n k, at most the largest number. An integer: arithmetic in doubles would leave flags in the caller's environment.
    pub fn multiplications(&self) -> u64 {
        (self.m as u64).saturating_mul(self.n as u64).saturating_mul(self.k as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(sizes: Sizes, transposes: (Transpose, Transpose)) -> Option<Gemm> {
        Gemm::new(transposes, sizes, (1.0, 0.0), std::ptr::null(), std::ptr::null(), std::ptr::null_mut())
    }

    #[test]
    fn sizes_beyond_32_bits_are_kept() {
        let sizes = Sizes { m: 46341, n: 46341, k: 64, lda: 1 << 30, ldb: 64, ldc: 46341 };
        let gemm = call(sizes, (Transpose::No, Transpose::No)).unwrap();
        assert_eq!(gemm.multiplications(), 2147488281 * 64);
        let part = gemm.part(Rectangle { i: 46340, j: 46340, rows: 1, columns: 1 });
        assert_eq!(part.c.pointer().addr(), 8 * (46340 + 46340 * 46341));
        assert_eq!(part.a.pointer().addr(), 8 * 46340);
        assert_eq!(part.b.pointer().addr(), 8 * 64 * 46340);
    }

    #[test]
    fn matrices_that_no_address_space_holds_are_refused() {
        let huge = 1 << 40;
        let sizes = Sizes { m: 2, n: huge, k: 1, lda: 2, ldb: 1, ldc: huge };
        assert!(call(sizes, (Transpose::No, Transpose::No)).is_none());
        let sizes = Sizes { m: 2, n: 1, k: huge, lda: huge, ldb: huge, ldc: 2 };
        assert!(call(sizes, (Transpose::No, Transpose::No)).is_none());
        assert!(call(sizes, (Transpose::Yes, Transpose::No)).is_some());
    }
}
