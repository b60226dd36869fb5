//! The sections of the page that add calls up: by shape, engine, moduli, plan and Reason.

use std::collections::BTreeMap;

use super::class::{Fate, Size};
use super::data::{Data, Row};
use super::page::section;
use super::table::{Cell, folded, table};
use crate::engine::NAMES;
use crate::observe::format::{count, digits, flops, time};
use crate::options::MinSize;
use crate::route::Reason;

/// Sums over some rows.
#[derive(Default)]
pub struct Total {
    pub calls: u64,
    pub flops: f64,
    pub seconds: f64,
    native: f64,
    emulated: f64,
}

impl Total {
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        rows.into_iter().fold(Self::default(), |total, row| Self {
            calls: total.calls + row.class.sums.calls,
            flops: total.flops + row.flops(),
            seconds: total.seconds + row.seconds(),
            native: total.native + row.native,
            emulated: total.emulated + if row.is_emulated() { row.seconds() } else { 0.0 },
        })
    }
}

/// "emulated N = 14 (200), native: no gain (3)", the most frequent first.
fn routes(rows: &[&Row]) -> String {
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let name = match row.class.fate {
            Fate::Native(reason) => format!("native: {}", reason.name()),
            Fate::Emulated { moduli, reason: None, .. } => format!("emulated, N = {moduli}"),
            Fate::Emulated { moduli, reason: Some(reason), .. } => {
                format!("emulated, N = {moduli}, and {}", reason.name())
            }
        };
        *parts.entry(name).or_default() += row.class.sums.calls;
    }
    let mut parts: Vec<(String, u64)> = parts.into_iter().collect();
    parts.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    match &parts[..] {
        [(name, _)] => name.clone(),
        parts => {
            let all: Vec<String> =
                parts.iter().map(|(name, calls)| format!("{name} ({})", count(*calls))).collect();
            all.join("; ")
        }
    }
}

fn size_name(size: Size) -> String {
    match size {
        Size::Shape(0, 0, 0) => "not read".to_owned(),
        Size::Shape(m, n, k) => format!("{m} \u{d7} {n} \u{d7} {k}"),
        Size::Others(class) => {
            format!("other shapes, about {} cubed", 1u64 << class)
        }
    }
}

/// The section about shapes, by time.
pub fn shapes(data: &Data) -> String {
    let mut by_size: BTreeMap<Size, Vec<&Row>> = BTreeMap::new();
    for row in &data.rows {
        by_size.entry(row.class.size).or_default().push(row);
    }
    let all = Total::of(&data.rows).seconds;
    let mut lines: Vec<(Total, Vec<Cell>)> = by_size
        .into_iter()
        .map(|(size, rows)| {
            let total = Total::of(rows.iter().copied());
            let order = match size {
                Size::Shape(m, n, k) => m as f64 * n as f64 * k as f64,
                Size::Others(class) => 8f64.powi(class as i32),
            };
            let rate = total.flops / total.seconds / 1e9;
            let (without, gain) = if total.emulated > 0.0 {
                let gain = total.native / total.seconds;
                (Cell::Number(time(total.native), total.native), Cell::Number(digits(gain), gain))
            } else {
                (Cell::Number("\u{2013}".to_owned(), 0.0), Cell::Number("\u{2013}".to_owned(), 0.0))
            };
            let cells = vec![
                Cell::Number(size_name(size), order),
                Cell::Number(count(total.calls), total.calls as f64),
                Cell::Number(time(total.seconds), total.seconds),
                Cell::Share(total.seconds / all, total.emulated / total.seconds),
                Cell::Number(if rate.is_finite() { digits(rate) } else { "\u{2013}".to_owned() }, rate),
                without,
                gain,
                Cell::Text(routes(&rows)),
            ];
            (total, cells)
        })
        .collect();
    lines.sort_by(|a, b| b.0.seconds.total_cmp(&a.0.seconds).then(b.0.calls.cmp(&a.0.calls)));
    let rows: Vec<Vec<Cell>> = lines.into_iter().map(|(_, cells)| cells).collect();
    let heads = [
        ("m \u{d7} n \u{d7} k", true),
        ("calls", true),
        ("time", true),
        ("of the time in DGEMM", true),
        ("Gflop/s", true),
        ("natively", true),
        ("gain", true),
        ("route", false),
    ];
    let model = match data.options.min_size {
        MinSize::Auto => "corrected by what calls of about that size took",
        MinSize::Work(_) => "not corrected by what calls take on this machine, as OZ2_MIN_SIZE is a number",
    };
    let note = format!(
        "<p class=\"note\"><b>natively</b>: for emulated calls what the native BLAS would have taken. Where it computed the same shape \
         in this run, that time counts; else it is the time model's guess for a fast BLAS on {} {}, {model}. <b>gain</b>: how many times \
         as long that is.</p>\n",
        data.threads,
        if data.threads == 1 { "thread" } else { "threads" },
    );
    let table = folded(&heads, &rows, "shapes");
    section("By shape", &format!("<div class=\"wide\">\n{table}</div>\n{note}"))
}

/// A small table: names, calls, work, time with its share.
fn group<'a, K: Ord>(data: &'a Data, title: &str, key: impl Fn(&'a Row) -> Option<(K, String)>) -> String {
    let mut by_key: BTreeMap<K, (String, Vec<&Row>)> = BTreeMap::new();
    for row in &data.rows {
        if let Some((key, name)) = key(row) {
            by_key.entry(key).or_insert_with(|| (name, Vec::new())).1.push(row);
        }
    }
    if by_key.is_empty() {
        return String::new();
    }
    let all = Total::of(&data.rows).seconds;
    let rows: Vec<Vec<Cell>> = by_key
        .into_values()
        .map(|(name, rows)| {
            let total = Total::of(rows.iter().copied());
            vec![
                Cell::Text(name),
                Cell::Number(count(total.calls), total.calls as f64),
                Cell::Number(flops(total.flops), total.flops),
                Cell::Number(time(total.seconds), total.seconds),
                Cell::Share(total.seconds / all, total.emulated / total.seconds),
            ]
        })
        .collect();
    let heads =
        [("", false), ("calls", true), ("work", true), ("time", true), ("of the time in DGEMM", true)];
    format!("<div>\n<h3>{title}</h3>\n{}</div>\n", table(&heads, &rows))
}

/// The same calls in other ways.
pub fn groups(data: &Data) -> String {
    let by_engine = group(data, "By engine", |row| {
        Some(match row.class.fate {
            Fate::Emulated { engine, .. } => (engine, NAMES[engine].to_owned()),
            Fate::Native(_) => (NAMES.len(), "native BLAS".to_owned()),
        })
    });
    let by_moduli = group(data, "By number of moduli N", |row| match row.class.fate {
        Fate::Emulated { moduli, .. } => Some((moduli, format!("N = {moduli}"))),
        Fate::Native(_) => None,
    });
    let by_way = group(data, "By the step that found the plan", |row| match row.class.fate {
        Fate::Emulated { way: Some(way), .. } => Some((way as usize, way.name().to_owned())),
        _ => None,
    });
    let by_reason = group(data, "By Reason of not being emulated", |row| match row.class.fate {
        Fate::Native(reason) => Some((reason as usize, reason.name().to_owned())),
        Fate::Emulated { reason: Some(reason), .. } => {
            Some((reason as usize, format!("{} (in part)", reason.name())))
        }
        Fate::Emulated { .. } => None,
    });
    let nested = match data.snapshot.reasons[Reason::Nested as usize].calls {
        0 => String::new(),
        calls => format!(
            "<p class=\"note\">{} more calls came from inside of these, from a BLAS that calls itself.</p>\n",
            count(calls)
        ),
    };
    let all = [by_engine, by_moduli, by_way, by_reason].concat();
    section("By engine, moduli, plan and Reason", &format!("<div class=\"groups\">\n{all}</div>\n{nested}"))
}
