//! The border: the bytes are the arguments of one DGEMM.
//!
//! A legal call may change the elements of C and nothing else, and with small integers its result is known. An illegal one must
//! reach the error handler of the host with the place that the reference BLAS names, once, and touch nothing: its matrices are null.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;
use std::sync::OnceLock;

use oz2blas::abi::{cblas, fortran};
use oz2blas::options;

use super::Bytes;

/// The counters of host.c, where the handlers of the host program are.
struct Host {
    calls: *mut c_int,
    place: *mut c_int,
}

// SAFETY: the inputs run one after another.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

static HOST: OnceLock<Host> = OnceLock::new();

/// Sets the options and loads the handlers, which are in a library of their own because the functions of this program, in which
/// ours is linked, are not "the host's".
pub fn start() {
    HOST.get_or_init(|| {
        for (name, value) in [("NATIVE", "builtin"), ("MIN_SIZE", "0"), ("LOG", "off"), ("NUM_THREADS", "1")]
        {
            assert_eq!(options::set_option(name, value, false), options::SetResult::Done);
        }
        let folder = std::env::temp_dir().join(format!("oz2blas-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("host.c"), folder.join("host.so"));
        std::fs::write(&source, include_str!("host.c")).unwrap();
        let done = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(done.unwrap().success(), "gcc");
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors; its variables are integers.
        let host = unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            assert!(!handle.is_null(), "dlopen");
            let find = |name: &CStr| libc::dlsym(handle, name.as_ptr()).cast::<c_int>();
            Host { calls: find(c"calls"), place: find(c"place") }
        };
        std::fs::remove_dir_all(&folder).unwrap();
        host
    });
}

/// What no call may touch.
const SENTINEL: u64 = 0x7FF4_DEAD_BEEF_5A5A;

/// Columns (lines) of doubles with gaps, and words before and after.
struct Matrix {
    words: Vec<u64>,
    length: usize,
    ld: usize,
}

/// Words before the first element.
const BEFORE: usize = 2;

impl Matrix {
    fn new(length: usize, lines: usize, ld: usize, mut element: impl FnMut() -> u64) -> Self {
        // Without the gap after the last line: it need not exist.
        let inside = if lines == 0 || length == 0 { 0 } else { (lines - 1) * ld + length };
        let mut words = vec![SENTINEL; BEFORE + inside + 1];
        for at in 0..inside {
            if at % ld < length {
                words[BEFORE + at] = element();
            }
        }
        Self { words, length, ld }
    }

    fn pointer(&mut self) -> *mut f64 {
        // SAFETY: the first element, or the sentinel after none.
        unsafe { self.words.as_mut_ptr().add(BEFORE).cast() }
    }

    fn at(&self, i: usize, line: usize) -> f64 {
        f64::from_bits(self.words[BEFORE + i + line * self.ld])
    }

    fn gaps_are_whole(&self) -> bool {
        let is_element =
            |at: usize| at >= BEFORE && at < self.words.len() - 1 && (at - BEFORE) % self.ld < self.length;
        self.words.iter().enumerate().all(|(at, &word)| is_element(at) || word == SENTINEL)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Entry {
    Narrow,
    Wide,
    Cblas,
    CblasWide,
}

/// The place of the first illegal argument by the reference DGEMM.
fn illegal(letters: [u8; 2], [m, n, k, lda, ldb, ldc]: [i64; 6]) -> Option<i32> {
    let is = |letter: u8, set: &[u8]| set.contains(&letter.to_ascii_uppercase());
    let (na, nb) = (is(letters[0], b"N"), is(letters[1], b"N"));
    let rows_a = if na { m } else { k };
    let rows_b = if nb { k } else { n };
    let wrong = [
        (1, !na && !is(letters[0], b"TC")),
        (2, !nb && !is(letters[1], b"TC")),
        (3, m < 0),
        (4, n < 0),
        (5, k < 0),
        (8, lda < rows_a.max(1)),
        (10, ldb < rows_b.max(1)),
        (13, ldc < m.max(1)),
    ];
    wrong.into_iter().find(|&(_, is_wrong)| is_wrong).map(|(place, _)| place)
}

/// The place that the CBLAS hands on, for the column-major call that stands for this one.
fn cblas_place(place: i32, by_rows: bool) -> i32 {
    match (place + 1, by_rows) {
        (2, true) => 3,
        (3, true) => 2,
        (4, true) => 5,
        (5, true) => 4,
        (9, true) => 11,
        (11, true) => 9,
        (same, _) => same,
    }
}

struct Arguments {
    entry: Entry,
    layout: c_int,
    letters: [u8; 2],
    /// m, n, k, lda, ldb, ldc as the program gives them.
    numbers: [i64; 6],
    scalars: [f64; 2],
}

impl Arguments {
    fn draw(bytes: &mut Bytes) -> Self {
        let entry = bytes.pick(&[Entry::Narrow, Entry::Wide, Entry::Cblas, Entry::CblasWide]);
        let layout = match bytes.byte() {
            0..120 => 101,
            120..240 => 102,
            other => c_int::from(other),
        };
        let mut letter = || match bytes.byte() {
            strange @ 240.. => bytes.byte() ^ strange,
            usual => b"NTCntc"[usize::from(usual) % 6],
        };
        let letters = [letter(), letter()];
        let mut size = || match bytes.byte() {
            small @ 0..250 => i64::from(small % 26) - 1,
            250..252 => i64::from(bytes.byte()) % 130,
            252 => i64::from(i32::MAX),
            253 => i64::from(i32::MIN),
            _ => bytes.word() as i64,
        };
        let sizes = [size(), size(), size()];
        let [m, n, k] = sizes;
        let by_rows = matches!(entry, Entry::Cblas | Entry::CblasWide) && layout == 101;
        let is_n = |letter: u8| letter.eq_ignore_ascii_case(&b'N') != by_rows;
        let least = [
            if is_n(letters[0]) { m } else { k },
            if is_n(letters[1]) { k } else { n },
            if by_rows { n } else { m },
        ];
        let leading = least.map(|least| match bytes.byte() {
            gap @ 0..200 => least.max(1).saturating_add(i64::from(gap % 4)),
            wrong @ 200..230 => least - i64::from(wrong % 3),
            _ => size_of_leading(bytes, least),
        });
        let mut numbers = [m, n, k, leading[0], leading[1], leading[2]];
        if matches!(entry, Entry::Narrow | Entry::Cblas) {
            numbers = numbers.map(|x| i64::from(x as i32));
        }
        let mut scalar = || match bytes.byte() {
            0..200 => f64::from(bytes.pick(&[1i8, 0, -1, 2])),
            _ => f64::from_bits(bytes.word()),
        };
        let scalars = [scalar(), scalar()];
        Self { entry, layout, letters, numbers, scalars }
    }

    fn is_cblas(&self) -> bool {
        matches!(self.entry, Entry::Cblas | Entry::CblasWide)
    }

    /// Letters and numbers of the column-major call that stands for this one.
    fn by_columns(&self) -> ([u8; 2], [i64; 6]) {
        let [m, n, k, lda, ldb, ldc] = self.numbers;
        let [ta, tb] = self.letters;
        if self.is_cblas() && self.layout == 101 {
            ([tb, ta], [n, m, k, ldb, lda, ldc])
        } else {
            ([ta, tb], self.numbers)
        }
    }

    /// What the error handler must be told; None for a legal call.
    fn place(&self) -> Option<i32> {
        let (letters, numbers) = self.by_columns();
        if !self.is_cblas() {
            return illegal(letters, numbers);
        }
        // The CBLAS looks at its own arguments first.
        let known = |letter: u8| b"NTC".contains(&letter.to_ascii_uppercase());
        if self.layout != 101 && self.layout != 102 {
            return Some(1);
        }
        let strange = (0..2).find(|&i| !known(self.letters[i])).map(|i| i as i32 + 2);
        strange.or_else(|| illegal(letters, numbers).map(|place| cblas_place(place, self.layout == 101)))
    }

    /// # Safety
    ///
    /// The matrices are as the arguments say.
    unsafe fn call(&self, a: *const f64, b: *const f64, c: *mut f64) {
        let [m, n, k, lda, ldb, ldc] = self.numbers;
        let [alpha, beta] = self.scalars;
        let narrow = self.numbers.map(|x| x as i32);
        let at = |i: usize| -> *const c_void {
            if self.entry == Entry::Wide {
                (&raw const self.numbers[i]).cast()
            } else {
                (&raw const narrow[i]).cast()
            }
        };
        let letter = |i: usize| -> *const c_char { (&raw const self.letters[i]).cast() };
        let word = |letter: u8| match letter.to_ascii_uppercase() {
            b'N' => 111,
            b'T' => 112,
            b'C' => 113,
            other => c_int::from(other),
        };
        let [ta, tb] = self.letters.map(word);
        // SAFETY: by the contract of this function.
        unsafe {
            match self.entry {
                Entry::Narrow => fortran::dgemm_(
                    letter(0),
                    letter(1),
                    at(0),
                    at(1),
                    at(2),
                    &raw const alpha,
                    a,
                    at(3),
                    b,
                    at(4),
                    &raw const beta,
                    c,
                    at(5),
                ),
                Entry::Wide => fortran::dgemm_64_(
                    letter(0),
                    letter(1),
                    at(0),
                    at(1),
                    at(2),
                    &raw const alpha,
                    a,
                    at(3),
                    b,
                    at(4),
                    &raw const beta,
                    c,
                    at(5),
                ),
                Entry::Cblas => {
                    cblas::cblas_dgemm(self.layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
                }
                Entry::CblasWide => {
                    cblas::cblas_dgemm64_(self.layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
                }
            }
        }
    }
}

fn size_of_leading(bytes: &mut Bytes, least: i64) -> i64 {
    match bytes.byte() {
        0..100 => i64::MAX,
        100..200 => i64::from(i32::MAX),
        _ => least.saturating_add(bytes.word() as i64 & 0xFFFF),
    }
}

/// The most elements of a matrix here.
const MOST: i64 = 1 << 16;

pub fn run(data: &[u8]) {
    start();
    let host = HOST.get().expect("start() has set it");
    let mut bytes = Bytes(data);
    let arguments = Arguments::draw(&mut bytes);
    // SAFETY: the variables of host.c.
    let told = || unsafe { (host.calls.read(), host.place.read()) };
    let before = told();

    if let Some(place) = arguments.place() {
        // SAFETY: a BLAS touches no matrix of an illegal call.
        unsafe { arguments.call(std::ptr::null(), std::ptr::null(), std::ptr::null_mut()) };
        assert_eq!(told(), (before.0 + 1, place), "{:?} {:?}", arguments.letters, arguments.numbers);
        return;
    }

    let (letters, [m, n, k, lda, ldb, ldc]) = arguments.by_columns();
    let is_n = |letter: u8| letter.eq_ignore_ascii_case(&b'N');
    let (na, nb) = (is_n(letters[0]), is_n(letters[1]));
    let shape = |is_n: bool, rows: i64, columns: i64| if is_n { (rows, columns) } else { (columns, rows) };
    let (shape_a, shape_b) = (shape(na, m, k), shape(nb, k, n));
    let is_small = |(length, lines): (i64, i64), ld: i64| {
        length == 0
            || lines == 0
            || (lines - 1).checked_mul(ld).and_then(|x| x.checked_add(length)).is_some_and(|x| x <= MOST)
    };
    let work = [m, n, k].iter().try_fold(1i64, |product, &x| product.checked_mul(x)).unwrap_or(i64::MAX);
    if !(is_small(shape_a, lda) && is_small(shape_b, ldb) && is_small((m, n), ldc)) || work > 1 << 20 {
        return;
    }

    let mode = bytes.byte();
    let mut state = bytes.word() | 1;
    let mut element = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match mode {
            0..170 => f64::from((state >> 33) as i32 % 10).to_bits(),
            170..230 => (state >> 12) | 0x3FF0_0000_0000_0000,
            _ => state,
        }
    };
    let matrix = |(length, lines): (i64, i64), ld: i64, element: &mut dyn FnMut() -> u64| {
        Matrix::new(length as usize, lines as usize, ld as usize, element)
    };
    let mut a = matrix(shape_a, lda, &mut element);
    let mut b = matrix(shape_b, ldb, &mut element);
    let mut c = matrix((m, n), ldc, &mut element);
    let (a_before, b_before) = (a.words.clone(), b.words.clone());
    let c_before = Matrix { words: c.words.clone(), ..c };
    let (first, second) =
        if arguments.is_cblas() && arguments.layout == 101 { (&mut b, &mut a) } else { (&mut a, &mut b) };
    let pointers = (first.pointer(), second.pointer());
    // SAFETY: every matrix has the elements that the arguments promise.
    unsafe { arguments.call(pointers.0, pointers.1, c.pointer()) };

    assert_eq!(told(), before, "an error handler was called for a legal call");
    assert!(a.words == a_before && b.words == b_before, "A or B has changed");
    assert!(c.gaps_are_whole(), "something around C has changed");
    let [alpha, beta] = arguments.scalars;
    if mode < 170 && [alpha, beta].iter().all(|x| x.fract() == 0.0 && x.abs() < 100.0) {
        let rows = if n == 0 { 0 } else { m as usize };
        // Where there are none, the columns are more than can be counted.
        for j in 0..if rows == 0 { 0 } else { n as usize } {
            for i in 0..rows {
                let sum: f64 = (0..k as usize)
                    .map(|h| {
                        (if na { a.at(i, h) } else { a.at(h, i) })
                            * (if nb { b.at(h, j) } else { b.at(j, h) })
                    })
                    .sum();
                assert_eq!(c.at(i, j), alpha * sum + beta * c_before.at(i, j), "({i},{j})");
            }
        }
    }
}
