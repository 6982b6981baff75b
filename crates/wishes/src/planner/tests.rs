#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;
use crate::terms::{ReserveDefault, ReserveRule, StatedWish, terms};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stated(rate: u64, seconds: u64, size: Option<u64>) -> FlowPlanner {
    let wish = StatedWish {
        rate: Some(rate),
        duration: Some(seconds),
        size,
    };
    FlowPlanner::new(terms(wish, ReserveRule::Stated).unwrap())
}

const fn sent(bytes: u64) -> FlowSample {
    FlowSample {
        sent: bytes,
        received: 10,
    }
}

const fn reserved(id: u64, rate: u64, starts_in: u64, lasts: u64) -> CircuitAnswer {
    CircuitAnswer::Reserved(ReservedCircuit {
        id,
        rate,
        starts_in: s(starts_in),
        lasts: s(lasts),
    })
}

fn offer(rate: u64, starts_in: u64, lasts: u64) -> OfferedCircuit {
    OfferedCircuit {
        rate,
        starts_in: s(starts_in),
        lasts: s(lasts),
        request: format!("{rate} in {starts_in}"),
    }
}

fn refused(offers: &[OfferedCircuit]) -> CircuitAnswer {
    CircuitAnswer::Refused {
        offers: offers.to_vec(),
        why: "full".to_owned(),
    }
}

#[test]
fn a_stated_rate_is_held_and_lost_on_time() {
    let mut planner = stated(100, 60, None);
    assert_eq!(
        planner.observe(s(0), sent(1000)),
        None,
        "a control connection"
    );
    let ask = planner.observe(s(1), sent(1 << 20));
    assert_eq!(
        ask,
        Some(PlannerAction::Ask {
            direction: FlowDirection::Send,
            rate: 100,
            duration: s(60)
        })
    );
    assert_eq!(
        planner.observe(s(2), sent(2 << 20)),
        None,
        "an answer is due"
    );
    let begin = planner.answer(s(2), reserved(7, 100, 0, 60));
    assert!(matches!(begin, Some(PlannerAction::Begin { circuit, .. }) if circuit.id == 7));
    assert_eq!(planner.reserved(), Some(7));
    let mut bytes = 2 << 20;
    for now in 3..62 {
        bytes += 1000;
        match planner.observe(s(now), sent(bytes)) {
            None | Some(PlannerAction::AskState(7)) => {}
            other => panic!("{now}: {other:?}"),
        }
    }
    let over = planner.observe(s(62), sent(bytes));
    assert_eq!(over, Some(PlannerAction::End(CircuitEnd::Over { id: 7 })));
    assert!(planner.is_done() && planner.reserved().is_none());
    assert_eq!(planner.observe(s(63), sent(bytes + 1)), None);
}

#[test]
fn the_larger_direction_is_reserved() {
    let mut planner = stated(100, 60, None);
    let sample = FlowSample {
        sent: 300,
        received: 1 << 20,
    };
    let ask = planner.observe(s(1), sample).unwrap();
    assert!(matches!(
        ask,
        PlannerAction::Ask {
            direction: FlowDirection::Receive,
            ..
        }
    ));
}

#[test]
fn silence_returns_a_circuit_and_bytes_ask_again() {
    let mut planner = stated(100, 600, None);
    planner.observe(s(1), sent(1 << 20));
    planner.answer(s(1), reserved(7, 100, 0, 600));
    planner.observe(s(2), sent(2 << 20));
    let mut ended = None;
    for now in 3..40 {
        if let Some(PlannerAction::End(end)) = planner.observe(s(now), sent(2 << 20)) {
            ended = Some((now, end));
            break;
        }
    }
    assert_eq!(ended, Some((32, CircuitEnd::Silent { id: 7 })));
    assert_eq!(planner.observe(s(100), sent(2 << 20)), None, "still silent");
    let again = planner.observe(s(101), sent(3 << 20));
    assert!(
        matches!(again, Some(PlannerAction::Ask { .. })),
        "{again:?}"
    );
}

#[test]
fn suitable_offers_are_taken() {
    for (offers, taken) in [
        (vec![offer(60, 0, 60)], Some(60)),
        (vec![offer(49, 0, 60)], None),
        (vec![offer(100, 6, 60)], Some(100)),
        (vec![offer(100, 7, 60)], None),
        (vec![offer(100, 6, 60), offer(50, 0, 60)], Some(50)),
        (vec![offer(100, 0, 4)], None),
        (vec![], None),
    ] {
        let mut planner = stated(100, 60, None);
        planner.observe(s(1), sent(1 << 20));
        match (planner.answer(s(1), refused(&offers)), taken) {
            (Some(PlannerAction::TakeOffer(offer)), Some(rate)) => assert_eq!(offer.rate, rate),
            (Some(PlannerAction::GiveUp(why)), None) => assert_eq!(why, "full"),
            other => panic!("{offers:?}: {other:?}"),
        }
    }
}

#[test]
fn a_later_offer_begins_when_it_begins() {
    let mut planner = stated(100, 60, None);
    planner.observe(s(1), sent(1 << 20));
    planner.answer(s(1), refused(&[offer(100, 5, 60)]));
    assert_eq!(planner.answer(s(1), reserved(8, 100, 5, 60)), None);
    assert_eq!(planner.observe(s(5), sent(2 << 20)), None);
    let begin = planner.observe(s(6), sent(3 << 20));
    assert!(
        matches!(begin, Some(PlannerAction::Begin { .. })),
        "{begin:?}"
    );
}

#[test]
fn a_revoked_circuit_is_not_asked_for_again() {
    let mut planner = stated(100, 60, None);
    planner.observe(s(1), sent(1 << 20));
    planner.answer(s(1), reserved(7, 100, 0, 60));
    assert_eq!(
        planner.observe(s(6), sent(2 << 20)),
        Some(PlannerAction::AskState(7))
    );
    assert_eq!(
        planner.state(s(6), 7, CircuitState::Unknown),
        None,
        "the controller is away"
    );
    let lost = planner.state(s(7), 7, CircuitState::Lost("cancelled".to_owned()));
    let why = "cancelled".to_owned();
    assert_eq!(
        lost,
        Some(PlannerAction::End(CircuitEnd::Lost { id: 7, why }))
    );
    assert!(planner.is_done());
}

#[test]
fn a_dead_controller_is_asked_less_and_less() {
    let mut planner = stated(100, 3600, None);
    let (mut asked, mut bytes) = (Vec::new(), 1 << 20);
    for now in 0..3600 {
        bytes += 1000;
        if let Some(PlannerAction::Ask { .. }) = planner.observe(s(now), sent(bytes)) {
            asked.push(now);
            let why = "no answer".to_owned();
            let is_transient = true;
            planner.answer(s(now), CircuitAnswer::Failed { why, is_transient });
        }
    }
    assert_eq!(asked, [0, 15, 45, 105, 225, 465]);
    assert!(planner.is_done());
    let mut planner = stated(100, 60, None);
    planner.observe(s(1), sent(1 << 20));
    let why = "not on the map".to_owned();
    let is_transient = false;
    planner.answer(s(1), CircuitAnswer::Failed { why, is_transient });
    assert!(planner.is_done());
}

#[test]
fn a_known_size_bounds_the_circuit() {
    // 10 s of bytes at the rate.
    let mut planner = stated(8_000_000, 600, Some(11 << 20));
    let Some(PlannerAction::Ask { duration, .. }) = planner.observe(s(1), sent(1 << 20)) else {
        panic!("nothing is asked")
    };
    assert!(duration > s(20) && duration < s(21), "{duration:?}");
    // Less than five seconds are left.
    let mut planner = stated(8_000_000, 600, Some(5 << 20));
    let short = planner.observe(s(1), sent(1 << 20));
    assert!(matches!(short, Some(PlannerAction::GiveUp(_))), "{short:?}");
    assert!(planner.is_done());
}

fn long_flow(above: Option<u64>) -> FlowPlanner {
    FlowPlanner::new(ReserveTerms {
        reserve: ReserveDefault {
            rate: 100_000,
            duration: s(60),
            direction: None,
            after: 100_000,
            above,
        },
        size: None,
        is_stated: false,
    })
}

#[test]
fn long_flows_move_in_mid_flight() {
    // 8 kbit/s is too slow for `above`, 40 kbit/s is not, and 200 kbit/s needs no circuit.
    for (bytes_per_second, above, asks) in [
        (5_000, Some(20_000), Some(20)),
        (1_000, Some(20_000), None),
        (1_000, None, Some(100)),
        (25_000, None, None),
    ] {
        let mut planner = long_flow(above);
        let asked = (0..200).find(|now| {
            let sample = sent(now * bytes_per_second);
            let action = planner.observe(s(*now), sample);
            matches!(action, Some(PlannerAction::Ask { .. }))
        });
        assert_eq!(asked, asks, "{bytes_per_second}");
    }
}

#[test]
fn waiting_for_a_path_pays_off() {
    let wish = |seconds, size| StatedWish {
        rate: Some(8_000_000),
        duration: Some(seconds),
        size,
    };
    for (seconds, size, waits) in [
        (600, None, 2_000),
        (10, None, 500),
        (600, Some(1_000_000), 50),
    ] {
        let terms = terms(wish(seconds, size), ReserveRule::Stated).unwrap();
        assert_eq!(patience(&terms), Duration::from_millis(waits));
    }
}

#[derive(Debug, Clone)]
enum Happening {
    Bytes(u64),
    Silence,
    Reserved(u8, u8),
    Refused(u8, u8),
    Failed(bool),
    Lost,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0_u64..2_000_000).prop_map(Happening::Bytes),
        Just(Happening::Silence),
        any::<(u8, u8)>().prop_map(|(starts, lasts)| Happening::Reserved(starts, lasts)),
        any::<(u8, u8)>().prop_map(|(rate, starts)| Happening::Refused(rate, starts)),
        any::<bool>().prop_map(Happening::Failed),
        Just(Happening::Lost),
    ]
}

proptest! {
    #[test]
    fn circuits_are_never_leaked(happenings in prop::collection::vec(happening(), 0..300)) {
        let mut planner = stated(200, 120, None);
        let (mut now, mut bytes, mut requests, mut id) = (s(0), 0, 0, 0);
        // The reservation in force, as the outside sees it.
        let mut held: Option<u64> = None;
        for happening in happenings {
            now += s(3);
            let mut actions = Vec::new();
            match happening {
                Happening::Bytes(more) => bytes += more,
                Happening::Silence => now += s(20),
                Happening::Reserved(starts, lasts) => {
                    id += 1;
                    let answer = reserved(id, 200, starts.into(), lasts.into());
                    let was_asking = matches!(planner.phase, Phase::Asking(_));
                    actions.push(planner.answer(now, answer));
                    if was_asking {
                        prop_assert!(held.is_none(), "one circuit at a time");
                        held = Some(id);
                    }
                }
                Happening::Refused(rate, starts) => {
                    let offers = [offer(rate.into(), starts.into(), 60)];
                    actions.push(planner.answer(now, refused(&offers)));
                }
                Happening::Failed(is_transient) => {
                    let why = String::new();
                    actions.push(planner.answer(now, CircuitAnswer::Failed { why, is_transient }));
                }
                Happening::Lost => {
                    let lost = CircuitState::Lost(String::new());
                    actions.push(planner.state(now, held.unwrap_or(0), lost));
                }
            }
            actions.push(planner.observe(now, sent(bytes)));
            for action in actions.into_iter().flatten() {
                match action {
                    PlannerAction::Ask { .. } | PlannerAction::TakeOffer(_) => requests += 1,
                    PlannerAction::Begin { circuit, .. } => {
                        prop_assert_eq!(Some(circuit.id), held);
                    }
                    PlannerAction::AskState(id) => prop_assert_eq!(Some(id), held),
                    PlannerAction::End(
                        CircuitEnd::Over { id } | CircuitEnd::Silent { id }
                        | CircuitEnd::Lost { id, .. },
                    ) => {
                        prop_assert_eq!(Some(id), held);
                        held = None;
                    }
                    PlannerAction::GiveUp(_) => prop_assert_eq!(held, None),
                }
            }
            prop_assert_eq!(planner.reserved(), held);
        }
        prop_assert!(requests <= MAX_REQUESTS);
    }
}
