//! The page: one HTML file that needs nothing else, and no script.

use std::collections::BTreeMap;

use super::class::Fate;
use super::classes::{Total, groups, shapes};
use super::data::Data;
use super::table::{Cell, table};
use super::{advice, chart};
use crate::observe::format::{count, date, digits, escape, flops, percent, time};
use crate::observe::last::mode_name;
use crate::observe::stats;
use crate::options::Mode;
use crate::ozaki::plan::Accuracy;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn html(data: &Data) -> String {
    let program = data.command.first().map_or("unknown", String::as_str);
    let name = escape(program.rsplit('/').next().unwrap_or(program));
    let parts = [head, summary, advices, timeline, shapes, groups, promise, checks, circumstances];
    let body: String = parts.iter().map(|part| part(data)).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <title>oz2blas: {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\
         <script type=\"application/json\" id=\"statistics\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        statistics(data)
    )
}

/// What OZ2_STATS writes, for programs. It has no foreign text.
fn statistics(data: &Data) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = stats::write(&mut text, &data.snapshot);
    text
}

pub fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{body}</section>\n")
}

fn head(data: &Data) -> String {
    let command = escape(&data.command.join(" "));
    let rank = data.rank.as_ref().map_or(String::new(), |rank| format!(", rank {}", escape(rank)));
    format!(
        "<header>\n<p class=\"soft\">oz2blas {} report</p>\n<h1><code>{command}</code></h1>\n\
         <p class=\"soft\">{}, process {}{rank}. First call at {}, end {} later.</p>\n</header>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&data.host),
        data.pid,
        date(data.start),
        time(data.seconds),
    )
}

fn card(title: &str, value: &str, small: &str) -> String {
    format!("<div><dt>{title}</dt><dd>{value}<small>{small}</small></dd></div>\n")
}

fn summary(data: &Data) -> String {
    let (emulated, calls) = (data.snapshot.emulated(), data.calls());
    let share = emulated.flops as f64 / data.flops();
    let (in_calls, natively) = (data.in_calls(), data.natively());
    let without = match emulated.calls {
        0 => "Without oz2blas it would have taken the same.".to_owned(),
        _ => format!("Without oz2blas the model expects {}.", time(natively)),
    };
    let lead = format!(
        "{} {}, {} of the flops emulated; {} in DGEMM. {without}",
        count(calls),
        if calls == 1 { "call" } else { "calls" },
        percent(share),
        time(in_calls),
    );
    let gain = match emulated.calls {
        0 => "nothing was emulated".to_owned(),
        _ => format!("by the model: {} times as long", digits(natively / in_calls)),
    };
    let bound = data.rows.iter().map(|row| row.class.sums.bound).fold(0.0, f64::max);
    let proved = match bound {
        0.0 => card("Proved bound", "none", "no call of the mode auto was emulated"),
        bound => {
            card("Proved bound", &format!("{} u", digits(bound)), "times |A||B|, for each emulated entry")
        }
    };
    let cards = [
        card(
            "Calls",
            &format!(r#"<data id="calls" value="{calls}">{}</data>"#, count(calls)),
            &format!(
                r#"<data id="emulated" value="{}">{}</data> emulated"#,
                emulated.calls,
                count(emulated.calls)
            ),
        ),
        card(
            "Work",
            &format!(r#"<data id="flops" value="{}">{}</data>"#, data.flops(), flops(data.flops())),
            &format!("{} emulated", percent(share)),
        ),
        card(
            "Time in DGEMM",
            &format!(r#"<data id="seconds" value="{in_calls:.6}">{}</data>"#, time(in_calls)),
            &format!("{} since the first call", percent_of_time(data)),
        ),
        card("Without oz2blas", &time(natively), &gain),
        proved,
    ];
    let missed = match data.missed {
        0 => String::new(),
        missed => {
            format!("<p class=\"note\">{} calls are in no table, for want of room.</p>\n", count(missed))
        }
    };
    format!("<p class=\"lead\">{lead}</p>\n<dl class=\"cards\">\n{}</dl>\n{missed}", cards.concat())
}

/// Time in calls beside the time that passed. Threads that call at once may make it more than all of it.
fn percent_of_time(data: &Data) -> String {
    format!("{} of the {}", percent(data.in_calls() / data.seconds), time(data.seconds))
}

fn advices(data: &Data) -> String {
    let items: String = advice::all(data)
        .iter()
        .map(|advice| {
            let class = if advice.is_warning { " class=\"warning\"" } else { "" };
            format!("<li{class}>{}</li>\n", escape(&advice.text))
        })
        .collect();
    section("What to change to gain more", &format!("<ul class=\"advice\">\n{items}</ul>\n"))
}

fn timeline(data: &Data) -> String {
    let key = "<p class=\"key\"><span class=\"e\">emulated</span><span class=\"n\">native DGEMM</span>\
               <span>rest of the program</span>the height is the part of the time of one thread</p>\n";
    section("Time line", &(key.to_owned() + &chart::svg(&data.timeline, data.seconds) + "\n"))
}

fn promise(data: &Data) -> String {
    // By mode and accuracy: calls, the largest T + 1, and native lines.
    let mut kinds: BTreeMap<(String, String), (Total, f64)> = BTreeMap::new();
    for row in data.emulated() {
        let Fate::Emulated { mode, accuracy, .. } = row.class.fate else { continue };
        let promise = match (mode, accuracy) {
            (Mode::Auto, Accuracy::Fp64) => "fp64: T = 2 sqrt(n)",
            (Mode::Auto, Accuracy::Textbook) => "textbook: T = n - 1",
            (Mode::Auto, Accuracy::High) => "high: T = 1",
            _ => "nothing is proved",
        };
        let kind = kinds.entry((mode_name(mode).to_owned(), promise.to_owned())).or_default();
        let one = Total::of([row]);
        kind.0.calls += one.calls;
        kind.0.seconds += one.seconds;
        kind.1 = kind.1.max(row.class.sums.bound);
    }
    if kinds.is_empty() {
        let text = "<p>No call was emulated: all results are those of the native BLAS.</p>\n";
        return section("What is promised of the results", text);
    }
    let largest = kinds.values().map(|(_, bound)| *bound).fold(0.0, f64::max);
    let rows: Vec<Vec<Cell>> = kinds
        .into_iter()
        .map(|((mode, promise), (total, bound))| {
            let shown = if bound > 0.0 { digits(bound) } else { "none".to_owned() };
            vec![
                Cell::Text(mode),
                Cell::Text(promise),
                Cell::Number(count(total.calls), total.calls as f64),
                Cell::Number(shown, bound),
            ]
        })
        .collect();
    let heads = [("mode", false), ("promise", false), ("calls", true), ("largest T + 1", true)];
    let words = if largest > 0.0 {
        format!(
            "<p>Each entry that a call of the mode auto computed by emulation is proved to satisfy \
             <code>|C - AB| &lt;= (T + 1) u (|A||B|) + 2^-1075</code> with u = 2^-53, where n counts the nonzeros of its row or \
             column, whichever has fewer. The largest T + 1 of this run is {}: no such entry is further from the exact one than {:.1e} \
             times the same entry of |A||B|. The textbook bound of a DGEMM is n u. docs/accuracy.md has the proof, and what holds \
             with alpha and beta.</p>\n",
            digits(largest),
            largest * f64::EPSILON / 2.0,
        )
    } else {
        "<p>The modes accurate and fast take a fixed number of moduli and prove nothing.</p>\n".to_owned()
    };
    let native = match (data.snapshot.rows_native, data.snapshot.columns_native) {
        (0, 0) => String::new(),
        (rows, columns) => format!(
            "<p>{} rows and {} columns of C in these calls were computed by the native BLAS, and have its accuracy.</p>\n",
            count(rows),
            count(columns)
        ),
    };
    section("What is promised of the results", &format!("{}{words}{native}", table(&heads, &rows)))
}

fn checks(data: &Data) -> String {
    let s = &data.snapshot;
    let check = match (s.checked, s.flagged) {
        (0, _) => "The self-check was off (OZ2_CHECK=on finds wrong bits in the products).".to_owned(),
        (checked, 0) => format!("The self-check looked at {} calls and flagged nothing.", count(checked)),
        (checked, flagged) => format!(
            "The self-check looked at {} calls and flagged {} tiles, of which a second computation put {} right.",
            count(checked),
            count(flagged),
            count(s.repaired)
        ),
    };
    let verify = match (s.verified, s.differing) {
        (0, _) => "No call was computed natively too (OZ2_VERIFY=n does that with every n-th).".to_owned(),
        (verified, 0) => {
            format!(
                "{} calls were computed natively too, and none differs by more than both error bounds.",
                count(verified)
            )
        }
        (verified, differing) => format!(
            "{} calls were computed natively too, and {} differ by more than both error bounds.",
            count(verified),
            count(differing)
        ),
    };
    section("Checks", &format!("<p>{check}</p>\n<p>{verify}</p>\n"))
}

fn circumstances(data: &Data) -> String {
    let engines = match &data.engines {
        None => "not asked for by the calls of this run".to_owned(),
        Some(engines) if engines.is_empty() => "none".to_owned(),
        Some(engines) => engines.join(", "),
    };
    let natives: Vec<String> = data
        .natives
        .iter()
        .map(|(file, bits)| match bits {
            Some(bits) => format!("{file} (integers of {bits} bits)"),
            None => format!("{file} (integers in doubt)"),
        })
        .collect();
    let facts = [
        ("Processor", data.cpu.clone()),
        ("Engines", engines),
        ("Threads", data.threads.to_string()),
        (
            "Native BLAS",
            if natives.is_empty() { "none found: the embedded one".to_owned() } else { natives.join(", ") },
        ),
    ];
    let facts: Vec<Vec<Cell>> =
        facts.into_iter().map(|(name, value)| vec![Cell::Text(name.to_owned()), Cell::Text(value)]).collect();
    let (set, default): (Vec<_>, Vec<_>) =
        data.settings.iter().partition(|setting| setting.origin != "default");
    let options = |settings: &[&super::data::Setting]| {
        let rows: Vec<Vec<Cell>> = settings
            .iter()
            .map(|s| {
                vec![Cell::Text(s.name.clone()), Cell::Text(s.value.clone()), Cell::Text(s.origin.to_owned())]
            })
            .collect();
        table(&[("option", false), ("value", false), ("from", false)], &rows)
    };
    let set =
        if set.is_empty() { "<p>All options have their defaults.</p>\n".to_owned() } else { options(&set) };
    let default = options(&default);
    let body = format!(
        "{}{set}<details><summary>Options with their default</summary>\n{default}</details>\n",
        table(&[("", false), ("", false)], &facts)
    );
    section("Machine and options", &body)
        + "<footer class=\"note\">Times are those of the calls, added over all threads. What each section means: docs/report.md; \
           the names of Reasons: docs/statistics.md.</footer>\n"
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::{data, emulated, native};
    use super::*;
    use crate::route::Reason;

    fn page() -> String {
        let rows = vec![
            emulated(500, 400, 300, 1234, 4.0),
            native(500, 400, 300, 3, 1.0, Reason::NoGain),
            native(0, 0, 0, 1, 0.0, Reason::IllegalArgument),
        ];
        html(&data(rows, &[]))
    }

    #[test]
    fn nothing_from_outside_is_taken_for_html() {
        let page = page();
        assert!(page.contains("./&lt;b&gt;&amp;&quot;x&quot; a&#39;b"));
        assert!(!page.contains("<b>&\"x\""));
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn the_figures_are_those_of_the_calls() {
        let page = page();
        for text in [
            "1,238 calls, ",
            "of the flops emulated; 5.00 s in DGEMM. Without oz2blas the model expects 9.00 s.",
            r#"<data id="calls" value="1238">1,238</data>"#,
            r#"<data id="emulated" value="1234">1,234</data> emulated"#,
            "emulated, N = 14 (1,234); native: no gain (3)",
            "500 \u{d7} 400 \u{d7} 300",
            "91.5",
            "1.0e-14",
            "2023-11-14 22:13:20 UTC",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("NaN s") && !page.contains("inf"));
    }
}
