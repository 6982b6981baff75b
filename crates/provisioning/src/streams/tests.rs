use proptest::prelude::*;

use super::*;
use crate::testing::{any_prefix, any_streams};

#[test]
fn an_invalid_prefix_is_refused_in_one_line() {
    for (text, why) in [
        ("", "not an IP address"),
        ("10.0.0.1/33", "more bits"),
        ("10.0.0.1/+3", "not a number"),
        ("10.0.0.1/8", "beyond its length"),
        ("::1/0", "beyond its length"),
        ("10.0.0.0/999999999999", "more bits"),
        ("host/8", "not an IP address"),
        (&"1".repeat(1000), "too long"),
    ] {
        let error = text.parse::<Prefix>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(error.len() < 250 && !error.contains('\n'), "{error}");
    }
    let all: Prefix = "0.0.0.0/0".parse().unwrap();
    assert_eq!(all.length(), 0);
    assert_eq!(
        "10.0.0.1/32".parse::<Prefix>().unwrap().to_string(),
        "10.0.0.1"
    );
}

#[test]
fn streams_that_cannot_be_matched_are_refused() {
    let good = StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    assert_eq!(good.check(), Ok(()));
    let mixed = StreamSelector {
        to: "::1".parse().unwrap(),
        ..good
    };
    assert!(matches!(mixed.check(), Err(SelectorFault::Families { .. })));
    for (first, last) in [(0, 9), (10, 9)] {
        let ports = SourcePorts {
            first,
            last,
            transport: PortProtocol::Tcp,
        };
        let streams = StreamSelector {
            source_ports: Some(ports),
            ..good
        };
        assert_eq!(streams.check(), Err(SelectorFault::Ports(ports)));
    }
    let high = StreamSelector {
        dscp: Some(64),
        ..good
    };
    assert_eq!(high.check(), Err(SelectorFault::Dscp(64)));
    let unmarked = StreamSelector {
        mark: Some(0),
        ..good
    };
    assert_eq!(unmarked.check(), Err(SelectorFault::NoMark));
}

#[test]
fn selectors_from_before_code_points_are_read() {
    let old = r#"{"from":"10.0.0.1","to":"10.0.0.2","mark":7}"#;
    let read: StreamSelector = serde_json::from_str(old).unwrap();
    assert_eq!(read.dscp, None);
    assert_eq!(serde_json::to_string(&read).unwrap(), old);
    assert_eq!(read.to_string(), "10.0.0.1-10.0.0.2,mark=0x7");
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(prefix in any_prefix()) {
        prop_assert_eq!(prefix.to_string().parse::<Prefix>().unwrap(), prefix);
    }

    #[test]
    fn wider_prefixes_contain_it_and_round_trip(
        prefix in any_prefix(),
        other in any_prefix(),
    ) {
        let wider: Vec<Prefix> = prefix.supernets().collect();
        prop_assert_eq!(wider.len(), usize::from(prefix.length()));
        for one in &wider {
            prop_assert!(one.contains(prefix) && *one != prefix);
            prop_assert_eq!(one.to_string().parse::<Prefix>(), Ok(*one));
        }
        prop_assert_eq!(wider.contains(&other), other.contains(prefix) && other != prefix);
    }

    #[test]
    fn any_text_gives_a_prefix_or_an_error(text in ".{0,80}") {
        if let Ok(prefix) = text.parse::<Prefix>() {
            prop_assert_eq!(prefix.to_string().parse::<Prefix>(), Ok(prefix));
        }
    }

    #[test]
    fn different_streams_have_different_names(one in any_streams(), other in any_streams()) {
        prop_assert_eq!(one == other, one.to_string() == other.to_string());
    }
}
