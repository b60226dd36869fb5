//! Numbers and foreign text as people read them.

/// For HTML: text between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Invisible, or turned by what follows.
            c if c.is_control()
                || ('\u{202a}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c) =>
            {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    out
}

/// With a comma every three digits.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three digits and a unit.
pub fn scaled(value: f64, unit: &str, prefixes: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let (factor, prefix) =
        prefixes.iter().copied().find(|(factor, _)| value >= 0.9995 * factor).unwrap_or((1.0, ""));
    format!("{} {prefix}{unit}", digits(value / factor))
}

/// Three digits of a positive number.
pub fn digits(value: f64) -> String {
    match value {
        value if !value.is_finite() => "\u{2013}".to_owned(),
        0.0 => "0".to_owned(),
        value if value < 0.001 => format!("{value:.1e}"),
        value if value < 0.00995 => format!("{value:.4}"),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

pub fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 7200.0 => format!("{} h", digits(seconds / 3600.0)),
        seconds if seconds >= 120.0 => format!("{} min", digits(seconds / 60.0)),
        seconds if seconds > 0.0 && seconds < 0.9995 => {
            scaled(seconds * 1e9, "s", &[(1e6, "m"), (1e3, "\u{b5}"), (1.0, "n")])
        }
        seconds => scaled(seconds, "s", &[]),
    }
}

pub fn flops(value: f64) -> String {
    scaled(value, "flop", &[(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")])
}

/// Of a part from 0 to 1; "-" for a part of nothing.
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        percent if !percent.is_finite() => "-".to_owned(),
        0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "< 0.1 %".to_owned(),
        percent if !(10.0..=99.0).contains(&percent) && percent != 100.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A moment in seconds since 1970, in UTC.
pub fn date(seconds: u64) -> String {
    let (days, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Years begin with March here, so that the odd day is the last: Howard Hinnant, chrono-compatible low-level date algorithms.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_harmless() {
        assert_eq!(escape("<b>&\"x'"), "&lt;b&gt;&amp;&quot;x&#39;");
        assert_eq!(escape("a\nb\u{202e}c\u{1b}[2J"), "a\u{fffd}b\u{fffd}c\u{fffd}[2J");
    }

    #[test]
    fn numbers_are_as_people_write_them() {
        assert_eq!([0, 12, 1234, 1_234_567].map(count), ["0", "12", "1,234", "1,234,567"]);
        let times = [0.0, 3e-9, 1.5e-6, 0.0123, 1.0, 12.34, 119.0, 600.0, 36_000.0].map(time);
        assert_eq!(
            times,
            ["0 s", "3.00 ns", "1.50 \u{b5}s", "12.3 ms", "1.00 s", "12.3 s", "119 s", "10.0 min", "10.0 h"]
        );
        assert_eq!([2e3, 1.5e12, 0.0].map(flops), ["2.00 kflop", "1.50 Tflop", "0 flop"]);
        assert_eq!(
            [0.0, 0.0004, 0.05, 0.5, 0.996, 1.0, f64::NAN].map(percent),
            ["0 %", "< 0.1 %", "5.0 %", "50 %", "99.6 %", "100 %", "-"]
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(date(4_107_542_399), "2100-02-28 23:59:59 UTC");
    }
}
