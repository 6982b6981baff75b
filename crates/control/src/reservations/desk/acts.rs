//! Execution of commands.

use std::collections::BTreeMap;

use longhaul_circuits::admit::AdmissionRefusal;
use longhaul_circuits::book::{BookChange, DecisionTerms, Reservation};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ReservationEvent, ReserveState};
use longhaul_circuits::policy::RequestLimits;
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_control_api::principals::{PathOption, PathOptionSet, Permission};
use longhaul_control_api::reservations::{
    Disjoint, Preference, ReservationChange, ReservationRequest, Reserved,
};

use super::{
    HOLD_LIFETIME_MS, Record, RefusedRequest, ReservationCommand, ReservationDetail,
    ReservationError, ReservationStore,
};
use crate::authority::Subject;
use crate::reservations::asker::ReservationCaller;
use crate::reservations::delegated::RecordedDelegation;
use crate::reservations::record::ReservedPackets;
use crate::reservations::reported;
use crate::reservations::wanted::{self, InvalidReservation, ReservationEnd};

/// A request with its caller.
struct NewRequest<'a> {
    asker: &'a ReservationCaller,
    request: &'a ReservationRequest,
    from: &'a ReservationEnd,
    to: &'a ReservationEnd,
    is_end: bool,
    document: Option<&'a str>,
    delegation: Option<&'a RecordedDelegation>,
}

impl ReservationStore {
    /// Executes a command, and appends its journal records. Returns the reservations it changed.
    ///
    /// # Errors
    /// [`ReservationError`]. Nothing has changed and there is no record. After
    /// [`ReservationError::Fault`], the reservation store must be rebuilt from the journal.
    pub fn execute(
        &mut self,
        asker: &ReservationCaller,
        command: &ReservationCommand,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Reserved, ReservationError> {
        let ids = match command {
            ReservationCommand::Reserve {
                request,
                from,
                to,
                windows,
                is_end,
                document,
                delegation,
            } => {
                let asking = NewRequest {
                    asker,
                    request,
                    from,
                    to,
                    is_end: *is_end,
                    document: document.as_deref(),
                    delegation: delegation.as_deref(),
                };
                self.reserve(&asking, windows, now, records)?
            }
            ReservationCommand::Change { id, change } => {
                self.change(asker, *id, change, now, records)?
            }
            ReservationCommand::Commit(id) => {
                self.settle(asker, *id, ReservationEvent::Commit, now, records)?
            }
            ReservationCommand::Abort(id) => {
                self.settle(asker, *id, ReservationEvent::Abort, now, records)?
            }
            ReservationCommand::Provision(id) => {
                self.set_provisioning(asker, *id, ReservationEvent::Provision, now, records)?
            }
            ReservationCommand::Release(id) => {
                self.set_provisioning(asker, *id, ReservationEvent::Release, now, records)?
            }
            ReservationCommand::Cancel { id, series } => {
                self.cancel(asker, *id, *series, now, records)?
            }
            ReservationCommand::Settle(settled) => self.record_results(settled, now, records)?,
            ReservationCommand::Reroute(ids) => self.reroute_all(ids, now, records)?,
        };
        Ok(self.reported(&ids, now))
    }

    fn reserve(
        &mut self,
        asking: &NewRequest<'_>,
        windows: &[Window],
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let (asker, request) = (asking.asker, asking.request);
        self.check_unused(asking.delegation)?;
        let subject = Subject {
            own: asking.is_end,
            sites: wanted::path_sites(asking.from, asking.to),
        };
        let limits = asker.limits(Permission::Create, &subject, request.path_options())?;
        let holds = if request.hold { windows.len() } else { 0 };
        self.check_quota(asker, Permission::Create, &subject, windows.len(), holds)?;
        // Time has passed since the windows were computed.
        let windows: Vec<Window> = windows
            .iter()
            .map(|window| Window::new(window.start.max(now), window.end))
            .collect();
        let first = windows.first().copied().ok_or(InvalidReservation::Window)?;
        let asked = wanted::request(&self.names, request, asking.from, asking.to, first)?;
        let mut refused = None;
        for limits in limits {
            match self.book.decide_all(&asked, &windows, &terms(limits), now) {
                Ok(change) => return self.hold_all(asking, change, now, records),
                Err(refusal) => keep_better(&mut refused, refusal),
            }
        }
        let (place, refusal) = refused
            .ok_or_else(|| ReservationError::Fault("the request was not decided".to_owned()))?;
        let window = windows.get(place).copied().unwrap_or(first);
        let place = (windows.len() > 1).then_some(place);
        Err(self.refused(asker, request, place, window, refusal))
    }

    /// Holds what was granted, and commits it unless the request says to hold.
    fn hold_all(
        &mut self,
        asking: &NewRequest<'_>,
        change: BookChange,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let BookChange::Held { holds, .. } = &change else {
            return Err(ReservationError::Fault(
                "the granted reservation is missing".to_owned(),
            ));
        };
        let ids: Vec<ReservationId> = holds.iter().map(|hold| hold.id).collect();
        let spans: Vec<Window> = holds.iter().map(|hold| hold.plan.window()).collect();
        let (ports, pinned) = self.ports_for(asking.request, asking.from, asking.to, &spans)?;
        let detail = ReservationDetail {
            owner: asking.asker.owner.clone(),
            owner_name: asking.asker.name.clone(),
            from: asking.from.clone(),
            to: asking.to.clone(),
            description: asking.request.description.clone(),
            series: ids.first().copied().filter(|_| ids.len() > 1),
            ports,
            pinned,
            packets: packets(asking.request),
            provision: asking.request.provision,
            document: None,
            delegation: asking.delegation.cloned(),
            failure: None,
            created: now,
        };
        let mut details: BTreeMap<ReservationId, ReservationDetail> =
            ids.iter().map(|id| (*id, detail.clone())).collect();
        if let Some(mut first) = details.first_entry() {
            first.get_mut().document = asking.document.map(str::to_owned);
        }
        self.write(change, details, now, records)?;
        if !asking.request.hold {
            self.commit(&ids, now, records)?;
        }
        Ok(ids)
    }

    fn change(
        &mut self,
        asker: &ReservationCaller,
        id: ReservationId,
        change: &ReservationChange,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let (detail, reservation) = self.visible_reservation(asker, id)?;
        let options = change_options(change);
        let limits = asker.limits_of_change(&detail.subject(&asker.owner), options)?;
        self.check_state(id, reservation, ReservationEvent::Reserve, "changed")?;
        if reservation.machine.provision.is_none() {
            return Err(self.not_now(id, reservation, "changed"));
        }
        let subject = detail.subject(&asker.owner);
        self.check_quota(
            asker,
            Permission::Modify,
            &subject,
            0,
            usize::from(change.hold),
        )?;
        let shared = detail
            .packets
            .filter(|packets| packets.source_ports.is_some());
        if let Some((packets, _)) = shared
            .zip(change.paths)
            .filter(|(packets, paths)| u32::from(packets.paths) != *paths)
        {
            return Err(InvalidReservation::SharedPorts(packets.paths).into());
        }
        let most = wanted::max_rate(&detail.from, &detail.to);
        let request = wanted::changed(&reservation.request, change, most, now)?;
        let asked = reported::known_request(&self.names, detail, &request, change.hold);
        let mut refused = None;
        for limits in limits {
            let decision = self.book.decide_change(id, &request, &terms(limits), now)?;
            match decision {
                Ok(held) => {
                    self.keeps_ports(id, &held)?;
                    self.write(held, BTreeMap::new(), now, records)?;
                    if !change.hold {
                        self.apply_event(&[id], ReservationEvent::Commit, now, records)?;
                    }
                    return Ok(vec![id]);
                }
                Err(refusal) => keep_better(&mut refused, (0, refusal)),
            }
        }
        let (_, refusal) = refused
            .ok_or_else(|| ReservationError::Fault("the request was not decided".to_owned()))?;
        Err(self.refused(asker, &asked, None, request.window, refusal))
    }

    /// Commits or aborts what is held, of all that were granted together.
    fn settle(
        &mut self,
        asker: &ReservationCaller,
        id: ReservationId,
        event: ReservationEvent,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let done = if event == ReservationEvent::Commit {
            "committed"
        } else {
            "aborted"
        };
        // A key that may request reservations may settle its own; for those of others it needs the
        // right to change them.
        let is_own = self.visible_reservation(asker, id)?.0.owner == asker.owner;
        let permission = match is_own {
            true => Permission::Create,
            false => Permission::Modify,
        };
        let (detail, reservation) =
            self.permitted_reservation(asker, id, permission, event, done)?;
        let until = reservation.held.as_ref().map(|held| held.until);
        let together: Vec<ReservationId> = match (detail.series, reservation.machine.provision) {
            // What a committed reservation holds is a change, which it alone has.
            (Some(series), None) if reservation.machine.reserve == ReserveState::Held => self
                .of_series(series)
                .filter(|(_, other)| {
                    other.machine.reserve == ReserveState::Held
                        && other.machine.provision.is_none()
                        && other.held.as_ref().map(|held| held.until) == until
                })
                .map(|(id, _)| id)
                .collect(),
            _ => vec![id],
        };
        match event {
            ReservationEvent::Commit => self.commit(&together, now, records)?,
            _ => self.apply_event(&together, event, now, records)?,
        }
        Ok(together)
    }

    fn cancel(
        &mut self,
        asker: &ReservationCaller,
        id: ReservationId,
        series: bool,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, ReservationError> {
        let (detail, reservation) = self.visible_reservation(asker, id)?;
        // All reservations of a series have the same owner and ends.
        asker.may(Permission::Modify, &detail.subject(&asker.owner))?;
        let ids: Vec<ReservationId> = match (series, detail.series) {
            (true, Some(series)) => self
                .of_series(series)
                .filter(|(_, other)| other.machine.life == LifeState::Created)
                .map(|(id, _)| id)
                .collect(),
            _ => {
                self.check_state(id, reservation, ReservationEvent::Terminate, "cancelled")?;
                vec![id]
            }
        };
        for id in &ids {
            self.end(*id, now, records)?;
        }
        Ok(ids)
    }

    pub(super) fn apply_event(
        &mut self,
        ids: &[ReservationId],
        event: ReservationEvent,
        now: MomentMs,
        records: &mut Vec<Record>,
    ) -> Result<(), ReservationError> {
        for id in ids {
            self.write(
                BookChange::Event { id: *id, event },
                BTreeMap::new(),
                now,
                records,
            )?;
        }
        Ok(())
    }

    /// Returns this reservation and those that were granted together with it.
    fn of_series(
        &self,
        series: ReservationId,
    ) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        let ids = self.details.range(series..);
        // Their IDs are consecutive.
        ids.take_while(move |(_, detail)| detail.series == Some(series))
            .filter_map(|(id, _)| Some((*id, self.book.reservation(*id)?)))
    }

    /// Returns a reservation that the caller may see.
    pub(super) fn visible_reservation(
        &self,
        asker: &ReservationCaller,
        id: ReservationId,
    ) -> Result<(&ReservationDetail, &Reservation), ReservationError> {
        let found = self.details.get(&id).zip(self.book.reservation(id));
        found
            .filter(|(detail, _)| {
                asker
                    .may(Permission::Read, &detail.subject(&asker.owner))
                    .is_ok()
            })
            .ok_or(ReservationError::Unknown(id.0))
    }

    /// Returns a reservation if the caller has the permission and the reservation's state allows
    /// the event.
    pub(super) fn permitted_reservation(
        &self,
        asker: &ReservationCaller,
        id: ReservationId,
        permission: Permission,
        event: ReservationEvent,
        done: &'static str,
    ) -> Result<(&ReservationDetail, &Reservation), ReservationError> {
        let (detail, reservation) = self.visible_reservation(asker, id)?;
        asker.may(permission, &detail.subject(&asker.owner))?;
        self.check_state(id, reservation, event, done)?;
        Ok((detail, reservation))
    }

    pub(super) fn check_state(
        &self,
        id: ReservationId,
        reservation: &Reservation,
        event: ReservationEvent,
        done: &'static str,
    ) -> Result<(), ReservationError> {
        let next = reservation.machine.apply(event);
        next.map(drop)
            .map_err(|_| self.not_now(id, reservation, done))
    }

    fn not_now(
        &self,
        id: ReservationId,
        reservation: &Reservation,
        done: &'static str,
    ) -> ReservationError {
        let state = super::show::state(reservation);
        ReservationError::NotNow(id.0, state, done)
    }

    /// Creates the refusal, without what the caller may not see.
    fn refused(
        &self,
        asker: &ReservationCaller,
        asked: &ReservationRequest,
        place: Option<usize>,
        window: Window,
        refusal: AdmissionRefusal,
    ) -> ReservationError {
        let short = match refusal {
            AdmissionRefusal::Fault(fault) => return fault.into(),
            AdmissionRefusal::Policy(refusal) => return refusal.into(),
            AdmissionRefusal::Shortfall(short) => short,
        };
        let seen = |id: ReservationId| self.visible_reservation(asker, id).is_ok();
        ReservationError::InsufficientBandwidth(Box::new(RefusedRequest {
            refusal: reported::refusal(&self.names, asked, place, window, &short, &seen),
            short,
            decided: self.snapshot(),
            asked: asked.clone(),
        }))
    }
}

/// Returns the terms of a decision within these limits.
const fn terms(limits: RequestLimits) -> DecisionTerms {
    DecisionTerms {
        limits,
        hold: HOLD_LIFETIME_MS,
    }
}

/// Returns the packets that a request names.
fn packets(request: &ReservationRequest) -> Option<ReservedPackets> {
    let filter = request.filter;
    (!filter.is_empty()).then(|| ReservedPackets {
        source_ports: filter.source_ports,
        paths: u16::try_from(request.paths).unwrap_or(u16::MAX),
        dscp: filter.dscp,
    })
}

/// Returns the path options that a change uses.
fn change_options(change: &ReservationChange) -> PathOptionSet {
    let disjoint = change.disjoint.filter(|disjoint| *disjoint != Disjoint::No);
    let preference = change
        .preference
        .filter(|preference| *preference != Preference::default());
    let used = [
        disjoint.map(|_| PathOption::Disjoint),
        preference.map(|_| PathOption::Prefer),
    ];
    used.into_iter().flatten().collect()
}

/// Refusal of one of several windows, by its index.
type WindowRefusal = (usize, AdmissionRefusal);

/// Keeps the more informative refusal: missing bandwidth says more than an exceeded limit.
fn keep_better(kept: &mut Option<WindowRefusal>, found: WindowRefusal) {
    let is_policy = |(_, refusal): &WindowRefusal| matches!(refusal, AdmissionRefusal::Policy(_));
    if kept
        .as_ref()
        .is_none_or(|kept| is_policy(kept) && !is_policy(&found))
    {
        *kept = Some(found);
    }
}
