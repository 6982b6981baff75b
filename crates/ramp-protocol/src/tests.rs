//! Messages decode to what was encoded, and no input causes harm.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use crate::{
    ConnectionWish, MAX_FILL_BYTES, MAX_NAME_BYTES, MAX_PURPOSE_BYTES, MAX_REASON_BYTES,
    MAX_ROUTE_BYTES, Malformed, RampReply, RampRequest, RouteQuery,
};

fn words(longest: usize) -> impl Strategy<Value = String> {
    "[ -~äß€]{0,80}".prop_map(move |text| {
        let mut text = text;
        while text.len() > longest {
            text.pop();
        }
        text
    })
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
}

proptest! {
    #[test]
    fn an_ask_is_read_as_it_was_written(
        (address, name, port, route) in (
            any::<Option<IpAddr>>(), words(MAX_NAME_BYTES), 1u16.., words(MAX_ROUTE_BYTES)),
        purpose in words(MAX_PURPOSE_BYTES),
        (size, rate, duration) in any::<(Option<u64>, Option<u64>, Option<u64>)>(),
        (v6, closed, acceptor, key, remembers, binds) in
            any::<(bool, bool, bool, Option<[u8; 32]>, bool, bool)>(),
    ) {
        let wish = ConnectionWish { purpose: Some(&purpose), size, rate, duration };
        let ask = RampRequest::Ask(RouteQuery {
            address, name: Some(&name), port, route: Some(&route), wish, v6,
            route_required: closed, acceptor,
            key, remembers, binds,
        });
        let bytes = ask.encode();
        prop_assert_eq!(RampRequest::decode(bytes.finish().unwrap()), Ok(ask));
    }

    #[test]
    fn other_requests_are_read_as_they_were_written(
        ticket: u64, local in address(), fill in 0..=MAX_FILL_BYTES, round_trip in 1u64..,
    ) {
        for request in [
            RampRequest::Begin { ticket, local, fill },
            RampRequest::Peer { local },
            RampRequest::Listen { at: local },
            RampRequest::Measured { address: local.ip(), round_trip },
            RampRequest::Status,
            RampRequest::Remembered { connections: ticket },
        ] {
            let bytes = request.encode();
            prop_assert_eq!(RampRequest::decode(bytes.finish().unwrap()), Ok(request));
        }
    }

    #[test]
    fn replies_are_read_as_they_were_written(
        at in address(), ticket: u64, errno in 1..i32::MAX, reason in words(MAX_REASON_BYTES),
        key: [u8; 32],
    ) {
        let reason = reason.as_str();
        for reply in [
            RampReply::Direct { reason, measure: false, remember: None },
            RampReply::Direct { reason, measure: true, remember: Some(ticket) },
            RampReply::DirectFrom { source: SocketAddr::new(at.ip(), at.port().max(1)), reason },
            RampReply::Forget,
            RampReply::Status { part: reason, more: false },
            RampReply::Status { part: reason, more: true },
            RampReply::Refuse { errno, reason },
            RampReply::Via { listener: at, ticket, reason },
            RampReply::Done { errno, reason },
            RampReply::Done { errno: 0, reason: "" },
            RampReply::Peer { address: at },
            RampReply::Listening { at },
            RampReply::Accepted { peer: at, key, local: None },
            RampReply::Accepted { peer: at, key, local: Some(at) },
        ] {
            let bytes = reply.encode();
            prop_assert_eq!(RampReply::decode(bytes.finish().unwrap()), Ok(reply));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(version in 0u8..3, kind: u8, rest: Vec<u8>) {
        let mut packet = vec![version, kind];
        packet.extend(rest);
        let _ = RampRequest::decode(&packet);
        let _ = RampReply::decode(&packet);
    }

    #[test]
    fn a_truncated_message_never_decodes_to_the_whole(cut in 0usize..60) {
        let ask = RampRequest::Ask(RouteQuery {
            address: Some("192.0.2.1".parse().unwrap()),
            name: Some("h.example"),
            port: 80,
            ..RouteQuery::default()
        });
        let bytes = ask.encode();
        let bytes = bytes.finish().unwrap();
        let read = RampRequest::decode(&bytes[..cut.min(bytes.len())]);
        prop_assert!(cut >= bytes.len() || read != Ok(ask));
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let request = RampRequest::Peer {
        local: "127.0.0.1:9".parse().unwrap(),
    };
    let mut packet = request.encode().finish().unwrap().to_vec();
    packet.extend([200, 0, 2, 1, 2]);
    assert_eq!(RampRequest::decode(&packet), Ok(request));
    packet.extend([200, 0, 2, 1]);
    assert_eq!(
        RampRequest::decode(&packet),
        Err(Malformed("a field is cut short"))
    );
}

#[test]
fn an_oversized_message_is_not_sent() {
    let route = "h".repeat(5000);
    let ask = RouteQuery {
        route: Some(&route),
        port: 1,
        ..RouteQuery::default()
    };
    assert!(RampRequest::Ask(ask).encode().finish().is_err());
    let reason = "ä".repeat(200);
    let bytes = RampReply::Direct {
        reason: &reason,
        measure: false,
        remember: None,
    }
    .encode();
    let Ok(RampReply::Direct { reason, .. }) = RampReply::decode(bytes.finish().unwrap()) else {
        panic!("a reply");
    };
    assert_eq!(reason, "ä".repeat(MAX_REASON_BYTES / 2));
}

#[test]
fn a_refusal_has_an_error() {
    let bytes = RampReply::Refuse {
        errno: 0,
        reason: "",
    }
    .encode();
    assert!(RampReply::decode(bytes.finish().unwrap()).is_err());
}
