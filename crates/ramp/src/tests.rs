//! Messages decode to what was encoded, and no input causes harm.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use crate::{
    Ask, MAX_FILL, MAX_NAME, MAX_PURPOSE, MAX_REASON, MAX_ROUTE, Malformed, Reply, Request, Wish,
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
            any::<Option<IpAddr>>(), words(MAX_NAME), 1u16.., words(MAX_ROUTE)),
        purpose in words(MAX_PURPOSE),
        (size, rate, duration) in any::<(Option<u64>, Option<u64>, Option<u64>)>(),
        (v6, closed, acceptor, key, remembers) in
            any::<(bool, bool, bool, Option<[u8; 32]>, bool)>(),
    ) {
        let wish = Wish { purpose: Some(&purpose), size, rate, duration };
        let ask = Request::Ask(Ask {
            address, name: Some(&name), port, route: Some(&route), wish, v6, closed, acceptor,
            key, remembers,
        });
        let bytes = ask.encode();
        prop_assert_eq!(Request::decode(bytes.finished().unwrap()), Ok(ask));
    }

    #[test]
    fn other_requests_are_read_as_they_were_written(
        ticket: u64, local in address(), fill in 0..=MAX_FILL, round_trip in 1u64..,
    ) {
        for request in [
            Request::Begin { ticket, local, fill },
            Request::Peer { local },
            Request::Listen { at: local },
            Request::Measured { address: local.ip(), round_trip },
            Request::Status,
            Request::Remembered { connections: ticket },
        ] {
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(bytes.finished().unwrap()), Ok(request));
        }
    }

    #[test]
    fn replies_are_read_as_they_were_written(
        at in address(), ticket: u64, errno in 1..i32::MAX, reason in words(MAX_REASON),
        key: [u8; 32],
    ) {
        let reason = reason.as_str();
        for reply in [
            Reply::Direct { reason, measure: false, remember: None },
            Reply::Direct { reason, measure: true, remember: Some(ticket) },
            Reply::Forget,
            Reply::Status { part: reason, more: false },
            Reply::Status { part: reason, more: true },
            Reply::Refuse { errno, reason },
            Reply::Via { listener: at, ticket, reason },
            Reply::Done { errno, reason },
            Reply::Done { errno: 0, reason: "" },
            Reply::Peer { address: at },
            Reply::Listening { at },
            Reply::Accepted { peer: at, key, local: None },
            Reply::Accepted { peer: at, key, local: Some(at) },
        ] {
            let bytes = reply.encode();
            prop_assert_eq!(Reply::decode(bytes.finished().unwrap()), Ok(reply));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(version in 0u8..3, kind: u8, rest: Vec<u8>) {
        let mut packet = vec![version, kind];
        packet.extend(rest);
        let _ = Request::decode(&packet);
        let _ = Reply::decode(&packet);
    }

    #[test]
    fn a_truncated_message_never_decodes_to_the_whole(cut in 0usize..60) {
        let ask = Request::Ask(Ask {
            address: Some("192.0.2.1".parse().unwrap()),
            name: Some("h.example"),
            port: 80,
            ..Ask::default()
        });
        let bytes = ask.encode();
        let bytes = bytes.finished().unwrap();
        let read = Request::decode(&bytes[..cut.min(bytes.len())]);
        prop_assert!(cut >= bytes.len() || read != Ok(ask));
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let request = Request::Peer {
        local: "127.0.0.1:9".parse().unwrap(),
    };
    let mut packet = request.encode().finished().unwrap().to_vec();
    packet.extend([200, 0, 2, 1, 2]);
    assert_eq!(Request::decode(&packet), Ok(request));
    packet.extend([200, 0, 2, 1]);
    assert_eq!(
        Request::decode(&packet),
        Err(Malformed("a field is cut short"))
    );
}

#[test]
fn an_oversized_message_is_not_sent() {
    let route = "h".repeat(5000);
    let ask = Ask {
        route: Some(&route),
        port: 1,
        ..Ask::default()
    };
    assert!(Request::Ask(ask).encode().finished().is_err());
    let reason = "ä".repeat(200);
    let bytes = Reply::Direct {
        reason: &reason,
        measure: false,
        remember: None,
    }
    .encode();
    let Ok(Reply::Direct { reason, .. }) = Reply::decode(bytes.finished().unwrap()) else {
        panic!("a reply");
    };
    assert_eq!(reason, "ä".repeat(MAX_REASON / 2));
}

#[test]
fn a_refusal_has_an_error() {
    let bytes = Reply::Refuse {
        errno: 0,
        reason: "",
    }
    .encode();
    assert!(Reply::decode(bytes.finished().unwrap()).is_err());
}
