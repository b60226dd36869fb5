//! The time line as SVG.

use std::fmt::Write;

use super::timeline::Buckets;
use crate::observe::format::{percent, time};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 150.0;
/// Below and above the bars.
const FOOT: f64 = 22.0;
const HEAD: f64 = 6.0;

/// A bar for each bucket up to `seconds`: emulated, native, and the rest of one thread. Higher where threads called at once.
pub fn svg(buckets: &Buckets, seconds: f64) -> String {
    let width = buckets.width;
    let used = ((seconds / width).ceil() as usize).clamp(1, buckets.emulated.len());
    // The last one is not over yet.
    let length = |at: usize| (seconds - at as f64 * width).clamp(width * 1e-3, width);
    let parts = |at: usize| (buckets.emulated[at] / length(at), buckets.native[at] / length(at));
    // What goes beyond one thread by less than this is a matter of rounding.
    let most = (0..used).map(|at| parts(at).0 + parts(at).1).fold(1.0, f64::max);
    let most = if most < 1.02 { 1.0 } else { most };
    let up = |part: f64| HEIGHT * (part / most).min(1.0);
    let right = |second: f64| WIDTH * second / seconds.max(width * 1e-3);
    let mut out = format!(
        r#"<svg viewBox="0 0 {WIDTH} {}" role="img" aria-label="Time line: emulated, native, rest of the program">"#,
        HEAD + HEIGHT + FOOT
    );
    let bottom = HEAD + HEIGHT;
    for at in 0..used {
        let (emulated, native) = parts(at);
        let (begin, end) = (at as f64 * width, at as f64 * width + length(at));
        let (x, w) = (right(begin), (right(end) - right(begin) - if used > 1 { 0.8 } else { 0.0 }).max(0.1));
        let _ = write!(
            out,
            "<g><title>{} to {}: {} emulated, {} native</title>",
            time(begin),
            time(end),
            percent(emulated),
            percent(native)
        );
        let (e, n, one) = (up(emulated), up(native), up(1.0));
        let mut bar = |class: &str, height: f64, above: f64| {
            if height > 0.0 {
                let y = bottom - above - height;
                let _ = write!(
                    out,
                    r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{height:.1}"/>"#
                );
            }
        };
        bar("r", one, 0.0);
        bar("n", n.min(HEIGHT - e), e);
        bar("e", e, 0.0);
        out += "</g>";
    }
    if most > 1.0 {
        let y = bottom - up(1.0);
        let _ = write!(out, r#"<line x1="0" x2="{WIDTH}" y1="{y:.1}" y2="{y:.1}"/>"#);
        let _ = write!(out, r#"<text x="4" y="{:.1}">one thread</text>"#, y - 4.0);
    }
    let marks = [(0.0, "start"), (0.5, "middle"), (1.0, "end")];
    for (part, anchor) in marks {
        let (x, y) = (WIDTH * part, bottom + 16.0);
        let _ =
            write!(out, r#"<text x="{x}" y="{y}" text-anchor="{anchor}">{}</text>"#, time(seconds * part));
    }
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_height_of_their_part() {
        let mut buckets = Buckets { width: 1.0, emulated: vec![0.0; 96], native: vec![0.0; 96] };
        buckets.emulated[0] = 0.5;
        buckets.native[1] = 1.0;
        let text = svg(&buckets, 2.0);
        assert_eq!(text.matches("<g>").count(), 2);
        assert!(text.contains(r#"<rect class="e" x="0.0" y="81.0" width="499.2" height="75.0"/>"#), "{text}");
        assert!(
            text.contains(r#"<rect class="n" x="500.0" y="6.0" width="499.2" height="150.0"/>"#),
            "{text}"
        );
        assert!(!text.contains("one thread"));
        // Three threads at once: a third of the height is one of them.
        buckets.emulated[0] = 3.0;
        let text = svg(&buckets, 2.0);
        assert!(text.contains("one thread") && text.contains(r#"height="50.0""#), "{text}");
    }

    #[test]
    fn no_time_at_all_is_a_picture_too() {
        let buckets = Buckets { width: 1.0, emulated: vec![0.0; 96], native: vec![0.0; 96] };
        let text = svg(&buckets, 0.0);
        assert!(text.ends_with("</svg>") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
