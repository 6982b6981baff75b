//! Measures how many reservation requests per second a writer answers, and how long each waits. The
//! requests are for real networks with many existing reservations, and decisions are stored in
//! SQLite. The disk alone is measured before and after.
//!
//! `cargo run --release -p longhaul-control --example reservation_rate -- [NETWORK] [RESERVATIONS]
//! [REQUESTS]`. The database is created in the working directory, and removed at the end.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that cannot go on has failed"
)]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_circuit_trials::load::LoadRequests;
use longhaul_circuit_trials::networks;
use longhaul_circuits::network::NodeId;
use longhaul_circuits::request::CircuitRequest;
use longhaul_control::ControllerStore;
use longhaul_control::reservations::names::NetworkNames;
use longhaul_control::reservations::wanted::ReservationEnd;
use longhaul_control::reservations::writer::{AskError, open};
use longhaul_control::reservations::{
    ReservationCaller, ReservationCommand, ReservationError, ReservationStore, ReservationsHandle,
    reported,
};
use longhaul_control::store::reservations::JournalBatch;
use longhaul_control_api::map::Map;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Number of records in one append when the journal is filled.
const RECORDS_PER_APPEND: usize = 10_000;
/// Maximum number of requests per existing reservation when the journal is filled.
const MAX_TRIES: usize = 4;
/// Maximum number of concurrent callers. Each waits for an answer before its next request.
const CALLERS: usize = 8;
/// Number of timed writes of [`SYNCED_BYTES`], each synced before the next.
const SYNCS: usize = 500;
const SYNCED_BYTES: usize = 4096;
/// Number of requests that arrive per second, even if earlier ones are not answered yet.
const ARRIVALS: u32 = 1_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next();
    let mut number = |or: usize| arguments.next().map_or(or, |text| text.parse().unwrap());
    let (reservations, requests) = (number(100_000), number(4_000));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for name in networks::NAMES {
        if wanted.as_ref().is_none_or(|wanted| wanted == name) {
            runtime.block_on(measure(name, reservations, requests));
        }
    }
}

fn operator() -> ReservationCaller {
    ReservationCaller {
        owner: "operator".to_owned(),
        name: "operator".to_owned(),
        rights: None,
    }
}

/// Converts a request into a command, which names sites instead of nodes.
fn command(names: &NetworkNames, request: &CircuitRequest) -> ReservationCommand {
    let end = |node: NodeId| ReservationEnd {
        name: names.site(node).to_owned(),
        site: names.site(node).to_owned(),
        access: None,
        address: None,
        path_site: None,
    };
    let (from, to) = (end(request.ends.from), end(request.ends.to));
    let body = json!({
        "from": from.name, "to": to.name, "paths": request.paths, "end_ms": request.window.end,
        "wish": reported::wish(request.wish),
    });
    ReservationCommand::Reserve {
        request: Box::new(serde_json::from_value(body).unwrap()),
        from,
        to,
        windows: vec![request.window],
        is_end: false,
        document: None,
        delegation: None,
    }
}

/// Measures on one network, and prints the results.
async fn measure(name: &'static str, reservations: usize, requests: usize) {
    let map = networks::map(name).unwrap();
    let dir = Path::new("reservation-rate.tmp");
    std::fs::create_dir_all(dir).unwrap();
    println!("{name}: {}", disk(dir));
    let store = ControllerStore::sqlite(&dir.join("control.sqlite"))
        .await
        .unwrap();
    let began = Instant::now();
    // Two measurements follow.
    let (booked, timed) = fill(&store, &map, reservations, 2 * requests).await;
    let mut timed = timed.into_iter();
    println!(
        "{name}: {booked} reservations on the books, in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    let (_sender, maps) = watch::channel(Arc::new(map.clone()));
    let (handle, writer) = open(store.clone(), maps, Arc::new(|| 0));
    let (stop, stopped) = watch::channel(false);
    let writing = tokio::spawn(writer.run(stopped));
    // This waits until the writer has read the journal.
    let names = handle.read(|known, _| known.names().clone()).await.unwrap();
    let mut commands = || {
        let requests = timed.by_ref().take(requests);
        requests.map(|request| command(&names, &request)).collect()
    };
    let concurrent = ask_concurrently(&handle, commands()).await;
    println!("  {CALLERS} callers in turn: {concurrent}");
    let at_rate = ask_at_rate(&handle, commands()).await;
    println!("  {ARRIVALS} a second arriving: {at_rate}");
    stop.send_replace(true);
    writing.await.unwrap();
    store.close().await;
    println!("{name}: {}", disk(dir));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Measures how long the disk takes to sync a small write. Returns a description.
fn disk(dir: &Path) -> String {
    let path = dir.join("synced");
    let mut file = std::fs::File::create(&path).unwrap();
    let sync = |_| {
        let began = Instant::now();
        file.write_all(&[0; SYNCED_BYTES]).unwrap();
        file.sync_data().unwrap();
        began.elapsed()
    };
    let mut waits: Vec<Duration> = (0..SYNCS).map(sync).collect();
    waits.sort_unstable();
    std::fs::remove_file(&path).unwrap();
    format!(
        "the disk alone keeps {SYNCED_BYTES} bytes in {:.1} ms (median), {:.1} ms (p99), {:.1} ms \
        (longest)",
        percentile(&waits, 50),
        percentile(&waits, 99),
        percentile(&waits, 100),
    )
}

/// Fills the journal with reservations. Returns their number, and the requests to be timed.
async fn fill(
    store: &ControllerStore,
    map: &Map,
    reservations: usize,
    timed_requests: usize,
) -> (usize, Vec<CircuitRequest>) {
    let mut known = ReservationStore::new().unwrap();
    let mut records = Vec::new();
    known.take_map(map, &mut records).unwrap();
    let names = known.names().clone();
    let network = names.network().unwrap();
    let mut requests = LoadRequests::new(&network, 1);
    let epoch = store.lead_reservations().await.unwrap();
    let (mut booked, mut first) = (0, 1);
    for _ in 0..MAX_TRIES * reservations {
        let is_enough = booked >= reservations;
        if records.len() >= RECORDS_PER_APPEND || is_enough {
            let batch = JournalBatch {
                epoch,
                first,
                records: &records,
                answers: &[],
                now: 0,
            };
            store.append_reservations(&batch).await.unwrap();
            first += i64::try_from(records.len()).unwrap();
            records.clear();
        }
        if is_enough {
            break;
        }
        let small = command(&names, &requests.small_request());
        booked += usize::from(known.execute(&operator(), &small, 0, &mut records).is_ok());
    }
    let timed = std::iter::repeat_with(|| requests.timed_request());
    (booked, timed.take(timed_requests).collect())
}

/// Waiting times of requests.
struct Waits {
    /// Duration of the measurement, in seconds.
    seconds: f64,
    /// Sorted waits for each [`AnswerKind`].
    waits: [Vec<Duration>; 3],
}

/// Kind of an answer.
#[derive(Clone, Copy)]
enum AnswerKind {
    Granted,
    Refused,
    /// Refused, and the search for offers was left out.
    WithoutOffers,
}

impl Waits {
    fn from_answers(seconds: f64, answers: &[(AnswerKind, Duration)]) -> Self {
        let mut waits: [Vec<Duration>; 3] = Default::default();
        for (kind, wait) in answers {
            if let Some(waits) = waits.get_mut(*kind as usize) {
                waits.push(*wait);
            }
        }
        waits.iter_mut().for_each(|waits| waits.sort_unstable());
        Self { seconds, waits }
    }
}

/// Returns a percentile of sorted waits in milliseconds, or 0 if there are none. `percent` is from
/// 0 to 100.
fn percentile(waits: &[Duration], percent: usize) -> f64 {
    let index = waits.len().saturating_sub(1) * percent / 100;
    waits.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3
}

impl std::fmt::Display for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [granted, refused, without] = &self.waits;
        let mut all = self.waits.concat();
        all.sort_unstable();
        let share = |waits: &[Duration]| waits.len() as f64 * 100.0 / all.len() as f64;
        write!(
            f,
            "{:.0} requests/s; one waits {:.1} ms (median), {:.1} ms (p99), {:.1} ms (longest); \
            {:.0} % granted, p99 {:.1} ms; refused p99 {:.1} ms, {:.1} % with offers left out",
            all.len() as f64 / self.seconds,
            percentile(&all, 50),
            percentile(&all, 99),
            percentile(&all, 100),
            share(granted),
            percentile(granted, 99),
            percentile(refused, 99),
            share(without),
        )
    }
}

/// Sends a command, and returns the kind of its answer and the wait.
async fn ask(handle: ReservationsHandle, command: ReservationCommand) -> (AnswerKind, Duration) {
    let began = Instant::now();
    let kind = match handle.execute(operator(), command, None).await {
        Ok(_) => AnswerKind::Granted,
        Err(AskError::Refused(ReservationError::InsufficientBandwidth(refused)))
            if refused.refusal.offers.left_out =>
        {
            AnswerKind::WithoutOffers
        }
        Err(AskError::Refused(ReservationError::InsufficientBandwidth(_))) => AnswerKind::Refused,
        Err(error) => panic!("{error}"),
    };
    (kind, began.elapsed())
}

/// Sends commands with up to [`CALLERS`] concurrent callers.
async fn ask_concurrently(handle: &ReservationsHandle, commands: Vec<ReservationCommand>) -> Waits {
    let began = Instant::now();
    let mut callers = JoinSet::new();
    let batch_len = commands.len().div_ceil(CALLERS).max(1);
    for batch in commands.chunks(batch_len) {
        let (handle, batch) = (handle.clone(), batch.to_vec());
        callers.spawn(async move {
            let mut answers = Vec::with_capacity(batch.len());
            for command in batch {
                answers.push(ask(handle.clone(), command).await);
            }
            answers
        });
    }
    let answers: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    Waits::from_answers(began.elapsed().as_secs_f64(), &answers)
}

/// Sends [`ARRIVALS`] commands per second.
async fn ask_at_rate(handle: &ReservationsHandle, commands: Vec<ReservationCommand>) -> Waits {
    let began = Instant::now();
    let mut next = interval(Duration::from_secs(1) / ARRIVALS);
    next.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut pending = JoinSet::new();
    for command in commands {
        next.tick().await;
        pending.spawn(ask(handle.clone(), command));
    }
    let answers = pending.join_all().await;
    Waits::from_answers(began.elapsed().as_secs_f64(), &answers)
}
