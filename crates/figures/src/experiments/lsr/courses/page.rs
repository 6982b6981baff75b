//! Plots and tables of the courses.

use anyhow::Result;
use plotters::prelude::*;

use super::samples::CourseSamples;
use super::{Course, SLIDES_RTT_MS, hop};
use crate::page::{Page, Table, number};
use crate::plot::{self, Drawing, Line};
use crate::single::Basis;

/// Returns the samples of a course, if it was measured.
pub type SamplesOf<'a> = dyn Fn(&Course) -> Option<&'a CourseSamples> + 'a;

/// Adds the sections on the measured courses.
///
/// # Errors
/// A plot cannot be drawn.
pub fn add_to(page: Page, samples: &SamplesOf<'_>) -> Result<Page> {
    let page = one_loss(page, samples)?;
    let page = slow_start(page, samples)?;
    responsiveness(page, samples)
}

fn one_loss(mut page: Page, samples: &SamplesOf<'_>) -> Result<Page> {
    let courses = [(Course::JUMBO, 9000), (Course::ETHERNET, 1500)];
    let lines: Vec<Line> = courses
        .iter()
        .enumerate()
        .filter_map(|(index, (course, mtu))| {
            let points = samples(course)?
                .samples
                .iter()
                .map(|sample| (sample.0, sample.1));
            Some(Line {
                name: format!("packets of {mtu} bytes"),
                points: points.collect(),
                colour: plot::colour(index),
            })
        })
        .collect();
    if lines.is_empty() {
        return Ok(page);
    }
    let title = format!("one lost packet at 622 Mbit/s, {SLIDES_RTT_MS} ms");
    page = page
        .heading("One loss at 622 Mbit/s")
        .paragraph(&format!(
            "Geneva - Chicago as in `scenarios/lsr-622.toml`: {SLIDES_RTT_MS} ms, Linux's own Reno \
             under iperf3. The link loses exactly one packet of a stream at full rate (`drop_at` \
             in `docs/wanbed.md`). The window is halved, and returns by one packet a round trip. A \
             metric of the route caps it at the bandwidth-delay product, as the record's buffers \
             did. The slides give over 6 minutes for 120 Mbit/s on this link; the last column is \
             the time for that at the measured growth."
        ))
        .plot("lsr-one-loss", plot::over_time(&title, "Mbit/s", &lines)?);
    let mut table = Table::new([
        "packets",
        "window before, after the loss",
        "growth, packets a second: measured (one a round trip)",
        "back at full rate after, s: measured (formula)",
        "120 Mbit/s take, s",
    ]);
    for (course, mtu) in &courses {
        let Some(recovery) = samples(course).and_then(CourseSamples::recovery) else {
            continue;
        };
        let (rtt_ms, _) = course.rtt_and_mtu();
        let rtt = f64::from(rtt_ms) / 1e3;
        let packets = 120e6 * rtt / 8.0 / f64::from(*mtu);
        table.row([
            format!("{mtu} bytes"),
            format!("{}, {}", recovery.before, recovery.least),
            single(
                format!("{:.2}", recovery.growth),
                &format!("{:.2}", 1.0 / rtt),
            ),
            match recovery.seconds {
                Some(seconds) => single(format!("{seconds:.1}"), &formula(course)),
                None => format!("not within the run ({})", formula(course)),
            },
            Basis::Runs(1).mark(format!("{:.0}", packets / recovery.growth)),
        ]);
    }
    Ok(page.table(&table))
}

/// Formats a measured value of one run, and beside it what is expected.
fn single(measured: String, expected: &str) -> String {
    format!("{} ({expected})", Basis::Runs(1).mark(measured))
}

fn formula(course: &Course) -> String {
    format!("{:.1}", course.hop().recovery().as_secs_f64())
}

fn slow_start(page: Page, samples: &SamplesOf<'_>) -> Result<Page> {
    let (remembered, flushed) = (samples(&Course::REMEMBERED), samples(&Course::FLUSHED));
    let mut lines = Vec::new();
    let mut table = Table::new([
        "cache",
        "threshold, packets",
        "half the window after, s",
        "window at the end, packets",
    ]);
    let half = Course::FLUSHED.window() / 2;
    for (name, found) in [("flushed", flushed), ("remembered", remembered)] {
        let Some(found) = found else { continue };
        lines.push(Line {
            name: format!("cache {name}"),
            points: found
                .samples
                .iter()
                .map(|sample| (sample.0, f64::from(sample.2)))
                .collect(),
            colour: plot::colour(lines.len()),
        });
        let last = found.samples.last().map_or(0, |sample| sample.2);
        table.row([
            name.to_owned(),
            found
                .threshold
                .map_or_else(|| "none".to_owned(), |threshold| threshold.to_string()),
            match found.reached(half) {
                Some(seconds) => Basis::Runs(1).mark(number(Some(seconds), 1)),
                None => "not within the run".to_owned(),
            },
            Basis::Runs(1).mark(last.to_string()),
        ]);
    }
    if lines.is_empty() {
        return Ok(page);
    }
    if let Some((threshold, end)) =
        remembered.and_then(|found| Some((found.threshold?, found.samples.last()?.0)))
    {
        let threshold = f64::from(threshold);
        lines.push(Line {
            name: "remembered slow-start threshold".to_owned(),
            points: vec![(0.0, threshold), (end, threshold)],
            colour: plot::colour(7),
        });
    }
    Ok(page
        .heading("Slow start against congestion avoidance")
        .paragraph(
            "The congestion window of a stream on the same link, after an earlier stream to the \
             same host that lost two packets. Linux may remember the slow-start threshold of a \
             host. Up to the threshold the window doubles each round trip; above it, it grows by \
             one packet. The record's sender therefore flushed the cache (`ip tcp_metrics flush`). \
             Since Linux 5.6 thresholds are not remembered (`tcp_no_ssthresh_metrics_save`); here \
             they are, for the plot.",
        )
        .plot(
            "lsr-slow-start",
            plot::over_time("slow start and congestion avoidance", "packets", &lines)?,
        )
        .table(&table))
}

/// One measured recovery.
struct Point {
    mtu: u32,
    rtt_ms: u32,
    seconds: f64,
}

fn responsiveness(page: Page, samples: &SamplesOf<'_>) -> Result<Page> {
    let mut courses = Course::all();
    courses.sort_by_key(Course::rtt_and_mtu);
    let points: Vec<Point> = courses
        .iter()
        .filter_map(|course| {
            let (rtt_ms, mtu) = course.rtt_and_mtu();
            let seconds = samples(course)?.recovery()?.seconds?;
            Some(Point {
                mtu,
                rtt_ms,
                seconds,
            })
        })
        .collect();
    if points.is_empty() {
        return Ok(page);
    }
    let mut table = Table::new([
        "round trip",
        "packets",
        "measured, s",
        "formula, s",
        "ratio",
    ]);
    for Point {
        mtu,
        rtt_ms,
        seconds,
    } in &points
    {
        let expected = expected(*mtu, f64::from(*rtt_ms));
        table.row([
            format!("{rtt_ms} ms"),
            format!("{mtu} bytes"),
            Basis::Runs(1).mark(format!("{seconds:.1}")),
            format!("{expected:.1}"),
            format!("{:.2}", seconds / expected),
        ]);
    }
    let title = "recovery from one loss at 622 Mbit/s";
    Ok(page
        .heading("Responsiveness against round trip")
        .paragraph(
            "The time from one loss until the window is as large as before, by round trip, beside \
             the slides' formula C x RTT² / (2 x MSS), as `longhaul perf --plan` computes it. It \
             grows with the square of the round trip: fast long paths are where one loss costs \
             most.",
        )
        .plot(
            "lsr-responsiveness",
            plot::drawn(title, |svg| draw(svg, title, &points))?,
        )
        .table(&table))
}

/// Returns the time of a recovery by the formula, in seconds.
fn expected(mtu: u32, rtt_ms: f64) -> f64 {
    hop(rtt_ms, mtu).recovery().as_secs_f64()
}

fn draw(svg: &mut String, title: &str, points: &[Point]) -> Drawing {
    let longest = points.iter().map(|point| point.rtt_ms).max().unwrap_or(1);
    let most = points.iter().map(|point| point.seconds).fold(1.0, f64::max);
    let right = f64::from(longest) * 1.1;
    let canvas = SVGBackend::with_string(svg, (800, 400)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..right, 0.0..most * 1.2)?;
    chart
        .configure_mesh()
        .x_desc("round trip, ms")
        .y_desc("seconds")
        .draw()?;
    for (index, mtu) in [9000, 1500].into_iter().enumerate() {
        let colour = plot::colour(index);
        let curve = (0..=220)
            .map(|step| right * f64::from(step) / 220.0)
            .map(|rtt_ms| (rtt_ms, expected(mtu, rtt_ms)))
            .take_while(|(_, seconds)| *seconds <= most * 1.2);
        chart
            .draw_series(LineSeries::new(curve, colour.stroke_width(1)))?
            .label(format!("formula, packets of {mtu} bytes"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        let measured = points
            .iter()
            .filter(|point| point.mtu == mtu)
            .map(|point| Circle::new((f64::from(point.rtt_ms), point.seconds), 4, colour.filled()));
        chart
            .draw_series(measured)?
            .label(format!("measured, packets of {mtu} bytes"))
            .legend(move |(x, y)| Circle::new((x + 10, y), 4, colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    canvas.present()?;
    Ok(())
}
