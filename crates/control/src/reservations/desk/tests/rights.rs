//! Tests of rights and limits.

use longhaul_control_api::principals::{Constraint, Permission, ReservationLimits, Resource};

use super::*;

#[test]
fn rights_decide_visibility_and_actions() {
    let mut kept = Kept::new(&map(10e9));
    let (ana, ben) = (reserver("ana"), reserver("ben"));
    let window = Window::new(0, HOUR);
    let own = kept
        .reserve(&ana, &request(rate(5_000_000_000), HOUR), &[window], 0)
        .unwrap();
    assert_eq!(
        (own[0].owner.as_str(), own[0].owner_name.as_str()),
        ("lhk1:ana", "ana")
    );
    // Reservations of others have no number in the proof.
    let refusal = kept.refused(&ben, &request(rate(3_000_000_000), HOUR), &[window]);
    let Proof::Cut { links, .. } = &refusal.proof else {
        panic!("{refusal:?}")
    };
    assert!(
        links.iter().all(|full| full.by.is_empty()) && links.iter().any(|full| full.by_others == 1)
    );
    assert!(matches!(
        kept.desk.show(&ben, ReservationId(1), 0),
        Err(ReservationError::Unknown(1))
    ));
    let cancel = ReservationCommand::Cancel {
        id: ReservationId(1),
        series: false,
    };
    assert!(matches!(
        kept.act(&ben, &cancel, 0),
        Err(ReservationError::Unknown(1))
    ));
    let list = |asker: &ReservationCaller| {
        kept.desk
            .list(asker, &ReservationQuery::default(), 0, 10, 0)
            .0
            .len()
    };
    let right = |permission, constraint| Right {
        resource: Resource::Reservations,
        permission,
        constraint,
        limits: None,
    };
    let site = |name: &str| Constraint::Site(name.to_owned());
    let east = asker("east", vec![right(Permission::Read, site("east"))]);
    let south = asker("south", vec![right(Permission::Read, site("south"))]);
    assert_eq!(
        [&ana, &ben, &east, &south, &operator()].map(list),
        [1, 0, 1, 0, 1]
    );
    // The right to read does not permit actions.
    assert!(matches!(
        kept.act(&east, &cancel, 0),
        Err(ReservationError::Forbidden(_))
    ));
    let provision = ReservationCommand::Provision(ReservationId(1));
    assert_eq!(
        kept.act(&ana, &provision, 0).unwrap()[0].state.provision,
        Some(ProvisionState::Provisioned)
    );
    let error = kept.act(&ana, &provision, 0).unwrap_err().to_string();
    assert_eq!(
        error,
        "reservation 1 is provisioned: it cannot be provisioned now"
    );
    kept.act(&ana, &ReservationCommand::Release(ReservationId(1)), 0)
        .unwrap();
    assert!(kept.act(&ana, &cancel, 0).is_ok());
}

#[test]
fn changes_cannot_evade_the_caps_of_a_right() {
    let mut kept = Kept::new(&map(10e9));
    let right = |permission, constraint, limits| Right {
        resource: Resource::Reservations,
        permission,
        constraint,
        limits: Some(limits),
    };
    let short = ReservationLimits {
        duration_s: Some(1800),
        ..ReservationLimits::default()
    };
    let slow = ReservationLimits {
        rate_bps: Some(1_000_000_000),
        ahead_s: Some(7200),
        link_share_percent: Some(20),
        ..ReservationLimits::default()
    };
    let ana = asker(
        "ana",
        vec![
            right(Permission::Create, Constraint::Any, short),
            right(Permission::Create, Constraint::Any, slow),
            right(
                Permission::Modify,
                Constraint::Own,
                ReservationLimits::default(),
            ),
            right(
                Permission::Read,
                Constraint::Own,
                ReservationLimits::default(),
            ),
        ],
    );
    let windows = |length: i64| [Window::new(0, length)];
    let fast = request(rate(4_000_000_000), HOUR);
    assert!(
        kept.reserve(&ana, &fast, &windows(HOUR / 2), 0).is_ok(),
        "short"
    );
    let error = kept.reserve(&ana, &fast, &windows(HOUR), 0).unwrap_err();
    assert!(matches!(error, ReservationError::Policy(_)), "{error}");
    // A fifth of the wide path is taken already, so a small request takes the narrow one.
    let slow = request(rate(500_000_000), HOUR);
    let granted = kept.reserve(&ana, &slow, &windows(HOUR), 0).unwrap();
    assert_eq!(names(&granted[0]), [["w-s", "s-e"]]);
    let grown = ReservationCommand::Change {
        id: ReservationId(2),
        change: ReservationChange {
            wish: Some(rate(2_000_000_000)),
            ..ReservationChange::default()
        },
    };
    assert!(matches!(
        kept.act(&ana, &grown, 0),
        Err(ReservationError::Policy(_))
    ));
}

#[test]
fn rates_are_bounded_by_the_ends() {
    let mut kept = Kept::new(&map(10e9));
    let mut command = ReservationCommand::Reserve {
        request: Box::new(request(rate(2_000_000_000), HOUR)),
        from: ReservationEnd {
            access: Some(1_000_000_000),
            ..place("west")
        },
        to: place("east"),
        windows: vec![Window::new(0, HOUR)],
        is_end: true,
        document: None,
        delegation: None,
    };
    let error = kept.act(&operator(), &command, 0).unwrap_err();
    assert!(
        error.to_string().contains("at most 1000000000 bit/s"),
        "{error}"
    );
    if let ReservationCommand::Reserve { request, .. } = &mut command {
        request.wish = Wish::Volume {
            bytes: 100_000_000_000,
            at_most_bps: None,
            pace: Default::default(),
        };
    }
    let granted = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(granted[0].pieces[0].paths[0].rate_bps, 1_000_000_000);
    if let ReservationCommand::Reserve { to, .. } = &mut command {
        *to = place("west");
    }
    assert!(kept.act(&operator(), &command, 0).is_err());
}
