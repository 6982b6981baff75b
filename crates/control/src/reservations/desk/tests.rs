//! Tests of a reservation store in virtual time: grants, rights, and the same state from the same
//! journal.

mod journal;
mod paths;
mod reroute;
mod rights;
mod set_up;

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_control_api::map::Map;
use longhaul_control_api::principals::Right;
use longhaul_control_api::reservations::{
    Disjoint, LifeState, Proof, ProvisionState, Refusal, Reservation, ReservationChange,
    ReservationQuery, ReservationRequest, ReserveState, Reserved, Wish,
};
use serde_json::json;

use super::{
    HOLD_LIFETIME_MS, RETENTION_MS, Record, ReservationCommand, ReservationError, ReservationStore,
};
use crate::authority::builtin_roles;
use crate::reservations::ReservationCaller;
use crate::reservations::wanted::ReservationEnd;

const HOUR: i64 = 3_600_000;

/// Two paths from west to east: over the north with 10 Gbit/s, over the south with 4.
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

fn place(site: &str) -> ReservationEnd {
    ReservationEnd {
        name: site.to_owned(),
        site: site.to_owned(),
        access: None,
        address: None,
        path_site: None,
    }
}

fn request(wish: Wish, end: i64) -> ReservationRequest {
    serde_json::from_value(json!({"from": "west", "to": "east", "wish": wish, "end_ms": end}))
        .unwrap()
}

const fn rate(rate_bps: u64) -> Wish {
    Wish::Rate { rate_bps }
}

fn operator() -> ReservationCaller {
    ReservationCaller {
        owner: "operator".to_owned(),
        name: "root".to_owned(),
        rights: None,
    }
}

fn asker(name: &str, rights: Vec<Right>) -> ReservationCaller {
    ReservationCaller {
        owner: format!("lhk1:{name}"),
        name: name.to_owned(),
        rights: Some(rights),
    }
}

fn reserver(name: &str) -> ReservationCaller {
    let role = builtin_roles()
        .into_iter()
        .find(|role| role.name == "reserver");
    asker(name, role.unwrap().rights)
}

/// A reservation store and its journal.
struct Kept {
    desk: ReservationStore,
    journal: Vec<Record>,
}

impl Kept {
    fn new(map: &Map) -> Self {
        let mut kept = Self {
            desk: ReservationStore::new().unwrap(),
            journal: Vec::new(),
        };
        assert!(kept.desk.take_map(map, &mut kept.journal).unwrap());
        kept
    }

    fn act(
        &mut self,
        asker: &ReservationCaller,
        command: &ReservationCommand,
        now: MomentMs,
    ) -> Result<Vec<Reservation>, ReservationError> {
        let (before, records) = (self.desk.clone(), self.journal.len());
        let answer = self.desk.execute(asker, command, now, &mut self.journal);
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
        asker: &ReservationCaller,
        request: &ReservationRequest,
        windows: &[Window],
        now: MomentMs,
    ) -> Result<Vec<Reservation>, ReservationError> {
        let command = ReservationCommand::Reserve {
            request: Box::new(request.clone()),
            from: place("west"),
            to: place("east"),
            windows: windows.to_vec(),
            is_end: false,
            document: None,
            delegation: None,
        };
        self.act(asker, &command, now)
    }

    fn refused(
        &mut self,
        asker: &ReservationCaller,
        request: &ReservationRequest,
        windows: &[Window],
    ) -> Refusal {
        match self.reserve(asker, request, windows, 0).unwrap_err() {
            ReservationError::InsufficientBandwidth(refused) => {
                let found = refused.find_offers(|| true);
                let (offers, _) = refused.renewed(&found, &self.desk.snapshot());
                let refusal = refused.refusal;
                Refusal { offers, ..refusal }
            }
            other => panic!("{other}"),
        }
    }

    fn pass(&mut self, now: MomentMs) {
        while self.desk.advance_time(now, &mut self.journal).unwrap() {}
    }

    /// Asserts that the journal, written, read and applied, yields the same reservation store.
    fn replayed(&self) {
        let mut again = ReservationStore::new()
            .unwrap()
            .with_managed_sites(self.desk.managed.clone());
        for record in &self.journal {
            let text = serde_json::to_string(record).unwrap();
            again.apply(&serde_json::from_str(&text).unwrap()).unwrap();
        }
        assert_eq!(again, self.desk);
    }

    fn show(&self, id: u64, now: MomentMs) -> Reservation {
        self.desk.show(&operator(), ReservationId(id), now).unwrap()
    }
}

fn names(reservation: &Reservation) -> Vec<Vec<&str>> {
    let paths = reservation.pieces.iter().flat_map(|piece| &piece.paths);
    paths
        .map(|path| path.links.iter().map(|link| link.link.as_str()).collect())
        .collect()
}

#[test]
fn grants_name_links_and_use_half_of_each() {
    let mut kept = Kept::new(&map(10e9));
    let window = Window::new(0, HOUR);
    let granted = kept
        .reserve(
            &operator(),
            &request(rate(5_000_000_000), HOUR),
            &[window],
            0,
        )
        .unwrap();
    assert_eq!(names(&granted[0]), [["w-n", "n-e"]]);
    assert_eq!(
        (granted[0].id, granted[0].state.reserve),
        (1, ReserveState::Start)
    );
    assert_eq!(granted[0].state.provision, Some(ProvisionState::Released));
    // Half of ten is taken, so half of four is left.
    let refusal = kept.refused(&operator(), &request(rate(3_000_000_000), HOUR), &[window]);
    let Proof::Cut {
        links, until_ms, ..
    } = &refusal.proof
    else {
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
    // The offer is granted exactly as made.
    let again = Window::new(HOUR, later.request.end_ms as i64);
    let granted = kept
        .reserve(&operator(), &later.request, &[again], 0)
        .unwrap();
    assert_eq!(granted[0].pieces, later.pieces);
    kept.replayed();
}

#[test]
fn several_paths_carry_more_than_one() {
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
        .reserve(
            &operator(),
            &avoiding,
            &[Window::new(2 * HOUR, 3 * HOUR)],
            0,
        )
        .unwrap();
    assert_eq!(names(&granted[0]), [["w-s", "s-e"]]);
    avoiding.avoid_sites = vec!["atlantis".to_owned()];
    let error = kept
        .reserve(&operator(), &avoiding, &[Window::new(0, HOUR)], 0)
        .unwrap_err();
    assert!(error.to_string().contains("no site atlantis"), "{error}");
}

#[test]
fn uncommitted_hold_expires() {
    let mut kept = Kept::new(&map(10e9));
    let mut asked = request(rate(5_000_000_000), HOUR);
    asked.hold = true;
    let window = Window::new(10, HOUR);
    let held = kept
        .reserve(&reserver("ana"), &asked, &[window], 0)
        .unwrap();
    assert_eq!(held[0].state.reserve, ReserveState::Held);
    assert!(held[0].pieces.is_empty() && held[0].held.is_some());
    let hold = HOLD_LIFETIME_MS as i64;
    assert_eq!(kept.desk.next_due(), Some(hold));
    kept.pass(hold);
    assert_eq!(kept.show(1, hold).state.reserve, ReserveState::Timeout);
    let late = kept
        .act(
            &reserver("ana"),
            &ReservationCommand::Commit(ReservationId(1)),
            hold,
        )
        .unwrap_err();
    assert_eq!(
        late.to_string(),
        "reservation 1 is not committed in time: it cannot be committed now"
    );
    // Others can have it, and it is forgotten in the end.
    asked.hold = false;
    assert!(
        kept.reserve(&operator(), &asked, &[Window::new(hold, HOUR)], hold)
            .is_ok()
    );
    kept.pass(hold + RETENTION_MS as i64);
    assert!(kept.desk.show(&operator(), ReservationId(1), hold).is_err());
    kept.replayed();
}

#[test]
fn series_is_granted_and_committed_as_one() {
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
        held.iter()
            .map(|one| (one.id, one.series))
            .collect::<Vec<_>>(),
        [(2, Some(2)), (3, Some(2)), (4, Some(2))]
    );
    let committed = kept
        .act(
            &operator(),
            &ReservationCommand::Commit(ReservationId(3)),
            5,
        )
        .unwrap();
    assert_eq!(committed.len(), 3);
    assert!(
        committed
            .iter()
            .all(|one| one.state.reserve == ReserveState::Start && !one.pieces.is_empty())
    );
    let one = ReservationCommand::Cancel {
        id: ReservationId(3),
        series: false,
    };
    assert_eq!(
        kept.act(&operator(), &one, 6).unwrap()[0].state.life,
        LifeState::Terminated
    );
    let rest = ReservationCommand::Cancel {
        id: ReservationId(2),
        series: true,
    };
    assert_eq!(kept.act(&operator(), &rest, 7).unwrap().len(), 2);
    kept.replayed();
}

/// Each reservation of a series shows the document that requested the series, as long as one
/// remains.
#[test]
fn document_is_kept_until_its_series_is_forgotten() {
    let mut kept = Kept::new(&map(10e9));
    let keep = RETENTION_MS as i64;
    let windows = [Window::new(0, HOUR), Window::new(keep, keep + HOUR)];
    let command = ReservationCommand::Reserve {
        request: Box::new(request(rate(1_000_000_000), HOUR)),
        from: place("west"),
        to: place("east"),
        windows: windows.to_vec(),
        is_end: false,
        document: Some("signed".into()),
        delegation: None,
    };
    kept.act(&reserver("ana"), &command, 0).unwrap();
    // Another reservation, without a document.
    let other = Window::new(2 * HOUR, keep + HOUR);
    kept.reserve(
        &operator(),
        &request(rate(1_000_000_000), HOUR),
        &[other],
        0,
    )
    .unwrap();
    let document = |kept: &Kept, id| {
        let found = kept.desk.document(&operator(), ReservationId(id));
        found.map(|document| document.map(str::to_owned))
    };
    let signed = Some("signed".to_owned());
    for id in [1, 2] {
        assert_eq!(document(&kept, id).unwrap(), signed, "{id}");
    }
    assert_eq!(document(&kept, 3).unwrap(), None);
    // The first is forgotten; the second has the document from then on.
    kept.pass(HOUR);
    kept.pass(HOUR + keep);
    assert!(document(&kept, 1).is_err());
    assert_eq!(document(&kept, 2).unwrap(), signed);
    assert_eq!(document(&kept, 3).unwrap(), None);
    kept.replayed();
    kept.pass(2 * keep + HOUR);
    assert!(document(&kept, 1).is_err());
}

#[test]
fn change_replaces_the_promise_or_does_nothing() {
    let mut kept = Kept::new(&map(10e9));
    let window = Window::new(0, 2 * HOUR);
    kept.reserve(
        &operator(),
        &request(rate(3_000_000_000), 2 * HOUR),
        &[window],
        0,
    )
    .unwrap();
    let to = |bps: u64, hold: bool| ReservationCommand::Change {
        id: ReservationId(1),
        change: ReservationChange {
            wish: Some(rate(bps)),
            hold,
            ..ReservationChange::default()
        },
    };
    let refused = kept
        .act(&operator(), &to(6_000_000_000, false), HOUR)
        .unwrap_err();
    assert!(
        matches!(refused, ReservationError::InsufficientBandwidth(_)),
        "{refused}"
    );
    let changed = kept
        .act(&operator(), &to(5_000_000_000, false), HOUR)
        .unwrap();
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
    let held = kept
        .act(&operator(), &to(1_000_000_000, true), HOUR + 1)
        .unwrap();
    assert_eq!(held[0].state.reserve, ReserveState::Held);
    let aborted = kept
        .act(
            &operator(),
            &ReservationCommand::Abort(ReservationId(1)),
            HOUR + 2,
        )
        .unwrap();
    assert_eq!(aborted[0].pieces, changed[0].pieces);
    // An uncommitted change expires, and another one can be requested.
    kept.act(&operator(), &to(1_000_000_000, true), HOUR + 3)
        .unwrap();
    let late = HOUR + 3 + HOLD_LIFETIME_MS as i64;
    kept.pass(late);
    assert_eq!(kept.show(1, late).pieces, changed[0].pieces);
    assert!(
        kept.act(&operator(), &to(4_000_000_000, false), late)
            .is_ok()
    );
    kept.replayed();
}

#[test]
fn map_change_keeps_promises_and_marks_impaired() {
    let mut kept = Kept::new(&map(10e9));
    let window = Window::new(0, HOUR);
    kept.reserve(
        &operator(),
        &request(rate(2_000_000_000), HOUR),
        &[window],
        0,
    )
    .unwrap();
    assert!(kept.show(1, 0).impaired.is_empty());
    // The link shrinks below what is promised on it.
    assert!(kept.desk.take_map(&map(1e9), &mut kept.journal).unwrap());
    let impaired = kept.show(1, 0).impaired;
    assert_eq!(
        impaired
            .iter()
            .map(|link| link.link.as_str())
            .collect::<Vec<_>>(),
        ["w-n"]
    );
    let refusal = kept.refused(&operator(), &request(rate(3_000_000_000), HOUR), &[window]);
    assert!(refusal.offers.slower.is_some());
    // All of the map is removed, and restored in another order without any effect.
    assert!(
        kept.desk
            .take_map(&Map::default(), &mut kept.journal)
            .unwrap()
    );
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
    // A link between other sites is another link. A change plans the promise again.
    turned
        .links
        .iter_mut()
        .filter(|link| link.name == "w-n")
        .for_each(|link| link.to = "south".to_owned());
    assert!(kept.desk.take_map(&turned, &mut kept.journal).unwrap());
    assert_eq!(kept.show(1, 0).impaired.len(), 1);
    let anew = ReservationCommand::Change {
        id: ReservationId(1),
        change: ReservationChange::default(),
    };
    let changed = kept.act(&operator(), &anew, 1).unwrap();
    assert!(changed[0].impaired.is_empty(), "{changed:?}");
    kept.replayed();
}

#[test]
fn lists_are_paged_and_filtered() {
    let mut kept = Kept::new(&map(10e9));
    for hour in 0..5 {
        let window = Window::new(hour * HOUR, (hour + 1) * HOUR);
        kept.reserve(&operator(), &request(rate(1), 0), &[window], 0)
            .unwrap();
    }
    kept.act(
        &operator(),
        &ReservationCommand::Cancel {
            id: ReservationId(2),
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
