//! Properties that must hold for any table of routes, and any answer; see
//! [`longhaul_proto::fuzzing`].

use std::time::Duration;

use longhaul_control_api::routes::{RouteAnswer, RouteTable};
use longhaul_proto::fuzzing::{FuzzTarget, Seed, text_seeds};

use crate::routes::belief::{self, MAX_AT_ONCE};
use crate::routes::cache;
use crate::routes::held::HeldRoutes;
use crate::routes::question::{Choice, RouteQuery, Urgency};

/// Fuzz targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[FuzzTarget {
    name: "route-table",
    property: table,
    seeds,
}];

/// URL of the controller in [`table`].
pub const CONTROLLER: &str = "https://c:1";

fn questions() -> impl Iterator<Item = RouteQuery> {
    let destinations = ["h.example:7511", "192.0.2.1:7511"];
    let sizes = [None, Some(0), Some(1 << 20), Some(u64::MAX)];
    destinations.into_iter().flat_map(move |to| {
        sizes.into_iter().filter_map(move |bytes| {
            Some(RouteQuery {
                destination: to.parse().ok()?,
                receives: false,
                bytes,
                streams: None,
                congestion: None,
                urgency: Urgency::Usual,
            })
        })
    })
}

fn check(choice: &Choice, question: &RouteQuery) {
    assert!((1..=MAX_AT_ONCE).contains(&choice.at_once));
    assert!(choice.at_once <= choice.routes.len());
    for chosen in &choice.routes {
        let mut hops = chosen.route.hops().iter();
        assert!(hops.all(|hop| hop.endpoint != question.destination));
    }
    if let Some(seconds) = choice.seconds {
        assert!(
            seconds.p10 > 0.0
                && seconds.p90.is_finite()
                && seconds.p10 <= seconds.p50
                && seconds.p50 <= seconds.p90
        );
    }
    assert!(choice.why.len() <= 5);
    assert!(
        choice
            .why
            .iter()
            .all(|line| !line.contains(char::is_control))
    );
}

/// Parses the input as a cache file, a table and an answer, and derives choices from them.
///
/// # Panics
/// A property does not hold.
pub fn table(input: &[u8]) {
    let now_ms = Duration::from_secs(1_800_000_000).as_millis() as u64;
    let kept = cache::parse_cache_file(input, CONTROLLER);
    let table = serde_json::from_slice::<RouteTable>(input).ok();
    let answer = serde_json::from_slice::<RouteAnswer>(input).ok();
    let held = HeldRoutes::parse(&String::from_utf8_lossy(input), now_ms);
    for question in questions() {
        for table in [&kept, &table].into_iter().flatten() {
            let question = RouteQuery {
                receives: table.receives,
                ..question.clone()
            };
            // At its own date, and as if it were new.
            for now in [now_ms, table.made_ms] {
                if let Ok(choice) = belief::choice_from_table(table, &question, now, &held) {
                    check(&choice, &question);
                }
            }
        }
        if let Some(answer) = &answer
            && let Ok(choice) = belief::choice_from_answer(answer, &question, &held)
        {
            check(&choice, &question);
        }
    }
}

fn seeds() -> Vec<Seed> {
    let option = |route: &str| {
        format!(
            r#"{{"via": [{{"depot": "d", "address": "d:1"}}], "route": "{route}", "seconds": {{"p10": 1, "p50": 2, "p90": 3}}, "rate_bps": {{"p10": 1, "p50": 2, "p90": 3}}, "share": 0.5}}"#
        )
    };
    let table = |routes: &str, made: u64| {
        format!(
            r#"{{"from": "m", "map_version": 1, "made_ms": {made}, "valid_until_ms": {made}, "next": null, "destinations": [{{"to": "h.example", "addresses": ["192.0.2.0/24"], "sizes": [{{"at_least_bytes": 0, "routes": [{routes}], "fall_back": [{routes}], "direct_seconds": {{"p10": 4, "p50": 5, "p90": 6}}}}]}}]}}"#
        )
    };
    let new = 1_800_000_000_000;
    let one = table(&option("d:1"), new);
    let several = format!(
        "{}, {}, {}",
        option("d:1,e:2"),
        option("direct"),
        option("h.example:7511")
    );
    let kept = format!(r#"{{"format": 1, "controller": "{CONTROLLER}", "table": {one}}}"#);
    let answer = format!(
        r#"{{"routes": [{several}], "others": [], "fall_back": [{several}], "seconds": null, "why": ["a\u001b[2J"], "map_version": 1, "made_ms": 1, "valid_until_ms": 2}}"#
    );
    let held = format!(
        r#"{{"routes": [{{"to": "h.example:7511", "route": "d:1", "until_ms": {}}}]}}"#,
        new + 1
    );
    text_seeds(&[
        ("table", &one),
        ("several", &table(&several, new)),
        ("old", &table(&several, 0)),
        ("ahead", &table(&several, u64::MAX)),
        ("kept", &kept),
        ("answer", &answer),
        ("held", &held),
        ("cut", one.get(..40).unwrap_or_default()),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }
}
