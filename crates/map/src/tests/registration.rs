//! Depots that register.

use std::time::Duration;

use longhaul_proto::{DEPOT_PORT, Endpoint};
use proptest::prelude::*;
use quantities::Rate;

use super::{everything, key};
use crate::fuzzing::check_properties;
use crate::{
    DepotAddress, DepotLimits, DepotNames, DepotSource, DepotState, MergedMap, Registration,
    RegistrationPolicy, RegistrationProblem, Transport, merge,
};

const NOW: f64 = 1_800_000_000.0;

fn registration(number: u8, name: &str, sent_at: f64) -> Registration {
    Registration {
        key: key(number),
        name: name.to_owned(),
        site: Some("campus".to_owned()),
        addresses: vec![DepotAddress {
            endpoint: Endpoint::parse_with_port("192.0.2.1", DEPOT_PORT).unwrap(),
            transports: vec![Transport::Tcp],
        }],
        limits: DepotLimits::default(),
        version: "0.2.0".to_owned(),
        sent_at,
        valid_for: Duration::from_secs(90),
    }
}

fn merged(registrations: &[Registration], now: f64) -> MergedMap {
    let (map, policy) = (everything(), RegistrationPolicy::default());
    let merged = merge(
        &map,
        registrations,
        &DepotNames::from_map(&map),
        now,
        &policy,
    );
    check_properties(&merged.map);
    merged
}

#[test]
fn a_depot_comes_falls_silent_and_goes() {
    let one = [registration(9, "quad", NOW)];
    let state = |now| merged(&one, now).map.depot("quad").map(|depot| depot.state);
    let (heard, until) = (NOW, NOW + 90.0);
    assert_eq!(state(NOW - 1.0), Some(DepotState::Live { heard, until }));
    assert_eq!(
        state(until - 0.001),
        Some(DepotState::Live { heard, until })
    );
    assert_eq!(state(until), Some(DepotState::Stale { heard, until }));
    let week = 7.0 * 86_400.0;
    assert_eq!(
        state(until + week - 1.0),
        Some(DepotState::Stale { heard, until })
    );
    assert_eq!(state(until + week), None);
    let depot = merged(&one, NOW).map.depot("quad").cloned().unwrap();
    assert_eq!(depot.source, DepotSource::Registered);
    assert_eq!(depot.site.as_deref(), Some("campus"));
    assert!(depot.state.is_usable());
}

#[test]
fn the_policy_limits_the_validity_of_registrations() {
    let mut long = registration(9, "quad", NOW);
    long.valid_for = Duration::from_secs(u64::MAX);
    let depot = merged(&[long], NOW).map.depot("quad").cloned().unwrap();
    assert_eq!(
        depot.state,
        DepotState::Live {
            heard: NOW,
            until: NOW + 600.0
        }
    );
}

#[test]
fn registrations_from_the_future_do_not_count() {
    let [now, ahead] = [
        registration(9, "now", NOW),
        registration(9, "ahead", NOW + 31.0),
    ];
    let merged = merged(&[ahead, now], NOW);
    assert!(merged.map.depot("now").is_some() && merged.map.depot("ahead").is_none());
    assert_eq!(
        merged.problems,
        [(key(9), RegistrationProblem::Clock { ahead: 31.0 })]
    );
}

#[test]
fn a_files_description_of_a_depot_stays() {
    let listed = everything().depots[0].clone();
    let mut own = registration(1, "usurper", NOW);
    own.key = listed.key;
    own.limits.max_rate = Rate::new(1e9);
    own.limits.max_sessions = Some(9999);
    let merged = merged(&[own], NOW);
    let [depot] = merged.map.depots.as_slice() else {
        panic!("one depot")
    };
    assert_eq!(
        (&depot.name, &depot.site, &depot.addresses),
        (&listed.name, &listed.site, &listed.addresses)
    );
    // The tighter one of each limit.
    assert_eq!(depot.limits.max_rate, Rate::new(1e9));
    assert_eq!(depot.limits.max_sessions, Some(500));
    assert_eq!(depot.source, DepotSource::Both);
    assert_eq!(depot.version.as_deref(), Some("0.2.0"));
    assert!(matches!(depot.state, DepotState::Live { .. }));
}

#[test]
fn no_depot_can_take_anothers_name() {
    let two = [
        registration(8, "starlight", NOW),
        registration(9, "quad", NOW),
        registration(10, "quad", NOW),
    ];
    let merged = merged(&two, NOW);
    let names: Vec<&str> = merged
        .map
        .depots
        .iter()
        .map(|depot| depot.name.as_str())
        .collect();
    let [file, taken, first, second] = names.as_slice() else {
        panic!("{names:?}")
    };
    assert_eq!(*file, "starlight");
    assert!(
        taken.starts_with("starlight~")
            && first.starts_with("quad~")
            && second.starts_with("quad~"),
        "{names:?}"
    );
    assert_eq!(merged.problems.len(), 3);
}

#[test]
fn invalid_registrations_are_reported() {
    let good = registration(9, "quad", NOW);
    assert_eq!(good.check(), Ok(()));
    let with = |change: fn(&mut Registration)| {
        let mut registration = good.clone();
        change(&mut registration);
        registration.check().unwrap_err()
    };
    assert_eq!(
        with(|of| of.name = "a~b".to_owned()),
        RegistrationProblem::Name
    );
    assert_eq!(
        with(|of| of.name = "\u{202e}".to_owned()),
        RegistrationProblem::Name
    );
    assert_eq!(
        with(|of| of.version = "\n".to_owned()),
        RegistrationProblem::Version
    );
    assert_eq!(
        with(|of| of.addresses.clear()),
        RegistrationProblem::Addresses
    );
    assert_eq!(
        with(|of| of.addresses[0].transports.clear()),
        RegistrationProblem::Addresses
    );
    assert_eq!(
        with(|of| of.limits.max_sessions = Some(0)),
        RegistrationProblem::Limits
    );
    assert_eq!(with(|of| of.sent_at = f64::NAN), RegistrationProblem::Times);
    assert_eq!(
        with(|of| of.valid_for = Duration::ZERO),
        RegistrationProblem::Times
    );
    assert!(matches!(
        with(|of| of.site = Some("x".repeat(999))),
        RegistrationProblem::NoSite { .. }
    ));
}

#[test]
fn a_depot_with_an_unknown_site_appears_without_one() {
    let mut lost = registration(9, "quad", NOW);
    lost.site = Some("atlantis".to_owned());
    let merged = merged(&[lost], NOW);
    assert_eq!(merged.map.depot("quad").unwrap().site, None);
    assert!(matches!(
        merged.problems.as_slice(),
        [(_, RegistrationProblem::NoSite { site })] if site == "atlantis"
    ));
}

#[test]
fn json_says_units_and_comes_back() {
    let registration = registration(9, "quad", NOW);
    let json = serde_json::to_value(&registration).unwrap();
    assert_eq!(json["valid_for_seconds"], 90.0);
    assert_eq!(json["addresses"][0]["transports"][0], "tcp");
    assert_eq!(
        serde_json::from_value::<Registration>(json).unwrap(),
        registration
    );
}

proptest! {
    #[test]
    fn the_order_of_registrations_does_not_matter(
        what in prop::collection::vec((0u8..5, "[ab~]{1,2}", -1000i32..50, 0u64..2000), 0..20),
        seed in any::<u64>(),
        now in 0.0..1e6,
    ) {
        let list: Vec<Registration> = what
            .iter()
            .map(|(key, name, sent, valid)| Registration {
                valid_for: Duration::from_secs(*valid),
                ..registration(*key, name, NOW + f64::from(*sent))
            })
            .collect();
        let mut other = list.clone();
        // Any permutation: sorted by a hash of the index.
        let mut places: Vec<u64> = (0..other.len() as u64)
            .map(|at| (at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        other.sort_by_cached_key(|_| places.pop());
        prop_assert_eq!(merged(&list, NOW + now), merged(&other, NOW + now));
    }
}
