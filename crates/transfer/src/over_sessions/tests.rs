use super::*;

fn reserved_path(end_unix_ms: u64, rate: u64) -> ConnectorPath {
    let grant = CircuitGrant {
        circuit: b"12".to_vec(),
        holder: PublicKey::from_bytes([1; 32]),
        from: "a".to_owned(),
        to: "b".to_owned(),
        start_unix_ms: 0,
        end_unix_ms,
        rate,
        sessions: 4,
        depots: vec![PublicKey::from_bytes([2; 32])],
        issuer: PublicKey::from_bytes([3; 32]),
        signature: [0; 64],
    };
    ConnectorPath {
        route: "192.0.2.1:7510".parse().unwrap(),
        source: None,
        transport: None,
        mark: Some(ReservationMark::Grant(Arc::new(grant))),
    }
}

/// A copy of several hours has hundreds of grants for one path. Renewing a grant must not cost its
/// streams.
#[test]
fn renewed_grant_keeps_its_path() {
    let mut paths = ConnectorPaths::default();
    let first = paths.path_number(reserved_path(60_000, 5));
    for renewals in 2..=2 * MAX_ROUTES as u64 {
        let end = renewals * 60_000;
        assert_eq!(paths.path_number(reserved_path(end, 5)), first);
        let Some(ReservationMark::Grant(shown)) = &paths.all[0].mark else {
            panic!("it has a grant")
        };
        assert_eq!(
            shown.end_unix_ms, end,
            "what is opened now shows the last one"
        );
    }
    assert_ne!(
        paths.path_number(reserved_path(60_000, 6)),
        first,
        "its streams are paced otherwise"
    );
    let mut elsewhere = reserved_path(60_000, 5);
    elsewhere.route = "192.0.2.2:7510".parse().unwrap();
    assert_ne!(paths.path_number(elsewhere), first);
    assert_eq!(paths.all.len(), 3);
}
