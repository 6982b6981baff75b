#![allow(clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::path::Path;

use longhaul_identity::Principal;
use longhaul_proto::{Endpoint, PublicKey};
use proptest::prelude::*;

use super::*;
use crate::{AccessRequest, OwnAddresses, Policy};

const KEY: &str = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn key() -> PublicKey {
    KEY.parse().expect("key")
}

/// Returns the candidates that remain for these wishes, of rules for one server each.
fn within(rules: &[&str], wishes: &StatedWishes<'_>) -> Result<Candidates, String> {
    let rule = |more: &&str| {
        let principals = if more.contains("anybody") { "*" } else { KEY };
        format!(
            "[[allow]]\nprincipals = [\"{principals}\"]\nservers = [\"192.0.2.1\"]\n\
            ports = [80]\n{more}\n"
        )
    };
    let text: String = rules.iter().map(rule).collect();
    let policy = Policy::parse(&text, Path::new("p.toml")).expect(&text);
    let server: Endpoint = "192.0.2.1:80".parse().expect("server");
    let found = policy.candidates(
        &key(),
        AccessRequest::Server(&server),
        &OwnAddresses::default(),
    );
    found
        .retain_within(wishes)
        .map_err(|unmet| unmet.to_string())
}

/// LH-WISH-1.
#[test]
fn exceeded_or_unstated_wishes_are_refused() {
    let all = "max_size = \"10 GiB\"\nmax_wished_rate = \"1 Gbit/s\"\n\
        max_duration = \"2h\"\npurposes = [\"nightly\", \"tests\"]";
    let good = StatedWishes {
        purpose: Some("nightly"),
        size: Some(10 << 30),
        rate: Some(1_000_000_000),
        duration: Some(7200),
    };
    assert_eq!(within(&[all], &good).expect("allowed").rules.len(), 1);
    for (wishes, said) in [
        (
            StatedWishes { size: None, ..good },
            "rule 1: state the size, at most 10 GiB (max_size)",
        ),
        (
            StatedWishes {
                size: Some(11 << 30),
                ..good
            },
            "rule 1: at most 10 GiB (max_size), not 11 GiB",
        ),
        (
            StatedWishes { rate: None, ..good },
            "rule 1: state the rate, at most 1 Gbit/s (max_wished_rate)",
        ),
        (
            StatedWishes {
                rate: Some(2_000_000_000),
                ..good
            },
            "rule 1: at most 1 Gbit/s (max_wished_rate), not 2 Gbit/s",
        ),
        (
            StatedWishes {
                duration: None,
                ..good
            },
            "rule 1: state the duration, at most 2 h (max_duration)",
        ),
        (
            StatedWishes {
                duration: Some(10800),
                ..good
            },
            "rule 1: at most 2 h (max_duration), not 3 h",
        ),
        (
            StatedWishes {
                purpose: None,
                ..good
            },
            "rule 1: state a purpose that it allows (purposes)",
        ),
        (
            StatedWishes {
                purpose: Some("other"),
                ..good
            },
            "rule 1: not for purpose \"other\" (purposes)",
        ),
    ] {
        assert_eq!(within(&[all], &wishes).map(|_| ()), Err(said.to_owned()));
    }
}

#[test]
fn another_rule_may_allow_what_one_does_not() {
    let wishes = StatedWishes::default();
    let found = within(&["max_size = \"1 GB\"", "name = \"anybody\""], &wishes).expect("allowed");
    assert_eq!((found.rules.len(), found.listed), (1, false));
    assert!(
        within(&["name = \"a\"", "max_size = \"1 GB\""], &wishes)
            .expect("allowed")
            .listed
    );
    let said = within(
        &["name = \"a\"\nmax_size = \"1 GB\"", "max_duration = \"1h\""],
        &wishes,
    );
    assert!(
        said.is_err_and(|said| said.starts_with("a: ")),
        "the first rule's"
    );
    let none = Candidates {
        rules: Vec::new(),
        listed: false,
        principal: Principal::from_key(key()),
    };
    assert!(none.retain_within(&wishes).is_ok(), "no rule is no bound");
}

proptest! {
    /// A session may always carry what it stated, and never much more.
    #[test]
    fn stated_volume_always_passes(stated: u64) {
        let found = within(
            &["max_size = \"16 EiB\""],
            &StatedWishes { size: Some(stated), ..StatedWishes::default() }
        ).expect("allowed");
        let most = found.rules[0].max_bytes(Some(stated)).expect("a bound");
        prop_assert!(most >= stated && most - stated <= stated / OVERHEAD_DIVISOR + OVERHEAD_BYTES);
        let free = within(&[""], &StatedWishes::default()).expect("allowed");
        prop_assert_eq!(free.rules[0].max_bytes(Some(stated)), None);
    }

    #[test]
    fn refusal_fits_in_a_status_line(
        name in "[a-z]{1,64}",
        purpose in ".{1,64}",
        size: u64,
    ) {
        for wishes in [
            StatedWishes { size: Some(size), ..StatedWishes::default() },
            StatedWishes { size: Some(0), purpose: Some(&purpose), ..StatedWishes::default() }
        ] {
            let rule = format!("name = \"{name}\"\nmax_size = \"0 MB\"\npurposes = [\"one\"]");
            if let Err(said) = within(&[&rule], &wishes) {
                prop_assert!(said.chars().all(longhaul_proto::text::is_printable), "{}", said);
            }
        }
    }
}
