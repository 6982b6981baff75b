//! Plots as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// One curve of a rate-by-size plot.
pub struct Curve {
    /// Legend.
    pub name: String,
    /// Size in bytes, rate in Mbit/s.
    pub points: Vec<(u64, f64)>,
    /// Colour.
    pub colour: RGBColor,
    /// If true, the curve was printed in the paper and is drawn with open points and a thin line.
    /// Measurements of this project are drawn solid.
    pub from_paper: bool,
}

/// Plots the rate by the transfer size, both axes logarithmic, as in the LSL paper.
///
/// # Errors
/// The drawing library fails.
pub fn rate_by_size(title: &str, curves: &[Curve]) -> Result<String> {
    drawn(title, |svg| draw_rate_by_size(svg, title, curves))
}

/// Returns the drawing of `draw`.
///
/// # Errors
/// The drawing library fails.
pub fn drawn(title: &str, draw: impl FnOnce(&mut String) -> Drawing) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg).map_err(|error| anyhow!("cannot draw {title:?}: {error}"))?;
    Ok(svg)
}

/// Result of a drawing.
pub type Drawing = Result<(), Box<dyn std::error::Error>>;

fn draw_rate_by_size(svg: &mut String, title: &str, curves: &[Curve]) -> Drawing {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let size = points()
        .map(|point| point.0)
        .fold((u64::MAX, 1), |(low, high), x| (low.min(x), high.max(x)));
    let rate = points()
        .map(|point| point.1)
        .fold((f64::MAX, 0.0), |(low, high), y| {
            (f64::min(low, y), f64::max(high, y))
        });
    let canvas = SVGBackend::with_string(svg, (800, 500)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(
            ((size.0 as f64)..(size.1 as f64)).log_scale().base(2.0),
            (rate.0 * 0.8..rate.1 * 1.25).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("transfer size")
        .y_desc("Mbit/s")
        .x_label_formatter(&|bytes| crate::experiments::depots::size(*bytes as u64))
        .y_label_formatter(&|rate| format!("{rate:.1}"))
        .draw()?;
    for curve in curves {
        let data = || curve.points.iter().map(|(x, y)| (*x as f64, *y));
        let style = curve
            .colour
            .stroke_width(if curve.from_paper { 1 } else { 2 });
        let colour = curve.colour;
        chart
            .draw_series(LineSeries::new(data(), style))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        let point = if curve.from_paper {
            colour.stroke_width(1)
        } else {
            colour.filled()
        };
        chart.draw_series(data().map(|at| Circle::new(at, 4, point)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    canvas.present()?;
    Ok(())
}

/// One row of a strip plot: the ratios of paired runs.
pub struct Strip {
    /// Row label.
    pub name: String,
    /// Depot rate divided by direct rate, one for each run.
    pub ratios: Vec<f64>,
}

/// Plots every paired ratio as a point, with a row for each setting and a line at 1.
///
/// # Errors
/// The drawing library fails.
pub fn ratio_strips(title: &str, strips: &[Strip]) -> Result<String> {
    drawn(title, |svg| draw_ratio_strips(svg, title, strips))
}

fn draw_ratio_strips(svg: &mut String, title: &str, strips: &[Strip]) -> Drawing {
    let most = strips
        .iter()
        .flat_map(|strip| strip.ratios.iter())
        .fold(2.0, |most: f64, ratio| most.max(*ratio));
    let rows = strips.len() as f64;
    let canvas =
        SVGBackend::with_string(svg, (800, 80 + 40 * strips.len() as u32)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(230)
        .build_cartesian_2d((0.5..most * 1.1).log_scale(), 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_desc("rate through depots / direct rate")
        .x_label_formatter(&|ratio| format!("{ratio:.1}"))
        .draw()?;
    chart.draw_series(LineSeries::new([(1.0, 0.0), (1.0, rows)], BLACK.mix(0.5)))?;
    for (row, strip) in strips.iter().enumerate() {
        let y = rows - row as f64 - 0.5;
        chart.draw_series(
            strip
                .ratios
                .iter()
                .map(|x| Circle::new((*x, y), 4, BLUE.mix(0.5).filled())),
        )?;
        if let Some(spread) = crate::stats::Spread::from_samples(&strip.ratios) {
            chart.draw_series([PathElement::new(
                [(spread.median, y - 0.3), (spread.median, y + 0.3)],
                RED.stroke_width(2),
            )])?;
        }
        let (_, pixel_y) = chart.backend_coord(&(1.0, y));
        canvas.draw(&Text::new(
            strip.name.as_str(),
            (12, pixel_y - 7),
            ("sans-serif", 14),
        ))?;
    }
    canvas.present()?;
    Ok(())
}

/// Distinct colours for curves.
pub fn colour(index: usize) -> RGBColor {
    const COLOURS: [RGBColor; 10] = [
        RGBColor(31, 119, 180),
        RGBColor(255, 127, 14),
        RGBColor(44, 160, 44),
        RGBColor(214, 39, 40),
        RGBColor(148, 103, 189),
        RGBColor(140, 86, 75),
        RGBColor(227, 119, 194),
        RGBColor(127, 127, 127),
        RGBColor(188, 189, 34),
        RGBColor(23, 190, 207),
    ];
    COLOURS[index % COLOURS.len()]
}

/// A quantity over time.
pub struct Line {
    /// Legend.
    pub name: String,
    /// Seconds, and the value.
    pub points: Vec<(f64, f64)>,
    /// Colour.
    pub colour: RGBColor,
}

/// Plots lines over time, from zero.
///
/// # Errors
/// The drawing library fails.
pub fn over_time(title: &str, unit: &str, lines: &[Line]) -> Result<String> {
    drawn(title, |svg| draw_over_time(svg, title, unit, lines))
}

fn draw_over_time(svg: &mut String, title: &str, unit: &str, lines: &[Line]) -> Drawing {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let most = points().fold((1.0, 1.0), |(x, y), point| {
        (f64::max(x, point.0), f64::max(y, point.1))
    });
    let canvas = SVGBackend::with_string(svg, (800, 400)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most.0, 0.0..most.1 * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc(unit)
        .draw()?;
    for line in lines {
        let colour = line.colour;
        chart
            .draw_series(LineSeries::new(
                line.points.iter().copied(),
                colour.stroke_width(2),
            ))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    canvas.present()?;
    Ok(())
}
