//! Tests of sites, and of the ends that keys speak for.

use std::time::Duration;

use super::*;

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

fn places() -> Places {
    let text = format!(
        r#"{{"sites": [{{"name": "west"}}, {{"name": "east"}}],
            "depots": [{{"name": "mid", "key": "{}", "site": "west", "addresses": [{{"endpoint": "mid:7510"}}]}}],
            "hosts": [{{"name": "store", "site": "west", "addresses": ["*.store.example", "192.0.2.0/24"]}},
                      {{"name": "far", "site": "east", "addresses": ["far.example"]}}]}}"#,
        key(1)
    );
    let map = serde_json::from_str(&text).unwrap();
    Places::of(
        &map,
        &[],
        DepotNames::of(&map),
        1000,
        &RegistrationPolicy::default(),
        1,
    )
}

#[test]
fn principal_speaks_for_its_depot_host_and_key() {
    let places = places();
    let depot = places.speaker(&key(1), "whatever");
    assert_eq!(depot.name(), "mid");
    assert!(depot.is("mid") && depot.is(&key(1).to_string()) && !depot.is("store"));
    let host = places.speaker(&key(2), "store");
    assert!(host.name() == "store" && host.is(&key(2).to_string()) && !host.is("mid"));
    // A name of no host speaks for nothing.
    let other = places.speaker(&key(3), "mid");
    assert_eq!(other.ends, [key(3).to_string()]);
}

#[test]
fn path_belongs_to_its_ends_and_common_site() {
    let places = places();
    let host = places.speaker(&key(2), "store");
    let path = |from, to| places.path(Some(&host), from, to);
    assert!(path("store", "far").own && path("far", "store").own && !path("mid", "far").own);
    assert!(path("store", "mid").sites.contains("west"));
    assert!(path("store", "far").sites.is_empty() && path("nobody", "nowhere").sites.is_empty());
    assert!(!places.path(None, "store", "far").own);
}

#[test]
fn ends_are_found_by_name_or_address() {
    let places = places();
    for (name, meant) in [
        ("store", Some("store")),
        ("a.store.example", Some("store")),
        ("192.0.2.9", Some("store")),
        ("FAR.example", Some("far")),
        ("192.0.3.9", None),
        ("store.example.evil", None),
    ] {
        assert_eq!(places.meant(name), meant, "{name}");
    }
    let text = key(9).to_string();
    assert_eq!(places.meant(&text), Some(text.as_str()));
}

#[test]
fn map_is_outdated_once_a_depot_is_stale() {
    let registration: Registration = serde_json::from_str(&format!(
        r#"{{"key": "{}", "name": "d", "addresses": [{{"endpoint": "d:7510"}}], "version": "1", "sent_at": 100, "valid_for_seconds": 30}}"#,
        key(4)
    ))
    .unwrap();
    let policy = RegistrationPolicy {
        max_valid_for: Duration::from_secs(600),
        ..RegistrationPolicy::default()
    };
    let at = |now_ms| {
        Places::of(
            &Map::default(),
            std::slice::from_ref(&registration),
            DepotNames::default(),
            now_ms,
            &policy,
            1,
        )
    };
    let fresh = at(100_000);
    assert!(!fresh.is_old(129_999) && fresh.is_old(130_000));
    assert!(!at(130_000).is_old(1_000_000));
}

#[test]
fn expired_registration_does_not_speak_for_its_name() {
    let registration: Registration = serde_json::from_str(&format!(
        r#"{{"key": "{}", "name": "d", "addresses": [{{"endpoint": "192.0.2.7:7510"}}], "version": "1", "sent_at": 100, "valid_for_seconds": 30}}"#,
        key(4)
    ))
    .unwrap();
    let at = |now_ms| {
        let mut names = DepotNames::default();
        names.bind("d", key(4));
        let policy = RegistrationPolicy::default();
        Places::of(
            &Map::default(),
            std::slice::from_ref(&registration),
            names,
            now_ms,
            &policy,
            1,
        )
    };
    let [live, over, gone] = [at(100_000), at(130_000), at(130_000 + 8 * 86_400_000)];
    assert!(live.speaker(&key(4), "").is("d") && live.meant("d") == Some("d"));
    for places in [&over, &gone] {
        assert!(!places.speaker(&key(4), "").is("d") && places.meant("d").is_none());
        // Its earlier measurements stay its own.
        assert!(places.reporter(&key(4), "").is("d") && !places.reporter(&key(5), "").is("d"));
    }
    // Only addresses on the operator's map distinguish streams.
    assert!(live.addresses("d").is_empty());
}
