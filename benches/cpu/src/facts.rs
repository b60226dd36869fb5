//! What a report says of where and when it was made; benches/rns uses this file too.

use std::ffi::CStr;

use serde::Serialize;

/// The machine, as far as it matters for the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub model: String,
    pub cpus: usize,
    pub memory_gb: u64,
    pub amx: bool,
    /// The load of the last minute before the measurements: more than a little is other people's work.
    pub load: f64,
}

/// This machine.
pub fn machine(amx: bool) -> Machine {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let kilobytes = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Machine {
        model: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".to_owned()),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_gb: kilobytes.div_ceil(1 << 20),
        amx,
        load: load.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN),
    }
}

/// Today, in UTC.
pub fn date() -> String {
    let mut text = [0u8; 16];
    // SAFETY: the records are written before they are read; the text has as many bytes as we say, its last one stays zero.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const now, &raw mut parts);
        libc::strftime(text.as_mut_ptr().cast(), text.len() - 1, c"%Y-%m-%d".as_ptr(), &raw const parts);
    }
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}

/// Four significant digits: more would be noise.
pub fn short(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    (x * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_ten_letters() {
        let date = date();
        assert_eq!(date.len(), 10, "{date}");
        assert!(date.as_str() > "2025-01-01", "{date}");
    }
}
