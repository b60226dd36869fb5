//! Checks of the contenders' results and manners. Each check runs in a child
//! process, so that a crash is one entry of the table.

use std::cell::RefCell;
use std::ptr::null_mut;

use crate::contenders::{CONTENDERS, Contender, Gemm, Run, VARIANTS};
use crate::halves::with_new_thread;
use crate::random;

type Outcome = Result<(), String>;
type Check = (&'static str, fn(Run) -> Outcome);

const CHECKS: [Check; 15] = [
    ("values, small sizes, NN TN NT TT", |run| small(run, &Setup::plain())),
    ("values, large sizes, NN TN NT TT", |run| large(run, &Setup::plain())),
    ("row-major C", |run| large(run, &Setup { row_major_c: true, ..Setup::plain() })),
    ("NaN and Inf reach C through zero factors", |run| {
        let setup = Setup { specials: true, ..Setup::plain() };
        small(run, &setup)?;
        large(run, &setup)
    }),
    ("addresses 4 mod 8", |run| {
        let setup = Setup { misalign: 4, ..Setup::plain() };
        small(run, &setup)?;
        large(run, &setup)
    }),
    ("operands end where the page ends", |run| {
        let setup = Setup { place: Place::End, ..Setup::plain() };
        small(run, &setup)?;
        large(run, &setup)
    }),
    ("operands begin where the page begins", |run| {
        let setup = Setup { place: Place::Start, ..Setup::plain() };
        small(run, &setup)?;
        large(run, &setup)
    }),
    ("k = 0 scales C", no_depth),
    ("alpha = 0 ignores NaN in A and B", zero_alpha),
    ("columns 2 GiB apart", huge_stride),
    ("128 KiB stack", small_stack),
    ("starts no threads", no_threads),
    ("same bits when C is split in two", same_bits),
    ("usable in a thread's last destructors", in_destructor),
    ("returns when memory runs out", out_of_memory),
];

pub fn all(only: Option<&str>) {
    std::panic::set_hook(Box::new(|_| {}));
    let chosen: Vec<&Contender> =
        CONTENDERS.iter().chain(VARIANTS).filter(|c| only.is_none_or(|name| c.name == name)).collect();
    print!("| check |");
    chosen.iter().for_each(|c| print!(" {} |", c.name));
    print!("\n| --- |");
    chosen.iter().for_each(|_| print!(" --- |"));
    println!();
    for (name, check) in CHECKS {
        let cells: Vec<String> = chosen.iter().map(|c| in_child(check, c.run)).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

/// Runs a check in a forked child and words its end.
fn in_child(check: fn(Run) -> Outcome, run: Run) -> String {
    let mut ends = [0; 2];
    unsafe { libc::pipe(ends.as_mut_ptr()) };
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        unsafe {
            libc::close(2);
            // A check that hangs has failed.
            libc::alarm(120);
        }
        let message = match std::panic::catch_unwind(|| check(run)) {
            Ok(Ok(())) => "yes".to_string(),
            Ok(Err(why)) => format!("NO: {why}"),
            Err(_) => "NO: panics".to_string(),
        };
        unsafe {
            libc::write(ends[1], message.as_ptr().cast(), message.len());
            libc::_exit(0);
        }
    }
    let mut text = [0u8; 512];
    let mut status = 0;
    let len = unsafe {
        libc::close(ends[1]);
        let len = libc::read(ends[0], text.as_mut_ptr().cast(), text.len());
        libc::close(ends[0]);
        libc::waitpid(pid, &mut status, 0);
        len
    };
    if libc::WIFSIGNALED(status) {
        return format!("NO: signal {}", libc::WTERMSIG(status));
    }
    String::from_utf8_lossy(&text[..len.max(0) as usize]).into_owned()
}

#[derive(Clone, Copy)]
enum Place {
    /// With readable memory on both sides.
    Middle,
    Start,
    End,
}

/// Memory between two unmapped pages.
struct Arena {
    start: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Arena {
    fn new(len: usize) -> Self {
        let len = len.next_multiple_of(PAGE);
        let start = map(len + 2 * PAGE, libc::PROT_NONE).wrapping_add(PAGE);
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(unsafe { libc::mprotect(start.cast(), len, rw) }, 0);
        Self { start, len }
    }

    fn place(&self, elements: usize, place: Place, misalign: usize) -> *mut f64 {
        let bytes = elements * size_of::<f64>();
        assert!(bytes + misalign + 2 * PAGE <= self.len);
        match place {
            Place::Middle => self.start.wrapping_add(PAGE + misalign),
            Place::Start => self.start.wrapping_add(misalign),
            Place::End => self.start.wrapping_add(self.len - bytes - misalign),
        }
        .cast()
    }
}

fn map(len: usize, protection: i32) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let p = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(p, libc::MAP_FAILED, "mmap");
    p.cast()
}

struct Setup {
    place: Place,
    misalign: usize,
    row_major_c: bool,
    specials: bool,
}

impl Setup {
    const fn plain() -> Self {
        Self { place: Place::Middle, misalign: 0, row_major_c: false, specials: false }
    }
}

/// A matrix as it lies in memory; `ld` is the longer stride.
#[derive(Clone, Copy)]
struct View {
    p: *mut f64,
    rows: usize,
    cols: usize,
    rs: isize,
    cs: isize,
}

impl View {
    fn new(arena: &Arena, (rows, cols): (usize, usize), row_major: bool, pad: usize, setup: &Setup) -> Self {
        let (rs, cs, span) = if row_major {
            (cols + pad, 1, (rows - 1) * (cols + pad) + cols)
        } else {
            (1, rows + pad, (cols - 1) * (rows + pad) + rows)
        };
        let p = arena.place(span, setup.place, setup.misalign);
        for i in 0..span {
            unsafe { p.wrapping_add(i).write_unaligned(FILL) };
        }
        Self { p, rows, cols, rs: rs as isize, cs: cs as isize }
    }

    fn at(&self, i: usize, j: usize) -> *mut f64 {
        self.p.wrapping_offset(i as isize * self.rs + j as isize * self.cs)
    }

    fn get(&self, i: usize, j: usize) -> f64 {
        unsafe { self.at(i, j).read_unaligned() }
    }

    fn fill(&self, values: impl Fn(usize) -> f64) {
        for j in 0..self.cols {
            for i in 0..self.rows {
                unsafe { self.at(i, j).write_unaligned(values(i + j * self.rows)) };
            }
        }
    }

    fn dense(&self) -> Vec<f64> {
        (0..self.cols).flat_map(|j| (0..self.rows).map(move |i| self.get(i, j))).collect()
    }
}

/// What lies between the columns: must not be used, nor changed in C.
const FILL: f64 = f64::from_bits(0x7ff8_dead_beef_0001);
const SCALARS: [(f64, f64); 5] = [(1.0, 0.0), (-1.0, 1.0), (0.5, -2.0), (2.0, -0.0), (1.5, 1.0)];

struct Memory(Arena, Arena, Arena);

impl Memory {
    fn new() -> Self {
        let arena = || Arena::new(16 << 20);
        Self(arena(), arena(), arena())
    }
}

/// Every size up to 34 in both directions, with short and middling depths.
fn small(run: Run, setup: &Setup) -> Outcome {
    let memory = Memory::new();
    let mut count = 0;
    for m in 1..=34 {
        for n in 1..=34 {
            for k in [1, 2, 3, 8, 19] {
                for trans in 0..4 {
                    count += 1;
                    product(run, setup, &memory, (m, n, k), trans, count)?;
                }
            }
        }
    }
    Ok(())
}

fn large(run: Run, setup: &Setup) -> Outcome {
    let memory = Memory::new();
    let sizes = [
        (1, 300, 70),
        (300, 1, 700),
        (1, 1, 3000),
        (65, 130, 67),
        (129, 64, 1030),
        (1030, 50, 40),
        (1100, 7, 521),
        (2, 1500, 700),
        (50, 1030, 600),
        (603, 301, 530),
        (640, 320, 512),
        (16, 16, 2050),
    ];
    for (count, size) in sizes.into_iter().enumerate() {
        for trans in 0..4 {
            product(run, setup, &memory, size, trans, 4 * count + trans)?;
        }
    }
    Ok(())
}

/// One product, compared with a plain triple loop.
fn product(
    run: Run,
    setup: &Setup,
    memory: &Memory,
    (m, n, k): (usize, usize, usize),
    trans: usize,
    count: usize,
) -> Outcome {
    let (alpha, beta) = SCALARS[count % SCALARS.len()];
    let pad = [0, 3, 8][count % 3];
    let a = View::new(&memory.0, (m, k), trans & 1 != 0, pad, setup);
    let b = View::new(&memory.1, (k, n), trans & 2 != 0, pad, setup);
    let c = View::new(&memory.2, (m, n), setup.row_major_c, pad, setup);
    let numbers = random(m * k + k * n + m * n, count as u64);
    let (special_row, special_depth) = (count % m, count % k);
    a.fill(|at| match (setup.specials, at % m, at / m) {
        (true, i, p) if p == special_depth && i == special_row => f64::NAN,
        (true, i, p) if p == special_depth && i == (special_row + 1) % m => f64::INFINITY,
        _ => numbers[at],
    });
    b.fill(|at| match (setup.specials, at % k) {
        (true, p) if p == special_depth => 0.0,
        _ => numbers[m * k + at],
    });
    if beta == 0.0 {
        c.fill(|_| f64::NAN);
    } else {
        c.fill(|at| numbers[m * k + k * n + at]);
    }
    let (dense_a, dense_b, before) = (a.dense(), b.dense(), c.dense());
    unsafe { run(&gemm(&a, &b, &c, alpha, beta)) };
    for j in 0..n {
        for i in 0..m {
            let (mut sum, mut size) = (0.0, 0.0);
            for p in 0..k {
                let term = dense_a[i + p * m] * dense_b[p + j * k];
                sum += term;
                size += term.abs();
            }
            let (mut want, mut size) = (alpha * sum, alpha.abs() * size);
            if beta != 0.0 {
                want += beta * before[i + j * m];
                size += (beta * before[i + j * m]).abs();
            }
            let got = c.get(i, j);
            let close = (got - want).abs() <= 1e-15 * (k as f64 + 4.0) * size;
            if !(close || got.is_nan() && want.is_nan() || got == want) {
                return Err(format!(
                    "{m} {n} {k} trans {trans} alpha {alpha} beta {beta}: {got:e} for {want:e}"
                ));
            }
        }
    }
    gaps_kept(&c, pad).map_err(|why| format!("{m} {n} {k} trans {trans}: {why}"))
}

fn gemm(a: &View, b: &View, c: &View, alpha: f64, beta: f64) -> Gemm {
    Gemm {
        m: c.rows,
        n: c.cols,
        k: a.cols,
        alpha,
        a: a.p,
        rsa: a.rs,
        csa: a.cs,
        b: b.p,
        rsb: b.rs,
        csb: b.cs,
        beta,
        c: c.p,
        rsc: c.rs,
        csc: c.cs,
    }
}

fn gaps_kept(c: &View, pad: usize) -> Outcome {
    let (long, lines, ld) = if c.rs == 1 { (c.rows, c.cols, c.cs) } else { (c.cols, c.rows, c.rs) };
    for line in 0..lines - 1 {
        for gap in 0..pad {
            let at = line as isize * ld + (long + gap) as isize;
            if unsafe { c.p.wrapping_offset(at).read_unaligned() }.to_bits() != FILL.to_bits() {
                return Err("writes between the columns of C".into());
            }
        }
    }
    Ok(())
}

/// Square operands in ordinary memory.
struct Square {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    n: usize,
}

impl Square {
    fn new(n: usize) -> Self {
        Self { a: random(n * n, 3), b: random(n * n, 4), c: vec![f64::NAN; n * n], n }
    }

    fn gemm(&mut self, trans: usize) -> Gemm {
        let n = self.n as isize;
        let strides = |on: bool| if on { (n, 1) } else { (1, n) };
        let ((rsa, csa), (rsb, csb)) = (strides(trans & 1 != 0), strides(trans & 2 != 0));
        Gemm {
            m: self.n,
            n: self.n,
            k: self.n,
            alpha: 1.0,
            a: self.a.as_ptr(),
            rsa,
            csa,
            b: self.b.as_ptr(),
            rsb,
            csb,
            beta: 0.0,
            c: self.c.as_mut_ptr(),
            rsc: 1,
            csc: n,
        }
    }
}

fn no_depth(run: Run) -> Outcome {
    for (beta, before, want) in
        [(0.0, f64::NAN, 0.0), (-0.0, f64::NAN, 0.0), (1.0, 3.0, 3.0), (2.0, 3.0, 6.0)]
    {
        let mut square = Square::new(20);
        square.c.fill(before);
        let g = Gemm { k: 0, beta, ..square.gemm(0) };
        unsafe { run(&g) };
        if square.c.iter().any(|&x| x != want) {
            return Err(format!("beta {beta}"));
        }
    }
    Ok(())
}

fn zero_alpha(run: Run) -> Outcome {
    let mut square = Square::new(40);
    square.a.fill(f64::NAN);
    square.c.fill(3.0);
    let g = Gemm { alpha: 0.0, beta: 2.0, ..square.gemm(0) };
    unsafe { run(&g) };
    match square.c.iter().all(|&x| x == 6.0) {
        true => Ok(()),
        false => Err("NaN".into()),
    }
}

fn huge_stride(run: Run) -> Outcome {
    const LD: isize = (1 << 28) + 3;
    let (m, n, k) = (20, 9, 10);
    for trans in 0..4 {
        let view = |rows: usize, cols: usize, row_major: bool| {
            let lines = if row_major { rows } else { cols };
            let len = (lines * LD as usize) * size_of::<f64>();
            let p = map(len, libc::PROT_READ | libc::PROT_WRITE).cast();
            let (rs, cs) = if row_major { (LD, 1) } else { (1, LD) };
            View { p, rows, cols, rs, cs }
        };
        let (a, b, c) = (view(m, k, trans & 1 != 0), view(k, n, trans & 2 != 0), view(m, n, false));
        a.fill(|at| at as f64);
        b.fill(|at| (at % 7) as f64);
        unsafe { run(&gemm(&a, &b, &c, 1.0, 0.0)) };
        for i in 0..m {
            for j in 0..n {
                let want: f64 = (0..k).map(|p| a.get(i, p) * b.get(p, j)).sum();
                if c.get(i, j) != want {
                    return Err(format!("trans {trans}"));
                }
            }
        }
        for v in [a, b, c] {
            let lines = if v.rs == 1 { v.cols } else { v.rows };
            unsafe { libc::munmap(v.p.cast(), lines * LD as usize * size_of::<f64>()) };
        }
    }
    Ok(())
}

fn small_stack(run: Run) -> Outcome {
    let body = move || {
        for n in [5, 40, 700] {
            let mut square = Square::new(n);
            for trans in 0..4 {
                unsafe { run(&square.gemm(trans)) };
            }
        }
    };
    std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(body)
        .and_then(|thread| thread.join().map_err(|_| std::io::Error::other("panics")))
        .map_err(|e| e.to_string())
}

fn no_threads(run: Run) -> Outcome {
    let mut square = Square::new(1500);
    unsafe { run(&square.gemm(0)) };
    let count = std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count());
    match count {
        1 => Ok(()),
        _ => Err(format!("{count} threads")),
    }
}

fn same_bits(run: Run) -> Outcome {
    for n in [301, 1100] {
        for trans in 0..4 {
            let (mut whole, mut halves) = (Square::new(n), Square::new(n));
            unsafe {
                run(&whole.gemm(trans));
                with_new_thread(run, &halves.gemm(trans));
            }
            let same = |(x, y): (&f64, &f64)| x.to_bits() == y.to_bits();
            if !whole.c.iter().zip(&halves.c).all(same) {
                return Err(format!("n {n} trans {trans}"));
            }
        }
    }
    Ok(())
}

/// A caller's destructor that runs after the contender's own has run.
struct Late(Option<Run>);

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(run) = self.0 {
            let mut square = Square::new(600);
            let body = std::panic::AssertUnwindSafe(|| unsafe { run(&square.gemm(0)) });
            if std::panic::catch_unwind(body).is_err() {
                std::process::abort();
            }
        }
    }
}

thread_local!(static LATE: RefCell<Late> = const { RefCell::new(Late(None)) });

fn in_destructor(run: Run) -> Outcome {
    let body = move || {
        LATE.with_borrow_mut(|late| late.0 = Some(run));
        let mut square = Square::new(600);
        unsafe { run(&square.gemm(0)) };
    };
    std::thread::spawn(body).join().map_err(|_| "panics".to_string())
}

/// Leaves no address space for buffers of any size.
fn out_of_memory(run: Run) -> Outcome {
    let mut square = Square::new(700);
    let g = square.gemm(1);
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
    unsafe {
        libc::setrlimit(libc::RLIMIT_AS, &limit);
        run(&g);
    }
    Ok(())
}
