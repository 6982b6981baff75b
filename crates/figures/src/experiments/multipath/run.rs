//! One copy over several paths, of which one may fail or join during the copy.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    AWAY_SECONDS, CHANGED_AT, CHANGED_BACK_AT, Cell, Change, FILE_BYTES, Observation, Path,
    SETTLE_SECONDS,
};
use crate::children::Server;
use crate::copy::{DEPOT_PORT, SERVER_PORT, first_copy, serve, start_depot};
use crate::experiment::Here;
use crate::watched_copy::{Received, WatchedCopy};

/// Maximum time of a copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(200);

/// Makes the copy.
///
/// # Errors
/// A program cannot be started, or the copy does not end or verify.
pub fn run(here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Observation> {
    let (tools, lab) = (here.tools, here.lab);
    let _server = serve(tools, lab, "server", here.setup)?;
    let depot = |path: Path| start_depot(tools, lab, path.node());
    let mut a: Option<Server> = None;
    let mut others = Vec::new();
    for &path in &cell.paths {
        match (path, cell.change) {
            (Path::A, Change::Joins) => {}
            (Path::A, _) => a = Some(depot(path)?),
            _ => others.push(depot(path)?),
        }
    }
    let mut routes = Vec::new();
    for path in &cell.paths {
        routes.push(format!("{}:{DEPOT_PORT}", lab.address(path.node())?));
    }
    let mut command = first_copy(here, "client")?;
    command.arg("--json");
    for route in &routes {
        command.args(["--route", route]);
    }
    let server = lab.address("server")?;
    for file in 0..cell.files() {
        command.arg(format!("lh://{server}:{SERVER_PORT}/{file}"));
    }
    // A directory of the copy's own, because this program uses the folder of the run.
    command.arg(format!("{}/", here.folder.join("arrived").display()));
    let lab_seconds = lab.links()?.seconds;
    let mut copy = WatchedCopy::start(command)?;
    let mut away = None;
    let seconds_so_far =
        |copy: &WatchedCopy| copy.events.last().map_or(0.0, |(seconds, _)| *seconds);
    match cell.change {
        Change::None => {}
        Change::Halved | Change::Cut => {
            // The link changes at times of the lab's clock.
            if lab_seconds > CHANGED_AT - 4.0 {
                bail!(
                    "the copy began {lab_seconds:.1} s after the lab: too late to see A before \
                     its change"
                );
            }
            away = Some((CHANGED_AT - lab_seconds, CHANGED_BACK_AT - lab_seconds));
        }
        Change::Dies | Change::ComesBack => {
            let third =
                |event: &Value| event["bytes"].as_u64() >= Some(cell.files() * FILE_BYTES / 3);
            if copy.until(COPY_TIMEOUT, |event| {
                event["event"] == "progress" && third(event)
            }) != Received::It
            {
                bail!("the copy did not come to a third");
            }
            let from = seconds_so_far(&copy);
            drop(a.take());
            away = Some((from, f64::INFINITY));
            if cell.change == Change::ComesBack {
                copy.until(Duration::from_secs_f64(AWAY_SECONDS), |_| false);
                a = Some(depot(Path::A)?);
                away = Some((from, seconds_so_far(&copy)));
            }
        }
        Change::Joins => {
            copy.until(Duration::from_secs_f64(AWAY_SECONDS), |_| false);
            a = Some(depot(Path::A)?);
            away = Some((0.0, seconds_so_far(&copy)));
        }
    }
    let (ended, events) = copy.end(COPY_TIMEOUT)?;
    drop(a);
    let report = ended.report.context("longhaul cp printed no report")?;
    if ended.code != Some(0) || report["verification"]["verified"] != true {
        bail!(
            "longhaul cp ended with {:?}: {}",
            ended.code,
            ended.errors.trim()
        );
    }
    let streams = report["streams"]
        .as_array()
        .context("the report names no streams")?;
    let carried = |route: &String| -> u64 {
        let of_route = streams.iter().filter(|stream| stream["route"] == **route);
        of_route.filter_map(|stream| stream["bytes"].as_u64()).sum()
    };
    let number = |field: &str| {
        report[field]
            .as_f64()
            .with_context(|| format!("the report has no {field}"))
    };
    let first = routes.first().map(String::as_str);
    Ok(Observation {
        seconds: number("seconds")?,
        goodput_bps: number("goodput_bps")?,
        streams: streams.len() as u32,
        carried: routes.iter().map(carried).collect(),
        around_change: away
            .map(|away| around(&events, away, |event| event["routes_bps"][first?].as_f64())),
        all_around_change: away.map(|away| around(&events, away, |event| event["bps"].as_f64())),
        ..Observation::default()
    })
}

/// Returns the means of `rate` over the progress events before `away`, during it, and from
/// [`SETTLE_SECONDS`] after it, in Mbit/s. The rates are smoothed over two seconds, so the first
/// two seconds of each part are left out. So is the last event before the end of the copy, when
/// little is left to carry.
fn around(
    events: &[(f64, Value)],
    away: (f64, f64),
    rate: impl Fn(&Value) -> Option<f64>,
) -> [f64; 3] {
    const SMOOTHED_SECONDS: f64 = 2.0;
    let parts = [
        (SMOOTHED_SECONDS, away.0),
        (away.0 + SMOOTHED_SECONDS, away.1),
        (away.1 + SETTLE_SECONDS, f64::INFINITY),
    ];
    let last = events
        .iter()
        .rposition(|(_, event)| event["event"] == "progress");
    parts.map(|(from, to)| {
        let within = events.iter().enumerate().filter(|(at, (seconds, event))| {
            Some(*at) != last && event["event"] == "progress" && (from..to).contains(seconds)
        });
        let rates: Vec<f64> = within
            .map(|(_, (_, event))| rate(event).unwrap_or(0.0))
            .collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64 / 1e6
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_parts_before_within_and_after_are_distinguished() {
        let events: Vec<(f64, Value)> = (0..40)
            .map(|quarter| {
                let seconds = f64::from(quarter) / 2.0;
                let bps = if (5.0..10.0).contains(&seconds) {
                    0.0
                } else {
                    4e6
                };
                (seconds, json!({"event": "progress", "bps": bps}))
            })
            .collect();
        assert_eq!(
            around(&events, (5.0, 10.0), |event| event["bps"].as_f64()),
            [4.0, 0.0, 4.0]
        );
    }
}
