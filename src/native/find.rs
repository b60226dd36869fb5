//! Finding functions in the process, above all the native BLAS: by the same spelling as the call, so that the width of the
//! integers always matches, and never this library itself.
//!
//! The order (each step has a real program that needs it): OZ2_NATIVE; what the program is linked to statically together with this
//! library; the next object after ours (preloaded or linked);
//! every loaded object (a Python extension loads its BLAS where the search by scope does not see it); the usual library
//! names; else None, and the caller uses the embedded BLAS.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::fs::MetadataExt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::linked;
use super::objects::{self, Object};
use crate::engine::process::{self, hold_forks};
use crate::observe::log::{self, Kind, Level};
use crate::options::{self, Integer, NativeChoice};

/// A function looked up at its first use. A hit is kept; a miss is tried again once another object has been loaded.
pub struct Symbol {
    name: &'static CStr,
    search: fn(&CStr) -> Option<NonNull<c_void>>,
    address: AtomicPtr<c_void>,
    missed_at: AtomicU64,
}

impl Symbol {
    /// A function of any object in the process.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, search: anywhere, address: AtomicPtr::new(null_mut()), missed_at: AtomicU64::new(0) }
    }

    /// A function of the native BLAS.
    pub const fn native(name: &'static CStr) -> Self {
        Self {
            name,
            search: in_native_blas,
            address: AtomicPtr::new(null_mut()),
            missed_at: AtomicU64::new(0),
        }
    }

    pub fn name(&self) -> &'static CStr {
        self.name
    }

    #[inline]
    pub fn address(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.address.load(Ordering::Acquire)).or_else(|| self.look_up())
    }

    #[cold]
    fn look_up(&self) -> Option<NonNull<c_void>> {
        let found = search_again(self.name, self.search, &self.missed_at);
        if let Some(address) = found {
            self.address.store(address.as_ptr(), Ordering::Release);
        }
        found
    }
}

/// A function of the native BLAS for a caller that keeps the address itself. `missed_at` is his too, 0 at first: a search that was
/// in vain is only repeated after another object has been loaded.
pub fn routine(name: &CStr, missed_at: &AtomicU64) -> Option<NonNull<c_void>> {
    search_again(name, in_native_blas, missed_at)
}

/// The same for a function that the program may have too, as an error handler, and then the program's is meant.
pub fn handler(name: &CStr, missed_at: &AtomicU64) -> Option<NonNull<c_void>> {
    search_again(name, |name| anywhere(name).or_else(|| in_native_blas(name)), missed_at)
}

fn search_again(
    name: &CStr,
    search: fn(&CStr) -> Option<NonNull<c_void>>,
    missed_at: &AtomicU64,
) -> Option<NonNull<c_void>> {
    let _no_forks = hold_forks();
    if missed_at.load(Ordering::Relaxed) == loads_so_far() {
        return None;
    }
    let found = search(name);
    if found.is_none() {
        // The search itself may have loaded and dropped objects.
        missed_at.store(loads_so_far(), Ordering::Relaxed);
    }
    found
}

/// How often an object was loaded into this process; never 0.
fn loads_so_far() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record; `out` is the address that is given below.
        unsafe { *out.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loads = 0u64;
    // SAFETY: the callback writes one u64, which `loads` is.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads.max(1)
}

/// The object that an address belongs to: its base and its file name.
fn object_of(address: *const c_void) -> Option<(usize, CString)> {
    // SAFETY: dladdr fills the record or returns 0; the name lives as long as the object, and is copied at once.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some((info.dli_fbase as usize, CStr::from_ptr(info.dli_fname).to_owned()))
    }
}

fn own_object() -> Option<(usize, CString)> {
    object_of(own_object as fn() -> Option<(usize, CString)> as *const c_void)
}

/// The address lies in this library or in a copy of it: two copies in one process would take each other for the native BLAS.
fn is_ours(address: NonNull<c_void>) -> bool {
    let own = own_object as fn() -> Option<(usize, CString)> as *const c_void;
    objects::at(address.as_ptr(), |object| object.contains(own) || object.defines(c"oz2_version"))
        .unwrap_or(false)
}

/// A handle of a library that is loaded already. None while the process ends.
fn handle_of(file: &CStr) -> Option<*mut c_void> {
    if process::ending() {
        return None;
    }
    // SAFETY: a valid name; NOLOAD opens only what is loaded, and runs no initialiser unless the process ends.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// The function is of a library that switches between BLAS libraries (FlexiBLAS, libblastrampoline) and has loaded this one as such:
/// calling it would lead here again.
fn comes_back(address: NonNull<c_void>) -> bool {
    let is_switch = |object: &Object| object.defines(c"flexiblas_switch") || object.defines(c"lbt_forward");
    objects::at(address.as_ptr(), is_switch).unwrap_or(false) && !is_in_front()
}

/// This library was preloaded or is linked to the program, rather than loaded by somebody for its own use. While the process ends
/// nobody can tell, and it is taken for not so.
fn is_in_front() -> bool {
    if process::ending() {
        return false;
    }
    // SAFETY: null means the program with all that is global. RTLD_DEFAULT would say what this library itself sees.
    unsafe {
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
        if program.is_null() {
            return false;
        }
        let address = NonNull::new(libc::dlsym(program, c"oz2_version".as_ptr()));
        libc::dlclose(program);
        address.is_some_and(is_ours)
    }
}

/// Equal device and inode: names say nothing where a BLAS is switched by symbolic links.
fn same_file(a: &CStr, b: &CStr) -> bool {
    let id = |name: &CStr| {
        let data = std::fs::metadata(name.to_str().ok()?).ok()?;
        Some((data.dev(), data.ino()))
    };
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// A function in an open object or what it depends on, unless it is ours.
fn in_handle(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the handle is open or one of the pseudo handles.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) }).filter(|&address| !is_ours(address))
}

/// The function as a loaded library itself defines it, not as it imports it. Not that of a switch which loaded this library to have
/// a BLAS: it would come back here.
fn in_loaded_libraries(name: &CStr) -> Option<NonNull<c_void>> {
    objects::libraries_with(name).into_iter().find_map(|(file, address)| {
        if process::ending() {
            return address.filter(|&address| !is_ours(address) && !comes_back(address));
        }
        let handle = handle_of(&file)?;
        let found = in_handle(handle, name).filter(|&address| !comes_back(address));
        if found.is_none() {
            // SAFETY: undoes the dlopen of `handle_of`. A provider stays open: its function must not go away.
            unsafe { libc::dlclose(handle) };
        }
        found
    })
}

/// A library of the given name or path, opened for good, unless it is another copy of this one.
fn open(file: &CStr) -> Result<*mut c_void, String> {
    if own_object().is_some_and(|(_, own)| same_file(&own, file)) {
        return Err("it is this library itself".to_owned());
    }
    if process::ending() {
        return Err("the process ends".to_owned());
    }
    // SAFETY: a valid name. Initialisers of a BLAS run, as they would have if the program had loaded it.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: dlerror returns null or a C string that is valid until the next call in this thread.
        let error = unsafe { libc::dlerror() };
        let text = if error.is_null() { c"unknown error" } else { unsafe { CStr::from_ptr(error) } };
        return Err(text.to_string_lossy().into_owned());
    }
    // SAFETY: the handle is open.
    if !unsafe { libc::dlsym(handle, c"oz2_version".as_ptr()) }.is_null() {
        return Err("it is a copy of this library".to_owned());
    }
    Ok(handle)
}

/// The library that OZ2_NATIVE names; a failure is warned of once.
fn named_library(path: &str) -> Option<*mut c_void> {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let known = HANDLE.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let opened = CString::new(path).map_err(|error| error.to_string()).and_then(|file| open(&file));
    match opened {
        Ok(handle) => {
            HANDLE.store(handle, Ordering::Release);
            Some(handle)
        }
        Err(error) => {
            let text =
                format!("OZ2_NATIVE={path} cannot be used ({error}); looking for the native BLAS as usual");
            log::once(Kind::NativeUnusable, Level::Warn, &text);
            None
        }
    }
}

/// The libraries that usually provide a spelling.
fn usual_names(name: &CStr) -> &'static [&'static CStr] {
    let name = name.to_bytes();
    if name.starts_with(b"scipy_") {
        &[] // only the wheels have these, and they are loaded if anybody calls them
    } else if name.ends_with(b"_64_") || name.ends_with(b"64_") {
        &[c"libopenblas64_.so.0", c"libopenblas64_.so"]
    } else if name.ends_with(b"_64") {
        &[c"libmkl_rt.so.3", c"libmkl_rt.so.2", c"libmkl_rt.so"]
    } else if options::current().integer == Integer::Ilp64 {
        &[c"libblas64.so.3", c"libopenblas64.so.0", c"libblis64.so.4"]
    } else {
        &[c"libblas.so.3", c"libopenblas.so.0", c"libblis.so.4", c"libmkl_rt.so.3", c"libmkl_rt.so.2"]
    }
}

fn in_native_blas(name: &CStr) -> Option<NonNull<c_void>> {
    match &options::current().native {
        NativeChoice::Builtin => return None,
        NativeChoice::Path(path) => {
            if let Some(address) = named_library(path).and_then(|handle| in_handle(handle, name)) {
                return Some(address);
            }
        }
        NativeChoice::Auto => {}
    }
    let in_usual = |file: &&CStr| open(file).ok().and_then(|handle| in_handle(handle, name));
    linked::function(name)
        .or_else(|| in_handle(libc::RTLD_NEXT, name))
        .or_else(|| in_loaded_libraries(name))
        .or_else(|| usual_names(name).iter().find_map(in_usual))
}

fn anywhere(name: &CStr) -> Option<NonNull<c_void>> {
    // The first one may be a jump of ours (abi/forward.rs) that hides the next, or FlexiBLAS's, which leads to its BLAS.
    in_handle(libc::RTLD_DEFAULT, name)
        .filter(|&address| !comes_back(address))
        .or_else(|| in_handle(libc::RTLD_NEXT, name))
        .or_else(|| in_loaded_libraries(name))
}

/// A function that the program may override, found anew at each use.
pub fn overridable(names: &[&CStr]) -> Option<NonNull<c_void>> {
    let _no_forks = hold_forks();
    names.iter().find_map(|name| anywhere(name))
}

/// A function of the same library as another one: of the object that this one is in, or of what that object depends on.
pub fn beside(address: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    let _no_forks = hold_forks();
    let in_object = objects::at(address.as_ptr(), |object| object.function(name)).flatten();
    in_object.filter(|&found| !is_ours(found)).or_else(|| {
        let (_, file) = object_of(address.as_ptr())?;
        let handle = handle_of(&file)?;
        let found = in_handle(handle, name);
        // SAFETY: undoes the dlopen of `handle_of`.
        unsafe { libc::dlclose(handle) };
        found
    })
}

/// The file that provides an address, for `oz2run --doctor` and the log.
pub fn provider(address: NonNull<c_void>) -> String {
    let _no_forks = hold_forks();
    object_of(address.as_ptr())
        .map_or_else(|| "unknown".to_owned(), |(_, file)| file.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_the_c_library_is_found_and_a_missing_one_is_not() {
        static PRESENT: Symbol = Symbol::new(c"qsort");
        static ABSENT: Symbol = Symbol::new(c"oz2blas_no_such_function");
        let address = PRESENT.address().unwrap();
        assert_eq!(PRESENT.address(), Some(address));
        assert!(provider(address).contains("libc"));
        assert_eq!(ABSENT.address(), None);
        assert_eq!(ABSENT.address(), None);
    }

    #[test]
    fn our_own_functions_are_recognised() {
        let own = own_object as fn() -> Option<(usize, CString)> as *mut c_void;
        assert!(is_ours(NonNull::new(own).unwrap()));
        assert!(!is_ours(Symbol::new(c"qsort").address().unwrap()));
        let (_, file) = own_object().unwrap();
        assert!(open(&file).is_err());
    }

    #[test]
    fn files_are_compared_by_inode() {
        let folder = std::env::temp_dir().join(format!("oz2blas-inode-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link, copy) = (folder.join("a"), folder.join("b"), folder.join("c"));
        std::fs::write(&file, "x").unwrap();
        std::fs::copy(&file, &copy).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let c = |path: &std::path::Path| CString::new(path.to_str().unwrap()).unwrap();
        assert!(same_file(&c(&file), &c(&link)));
        assert!(!same_file(&c(&file), &c(&copy)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
