//! Faults of `[ospf]`.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

fn config(more: &str) -> OspfConfig {
    let usual = r#"{"source": [{"socket": "/run/frr/ospfd.vty"}],
        "routers": {"west": "192.0.2.1", "east": "192.0.2.2"}}"#;
    let mut config: serde_json::Value = serde_json::from_str(usual).unwrap();
    let more: serde_json::Value = serde_json::from_str(more).unwrap();
    for (field, value) in more.as_object().unwrap() {
        config[field] = value.clone();
    }
    serde_json::from_value(config).unwrap()
}

#[test]
fn defaults_follow_nothing() {
    let nothing = OspfConfig::default();
    assert!(nothing.is_empty());
    assert!(nothing.sources().unwrap().is_empty());
    let one = config("{}");
    assert_eq!(one.sources().unwrap().len(), 1);
    assert_eq!(one.interval(), Duration::from_millis(250));
    assert_eq!(one.names().routers.len(), 2);
}

#[test]
fn each_fault_is_named() {
    let both = r#"{"source": [{"socket": "/s", "command": ["vtysh"]}]}"#;
    for (more, fault) in [
        (r#"{"source": []}"#, OspfFault::Sources),
        (r#"{"source": [{}]}"#, OspfFault::NotExactlyOne(1)),
        (both, OspfFault::NotExactlyOne(1)),
        (r#"{"source": [{"command": []}]}"#, OspfFault::Empty(1)),
        (
            r#"{"source": [{"socket": "/s"}, {"socket": "/s", "time_s": 0}]}"#,
            OspfFault::Time(2),
        ),
        (r#"{"interval_ms": 1}"#, OspfFault::Interval),
        (r#"{"routers": {"west": "192.0.2.1"}}"#, OspfFault::Routers),
        (
            r#"{"routers": {"west": "192.0.2.1", "east": "192.0.2.1"}}"#,
            OspfFault::SameRouter("east".to_owned(), "west".to_owned()),
        ),
        (
            r#"{"links": {"wide": []}}"#,
            OspfFault::NoAddress("wide".to_owned()),
        ),
    ] {
        assert_eq!(config(more).sources().unwrap_err(), fault, "{more}");
    }
}
