//! Tests of constraints on paths and packets: grants, causes of refusals, permissions, and records
//! from before they existed.

use longhaul_control_api::principals::{
    Constraint, PathOption, PathOptionSet, Permission, ReservationLimits, Resource,
};
use longhaul_control_api::reservations::{NamedPath, SourcePortRange};

use super::*;
use crate::circuits::plan;

const GIGABIT: u64 = 1_000_000_000;
const WINDOW: Window = Window {
    start: 0,
    end: HOUR,
};

/// Returns a request for a rate with a change.
fn asked(gigabits: u64, change: impl FnOnce(&mut ReservationRequest)) -> ReservationRequest {
    let mut asked = request(rate(gigabits * GIGABIT), HOUR);
    change(&mut asked);
    asked
}

fn line(asked: &ReservationRequest) -> String {
    let mut kept = Kept::new(&map(10e9));
    let error = kept.reserve(&operator(), asked, &[WINDOW], 0).unwrap_err();
    error.to_string()
}

#[test]
fn granted_paths_satisfy_the_constraints() {
    let mut kept = Kept::new(&map(10e9));
    let south = [["w-s", "s-e"]];
    let changes: [fn(&mut ReservationRequest); 3] = [
        |asked| asked.constraints.via = vec!["south".to_owned()],
        |asked| asked.constraints.only_links = vec!["w-s".to_owned(), "s-e".to_owned()],
        |asked| {
            let sites = ["west", "south", "east"].map(str::to_owned).to_vec();
            let rate_bps = 100;
            (asked.wish, asked.constraints.paths) =
                (rate(100), vec![NamedPath { sites, rate_bps }]);
        },
    ];
    for change in changes {
        let mut asked = request(rate(100), HOUR);
        change(&mut asked);
        let granted = kept.reserve(&operator(), &asked, &[WINDOW], 0).unwrap();
        assert_eq!(names(&granted[0]), south);
        assert_eq!(granted[0].constraints, asked.constraints);
    }
    // A path that begins elsewhere has one hop.
    let mut inner = request(rate(100), HOUR);
    inner.constraints.ingress = Some("north".to_owned());
    let command = ReservationCommand::Reserve {
        request: Box::new(inner.clone()),
        from: ReservationEnd {
            path_site: Some("north".to_owned()),
            ..place("west")
        },
        to: place("east"),
        windows: vec![WINDOW],
        is_end: false,
        document: None,
        delegation: None,
    };
    let granted = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(names(&granted[0]), [["n-e"]]);
    assert_eq!(granted[0].constraints, inner.constraints);
    kept.replayed();
}

#[test]
fn a_refusal_names_the_constraint_that_caused_it() {
    let cases: [(ReservationRequest, &str); 8] = [
        (
            asked(5, |asked| asked.constraints.via = vec!["south".to_owned()]),
            "no path via south has 5 Gbit/s free: the most is 2 Gbit/s",
        ),
        (
            asked(5, |asked| {
                asked.constraints.only_links = vec!["w-s".to_owned(), "s-e".to_owned()];
            }),
            "no path over only-links w-s, s-e has 5 Gbit/s free: the most is 2 Gbit/s",
        ),
        (
            asked(5, |asked| asked.avoid_sites = vec!["north".to_owned()]),
            "no path around avoid-site north has 5 Gbit/s free: the most is 2 Gbit/s",
        ),
        (
            asked(5, |asked| asked.avoid_links = vec!["n-e".to_owned()]),
            "no path around avoid-link n-e has 5 Gbit/s free: the most is 2 Gbit/s",
        ),
        (
            asked(1, |asked| asked.constraints.max_hops = Some(1)),
            "no path of at most 1 hops: the shortest has 2",
        ),
        (
            asked(1, |asked| asked.constraints.max_latency_us = Some(1_500)),
            "no path of at most 1.5 ms: the fastest has 2 ms",
        ),
        (
            asked(5, |asked| {
                asked.constraints.via = vec!["south".to_owned()];
                asked.avoid_sites = vec!["north".to_owned()];
            }),
            "it fits only without all of via south, avoid-site north",
        ),
        (
            asked(6, |asked| {
                let path = |middle: &str, gigabits| NamedPath {
                    sites: ["west", middle, "east"].map(str::to_owned).to_vec(),
                    rate_bps: gigabits * GIGABIT,
                };
                asked.paths = 2;
                asked.constraints.paths = vec![path("north", 3), path("south", 3)];
            }),
            "path 2 needs 3 Gbit/s from west to south, and 2 Gbit/s is free there;",
        ),
    ];
    for (asked, why) in cases {
        let line = line(&asked);
        assert!(
            line.starts_with("not enough bandwidth: ") && line.contains(why),
            "{line}"
        );
    }
    // The constraint is no cause if nothing fits without it.
    let high = line(&asked(9, |asked| asked.constraints.max_hops = Some(3)));
    assert!(high.contains("can be reserved on"), "{high}");
}

#[test]
fn invalid_constraints_say_what_to_do() {
    let with = |change: fn(&mut ReservationRequest)| line(&asked(1, change));
    for (line, why) in [
        (
            with(|asked| asked.constraints.via = vec!["nowhere".to_owned()]),
            "via: there is no site nowhere on the map",
        ),
        (
            with(|asked| asked.constraints.only_links = vec!["none".to_owned()]),
            "only-links: there is no link none on the map",
        ),
        (
            with(|asked| asked.constraints.via = vec!["east".to_owned()]),
            "via: the paths begin or end at east",
        ),
        (
            with(|asked| {
                let sites = ["west", "east"].map(str::to_owned).to_vec();
                asked.constraints.paths = vec![NamedPath {
                    sites,
                    rate_bps: GIGABIT,
                }];
            }),
            "path 1: no link of the map leads from west to east",
        ),
        (
            with(|asked| {
                let sites = ["west", "north"].map(str::to_owned).to_vec();
                asked.constraints.paths = vec![NamedPath {
                    sites,
                    rate_bps: GIGABIT,
                }];
            }),
            "path 1: it leads from west to north, and the reservation from west to east",
        ),
        (
            with(|asked| asked.filter.dscp = Some(46)),
            "dscp: the map has no addresses of the ends",
        ),
    ] {
        assert!(line.starts_with(why), "{line}");
    }
}

fn limited(options: Option<&[PathOption]>) -> ReservationCaller {
    let right = |permission, limits| Right {
        resource: Resource::Reservations,
        permission,
        constraint: Constraint::Any,
        limits,
    };
    let limits = ReservationLimits {
        path_options: options.map(|options| options.iter().copied().collect()),
        ..ReservationLimits::default()
    };
    let all = [Permission::Create, Permission::Modify, Permission::Read];
    let rights = all.map(|permission| right(permission, Some(limits)));
    asker("ana", rights.to_vec())
}

#[test]
fn roles_allow_path_options() {
    let mut kept = Kept::new(&map(10e9));
    let via = asked(1, |asked| asked.constraints.via = vec!["south".to_owned()]);
    let ingress = asked(1, |asked| {
        asked.constraints.ingress = Some("west".to_owned())
    });
    let mut allowed = |asker: &ReservationCaller, asked: &ReservationRequest| match kept.reserve(
        asker,
        asked,
        &[WINDOW],
        0,
    ) {
        Ok(_) => String::new(),
        Err(error) => {
            assert!(matches!(error, ReservationError::Forbidden(_)), "{error}");
            error.to_string()
        }
    };
    // By default all but ingress and egress, for a role that always exists and others.
    for asker in [reserver("ana"), limited(None)] {
        assert_eq!(allowed(&asker, &via), "");
        let denied = allowed(&asker, &ingress);
        assert!(
            denied.starts_with("no role of ana allows ingress"),
            "{denied}"
        );
    }
    assert_eq!(allowed(&operator(), &ingress), "");
    let some = limited(Some(&[PathOption::MaxHops, PathOption::Ingress]));
    assert_eq!(allowed(&some, &ingress), "");
    assert!(allowed(&some, &via).contains("allows via for"));
    let plain = request(rate(100), HOUR);
    let none = limited(Some(&[]));
    assert_eq!(allowed(&none, &plain), "");
    let mut disjoint = plain.clone();
    disjoint.disjoint = Disjoint::Links;
    assert!(allowed(&none, &disjoint).contains("allows disjoint for"));
    assert!(PathOptionSet::default_allowed().contains(PathOption::Disjoint));
    // A change needs them, too.
    let id = kept.reserve(&none, &plain, &[WINDOW], 0).unwrap()[0].id;
    let change = ReservationCommand::Change {
        id: ReservationId(id),
        change: ReservationChange {
            disjoint: Some(Disjoint::Sites),
            ..ReservationChange::default()
        },
    };
    let error = kept.act(&none, &change, 0).unwrap_err();
    assert!(error.to_string().contains("allows disjoint for"), "{error}");
}

/// Reserves between known addresses.
fn addressed(
    kept: &mut Kept,
    asked: ReservationRequest,
) -> Result<Vec<Reservation>, ReservationError> {
    let at = |site: &str, address: &str| ReservationEnd {
        address: Some(address.parse().unwrap()),
        ..place(site)
    };
    let command = ReservationCommand::Reserve {
        request: Box::new(asked),
        from: at("west", "192.0.2.1"),
        to: at("east", "198.51.100.1"),
        windows: vec![WINDOW],
        is_end: true,
        document: None,
        delegation: None,
    };
    kept.act(&operator(), &command, 0)
}

const fn ports(first: u16, last: u16) -> Option<SourcePortRange> {
    Some(SourcePortRange { first, last })
}

#[test]
fn packets_reach_the_circuit_of_each_path() {
    let mut kept = Kept::new(&map(10e9));
    let sites = ["west".to_owned()].into();
    kept.desk = kept.desk.with_managed_sites(std::sync::Arc::new(sites));
    let both = asked(6, |asked| {
        (asked.paths, asked.filter.dscp) = (2, Some(46));
        asked.filter.source_ports = ports(50_000, 50_008);
    });
    let granted = addressed(&mut kept, both.clone()).unwrap();
    let paths = &granted[0].pieces[0].paths;
    let mut found: Vec<_> = paths.iter().map(|path| path.source_ports).collect();
    found.sort_by_key(|ports| ports.map(|ports| ports.first));
    assert_eq!(found, [ports(50_000, 50_003), ports(50_004, 50_008)]);
    assert_eq!(granted[0].filter, both.filter);
    let (detail, reservation) = kept.desk.reservation(ReservationId(1)).unwrap();
    let circuit = plan::circuit(&kept.desk, ReservationId(1), detail, reservation).unwrap();
    assert_eq!(circuit.check(), Ok(()));
    for route in &circuit.pieces[0].routes {
        assert_eq!(route.streams.dscp, Some(46));
        assert!(route.streams.source_ports.is_some());
    }
    // The ports are divided among two paths, so their number stays.
    let change = ReservationCommand::Change {
        id: ReservationId(1),
        change: ReservationChange {
            paths: Some(3),
            ..ReservationChange::default()
        },
    };
    let error = kept.act(&operator(), &change, 0).unwrap_err();
    assert!(error.to_string().contains("shared by 2 paths"), "{error}");
    kept.replayed();
}

#[test]
fn ports_of_one_reservation_are_not_given_to_another() {
    let mut kept = Kept::new(&map(10e9));
    let with_ports = |range| {
        let mut asked = request(rate(100), HOUR);
        asked.filter.source_ports = range;
        asked
    };
    addressed(&mut kept, with_ports(ports(10_240, 10_250))).unwrap();
    let error = addressed(&mut kept, with_ports(ports(10_250, 10_260))).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("ports: reservation 1 has source ports 10240-10250"),
        "{error}"
    );
    addressed(&mut kept, with_ports(ports(50_000, 50_000))).unwrap();
    // Assigned ports avoid those, and requested ports avoid assigned ones.
    let mut pinned = request(rate(100), HOUR);
    pinned.pin = true;
    let granted = addressed(&mut kept, pinned).unwrap();
    let assigned = granted[0].pieces[0].paths[0].source_ports.unwrap();
    assert!(assigned.first > 10_250, "{assigned:?}");
    let error = addressed(&mut kept, with_ports(Some(assigned))).unwrap_err();
    assert!(
        error.to_string().starts_with("ports: reservation"),
        "{error}"
    );
    // A code point alone does not tell reservations apart.
    let mut plain = request(rate(100), HOUR);
    let granted = addressed(&mut kept, plain.clone()).unwrap();
    assert_eq!(granted[0].pieces[0].paths[0].source_ports, None);
    plain.filter.dscp = Some(46);
    let granted = addressed(&mut kept, plain).unwrap();
    assert!(granted[0].pieces[0].paths[0].source_ports.is_some());
    kept.replayed();
}

/// A record as it was written before requests had constraints and filters.
const OLD_RECORD: &str = r#"{"entry":{"entry":{"number":0,"at":0,"change":{"held":{"holds":[
    {"id":0,"request":{"ends":{"from":0,"to":3},"window":{"start":0,"end":3600000},
    "wish":{"rate":100},"paths":1,"diversity":"any","preference":"fewest_hops",
    "elements":{"only_nodes":null,"only_links":null,"no_nodes":[1],"no_links":[]}},
    "plan":[{"window":{"start":0,"end":3600000},"routes":[{"path":[1,5],"rate":100}]}]}],
    "until":60000}}},"details":{"0":{"owner":"operator","owner_name":"root",
    "from":{"name":"west","site":"west","address":"192.0.2.1"},
    "to":{"name":"east","site":"east","address":"198.51.100.1"},"ports":10240,"created":0}}}}"#;

#[test]
fn records_from_before_constraints_are_replayed() {
    let mut kept = Kept::new(&map(10e9));
    let old: Record = serde_json::from_str(OLD_RECORD).unwrap();
    kept.desk.apply(&old).unwrap();
    let shown = kept.show(1, 0);
    assert!(shown.constraints.is_empty() && shown.filter.is_empty());
    assert!(shown.held.is_some());
    // It is written as before.
    let compact: String = OLD_RECORD.split_whitespace().collect();
    assert_eq!(serde_json::to_string(&old).unwrap(), compact);
    // A new one that is alike is told apart from it by ports.
    let granted = addressed(&mut kept, request(rate(100), HOUR)).unwrap();
    assert!(granted[0].pieces[0].paths[0].source_ports.is_some());
}
