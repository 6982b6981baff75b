//! The page: tables of each part, and the claims that they support or not.

use anyhow::Result;
use minijinja::context;

use super::churn::{ChurnResult, SPARE_PIPE_DESCRIPTORS};
use super::ping::PingResult;
use super::relay::{MAX_SESSIONS, RelayKind};
use super::requests::KEYS;
use super::sessions::SessionsResult;
use super::slope::Slope;
use super::{Cell, FEWER_SESSIONS, Observation, SESSIONS};
use crate::measured::Measured;
use crate::page::{Figure, Page, Table};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;

/// Most processor time of a set-up, in milliseconds.
const MAX_SETUP_CPU_MS: f64 = 0.5;
/// Most time of one byte through three depots and back, at the 99th percentile, in microseconds.
const MAX_PING_P99_US: f64 = 1000.0;
/// Bytes of a KiB.
const KIB: f64 = 1024.0;

type LoadRuns<'a> = Runs<'a, Cell, Observation>;

/// Returns the page.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &LoadRuns<'_>) -> Result<Page> {
    let claims: Vec<_> = claims(runs)
        .into_iter()
        .map(|(text, holds)| context!(text, holds))
        .collect();
    page!(
        "load",
        claims,
        setups => setups(runs),
        busy => busy(runs),
        pings => pings(runs),
        churns => churns(runs),
        keys => KEYS,
        max_sessions => MAX_SESSIONS,
        max_open_files => max_open_files(runs),
    )
}

/// Returns the figures that documents quote.
pub fn figures(runs: &LoadRuns<'_>) -> Vec<Figure> {
    let of_depot = |value: fn(&SessionsResult) -> f64| {
        runs.spread(&depot_sessions(runs), |seen| seen.sessions().map(value))
    };
    let medians = [
        Figure::median(
            "setup-cpu",
            "processor time of a depot for the set-up of a session, ms",
            of_depot(|seen| seen.setup_cpu_ms),
            3,
        ),
        Figure::median(
            "session-memory",
            "memory of a depot for one of thousands of idle sessions, KiB",
            of_depot(|seen| seen.idle_bytes / KIB),
            1,
        ),
        Figure::median(
            "busy-cpu",
            "processor time of a depot for a gigabit over a tenth of thousands of sessions, s",
            of_depot(|seen| seen.busy_cpu_s_per_gbit),
            2,
        ),
        Figure::median(
            "ping-p99",
            "99th percentile of a byte there and back through three depots, us",
            ping_p99(runs),
            0,
        ),
    ];
    let churn = longest_churn(runs).and_then(|(minutes, seen)| {
        let title =
            format!("memory of a depot after {minutes} min of set-ups and ends, KiB an hour");
        let text = seen.memory_slope()?.words(0);
        Some(Figure::new("churn-memory", title, text, Basis::Counted))
    });
    medians.into_iter().flatten().chain(churn).collect()
}

/// Returns each claim that runs can decide, and if it holds in all of them.
fn claims(runs: &LoadRuns<'_>) -> Vec<(String, bool)> {
    let depot = runs.cell(&depot_sessions(runs));
    let sessions = || depot.iter().filter_map(|record| record.seen.sessions());
    let setup = Spread::from_samples(&sessions().map(|seen| seen.setup_cpu_ms).collect::<Vec<_>>());
    let failed: usize = sessions().map(|seen| seen.failed).sum();
    let mut claims = Vec::new();
    if let Some(setup) = setup {
        let established = sessions().map(|seen| seen.established).min().unwrap_or(0);
        let all =
            format!("a depot carries {established} sessions, and none fails ({failed} failed)");
        claims.push((all, failed == 0));
        claims.push((
            format!(
                "a set-up costs the depot at most {MAX_SETUP_CPU_MS} ms of processor time (at \
                 most {:.3} ms)",
                setup.max
            ),
            setup.max <= MAX_SETUP_CPU_MS,
        ));
    }
    if let Some(p99) = ping_p99(runs) {
        claims.push((
            format!(
                "99 of 100 single bytes pass three depots and return within {:.0} ms (within \
                 {:.3} ms)",
                MAX_PING_P99_US / 1e3,
                p99.max / 1e3
            ),
            p99.max <= MAX_PING_P99_US,
        ));
    }
    if let Some((minutes, seen)) = longest_churn(runs)
        && let Some(memory) = seen.memory_slope()
        && let Some(descriptors) = seen.descriptor_slope()
    {
        // No more than its error: no growth is seen.
        let is_flat = |slope: Slope| slope.per_hour <= slope.error;
        let flat = is_flat(memory) && is_flat(descriptors);
        claims.push((
            format!("memory and descriptors are flat over {minutes} min of set-ups and ends"),
            flat && seen.left_descriptors <= SPARE_PIPE_DESCRIPTORS as i64,
        ));
    }
    claims
}

/// Returns the cell of the depot with the most sessions that has runs.
fn depot_sessions(runs: &LoadRuns<'_>) -> Cell {
    let cell = |sessions| Cell::Sessions {
        relay: RelayKind::Depot,
        sessions,
    };
    let most = cell(SESSIONS);
    match runs.cell(&most).is_empty() {
        true => cell(FEWER_SESSIONS),
        false => most,
    }
}

/// Returns the numbers of files that the relays might have open.
fn max_open_files(runs: &LoadRuns<'_>) -> Vec<u64> {
    let all = runs.pick(|cell| matches!(cell, Cell::Sessions { .. }));
    let limits = all.iter().filter_map(|record| record.seen.sessions());
    let mut limits: Vec<u64> = limits.map(|seen| seen.max_open_files).collect();
    limits.sort_unstable();
    limits.dedup();
    limits
}

fn ping_p99(runs: &LoadRuns<'_>) -> Option<Spread> {
    let cell = Cell::Ping {
        relay: RelayKind::Depot,
        hops: 3,
    };
    runs.spread(&cell, |seen| seen.ping().map(|seen| seen.p99_us))
}

/// Returns the longest run of set-ups and ends, with its duration.
fn longest_churn<'a>(runs: &LoadRuns<'a>) -> Option<(u64, &'a ChurnResult)> {
    let rows = runs.rows(Cell::churns()).into_iter();
    let measured = rows.filter_map(|row| Some((minutes(row.cell)?, row.first()?.churn()?)));
    measured.max_by_key(|(minutes, _)| *minutes)
}

fn minutes(cell: Cell) -> Option<u64> {
    match cell {
        Cell::Churn { minutes } => Some(minutes),
        _ => None,
    }
}

fn relay_words(row: &Measured<'_, Cell, Observation>) -> String {
    match row.cell {
        Cell::Ping { hops: 0, relay } => relay.words().to_owned(),
        Cell::Sessions { relay, sessions } => format!("{}, {sessions}", relay.words()),
        Cell::Ping { hops, relay } => format!("{}, {hops}", relay.words()),
        Cell::Churn { .. } => RelayKind::Depot.words().to_owned(),
    }
}

fn setups(runs: &LoadRuns<'_>) -> Table {
    let value =
        |value: fn(&SessionsResult) -> f64| move |seen: &Observation| seen.sessions().map(value);
    runs.table(Cell::sessions())
        .measured()
        .text("relay, sessions", relay_words)
        .column("set-up, CPU ms", 3, value(|seen| seen.setup_cpu_ms))
        .column("set-ups a second", 0, value(|seen| seen.setups_per_s))
        .column("set-up p99, ms", 1, value(|seen| seen.setup_p99_ms))
        .column(
            "KiB of an idle session",
            1,
            value(|seen| seen.idle_bytes / KIB),
        )
        .column("CPU while idle, %", 2, value(|seen| 100.0 * seen.idle_cpu))
        .column("established", 0, value(|seen| seen.established as f64))
        .column("failed", 0, value(|seen| seen.failed as f64))
        .runs()
        .table()
}

fn busy(runs: &LoadRuns<'_>) -> Table {
    let value =
        |value: fn(&SessionsResult) -> f64| move |seen: &Observation| seen.sessions().map(value);
    runs.table(Cell::sessions())
        .measured()
        .text("relay, sessions", relay_words)
        .column("Gbit/s", 2, value(|seen| seen.busy_gbps))
        .column("CPU s a Gbit", 2, value(|seen| seen.busy_cpu_s_per_gbit))
        .column("block p50, ms", 2, value(|seen| seen.block_p50_ms))
        .column("block p99, ms", 2, value(|seen| seen.block_p99_ms))
        .column("MiB", 0, value(|seen| seen.busy_mib))
        .column("descriptors", 0, value(|seen| seen.descriptors as f64))
        .runs()
        .table()
}

fn pings(runs: &LoadRuns<'_>) -> Table {
    let value = |value: fn(&PingResult) -> f64| move |seen: &Observation| seen.ping().map(value);
    runs.table(Cell::pings())
        .measured()
        .text("through", relay_words)
        .column("p50, us", 0, value(|seen| seen.p50_us))
        .column("p99, us", 0, value(|seen| seen.p99_us))
        .column("p99.9, us", 0, value(|seen| seen.p999_us))
        .runs()
        .table()
}

fn churns(runs: &LoadRuns<'_>) -> Table {
    let value = |value: fn(&ChurnResult) -> f64| move |seen: &Observation| seen.churn().map(value);
    let slopes = |slope: fn(&ChurnResult) -> Option<Slope>, digits: usize| {
        move |row: &Measured<'_, Cell, Observation>| {
            let seen = row.runs.iter().filter_map(|record| record.seen.churn());
            let words: Vec<String> = seen
                .map(|seen| slope(seen).map_or("-".to_owned(), |slope| slope.words(digits)))
                .collect();
            words.join("; ")
        }
    };
    runs.table(Cell::churns())
        .measured()
        .text("minutes", |row| minutes(row.cell).unwrap_or_default())
        .column("sessions", 0, value(|seen| seen.sessions as f64))
        .column("failed", 0, value(|seen| seen.failed as f64))
        .column("CPU ms", 3, value(|seen| seen.cpu_ms))
        .column("MiB at the end", 1, |seen: &Observation| {
            seen.churn()?.last_mib()
        })
        .text("KiB an hour", slopes(ChurnResult::memory_slope, 0))
        .text(
            "descriptors an hour",
            slopes(ChurnResult::descriptor_slope, 1),
        )
        .column(
            "descriptors left",
            0,
            value(|seen| seen.left_descriptors as f64),
        )
        .runs()
        .table()
}

#[cfg(test)]
mod tests {
    use super::super::churn::DepotSample;
    use super::*;
    use crate::runs::tests::record;

    fn sessions(relay: RelayKind, setup_cpu_ms: f64, failed: usize) -> (Cell, Observation) {
        let cell = Cell::Sessions {
            relay,
            sessions: SESSIONS,
        };
        let seen = SessionsResult {
            established: SESSIONS,
            failed,
            setup_cpu_ms,
            ..SessionsResult::default()
        };
        (cell, Observation::Sessions(seen))
    }

    fn ping(p99_us: f64) -> (Cell, Observation) {
        let cell = Cell::Ping {
            relay: RelayKind::Depot,
            hops: 3,
        };
        let seen = PingResult {
            pings: 1,
            p50_us: 100.0,
            p99_us,
            p999_us: 3000.0,
        };
        (cell, Observation::Ping(seen))
    }

    fn churn(minutes: u64, growth: f64) -> (Cell, Observation) {
        let samples = (0..6 * minutes).map(|number| DepotSample {
            at_s: 10.0 * number as f64,
            kib: (20_000.0 + growth * number as f64 + 5.0 * (number % 7) as f64) as u64,
            descriptors: 100 + number % 5,
        });
        let seen = ChurnResult {
            sessions: 1,
            samples: samples.collect(),
            ..ChurnResult::default()
        };
        (Cell::Churn { minutes }, Observation::Churn(seen))
    }

    fn text_of(observations: Vec<(Cell, Observation)>) -> (String, Vec<Figure>) {
        let records: Vec<_> = observations
            .into_iter()
            .map(|(cell, seen)| record(cell, 1, seen, true))
            .collect();
        let runs = Runs::select_valid(&records);
        (page(&runs).unwrap().text, figures(&runs))
    }

    #[test]
    fn claims_hold_or_fail_by_their_runs() {
        let (good, figures) = text_of(vec![
            sessions(RelayKind::Depot, 0.2, 0),
            sessions(RelayKind::Dante, 0.9, 7),
            ping(400.0),
            churn(60, 0.0),
        ]);
        assert_eq!(good.matches("**Holds**").count(), 4, "{good}");
        assert!(!good.contains("**Fails**"), "{good}");
        let keys: Vec<&str> = figures.iter().map(|figure| figure.key.as_str()).collect();
        let expected = [
            "setup-cpu",
            "session-memory",
            "busy-cpu",
            "ping-p99",
            "churn-memory",
        ];
        assert_eq!(keys, expected);
        let (bad, _) = text_of(vec![
            sessions(RelayKind::Depot, 0.6, 1),
            ping(1200.0),
            churn(60, 10.0),
        ]);
        assert_eq!(bad.matches("**Fails**").count(), 4, "{bad}");
    }

    #[test]
    fn the_longest_churn_decides() {
        let (text, _) = text_of(vec![churn(10, 10.0), churn(60, 0.0)]);
        assert!(text.contains("over 60 min"), "{text}");
        assert!(!text.contains("**Fails**"), "{text}");
    }

    #[test]
    fn cells_are_read_back_as_they_were_stored() {
        for cell in Cell::sessions().chain(Cell::pings()).chain(Cell::churns()) {
            let key = crate::record::Key::new(cell, 7);
            let text = serde_json::to_string(&key).unwrap();
            let read: crate::record::Key<Cell> = serde_json::from_str(&text).unwrap();
            assert_eq!(read, key, "{text}");
        }
    }
}
