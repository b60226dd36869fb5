//! A set of moduli with all that is computed once for it, and the conversions from and to big integers.

use num_bigint::{BigInt, BigUint, Sign};

use super::directed::Round;
use super::modular::{Factor, inverse};
use super::moduli::{self, Error};

/// The relative width that an interval evaluation promises: the paper's eps.
pub const ACCURACY: f64 = 1e-7;

/// What belongs to one modulus.
pub(super) struct Lane {
    pub m: u32,
    /// w = (M / m)^-1 modulo m.
    pub weight: Factor,
    /// 1 / m, rounded down and up. Rounded to nearest they would break the enclosure: see docs/rns.md.
    pub down: f64,
    pub up: f64,
    /// 1 / m, rounded to nearest, for [`super::fraction`].
    pub nearest: f64,
}

/// A residue number system: 2 to 256 pairwise coprime moduli of at most 32 bits, in the order in which they were given.
pub struct System {
    moduli: Vec<u32>,
    product: BigUint,
    pub(super) lanes: Vec<Lane>,
    /// For j < i: m_j^-1 modulo m_i, at i (i - 1) / 2 + j.
    pub(super) inverses: Vec<Factor>,
    /// The residues of floor(M / 2), the largest number that is read as positive.
    pub(super) half: Vec<u32>,
    delta: f64,
    psi: f64,
    least_factor: u32,
}

impl System {
    /// The constants of a set. About n^2 / 2 modular inverses: some milliseconds for 256 moduli.
    pub fn new(moduli: &[u64]) -> Result<Self, Error> {
        moduli::check(moduli)?;
        let product: BigUint = moduli.iter().map(|&m| BigUint::from(m)).product();
        let moduli: Vec<u32> = moduli.iter().map(|&m| m as u32).collect();
        let lane = |&m: &u32| {
            let others = low(&(&product / m % m));
            Lane {
                m,
                weight: Factor::new(inverse(others, m), m),
                down: Round::Down.reciprocal(m),
                up: Round::Up.reciprocal(m),
                nearest: 1.0 / f64::from(m),
            }
        };
        let lanes = moduli.iter().map(lane).collect();
        let pairs =
            moduli.iter().enumerate().flat_map(|(i, &m)| moduli[..i].iter().map(move |&other| (other, m)));
        let inverses = pairs.map(|(other, m)| Factor::new(inverse(other, m), m)).collect();

        let n = moduli.len() as f64;
        let levels = f64::from(moduli.len().next_power_of_two().trailing_zeros());
        // A directed rounding is off by less than 2^-52 relatively. A term takes two and its way through the tree ceil(lg n),
        // and all terms together are below n. The paper has 2 lg n for ceil(lg n) + 2, which is too little for some n below 8.
        // The last factor is for terms of second order and for the rounding of this formula.
        let delta = 2f64.powi(-52) * n * (2.0 * n.log2()).max(levels + 2.0) * (1.0 + 2f64.powi(-40));
        let psi = 2.0 * delta * (1.0 + ACCURACY / 2.0) / ACCURACY;
        let half = &product >> 1u32;
        let half = moduli.iter().map(|&m| low(&(&half % m))).collect();
        Ok(Self {
            moduli,
            product,
            lanes,
            inverses,
            half,
            delta,
            psi,
            least_factor: (1.0 / (2.0 * psi)).log2().floor() as u32,
        })
    }

    /// The moduli, in their order.
    pub fn moduli(&self) -> &[u32] {
        &self.moduli
    }

    /// n, the number of moduli.
    pub fn count(&self) -> usize {
        self.moduli.len()
    }

    /// M, the product of the moduli. Numbers are those from 0 to M - 1.
    pub fn product(&self) -> &BigUint {
        &self.product
    }

    /// The most by which the sum of all s_i / m_i, rounded in one direction, differs from the exact one.
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// The paper's psi: an interval whose upper end is at least this is narrower than [`ACCURACY`] times X / M.
    pub fn psi(&self) -> f64 {
        self.psi
    }

    /// The paper's k = floor(lg 1 / (2 psi)): a number below psi M can be multiplied by 2^k at least.
    pub fn least_factor(&self) -> u32 {
        self.least_factor
    }

    /// The most passes that the refinement of a number takes: ceil(lg(psi M) / k), the paper's Theorem 1.
    pub fn most_passes(&self) -> u32 {
        let bits: f64 = self.moduli.iter().map(|&m| f64::from(m).log2()).sum();
        ((bits + self.psi.log2()) / f64::from(self.least_factor)).ceil().max(0.0) as u32
    }

    /// The residues of `x` modulo each modulus.
    pub fn residues(&self, x: &BigUint) -> Vec<u32> {
        self.moduli.iter().map(|&m| low(&(x % m))).collect()
    }

    /// The residues of an integer that may be negative: those of `x` modulo M.
    pub fn signed_residues(&self, x: &BigInt) -> Vec<u32> {
        let mut residues = self.residues(x.magnitude());
        if x.sign() == Sign::Minus {
            for (r, m) in residues.iter_mut().zip(&self.moduli) {
                *r = if *r == 0 { 0 } else { m - *r };
            }
        }
        residues
    }

    /// The number with these residues, 0 <= X < M, by the Chinese remainder theorem: the sum of all s_i M / m_i modulo M.
    pub fn value(&self, residues: &[u32]) -> BigUint {
        let terms = self.weighted(residues).into_iter().zip(&self.moduli);
        terms.map(|(s, m)| &self.product / m * s).sum::<BigUint>() % &self.product
    }

    /// The number with these residues in the symmetric reading: numbers above M / 2 stand for X - M.
    pub fn signed_value(&self, residues: &[u32]) -> BigInt {
        let value = self.value(residues);
        let wraps = value > &self.product >> 1u32;
        let value = BigInt::from(value);
        if wraps { value - BigInt::from(self.product.clone()) } else { value }
    }

    /// s_i = x_i (M / m_i)^-1 modulo m_i: X / M is the fractional part of the sum of all s_i / m_i.
    ///
    /// # Panics
    /// If there are not as many residues as moduli. In debug builds also if one is not below its modulus.
    pub(super) fn weighted(&self, residues: &[u32]) -> Vec<u64> {
        self.expect(residues, 1);
        self.lanes.iter().zip(residues).map(|(lane, &x)| lane.weight.times(x.into(), lane.m)).collect()
    }

    /// Panics unless these are the residues of `count` numbers.
    pub(super) fn expect(&self, residues: &[u32], count: usize) {
        let n = self.count();
        assert_eq!(residues.len(), n * count, "{count} numbers have {} residues", n * count);
        debug_assert!(
            count == 0
                || residues.chunks(count).zip(&self.moduli).all(|(plane, m)| plane.iter().all(|x| x < m)),
            "a residue is not below its modulus"
        );
    }
}

/// A number below 2^32.
fn low(x: &BigUint) -> u32 {
    x.iter_u32_digits().next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// delta covers what n terms can lose: two roundings and ceil(lg n) additions each, of 2^-52 relatively. The paper's
    /// 2 u n lg n alone would not for 2, 3 and 5 moduli; where it does, delta is that.
    #[test]
    fn delta_covers_every_rounding() {
        let unit = 2f64.powi(-52);
        for n in moduli::FEWEST..=moduli::MOST {
            let system = System::new(&moduli::greedy(n, 1_000_001).unwrap()).unwrap();
            let levels = (0..).find(|levels| 1usize << levels >= n).unwrap();
            let safe = n as f64 * ((1.0 + unit).powi(levels + 2) - 1.0);
            let paper = 2.0 * unit * n as f64 * (n as f64).log2();
            assert!(system.delta() >= safe, "{n} moduli");
            assert!(system.delta() <= safe.max(paper) * (1.0 + 1e-9), "{n} moduli");
            assert_eq!(paper < safe * (1.0 - 1e-9), [2, 3, 5].contains(&n), "{n} moduli");
            let (psi, k) = (system.psi(), system.least_factor() as i32);
            // An interval whose upper end is psi is narrow enough, and 2^k psi is at most 1/2 but 2^(k + 1) psi is not.
            assert!(2.0 * system.delta() <= ACCURACY * (psi - system.delta()) * (1.0 + 1e-9), "{n} moduli");
            assert!(psi * 2f64.powi(k) <= 0.5 && psi * 2f64.powi(k + 1) > 0.5, "{n} moduli");
        }
    }
}
