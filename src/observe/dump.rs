//! The file of a call that differs (OZ2_VERIFY_DUMP), which `oz2run --replay` reads.
//!
//! Text: the line `oz2blas call 1`, lines `name value`, an empty line. Then doubles, little-endian, without gaps, column by column:
//! op(A) m x k, op(B) k x n, C before m x n (zeros if beta is 0), C as it was emulated, C as the native BLAS computed it. m, n and
//! all matrices are those of the column-major call, also where the program's call was row-major (`row-major yes`): there A and B,
//! and m and n, have changed places. alpha and beta are the 16 digits of their bits. `transa` and `transb` say how the matrices
//! lay in the program; here they are as they are multiplied. Who reads it skips names that it does not know.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};

use super::file::{self, Pattern};

const MAGIC: &str = "oz2blas call 1";
/// A header is shorter than this.
const MOST_HEADER: u64 = 1 << 16;

/// Writes a file whose name is made from a pattern, and returns that name. It is there complete, or empty where the process ends
/// in the middle.
pub fn write(
    pattern: &str,
    fields: &[(&str, String)],
    doubles: impl Iterator<Item = f64>,
) -> Result<String, String> {
    // Whoever creates the name owns it, so the finished file may take its place.
    let (_, name) = file::create(&Pattern::new(pattern))?;
    let unfinished = format!("{name}.unfinished");
    let done = write_all(&unfinished, fields, doubles).and_then(|()| std::fs::rename(&unfinished, &name));
    done.map(|()| name.clone()).map_err(|error| {
        let _ = std::fs::remove_file(&unfinished);
        let _ = std::fs::remove_file(&name);
        format!("cannot write {name}: {error}")
    })
}

fn write_all(
    name: &str,
    fields: &[(&str, String)],
    doubles: impl Iterator<Item = f64>,
) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 16, File::create(name)?);
    writeln!(file, "{MAGIC}")?;
    for (name, value) in fields {
        writeln!(file, "{name} {value}")?;
    }
    writeln!(file)?;
    for x in doubles {
        file.write_all(&x.to_le_bytes())?;
    }
    file.flush()
}

/// A call as it was read.
#[derive(Debug)]
pub struct Call {
    /// The lines of the header, in their order.
    pub fields: Vec<(String, String)>,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f64,
    pub beta: f64,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub before: Vec<f64>,
    pub emulated: Vec<f64>,
    pub native: Vec<f64>,
}

impl Call {
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// Reads a file, or says what is wrong with it.
pub fn read(path: &std::path::Path) -> Result<Call, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    parse(&mut BufReader::new(file), length)
}

/// Reads a call. `length`: the bytes of all that can be read.
pub fn parse(from: &mut impl BufRead, length: u64) -> Result<Call, String> {
    let mut header = from.take(MOST_HEADER);
    let mut line = || {
        let mut bytes = Vec::new();
        header.read_until(b'\n', &mut bytes).map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes).ok().filter(|text| text.ends_with('\n'));
        text.map(|text| text.trim_end().to_owned()).ok_or_else(|| "the header is damaged".to_owned())
    };
    if line().ok().as_deref() != Some(MAGIC) {
        return Err(format!("not a dump: it does not start with '{MAGIC}'"));
    }
    let mut fields = Vec::new();
    loop {
        let text = line()?;
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(' ').ok_or_else(|| format!("a line without a value: {text}"))?;
        fields.push((name.to_owned(), value.to_owned()));
    }
    let header = MOST_HEADER - header.limit();
    let text = |name: &str| field(&fields, name).ok_or_else(|| format!("the header has no {name}"));
    let size = |name: &str| {
        let value = text(name)?;
        // Below 2^31 so that their products fit in the checks below.
        let size = value.parse::<usize>().ok().filter(|size| (1..=i32::MAX as usize).contains(size));
        size.ok_or_else(|| format!("{name} {value} is not a size"))
    };
    let scalar = |name: &str| {
        let value = text(name)?;
        let is_bits = value.len() == 16 && value.bytes().all(|digit| digit.is_ascii_hexdigit());
        let bits = u64::from_str_radix(value, 16).ok().filter(|_| is_bits);
        let scalar = bits.map(f64::from_bits).filter(|x| x.is_finite());
        scalar.ok_or_else(|| format!("{name} {value} is not the bits of a finite number"))
    };
    let (m, n, k) = (size("m")?, size("n")?, size("k")?);
    let (alpha, beta) = (scalar("alpha")?, scalar("beta")?);
    if alpha == 0.0 {
        return Err("alpha is 0".to_owned());
    }
    let counts = [m * k, k * n, m * n, m * n, m * n];
    let wanted = 8 * counts.iter().map(|&count| count as u128).sum::<u128>() + u128::from(header);
    if wanted != u128::from(length) {
        return Err(format!("{length} bytes, where its header promises {wanted}"));
    }
    let mut matrices = counts.map(|_| Vec::new());
    for (matrix, count) in matrices.iter_mut().zip(counts) {
        *matrix = doubles(from, count)?;
    }
    let [a, b, before, emulated, native] = matrices;
    Ok(Call { fields, m, n, k, alpha, beta, a, b, before, emulated, native })
}

fn doubles(from: &mut impl Read, count: usize) -> Result<Vec<f64>, String> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| "no memory for its matrices".to_owned())?;
    let mut bytes = [0; 8];
    for _ in 0..count {
        from.read_exact(&mut bytes).map_err(|error| error.to_string())?;
        out.push(f64::from_le_bytes(bytes));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 2 x 1 product with k = 3.
    fn file() -> Vec<u8> {
        let mut out =
            format!("{MAGIC}\nm 2\nn 1\nk 3\nalpha 3ff0000000000000\nbeta 8000000000000000\nx y z\n\n");
        let mut bytes = std::mem::take(&mut out).into_bytes();
        (0..15).for_each(|x| bytes.extend(f64::from(x).to_le_bytes()));
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<Call, String> {
        parse(&mut &bytes[..], bytes.len() as u64)
    }

    fn with(old: &str, new: &str) -> Vec<u8> {
        let all = file();
        let at = all.windows(old.len()).position(|part| part == old.as_bytes()).unwrap();
        [&all[..at], new.as_bytes(), &all[at + old.len()..]].concat()
    }

    #[test]
    fn a_file_is_read_as_it_was_meant() {
        let call = parsed(&file()).unwrap();
        assert_eq!((call.m, call.n, call.k, call.alpha, call.field("x")), (2, 1, 3, 1.0, Some("y z")));
        assert_eq!(call.a, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((call.b, call.before), (vec![6.0, 7.0, 8.0], vec![9.0, 10.0]));
        assert_eq!((call.emulated, call.native), (vec![11.0, 12.0], vec![13.0, 14.0]));
    }

    #[test]
    fn every_damage_is_named() {
        let whole = file();
        for length in 0..whole.len() {
            assert!(parsed(&whole[..length]).is_err(), "{length} bytes");
        }
        assert!(parsed(&[&whole[..], b"x"].concat()).is_err());
        let damages = [
            ("oz2blas", "oz3blas"),
            ("m 2", "m 0"),
            ("m 2", "m -2"),
            ("m 2", "m 3"),
            ("m 2", "q 2"),
            ("m 2", "m 99999999999999999999"),
            ("k 3", "k 2147483647"),
            ("k 3", "k"),
            ("3ff0000000000000", "3ff"),
            ("3ff0000000000000", "7ff0000000000000"),
            ("3ff0000000000000", "0000000000000000"),
            ("3ff0000000000000", "+ff0000000000000"),
            ("\n\n", "\n"),
        ];
        for (old, new) in damages {
            let error = parsed(&with(old, new)).expect_err(new);
            assert!(!error.contains('\n') && error.len() < 120, "{error}");
        }
        // A header that never ends.
        assert!(parsed(&[MAGIC.as_bytes(), b"\n", &b"a b\n".repeat(1 << 15)].concat()).is_err());
    }
}
