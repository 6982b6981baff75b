//! Tests that values survive a round trip through JSON, and that optional fields may be left out.

use super::measurements::{Measurement, Quantity, Source};
use super::principals::{Constraint, Right};
use super::reservations::{Disjoint, Pace, ReservationRequest, Wish};
use super::routes::RouteQuestion;

#[test]
fn a_measurement_needs_no_conditions() {
    let text = r#"{"from": "a", "to": "b", "quantity": "rtt", "at_ms": 1, "value": 0.1, "source": "probe"}"#;
    let read: Measurement = serde_json::from_str(text).unwrap();
    assert_eq!((read.quantity, read.source), (Quantity::Rtt, Source::Probe));
    let again: Measurement = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(again, read);
}

#[test]
fn route_question_needs_only_a_destination() {
    let question: RouteQuestion = serde_json::from_str(r#"{"to": "h"}"#).unwrap();
    assert!(!question.may_explore && question.bytes.is_none());
    let right = r#"{"resource": "map", "permission": "write", "constraint": {"site": "s"}}"#;
    let right: Right = serde_json::from_str(right).unwrap();
    assert_eq!(right.constraint, Constraint::Site("s".into()));
    assert!(
        serde_json::from_str::<Right>(r#"{"resource": "map", "permission": "write"}"#).is_err()
    );
}

#[test]
fn reservation_needs_only_ends_wish_and_end() {
    let text = r#"{"from": "a", "to": "b", "wish": {"volume": {"bytes": 10}}, "end_ms": 5}"#;
    let request: ReservationRequest = serde_json::from_str(text).unwrap();
    assert_eq!(
        (request.paths, request.disjoint, request.hold),
        (1, Disjoint::No, false)
    );
    let volume = Wish::Volume {
        bytes: 10,
        at_most_bps: None,
        pace: Pace::Early,
    };
    assert_eq!((request.wish, request.start_ms), (volume, None));
    let again: ReservationRequest =
        serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
    assert_eq!(again, request);
    assert!(serde_json::from_str::<ReservationRequest>(&text.replace("bytes", "octets")).is_err());
}
