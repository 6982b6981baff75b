#![allow(clippy::indexing_slicing)]

use proptest::prelude::*;

use super::*;

fn hello() -> Hello {
    Hello {
        versions: [1, 1],
        token: Token([7; 16]),
        streams: 4,
        direction: Direction::Both,
        length: Length::Milliseconds(10_000),
        omit_ms: 0,
        protection: Protection::Tls,
        right_size: true,
    }
}

async fn read(bytes: &[u8]) -> Result<Message, Error> {
    Message::read(&mut &bytes[..]).await
}

#[tokio::test]
async fn every_message_survives_the_wire() {
    let report = Report {
        streams: vec![
            StreamReport {
                stream: 255,
                bytes: 1 << 54,
                omitted: 1 << 54,
                seconds: 60.25,
                retransmits: Some(1 << 54)
            };
            256
        ],
        cpu: Cpu {
            total: 12.5,
            user: 2.5,
            system: 10.0,
        },
        congestion: "reno".to_owned(),
    };
    for message in [
        Message::Hello(hello()),
        Message::Ready,
        Message::refused("busy"),
        Message::Attach(Attach {
            token: Token([1; 16]),
            stream: 3,
        }),
        Message::Attached,
        Message::Start,
        Message::Report(report),
    ] {
        let mut bytes = message.encode().unwrap();
        bytes.extend_from_slice(b"behind");
        let mut rest = &bytes[..];
        assert_eq!(Message::read(&mut rest).await.unwrap(), message);
        assert_eq!(rest, b"behind", "nothing behind a message is taken");
    }
}

#[tokio::test]
async fn oversized_cut_and_invalid_messages_are_typed_errors() {
    for bad in [
        &[0, 0, 0, 0][..],
        &[0, 1, 0, 1, b'{'],
        &[0xff; 8],
        b"\0\0\0\x02{}",
        b"\0\0\0\x04null",
    ] {
        assert!(
            matches!(read(bad).await, Err(Error::Protocol(_))),
            "{bad:?}"
        );
    }
    for cut in [&b""[..], &[0, 0], b"\0\0\0\x09{\"mes"] {
        assert!(matches!(read(cut).await, Err(Error::Cut(_))), "{cut:?}");
    }
}

#[test]
fn impossible_counts_are_refused() {
    for json in [
        r#"{"message":"report","streams":[{"stream":0,"bytes":1,"omitted":0,"seconds":-1,"retransmits":null}],"cpu":{"total":0,"user":0,"system":0},"congestion":""}"#,
        // 128 such streams would overflow their sum.
        r#"{"message":"report","streams":[{"stream":0,"bytes":1,"omitted":0,"seconds":1,"retransmits":144115188075855872}],"cpu":{"total":0,"user":0,"system":0},"congestion":""}"#,
        r#"{"message":"attach","token":"+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1","stream":0}"#,
        r#"{"message":"report","streams":[],"cpu":{"total":1e300,"user":0,"system":0},"congestion":""}"#,
        r#"{"message":"hello","versions":[1,1],"token":"zz","streams":1,"direction":"both","length":{"bytes":1},"omit_ms":0,"protection":"tls","right_size":true}"#,
    ] {
        assert!(
            matches!(Message::decode(json.as_bytes()), Err(Error::Protocol(_))),
            "{json}"
        );
    }
}

#[test]
fn the_peers_text_cannot_control_a_terminal() {
    let words = "\u{1b}[2J no\nroom \u{202e}\u{200b}\u{2028}\u{2029}";
    let written = "\\u{1b}[2J no\\u{a}room \\u{202e}\\u{200b}\\u{2028}\\u{2029}".to_owned();
    let refused = Message::Refused {
        reason: words.to_owned(),
    };
    let refused = Message::decode(&refused.encode().unwrap()[4..]).unwrap();
    assert_eq!(
        refused,
        Message::Refused {
            reason: written.clone()
        }
    );
    assert_eq!(Message::refused(words), refused);
    let report = Message::Report(Report {
        congestion: words.to_owned(),
        ..Report::default()
    });
    let Message::Report(report) = Message::decode(&report.encode().unwrap()[4..]).unwrap() else {
        panic!("a report")
    };
    assert_eq!(report.congestion, written);
    // Errors quote unknown input.
    let unknown = serde_json::json!({ "message": words.repeat(100) }).to_string();
    let error = Message::decode(unknown.as_bytes()).unwrap_err().to_string();
    assert!(
        error.len() < 500 && error.chars().all(longhaul_proto::text::is_printable),
        "{error:?}"
    );
}

#[test]
fn streams_are_numbered_forward_first() {
    let both = hello();
    assert_eq!(both.sessions(), 8);
    assert!(both.client_sends(3) && !both.client_sends(4));
    let reverse = Hello {
        direction: Direction::Reverse,
        ..hello()
    };
    assert!(reverse.sessions() == 4 && !reverse.client_sends(0));
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = runtime.block_on(read(&bytes));
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn a_damaged_hello_is_a_message_or_an_error(at in 0usize..200, with: u8) {
        let mut bytes = Message::Hello(hello()).encode().unwrap();
        let at = 4 + at % (bytes.len() - 4);
        bytes[at] = with;
        if let Ok(message) = Message::decode(&bytes[4..]) {
            prop_assert!(message.encode().is_ok());
        }
    }
}
