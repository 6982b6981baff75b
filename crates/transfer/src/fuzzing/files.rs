//! Lines of the protocols of files and of fetching (`docs/files-protocol.md`,
//! `docs/fetch-protocol.md`): requests to a server, and responses to a client.

use longhaul_filter::FilterRules;
use longhaul_proto::PublicKey;
use longhaul_proto::fuzzing::{Seed, assert_one_line, assert_short_line, text_seeds};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::compression::Compression;
use crate::fetch::message::{FetchAsk, FetchMessage, FetchReport};
use crate::files::message::{
    FilesHello, FilesRequest, FilesResponse, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, PathBytes,
};
use crate::files::{LineReader, read_answer};
use crate::preservation::Preservation;
use crate::remote_copy::{CopyAsk, CopyDirection};

/// Splits a stream into lines, and checks that none exceeds its bound.
fn lines(data: &[u8], max_bytes: usize, mut each: impl FnMut(&[u8])) {
    longhaul_proto::fuzzing::expect_ready(async {
        let mut lines = LineReader::new(data, max_bytes);
        loop {
            match lines.next().await {
                Ok(Some(line)) => {
                    assert!(line.len() <= max_bytes);
                    each(&line);
                }
                Ok(None) => return,
                Err(error) => return assert_short_line(&error),
            }
        }
    });
}

/// Checks that a decoded value encodes and decodes to itself.
fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let line = serde_json::to_vec(value).unwrap();
    assert!(!line.contains(&b'\n'));
    assert_eq!(&serde_json::from_slice::<T>(&line).unwrap(), value);
}

/// Decodes request lines.
pub(super) fn ask(data: &[u8]) {
    lines(data, MAX_REQUEST_BYTES, |line| {
        if let Ok(hello) = serde_json::from_slice::<FilesHello>(line) {
            check_round_trip(&hello);
        }
        if let Ok(ask) = serde_json::from_slice::<FilesRequest>(line) {
            check_round_trip(&ask);
        }
        if let Ok(ask) = serde_json::from_slice::<FetchAsk>(line) {
            check_round_trip(&ask);
            let _ = ask.copy.request();
        }
        if let Ok(message) = serde_json::from_slice::<FetchMessage>(line) {
            check_round_trip(&message);
        }
    });
}

/// Decodes response lines.
pub(super) fn answer(data: &[u8]) {
    lines(data, MAX_RESPONSE_BYTES, |line| {
        match read_answer(line) {
            Ok(answer) => {
                check_round_trip(&answer);
                if let FilesResponse::Failed(failure) = &answer {
                    assert_one_line(failure);
                }
            }
            Err(error) => assert_short_line(&error),
        }
        if let Ok(report) = serde_json::from_slice::<FetchReport>(line) {
            check_round_trip(&report);
            if let FetchReport::Ended(end) = report
                && let Err(error) = end.into_result("b.example")
            {
                assert_one_line(&error);
            }
        }
    });
}

fn said<T: Serialize>(values: &[T]) -> String {
    let lines = values
        .iter()
        .map(|value| serde_json::to_string(value).unwrap());
    lines.map(|line| line + "\n").collect()
}

pub(super) fn asks() -> Vec<Seed> {
    let path = |text: &str| PathBytes(text.into());
    let hello = said(&[FilesHello {
        lowest: 1,
        highest: 1,
        token: None,
    }]);
    let asks = said(&[
        FilesRequest::Look {
            path: path("a/b"),
            list: true,
            after: Some(path("c")),
            limit: Some(10),
        },
        FilesRequest::More { limit: Some(10) },
        FilesRequest::MakeDirectory {
            path: path("d"),
            parents: true,
        },
        FilesRequest::Rename {
            from: path("e"),
            to: path("../f"),
            overwrite: false,
            keep_time: false,
        },
        FilesRequest::RenameFile {
            from: path("e"),
            to: path("f/g"),
        },
        FilesRequest::Remove {
            path: path(""),
            recursive: true,
            keep_time: true,
        },
        FilesRequest::Read { path: path("h") },
        FilesRequest::Leftovers {
            path: path("g"),
            after: None,
            remove_older_than_seconds: Some(0),
        },
    ]);
    text_seeds(&[
        ("asks", &(hello + &asks)),
        (
            "no-base64",
            "{\"files\":\"remove\",\"path\":\"?\",\"recursive\":true}\n",
        ),
        (
            "unknown",
            "{\"files\":\"chmod\",\"path\":\"\",\"mode\":511}\n",
        ),
        ("deep", &"[".repeat(4000)),
        (
            "large-limit",
            "{\"files\":\"look\",\"path\":\"\",\"list\":true,\
             \"after\":null,\"limit\":4294967296}\n",
        ),
        ("no-end", "{\"files\":\"look\""),
        ("fetch", &said(&[fetch_ask()])),
        (
            "fetch-renewal",
            "{\"fetch\":\"renew\",\"delegation\":\"lhd1:aa\"}\n",
        ),
    ])
}

fn fetch_ask() -> FetchAsk {
    let path = |text: &str| PathBytes(text.into());
    FetchAsk {
        lowest: 1,
        highest: 1,
        delegation: "lhd1:aa".to_owned(),
        copy: CopyAsk {
            server: PublicKey::from_bytes([1; 32]),
            hosts: vec!["a.example".to_owned()],
            port: 7511,
            direction: CopyDirection::Pull,
            sources: vec![path("a/b")],
            names: vec![path("b")],
            labels: vec![],
            destination: path("in"),
            into: true,
            recursive: true,
            overwrite: true,
            fsync: false,
            resume: true,
            checksum: false,
            hard_links: true,
            streams: Some(4),
            patience_ms: Some(u64::MAX),
            congestion: None,
            no_encrypt: false,
            compression: Compression::Auto,
            delta: true,
            in_place: false,
            report_done: true,
            filter: FilterRules::default(),
            update: true,
            existing: false,
            ignore_existing: false,
            keep: Preservation::default(),
        },
    }
}

pub(super) fn answers() -> Vec<Seed> {
    let ready = said(&[
        FilesResponse::Ready { version: 1 },
        FilesResponse::Working,
        FilesResponse::Changed,
    ]);
    let entry = "{\"name\":\"Zg==\",\"kind\":\"symlink\",\"size\":3,\"mode\":511,\
                 \"modified\":-1,\"target\":\"Zw==\"}";
    let entries = format!("{{\"files\":\"entries\",\"entries\":[{entry}],\"next\":\"Zg==\"}}\n");
    let leftover = "{\"names\":[\"Zg==\"],\"target\":null,\"size\":null,\"durable_bytes\":0,\
                    \"disk_bytes\":1,\"age_seconds\":2,\"usage\":\"idle\",\"outcome\":\"kept\"}";
    let leftovers =
        format!("{{\"files\":\"leftovers\",\"leftovers\":[{leftover}],\"next\":null}}\n");
    let steering =
        "{\"files\":\"failed\",\"kind\":\"io\",\"path\":\"G1sybQ==\",\"detail\":\"\\u001b[2J\"}\n";
    text_seeds(&[
        ("answers", &(ready + &entries + &leftovers)),
        ("steering", steering),
        (
            "refused",
            "{\"files\":\"refused\",\"unauthorised\":true,\"reason\":\"\\u202e\"}\n",
        ),
        (
            "later",
            "{\"files\":\"failed\",\"kind\":\"of_a_later_release\",\"path\":\"\"}\n",
        ),
        ("not-json", "\u{1b}[2J\n"),
        (
            "fetch-reports",
            "{\"report\":\"event\",\"event\":\"stream_opened\",\"stream\":1}\n\
             {\"report\":\"left_out\",\"events\":7}\n\
             {\"report\":\"ended\",\"manifest\":null,\"error\":\"\\u001b[2J\",\"kind\":\"connect\"}\n",
        ),
    ])
}
