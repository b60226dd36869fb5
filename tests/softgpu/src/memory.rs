//! Allocations: poisoned when they come and when they go, with red zones on both sides, at addresses that the host cannot read.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;

use crate::status::{
    ALREADY_REGISTERED, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY, Outcome,
};

pub const POISON: u8 = 0xa5;
/// Bytes watched in front of and behind every allocation.
pub const RED_ZONE: usize = 4096;
/// Device addresses begin here: no valid x86-64 address, so host code that follows one crashes.
const DEVICE_BASE: u64 = 0x0200_0000_0000_0000;
/// What cuMemAlloc promises at least, and all that this device gives.
const ALIGNMENT: u64 = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device,
    Managed,
    /// Page-locked, allocated by the driver.
    Pinned,
    /// Memory of the program, page-locked.
    Registered,
}

pub struct Block {
    pub kind: Kind,
    pub device: usize,
    pub bytes: usize,
    pub flags: u32,
    /// False from cuMemAllocAsync until its stream gets there.
    pub born: bool,
    /// A cuMemFreeAsync is on its way.
    pub dying: bool,
    /// Where the bytes are in this process.
    pub host: usize,
    /// The mapping around them; none for registered memory.
    mapping: Option<(usize, usize)>,
}

impl Block {
    /// The two red zones.
    fn zones(&self) -> [(usize, usize); 2] {
        let Some((base, length)) = self.mapping else { return [(self.host, 0); 2] };
        let end = self.host + self.bytes;
        [(base, self.host - base), (end, base + length - end)]
    }
}

/// Fills memory with poison.
unsafe fn poison(address: usize, bytes: usize) {
    std::ptr::write_bytes(address as *mut u8, POISON, bytes);
}

#[derive(Default)]
pub struct Memory {
    /// By the address that the program sees.
    blocks: BTreeMap<u64, Block>,
    /// Device memory in use on each device, managed memory included.
    pub used: Vec<u64>,
    limit: u64,
    next: u64,
    /// Poisoned mappings of freed device memory by their length: to map and fill new pages takes far longer.
    spare: HashMap<usize, Vec<usize>>,
    spare_bytes: usize,
}

/// Spare mappings are kept up to this.
const MOST_SPARE: usize = 256 << 20;

/// A fresh mapping, poisoned.
fn map(length: usize) -> Outcome<usize> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a private mapping at a place of the kernel's choice, of which the whole length is filled.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        if base == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        poison(base as usize, length);
        Ok(base as usize)
    }
}

impl Memory {
    pub fn new(devices: usize, limit: u64) -> Memory {
        let next = DEVICE_BASE + ALIGNMENT;
        Memory { used: vec![0; devices], limit, next, ..Memory::default() }
    }

    /// Other devices, with nothing in their memory. Addresses go on, so that old pointers are found out.
    pub fn renewed(&mut self, devices: usize, limit: u64) -> Memory {
        (0..self.used.len()).for_each(|device| self.release_device(device));
        Memory { used: vec![0; devices], limit, ..std::mem::take(self) }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The block that holds an address, whether it is born or not.
    pub fn block(&self, address: u64) -> Option<(u64, &Block)> {
        let (&base, block) = self.blocks.range(..=address).next_back()?;
        (address - base < block.bytes as u64).then_some((base, block))
    }

    pub fn get_mut(&mut self, base: u64) -> Option<&mut Block> {
        self.blocks.get_mut(&base)
    }

    pub fn is_device_address(address: u64) -> bool {
        address >= DEVICE_BASE
    }

    pub fn allocate(&mut self, kind: Kind, device: usize, bytes: usize, flags: u32) -> Outcome<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let on_device = matches!(kind, Kind::Device | Kind::Managed);
        if on_device && bytes as u64 > self.limit.saturating_sub(self.used[device]) {
            return Err(OUT_OF_MEMORY);
        }
        let length = bytes.checked_add(2 * RED_ZONE).ok_or(OUT_OF_MEMORY)?.next_multiple_of(4096);
        let spare = self.spare.get_mut(&length).filter(|_| kind == Kind::Device).and_then(Vec::pop);
        let base = match spare {
            Some(base) => {
                self.spare_bytes -= length;
                base
            }
            None => map(length)?,
        };
        let host = base + RED_ZONE;
        let address = if kind == Kind::Device { self.next } else { host as u64 };
        if kind == Kind::Device {
            // Addresses are never used again: a pointer into freed memory is always found out. The distance keeps them at
            // odd multiples of the alignment, so that nobody relies on more.
            self.next += (bytes as u64 + RED_ZONE as u64).next_multiple_of(2 * ALIGNMENT) + 2 * ALIGNMENT;
        }
        if on_device {
            self.used[device] += bytes as u64;
        }
        let mapping = Some((base, length));
        self.blocks
            .insert(address, Block { kind, device, bytes, flags, born: true, dying: false, host, mapping });
        Ok(address)
    }

    pub fn register(&mut self, device: usize, address: u64, bytes: usize, flags: u32) -> Outcome {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        if bytes == 0 || address == 0 || Memory::is_device_address(end) {
            return Err(INVALID_VALUE);
        }
        // The driver locks whole pages: two ranges that share one cannot both be registered.
        let (low, high) = (address & !4095, end.next_multiple_of(4096));
        let taken = |(&base, block): (&u64, &Block)| base + block.bytes as u64 > low;
        if self.blocks.range(..high).next_back().is_some_and(taken) {
            return Err(ALREADY_REGISTERED);
        }
        let host = address as usize;
        let block = Block {
            kind: Kind::Registered,
            device,
            bytes,
            flags,
            born: true,
            dying: false,
            host,
            mapping: None,
        };
        self.blocks.insert(address, block);
        Ok(())
    }

    pub fn unregister(&mut self, address: u64) -> Outcome {
        if self.blocks.get(&address).is_none_or(|block| block.kind != Kind::Registered) {
            return Err(NOT_REGISTERED);
        }
        self.blocks.remove(&address);
        Ok(())
    }

    /// Takes an allocation out of the world. It is poisoned: its device address is never given
    /// again, and page-locked memory is unmapped, so host code that still reads it crashes.
    pub fn release(&mut self, base: u64) {
        let Some(block) = self.blocks.remove(&base) else { return };
        if matches!(block.kind, Kind::Device | Kind::Managed) {
            self.used[block.device] -= block.bytes as u64;
        }
        let Some((mapping, length)) = block.mapping else { return };
        // SAFETY: the mapping was made in `map`, and with the block nobody can name it any more.
        unsafe {
            poison(mapping, length);
            if block.kind == Kind::Device && self.spare_bytes + length <= MOST_SPARE {
                self.spare_bytes += length;
                self.spare.entry(length).or_default().push(mapping);
            } else {
                libc::munmap(mapping as *mut c_void, length);
            }
        }
    }

    /// Everything of a device, as when its context is destroyed.
    pub fn release_device(&mut self, device: usize) {
        let bases: Vec<u64> =
            self.blocks.iter().filter(|(_, block)| block.device == device).map(|(&base, _)| base).collect();
        bases.into_iter().for_each(|base| self.release(base));
    }

    /// The host's pointer to `bytes` bytes that work on `device` may touch. Memory of another device is an error, as without
    /// peer access.
    pub fn on_device(&self, address: u64, bytes: usize, device: usize) -> Outcome<*mut u8> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let hex = format!("{address:#x}");
        let Some((base, block)) = self.block(address) else {
            eprintln!("softgpu: {hex} lies in no live allocation");
            return Err(ILLEGAL_ADDRESS);
        };
        if !block.born {
            eprintln!("softgpu: {hex} is used before its cuMemAllocAsync is reached");
            return Err(ILLEGAL_ADDRESS);
        }
        if block.kind == Kind::Device && block.device != device {
            eprintln!("softgpu: {hex} belongs to device {}, the work runs on device {device}", block.device);
            return Err(ILLEGAL_ADDRESS);
        }
        let offset = (address - base) as usize;
        if bytes > block.bytes - offset {
            eprintln!("softgpu: {bytes} bytes at {hex} do not fit into an allocation of {}", block.bytes);
            return Err(ILLEGAL_ADDRESS);
        }
        Ok((block.host + offset) as *mut u8)
    }

    /// Looks at all red zones: the devices whose allocations were written past their ends. Each damage is told once.
    /// `after` says after what it was found.
    pub fn damaged(&mut self, after: &str) -> Vec<usize> {
        let mut devices = vec![];
        for (base, block) in &self.blocks {
            for (side, (start, bytes)) in ["in front of", "behind"].into_iter().zip(block.zones()) {
                // SAFETY: the zone is part of the mapping of a live block.
                let zone = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
                if zone.iter().fold(0, |changed, byte| changed | (byte ^ POISON)) == 0 {
                    continue;
                }
                let changed = zone.iter().filter(|&&byte| byte != POISON).count();
                let offset = zone.iter().position(|&byte| byte != POISON).unwrap_or(0) + start;
                eprintln!(
                    "softgpu: write outside an allocation: {changed} bytes {side} {} bytes at {base:#x} ({:?}, device {}), \
                     the first at offset {}; found {after}",
                    block.bytes,
                    block.kind,
                    block.device,
                    offset as i64 - block.host as i64,
                );
                // SAFETY: as above; nothing else looks at a red zone.
                unsafe { poison(start, bytes) };
                devices.push(block.device);
            }
        }
        devices
    }
}
