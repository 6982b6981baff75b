//! The tables and plots of forecasts.

use anyhow::Result;
use longhaul_routing::forecast::{
    ForecastQuantity, HORIZONS, MomentMicros, Series, SeriesDetail, SeriesSample,
};
use plotters::prelude::*;

use super::play::{Forecaster, Score, Scored, WARM_UP};
use super::record::{PERIOD, Recording};
use super::traces::Family;
use super::{Cell, Observation, Origin};
use crate::page::{Figure, Page, Table, cell, percent};
use crate::plot::{self, Drawing, Line};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

/// Range for the share of values in the band, in per cent.
const ASKED: (f64, f64) = (75.0, 85.0);
/// Number of values in a plot of a series.
const SHOWN: usize = 240;

type ForecastRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns a value of every series of an origin, by seed.
fn origin_values(
    runs: &ForecastRuns<'_>,
    origin: Origin,
    value: impl Fn(&Score) -> f64,
) -> Vec<f64> {
    let cell = origin.cell();
    let scores = runs.cell(&cell);
    let scores = scores.iter().flat_map(|record| &record.seen.scores);
    scores
        .filter(|(other, _)| *other == origin)
        .map(|(_, score)| value(score))
        .collect()
}

fn index(forecaster: Forecaster) -> usize {
    Forecaster::ALL
        .iter()
        .position(|other| *other == forecaster)
        .unwrap_or_default()
}

fn scored(score: &Score, forecaster: Forecaster) -> Scored {
    score.of.get(index(forecaster)).copied().unwrap_or_default()
}

/// Returns an error relative to that of the best predictor in hindsight.
fn by_hindsight(score: &Score, forecaster: Forecaster, error: fn(&Scored) -> f64) -> f64 {
    error(&scored(score, forecaster)) / error(&scored(score, Forecaster::Hindsight))
}

fn errors(runs: &ForecastRuns<'_>, error: fn(&Scored) -> f64) -> Table {
    let others = Forecaster::ALL
        .into_iter()
        .filter(|one| *one != Forecaster::Hindsight);
    let heads = ["series", "seeds", "mixture, % of the mean value"].map(str::to_owned);
    let titles = others
        .clone()
        .map(|one| format!("{} / best in hindsight", one.title()));
    let mut table = Table::new(heads.into_iter().chain(titles));
    for origin in Origin::all() {
        let own = origin_values(runs, origin, |score| {
            100.0 * error(&scored(score, Forecaster::Mixture)) / score.mean
        });
        if own.is_empty() {
            continue;
        }
        let mut row = vec![
            origin.title().to_owned(),
            own.len().to_string(),
            cell(Spread::from_samples(&own), 1),
        ];
        row.extend(others.clone().map(|forecaster| {
            let ratios =
                origin_values(runs, origin, |score| by_hindsight(score, forecaster, error));
            cell(Spread::from_samples(&ratios), 3)
        }));
        table.row(row);
    }
    table
}

fn coverage(runs: &ForecastRuns<'_>) -> Table {
    let mut table = Table::new([
        "series".to_owned(),
        "between p10 and p90, %".to_owned(),
        "below p10, %".to_owned(),
        "above p90, %".to_owned(),
        format!("between, {} values ahead, %", HORIZONS[1]),
        "compact, between, %".to_owned(),
        "least of any 100 in a row, %".to_owned(),
        "best in hindsight".to_owned(),
    ]);
    for origin in Origin::all() {
        let percent = |value: &dyn Fn(&Score) -> f64| {
            cell(
                Spread::from_samples(&origin_values(runs, origin, |score| 100.0 * value(score))),
                1,
            )
        };
        let mut names: Vec<String> = vec![];
        let cell = origin.cell();
        for record in runs.cell(&cell) {
            let own = record
                .seen
                .scores
                .iter()
                .filter(|(other, _)| *other == origin);
            names.extend(own.map(|(_, score)| score.hindsight.clone()));
        }
        if names.is_empty() {
            continue;
        }
        let share = |horizon: usize, place: usize| {
            move |score: &Score| {
                score
                    .shares
                    .get(horizon)
                    .map_or(f64::NAN, |shares| shares[place])
            }
        };
        table.row([
            origin.title().to_owned(),
            percent(&share(0, 1)),
            percent(&share(0, 0)),
            percent(&share(0, 2)),
            percent(&share(1, 1)),
            percent(&|score| scored(score, Forecaster::Compact).within),
            percent(&|score| score.any_hundred.0),
            most_frequent(names),
        ]);
    }
    table
}

/// Returns the most frequent name, and its number.
fn most_frequent(mut names: Vec<String>) -> String {
    let all = names.len();
    names.sort_unstable();
    let groups = names.chunk_by(|one, other| one == other);
    let most = groups.max_by_key(|group| group.len()).unwrap_or_default();
    let name = most.first().cloned().unwrap_or_default();
    format!("{name} ({} of {all})", most.len())
}

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(runs: &ForecastRuns<'_>) -> Result<Page> {
    let mut sources = String::new();
    for origin in Origin::all() {
        sources += &format!("- **{}**: {}\n", origin.title(), origin.source());
    }
    let strips: Vec<(&str, Vec<f64>)> = Origin::all()
        .map(|origin| {
            let within = origin_values(runs, origin, |score| {
                100.0 * scored(score, Forecaster::Mixture).within
            });
            (origin.title(), within)
        })
        .filter(|(_, within)| !within.is_empty())
        .collect();
    let mut page = Page::new(HEAD)
        .heading("Coverage")
        .paragraph(COVERAGE)
        .table(&coverage(runs));
    if !strips.is_empty() {
        let title = "share of values between p10 and p90, a point a seed";
        page = page.plot(
            "forecast-coverage",
            plot::drawn(title, |svg| draw_strips(svg, title, &strips))?,
        );
    }
    page = page
        .heading("Mean absolute error")
        .paragraph(ERRORS)
        .table(&errors(runs, |scored| scored.mae))
        .heading("Pinball loss")
        .paragraph(PINBALL)
        .table(&errors(runs, |scored| scored.pinball))
        .heading("Two series")
        .paragraph("The values, and the p10 and the p90 that were told for each before it came.");
    if let Some(record) = runs.cell(&Cell::MADE).first() {
        let family = Family::Regimes;
        let values = family.values(record.cell.seed);
        page = page.plot(
            "forecast-regimes",
            draw_series(family.title(), family.quantity(), family.period(), &values)?,
        );
    }
    let recording = Recording::CrossTraffic;
    if let Some(record) = runs.cell(&Cell::recorded(recording)).first() {
        page = page.plot(
            "forecast-recorded",
            draw_series(
                recording.title(),
                recording.quantity(),
                PERIOD,
                &record.seen.values,
            )?,
        );
    }
    Ok(page
        .heading("Where the series are from")
        .paragraph(&sources))
}

/// Returns the figures that documents quote.
pub fn figures(runs: &ForecastRuns<'_>) -> Vec<Figure> {
    let groups: [(&str, &str, Vec<Origin>); 2] = [
        (
            "made",
            "series made from published statistics",
            Family::ALL.map(Origin::Made).into(),
        ),
        (
            "recorded",
            "series recorded beside cross traffic",
            Recording::ALL.map(Origin::Recorded).into(),
        ),
    ];
    let mut figures = vec![];
    for (key, title, origins) in groups {
        let all = |value: &dyn Fn(&Score) -> f64| {
            let values: Vec<f64> = origins
                .iter()
                .flat_map(|origin| origin_values(runs, *origin, value))
                .collect();
            Spread::from_samples(&values)
        };
        let within = all(&|score| 100.0 * scored(score, Forecaster::Mixture).within);
        let Some(within) = within else { continue };
        figures.push(Figure::new(
            format!("coverage-{key}"),
            format!("values between p10 and p90, {title}"),
            percent(Some(within)),
            Basis::Runs(within.count),
        ));
        for (word, forecaster) in [
            ("mixture", Forecaster::Mixture),
            ("last", Forecaster::LastValue),
            ("running", Forecaster::RunningMean),
        ] {
            let ratio = all(&|score| by_hindsight(score, forecaster, |scored| scored.mae));
            figures.extend(ratio.map(|ratio| {
                Figure::new(
                    format!("{word}-{key}"),
                    format!(
                        "mean absolute error of the {} by that of the best predictor in \
                         hindsight, {title}",
                        forecaster.title()
                    ),
                    cell(Some(ratio), 2),
                    Basis::Runs(ratio.count),
                )
            }));
        }
    }
    figures
}

/// Draws the last values of a series, and the bands that were forecast for them.
fn draw_series(
    title: &str,
    quantity: ForecastQuantity,
    period: f64,
    values: &[f64],
) -> Result<String> {
    let (factor, unit) = match quantity {
        ForecastQuantity::Rate => (1e-6, "Mbit/s"),
        ForecastQuantity::RoundTrip => (1e3, "ms"),
        ForecastQuantity::Loss => (100.0, "%"),
    };
    let mut series = Series::new(quantity, SeriesDetail::Full);
    let mut lines = ["value", "p10", "p50", "p90"].map(|name| Line {
        name: name.to_owned(),
        points: vec![],
        colour: BLACK,
    });
    let from = values.len().saturating_sub(SHOWN).max(WARM_UP);
    for (step, &value) in values.iter().enumerate() {
        if let Some(issued) = series.forecast().filter(|_| step >= from) {
            let issued = issued.quantiles;
            for (line, value) in lines
                .iter_mut()
                .zip([value, issued.p10, issued.p50, issued.p90])
            {
                line.points
                    .push(((step - from) as f64 * period, factor * value));
            }
        }
        let _ = series.observe(SeriesSample::exact(
            (step as f64 * period * 1e6) as MomentMicros,
            value,
        ));
    }
    for (line, colour) in lines.iter_mut().zip([0, 1, 2, 3]) {
        line.colour = plot::colour(colour);
    }
    // The forecasts are drawn below the values.
    lines.rotate_left(1);
    plot::over_time(title, unit, &lines)
}

fn draw_strips(svg: &mut String, title: &str, strips: &[(&str, Vec<f64>)]) -> Drawing {
    let all = || strips.iter().flat_map(|(_, within)| within.iter().copied());
    let least = all().fold(70.0, f64::min);
    let most = all().fold(90.0, f64::max);
    let rows = strips.len() as f64;
    let canvas =
        SVGBackend::with_string(svg, (900, 80 + 36 * strips.len() as u32)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(400)
        .build_cartesian_2d(least - 1.0..most + 1.0, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_desc("%")
        .draw()?;
    for asked in [ASKED.0, ASKED.1] {
        chart.draw_series(LineSeries::new(
            [(asked, 0.0), (asked, rows)],
            BLACK.mix(0.5),
        ))?;
    }
    for (row, (name, within)) in strips.iter().enumerate() {
        let y = rows - row as f64 - 0.5;
        chart.draw_series(
            within
                .iter()
                .map(|x| Circle::new((*x, y), 4, BLUE.mix(0.4).filled())),
        )?;
        let (_, pixel_y) = chart.backend_coord(&(least, y));
        canvas.draw(&Text::new(*name, (12, pixel_y - 7), ("sans-serif", 14)))?;
    }
    canvas.present()?;
    Ok(())
}

const HEAD: &str = "`crates/routing` forecasts each value of a series from those before it, and \
    says p10, p50 and p90. No series here was used to choose anything in it: constants were \
    chosen on others, \
     made and recorded in the same ways, with seeds below 1000.";

const COVERAGE: &str = "Eight values in ten are to fall between p10 and p90, one below and one \
    above; 75 to 85 % is what was asked. Adaptive conformal inference keeps to that over any \
    series in \
     the long run, so what tells forecasters apart is how wide their bands are (below), and how \
     long a surprise is felt: the least share of any 100 values in a row. The median of the \
     seeds, with the least and the greatest.";

const ERRORS: &str = "Of p50, by that of the one predictor of the family which a seer would have \
    picked for the series: 1 is as good, below it better. \"Best so far\" is what the Network \
    Weather Service reports: the predictor with the least \
     mean absolute, or mean squared, error until then. \"Compact\" is the mixture of nine \
     predictors, in a third of the memory. The running mean is of the values as they are; all \
     others work on the scale of the quantity.";

const PINBALL: &str = "The mean over p10, p50 and p90: wide bands and values outside of them both \
    cost. Every forecaster has the same bands around what it predicts, from its own errors; the \
    best in hindsight is that by this loss.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn page_shows_observations_and_plots() {
        let score = |origin| {
            let scored = |mae: f64| Scored {
                mae,
                pinball: mae / 2.0,
                within: 0.81,
            };
            let score = Score {
                mean: 10.0,
                of: Forecaster::ALL
                    .map(|one| {
                        scored(if one == Forecaster::LastValue {
                            3.0
                        } else {
                            2.0
                        })
                    })
                    .into(),
                hindsight: "median of 5".to_owned(),
                shares: vec![[0.09, 0.81, 0.1]; HORIZONS.len()],
                any_hundred: (0.7, 0.9),
            };
            (origin, score)
        };
        let recorded = Recording::CrossTraffic;
        let runs = [
            record(
                Cell::MADE,
                1,
                Observation {
                    scores: vec![score(Origin::Made(Family::Regimes))],
                    values: vec![],
                },
                true,
            ),
            record(
                Cell::recorded(recorded),
                1,
                Observation {
                    scores: vec![score(Origin::Recorded(recorded))],
                    values: vec![1e7; 120],
                },
                true,
            ),
        ];
        let runs = Runs::select_valid(&runs);
        let page = page(&runs).unwrap();
        assert_eq!(page.plots.len(), 3);
        assert!(
            page.text
                .contains("| 81.0 (single) | 9.0 (single) | 10.0 (single) |"),
            "{}",
            page.text
        );
        assert!(page.text.contains("| 1.500 (single) |"), "{}", page.text);
        assert!(page.text.contains("median of 5 (1 of 1)"));
        let figures = figures(&runs);
        let coverage = figures
            .iter()
            .find(|figure| figure.key == "coverage-recorded")
            .unwrap();
        assert_eq!(coverage.text, "81.0 % (single)");
    }
}
