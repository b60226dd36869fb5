//! Calls that are alike: what a class of them is, and what is added up for it.

use crate::options::Mode;
use crate::ozaki::plan::{Accuracy, Way};
use crate::route::Reason;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Native(Reason),
    Emulated {
        engine: usize,
        moduli: usize,
        mode: Mode,
        accuracy: Accuracy,
        /// The step that found the plan, in mode auto.
        way: Option<Way>,
        /// Why a part of it was not emulated.
        reason: Option<Reason>,
    },
}

const MODES: [Mode; 4] = [Mode::Auto, Mode::Accurate, Mode::Fast, Mode::Native];
const ACCURACIES: [Accuracy; 3] = [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High];

fn place<T: PartialEq>(of: &T, list: &[T]) -> u64 {
    list.iter().position(|x| x == of).unwrap_or(0) as u64
}

impl Fate {
    /// As a number; a byte for each of its parts.
    pub fn code(&self) -> u64 {
        match *self {
            Self::Native(reason) => reason as u64,
            Self::Emulated { engine, moduli, mode, accuracy, way, reason } => {
                let (engine, moduli) = (engine as u64, moduli as u64);
                let (mode, accuracy) = (place(&mode, &MODES), place(&accuracy, &ACCURACIES));
                let way = way.map_or(0, |way| way as u64 + 1);
                let reason = reason.map_or(0, |reason| reason as u64 + 1);
                1 << 56 | engine << 40 | moduli << 32 | mode << 24 | accuracy << 16 | way << 8 | reason
            }
        }
    }

    pub fn from_code(code: u64) -> Self {
        let byte = |at: usize| usize::from(code.to_le_bytes()[at]);
        if byte(7) == 0 {
            return Self::Native(Reason::ALL[byte(0)]);
        }
        Self::Emulated {
            engine: byte(5),
            moduli: byte(4),
            mode: MODES[byte(3)],
            accuracy: ACCURACIES[byte(2)],
            way: byte(1).checked_sub(1).map(|at| Way::ALL[at]),
            reason: byte(0).checked_sub(1).map(|at| Reason::ALL[at]),
        }
    }
}

/// Of which shape a class is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// m, n, k as the caller sees them; all 0 where the arguments could not be read.
    Shape(usize, usize, usize),
    /// Other shapes with 8^c <= m n k < 8^(c + 1).
    Others(u32),
}

impl Size {
    pub fn code(self) -> [u64; 3] {
        match self {
            Self::Shape(m, n, k) => [m as u64, n as u64, k as u64],
            Self::Others(class) => [u64::MAX, u64::MAX, u64::from(class)],
        }
    }

    pub fn from_code([m, n, k]: [u64; 3]) -> Self {
        if m == u64::MAX { Self::Others(k as u32) } else { Self::Shape(m as usize, n as usize, k as usize) }
    }
}

/// What is added up for a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub calls: u64,
    /// m n k, summed.
    pub multiplications: u64,
    pub nanoseconds: u64,
    /// The largest T + 1; 0 where nothing is proved.
    pub bound: f64,
    /// Rows and columns that the native BLAS computed.
    pub rows: u64,
    pub columns: u64,
}

/// Calls that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    pub size: Size,
    pub fate: Fate,
    pub sums: Sums,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emulated(reason: Option<Reason>, way: Option<Way>) -> Fate {
        let (engine, moduli, mode, accuracy) = (4, 20, Mode::Fast, Accuracy::High);
        Fate::Emulated { engine, moduli, mode, accuracy, way, reason }
    }

    #[test]
    fn every_fate_comes_back() {
        for reason in Reason::ALL {
            for fate in [Fate::Native(reason), emulated(Some(reason), None)] {
                assert_eq!(Fate::from_code(fate.code()), fate);
            }
        }
        for way in Way::ALL {
            let fate = emulated(None, Some(way));
            assert_eq!(Fate::from_code(fate.code()), fate);
        }
    }
}
