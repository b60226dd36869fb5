//! cpu.svg: GFLOP/s of square products against n, a panel for each number of threads.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::amx::State;
use crate::markdown::{in_words, state_title, threads};
use crate::record::{BUILTIN, Case, Clock, MKL, OPENBLAS, OURS};
use crate::report::Report;
use crate::summary::Summary;

/// Colours that the colour-blind can tell apart (Okabe and Ito).
const LINES: [(&str, RGBColor); 4] = [
    (OPENBLAS, RGBColor(0, 114, 178)),
    (MKL, RGBColor(0, 158, 115)),
    (BUILTIN, RGBColor(150, 150, 150)),
    (OURS, RGBColor(213, 94, 0)),
];
const PANEL: (u32, u32) = (560, 420);
const FONT: &str = "sans-serif";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A point of a line, and whether the calls were emulated.
struct Point {
    n: f64,
    gflops: f64,
    emulated: bool,
}

/// The picture as text; None without square products.
pub fn of(report: &Report) -> Outcome<Option<String>> {
    let squares = |threads: usize| -> Vec<&Case> {
        let is_one = |case: &&Case| case.threads == threads && case.task.square().is_some();
        report.cases.iter().filter(is_one).collect()
    };
    let panels: Vec<(usize, Vec<&Case>)> = threads(report)
        .into_iter()
        .map(|threads| (threads, squares(threads)))
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    {
        let size = (PANEL.0 * panels.len() as u32, PANEL.1);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, (threads, cases)) in root.split_evenly((1, panels.len())).iter().zip(&panels) {
            panel(area, *threads, cases)?;
        }
        root.present()?;
    }
    Ok(Some(text))
}

/// The state in which most turns were.
fn usual_state(cases: &[&Case]) -> State {
    let turns = || cases.iter().flat_map(|case| &case.entrants).flat_map(|entrant| &entrant.turns);
    let count = |state: &State| turns().filter(|turn| turn.state() == *state).count();
    State::ALL.into_iter().max_by_key(count).unwrap_or(State::None)
}

fn points(cases: &[&Case], name: &str, state: State) -> Vec<Point> {
    let point = |case: &&Case| {
        let figure = Summary::of(case, state, case.clock()).figures.get(name).copied()?;
        Some(Point {
            n: case.task.square()? as f64,
            gflops: 1e-9 * case.task.flops() / figure.median,
            emulated: case.entrant(name)?.notes_in(state).last().is_some_and(|note| note.is_emulated()),
        })
    };
    cases.iter().filter_map(point).collect()
}

fn panel(area: &DrawingArea<SVGBackend, Shift>, threads: usize, cases: &[&Case]) -> Outcome<()> {
    let state = usual_state(cases);
    let clock = if cases[0].clock() == Clock::Cpu { "CPU time" } else { "wall clock" };
    let lines: Vec<_> =
        LINES.iter().map(|(name, colour)| (name, colour, points(cases, name, state))).collect();
    let all = || lines.iter().flat_map(|(_, _, points)| points);
    let sizes = cases.iter().filter_map(|case| case.task.square()).map(|n| n as f64);
    let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |(x, y), n| (x.min(n), y.max(n)));
    let top = 1.08 * all().map(|point| point.gflops).fold(1.0, f64::max);
    let title = format!("{}, {}, {clock}", in_words(threads), state_title(state));
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 17))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(54)
        // By the logarithm: labels then stand at powers of two.
        .build_cartesian_2d(least.log2() - 0.2..most.log2() + 0.2, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("n = m = k")
        .y_desc("GFLOP/s, median")
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .x_labels(10)
        .x_label_formatter(&|x| if x.fract() == 0.0 { format!("{}", x.exp2()) } else { String::new() })
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (name, colour, points) in lines.iter().filter(|(_, _, points)| !points.is_empty()) {
        let place = |point: &Point| (point.n.log2(), point.gflops);
        let label = if **name == OURS { "oz2 (filled: emulated)" } else { *name };
        let colour = **colour;
        chart
            .draw_series(LineSeries::new(points.iter().map(place), colour.stroke_width(2)))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        for inside in [true, false] {
            let some = points.iter().filter(|point| point.emulated == inside);
            let style = if inside { colour.filled() } else { colour.stroke_width(1) };
            chart.draw_series(some.map(|point| Circle::new(place(point), 3, style)))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Note, Task};
    use crate::sample;

    fn case(n: usize, threads: usize) -> Case {
        let task = Task::Gemm { m: n, n, k: n };
        let entrants = LINES.iter().zip([70.0, 80.0, 75.0, n as f64 / 12.0]).map(|((name, _), gflops)| {
            let seconds = 1e-9 * task.flops() / gflops / threads as f64;
            let route = if n >= 512 { "emulated: amx, N = 14" } else { "native: no gain" };
            let note = Note { route: route.to_owned(), phases: Default::default() };
            let entrant = sample::entrant(name, &[(seconds, 5.0)]);
            if *name == OURS { sample::noted(entrant, &note) } else { entrant }
        });
        Case { task, threads, entrants: entrants.collect() }
    }

    #[test]
    fn a_picture_has_a_panel_for_each_number_of_threads() {
        let sizes = [64, 128, 256, 384, 512, 768, 1024, 1536, 2048];
        let cases = sizes.iter().flat_map(|&n| [case(n, 1), case(n, 2)]).collect();
        let mut report = sample::report(cases);
        let text = of(&report).unwrap().unwrap();
        for words in
            ["one thread, AMX state fast, CPU time", "two threads, AMX state fast, wall clock", "512", MKL]
        {
            assert!(text.contains(words), "{words}");
        }
        report.cases.clear();
        assert!(of(&report).unwrap().is_none());
    }
}
