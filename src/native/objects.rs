//! The objects that are loaded into the process (the program, its libraries), and which functions each of them defines, read from
//! the tables by which the loader itself finds them.
//!
//! `dlopen` would tell the same, but not while a process ends: glibc then runs the initialisers of an object again that is opened
//! once more, also with RTLD_NOLOAD.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::NonNull;

// The fields and values of ELF that are not in the libc crate.
const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_COMMON: u8 = 5;
const STT_GNU_IFUNC: u8 = 10;
/// In a version number: the symbol is only for who asks for this version.
const VERSION_HIDDEN: u16 = 0x8000;
/// The first version number that belongs to a named version.
const VERSION_FIRST: u16 = 2;

/// A loaded object, while [`find`] shows it.
pub struct Object<'a> {
    /// What is added to the addresses in its tables.
    base: usize,
    file: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
}

/// Shows every loaded object to `look`, in the order of the loader, until that returns something. No object goes away meanwhile, as
/// the list of them is locked; so `look` must not load anything.
pub fn find<T, F: FnMut(&Object) -> Option<T>>(look: F) -> Option<T> {
    struct Search<T, F> {
        look: F,
        found: Option<T>,
    }
    unsafe extern "C" fn each<T, F: FnMut(&Object) -> Option<T>>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid record, whose pointers are valid during the callback; `search` is the one below.
        let (search, object) = unsafe {
            let info = &*info;
            let file = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
            let headers = if info.dlpi_phdr.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum))
            };
            (&mut *search.cast::<Search<T, F>>(), Object { base: info.dlpi_addr as usize, file, headers })
        };
        search.found = (search.look)(&object);
        c_int::from(search.found.is_some())
    }
    let mut search = Search { look, found: None };
    // SAFETY: the callback gets the record that it expects.
    unsafe { libc::dl_iterate_phdr(Some(each::<T, F>), (&raw mut search).cast()) };
    search.found
}

/// What `look` says of the object that an address belongs to.
pub fn at<T>(address: *const c_void, look: impl Fn(&Object) -> T) -> Option<T> {
    find(|object| object.contains(address).then(|| look(object)))
}

/// The file names of all loaded objects, as text.
pub fn files() -> Vec<String> {
    let mut files = Vec::new();
    find(|object| {
        files.push(object.file.to_string_lossy().into_owned());
        None::<()>
    });
    files
}

/// The loaded libraries that define a function: the file name of each, and the function's address as [`Object::function`] has it. The
/// program itself, which has no name, is not among them.
pub fn libraries_with(name: &CStr) -> Vec<(CString, Option<NonNull<c_void>>)> {
    let mut libraries = Vec::new();
    find(|object| {
        if !object.file.is_empty() && object.defines(name) {
            libraries.push((object.file.to_owned(), object.function(name)));
        }
        None::<()>
    });
    libraries
}

impl Object<'_> {
    pub fn contains(&self, address: *const c_void) -> bool {
        self.in_segment(address as usize, 1, 0)
    }

    /// The object itself has a function or a variable of this name that others can use; not if it only uses that of another object.
    /// As `dlsym` sees it: of several versions it is the default one.
    pub fn defines(&self, name: &CStr) -> bool {
        self.definition(name).is_some()
    }

    /// The address of what it defines. None too if the definition is indirect (IFUNC): then only the loader knows the address.
    pub fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let definition =
            self.definition(name).filter(|definition| definition.st_info & 15 != STT_GNU_IFUNC)?;
        NonNull::new(self.base.wrapping_add(definition.st_value as usize) as *mut c_void)
    }

    fn definition(&self, name: &CStr) -> Option<libc::Elf64_Sym> {
        match (self.table(DT_GNU_HASH), self.table(DT_HASH)) {
            (Some(table), _) => self.by_gnu_hash(table, name),
            (None, Some(table)) => self.by_hash(table, name),
            (None, None) => None,
        }
    }

    /// All of it lies in one segment that has these permissions.
    fn in_segment(&self, address: usize, length: usize, permissions: u32) -> bool {
        self.headers.iter().any(|header| {
            let at = address.wrapping_sub(self.base.wrapping_add(header.p_vaddr as usize));
            let size = header.p_memsz as usize;
            header.p_type == libc::PT_LOAD
                && header.p_flags & permissions == permissions
                && at < size
                && length <= size - at
        })
    }

    /// `T` is made of integers only, or the bytes may not be one.
    fn read<T: Copy>(&self, address: usize) -> Option<T> {
        // SAFETY: the object is loaded, and these bytes are in a segment that can be read.
        self.in_segment(address, size_of::<T>(), libc::PF_R)
            .then(|| unsafe { (address as *const T).read_unaligned() })
    }

    fn is_name(&self, address: usize, name: &CStr) -> bool {
        let name = name.to_bytes_with_nul();
        // SAFETY: as above.
        self.in_segment(address, name.len(), libc::PF_R)
            && name == unsafe { std::slice::from_raw_parts(address as *const u8, name.len()) }
    }

    /// The address of one of the tables that the dynamic section names.
    fn table(&self, tag: usize) -> Option<usize> {
        let section = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let start = self.base.wrapping_add(section.p_vaddr as usize);
        let entries = section.p_memsz as usize / size_of::<[usize; 2]>();
        let value = (0..entries)
            .map_while(|entry| self.read::<[usize; 2]>(start.wrapping_add(entry * size_of::<[usize; 2]>())))
            .take_while(|&[kind, _]| kind != DT_NULL)
            .find_map(|[kind, value]| (kind == tag).then_some(value))?;
        // glibc replaces what is in the file by the address, but not where the section cannot be written (vdso), and musl never.
        [value, self.base.wrapping_add(value)].into_iter().find(|&at| self.in_segment(at, 1, libc::PF_R))
    }

    fn by_gnu_hash(&self, table: usize, name: &CStr) -> Option<libc::Elf64_Sym> {
        let hash = gnu_hash(name.to_bytes());
        // The filters only save time.
        let [buckets, hidden, filters, _] = self.read::<[u32; 4]>(table)?.map(|x| x as usize);
        let first_bucket = table + size_of::<[u32; 4]>() + filters * size_of::<usize>();
        let first_link = first_bucket + buckets * size_of::<u32>();
        let bucket = (hash as usize).checked_rem(buckets)?;
        // 0, an empty bucket, is one of the symbols that no link belongs to.
        let mut symbol = self.read::<u32>(first_bucket + bucket * size_of::<u32>())? as usize;
        loop {
            let link: u32 = self.read(first_link + symbol.checked_sub(hidden)? * size_of::<u32>())?;
            // The lowest bit marks the last symbol of a bucket.
            if link | 1 == hash | 1
                && let Some(definition) = self.definition_at(symbol, name)
            {
                return Some(definition);
            }
            if link & 1 == 1 {
                return None;
            }
            symbol += 1;
        }
    }

    fn by_hash(&self, table: usize, name: &CStr) -> Option<libc::Elf64_Sym> {
        let [buckets, symbols] = self.read::<[u32; 2]>(table)?.map(|x| x as usize);
        let entry = |at: usize| self.read::<u32>(table + (2 + at) * size_of::<u32>()).map(|x| x as usize);
        let bucket = (hash(name.to_bytes()) as usize).checked_rem(buckets)?;
        // 0 ends a bucket. No bucket has more symbols than there are.
        std::iter::successors(entry(bucket), |&symbol| entry(buckets + symbol))
            .take_while(|&symbol| symbol != 0)
            .take(symbols)
            .find_map(|symbol| self.definition_at(symbol, name))
    }

    /// An entry of the symbol table, if it has this name and is a definition that others can use.
    fn definition_at(&self, symbol: usize, name: &CStr) -> Option<libc::Elf64_Sym> {
        let entry: libc::Elf64_Sym =
            self.read(self.table(DT_SYMTAB)? + symbol * size_of::<libc::Elf64_Sym>())?;
        if !self.is_name(self.table(DT_STRTAB)? + entry.st_name as usize, name) {
            return None;
        }
        let version = match self.table(DT_VERSYM) {
            Some(versions) => self.read(versions + symbol * size_of::<u16>())?,
            None => 0,
        };
        let has_address = ![SHN_UNDEF, SHN_ABS].contains(&entry.st_shndx) && entry.st_value != 0;
        let is_in_memory =
            [STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_COMMON, STT_GNU_IFUNC].contains(&(entry.st_info & 15));
        let is_default = version & VERSION_HIDDEN == 0 || version & !VERSION_HIDDEN < VERSION_FIRST;
        (has_address && is_in_memory && is_default).then_some(entry)
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::ptr::null_mut;

    use super::*;

    /// One of every kind of symbol.
    const SOURCE: &str = r#"
        extern int puts(const char *);
        static int one(void) { return 1; }
        int plain(void) { return puts(""); }
        __attribute__((weak)) int weak(void) { return 2; }
        int variable = 3;
        __thread int of_thread = 4;
        __attribute__((visibility("hidden"))) int hidden(void) { return 5; }
        static int (*choose(void))(void) { return one; }
        int indirect(void) __attribute__((ifunc("choose")));
        int two_1(void) { return 6; }
        int two_2(void) { return 7; }
        int old_1(void) { return 8; }
        __asm__(".symver two_1, two@V1\n.symver two_2, two@@V2\n.symver old_1, old@V1");
        __asm__(".globl absolute\n.set absolute, 4096");
        __asm__(".globl untyped\n.text\nuntyped: ret");
    "#;
    const VERSIONS: &str =
        "V1 { global: plain; weak; variable; of_thread; indirect; absolute; untyped; }; V2 { } V1;";
    const DEFINED: [&CStr; 6] = [c"plain", c"weak", c"variable", c"indirect", c"two", c"untyped"];
    const NOT_DEFINED: [&CStr; 9] =
        [c"puts", c"of_thread", c"hidden", c"one", c"old", c"absolute", c"V1", c"missing", c""];

    fn c_string(path: &Path) -> CString {
        CString::new(path.to_str().unwrap()).unwrap()
    }

    /// Compiles SOURCE; None where gcc is missing.
    fn compile(folder: &Path, hash_style: &str) -> Option<PathBuf> {
        let (source, versions) = (folder.join("source.c"), folder.join("versions"));
        let library = folder.join(format!("{hash_style}.so"));
        std::fs::write(&source, SOURCE).unwrap();
        std::fs::write(&versions, VERSIONS).unwrap();
        let status = Command::new("gcc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg(format!("-Wl,--hash-style={hash_style},--version-script={}", versions.display()))
            .status();
        if status.is_err() {
            println!("skipped: no gcc");
            return None;
        }
        assert!(status.unwrap().success());
        Some(library)
    }

    fn with_folder(name: &str, test: impl FnOnce(&Path)) {
        let folder = std::env::temp_dir().join(format!("oz2blas-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        test(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn open(file: &CStr, flags: c_int) -> *mut c_void {
        // SAFETY: a valid name of a library without harmful initialisers.
        unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) }
    }

    fn by_loader(handle: *mut c_void, name: &CStr) -> *mut c_void {
        // SAFETY: an open handle.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    }

    /// What `look` says of a loaded library.
    fn of_library<T>(file: &CStr, mut look: impl FnMut(&Object) -> T) -> T {
        find(|object| (object.file == file).then(|| look(object))).unwrap()
    }

    #[test]
    fn every_kind_of_symbol_and_of_table() {
        with_folder("kinds", |folder| {
            for style in ["sysv", "gnu", "both"] {
                let Some(library) = compile(folder, style) else { return };
                let file = c_string(&library);
                let handle = open(&file, 0);
                assert!(!handle.is_null());
                let tables =
                    of_library(&file, |object| [DT_HASH, DT_GNU_HASH].map(|tag| object.table(tag).is_some()));
                assert_eq!(tables, [style != "gnu", style != "sysv"]);
                let look = |name| of_library(&file, |object| (object.defines(name), object.function(name)));
                for name in DEFINED {
                    let address = if name == c"indirect" { null_mut() } else { by_loader(handle, name) };
                    assert_eq!(look(name), (true, NonNull::new(address)), "{style} {name:?}");
                }
                for name in NOT_DEFINED {
                    assert_eq!(look(name), (false, None), "{style} {name:?}");
                }
                // A program at a fixed address has no base.
                let at_fixed_address = |name| {
                    of_library(&file, |object| {
                        let mut headers = object.headers.to_vec();
                        headers.iter_mut().for_each(|header| header.p_vaddr += object.base as u64);
                        Object { base: 0, file: c"", headers: &headers }.defines(name)
                    })
                };
                assert!(DEFINED.iter().all(|name| at_fixed_address(name)));
                assert!(!NOT_DEFINED.iter().any(|name| at_fixed_address(name)));
            }
        });
    }

    /// The names that a library defines, as binutils see them, and whether the default version is indirect.
    fn names(file: &CStr) -> BTreeMap<CString, bool> {
        let command = ["-D", "--defined-only", "--format=posix", file.to_str().unwrap()];
        let text = String::from_utf8(Command::new("nm").args(command).output().unwrap().stdout).unwrap();
        let mut names = BTreeMap::new();
        for line in text.lines() {
            let (name, rest) = line.split_once(' ').unwrap();
            let (name, version) = name.split_once('@').unwrap_or((name, "@"));
            *names.entry(CString::new(name).unwrap()).or_insert(false) |=
                rest.starts_with('i') && version.starts_with('@');
        }
        names
    }

    #[test]
    fn the_loader_says_the_same() {
        for file in [c"libm.so.6", c"libgfortran.so.5", c"libopenblas.so.0", c"libblas.so.3"] {
            if open(file, 0).is_null() {
                println!("not there: {file:?}");
            }
        }
        let libraries: Vec<(CString, _)> = files()
            .into_iter()
            // glibc finds nothing by a handle of the loader itself.
            .filter(|file| !file.is_empty() && !file.contains("/ld-"))
            .map(|file| CString::new(file).unwrap())
            .map(|file| (file.clone(), names(&file)))
            .collect();
        let mut all = BTreeSet::from([c"__vdso_clock_gettime", c"oz2blas_missing"]);
        for (_, names) in &libraries {
            all.extend(names.keys().step_by(1 + names.len() / 2000).map(CString::as_c_str));
        }
        let (mut defined, mut indirect) = (0, 0);
        for (file, names) in &libraries {
            let handle = open(file, libc::RTLD_NOLOAD);
            assert!(!handle.is_null(), "{file:?}");
            for &name in &all {
                let expected = by_loader(handle, name);
                let (defines, function, contains) = of_library(file, |object| {
                    (object.defines(name), object.function(name), object.contains(expected))
                });
                let is_indirect = names.get(name) == Some(&true) && !expected.is_null();
                assert_eq!(defines, contains || is_indirect, "{name:?} in {file:?}");
                let address = if contains && !is_indirect { expected } else { null_mut() };
                assert_eq!(function, NonNull::new(address), "{name:?} in {file:?}");
                defined += usize::from(defines);
                indirect += usize::from(is_indirect);
            }
        }
        println!(
            "{} libraries, {} names: {defined} defined, {indirect} indirect",
            libraries.len(),
            all.len()
        );
        assert!(
            defined > 1000 && (indirect > 20 || cfg!(not(all(target_arch = "x86_64", target_env = "gnu"))))
        );
    }

    /// A library as it is in its file, in memory that ends where the library does: musl leaves the addresses in the tables so.
    struct Image {
        start: *mut u8,
        room: usize,
        end: usize,
        bytes: Vec<u8>,
        headers: Vec<libc::Elf64_Phdr>,
    }

    impl Image {
        fn new(library: &Path) -> Self {
            let file = std::fs::read(library).unwrap();
            let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
            let (first, count) = (number(32), number(56) & 0xffff);
            let headers = (0..count).map(|i| {
                let at = first + i * size_of::<libc::Elf64_Phdr>();
                let bytes = &file[at..at + size_of::<libc::Elf64_Phdr>()];
                // SAFETY: plain integers.
                unsafe { bytes.as_ptr().cast::<libc::Elf64_Phdr>().read_unaligned() }
            });
            let headers: Vec<_> = headers.collect();
            let mut bytes = Vec::new();
            for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
                let (from, to, size) =
                    (header.p_offset as usize, header.p_vaddr as usize, header.p_filesz as usize);
                bytes.resize(bytes.len().max(to + size), 0);
                bytes[to..to + size].copy_from_slice(&file[from..from + size]);
            }
            let room = bytes.len().next_multiple_of(4096);
            // SAFETY: new memory, whose last page cannot be read.
            let start = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let start =
                    libc::mmap(null_mut(), room + 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                assert_ne!(start, libc::MAP_FAILED);
                assert_eq!(libc::mprotect(start.byte_add(room), 4096, libc::PROT_NONE), 0);
                start.cast::<u8>()
            };
            Self { start, room, end: bytes.len(), bytes, headers }
        }

        /// The first `length` bytes of it as an object. A reader that goes further crashes.
        fn object<T>(&self, length: usize, look: impl FnOnce(&Object) -> T) -> T {
            // SAFETY: the room is large enough.
            let start = unsafe {
                let start = self.start.add(self.room - length);
                start.copy_from_nonoverlapping(self.bytes.as_ptr(), length);
                start
            };
            let whole = libc::Elf64_Phdr { p_vaddr: 0, p_memsz: length as u64, ..self.headers[0] };
            let whole = libc::Elf64_Phdr { p_type: libc::PT_LOAD, p_flags: libc::PF_R, ..whole };
            let dynamic = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC).unwrap();
            look(&Object { base: start as usize, file: c"", headers: &[whole, *dynamic] })
        }
    }

    impl Drop for Image {
        fn drop(&mut self) {
            // SAFETY: the memory of `new`.
            unsafe { libc::munmap(self.start.cast(), self.room + 4096) };
        }
    }

    #[test]
    fn tables_that_nobody_has_relocated() {
        with_folder("file", |folder| {
            for style in ["sysv", "gnu"] {
                let Some(library) = compile(folder, style) else { return };
                let image = Image::new(&library);
                image.object(image.end, |object| {
                    assert!(DEFINED.iter().all(|name| object.defines(name)));
                    assert!(!NOT_DEFINED.iter().any(|name| object.defines(name)));
                    let address = object.function(c"plain").unwrap().as_ptr() as usize;
                    assert!((object.base..object.base + image.end).contains(&address));
                });
            }
        });
    }

    #[test]
    fn broken_tables_end_the_search() {
        with_folder("broken", |folder| {
            for style in ["sysv", "gnu"] {
                let Some(library) = compile(folder, style) else { return };
                let mut image = Image::new(&library);
                let names = DEFINED.iter().chain(&NOT_DEFINED);
                let look = |object: &Object| names.clone().filter(|name| object.defines(name)).count();
                let mut found = BTreeSet::new();
                for length in (0..=image.end).step_by(8) {
                    found.insert(image.object(length, look));
                }
                // The start of the file, with the tables, and the dynamic section.
                let first =
                    image.headers.iter().find(|header| header.p_type == libc::PT_LOAD).unwrap().p_filesz;
                let section = image.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC).unwrap();
                let section = section.p_vaddr as usize..(section.p_vaddr + section.p_filesz) as usize;
                for at in (0..first as usize).chain(section).step_by(4) {
                    for wrong in (0..16).chain([0x7fff_fff0, u32::MAX]) {
                        let right: [u8; 4] = image.bytes[at..at + 4].try_into().unwrap();
                        image.bytes[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
                        found.insert(image.object(image.end, look));
                        image.bytes[at..at + 4].copy_from_slice(&right);
                    }
                }
                assert!(found.contains(&0) && found.contains(&DEFINED.len()) && found.len() > 2, "{found:?}");
            }
        });
    }
}
