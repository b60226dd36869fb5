//! rns.svg: the time for a number against the number of moduli, both by their logarithms, so that a power is a straight line.

use plotters::prelude::*;

use crate::forms::Form;
use crate::measure::Case;

/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];
const SIZE: (u32, u32) = (640, 460);
const FONT: &str = "sans-serif";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The picture as text: the sets of the paper.
pub fn of(cases: &[Case]) -> Outcome<String> {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.of_the_paper).collect();
    let place =
        |case: &Case, form: Form| ((case.moduli as f64).log2(), case.figure(form).nanoseconds().log10());
    let all = cases.iter().flat_map(|case| Form::ALL.map(|form| place(case, form)));
    let none = ((f64::INFINITY, f64::NEG_INFINITY), (f64::INFINITY, f64::NEG_INFINITY));
    let (x, y) = all.fold(none, |(x, y), point| {
        ((x.0.min(point.0), x.1.max(point.0)), (y.0.min(point.1), y.1.max(point.1)))
    });
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption("MAX over an array of residue numbers, one thread", (FONT, 17))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x.0 - 0.2..x.1 + 0.2, y.0.floor()..y.1.ceil())?;
        let whole = |x: f64| (x - x.round()).abs() < 1e-9;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("moduli")
            .y_desc("nanoseconds for a number")
            .axis_desc_style((FONT, 14))
            .label_style((FONT, 13))
            .x_label_formatter(&|x| if whole(*x) { format!("{}", x.exp2().round()) } else { String::new() })
            .y_label_formatter(&|y| {
                if whole(*y) { format!("{}", 10f64.powf(*y).round()) } else { String::new() }
            })
            .draw()?;
        for (form, colour) in Form::ALL.into_iter().zip(COLOURS) {
            let points: Vec<(f64, f64)> = cases.iter().map(|case| place(case, form)).collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
                .label(form.title())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 13))
            .draw()?;
        root.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::case;

    #[test]
    fn the_picture_has_a_line_for_each_form() {
        let text = of(&[case(4), case(8), case(16)]).unwrap();
        for words in ["interval evaluation", "mixed radix", "naive", "nanoseconds", "16"] {
            assert!(text.contains(words), "{words}");
        }
        assert!(text.matches("<polyline").count() >= 3);
    }
}
