//! Properties of the parser of a measurement's messages; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a broken property panics

use longhaul_proto::fuzzing::{Seed, Target, assert_short_line, ready};
use longhaul_proto::text::is_printable;

use crate::limits::Limits;
use crate::wire::{
    Attach, Cpu, Direction, Hello, Length, MAX_MESSAGE, Message, Protection, Report, StreamReport,
    Token,
};

/// The targets of this crate.
pub const TARGETS: &[Target] = &[Target {
    name: "perf",
    property: message,
    seeds,
}];

/// Tests any bytes as the JSON of a message, and as a stream of messages with length prefixes.
fn message(data: &[u8]) {
    match Message::decode(data) {
        Ok(message) => decoded(&message),
        Err(error) => assert_short_line(&error),
    }
    let mut rest = data;
    loop {
        let before = rest.len();
        match ready(Message::read(&mut rest)) {
            Ok(message) => decoded(&message),
            Err(error) => return assert_short_line(&error),
        }
        assert!((5..=4 + MAX_MESSAGE).contains(&(before - rest.len())));
    }
}

fn decoded(message: &Message) {
    let words = match message {
        Message::Refused { reason } => reason,
        Message::Report(report) => &report.congestion,
        _ => "",
    };
    assert!(words.chars().all(is_printable) && words.len() <= 256);
    if let Message::Hello(hello) = message {
        // The values that a server computes from it.
        if let Err(refusal) = Limits::default().check(hello) {
            assert_short_line(&refusal);
        }
        let _ = (
            hello.sessions(),
            hello.omit(),
            hello.bytes(),
            hello.client_sends(u16::MAX),
        );
    }
    if let Message::Report(report) = message {
        let counts = |stream: &StreamReport| {
            stream.bytes + stream.omitted + stream.retransmits.unwrap_or_default()
        };
        let _: u64 = report.streams.iter().map(counts).sum();
    }
    // Encoded again only if the result fits a message: the input may spell numbers more briefly
    // than the encoder.
    let Ok(bytes) = message.encode() else { return };
    let again = Message::decode(&bytes[4..]).unwrap();
    assert_eq!(without_fractions(again), without_fractions(message.clone()));
}

/// Returns the message without the numbers whose last digit JSON may change.
fn without_fractions(mut message: Message) -> Message {
    if let Message::Report(report) = &mut message {
        report.cpu = Cpu::default();
        for stream in &mut report.streams {
            stream.seconds = 0.0;
        }
    }
    message
}

fn seeds() -> Vec<Seed> {
    let token = Token::try_from("0123456789abcdef0123456789ABCDEF".to_owned()).unwrap();
    let hello = Hello {
        versions: [1, 3],
        token: token.clone(),
        streams: 4,
        direction: Direction::Both,
        length: Length::Milliseconds(10_000),
        omit_ms: 100,
        protection: Protection::Tls,
        right_size: true,
    };
    let report = Report {
        streams: vec![
            StreamReport {
                stream: 0,
                bytes: 1 << 40,
                omitted: 7,
                seconds: 10.25,
                retransmits: Some(3),
            },
            StreamReport::default(),
        ],
        cpu: Cpu {
            total: 12.5,
            user: 2.5,
            system: 10.0,
        },
        congestion: "reno".to_owned(),
    };
    let by_bytes = Hello {
        length: Length::Bytes(u64::MAX),
        direction: Direction::Reverse,
        protection: Protection::None,
        ..hello.clone()
    };
    let messages = [
        ("hello", Message::Hello(hello)),
        ("hello-by-bytes", Message::Hello(by_bytes)),
        ("ready", Message::Ready),
        ("refused", Message::refused("busy")),
        (
            "refused-and-steering",
            Message::Refused {
                reason: "\u{1b}[2J\u{202e}\u{2028}\u{200b}".to_owned(),
            },
        ),
        ("attach", Message::Attach(Attach { token, stream: 3 })),
        ("attached", Message::Attached),
        ("start", Message::Start),
        ("report", Message::Report(report)),
    ];
    let mut seeds = Vec::new();
    let mut stream = Vec::new();
    for (name, message) in messages {
        let bytes = message.encode().unwrap();
        seeds.push((name.to_owned(), bytes[4..].to_vec()));
        stream.extend(bytes);
    }
    seeds.push(("all-behind-one-another".to_owned(), stream));
    seeds.push(("length-alone".to_owned(), vec![0, 1, 0, 0]));
    seeds.push(("length-over-the-bound".to_owned(), vec![0, 1, 0, 1, b'{']));
    seeds.push((
        "unknown-message".to_owned(),
        b"{\"message\":\"\\u202e\\u2028\"}".to_vec(),
    ));
    seeds
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay(super::TARGETS);
    }
}
