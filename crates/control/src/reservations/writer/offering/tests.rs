//! Tests of counter-offers while the book changes.

use longhaul_circuits::time::Window;
use longhaul_control_api::map::Map;
use serde_json::json;

use longhaul_control_api::reservations::Reserved;

use super::super::AskError;
use super::*;
use crate::reservations::wanted::ReservationEnd;
use crate::reservations::{Record, ReservationCaller, ReservationCommand, ReservationStore};

const HOUR: i64 = 3_600_000;

/// One link of 10 Gbit/s, half of which may be reserved.
fn desk() -> ReservationStore {
    let both = json!({"capacity": {"rate_bps": 1e10}});
    let link =
        json!({"name": "w-e", "from": "west", "to": "east", "forward": both, "backward": both});
    let map = json!({"sites": [{"name": "west"}, {"name": "east"}], "links": [link]});
    let map: Map = serde_json::from_value(map).unwrap();
    let mut desk = ReservationStore::new().unwrap();
    assert!(desk.take_map(&map, &mut Vec::new()).unwrap());
    desk
}

fn operator() -> ReservationCaller {
    ReservationCaller {
        owner: "operator".to_owned(),
        name: "root".to_owned(),
        rights: None,
    }
}

/// Creates a request for a rate in Gbit/s, in one hour of the day.
fn reserve(gigabits: u64, hour: i64) -> ReservationCommand {
    let place = |site: &str| ReservationEnd {
        name: site.to_owned(),
        site: site.to_owned(),
        access: None,
        address: None,
        path_site: None,
    };
    let window = Window::new(hour * HOUR, (hour + 1) * HOUR);
    let request = json!({
        "from": "west",
        "to": "east",
        "end_ms": window.end,
        "wish": {"rate": {"rate_bps": gigabits * 1_000_000_000}}
    });
    ReservationCommand::Reserve {
        request: Box::new(serde_json::from_value(request).unwrap()),
        from: place("west"),
        to: place("east"),
        windows: vec![window],
        is_end: false,
        document: None,
        delegation: None,
    }
}

fn act(
    desk: &mut ReservationStore,
    command: &ReservationCommand,
) -> Result<Reserved, ReservationError> {
    let mut records: Vec<Record> = Vec::new();
    desk.execute(&operator(), command, 0, &mut records)
}

fn refusal(answer: Result<Reserved, ReservationError>) -> Box<RefusedRequest> {
    match answer.unwrap_err() {
        ReservationError::InsufficientBandwidth(refused) => refused,
        other => panic!("{other}"),
    }
}

/// Creates a refusal, with the receiver of its answer.
fn refused(
    desk: &mut ReservationStore,
    command: ReservationCommand,
    tries: usize,
) -> (
    PendingRefusal,
    oneshot::Receiver<Result<Reserved, AskError>>,
) {
    let (answer, answered) = oneshot::channel();
    let refused = PendingRefusal {
        refused: refusal(act(desk, &command)),
        asked: (operator(), command, None),
        tries,
        answer: Reply::new(answer, None),
    };
    (refused, answered)
}

fn offers(answered: Result<Reserved, AskError>) -> Offers {
    match answered.unwrap_err() {
        AskError::Refused(ReservationError::InsufficientBandwidth(refused)) => {
            refused.refusal.offers
        }
        other => panic!("{other}"),
    }
}

fn published(desk: &ReservationStore, record: i64) -> PublishedState {
    PublishedState {
        record,
        snapshot: desk.snapshot(),
    }
}

#[tokio::test]
async fn offers_match_the_refusal_and_name_their_record() {
    let mut desk = desk();
    act(&mut desk, &reserve(3, 1)).unwrap();
    let (again, _waiting) = mpsc::channel(1);
    let offering = OfferSearcher::new(again.downgrade());
    let (refused, answered) = refused(&mut desk, reserve(4, 1), 0);
    // Meanwhile others reserve at a time that does not matter.
    act(&mut desk, &reserve(5, 7)).unwrap();
    offering.publish(published(&desk, 12));
    offering.search(refused);
    let found = offers(answered.await.unwrap());
    assert_eq!((found.record, found.left_out), (Some(12), false));
    let [later, slower] = [found.later.unwrap(), found.slower.unwrap()];
    assert_eq!(later.request.start_ms, Some(2 * 3_600_000));
    assert_eq!(slower.pieces[0].paths[0].rate_bps, 2_000_000_000);
    offering.finish().await;
}

#[tokio::test]
async fn taken_offer_is_decided_again_a_few_times() {
    let mut desk = desk();
    act(&mut desk, &reserve(3, 1)).unwrap();
    let (again, mut waiting) = mpsc::channel(1);
    let offering = OfferSearcher::new(again.downgrade());
    let (first, answered) = refused(&mut desk, reserve(4, 1), 0);
    let (last, answered_last) = refused(&mut desk, reserve(4, 1), MAX_FURTHER_DECISIONS);
    act(&mut desk, &reserve(1, 1)).unwrap();
    offering.publish(published(&desk, 3));
    offering.search(first);
    let again = waiting.recv().await.unwrap();
    assert_eq!((again.tries, &again.command), (1, &reserve(4, 1)));
    drop(again);
    assert!(answered.await.is_err(), "whoever decides it again answers");
    offering.search(last);
    let found = offers(answered_last.await.unwrap());
    assert_eq!((found.record, found.left_out), (Some(3), true));
    assert!(found.slower.is_none(), "2 Gbit/s are not left any more");
    assert!(found.later.is_some(), "that one is nobody else's");
}

#[tokio::test(start_paused = true)]
async fn overload_refuses_at_once_without_offers() {
    let mut desk = desk();
    act(&mut desk, &reserve(3, 1)).unwrap();
    let (again, _waiting) = mpsc::channel(1);
    let offering = OfferSearcher::new(again.downgrade());
    offering.publish(published(&desk, 2));
    let mut look = || {
        let (refused, answered) = refused(&mut desk, reserve(4, 1), 0);
        offering.search(refused);
        answered
    };
    let threads = offering.threads.available_permits() as u32;
    let busy = offering
        .threads
        .clone()
        .acquire_many_owned(threads)
        .await
        .unwrap();
    let mut waiting: Vec<_> = (0..MAX_PENDING_REFUSALS).map(|_| look()).collect();
    let beyond = look().await.unwrap();
    assert!(offers(beyond).left_out);
    let began = tokio::time::Instant::now();
    assert!(
        waiting
            .iter_mut()
            .all(|answered| answered.try_recv().is_err())
    );
    for answered in waiting {
        let found = offers(answered.await.unwrap());
        assert!(found.left_out && found.later.is_none());
    }
    assert!((MAX_WAIT_FOR_THREAD..2 * MAX_WAIT_FOR_THREAD).contains(&began.elapsed()));
    let in_time = look();
    drop(busy);
    let found = offers(in_time.await.unwrap());
    assert!(!found.left_out && found.later.is_some());
    offering.finish().await;
}

#[tokio::test]
async fn search_is_cut_short_only_if_others_wait() {
    let mut desk = desk();
    act(&mut desk, &reserve(3, 1)).unwrap();
    let refused = refusal(act(&mut desk, &reserve(4, 1)));
    let published = published(&desk, 2);
    let of = |steps: usize| {
        let mut left = 0..steps;
        let found = refused.find_offers(|| left.next().is_some());
        current_offers(&refused, &found, Some(&published))
    };
    let (none, first, all) = (of(0).0, of(1).0, of(usize::MAX).0);
    assert!(none.left_out && none.slower.is_none() && none.later.is_none());
    assert!(first.left_out && first.slower.is_some() && first.later.is_none());
    assert!(!all.left_out && all.slower == first.slower && all.later.is_some());
    // A search that was cut short has not lost its offers to others.
    assert!(of(0).1 && of(1).1);

    let (again, _waiting) = mpsc::channel(1);
    let offering = OfferSearcher::new(again.downgrade());
    let queue = &offering.queue;
    let looking = u32::try_from(queue.threads).unwrap();
    let _looking = queue.places.try_acquire_many(looking).unwrap();
    assert!(!queue.is_waiting());
    let _waiting = queue.places.try_acquire().unwrap();
    assert!(queue.is_waiting());
}
