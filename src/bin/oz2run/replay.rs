//! `oz2run --replay FILE`: a call that differed from the native BLAS (OZ2_VERIFY_DUMP), once more.

use std::fmt::Write;
use std::path::Path;

use oz2blas::abi::verify;
use oz2blas::observe::compare::Worst;
use oz2blas::observe::dump;
use oz2blas::options;

/// Options that are as they were, unless the user says otherwise, and where the file has them.
const KEPT: [(&str, &str); 3] = [("MODE", "mode"), ("ACCURACY", "accuracy"), ("MODULI", "moduli-option")];

/// The report, and whether the call differs; or why it could not be made.
pub fn report(file: &Path, variables: &[(String, String)]) -> Result<(String, bool), String> {
    let call = dump::read(file)?;
    for (option, field) in KEPT {
        let variable = format!("OZ2_{option}");
        if std::env::var_os(&variable).is_none_or(|value| value.is_empty())
            && let Some(value) = call.field(field)
        {
            options::set_option(option, value, false);
        }
    }
    let asked = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // Every size is emulated, and the replay itself is not verified once more.
    for (name, value) in asked.chain([("MIN_SIZE", "0"), ("VERIFY", "off")]) {
        options::set_option(name, value, false);
    }
    let again = verify::replay(&call).ok_or("no memory for the call")?;
    if !again.is_emulated {
        return Err(format!("the call was not emulated this time: {}", again.last));
    }
    let mut out = String::new();
    let _ = render(&mut out, &call, &again);
    Ok((out, again.found.differing > 0))
}

fn render(out: &mut String, call: &dump::Call, again: &verify::Replayed) -> std::fmt::Result {
    for (name, value) in &call.fields {
        writeln!(out, "{name:<14} {value}")?;
    }
    writeln!(out, "now            {}", again.last)?;
    match again.other_bits {
        0 => writeln!(out, "emulated bits  the same as in the file")?,
        count => writeln!(
            out,
            "emulated bits  {count} of {} entries have others than in the file",
            call.m * call.n
        )?,
    }
    if let Some(Worst { i, j, entry, allowed, excess }) = &again.found.worst {
        writeln!(
            out,
            "largest        {excess:.3} of the allowed difference {allowed:.3e}, in row {i} column {j} (from 0): \
             emulated {:?} native {:?}",
            entry.emulated, entry.native
        )?;
    } else {
        writeln!(out, "largest        0: equal to the native result")?;
    }
    writeln!(out, "differing      {} of {} entries", again.found.differing, call.m * call.n)
}
