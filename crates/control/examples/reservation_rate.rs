//! Measures how many reservation requests per second are decided, written to disk and answered with
//! many existing reservations, and the wait of each: by a writer on SQLite, on real networks. The
//! disk alone is measured before and after.
//!
//! `cargo run --release -p longhaul-control --example reservation_rate -- [NETWORK] [RESERVATIONS]
//! [REQUESTS]`; the file is created in the working directory and removed.

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
use longhaul_circuits::admit::CounterOfferMode;
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

/// Number of records that are appended at a time when filling the journal.
const RECORDS_AT_ONCE: usize = 10_000;
/// Maximum number of small requests per wanted reservation.
const MAX_TRIES: usize = 4;
/// Number of concurrent callers, each of which waits for its answer.
const CALLERS: usize = 8;
/// Number of timed writes of [`SYNCED_BYTES`], each synced before the next.
const SYNCS: usize = 500;
const SYNCED_BYTES: usize = 4096;
/// Number of requests that arrive in a second, whether earlier ones are answered or not.
const ARRIVALS: u32 = 1_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next();
    let mut number = |or: usize| arguments.next().map_or(or, |text| text.parse().unwrap());
    let (reservations, requests) = (number(100_000), number(4_000));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for name in networks::NAMES {
        if wanted.as_ref().is_none_or(|wanted| wanted == name) {
            runtime.block_on(network(name, reservations, requests));
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

/// Converts a request into a command, in names.
fn command(names: &NetworkNames, request: &CircuitRequest) -> ReservationCommand {
    let place = |node: NodeId| ReservationEnd {
        name: names.site(node).to_owned(),
        site: names.site(node).to_owned(),
        access: None,
        address: None,
        path_site: None,
    };
    let (from, to) = (place(request.ends.from), place(request.ends.to));
    let asked = json!({
        "from": from.name, "to": to.name, "paths": request.paths, "end_ms": request.window.end,
        "wish": reported::wish(request.wish),
    });
    ReservationCommand::Reserve {
        request: Box::new(serde_json::from_value(asked).unwrap()),
        from,
        to,
        windows: vec![request.window],
        is_end: false,
        document: None,
    }
}

async fn network(name: &'static str, reservations: usize, requests: usize) {
    let map = networks::map(name).unwrap();
    let dir = Path::new("reservation-rate.tmp");
    std::fs::create_dir_all(dir).unwrap();
    println!("{name}: {}", disk(dir));
    let store = ControllerStore::sqlite(&dir.join("control.sqlite"))
        .await
        .unwrap();
    let began = Instant::now();
    // For each of two arrival patterns, and each of three ways to make counter-offers.
    let (booked, asks) = fill(&store, &map, reservations, 6 * requests).await;
    let mut asks = asks.into_iter();
    println!(
        "{name}: {booked} reservations on the books, in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    for counter in [
        CounterOfferMode::Refuse,
        CounterOfferMode::Later,
        CounterOfferMode::Offer,
    ] {
        let (_sender, maps) = watch::channel(Arc::new(map.clone()));
        let (book, writer) = open(store.clone(), maps, Arc::new(|| 0));
        let (end, ends) = watch::channel(false);
        let writing = tokio::spawn(writer.with_counter_offers(counter).run(ends));
        // Waits until the journal has been read.
        let names = book.read(|desk, _| desk.names().clone()).await.unwrap();
        let offers = match counter {
            CounterOfferMode::Refuse => "without offers",
            CounterOfferMode::Later => "with offers beside the writer",
            CounterOfferMode::Offer => "with offers by the writer itself",
        };
        let commands = asks
            .by_ref()
            .take(requests)
            .map(|asked| command(&names, &asked));
        let closed = ask_concurrently(&book, commands.collect()).await;
        println!("  {offers}, {CALLERS} askers in turn: {closed}");
        let commands = asks
            .by_ref()
            .take(requests)
            .map(|asked| command(&names, &asked));
        let open = ask_at_rate(&book, commands.collect()).await;
        println!("  {offers}, {ARRIVALS} a second arriving: {open}");
        end.send_replace(true);
        writing.await.unwrap();
    }
    store.close().await;
    println!("{name}: {}", disk(dir));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Measures how long the idle disk takes to sync a few bytes.
fn disk(dir: &Path) -> String {
    let path = dir.join("synced");
    let mut file = std::fs::File::create(&path).unwrap();
    let one = |_| {
        let began = Instant::now();
        file.write_all(&[0; SYNCED_BYTES]).unwrap();
        file.sync_data().unwrap();
        began.elapsed()
    };
    let mut waits: Vec<Duration> = (0..SYNCS).map(one).collect();
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

/// Fills the journal. Returns the number of reservations, and the requests that follow.
async fn fill(
    store: &ControllerStore,
    map: &Map,
    reservations: usize,
    timed_requests: usize,
) -> (usize, Vec<CircuitRequest>) {
    let mut desk = ReservationStore::new()
        .unwrap()
        .with_counter_offers(CounterOfferMode::Refuse);
    let mut records = Vec::new();
    desk.take_map(map, &mut records).unwrap();
    let names = desk.names().clone();
    let network = names.network().unwrap();
    let mut asked = LoadRequests::new(&network, 1);
    let epoch = store.lead_reservations().await.unwrap();
    let (mut booked, mut first) = (0, 1);
    for _ in 0..MAX_TRIES * reservations {
        let is_enough = booked >= reservations;
        if records.len() >= RECORDS_AT_ONCE || is_enough {
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
        let small = command(&names, &asked.small_request());
        booked += usize::from(desk.execute(&operator(), &small, 0, &mut records).is_ok());
    }
    let timed = std::iter::repeat_with(|| asked.timed_request());
    (booked, timed.take(timed_requests).collect())
}

/// Waits of requests.
struct Waits {
    seconds: f64,
    /// Waits of requests that were granted, refused, and refused with offers left out.
    waits: [Vec<Duration>; 3],
}

/// Kind of an answer.
#[derive(Clone, Copy)]
enum AnswerKind {
    Granted,
    Refused,
    WithoutOffers,
}

impl Waits {
    fn from_answers(seconds: f64, answers: &[(AnswerKind, Duration)]) -> Self {
        let mut waits: [Vec<Duration>; 3] = Default::default();
        for (answered, wait) in answers {
            if let Some(waits) = waits.get_mut(*answered as usize) {
                waits.push(*wait);
            }
        }
        waits.iter_mut().for_each(|waits| waits.sort_unstable());
        Self { seconds, waits }
    }
}

/// Returns a percentile of the waits, in milliseconds.
fn percentile(waits: &[Duration], share: usize) -> f64 {
    let place = waits.len().saturating_sub(1) * share / 100;
    waits.get(place).map_or(0.0, Duration::as_secs_f64) * 1e3
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
async fn ask(book: ReservationsHandle, command: ReservationCommand) -> (AnswerKind, Duration) {
    let began = Instant::now();
    let answered = match book.execute(operator(), command, None).await {
        Ok(_) => AnswerKind::Granted,
        Err(AskError::Desk(ReservationError::InsufficientBandwidth(refusal)))
            if refusal.offers.left_out =>
        {
            AnswerKind::WithoutOffers
        }
        Err(AskError::Desk(ReservationError::InsufficientBandwidth(_))) => AnswerKind::Refused,
        Err(error) => panic!("{error}"),
    };
    (answered, began.elapsed())
}

/// Sends commands with a fixed number of concurrent callers.
async fn ask_concurrently(book: &ReservationsHandle, commands: Vec<ReservationCommand>) -> Waits {
    let began = Instant::now();
    let mut askers = JoinSet::new();
    let part = commands.len().div_ceil(CALLERS).max(1);
    for of_one in commands.chunks(part) {
        let (book, of_one) = (book.clone(), of_one.to_vec());
        askers.spawn(async move {
            let mut answers = Vec::with_capacity(of_one.len());
            for command in of_one {
                answers.push(ask(book.clone(), command).await);
            }
            answers
        });
    }
    let answers: Vec<_> = askers.join_all().await.into_iter().flatten().collect();
    Waits::from_answers(began.elapsed().as_secs_f64(), &answers)
}

/// Sends commands at a fixed rate.
async fn ask_at_rate(book: &ReservationsHandle, commands: Vec<ReservationCommand>) -> Waits {
    let began = Instant::now();
    let mut next = interval(Duration::from_secs(1) / ARRIVALS);
    next.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut asked = JoinSet::new();
    for command in commands {
        next.tick().await;
        asked.spawn(ask(book.clone(), command));
    }
    let answers = asked.join_all().await;
    Waits::from_answers(began.elapsed().as_secs_f64(), &answers)
}
