//! The tables and plots of forecasts.

use std::collections::BTreeMap;

use anyhow::Result;
use longhaul_routing::forecast::{
    ForecastQuantity, HORIZONS, MomentMicros, Series, SeriesDetail, SeriesSample,
};
use minijinja::Value;
use plotters::prelude::*;
use serde::Serialize;

use super::play::{Forecaster, Score, Scored, WARM_UP};
use super::record::{PERIOD, Recording};
use super::traces::Family;
use super::{Cell, Observation, Origin};
use crate::columns::Columns;
use crate::page::{Figure, Page, Table, cell, percent};
use crate::plot::{self, Drawing, Line};
use crate::runs::Runs;
use crate::stats::Spread;
use crate::template::page;

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

fn origin_spread(
    runs: &ForecastRuns<'_>,
    origin: Origin,
    value: impl Fn(&Score) -> f64,
) -> Option<Spread> {
    Spread::from_samples(&origin_values(runs, origin, value))
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
    let measured = Origin::all().filter(|origin| !origin_values(runs, *origin, |_| 0.0).is_empty());
    let mut table = Columns::of(measured)
        .text("series", |origin| origin.title())
        .text("seeds", |origin| {
            origin_values(runs, *origin, |_| 0.0).len()
        })
        .spread("mixture, % of the mean value", 1, move |origin| {
            let own = |score: &Score| error(&scored(score, Forecaster::Mixture));
            origin_spread(runs, *origin, |score| 100.0 * own(score) / score.mean)
        });
    for one in others {
        table = table.spread(
            format!("{} / best in hindsight", one.title()),
            3,
            move |origin| origin_spread(runs, *origin, |score| by_hindsight(score, one, error)),
        );
    }
    table.table()
}

fn coverage(runs: &ForecastRuns<'_>) -> Table {
    let percent = |origin: &Origin, value: &dyn Fn(&Score) -> f64| {
        origin_spread(runs, *origin, |score| 100.0 * value(score))
    };
    let share = |horizon: usize, place: usize| {
        move |score: &Score| {
            score
                .shares
                .get(horizon)
                .map_or(f64::NAN, |shares| shares[place])
        }
    };
    let names = |origin: Origin| -> Vec<String> {
        let scores = runs.cell(&origin.cell());
        let scores = scores.iter().flat_map(|record| &record.seen.scores);
        let own = scores.filter(|(other, _)| *other == origin);
        own.map(|(_, score)| score.hindsight.clone()).collect()
    };
    let ahead = format!("between, {} values ahead, %", HORIZONS[1]);
    Columns::of(Origin::all().filter(|origin| !names(*origin).is_empty()))
        .text("series", |origin| origin.title())
        .spread("between p10 and p90, %", 1, |origin| {
            percent(origin, &share(0, 1))
        })
        .spread("below p10, %", 1, |origin| percent(origin, &share(0, 0)))
        .spread("above p90, %", 1, |origin| percent(origin, &share(0, 2)))
        .spread(ahead, 1, |origin| percent(origin, &share(1, 1)))
        .spread("compact, between, %", 1, |origin| {
            percent(origin, &|score| scored(score, Forecaster::Compact).within)
        })
        .spread("least of any 100 in a row, %", 1, |origin| {
            percent(origin, &|score| score.any_hundred.0)
        })
        .text("best in hindsight", |origin| most_frequent(names(*origin)))
        .table()
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

/// Returns the name of a series in records and in the template.
fn key(series: impl Serialize) -> Value {
    Value::from_serialize(series)
}

/// Names of the plots.
const PLOTS: [&str; 3] = ["coverage", "regimes", "recorded"];

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(runs: &ForecastRuns<'_>) -> Result<Page> {
    let within = |origin| {
        origin_values(runs, origin, |score| {
            100.0 * scored(score, Forecaster::Mixture).within
        })
    };
    let strips: Vec<(&str, Vec<f64>)> = Origin::all()
        .map(|origin| (origin.title(), within(origin)))
        .filter(|(_, within)| !within.is_empty())
        .collect();
    let mut plots = BTreeMap::new();
    if !strips.is_empty() {
        let title = "share of values between p10 and p90, a point a seed";
        plots.insert(
            "coverage",
            plot::drawn(title, |svg| draw_strips(svg, title, &strips))?,
        );
    }
    if let Some(record) = runs.cell(&Cell::MADE).first() {
        let (family, seed) = (Family::Regimes, record.cell.seed);
        let values = family.values(seed);
        let svg = draw_series(family.title(), family.quantity(), family.period(), &values)?;
        plots.insert("regimes", svg);
    }
    let recording = Recording::CrossTraffic;
    if let Some(record) = runs.cell(&Cell::recorded(recording)).first() {
        let (title, quantity) = (recording.title(), recording.quantity());
        plots.insert(
            "recorded",
            draw_series(title, quantity, PERIOD, &record.seen.values)?,
        );
    }
    let titles = Family::ALL.map(|one| (key(one), one.title())).into_iter();
    let titles = titles.chain(Recording::ALL.map(|one| (key(one), one.title())));
    let page = page!(
        "forecast",
        plots => PLOTS.map(|name| (name, plots.contains_key(name))).into_iter().collect::<Value>(),
        coverage => coverage(runs),
        mae => errors(runs, |scored| scored.mae),
        pinball => errors(runs, |scored| scored.pinball),
        titles => titles.collect::<Value>(),
    )?;
    let name = |name| format!("forecast-{name}");
    Ok(page.with_plots(plots.into_iter().map(|(plot, svg)| (name(plot), svg))))
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
    let words = [
        ("mixture", Forecaster::Mixture),
        ("last", Forecaster::LastValue),
        ("running", Forecaster::RunningMean),
    ];
    let mut figures = vec![];
    for (key, series, origins) in groups {
        let all = |value: &dyn Fn(&Score) -> f64| {
            let values = origins
                .iter()
                .flat_map(|origin| origin_values(runs, *origin, value));
            Spread::from_samples(&values.collect::<Vec<_>>())
        };
        let within = all(&|score| 100.0 * scored(score, Forecaster::Mixture).within);
        let Some(within) = within else { continue };
        let title = format!("values between p10 and p90, {series}");
        let text = percent(Some(within));
        figures.push(Figure::new(
            format!("coverage-{key}"),
            title,
            text,
            within.basis(),
        ));
        for (word, forecaster) in words {
            let title = format!(
                "mean absolute error of the {} by that of the best predictor in hindsight, {series}",
                forecaster.title()
            );
            let ratio = all(&|score| by_hindsight(score, forecaster, |scored| scored.mae));
            figures.extend(ratio.map(|ratio| {
                let text = cell(Some(ratio), 2);
                Figure::new(format!("{word}-{key}"), title, text, ratio.basis())
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
