//! The switches of the device: from the environment (`SOFTGPU_MODE=random`), or from a text (`mode=random`) within a process.

use std::ffi::c_int;

use crate::faults::{self, Fault};

/// When queued work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// At once.
    Eager,
    /// Only when something waits for it: who forgets to wait reads poison.
    Lazy,
    /// Some now and some later, streams mixed, by a seeded generator.
    Random,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub mode: Mode,
    pub seed: u64,
    /// Blocks of a grid and threads of a block from the last to the first.
    pub reverse: bool,
    /// Memory of one device, in bytes.
    pub memory: u64,
    pub devices: usize,
    /// Compute capability as in `sm_90`.
    pub capability: c_int,
    /// CUDA version of the driver, as in cuDriverGetVersion. It decides the newest PTX.
    pub driver: c_int,
    pub trace: crate::trace::Level,
    pub trace_file: Option<String>,
    pub faults: Vec<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mode: Mode::Lazy,
            seed: 1,
            reverse: false,
            memory: 1 << 30,
            devices: 1,
            capability: 90,
            driver: 12080,
            trace: crate::trace::Level::Off,
            trace_file: None,
            faults: vec![],
        }
    }
}

const NAMES: [&str; 10] =
    ["mode", "seed", "order", "mem", "devices", "cc", "driver", "trace", "trace_file", "fault"];

impl Config {
    /// What the environment says. A switch that cannot be read ends the process: a test that runs with other switches than it
    /// believes would prove nothing.
    pub fn from_environment() -> Config {
        let mut config = Config::default();
        for name in NAMES {
            let variable = format!("SOFTGPU_{}", name.to_uppercase());
            if let Ok(value) = std::env::var(&variable)
                && let Err(message) = config.set(name, &value)
            {
                eprintln!("softgpu: {variable}={value}: {message}");
                std::process::abort();
            }
        }
        config
    }

    /// Sets what a text says, as in `mode=random seed=7 devices=2`.
    pub fn apply(&mut self, text: &str) -> Result<(), String> {
        text.split_whitespace().try_for_each(|word| {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not name=value"))?;
            self.set(name, value).map_err(|message| format!("{word}: {message}"))
        })
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "mode" => {
                self.mode = match value {
                    "eager" => Mode::Eager,
                    "lazy" => Mode::Lazy,
                    "random" => Mode::Random,
                    _ => return Err("eager, lazy or random".to_owned()),
                }
            }
            "order" => {
                self.reverse = match value {
                    "forward" => false,
                    "reverse" => true,
                    _ => return Err("forward or reverse".to_owned()),
                }
            }
            "seed" => self.seed = number(value, 0, u64::MAX)?,
            "mem" => self.memory = bytes(value)?,
            "devices" => self.devices = number(value, 0, 16)? as usize,
            "cc" => self.capability = number(value, 50, 999)? as c_int,
            "driver" => self.driver = number(value, 1000, 99990)? as c_int,
            "trace" => {
                self.trace = match value {
                    "0" | "" => crate::trace::Level::Off,
                    "1" => crate::trace::Level::First,
                    "all" => crate::trace::Level::All,
                    _ => return Err("0, 1 or all".to_owned()),
                }
            }
            "trace_file" => self.trace_file = (!value.is_empty()).then(|| value.to_owned()),
            "fault" => self.faults = faults::parse(value)?,
            _ => return Err(format!("no such switch; there are {}", NAMES.join(", "))),
        }
        Ok(())
    }
}

fn number(text: &str, low: u64, high: u64) -> Result<u64, String> {
    let value = text.parse().ok().filter(|value| (low..=high).contains(value));
    value.ok_or_else(|| format!("a whole number from {low} to {high}"))
}

/// A number of bytes, with K, M or G behind it or not.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    Ok(number(digits, 0, u64::MAX >> shift)? << shift)
}
