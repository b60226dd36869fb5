//! What is noted after a call, when C has been written, allocates nothing: the file of OZ2_STATS and what OZ2_REPORT keeps. A
//! failed allocation would abort the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use oz2blas::observe::{counters, report, through};
use oz2blas::route::Reason;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            COUNT.set(COUNT.get() + 1);
        }
        // SAFETY: by the contract of this function, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(f: impl FnOnce()) -> usize {
    COUNT.set(0);
    COUNTS.set(true);
    f();
    COUNTS.set(false);
    COUNT.get()
}

/// One test, since all of it belongs to the process.
#[test]
fn nothing_is_allocated_after_a_call() {
    let folder = std::env::temp_dir().join(format!("oz2blas-written-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("stats.json");
    std::fs::write(&file, "mine").unwrap();
    through::start(file.to_str().unwrap());
    report::start(folder.join("page.html").to_str().unwrap());
    assert!(allocations(|| drop(Vec::<u8>::with_capacity(10))) > 0, "allocations are seen");

    let calls = |count: u64| {
        allocations(|| {
            for nanoseconds in 1..=count {
                counters::native(Reason::TooSmall, 1000, nanoseconds);
                report::native(None, Reason::ALL[nanoseconds as usize % Reason::COUNT], nanoseconds);
                through::after_call();
            }
        })
    };
    assert_eq!(calls(10), 0);
    let written = std::fs::read_to_string(folder.join("stats.json.1")).unwrap();
    assert!(
        written.starts_with('{') && written.ends_with("}\n") && written.contains(r#""calls":10,"#),
        "{written}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");

    // Where it cannot be written, the warning is written without memory too. After a fork the file is another one.
    std::fs::remove_dir_all(&folder).unwrap();
    through::forget();
    assert_eq!(calls(10), 0);
    assert!(!folder.exists());
}
