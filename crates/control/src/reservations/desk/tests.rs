//! A desk in virtual time: what is asked in names is granted in names, by those who may, and the journal makes the same desk.

use std::sync::Arc;

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::{Moment, Window};
use longhaul_control_api::map::Map;
use longhaul_control_api::principals::{Constraint, Permission, ReservationLimits, Resource, Right};
use longhaul_control_api::reservations::{
    Disjoint, LifeState, Proof, ProvisionState, Refusal, Reservation, ReservationChange, ReservationQuery,
    ReservationRequest, ReserveState, Reserved, Wish,
};
use longhaul_setup::streams::Prefix;
use proptest::prelude::*;
use serde_json::json;

use super::{Command, Desk, DeskError, HOLD_MS, KEEP_MS, Record, Settled};
use crate::authority::builtin_roles;
use crate::circuits::following::{Different, Following};
use crate::reservations::wanted::Place;
use crate::reservations::{Asker, told};

const HOUR: i64 = 3_600_000;

/// Two ways from west to east: over the north with 10 Gbit/s, over the south with 4.
fn map(north_bps: f64) -> Map {
    let link = |name: &str, from: &str, to: &str, bps: f64| {
        let both = json!({"capacity": {"rate_bps": bps}});
        json!({"name": name, "from": from, "to": to, "forward": both, "backward": both})
    };
    let value = json!({
        "sites": [{"name": "west"}, {"name": "north"}, {"name": "south"}, {"name": "east"}],
        "links": [
            link("w-n", "west", "north", north_bps), link("n-e", "north", "east", 10e9),
            link("w-s", "west", "south", 4e9), link("s-e", "south", "east", 4e9),
        ],
    });
    serde_json::from_value(value).unwrap()
}

fn place(site: &str) -> Place {
    Place {
        name: site.to_owned(),
        site: site.to_owned(),
        access: None,
        address: None,
    }
}

fn request(wish: Wish, end: i64) -> ReservationRequest {
    serde_json::from_value(json!({"from": "west", "to": "east", "wish": wish, "end_ms": end})).unwrap()
}

const fn rate(rate_bps: u64) -> Wish {
    Wish::Rate { rate_bps }
}

fn operator() -> Asker {
    Asker {
        owner: "operator".to_owned(),
        name: "root".to_owned(),
        rights: None,
    }
}

fn asker(name: &str, rights: Vec<Right>) -> Asker {
    Asker {
        owner: format!("lhk1:{name}"),
        name: name.to_owned(),
        rights: Some(rights),
    }
}

fn reserver(name: &str) -> Asker {
    let role = builtin_roles().into_iter().find(|role| role.name == "reserver");
    asker(name, role.unwrap().rights)
}

/// A desk, and its journal.
struct Kept {
    desk: Desk,
    journal: Vec<Record>,
}

impl Kept {
    fn new(map: &Map) -> Self {
        let mut kept = Self {
            desk: Desk::new().unwrap(),
            journal: Vec::new(),
        };
        assert!(kept.desk.take_map(map, &mut kept.journal).unwrap());
        kept
    }

    fn act(&mut self, asker: &Asker, command: &Command, now: Moment) -> Result<Vec<Reservation>, DeskError> {
        let (before, records) = (self.desk.clone(), self.journal.len());
        let answer = self.desk.act(asker, command, now, &mut self.journal);
        if answer.is_err() {
            assert_eq!(
                (&self.desk, self.journal.len()),
                (&before, records),
                "a refusal changes nothing"
            );
        }
        answer.map(|Reserved { reservations }| reservations)
    }

    fn reserve(
        &mut self,
        asker: &Asker,
        request: &ReservationRequest,
        windows: &[Window],
        now: Moment,
    ) -> Result<Vec<Reservation>, DeskError> {
        let command = Command::Reserve {
            request: Box::new(request.clone()),
            from: place("west"),
            to: place("east"),
            windows: windows.to_vec(),
            is_end: false,
            document: None,
        };
        self.act(asker, &command, now)
    }

    fn refused(&mut self, asker: &Asker, request: &ReservationRequest, windows: &[Window]) -> Refusal {
        match self.reserve(asker, request, windows, 0).unwrap_err() {
            DeskError::NoRoom(refusal) => *refusal,
            other => panic!("{other}"),
        }
    }

    fn pass(&mut self, now: Moment) {
        while self.desk.pass(now, &mut self.journal).unwrap() {}
    }

    /// The journal, written, read and applied anew, makes the same desk.
    fn replayed(&self) {
        let mut again = Desk::new().unwrap().managing(self.desk.managed.clone());
        for record in &self.journal {
            let text = serde_json::to_string(record).unwrap();
            again.apply(&serde_json::from_str(&text).unwrap()).unwrap();
        }
        assert_eq!(again, self.desk);
    }

    fn show(&self, id: u64, now: Moment) -> Reservation {
        self.desk.show(&operator(), ReservationId(id - 1), now).unwrap()
    }
}

fn names(reservation: &Reservation) -> Vec<Vec<&str>> {
    let paths = reservation.pieces.iter().flat_map(|piece| &piece.paths);
    paths
        .map(|path| path.links.iter().map(|link| link.link.as_str()).collect())
        .collect()
}

#[test]
fn what_is_granted_names_links_and_half_of_each_is_for_others() {
    let mut kept = Kept::new(&map(10e9));
    let window = Window::new(0, HOUR);
    let granted = kept
        .reserve(&operator(), &request(rate(5_000_000_000), HOUR), &[window], 0)
        .unwrap();
    assert_eq!(names(&granted[0]), [["w-n", "n-e"]]);
    assert_eq!(
        (granted[0].id, granted[0].state.reserve),
        (1, ReserveState::Start)
    );
    assert_eq!(granted[0].state.provision, Some(ProvisionState::Released));
    // Half of ten is taken: what is left is half of four.
    let refusal = kept.refused(&operator(), &request(rate(3_000_000_000), HOUR), &[window]);
    let Proof::Cut { links, until_ms, .. } = &refusal.proof else {
        panic!("{refusal:?}")
    };
    let found: Vec<(&str, u64)> = links
        .iter()
        .map(|full| (full.link.link.as_str(), full.left_bps))
        .collect();
    assert!(
        found.contains(&("w-n", 0)) || found.contains(&("n-e", 0)),
        "{found:?}"
    );
    assert_eq!(until_ms.map(|until| until as i64), Some(HOUR));
    assert!(links.iter().any(|full| full.by == [1]));
    let later = refusal.offers.later.clone().unwrap();
    assert_eq!(later.request.start_ms, Some(HOUR as u64));
    let slower = refusal.offers.slower.unwrap();
    assert_eq!(slower.request.wish, rate(2_000_000_000));
    // An offer is granted as it stands.
    let again = Window::new(HOUR, later.request.end_ms as i64);
    let granted = kept.reserve(&operator(), &later.request, &[again], 0).unwrap();
    assert_eq!(granted[0].pieces, later.pieces);
    kept.replayed();
}

#[test]
fn several_paths_carry_what_one_does_not() {
    let mut kept = Kept::new(&map(10e9));
    let mut asked = request(rate(7_000_000_000), HOUR);
    (asked.paths, asked.disjoint) = (2, Disjoint::Sites);
    let granted = kept
        .reserve(&operator(), &asked, &[Window::new(0, HOUR)], 0)
        .unwrap();
    let rates: Vec<u64> = granted[0].pieces[0]
        .paths
        .iter()
        .map(|path| path.rate_bps)
        .collect();
    assert_eq!(rates, [5_000_000_000, 2_000_000_000]);
    let mut avoiding = request(rate(1), 3 * HOUR);
    avoiding.avoid_links = vec!["w-n".to_owned()];
    let granted = kept
        .reserve(&operator(), &avoiding, &[Window::new(2 * HOUR, 3 * HOUR)], 0)
        .unwrap();
    assert_eq!(names(&granted[0]), [["w-s", "s-e"]]);
    avoiding.avoid_sites = vec!["atlantis".to_owned()];
    let error = kept
        .reserve(&operator(), &avoiding, &[Window::new(0, HOUR)], 0)
        .unwrap_err();
    assert!(error.to_string().contains("no site atlantis"), "{error}");
}

#[test]
fn what_is_held_is_given_back_when_nobody_commits_it() {
    let mut kept = Kept::new(&map(10e9));
    let mut asked = request(rate(5_000_000_000), HOUR);
    asked.hold = true;
    let window = Window::new(10, HOUR);
    let held = kept.reserve(&reserver("ana"), &asked, &[window], 0).unwrap();
    assert_eq!(held[0].state.reserve, ReserveState::Held);
    assert!(held[0].pieces.is_empty() && held[0].held.is_some());
    let hold = HOLD_MS as i64;
    assert_eq!(kept.desk.next_due(), Some(hold));
    kept.pass(hold);
    assert_eq!(kept.show(1, hold).state.reserve, ReserveState::Timeout);
    let late = kept
        .act(&reserver("ana"), &Command::Commit(ReservationId(0)), hold)
        .unwrap_err();
    assert_eq!(
        late.to_string(),
        "reservation 1 is not committed in time: it can't be committed now"
    );
    // It is there for others, and forgotten in the end.
    asked.hold = false;
    assert!(
        kept.reserve(&operator(), &asked, &[Window::new(hold, HOUR)], hold)
            .is_ok()
    );
    kept.pass(hold + KEEP_MS as i64);
    assert!(kept.desk.show(&operator(), ReservationId(0), hold).is_err());
    kept.replayed();
}

#[test]
fn a_series_is_granted_as_a_whole_and_committed_as_one() {
    let mut kept = Kept::new(&map(10e9));
    let days = [
        Window::new(0, HOUR),
        Window::new(24 * HOUR, 25 * HOUR),
        Window::new(48 * HOUR, 49 * HOUR),
    ];
    kept.reserve(
        &operator(),
        &request(rate(4_000_000_000), 25 * HOUR),
        &days[1..2],
        0,
    )
    .unwrap();
    let mut asked = request(rate(3_000_000_000), HOUR);
    asked.hold = true;
    let refusal = kept.refused(&operator(), &asked, &days);
    assert_eq!(
        (refusal.occurrence, refusal.start_ms),
        (Some(2), 24 * HOUR as u64)
    );
    asked.wish = rate(1_000_000_000);
    let held = kept.reserve(&operator(), &asked, &days, 0).unwrap();
    assert_eq!(
        held.iter().map(|one| (one.id, one.series)).collect::<Vec<_>>(),
        [(2, Some(2)), (3, Some(2)), (4, Some(2))]
    );
    let committed = kept
        .act(&operator(), &Command::Commit(ReservationId(2)), 5)
        .unwrap();
    assert_eq!(committed.len(), 3);
    assert!(
        committed
            .iter()
            .all(|one| one.state.reserve == ReserveState::Start && !one.pieces.is_empty())
    );
    let one = Command::Cancel {
        id: ReservationId(2),
        series: false,
    };
    assert_eq!(
        kept.act(&operator(), &one, 6).unwrap()[0].state.life,
        LifeState::Terminated
    );
    let rest = Command::Cancel {
        id: ReservationId(1),
        series: true,
    };
    assert_eq!(kept.act(&operator(), &rest, 7).unwrap().len(), 2);
    kept.replayed();
}

#[test]
fn a_change_takes_the_place_of_what_was_promised_or_changes_nothing() {
    let mut kept = Kept::new(&map(10e9));
    let window = Window::new(0, 2 * HOUR);
    kept.reserve(&operator(), &request(rate(3_000_000_000), 2 * HOUR), &[window], 0)
        .unwrap();
    let to = |bps: u64, hold: bool| Command::Change {
        id: ReservationId(0),
        change: ReservationChange {
            wish: Some(rate(bps)),
            hold,
            ..ReservationChange::default()
        },
    };
    let refused = kept
        .act(&operator(), &to(6_000_000_000, false), HOUR)
        .unwrap_err();
    assert!(matches!(refused, DeskError::NoRoom(_)), "{refused}");
    let changed = kept.act(&operator(), &to(5_000_000_000, false), HOUR).unwrap();
    let rates: Vec<u64> = changed[0]
        .pieces
        .iter()
        .map(|piece| piece.paths[0].rate_bps)
        .collect();
    assert_eq!(
        rates,
        [3_000_000_000, 5_000_000_000],
        "what is over stays as it was"
    );
    let held = kept.act(&operator(), &to(1_000_000_000, true), HOUR + 1).unwrap();
    assert_eq!(held[0].state.reserve, ReserveState::Held);
    let aborted = kept
        .act(&operator(), &Command::Abort(ReservationId(0)), HOUR + 2)
        .unwrap();
    assert_eq!(aborted[0].pieces, changed[0].pieces);
    // One that nobody commits is given up, and another can be asked for.
    kept.act(&operator(), &to(1_000_000_000, true), HOUR + 3).unwrap();
    let late = HOUR + 3 + HOLD_MS as i64;
    kept.pass(late);
    assert_eq!(kept.show(1, late).pieces, changed[0].pieces);
    assert!(kept.act(&operator(), &to(4_000_000_000, false), late).is_ok());
    kept.replayed();
}

#[test]
fn everybody_sees_and_does_what_rights_allow() {
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
    // Another one's has no number in the proof.
    let refusal = kept.refused(&ben, &request(rate(3_000_000_000), HOUR), &[window]);
    let Proof::Cut { links, .. } = &refusal.proof else {
        panic!("{refusal:?}")
    };
    assert!(links.iter().all(|full| full.by.is_empty()) && links.iter().any(|full| full.by_others == 1));
    assert!(matches!(
        kept.desk.show(&ben, ReservationId(0), 0),
        Err(DeskError::Unknown(1))
    ));
    let cancel = Command::Cancel {
        id: ReservationId(0),
        series: false,
    };
    assert!(matches!(kept.act(&ben, &cancel, 0), Err(DeskError::Unknown(1))));
    let list = |asker: &Asker| {
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
    // Who may look may not do.
    assert!(matches!(
        kept.act(&east, &cancel, 0),
        Err(DeskError::Forbidden(_))
    ));
    let provision = Command::Provision(ReservationId(0));
    assert_eq!(
        kept.act(&ana, &provision, 0).unwrap()[0].state.provision,
        Some(ProvisionState::Provisioned)
    );
    let error = kept.act(&ana, &provision, 0).unwrap_err().to_string();
    assert_eq!(error, "reservation 1 is provisioned: it can't be provisioned now");
    kept.act(&ana, &Command::Release(ReservationId(0)), 0).unwrap();
    assert!(kept.act(&ana, &cancel, 0).is_ok());
}

#[test]
fn caps_are_those_of_one_right_and_a_change_gets_around_none() {
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
            right(Permission::Modify, Constraint::Own, ReservationLimits::default()),
            right(Permission::Read, Constraint::Own, ReservationLimits::default()),
        ],
    );
    let windows = |length: i64| [Window::new(0, length)];
    let fast = request(rate(4_000_000_000), HOUR);
    assert!(kept.reserve(&ana, &fast, &windows(HOUR / 2), 0).is_ok(), "short");
    let error = kept.reserve(&ana, &fast, &windows(HOUR), 0).unwrap_err();
    assert!(matches!(error, DeskError::Policy(_)), "{error}");
    // A fifth of the wide path is taken already: what is slow goes where less is.
    let slow = request(rate(500_000_000), HOUR);
    let granted = kept.reserve(&ana, &slow, &windows(HOUR), 0).unwrap();
    assert_eq!(names(&granted[0]), [["w-s", "s-e"]]);
    let grown = Command::Change {
        id: ReservationId(1),
        change: ReservationChange {
            wish: Some(rate(2_000_000_000)),
            ..ReservationChange::default()
        },
    };
    assert!(matches!(kept.act(&ana, &grown, 0), Err(DeskError::Policy(_))));
}

#[test]
fn ends_are_no_faster_than_they_are() {
    let mut kept = Kept::new(&map(10e9));
    let mut command = Command::Reserve {
        request: Box::new(request(rate(2_000_000_000), HOUR)),
        from: Place {
            access: Some(1_000_000_000),
            ..place("west")
        },
        to: place("east"),
        windows: vec![Window::new(0, HOUR)],
        is_end: true,
        document: None,
    };
    let error = kept.act(&operator(), &command, 0).unwrap_err();
    assert!(error.to_string().contains("at most 1000000000 bit/s"), "{error}");
    if let Command::Reserve { request, .. } = &mut command {
        request.wish = Wish::Volume {
            bytes: 100_000_000_000,
            at_most_bps: None,
            pace: Default::default(),
        };
    }
    let granted = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(granted[0].pieces[0].paths[0].rate_bps, 1_000_000_000);
    if let Command::Reserve { to, .. } = &mut command {
        *to = place("west");
    }
    assert!(kept.act(&operator(), &command, 0).is_err());
}

#[test]
fn a_map_that_changes_loses_no_promise_and_says_which_are_impaired() {
    let mut kept = Kept::new(&map(10e9));
    let window = Window::new(0, HOUR);
    kept.reserve(&operator(), &request(rate(2_000_000_000), HOUR), &[window], 0)
        .unwrap();
    assert!(kept.show(1, 0).impaired.is_empty());
    // The link shrinks below what is promised of it.
    assert!(kept.desk.take_map(&map(1e9), &mut kept.journal).unwrap());
    let impaired = kept.show(1, 0).impaired;
    assert_eq!(
        impaired.iter().map(|link| link.link.as_str()).collect::<Vec<_>>(),
        ["w-n"]
    );
    let refusal = kept.refused(&operator(), &request(rate(3_000_000_000), HOUR), &[window]);
    assert!(refusal.offers.slower.is_some());
    // All of the map goes, and comes back in another order: as if nothing had been.
    assert!(kept.desk.take_map(&Map::default(), &mut kept.journal).unwrap());
    assert_eq!(kept.show(1, 0).impaired.len(), 2);
    let mut turned = map(10e9);
    turned.sites.reverse();
    turned.links.reverse();
    assert!(kept.desk.take_map(&turned, &mut kept.journal).unwrap());
    assert!(kept.show(1, 0).impaired.is_empty());
    assert_eq!(names(&kept.show(1, 0)), [["w-n", "n-e"]]);
    assert!(
        !kept.desk.take_map(&map(10e9), &mut kept.journal).unwrap(),
        "it is the same one"
    );
    // A link that is drawn between other sites is another link; a change has the promise planned anew.
    turned
        .links
        .iter_mut()
        .filter(|link| link.name == "w-n")
        .for_each(|link| link.to = "south".to_owned());
    assert!(kept.desk.take_map(&turned, &mut kept.journal).unwrap());
    assert_eq!(kept.show(1, 0).impaired.len(), 1);
    let anew = Command::Change {
        id: ReservationId(0),
        change: ReservationChange::default(),
    };
    let changed = kept.act(&operator(), &anew, 1).unwrap();
    assert!(changed[0].impaired.is_empty(), "{changed:?}");
    kept.replayed();
}

#[test]
fn lists_go_on_where_they_ended_and_leave_out_what_is_not_asked_for() {
    let mut kept = Kept::new(&map(10e9));
    for hour in 0..5 {
        let window = Window::new(hour * HOUR, (hour + 1) * HOUR);
        kept.reserve(&operator(), &request(rate(1), 0), &[window], 0)
            .unwrap();
    }
    kept.act(
        &operator(),
        &Command::Cancel {
            id: ReservationId(1),
            series: false,
        },
        0,
    )
    .unwrap();
    let list = |query: ReservationQuery, after: u64| {
        let (found, is_more) = kept.desk.list(&operator(), &query, after, 2, 0);
        (found.iter().map(|one| one.id).collect::<Vec<_>>(), is_more)
    };
    let all = ReservationQuery::default;
    assert_eq!(list(all(), 0), (vec![1, 2], true));
    assert_eq!(list(all(), 2), (vec![3, 4], true));
    assert_eq!(list(all(), 4), (vec![5], false));
    let active = ReservationQuery {
        active: Some(true),
        ..all()
    };
    assert_eq!(list(active, 0), (vec![1, 3], true));
    let between = ReservationQuery {
        since_ms: Some(2 * HOUR as u64),
        before_ms: Some(3 * HOUR as u64),
        ..all()
    };
    assert_eq!(list(between, 0), (vec![3], false));
}

#[derive(Debug, Clone)]
enum Step {
    Reserve(u8, i64, i64, u64, bool),
    Change(u64, u64, bool),
    Do(u64, u8),
    Map(u8),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, 0..9_i64, 1..9_i64, 1..6_u64, any::<bool>())
            .prop_map(|(who, ahead, length, amount, hold)| Step::Reserve(who, ahead, length, amount, hold)),
        2 => (0..9_u64, 1..6_u64, any::<bool>()).prop_map(|(id, amount, hold)| Step::Change(id, amount, hold)),
        4 => (0..9_u64, 0..6_u8).prop_map(|(id, what)| Step::Do(id, what)),
        1 => (0..12_u8).prop_map(Step::Map),
        2 => (0..40_i64).prop_map(Step::Wait),
    ]
}

/// Addresses by which ends are known, of which some hold others.
const ADDRESSES: [Option<&str>; 4] = [None, Some("10.1.0.0/16"), Some("10.1.0.1"), Some("10.2.0.1")];

/// What is brought up to date by each change is what a look at everything finds.
fn up_to_date(desk: &Desk, following: &mut Following) {
    following.take(desk);
    let mut anew = Following::default();
    assert_eq!(anew.take(desk), Different::All);
    assert_eq!(*following, anew);
    let windows = [Window::new(0, 20 * 60_000), Window::new(40 * 60_000, HOUR)];
    let prefixes = ADDRESSES
        .iter()
        .flatten()
        .map(|text| text.parse::<Prefix>().unwrap());
    for address in prefixes {
        let found = desk.beside.those(address, address, &windows);
        let all = desk.reservations().filter(|(id, detail, reservation)| {
            let shares = |place: &Place| place.address.is_some_and(|known| known.overlaps(address));
            let (start, end) = told::span(reservation);
            let span = Window::new(start, end);
            let is_in_time = windows.iter().any(|window| window.overlaps(span));
            !desk.over.contains_key(id) && is_in_time && shares(&detail.from) && shares(&detail.to)
        });
        assert_eq!(found, all.map(|(id, ..)| id).collect());
    }
}

proptest! {
    /// Whatever is asked, by whomever, whenever: what is refused changes nothing, the journal makes the same desk, and whoever follows it by its
    /// changes knows the same as whoever looks at all of it.
    #[test]
    fn the_same_journal_makes_the_same_desk(steps in proptest::collection::vec(step(), 1..40)) {
        let mut kept = Kept::new(&map(10e9));
        kept.desk = kept.desk.managing(Arc::new(["west".to_owned()].into()));
        let mut following = Following::default();
        let askers = [operator(), reserver("ana"), reserver("ben")];
        let minute = 60_000;
        let mut now = 0;
        for step in steps {
            match step {
                Step::Reserve(who, ahead, length, amount, hold) => {
                    let mut asked = request(rate(amount * 1_000_000_000), 0);
                    (asked.hold, asked.paths) = (hold, 2);
                    let start = now + ahead * minute;
                    let window = Window::new(start, start + length * minute);
                    let windows = [window, window.from_start(window.end)];
                    let count = if amount % 2 == 0 { 2 } else { 1 };
                    let at = |site: &str, place: usize| Place {
                        address: ADDRESSES[place % ADDRESSES.len()].map(|text| text.parse().unwrap()),
                        ..self::place(site)
                    };
                    let (who, place) = (usize::from(who), usize::try_from(ahead).unwrap());
                    let command = Command::Reserve {
                        request: Box::new(asked),
                        from: at("west", place),
                        to: at("east", place / 2 + who),
                        windows: windows[..count].to_vec(),
                        is_end: false,
                        document: None,
                    };
                    drop(kept.act(&askers[who], &command, now));
                }
                Step::Change(id, amount, hold) => {
                    let change = ReservationChange { wish: Some(rate(amount * 1_000_000_000)), hold, ..Default::default() };
                    drop(kept.act(&askers[1], &Command::Change { id: ReservationId(id), change }, now));
                }
                Step::Do(id, what) => {
                    let id = ReservationId(id);
                    let command = match what {
                        0 => Command::Commit(id),
                        1 => Command::Abort(id),
                        2 => Command::Provision(id),
                        3 => Command::Release(id),
                        other => Command::Cancel { id, series: other == 5 },
                    };
                    drop(kept.act(&askers[usize::from(what % 3)], &command, now));
                }
                Step::Map(gigabits) => {
                    kept.desk.take_map(&map(f64::from(gigabits.max(1)) * 1e9), &mut kept.journal).unwrap();
                }
                Step::Wait(minutes) => {
                    now += minutes * minute;
                    kept.pass(now);
                }
            }
            up_to_date(&kept.desk, &mut following);
        }
        kept.replayed();
        kept.pass(now + 2 * KEEP_MS as i64);
        kept.pass(now + 4 * KEEP_MS as i64);
        prop_assert_eq!(kept.desk.next_due(), None, "all is forgotten in the end");
    }
}

/// A desk whose node in the west is set up, and a reservation of a rate between known addresses.
fn managed() -> (Kept, Command) {
    let mut kept = Kept::new(&map(10e9));
    let sites = std::collections::BTreeSet::from(["west".to_owned()]);
    kept.desk = kept.desk.managing(Arc::new(sites));
    let at = |site: &str, address: &str| Place {
        address: Some(address.parse().unwrap()),
        ..place(site)
    };
    let mut asked = request(rate(1_000_000_000), 2 * HOUR);
    asked.start_ms = Some(u64::try_from(HOUR).unwrap());
    let command = Command::Reserve {
        request: Box::new(asked),
        from: at("west", "192.0.2.1"),
        to: at("east", "198.51.100.1"),
        windows: vec![Window::new(HOUR, 2 * HOUR)],
        is_end: true,
        document: None,
    };
    (kept, command)
}

#[test]
fn what_is_provisioned_before_its_time_is_scheduled_and_in_it_waits_for_the_network() {
    let (mut kept, command) = managed();
    kept.act(&operator(), &command, 0).unwrap();
    let id = ReservationId(0);
    let provision = |kept: &Kept| kept.show(1, HOUR).state.provision;
    kept.act(&operator(), &Command::Provision(id), 0).unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Provisioned));
    kept.act(&operator(), &Command::Release(id), 0).unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Released));
    kept.act(&operator(), &Command::Provision(id), HOUR).unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Provisioning));
    let settle = |what: Settled| Command::Settle(vec![(id, what)]);
    // Nothing is torn down that is being set up.
    assert!(
        kept.act(&operator(), &settle(Settled::TornDown), HOUR)
            .unwrap()
            .is_empty()
    );
    kept.act(&operator(), &settle(Settled::SetUp), HOUR).unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Provisioned));
    kept.act(&operator(), &Command::Release(id), HOUR).unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Releasing));
    kept.act(&operator(), &settle(Settled::TornDown), HOUR).unwrap();
    assert_eq!(provision(&kept), Some(ProvisionState::Released));
}

#[test]
fn a_circuit_that_fails_gives_back_what_it_took_and_says_why() {
    let (mut kept, mut command) = managed();
    if let Command::Reserve { request, .. } = &mut command {
        request.wish = rate(5_000_000_000);
        request.provision = true;
    }
    kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(kept.show(1, 0).state.provision, Some(ProvisionState::Provisioned));
    assert!(
        kept.act(&operator(), &command, 0).is_err(),
        "there is no more room"
    );
    // A change that is held goes with it.
    let change = ReservationChange {
        wish: Some(rate(1_000_000_000)),
        hold: true,
        ..ReservationChange::default()
    };
    let change = Command::Change {
        id: ReservationId(0),
        change,
    };
    kept.act(&operator(), &change, 0).unwrap();
    let why = "west, link w-n: the switch is off".to_owned();
    let failed = Command::Settle(vec![(ReservationId(0), Settled::Failed(why.clone()))]);
    kept.act(&operator(), &failed, HOUR).unwrap();
    let shown = kept.show(1, HOUR);
    assert_eq!((shown.state.life, shown.failure), (LifeState::Failed, Some(why)));
    assert!(shown.pieces.is_empty() && shown.held.is_none());
    assert!(
        kept.act(&operator(), &failed, HOUR).unwrap().is_empty(),
        "it fails once"
    );
    kept.act(&operator(), &command, HOUR).unwrap();
    kept.pass(HOUR + i64::try_from(KEEP_MS).unwrap() + 1);
    assert!(kept.desk.reservations().all(|(id, ..)| id != ReservationId(0)));
}

#[test]
fn paths_and_neighbours_are_told_apart_by_source_ports() {
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
    assert_eq!(ports(&second[0]), [Some(10_752)], "the first has all others");
    if let Command::Reserve { windows, .. } = &mut command {
        *windows = vec![Window::new(2 * HOUR, 3 * HOUR)];
    }
    let later = kept.act(&operator(), &command, 0).unwrap();
    assert_eq!(ports(&later[0]), [None], "nobody shares its time");
    // It can't be moved into the time of another that has all streams.
    let change = ReservationChange {
        start_ms: Some(u64::try_from(HOUR).unwrap()),
        ..ReservationChange::default()
    };
    let change = Command::Change {
        id: ReservationId(2),
        change,
    };
    let error = kept.act(&operator(), &change, 0).unwrap_err();
    assert!(error.to_string().contains("has the same source ports"), "{error}");
    if let Command::Reserve { request, from, .. } = &mut command {
        request.pin = true;
        from.address = None;
    }
    let error = kept.act(&operator(), &command, 0).unwrap_err();
    assert!(error.to_string().starts_with("pin:"), "{error}");
}
