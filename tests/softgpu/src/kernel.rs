//! The compiled kernels, and the PTX that has to agree with them.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_uint, c_void};

use crate::memory::Memory;
use crate::status::{
    ILLEGAL_ADDRESS, INVALID_IMAGE, INVALID_PTX, LAUNCH_FAILED, Outcome, UNSUPPORTED_PTX_VERSION,
};

/// As in shim/device.h.
#[repr(C)]
pub struct Kernel {
    name: *const c_char,
    bind: *const c_void,
    call: *const c_void,
    sizes: *const u32,
    count: u32,
}

/// As in shim/device.h.
#[repr(C)]
struct File {
    kernels: *const Kernel,
    count: u32,
    shared_begin: *mut u8,
    shared_end: *mut u8,
}

unsafe extern "C" {
    /// Ended by a null.
    static sg_files: *const File;
    fn sg_run(
        file: *const File,
        kernel: *const Kernel,
        arguments: *mut *mut c_void,
        grid: *const c_uint,
        threads: *const c_uint,
        dynamic_bytes: usize,
        reverse: bool,
    ) -> *const c_char;
}

/// A kernel and the file it is from: both static data of this library.
#[derive(Clone, Copy)]
pub struct Entry {
    file: &'static File,
    kernel: &'static Kernel,
}

// SAFETY: static data that nobody writes, except the shared memory of the file: only under the lock of the device.
unsafe impl Send for Entry {}

impl Entry {
    pub fn name(&self) -> &'static str {
        // SAFETY: a string literal of the generated table.
        unsafe { CStr::from_ptr(self.kernel.name) }.to_str().unwrap_or("?")
    }

    /// Sizes of the arguments in bytes.
    pub fn sizes(&self) -> &'static [u32] {
        // SAFETY: the table says how many there are.
        unsafe { std::slice::from_raw_parts(self.kernel.sizes, self.kernel.count as usize) }
    }
}

/// The kernel of this name.
pub fn find(name: &str) -> Option<Entry> {
    entries().find(|entry| entry.name() == name)
}

pub fn entries() -> impl Iterator<Item = Entry> {
    // SAFETY: the generated table ends with a null, and each file says how many kernels it has.
    let files = (0..).map_while(|i| unsafe { (*(&raw const sg_files).add(i)).as_ref() });
    files.flat_map(|file| {
        (0..file.count as usize).map(move |i| Entry { file, kernel: unsafe { &*file.kernels.add(i) } })
    })
}

pub struct Module {
    pub device: usize,
    pub functions: Vec<Loaded>,
}

/// An entry of a module: what its PTX says.
#[derive(Clone, Copy)]
pub struct Loaded {
    pub entry: Entry,
    /// From `.maxntid`, which __launch_bounds__ makes.
    pub most_threads: u32,
    /// From `.reqnctapercluster`, which __cluster_dims__ makes: the blocks of a cluster, 1 without.
    pub cluster: u32,
}

pub struct Function {
    pub loaded: Loaded,
    /// None for one that a test took by name.
    pub module: Option<usize>,
    pub device: Option<usize>,
    pub most_dynamic_bytes: u32,
}

#[derive(Clone)]
pub struct Launch {
    pub kernel: Entry,
    pub arguments: Vec<Vec<u8>>,
    pub grid: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub dynamic_bytes: usize,
}

thread_local! {
    /// For `sg_host_address`, while a launch is bound: the allocations and the device.
    static BINDING: Cell<(*const Memory, usize)> = const { Cell::new((std::ptr::null(), 0)) };
}

/// For the shim: the host address behind a pointer argument.
#[unsafe(no_mangle)]
extern "C" fn sg_host_address(address: u64) -> *mut c_void {
    let (memory, device) = BINDING.get();
    // SAFETY: set by `run`, in this thread, around the launch that calls this.
    unsafe { memory.as_ref() }
        .and_then(|memory| memory.on_device(address, 1, device).ok())
        .map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

pub fn run(memory: &Memory, device: usize, mut launch: Launch, reverse: bool) -> Outcome {
    let mut arguments: Vec<*mut c_void> =
        launch.arguments.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
    BINDING.set((memory, device));
    // SAFETY: the arguments have the sizes that the kernel takes; what it does with its pointers is the kernel's affair, as
    // on a GPU.
    let error = unsafe {
        sg_run(
            launch.kernel.file,
            launch.kernel.kernel,
            arguments.as_mut_ptr(),
            launch.grid.as_ptr(),
            launch.threads.as_ptr(),
            launch.dynamic_bytes,
            reverse,
        )
    };
    BINDING.set((std::ptr::null(), 0));
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: sg_run gives a string.
    let message = unsafe { CStr::from_ptr(error) }.to_string_lossy();
    eprintln!("softgpu: {}: {message}", launch.kernel.name());
    Err(if message.starts_with("illegal") { ILLEGAL_ADDRESS } else { LAUNCH_FAILED })
}

/// The newest PTX version that a driver of this CUDA version reads, in tenths.
fn newest_ptx(driver: i32) -> u32 {
    match driver / 10 {
        ..1200 => 78,
        1206 => 85,
        1207.. if driver < 13000 => (driver / 10 - 1200 + 79) as u32,
        1300.. => (driver / 10 - 1300 + 90) as u32,
        minor => (minor - 1200 + 80) as u32,
    }
}

/// The number behind a directive, as in `.version 8.0` or `.target sm_75`, its digits only.
fn directive(text: &str, name: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
    let digits: String = line.split(',').next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Size in bytes of a parameter, as in `.param .align 8 .b8 name[64]`.
fn parameter(text: &str) -> Option<u32> {
    let words: Vec<&str> = text.trim().strip_prefix(".param")?.split_whitespace().collect();
    let size = words.iter().find_map(|word| match *word {
        ".u64" | ".s64" | ".b64" | ".f64" => Some(8),
        ".u32" | ".s32" | ".b32" | ".f32" => Some(4),
        ".u16" | ".s16" | ".b16" | ".f16" => Some(2),
        ".u8" | ".s8" | ".b8" => Some(1),
        _ => None,
    })?;
    let count = words.last()?.split_once('[').and_then(|(_, count)| count.trim_end_matches(']').parse().ok());
    Some(size * count.unwrap_or(1))
}

/// The product of the numbers behind a directive of an entry, as in `.maxntid 256, 1, 1`.
fn product_of(text: &str, name: &str) -> Option<u32> {
    let numbers = text.split(name).nth(1)?.lines().next()?;
    Some(numbers.split(',').filter_map(|word| word.trim().parse::<u32>().ok()).product())
}

/// Does PTX for this target (`sm_80`, `sm_90a`) run on a device of this capability? With an a only on the one that it names.
fn runs_on(text: &str, capability: u32) -> bool {
    let target = directive(text, ".target");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(".target"));
    let exact = line.and_then(|line| line.split(',').next()).is_some_and(|word| word.trim().ends_with('a'));
    target.is_some_and(|target| if exact { target == capability } else { target <= capability })
}

/// Reads the entry points out of PTX and compares names and parameters with the compiled kernels: PTX that was not made from
/// the sources of today is refused. The second of an error is for the log.
pub fn load(
    image: &[u8],
    capability: i32,
    driver: i32,
) -> Result<Vec<Loaded>, (crate::status::Status, String)> {
    let text = str::from_utf8(image).map_err(|_| (INVALID_IMAGE, "not PTX text".to_owned()))?;
    let version = directive(text, ".version").ok_or((INVALID_IMAGE, "PTX without .version".to_owned()))?;
    if version > newest_ptx(driver) {
        return Err((
            UNSUPPORTED_PTX_VERSION,
            format!("PTX version {version} with a driver of CUDA {driver}"),
        ));
    }
    if !runs_on(text, capability as u32) {
        let target = directive(text, ".target");
        return Err((INVALID_PTX, format!("PTX for {target:?} on sm_{capability}")));
    }
    let mut loaded = vec![];
    for part in text.split(".entry ").skip(1) {
        let (name, rest) = part.split_once('(').unwrap_or((part, ""));
        let (parameters, rest) = rest.split_once(')').unwrap_or((rest, ""));
        let name = name.trim();
        let sizes: Vec<u32> = parameters.split(',').filter_map(parameter).collect();
        let entry = find(name).ok_or_else(|| (INVALID_PTX, format!("PTX entry {name} is in no source")))?;
        if sizes != entry.sizes() {
            let message =
                format!("PTX entry {name} takes {sizes:?} bytes, its source takes {:?}", entry.sizes());
            return Err((INVALID_PTX, message));
        }
        let directives = rest.split('{').next().unwrap_or("");
        let most_threads = product_of(directives, ".maxntid").unwrap_or(1024);
        let cluster = product_of(directives, ".reqnctapercluster").unwrap_or(1);
        loaded.push(Loaded { entry, most_threads, cluster });
    }
    Ok(loaded)
}
