//! The rest of the BLAS: every name of `forward.names` is a jump to the native function of the same name.
//!
//! Nothing of a call is touched, and nothing is known of it: argument registers, what lies on the stack, hidden lengths and
//! results, the number of vector registers in a variadic call. So the function for a name is one instruction, a jump through a
//! slot. At first a slot leads to code that saves all registers that a call may use, looks for the native function, stores it in
//! the slot, restores the registers, and jumps there. No lock is taken once a slot has its function: a plain load of an aligned
//! pointer sees the old or the new address, and both are right.
//!
//! The native function is found by [`find`], as that of DGEMM is; where there is none, by the embedded BLAS; and where that has
//! none either, the call does nothing, returns 0, and says so. Such a miss is not kept in the slot, since a library that is
//! loaded later may have the function.

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};
use std::panic::catch_unwind;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::engine::cpu::fpenv::in_clean_environment;
use crate::engine::process;
use crate::native::{embedded, find};
use crate::observe::log::{self, Kind, Level};
use crate::options;

/// The exported functions. The handlers among them are weak in reference builds, for the sake of static archives, which this library
/// is not made as: the dynamic loader takes the first definition of a name, weak or not, so the program's wins (and the stable
/// language cannot say weak).
macro_rules! entries {
    ($($number:literal $name:ident;)*) => { $(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!("jmp qword ptr [rip + {slots} + {at}]", slots = sym SLOTS, at = const 8 * $number)
        }
    )* };
}

include!(concat!(env!("OUT_DIR"), "/forward.rs"));

/// Where each name leads.
static SLOTS: [AtomicPtr<c_void>; COUNT] = {
    let mut slots = [const { AtomicPtr::new(null_mut()) }; COUNT];
    let mut number = 0;
    while number < COUNT {
        let stub = (stubs as *const c_void).cast_mut().wrapping_byte_add(STUB * number);
        slots[number] = AtomicPtr::new(stub);
        number += 1;
    }
    slots
};

/// For each name: the count of loaded objects at which it was not to be found (see [`find`]), and whether that was said.
static MISSED_AT: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
static SAID: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

/// The bytes from one stub to the next.
const STUB: usize = 16;

/// One stub for each slot: it pushes the number of the slot and goes on to [`first_call`].
#[unsafe(naked)]
unsafe extern "C" fn stubs() {
    naked_asm!(
        ".set .Loz2_slot, 0",
        ".rept {count}",
        ".balign {stub}",
        // push with 32 bits, always.
        ".byte 0x68",
        ".long .Loz2_slot",
        "jmp {first_call}",
        ".set .Loz2_slot, .Loz2_slot + 1",
        ".endr",
        count = const COUNT,
        stub = const STUB,
        first_call = sym first_call,
    )
}

/// What [`first_call`] saves of the vector registers: the size of the area in the lower half, the mask for XSAVE in the upper one,
/// 0 for a processor or a system without XSAVE. Found once.
static STATE: AtomicU64 = AtomicU64::new(0);

/// Finds the function for a slot, whose number is on the stack above the return address of the call, and jumps to it with all
/// as it came. This is what the dynamic loader does for a lazily bound function, with the same set of registers: those that the
/// ABI has for arguments, rax (the number of vector registers in a variadic call), r10 (the static chain), and the x87, SSE, AVX
/// and AVX-512 state; not the tiles of AMX, which no call takes arguments in. The target goes into r11, which no call uses.
#[unsafe(naked)]
unsafe extern "C" fn first_call() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa_offset 16",
        "push rbp",
        ".cfi_def_cfa_offset 24",
        ".cfi_offset rbp, -24",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -32",
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        // What is to be saved, and how large it is.
        "mov rbx, [rip + {state}]",
        "test rbx, rbx",
        "jnz 6f",
        "mov eax, 1",
        "xor ecx, ecx",
        "cpuid",
        "mov ebx, 512",
        "bt ecx, 27", // OSXSAVE
        "jnc 5f",
        "xor ecx, ecx",
        "xgetbv",
        "and eax, 0xE7", // x87, SSE, AVX, and the three parts of AVX-512
        "mov r8d, eax",
        "mov r9d, 576",
        "mov r10d, 2",
        "2:",
        "bt r8d, r10d",
        "jnc 3f",
        "mov eax, 13",
        "mov ecx, r10d",
        "cpuid", // size and offset of one component
        "add eax, ebx",
        "cmp eax, r9d",
        "cmova r9d, eax",
        "3:",
        "inc r10d",
        "cmp r10d, 8",
        "jb 2b",
        "shl r8, 32",
        "mov ebx, r9d",
        "or rbx, r8",
        "5:",
        "mov [rip + {state}], rbx",
        "6:",
        // Save.
        "mov eax, ebx",
        "sub rsp, rax",
        "and rsp, -64",
        "mov rax, rbx",
        "shr rax, 32",
        "jz 7f",
        "xor edx, edx",
        "mov [rsp + 512], rdx", // the header, in which reserved bits must be 0
        "mov [rsp + 520], rdx",
        "mov [rsp + 528], rdx",
        "mov [rsp + 536], rdx",
        "mov [rsp + 544], rdx",
        "mov [rsp + 552], rdx",
        "mov [rsp + 560], rdx",
        "mov [rsp + 568], rdx",
        "xsave64 [rsp]",
        "jmp 8f",
        "7:",
        "fxsave64 [rsp]",
        "8:",
        "mov edi, [rbp + 8]",
        "call {resolve}",
        "mov r11, rax",
        // Restore.
        "mov rax, rbx",
        "shr rax, 32",
        "jz 7f",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "jmp 8f",
        "7:",
        "fxrstor64 [rsp]",
        "8:",
        "lea rsp, [rbp - 72]",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 16",
        "lea rsp, [rsp + 8]", // the number of the slot
        ".cfi_def_cfa_offset 8",
        "jmp r11",
        ".cfi_endproc",
        state = sym STATE,
        resolve = sym resolve,
    )
}

/// Stands in for a function that nobody has: zero, whether the caller looks for it in rax, rdx, xmm0 or xmm1.
#[unsafe(naked)]
unsafe extern "C" fn nothing() {
    naked_asm!("xor eax, eax", "xor edx, edx", "xorps xmm0, xmm0", "xorps xmm1, xmm1", "ret")
}

/// Keeps the caller's errno: a BLAS function does not set it, but looking for one does.
struct KeepErrno(i32);

impl KeepErrno {
    fn now() -> Self {
        // SAFETY: the address of this thread's errno.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The function that a slot has to lead to.
extern "C" fn resolve(number: u32) -> *const c_void {
    let _errno = KeepErrno::now();
    let found = catch_unwind(|| in_clean_environment(|| find_function(number as usize)));
    found.ok().flatten().map_or(nothing as *const c_void, |address| address.as_ptr().cast_const())
}

fn name(number: usize) -> &'static CStr {
    CStr::from_bytes_until_nul(&NAMES[usize::from(STARTS[number])..]).unwrap_or_default()
}

fn find_function(number: usize) -> Option<NonNull<c_void>> {
    let _unbroken = process::hold_cancellation();
    // Before the loader is used: a fork during that must already be safe.
    process::watch_forks();
    options::current();
    let (name, missed_at) = (name(number), &MISSED_AT[number]);
    let search = if number < HANDLERS { find::handler } else { find::routine };
    let found = search(name, missed_at).or_else(|| embedded::find(name));
    match found {
        Some(address) => {
            SLOTS[number].store(address.as_ptr(), Ordering::Release);
            tracing::debug!(name = %name.to_string_lossy(), provider = find::provider(address), "forwarded");
        }
        None => {
            if !SAID[number].swap(true, Ordering::Relaxed) {
                let name = name.to_string_lossy();
                let text = format!("{name} is in no BLAS that was found; its calls do nothing and return 0");
                log::capped(Kind::MissingRoutine, Level::Error, &text);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_every_one_is_there_once() {
        let names: Vec<&str> = (0..COUNT).map(|number| name(number).to_str().unwrap()).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), COUNT);
        for name in &names {
            assert!(name.ends_with('_') || name.ends_with("_64") || name.contains("cblas_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{name}");
        }
        assert!(names[..HANDLERS].iter().all(|name| name.contains("xerbla") || name.contains("lsame")));
    }

    #[test]
    fn a_slot_starts_at_its_own_stub() {
        // SAFETY: code of this library, which can be read.
        let bytes = |at: *const c_void| unsafe { at.cast::<[u8; 5]>().read() };
        for number in [0, 1, 127, 128, 255, COUNT - 1] {
            let stub = (stubs as *const c_void).wrapping_byte_add(STUB * number);
            let [push, rest @ ..] = bytes(stub);
            assert_eq!((push, u32::from_le_bytes(rest) as usize), (0x68, number));
        }
    }
}
