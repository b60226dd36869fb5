//! Sets of pairwise coprime moduli, and what a set must be.

use std::fmt;

/// The least number of moduli.
pub const FEWEST: usize = 2;
/// The largest number of moduli.
pub const MOST: usize = 256;

/// The 8-bit moduli of the emulated DGEMM. Any first two or more of them are a set.
pub const INT8: [u64; 20] =
    [256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173];

/// Number of moduli and first modulus of the seven sets of the paper (its Table 2), whose products have 64 to 4096 bits.
pub const PAPER: [(usize, u64); 7] =
    [(4, 65947), (8, 65725), (16, 65599), (32, 65533), (64, 65379), (128, 65139), (256, 64491)];

/// Why some numbers are no set of moduli.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// So many moduli: fewer than [`FEWEST`] or more than [`MOST`].
    Count(usize),
    /// A modulus below 2 or of more than 32 bits.
    Range(u64),
    /// Two moduli with a common divisor.
    NotCoprime(u64, u64),
    /// The 32-bit numbers from a start value on hold fewer moduli than were asked for.
    Exhausted { count: usize, start: u64 },
    /// The paper has no set of so many moduli.
    NoPaperSet(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Count(count) => write!(f, "{count} moduli: a set has {FEWEST} to {MOST}"),
            Error::Range(modulus) => {
                write!(f, "modulus {modulus}: a modulus is at least 2 and has at most 32 bits")
            }
            Error::NotCoprime(a, b) => {
                write!(f, "moduli {a} and {b} have the common divisor {}", common_divisor(*a, *b))
            }
            Error::Exhausted { count, start } => {
                write!(f, "there are no {count} odd pairwise coprime numbers of 32 bits from {start} on")
            }
            Error::NoPaperSet(count) => {
                write!(f, "the paper has no set of {count} moduli, only of 4, 8, 16, 32, 64, 128 and 256")
            }
        }
    }
}

impl std::error::Error for Error {}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Ok if these are 2 to 256 pairwise coprime moduli of at most 32 bits.
pub fn check(moduli: &[u64]) -> Result<(), Error> {
    if !(FEWEST..=MOST).contains(&moduli.len()) {
        return Err(Error::Count(moduli.len()));
    }
    if let Some(&wrong) = moduli.iter().find(|&&m| m < 2 || m > u64::from(u32::MAX)) {
        return Err(Error::Range(wrong));
    }
    for (i, &a) in moduli.iter().enumerate() {
        if let Some(&b) = moduli[i + 1..].iter().find(|&&b| common_divisor(a, b) != 1) {
            return Err(Error::NotCoprime(a, b));
        }
    }
    Ok(())
}

/// `count` odd pairwise coprime numbers, ascending from the odd number `start`: each is the least one that is coprime to all
/// before it.
pub fn greedy(count: usize, start: u64) -> Result<Vec<u64>, Error> {
    if !(FEWEST..=MOST).contains(&count) {
        return Err(Error::Count(count));
    }
    if start < 3 || start.is_multiple_of(2) || start > u64::from(u32::MAX) {
        return Err(Error::Range(start));
    }
    let mut set: Vec<u64> = Vec::with_capacity(count);
    for candidate in (start..=u64::from(u32::MAX)).step_by(2) {
        if set.iter().all(|&m| common_divisor(m, candidate) == 1) {
            set.push(candidate);
            if set.len() == count {
                return Ok(set);
            }
        }
    }
    Err(Error::Exhausted { count, start })
}

/// The set of the paper with so many moduli: 4, 8, 16, 32, 64, 128 or 256.
pub fn paper_set(count: usize) -> Result<Vec<u64>, Error> {
    let (_, start) = PAPER.iter().find(|(n, _)| *n == count).ok_or(Error::NoPaperSet(count))?;
    greedy(count, *start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;

    #[test]
    fn the_int8_set_is_that_of_the_scheme() {
        assert_eq!(INT8.map(|m| m as i32), crate::ozaki::moduli::MODULI);
        assert_eq!(check(&INT8), Ok(()));
    }

    /// First and last modulus and lg M of each set, from the paper's parameter tables.
    #[test]
    fn the_sets_of_the_paper() {
        const LAST: [u64; 7] = [65953, 65749, 65657, 65683, 65771, 66071, 66889];
        const BITS: [f64; 7] = [64.04, 128.04, 256.03, 512.04, 1024.03, 2048.02, 4096.09];
        for (((count, first), last), bits) in PAPER.into_iter().zip(LAST).zip(BITS) {
            let set = paper_set(count).unwrap();
            assert_eq!(check(&set), Ok(()), "{count} moduli");
            assert_eq!((set.len(), set[0], set[count - 1]), (count, first, last));
            assert!(
                (set.iter().map(|&m| (m as f64).log2()).sum::<f64>() - bits).abs() < 0.005,
                "{count} moduli"
            );
            let product: BigUint = set.iter().map(|&m| BigUint::from(m)).product();
            assert_eq!(product.bits(), bits as u64 + 1, "{count} moduli");
        }
        assert_eq!(paper_set(4).unwrap(), [65947, 65949, 65951, 65953]);
        assert_eq!(paper_set(8).unwrap(), [65725, 65727, 65729, 65731, 65737, 65741, 65743, 65749]);
        const OF_32: [u64; 32] = [
            65533, 65535, 65537, 65539, 65543, 65549, 65551, 65557, 65561, 65563, 65567, 65573, 65579, 65581,
            65587, 65591, 65597, 65599, 65609, 65617, 65621, 65623, 65627, 65629, 65633, 65641, 65647, 65651,
            65657, 65669, 65677, 65683,
        ];
        assert_eq!(paper_set(32).unwrap(), OF_32);
        assert_eq!(paper_set(5), Err(Error::NoPaperSet(5)));
    }

    #[test]
    fn bad_sets_are_refused_by_name() {
        let large = u64::from(u32::MAX);
        assert_eq!(check(&[7]), Err(Error::Count(1)));
        assert_eq!(check(&[]), Err(Error::Count(0)));
        assert_eq!(check(&[3; 257]), Err(Error::Count(257)));
        assert_eq!(check(&[3, 1]), Err(Error::Range(1)));
        assert_eq!(check(&[0, 5]), Err(Error::Range(0)));
        assert_eq!(check(&[large, large + 1]), Err(Error::Range(large + 1)));
        assert_eq!(check(&[35, 6, 77]), Err(Error::NotCoprime(35, 77)));
        assert_eq!(check(&[5, 5]), Err(Error::NotCoprime(5, 5)));
        assert_eq!(check(&[2, large]), Ok(()));
        assert_eq!(greedy(3, large - 2), Err(Error::Exhausted { count: 3, start: large - 2 }));
        assert_eq!(greedy(4, 10), Err(Error::Range(10)));
        assert_eq!(greedy(1, 11), Err(Error::Count(1)));
        let text = Error::NotCoprime(35, 77).to_string();
        assert_eq!(text, "moduli 35 and 77 have the common divisor 7");
    }
}
