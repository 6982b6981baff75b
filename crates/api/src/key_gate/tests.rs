//! Tests of admitted and refused requests.

use axum::http::HeaderMap;
use longhaul_proto::SigningKey;

use super::*;
use longhaul_api_common::signatures::sign::{random_nonce, sign};

const NOW: u64 = 1_800_000_000;
const NOW_MS: u64 = NOW * 1000;

struct Bench {
    gate: Arc<KeyGate>,
    all: SigningKey,
    read: SigningKey,
}

/// Request to sign, and its modification after signing.
struct Ask<'a> {
    key: &'a SigningKey,
    method: &'a str,
    target: &'a str,
    host: &'a str,
    body: &'a [u8],
    signed_at: u64,
    change: &'a dyn Fn(&mut Parts),
}

impl Bench {
    fn new() -> Self {
        let (all, read) = (
            SigningKey::generate().unwrap(),
            SigningKey::generate().unwrap(),
        );
        let text = format!("{} ana all\n{} ben read\n", all.public(), read.public());
        let keys = AuthorizedKeys::parse(&text, "keys".as_ref()).unwrap();
        Self {
            gate: KeyGate::new(keys, ["dtn.example:7512", "DTN:443"], NOW - 1000),
            all,
            read,
        }
    }

    fn ask(&self) -> Ask<'_> {
        Ask {
            key: &self.all,
            method: "POST",
            target: "/api/v1/jobs?a=1",
            host: "dtn.example:7512",
            body: b"{}",
            signed_at: NOW,
            change: &|_| {},
        }
    }

    fn parts(&self, ask: &Ask<'_>) -> Parts {
        let request = axum::http::Request::builder()
            .method(ask.method)
            .uri(ask.target)
            .header("host", ask.host);
        let mut parts = request.body(()).unwrap().into_parts().0;
        let nonce = random_nonce().unwrap();
        sign(
            &mut parts,
            Scheme::Https,
            ask.body,
            ask.key,
            Purpose::Api,
            ask.signed_at,
            &nonce,
        )
        .unwrap();
        (ask.change)(&mut parts);
        parts
    }

    fn let_in(&self, parts: &Parts, body: &[u8], now: u64) -> Result<String, Problem> {
        let presented = self.gate.check(parts, now)?;
        let checked = self.gate.authorize(presented, parts, None)?;
        self.gate
            .check_body_and_replay(&checked, parts, body, now)
            .map(|caller| caller.user)
    }

    fn answer(&self, ask: &Ask<'_>) -> Result<String, (u16, String)> {
        self.let_in(&self.parts(ask), ask.body, NOW_MS)
            .map_err(|problem| (problem.status, problem.detail))
    }

    /// Asserts the status, and that the detail contains `word`.
    fn refused(&self, ask: &Ask<'_>, status: u16, word: &str) {
        let (found, detail) = self.answer(ask).unwrap_err();
        assert!(found == status && detail.contains(word), "{found} {detail}");
    }
}

#[test]
fn listed_key_is_admitted_under_its_name() {
    let bench = Bench::new();
    assert_eq!(bench.answer(&bench.ask()), Ok("ana".into()));
    let get = Ask {
        key: &bench.read,
        method: "GET",
        body: b"",
        host: "dtn",
        ..bench.ask()
    };
    assert_eq!(bench.answer(&get), Ok("ben".into()));
}

#[test]
fn unsigned_requests_are_refused() {
    let bench = Bench::new();
    let unsigned = |parts: &mut Parts| parts.headers.retain_only("host");
    bench.refused(
        &Ask {
            change: &unsigned,
            ..bench.ask()
        },
        401,
        "not signed",
    );
}

trait RetainOnly {
    fn retain_only(&mut self, name: &'static str);
}

impl RetainOnly for HeaderMap {
    fn retain_only(&mut self, name: &'static str) {
        let value = self.remove(name);
        self.clear();
        if let Some(value) = value {
            self.insert(name, value);
        }
    }
}

#[test]
fn outdated_requests_are_refused() {
    let bench = Bench::new();
    for (signed_at, word) in [
        (NOW - 121, "ago"),
        (NOW + 11, "future"),
        (NOW - 61, "expired"),
    ] {
        bench.refused(
            &Ask {
                signed_at,
                ..bench.ask()
            },
            401,
            word,
        );
    }
    let young = KeyGate::new(bench.gate.keys.read().as_ref().clone(), ["dtn:443"], NOW);
    let bench = Bench {
        gate: young,
        ..bench
    };
    let ask = |signed_at| Ask {
        signed_at,
        host: "dtn",
        ..bench.ask()
    };
    bench.refused(&ask(NOW - 1), 401, "before this service started");
    assert!(bench.answer(&ask(NOW)).is_ok());
}

#[test]
fn replays_are_refused_while_they_are_possible() {
    let bench = Bench::new();
    let ask = bench.ask();
    let parts = bench.parts(&ask);
    assert!(bench.let_in(&parts, ask.body, NOW_MS).is_ok());
    for later in 0..200 {
        let again = bench.let_in(&parts, ask.body, NOW_MS + later * 1000);
        assert_eq!(again.unwrap_err().status, 401, "{later} s later");
    }
}

#[test]
fn altered_body_is_refused() {
    let bench = Bench::new();
    let ask = bench.ask();
    let parts = bench.parts(&ask);
    let reported = bench.let_in(&parts, b"{ }", NOW_MS).unwrap_err();
    assert_eq!(
        (reported.status, reported.detail.as_str()),
        (401, "the body is not the one that was signed")
    );
    // A body that no signed part covers.
    let bare = bench.parts(&Ask {
        body: b"",
        ..bench.ask()
    });
    let reported = bench.let_in(&bare, b"{}", NOW_MS).unwrap_err();
    assert!(reported.detail.contains("content-digest"), "{reported}");
}

#[test]
fn unlisted_and_removed_keys_are_refused() {
    let bench = Bench::new();
    let stranger = SigningKey::generate().unwrap();
    bench.refused(
        &Ask {
            key: &stranger,
            ..bench.ask()
        },
        401,
        "is not authorized here",
    );
    let text = format!("{} ben read", bench.read.public());
    bench
        .gate
        .replace_keys(AuthorizedKeys::parse(&text, "keys".as_ref()).unwrap());
    bench.refused(&bench.ask(), 401, "is not authorized here");
}

/// LH-VOUCHER-7: the names decide whatever proved them.
#[test]
fn unlisted_key_is_admitted_by_its_group() {
    let mut bench = Bench::new();
    let [cem, stranger] = [(); 2].map(|()| SigningKey::generate().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("principals.toml");
    let principals = format!(
        "[[principal]]\nname = \"cem\"\nkeys = [\"{}\"]\ngroups = [\"lab\"]\n\
         [[principal]]\nname = \"eva\"\nkeys = [\"{}\"]\n",
        cem.public(),
        stranger.public()
    );
    std::fs::write(&file, principals).unwrap();
    let gate = KeyGate::with_body_limit(
        "longhaul control",
        MAX_BODY_BYTES,
        AuthorizedKeys::default(),
        ["dtn.example:7512"],
        NOW - 1000,
    );
    let named = NamedCallers {
        identities: Identities::load(&file).unwrap(),
        authorize: Arc::new(|principal: &Principal| {
            let authorized = AuthorizedKey {
                name: principal.short_name().unwrap_or_default().to_owned(),
                role: KeyRole::Read,
            };
            principal.groups.contains("lab").then_some(authorized)
        }),
    };
    bench.gate = Arc::new(gate.with_named_callers(named));
    let get = |key| Ask {
        key,
        method: "GET",
        body: b"",
        ..bench.ask()
    };
    assert_eq!(bench.answer(&get(&cem)), Ok("cem".into()));
    bench.refused(&get(&stranger), 401, "is not authorized here");
    bench.refused(
        &Ask {
            key: &cem,
            ..bench.ask()
        },
        403,
        "may only read",
    );
    let changed = |parts: &mut Parts| parts.uri = "/api/v1/jobs?a=2".parse().unwrap();
    bench.refused(
        &Ask {
            change: &changed,
            ..get(&cem)
        },
        401,
        "signature",
    );
}

#[test]
fn requests_for_another_service_are_refused() {
    let bench = Bench::new();
    for host in [
        "dtn.example",
        "dtn.example:7513",
        "other.example:7512",
        "127.0.0.1:7512",
    ] {
        bench.refused(
            &Ask {
                host,
                ..bench.ask()
            },
            403,
            "--server-name",
        );
    }
    // Another service received the request and forwarded it under this service's name.
    let sent_on = |parts: &mut Parts| {
        _ = parts
            .headers
            .insert("host", "dtn.example:7512".parse().unwrap())
    };
    let elsewhere = Ask {
        host: "other:7512",
        change: &sent_on,
        ..bench.ask()
    };
    bench.refused(&elsewhere, 401, "not that of the key");
}

#[test]
fn read_only_key_changes_nothing() {
    let bench = Bench::new();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
        bench.refused(
            &Ask {
                key: &bench.read,
                method,
                ..bench.ask()
            },
            403,
            "ben may only read",
        );
    }
}

#[test]
fn signature_must_cover_all_that_has_an_effect() {
    let bench = Bench::new();
    let named = |parts: &mut Parts| {
        _ = parts
            .headers
            .insert("idempotency-key", "k".parse().unwrap())
    };
    bench.refused(
        &Ask {
            change: &named,
            ..bench.ask()
        },
        401,
        "idempotency-key",
    );
    let less = |parts: &mut Parts| {
        let input = parts.headers["signature-input"]
            .to_str()
            .unwrap()
            .replace("\"@query\" ", "");
        parts
            .headers
            .insert("signature-input", input.parse().unwrap());
    };
    bench.refused(
        &Ask {
            change: &less,
            ..bench.ask()
        },
        401,
        "@query",
    );
}

#[test]
fn tokens_cookies_and_pages_admit_nobody() {
    let bench = Bench::new();
    for (name, value) in [
        ("authorization", "Bearer x"),
        ("cookie", "longhaul=x"),
        ("origin", "https://dtn.example:7512"),
    ] {
        let with = |parts: &mut Parts| _ = parts.headers.insert(name, value.parse().unwrap());
        bench.refused(
            &Ask {
                change: &with,
                ..bench.ask()
            },
            403,
            "is not accepted here",
        );
    }
}

#[test]
fn rate_limit_applies_per_key() {
    let bench = Bench::new();
    *bench.gate.seen.lock() = ReplayMemory::with_entries(18);
    let get = |key| Ask {
        key,
        method: "GET",
        body: b"",
        ..bench.ask()
    };
    let mut let_in = 0;
    let reported = loop {
        match bench.answer(&get(&bench.all)) {
            Ok(_) => let_in += 1,
            Err(reported) => break reported,
        }
    };
    assert_eq!((reported.0, let_in), (429, 2));
    assert_eq!(bench.answer(&get(&bench.read)), Ok("ben".into()));
}
