//! Tests of decisions with arbitrary rights.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

fn resource() -> impl Strategy<Value = Resource> {
    proptest::sample::select(Resource::ALL.to_vec())
}

fn permission() -> impl Strategy<Value = Permission> {
    prop_oneof![Just(Permission::Read), Just(Permission::Write)]
}

fn constraint() -> impl Strategy<Value = Constraint> {
    prop_oneof![
        Just(Constraint::Any),
        Just(Constraint::Own),
        "[ab]".prop_map(Constraint::Site)
    ]
}

fn rights() -> impl Strategy<Value = Vec<Right>> {
    let right =
        (resource(), permission(), constraint()).prop_map(|(resource, permission, constraint)| {
            Right {
                resource,
                permission,
                constraint,
                limits: None,
            }
        });
    vec(right, 0..12)
}

fn subject() -> impl Strategy<Value = Subject> {
    (any::<bool>(), btree_set("[abc]", 0..3)).prop_map(|(own, sites)| Subject { own, sites })
}

proptest! {
    #[test]
    fn additional_rights_never_forbid(
        few in rights(),
        more in rights(),
        resource in resource(),
        permission in permission(),
        subject in subject()
    ) {
        let all: Vec<Right> = few.iter().chain(&more).cloned().collect();
        let before = decide("x", &few, resource, permission, &subject).is_ok();
        let after = decide("x", &all, resource, permission, &subject).is_ok();
        prop_assert!(!before || after);
        let reversed: Vec<Right> = all.into_iter().rev().collect();
        prop_assert_eq!(decide("x", &reversed, resource, permission, &subject).is_ok(), after);
    }

    #[test]
    fn one_matching_right_decides(
        rights in rights(), resource in resource(), permission in permission(), subject in subject()
    ) {
        let alone = |right: &Right| {
            decide("x", std::slice::from_ref(right), resource, permission, &subject).is_ok()
        };
        let allowed = decide("x", &rights, resource, permission, &subject).is_ok();
        prop_assert_eq!(allowed, rights.iter().any(alone));
        for right in rights.iter().filter(|right| alone(right)) {
            prop_assert_eq!((right.resource, right.permission), (resource, permission));
            let covered = match &right.constraint {
                Constraint::Any => true,
                Constraint::Own => subject.own,
                Constraint::Site(site) => subject.sites.contains(site),
            };
            prop_assert!(covered);
        }
    }
}

fn rights_of(role: &str) -> Vec<Right> {
    let roles = builtin_roles();
    let found = roles.into_iter().find(|found| found.name == role);
    found.unwrap().rights
}

#[test]
fn builtin_roles_match_their_documentation() {
    let may = |role, resource, permission, subject: &Subject| {
        decide("x", &rights_of(role), resource, permission, subject).is_ok()
    };
    let (own, others) = (Subject::own(), Subject::all());
    for resource in Resource::ALL {
        for permission in [Permission::Read, Permission::Write] {
            assert!(may(OPERATOR, resource, permission, &others));
        }
        assert!(!may("reader", resource, Permission::Write, &own));
        let is_principals = resource == Resource::Principals;
        assert_eq!(
            may("reader", resource, Permission::Read, &others),
            !is_principals
        );
        for role in ["client", "depot"] {
            assert!(
                !may(role, resource, Permission::Write, &others),
                "{role} {resource:?}"
            );
        }
    }
    assert!(may(
        "depot",
        Resource::Measurements,
        Permission::Write,
        &own
    ));
    assert!(!may("depot", Resource::Transfers, Permission::Write, &own));
    assert!(!may(
        "client",
        Resource::Registrations,
        Permission::Write,
        &own
    ));
    assert!(may("client", Resource::Routes, Permission::Read, &own));
    assert!(!may("client", Resource::Routes, Permission::Read, &others));
}

#[test]
fn refusal_names_what_would_be_allowed() {
    let reported = |rights: &[Right], resource| {
        decide("ana", rights, resource, Permission::Write, &Subject::all())
            .unwrap_err()
            .to_string()
    };
    let client = rights_of("client");
    assert_eq!(
        reported(&client, Resource::Map),
        "no role of ana may change the map: grant one that may with longhaul control grant"
    );
    assert_eq!(
        reported(&client, Resource::Measurements),
        "ana may change measurements only of its own"
    );
    let at_site = [Right {
        resource: Resource::Map,
        permission: Permission::Write,
        constraint: Constraint::Site("denver".into()),
        limits: None,
    }];
    assert_eq!(
        reported(&at_site, Resource::Map),
        "ana may change the map only at site denver"
    );
}

#[test]
fn each_covering_right_has_its_own_limits() {
    let right = |permission, constraint, rate_bps| Right {
        resource: Resource::Reservations,
        permission,
        constraint,
        limits: Some(ReservationLimits {
            rate_bps,
            ..ReservationLimits::default()
        }),
    };
    let rights = [
        right(Permission::Create, Constraint::Any, Some(1)),
        right(
            Permission::Create,
            Constraint::Site("denver".into()),
            Some(5),
        ),
        right(Permission::Modify, Constraint::Own, Some(9)),
        right(Permission::Write, Constraint::Own, None),
    ];
    let rates = |permission, subject: &Subject| -> Vec<Option<u64>> {
        let found = limits(&rights, Resource::Reservations, permission, subject);
        found.into_iter().map(|limits| limits.rate_bps).collect()
    };
    let at = |sites: &[&str]| Subject {
        own: false,
        sites: sites.iter().map(|site| (*site).to_owned()).collect(),
    };
    assert_eq!(
        rates(Permission::Create, &at(&["denver", "geneva"])),
        [Some(1), Some(5)]
    );
    assert_eq!(rates(Permission::Create, &at(&["geneva"])), [Some(1)]);
    assert_eq!(rates(Permission::Modify, &Subject::own()), [None, Some(9)]);
    assert!(rates(Permission::Signal, &at(&["denver"])).is_empty());
    let reserver = rights_of("reserver");
    let may = |permission, subject: &Subject| {
        decide("x", &reserver, Resource::Reservations, permission, subject).is_ok()
    };
    assert!(may(Permission::Create, &Subject::all()) && may(Permission::Modify, &Subject::own()));
    assert!(!may(Permission::Modify, &Subject::all()) && !may(Permission::Read, &Subject::all()));
}
