//! Tests of the journal of reservations and its writer, with SQLite and with PostgreSQL. Wherever a
//! writer is killed, nothing that it acknowledged is lost, and nothing exists twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "../../api/tests/support/postgres.rs"]
mod postgres;
#[macro_use]
#[path = "../../api/tests/support/stores.rs"]
mod stores;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::Window;
use longhaul_control::leader::{Leader, Leadership};
use longhaul_control::reservations::wanted::ReservationEnd;
use longhaul_control::reservations::writer::{AskError, open};
use longhaul_control::reservations::{
    Clock, JournalWriter, Record, ReservationCaller, ReservationCommand, ReservationError,
    ReservationStore, ReservationsHandle,
};
use longhaul_control::store::reservations::JournalBatch;
use longhaul_control::store::{IdempotencyKey, StoreError};
use longhaul_control::{ControllerStore, reservations};
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::{Offers, ReservationQuery, ReserveState, Reserved};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

const HOUR: i64 = 3_600_000;
/// Number of concurrent requests when a writer is killed.
const REQUESTS: usize = 4;
/// Number of polls that no run of a writer reaches.
const MANY_POLLS: usize = 10_000;

/// One link of 10 Gbit/s, half of which may be reserved.
fn map() -> Map {
    let both = json!({"capacity": {"rate_bps": 1e10}});
    let link =
        json!({"name": "w-e", "from": "west", "to": "east", "forward": both, "backward": both});
    serde_json::from_value(json!({"sites": [{"name": "west"}, {"name": "east"}], "links": [link]}))
        .unwrap()
}

fn operator() -> ReservationCaller {
    ReservationCaller {
        owner: "operator".to_owned(),
        name: "root".to_owned(),
        rights: None,
    }
}

fn reserve(name: &str, bps: u64, hold: bool) -> ReservationCommand {
    let request = json!({"from": "west", "to": "east",
        "wish": {"rate": {"rate_bps": bps}}, "end_ms": HOUR,
        "description": name, "hold": hold});
    let place = |site: &str| ReservationEnd {
        name: site.to_owned(),
        site: site.to_owned(),
        access: None,
        address: None,
        path_site: None,
    };
    ReservationCommand::Reserve {
        request: Box::new(serde_json::from_value(request).unwrap()),
        from: place("west"),
        to: place("east"),
        windows: vec![Window::new(0, HOUR)],
        is_end: false,
        document: None,
        delegation: None,
    }
}

fn once(name: &str) -> IdempotencyKey {
    IdempotencyKey::new("reservations r", name, name.as_bytes())
}

/// Clock that stands still until it is set.
#[derive(Clone, Default)]
struct Time(Arc<AtomicI64>);

impl Time {
    fn clock(&self) -> Clock {
        let time = self.0.clone();
        Arc::new(move || time.load(Ordering::SeqCst))
    }

    fn set(&self, now: i64) {
        self.0.store(now, Ordering::SeqCst);
    }
}

fn opened(store: &ControllerStore, time: &Time) -> (ReservationsHandle, JournalWriter) {
    let (_, maps) = watch::channel(Arc::new(map()));
    open(store.clone(), maps, time.clock())
}

/// Writer that runs until this is dropped.
struct Writing {
    book: ReservationsHandle,
    task: tokio::task::JoinHandle<()>,
    end: watch::Sender<bool>,
}

impl Writing {
    fn begin(store: &ControllerStore, time: &Time) -> Self {
        let (book, writer) = opened(store, time);
        let (end, ends) = watch::channel(false);
        let task = tokio::spawn(writer.run(ends));
        Self { book, task, end }
    }

    async fn finish(self) {
        self.end.send_replace(true);
        self.task.await.unwrap();
    }
}

/// Returns the number of reservations with each description.
async fn there(book: &ReservationsHandle) -> BTreeMap<String, u32> {
    let look = |desk: &ReservationStore, now| {
        desk.list(&operator(), &ReservationQuery::default(), 0, 100_000, now)
            .0
    };
    let mut there = BTreeMap::new();
    for one in book.read(look).await.unwrap() {
        *there.entry(one.description.unwrap()).or_default() += 1;
    }
    there
}

async fn journal(store: &ControllerStore) -> Vec<(i64, Record)> {
    store.reservation_records(0, 100_000).await.unwrap()
}

async fn superseded_writer_appends_nothing(store: ControllerStore) {
    let mut desk = ReservationStore::new().unwrap();
    let mut records = Vec::new();
    desk.take_map(&map(), &mut records).unwrap();
    let old = store.lead_reservations().await.unwrap();
    let batch = |epoch, first, records| JournalBatch {
        epoch,
        first,
        records,
        answers: &[],
        now: 0,
    };
    store
        .append_reservations(&batch(old, 1, &records))
        .await
        .unwrap();
    let new = store.lead_reservations().await.unwrap();
    assert!(new > old);
    assert_eq!(store.reservation_epoch().await.unwrap(), new);
    let fenced = store
        .append_reservations(&batch(old, 2, &records))
        .await
        .unwrap_err();
    assert!(matches!(fenced, StoreError::Fenced), "{fenced}");
    // Existing records are not overwritten, and no part of a refused batch stays.
    let twice = [records[0].clone(), records[0].clone()];
    assert!(
        store
            .append_reservations(&batch(new, 0, &twice))
            .await
            .is_err()
    );
    assert_eq!(journal(&store).await, [(1, records[0].clone())]);
    store
        .append_reservations(&batch(new, 2, &records))
        .await
        .unwrap();
    assert_eq!(journal(&store).await.len(), 2);
}

async fn concurrent_requests_are_decided_in_sequence(store: ControllerStore) {
    let time = Time::default();
    let writing = Writing::begin(&store, &time);
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let book = writing.book.clone();
        tasks.spawn(async move {
            let command = reserve(&format!("{number}"), 500_000_000, false);
            match book.execute(operator(), command, None).await {
                Ok(Reserved { reservations }) => reservations.len(),
                Err(AskError::Refused(ReservationError::InsufficientBandwidth(_))) => 0,
                Err(error) => panic!("{error}"),
            }
        });
    }
    let granted: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(granted, 10, "half of ten gigabits in parts of half of one");
    let before = there(&writing.book).await;
    assert_eq!(before.len(), 10);
    writing.finish().await;
    let again = Writing::begin(&store, &time);
    assert_eq!(there(&again.book).await, before);
}

async fn idempotency_key_reserves_once(store: ControllerStore) {
    let time = Time::default();
    let writing = Writing::begin(&store, &time);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let book = writing.book.clone();
        tasks.spawn(async move {
            let asked = book.execute(operator(), reserve("a", 1, false), Some(once("a")));
            asked.await.unwrap().reservations[0].id
        });
    }
    assert_eq!(tasks.join_all().await, [1; 8]);
    let other = IdempotencyKey::new("reservations r", "a", b"another content");
    let reused = writing
        .book
        .execute(operator(), reserve("b", 1, false), Some(other))
        .await;
    assert!(matches!(
        reused,
        Err(AskError::Store(StoreError::KeyReused(_)))
    ));
    // A refusal is not remembered, as the request may succeed later.
    let much = || {
        writing.book.execute(
            operator(),
            reserve("c", 5_000_000_000, false),
            Some(once("c")),
        )
    };
    assert!(much().await.is_err());
    let cancel = ReservationCommand::Cancel {
        id: ReservationId(1),
        series: false,
    };
    writing
        .book
        .execute(operator(), cancel, None)
        .await
        .unwrap();
    assert_eq!(much().await.unwrap().reservations[0].id, 2);
    writing.finish().await;
    let again = Writing::begin(&store, &time);
    let asked = again
        .book
        .execute(operator(), reserve("a", 1, false), Some(once("a")))
        .await;
    // The answer is the original one.
    assert_eq!(asked.unwrap().reservations[0].pieces.len(), 1);
    assert_eq!(there(&again.book).await.len(), 2);
}

async fn holds_expire_even_after_downtime(store: ControllerStore) {
    let time = Time::default();
    let writing = Writing::begin(&store, &time);
    let held = writing
        .book
        .execute(operator(), reserve("a", 5_000_000_000, true), None)
        .await
        .unwrap();
    assert_eq!(held.reservations[0].state.reserve, ReserveState::Held);
    assert!(
        writing
            .book
            .execute(operator(), reserve("b", 1, false), None)
            .await
            .is_err()
    );
    writing.finish().await;
    time.set(i64::try_from(reservations::desk::HOLD_LIFETIME_MS).unwrap());
    let again = Writing::begin(&store, &time);
    let late = again
        .book
        .execute(
            operator(),
            ReservationCommand::Commit(ReservationId(1)),
            None,
        )
        .await;
    assert!(matches!(
        late,
        Err(AskError::Refused(ReservationError::NotNow(..)))
    ));
    assert!(
        again
            .book
            .execute(operator(), reserve("b", 1, false), None)
            .await
            .is_ok()
    );
}

/// Counter-offers from the background search are granted by the book at the record that they name,
/// whatever was decided meanwhile.
async fn offers_are_valid_at_their_record(store: ControllerStore) {
    let time = Time::default();
    let writing = Writing::begin(&store, &time);
    let mut tasks = JoinSet::new();
    for number in 0..60_u64 {
        let book = writing.book.clone();
        let bps = 300_000_000 + 200_000_000 * (number % 11);
        tasks.spawn(async move {
            match book
                .execute(operator(), reserve("a", bps, false), None)
                .await
            {
                Err(AskError::Refused(ReservationError::InsufficientBandwidth(refused))) => {
                    Some(refused.refusal.offers)
                }
                Ok(_) => None,
                Err(error) => panic!("{error}"),
            }
        });
    }
    let refused: Vec<Offers> = tasks.join_all().await.into_iter().flatten().collect();
    writing.finish().await;
    let journal = journal(&store).await;
    let mut taken = 0;
    for offers in refused {
        if offers.left_out && offers.record.is_none() {
            continue;
        }
        let mut desk = ReservationStore::new().unwrap();
        let record = i64::try_from(offers.record.unwrap()).unwrap();
        for (_, record) in journal.iter().take_while(|(number, _)| *number <= record) {
            desk.apply(record).unwrap();
        }
        for offer in [offers.later, offers.slower, offers.volume]
            .into_iter()
            .flatten()
        {
            let ReservationCommand::Reserve { from, to, .. } = reserve("a", 1, false) else {
                panic!()
            };
            let [start, end] = [offer.request.start_ms.unwrap(), offer.request.end_ms]
                .map(|moment| i64::try_from(moment).unwrap());
            let command = ReservationCommand::Reserve {
                request: Box::new(offer.request),
                from,
                to,
                windows: vec![Window::new(start, end)],
                is_end: false,
                document: None,
                delegation: None,
            };
            let granted = desk
                .clone()
                .execute(&operator(), &command, 0, &mut Vec::new());
            assert_eq!(granted.unwrap().reservations[0].pieces, offer.pieces);
            taken += 1;
        }
    }
    assert!(taken > 0, "nothing was offered");
}

/// Two controllers write to one store. Whichever is asked takes the lead, and no bandwidth is
/// promised twice.
async fn two_writers_never_overbook(store: ControllerStore) {
    let time = Time::default();
    let both = [Writing::begin(&store, &time), Writing::begin(&store, &time)];
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let book = both[number % 2].book.clone();
        tasks.spawn(async move {
            let name = format!("{number}");
            loop {
                match book
                    .execute(
                        operator(),
                        reserve(&name, 500_000_000, false),
                        Some(once(&name)),
                    )
                    .await
                {
                    Ok(_) => return 1,
                    Err(AskError::Refused(ReservationError::InsufficientBandwidth(_))) => return 0,
                    // The other writer came between repeatedly.
                    Err(AskError::Store(StoreError::Busy | StoreError::Behind)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let granted: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(granted, 10);
    for writing in both {
        writing.finish().await;
    }
    let again = Writing::begin(&store, &time);
    let there = there(&again.book).await;
    assert!(
        there.len() == 10 && there.values().all(|count| *count == 1),
        "{there:?}"
    );
}

/// Future that is dropped after a number of polls.
struct Killed<F> {
    future: Option<Pin<Box<F>>>,
    polls: usize,
}

impl<F: Future<Output = ()>> Future for Killed<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(future) = this.future.as_mut().filter(|_| this.polls > 0) else {
            this.future = None;
            return Poll::Ready(());
        };
        this.polls -= 1;
        future.as_mut().poll(context)
    }
}

/// The writer is dropped after one poll, after two, and so on, until all requests are answered.
/// This covers every step, including the one between appending and answering. A repeated request
/// with the same key then exists once.
async fn killed_writer_loses_and_repeats_nothing(store: ControllerStore) {
    let time = Time::default();
    let (mut all, mut broken) = (Vec::new(), 0);
    for polls in 1..MANY_POLLS {
        let (book, writer) = opened(&store, &time);
        let (_end, ends) = watch::channel(false);
        let mut asked = JoinSet::new();
        for number in 0..REQUESTS {
            let (book, name) = (book.clone(), format!("{polls}-{number}"));
            asked.spawn(async move {
                let answer = book
                    .execute(operator(), reserve(&name, 1, false), Some(once(&name)))
                    .await;
                (name, answer.is_ok())
            });
        }
        drop(book);
        let killed = Killed {
            future: Some(Box::pin(writer.run(ends))),
            polls,
        };
        let (_, answers) = tokio::join!(killed, asked.join_all());
        let acknowledged = answers.iter().filter(|(_, ok)| *ok).count();
        all.extend(answers.iter().cloned());
        let again = Writing::begin(&store, &time);
        let found = there(&again.book).await;
        for (name, _) in all.iter().filter(|(_, ok)| *ok) {
            assert_eq!(
                found.get(name),
                Some(&1),
                "{name} was acknowledged before {polls} polls"
            );
        }
        assert!(found.values().all(|count| *count == 1), "{found:?}");
        broken += usize::from(acknowledged < REQUESTS);
        for (name, ok) in &mut all {
            if !*ok {
                let asked =
                    again
                        .book
                        .execute(operator(), reserve(name, 1, false), Some(once(name)));
                *ok = asked.await.is_ok();
                assert!(*ok, "{name}");
            }
        }
        let found = there(&again.book).await;
        assert_eq!(found.len(), all.len());
        assert!(found.values().all(|count| *count == 1), "{found:?}");
        again.finish().await;
        if acknowledged == REQUESTS {
            assert!(broken > 3, "it was killed in the middle {broken} times");
            return;
        }
    }
    panic!("it never came to its end");
}

on_both!(
    ControllerStore: superseded_writer_appends_nothing,
    concurrent_requests_are_decided_in_sequence,
    offers_are_valid_at_their_record,
    idempotency_key_reserves_once,
    holds_expire_even_after_downtime,
    two_writers_never_overbook,
    killed_writer_loses_and_repeats_nothing,
);

fn writing_led_by(
    store: &ControllerStore,
    time: &Time,
    leadership: watch::Receiver<Leadership>,
) -> Writing {
    let (book, writer) = opened(store, time);
    let (end, ends) = watch::channel(false);
    let task = tokio::spawn(writer.with_leadership(leadership).run(ends));
    Writing { book, task, end }
}

/// The holder of the lock has an epoch. When another controller holds the lock, the earlier one is
/// refused, whatever it assumes, and takes no epoch.
#[tokio::test]
async fn former_lock_holder_writes_nothing() {
    let server = postgres::Postgres::start();
    server.create_database("leaders");
    let store = ControllerStore::postgres(&server.url_of("leaders"))
        .await
        .unwrap();
    let time = Time::default();
    let named = |name: &str| Leader {
        name: name.to_owned(),
        url: Some(format!("https://{name}:7513")),
    };
    let mut first = store.seat().await.unwrap();
    assert_eq!(first.ask().await.unwrap(), (true, None));
    let old = first.lead(&named("first")).await.unwrap();
    assert!(first.is_held().await.unwrap());
    let mut second = store.seat().await.unwrap();
    assert_eq!(second.ask().await.unwrap(), (false, Some(named("first"))));
    assert!(!second.is_held().await.unwrap());
    let (_of_first, leads) = watch::channel(Leadership::Leading { epoch: old });
    let of_first = writing_led_by(&store, &time, leads);
    let (of_second, follows) = watch::channel(Leadership::Following {
        leader: Some(named("first")),
    });
    let follower = writing_led_by(&store, &time, follows);
    of_first
        .book
        .execute(operator(), reserve("a", 1, false), Some(once("a")))
        .await
        .unwrap();
    // The other controller refuses the request, and reads what was written.
    let turned_away = follower
        .book
        .execute(operator(), reserve("b", 1, false), None)
        .await;
    let at = |error: &AskError| match error {
        AskError::Store(StoreError::NotLeading { leader }) => leader.clone(),
        error => panic!("{error}"),
    };
    assert_eq!(
        at(&turned_away.unwrap_err()).as_deref(),
        Some("https://first:7513")
    );
    let mut changes = follower.book.changes();
    while there(&follower.book).await.is_empty() {
        changes.changed().await.unwrap();
    }
    first.leave().await.unwrap();
    while !second.ask().await.unwrap().0 {}
    let new = second.lead(&named("second")).await.unwrap();
    assert!(new > old);
    // It has not received the news yet.
    for _ in 0..2 {
        let refused = of_first
            .book
            .execute(operator(), reserve("c", 1, false), None)
            .await;
        assert_eq!(at(&refused.unwrap_err()), None);
    }
    assert_eq!(store.reservation_epoch().await.unwrap(), new);
    of_second.send_replace(Leadership::Leading { epoch: new });
    let mut leads = follower.book.leads();
    leads.wait_for(|term| *term == Some(new)).await.unwrap();
    for name in ["a", "d"] {
        let asked = follower
            .book
            .execute(operator(), reserve(name, 1, false), Some(once(name)));
        asked.await.unwrap();
    }
    let there = there(&follower.book).await;
    assert_eq!(
        there.into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), 1), ("d".to_owned(), 1)]
    );
}

/// If the file loses its last records, as if they were never committed, the rest is the book as it
/// was. A missing or malformed record in the middle makes the journal invalid, which is reported.
#[tokio::test]
async fn journal_may_end_early_but_not_have_a_hole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("control.sqlite");
    let time = Time::default();
    let store = ControllerStore::sqlite(&file).await.unwrap();
    let writing = Writing::begin(&store, &time);
    for name in ["a", "b", "c"] {
        writing
            .book
            .execute(operator(), reserve(name, 1, false), None)
            .await
            .unwrap();
    }
    writing.finish().await;
    let last = journal(&store).await.last().unwrap().0;
    store.close().await;
    let edit = async |statement: &'static str, number: i64| {
        use sqlx::ConnectOptions;
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
        let mut connection = options.connect().await.unwrap();
        sqlx::query(statement)
            .bind(number)
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::Connection::close(connection).await.unwrap();
    };
    // The last commit is missing, so the reservation is held and not promised.
    edit("DELETE FROM reservation_journal WHERE number = $1", last).await;
    let store = ControllerStore::sqlite(&file).await.unwrap();
    let writing = Writing::begin(&store, &time);
    let state = |desk: &ReservationStore, now| {
        let shown = desk.show(&operator(), ReservationId(3), now);
        shown.ok().map(|one| one.state.reserve)
    };
    assert_eq!(
        writing.book.read(state).await.unwrap(),
        Some(ReserveState::Held)
    );
    writing.finish().await;
    store.close().await;
    edit("DELETE FROM reservation_journal WHERE number = $1", 2).await;
    let store = ControllerStore::sqlite(&file).await.unwrap();
    let writing = Writing::begin(&store, &time);
    assert!(matches!(
        writing.book.read(state).await,
        Err(StoreError::Behind)
    ));
    let asked = writing
        .book
        .execute(operator(), reserve("d", 1, false), None)
        .await;
    assert!(matches!(asked, Err(AskError::Store(StoreError::Behind))));
    writing.finish().await;
}
