//! Tables of the page.

use crate::observe::format::{escape, percent};

pub enum Cell {
    Text(String),
    /// As it is shown, and what it is sorted by.
    Number(String, f64),
    /// A part from 0 to 1, with a bar; the parts of it that were emulated and native.
    Share(f64, f64),
}

impl Cell {
    fn html(&self) -> String {
        match self {
            Self::Text(text) => format!("<td>{}</td>", escape(text)),
            Self::Number(text, value) => {
                format!(r#"<td class="number" data-v="{value}">{}</td>"#, escape(text))
            }
            Self::Share(part, emulated) => {
                let width = (100.0 * part).clamp(0.0, 100.0);
                let class = if *emulated > 0.5 { "" } else { r#" class="native""# };
                format!(
                    r#"<td class="number" data-v="{part}">{}<span class="bar"><i{class} style="width:{width:.1}%"></i></span></td>"#,
                    percent(*part)
                )
            }
        }
    }
}

/// Rows that are shown before the rest is folded.
const SHOWN: usize = 15;

/// A table; the heads of columns, with a mark for those of numbers.
pub fn table(heads: &[(&str, bool)], rows: &[Vec<Cell>]) -> String {
    let head: String = heads
        .iter()
        .map(|(name, is_number)| {
            let class = if *is_number { r#" class="number""# } else { "" };
            format!(r#"<th scope="col"{class}>{}</th>"#, escape(name))
        })
        .collect();
    let head = if heads.iter().all(|(name, _)| name.is_empty()) {
        String::new()
    } else {
        format!("<thead><tr>{head}</tr></thead>\n")
    };
    let class = if head.is_empty() { "" } else { " class=\"sortable\"" };
    let row = |row: &Vec<Cell>| format!("<tr>{}</tr>\n", row.iter().map(Cell::html).collect::<String>());
    let body: String = rows.iter().map(row).collect();
    format!("<div class=\"table\"><table{class}>\n{head}<tbody>{body}</tbody></table></div>\n")
}

/// A long table, of which only the first rows are seen at once.
pub fn folded(heads: &[(&str, bool)], rows: &[Vec<Cell>], what: &str) -> String {
    if rows.len() <= SHOWN + 3 {
        return table(heads, rows);
    }
    let (first, rest) = rows.split_at(SHOWN);
    let (first, rest, count) = (table(heads, first), table(heads, rest), rest.len());
    format!("{first}<details><summary>{count} more {what}</summary>\n{rest}</details>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_is_folded_and_a_short_one_is_not() {
        let of = |count: usize| {
            let rows: Vec<Vec<Cell>> = (0..count).map(|at| vec![Cell::Text(format!("<{at}>"))]).collect();
            folded(&[("name", false)], &rows, "things")
        };
        assert!(!of(18).contains("<details>"));
        let long = of(40);
        assert!(long.contains("25 more things") && long.matches("<tr><td>&lt;").count() == 40);
    }
}
