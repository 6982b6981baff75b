//! Tests that values survive a round trip through JSON, and that optional fields may be left out.

use super::measurements::{Measurement, Quantity, Source};
use super::principals::{Constraint, PathOption, PathOptionSet, ReservationLimits, Right};
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

fn reservation(more: serde_json::Value) -> ReservationRequest {
    let mut value = serde_json::json!({
        "from": "a", "to": "b", "wish": {"rate": {"rate_bps": 5}}, "end_ms": 5,
    });
    if let (Some(value), serde_json::Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn constraints_are_left_out_of_requests_without_them() {
    let plain = serde_json::to_value(reservation(serde_json::json!({}))).unwrap();
    assert!(plain.get("constraints").is_none() && plain.get("filter").is_none());
    let all = serde_json::json!({
        "constraints": {
            "via": ["c"], "only_links": ["l"], "max_hops": 3, "max_latency_us": 9,
            "ingress": "x", "egress": "y"
        },
        "filter": {"source_ports": {"first": 1, "last": 9}, "dscp": 46},
    });
    let read = reservation(all.clone());
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(
        (&written["constraints"], &written["filter"]),
        (&all["constraints"], &all["filter"])
    );
    let limits: ReservationLimits = serde_json::from_str("{}").unwrap();
    assert_eq!(serde_json::to_string(&limits).unwrap(), "{}");
}

#[test]
fn each_option_has_its_word_in_json() {
    for option in PathOption::ALL {
        let text = serde_json::to_string(&option).unwrap();
        assert_eq!(text, format!("\"{option}\""));
    }
    let set: PathOptionSet = serde_json::from_str(r#"["via", "dscp", "via"]"#).unwrap();
    assert_eq!(set.to_string(), "via, dscp");
    assert_eq!(serde_json::to_string(&set).unwrap(), r#"["via","dscp"]"#);
    let withheld = PathOptionSet::all().without(PathOptionSet::default_allowed());
    assert_eq!(withheld.to_string(), "ingress, egress");
}

#[test]
fn conflicting_options_are_named() {
    let path = serde_json::json!([{"sites": ["a", "b"], "rate_bps": 5}]);
    let conflict = |more: serde_json::Value| {
        let conflict = reservation(more).check_options().err();
        conflict
            .map(|conflict| conflict.to_string())
            .unwrap_or_default()
    };
    let with_path = |more: serde_json::Value| {
        let mut constraints = serde_json::json!({"paths": path});
        let mut request = serde_json::json!({});
        for (name, value) in more.as_object().unwrap() {
            let into = match name.as_str() {
                "via" | "only_links" | "max_hops" | "max_latency_us" => &mut constraints,
                _ => &mut request,
            };
            into[name] = value.clone();
        }
        request["constraints"] = constraints;
        conflict(request)
    };
    assert_eq!(with_path(serde_json::json!({})), "");
    for (more, word) in [
        (serde_json::json!({"via": ["c"]}), "via"),
        (serde_json::json!({"only_links": ["c"]}), "only-links"),
        (serde_json::json!({"max_hops": 2}), "max-hops"),
        (serde_json::json!({"max_latency_us": 2}), "max-latency"),
        (serde_json::json!({"avoid_sites": ["c"]}), "avoid-site"),
        (serde_json::json!({"avoid_links": ["c"]}), "avoid-link"),
        (serde_json::json!({"disjoint": "links"}), "disjoint"),
        (serde_json::json!({"preference": "most-room"}), "prefer"),
    ] {
        let text = with_path(more);
        assert!(
            text.starts_with(&format!("path and {word} exclude each other")),
            "{text}"
        );
    }
    for (more, start) in [
        (serde_json::json!({"paths": 2}), "paths 2 and path given 1"),
        (
            serde_json::json!({"wish": {"volume": {"bytes": 1}}}),
            "path and bytes",
        ),
        (
            serde_json::json!({"wish": {"rate": {"rate_bps": 6}}}),
            "path and rate",
        ),
    ] {
        let text = with_path(more);
        assert!(text.starts_with(start), "{text}");
    }
    for (more, start) in [
        (
            serde_json::json!({"constraints": {"via": ["c"]}, "avoid_sites": ["c"]}),
            "via and avoid-site both name c",
        ),
        (
            serde_json::json!({"constraints": {"only_links": ["l"]}, "avoid_links": ["l"]}),
            "only-links and avoid-link both name l",
        ),
        (
            serde_json::json!({"constraints": {"via": ["c", "c"]}}),
            "via names c twice",
        ),
        (
            serde_json::json!({"constraints": {"via": ["c", "d"], "max_hops": 2}}),
            "max-hops 2 and via with 2 sites",
        ),
        (
            serde_json::json!({"constraints": {"max_hops": 0}}),
            "max-hops 0",
        ),
        (serde_json::json!({"filter": {"dscp": 64}}), "dscp 64"),
        (
            serde_json::json!({"filter": {"source_ports": {"first": 9, "last": 8}}}),
            "ports 9-8",
        ),
        (
            serde_json::json!({"filter": {"source_ports": {"first": 8, "last": 9}}, "pin": true}),
            "ports and pin",
        ),
        (
            serde_json::json!({"filter": {"source_ports": {"first": 8, "last": 9}}, "paths": 3}),
            "ports 8-9 and paths 3",
        ),
    ] {
        let text = conflict(more);
        assert!(text.starts_with(start), "{text}");
    }
}
