//! Tests of reservations whose nodes are set up.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::CircuitResult;
use super::*;

/// Returns a reservation store whose node in the west is set up, and a rate request between known
/// addresses.
pub(super) fn managed() -> (Kept, ReservationCommand) {
    let mut kept = Kept::new(&map(10e9));
    let sites = BTreeSet::from(["west".to_owned()]);
    kept.desk = kept.desk.with_managed_sites(Arc::new(sites));
    let at = |site: &str, address: &str| ReservationEnd {
        address: Some(address.parse().unwrap()),
        ..place(site)
    };
    let mut asked = request(rate(1_000_000_000), 2 * HOUR);
    asked.start_ms = Some(u64::try_from(HOUR).unwrap());
    let command = ReservationCommand::Reserve {
        request: Box::new(asked),
        from: at("west", "192.0.2.1"),
        to: at("east", "198.51.100.1"),
        windows: vec![Window::new(HOUR, 2 * HOUR)],
        is_end: true,
        document: None,
        delegation: None,
    };
    (kept, command)
}

#[test]
fn provisioning_is_scheduled_or_waits_for_nodes() {
    let (mut kept, command) = managed();
    kept.act(&operator(), &command, 0).unwrap();
    let id = ReservationId(1);
    let provision = |kept: &Kept| kept.show(1, HOUR).state.provision;
    kept.act(&operator(), &ReservationCommand::Provision(id), 0)
        .unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Provisioned));
    kept.act(&operator(), &ReservationCommand::Release(id), 0)
        .unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Released));
    kept.act(&operator(), &ReservationCommand::Provision(id), HOUR)
        .unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Provisioning));
    let settle = |what: CircuitResult| ReservationCommand::Settle(vec![(id, what)]);
    // A result for teardown does not apply while it is being set up.
    assert!(
        kept.act(&operator(), &settle(CircuitResult::TornDown), HOUR)
            .unwrap()
            .is_empty()
    );
    kept.act(&operator(), &settle(CircuitResult::SetUp), HOUR)
        .unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Provisioned));
    kept.act(&operator(), &ReservationCommand::Release(id), HOUR)
        .unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Releasing));
    kept.act(&operator(), &settle(CircuitResult::TornDown), HOUR)
        .unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Released));
}

#[test]
fn failed_circuit_returns_bandwidth_with_a_reason() {
    let (mut kept, mut command) = managed();
    if let ReservationCommand::Reserve { request, .. } = &mut command {
        request.wish = rate(5_000_000_000);
        request.provision = true;
    }
    kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(
        kept.show(1, 0).state.provision,
        Some(ProvisionState::Provisioned)
    );
    assert!(
        kept.act(&operator(), &command, 0).is_err(),
        "there is no more room"
    );
    // A held change is aborted with it.
    let change = ReservationChange {
        wish: Some(rate(1_000_000_000)),
        hold: true,
        ..ReservationChange::default()
    };
    let change = ReservationCommand::Change {
        id: ReservationId(1),
        change,
    };
    kept.act(&operator(), &change, 0).unwrap();
    let why = "west, link w-n: the switch is off".to_owned();
    let failed =
        ReservationCommand::Settle(vec![(ReservationId(1), CircuitResult::Failed(why.clone()))]);
    kept.act(&operator(), &failed, HOUR).unwrap();
    let shown = kept.show(1, HOUR);
    assert_eq!(
        (shown.state.life, shown.failure),
        (LifeState::Failed, Some(why))
    );
    assert!(shown.pieces.is_empty() && shown.held.is_none());
    assert!(
        kept.act(&operator(), &failed, HOUR).unwrap().is_empty(),
        "it fails once"
    );
    kept.act(&operator(), &command, HOUR).unwrap();
    kept.pass(HOUR + i64::try_from(RETENTION_MS).unwrap() + 1);
    assert!(
        kept.desk
            .reservations()
            .all(|(id, ..)| id != ReservationId(1))
    );
}

#[test]
fn source_ports_distinguish_paths_and_neighbours() {
    let (mut kept, mut command) = managed();
    let ports = |found: &Reservation| -> Vec<Option<u16>> {
        let paths = found.pieces.iter().flat_map(|piece| &piece.paths);
        paths
            .map(|path| path.source_ports.map(|ports| ports.first))
            .collect()
    };
    let first = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(ports(&first[0]), [None], "all streams between its ends");
    let second = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(
        ports(&second[0]),
        [Some(10_752)],
        "the first has all others"
    );
    if let ReservationCommand::Reserve { windows, .. } = &mut command {
        *windows = vec![Window::new(2 * HOUR, 3 * HOUR)];
    }
    let later = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(ports(&later[0]), [None], "nobody shares its time");
    // It cannot be moved to the time of another reservation that has all streams.
    let change = ReservationChange {
        start_ms: Some(u64::try_from(HOUR).unwrap()),
        ..ReservationChange::default()
    };
    let change = ReservationCommand::Change {
        id: ReservationId(3),
        change,
    };
    let error = kept.act(&operator(), &change, 0).unwrap_err();
    assert!(
        error.to_string().contains("has the same source ports"),
        "{error}"
    );
    if let ReservationCommand::Reserve { request, from, .. } = &mut command {
        request.pin = true;
        from.address = None;
    }
    let error = kept.act(&operator(), &command, 0).unwrap_err();
    assert!(error.to_string().starts_with("pin:"), "{error}");
}
