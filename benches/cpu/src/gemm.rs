//! Products C = A B, and a check of what the contenders make of them.

use crate::blas::{Gemm, Oz2};
use crate::race::Work;
use crate::record::Note;

/// What a contender is: its DGEMM, and for our own library where its calls went.
#[derive(Clone, Copy)]
pub struct Contender {
    pub name: &'static str,
    pub gemm: Gemm,
    pub ours: Option<Oz2>,
}

/// Numbers in [-0.5, 0.5), always the same for a seed.
pub fn uniform(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// An entry of C that is looked at after every turn.
struct Sample {
    place: usize,
    value: f64,
    tolerance: f64,
}

const SAMPLES: usize = 16;

pub struct Product<'a> {
    shape: (usize, usize, usize),
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    samples: Vec<Sample>,
    contenders: &'a [Contender],
    /// The first wrong result.
    pub wrong: Option<String>,
}

impl<'a> Product<'a> {
    pub fn new((m, n, k): (usize, usize, usize), contenders: &'a [Contender]) -> Self {
        let (a, b) = (uniform(m * k, 1), uniform(k * n, 2));
        let sample = |number: usize| {
            // The first entry, the last, and some between.
            let place = number * (m * n - 1) / (SAMPLES - 1);
            let (i, j) = (place % m, place / m);
            let terms = (0..k).map(|h| a[i + h * m] * b[h + j * k]);
            let (value, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
            // Twice what a plain sum may err, for the sum here and the one there.
            Sample { place, value, tolerance: (k + 1) as f64 * f64::EPSILON * size }
        };
        let samples = (0..SAMPLES).map(sample).collect();
        Self { shape: (m, n, k), samples, a, b, c: vec![f64::NAN; m * n], contenders, wrong: None }
    }

    /// Looks at the samples, and spoils them, so that the next contender has to write them.
    fn check(&mut self, contender: &str) {
        for sample in &self.samples {
            let value = std::mem::replace(&mut self.c[sample.place], f64::NAN);
            let error = (value - sample.value).abs();
            if self.wrong.is_none() && (error.is_nan() || error > sample.tolerance) {
                let (m, n, k) = self.shape;
                self.wrong = Some(format!(
                    "{contender} is wrong at {m} x {n} x {k}, entry {}: {value}, not {}",
                    sample.place, sample.value
                ));
            }
        }
    }
}

impl Work for Product<'_> {
    fn call(&mut self, entrant: usize) {
        let (m, n, k) = self.shape;
        let [m, n, k] = [m, n, k].map(|size| size as i32);
        let letter = c"N".as_ptr();
        // SAFETY: the matrices have the sizes that the call says.
        unsafe {
            (self.contenders[entrant].gemm)(
                letter,
                letter,
                &m,
                &n,
                &k,
                &1.0,
                self.a.as_ptr(),
                &m,
                self.b.as_ptr(),
                &k,
                &0.0,
                self.c.as_mut_ptr(),
                &m,
                1,
                1,
            );
        }
    }

    fn note(&mut self, entrant: usize) -> Option<Note> {
        let contender = self.contenders[entrant];
        self.check(contender.name);
        contender.ours.map(|library| note_of(&library.last_call()))
    }

    fn repeatable(&self) -> bool {
        true
    }
}

/// In words what oz2_last_call says.
fn note_of(last: &serde_json::Value) -> Note {
    let text = |name: &str| last[name].as_str().unwrap_or("?").to_owned();
    let route = if last["route"] == "emulated" {
        format!("emulated: {}, N = {}", text("engine"), last["moduli"])
    } else {
        format!("{}: {}", text("route"), text("reason"))
    };
    let phases = last["phases"].as_object().into_iter().flatten();
    let phases = phases.filter_map(|(name, seconds)| Some((name.clone(), seconds.as_f64()?)));
    Note { route, phases: phases.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_in_words() {
        let emulated = serde_json::json!({"route": "emulated", "engine": "amx", "moduli": 14, "reason": null,
            "phases": {"scan": 0.5, "product": 2}});
        let note = note_of(&emulated);
        assert_eq!((note.route.as_str(), note.phases["product"]), ("emulated: amx, N = 14", 2.0));
        assert!(note.is_emulated());
        let native = note_of(&serde_json::json!({"route": "native", "reason": "too small"}));
        assert_eq!(native.route, "native: too small");
        assert!(!native.is_emulated() && native.phases.is_empty());
    }

    #[test]
    fn data_are_uniform() {
        let values = uniform(10000, 1);
        let mean = values.iter().sum::<f64>() / 1e4;
        assert!(values.iter().all(|x| (-0.5..0.5).contains(x)) && mean.abs() < 0.02);
    }

    #[test]
    fn wrong_results_are_seen() {
        unsafe extern "C" fn zero(
            _: *const i8,
            _: *const i8,
            m: *const i32,
            n: *const i32,
            _: *const i32,
            _: *const f64,
            _: *const f64,
            _: *const i32,
            _: *const f64,
            _: *const i32,
            _: *const f64,
            c: *mut f64,
            _: *const i32,
            _: usize,
            _: usize,
        ) {
            unsafe { std::slice::from_raw_parts_mut(c, (*m * *n) as usize) }.fill(0.0);
        }
        let contenders = [Contender { name: "zero", gemm: zero, ours: None }];
        let mut product = Product::new((5, 6, 7), &contenders);
        product.call(0);
        product.note(0);
        assert!(product.wrong.unwrap().starts_with("zero is wrong at 5 x 6 x 7, entry 0: 0"));
    }
}
