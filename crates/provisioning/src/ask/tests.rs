use longhaul_circuits::time::Window;
use proptest::prelude::*;

use super::*;
use crate::streams::{PortProtocol, SourcePorts};
use crate::testing::{any_streams, name, part};

fn set_up() -> DriverRequest {
    let mut part = part("us", "c1", "houston", "wan", 1_000_000_000);
    part.window = Window::new(1_700_000_000_000, 1_700_000_060_000);
    part.streams.source_ports = Some(SourcePorts {
        first: 21_000,
        last: 21_999,
        transport: PortProtocol::Tcp,
    });
    part.id = PartId::for_streams(&part.circuit, &part.node, &part.link, &part.streams);
    DriverRequest::SetUp { part }
}

#[test]
fn a_request_is_formatted_as_documented() {
    let line = String::from_utf8(encode_request(&set_up()).unwrap()).unwrap();
    assert_eq!(
        line,
        concat!(
            r#"{"version":1,"do":"set_up","part":{"owner":"us","#,
            r#""id":"c1/houston/wan/10.0.0.1-10.0.0.2,tcp=21000-21999","#,
            r#""circuit":"c1","node":"houston","link":"wan","rate":1000000000,"#,
            r#""window":{"start":1700000000000,"end":1700000060000},"#,
            r#""streams":{"from":"10.0.0.1","to":"10.0.0.2","#,
            r#""source_ports":{"first":21000,"last":21999,"transport":"tcp"}}}}"#,
            "\n"
        )
    );
    let page = include_str!("../../../../docs/circuits.md");
    assert!(
        page.contains(line.trim_end()),
        "docs/circuits.md shows another request"
    );
    for (reply, text) in [
        (DriverReply::Done, r#"{"answer":"done"}"#),
        (
            DriverReply::Counters(Counters {
                bytes: 1_500,
                packets: 1,
                drops: 0,
            }),
            r#"{"answer":"counters","bytes":1500,"packets":1,"drops":0}"#,
        ),
        (
            DriverReply::Error(DriverError::refused("no link wan here")),
            r#"{"answer":"error","kind":"refused","why":"no link wan here"}"#,
        ),
        (
            DriverReply::Parts { parts: vec![] },
            r#"{"answer":"parts","parts":[]}"#,
        ),
    ] {
        assert_eq!(
            String::from_utf8(encode_reply(&reply)).unwrap().trim_end(),
            text
        );
        assert_eq!(read_reply(text.as_bytes()), Ok(reply));
        assert!(page.contains(text), "docs/circuits.md does not show {text}");
    }
}

#[test]
fn malformed_requests_are_reported_in_one_line() {
    let part = r#"{"owner":"us","id":"x","circuit":"c","node":"n","link":"l","rate":0,"window":{"start":0,"end":1},"streams":{"from":"10.0.0.1","to":"10.0.0.2"}}"#;
    let no_rate = format!(r#"{{"version":1,"do":"set_up","part":{part}}}"#);
    let long = " ".repeat(MAX_REQUEST_BYTES + 1);
    for (line, why) in [
        ("", "EOF"),
        ("null", "it has no version"),
        ("[1]", "it has no version"),
        (r#"{"do":"list","owner":"us"}"#, "it has no version"),
        (
            r#"{"version":2,"do":"whatever"}"#,
            "it has version 2, and this side speaks version 1",
        ),
        (r#"{"version":1,"do":"reboot"}"#, "unknown variant"),
        (
            r#"{"version":1,"do":"list","owner":"a\nb"}"#,
            "is not a valid name",
        ),
        (&no_rate, "a rate of 0 bit/s"),
        (&long, "at most 16384 are accepted"),
    ] {
        let error = read_request(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn error_texts_are_sanitized() {
    let hostile = format!("a\u{1b}[2J\r\n  b{}", "x".repeat(1_000));
    let reply = serde_json::json!({"answer": "error", "kind": "failed", "why": hostile});
    let Ok(DriverReply::Error(DriverError::Failed { why })) =
        read_reply(reply.to_string().as_bytes())
    else {
        panic!("no error");
    };
    assert!(why.starts_with("a [2J b"), "{why}");
    assert!(why.len() <= MAX_ERROR_TEXT_BYTES);
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let good = encode_request(&set_up()).unwrap();
    let damaged = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(
        move |(at, byte, cut)| {
            let mut line = good.clone();
            let at = at.index(line.len());
            if cut {
                line.truncate(at);
            } else {
                line[at] = byte;
            }
            line
        },
    );
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        damaged,
        r#"\{"version":1,"do":"(list|set_up|tear_down|counters)"(,"(owner|id|part)":("[a-z?]{0,9}"|[0-9]{1,30}|\{\}|null)){0,3}\}"#
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_line_gives_a_request_or_an_error(line in any_line()) {
        match read_request(&line) {
            Ok(request) => {
                let again = encode_request(&request).unwrap();
                prop_assert_eq!(read_request(again.trim_ascii()), Ok(request));
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn any_line_gives_a_reply_or_an_error(line in any_line()) {
        if let Ok(reply) = read_reply(&line) {
            prop_assert_eq!(read_reply(encode_reply(&reply).trim_ascii()), Ok(reply));
        }
    }

    #[test]
    fn any_part_reads_back(
        streams in any_streams(),
        rate in 1..1_u64 << 53,
        whole in any::<bool>(),
    ) {
        let mut part = part("us", "c", "n", "l", rate);
        part.streams = streams;
        let request = DriverRequest::SetUp { part: part.clone() };
        let line = encode_request(&request).unwrap();
        prop_assert_eq!(read_request(line.trim_ascii()), Ok(request));
        let found = ListedPart { owner: name("us"), id: part.id.clone(), part: Some(part), whole };
        let reply = DriverReply::Parts { parts: vec![found] };
        prop_assert_eq!(read_reply(&encode_reply(&reply)), Ok(reply));
    }

    #[test]
    fn any_text_becomes_one_short_line(text in any::<String>()) {
        let line = sanitize_line(&text);
        prop_assert!(line.len() <= MAX_ERROR_TEXT_BYTES);
        prop_assert!(!line.chars().any(|c| c.is_control()));
        prop_assert_eq!(line.trim(), &line);
    }
}
