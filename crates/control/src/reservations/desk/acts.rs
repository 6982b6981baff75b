//! Execution of commands.

use std::collections::BTreeMap;

use longhaul_circuits::admit::{Answer, Refusal as Short, Search};
use longhaul_circuits::book::{Change, Reservation, Short as FirstShort, Terms};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{Event, Life, Reserve};
use longhaul_circuits::policy::Limits;
use longhaul_circuits::time::{Moment, Window};
use longhaul_control_api::principals::Permission;
use longhaul_control_api::reservations::{ReservationChange, ReservationRequest, Reserved};

use super::{Command, Denied, Desk, DeskError, Detail, HOLD_MS, Open, Record};
use crate::authority::Subject;
use crate::reservations::asker::Asker;
use crate::reservations::reported;
use crate::reservations::wanted::{self, Place, WantedFault};

/// A request with its caller.
struct Asking<'a> {
    asker: &'a Asker,
    request: &'a ReservationRequest,
    from: &'a Place,
    to: &'a Place,
    is_end: bool,
    document: Option<&'a String>,
}

impl Desk {
    fn terms(&self, limits: Limits) -> Terms {
        Terms {
            limits,
            hold: HOLD_MS,
            counter: self.counter,
        }
    }

    /// Executes a command, and appends its journal records. Returns the reservations it changed.
    ///
    /// # Errors
    /// [`DeskError`]. Nothing has changed and there is no record. After [`DeskError::Fault`], the
    /// reservation store must be rebuilt from the journal.
    pub fn act(
        &mut self,
        asker: &Asker,
        command: &Command,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Reserved, DeskError> {
        let done = self.act_open(asker, command, now, records);
        done.map_err(|denied| denied.error)
    }

    /// Like [`Self::act`], with a search for counter-offers if they are computed later
    /// ([`Counter::Later`](longhaul_circuits::admit::Counter::Later)).
    ///
    /// # Errors
    /// [`Denied`].
    pub fn act_open(
        &mut self,
        asker: &Asker,
        command: &Command,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Reserved, Denied> {
        let ids = match command {
            Command::Reserve {
                request,
                from,
                to,
                windows,
                is_end,
                document,
            } => {
                let asking = Asking {
                    asker,
                    request,
                    from,
                    to,
                    is_end: *is_end,
                    document: document.as_ref(),
                };
                self.reserve(&asking, windows, now, records)?
            }
            Command::Change { id, change } => self.change(asker, *id, change, now, records)?,
            Command::Commit(id) => self.settle(asker, *id, Event::Commit, now, records)?,
            Command::Abort(id) => self.settle(asker, *id, Event::Abort, now, records)?,
            Command::Provision(id) => self.signal(asker, *id, Event::Provision, now, records)?,
            Command::Release(id) => self.signal(asker, *id, Event::Release, now, records)?,
            Command::Cancel { id, series } => self.cancel(asker, *id, *series, now, records)?,
            Command::Settle(settled) => self.settled(settled, now, records)?,
        };
        Ok(self.reported(&ids, now))
    }

    fn reserve(
        &mut self,
        asking: &Asking<'_>,
        windows: &[Window],
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, Denied> {
        let (asker, request) = (asking.asker, asking.request);
        let subject = Subject {
            own: asking.is_end,
            sites: [asking.from.site.clone(), asking.to.site.clone()].into(),
        };
        let limits = asker.limits(Permission::Create, &subject)?;
        let holds = if request.hold { windows.len() } else { 0 };
        self.check_quota(asker, Permission::Create, &subject, windows.len(), holds)?;
        // Time has passed since the windows were computed.
        let windows: Vec<Window> = windows
            .iter()
            .map(|window| Window::new(window.start.max(now), window.end))
            .collect();
        let first = windows.first().copied().ok_or(WantedFault::Window)?;
        let asked = wanted::request(&self.names, request, asking.from, asking.to, first)?;
        let mut refused = None;
        for limits in limits {
            match self
                .book
                .decide_all(&asked, &windows, &self.terms(limits), now)
            {
                Ok((_, change)) => {
                    return Ok(self.hold_all(asking, change, now, records)?);
                }
                Err(short) => keep_better(&mut refused, short),
            }
        }
        let short = refused.ok_or_else(|| DeskError::Fault("nobody decided".to_owned()))?;
        let window = windows.get(short.place).copied().unwrap_or(first);
        let place = (windows.len() > 1).then_some(short.place);
        Err(self.refused(asker, request, place, window, short))
    }

    /// Holds what was granted, and commits it unless the request says to hold.
    fn hold_all(
        &mut self,
        asking: &Asking<'_>,
        change: Change,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, DeskError> {
        let Change::Held { holds, .. } = &change else {
            return Err(DeskError::Fault("what is granted is not held".to_owned()));
        };
        let ids: Vec<ReservationId> = holds.iter().map(|hold| hold.id).collect();
        let spans: Vec<Window> = holds.iter().map(|hold| hold.plan.window()).collect();
        let (ports, pinned) = self.ports_for(asking.request, asking.from, asking.to, &spans)?;
        let detail = Detail {
            owner: asking.asker.owner.clone(),
            owner_name: asking.asker.name.clone(),
            from: asking.from.clone(),
            to: asking.to.clone(),
            description: asking.request.description.clone(),
            series: ids.first().copied().filter(|_| ids.len() > 1),
            ports,
            pinned,
            provision: asking.request.provision,
            document: None,
            failure: None,
            created: now,
        };
        let mut details: BTreeMap<ReservationId, Detail> =
            ids.iter().map(|id| (*id, detail.clone())).collect();
        if let Some(mut first) = details.first_entry() {
            first.get_mut().document = asking.document.cloned();
        }
        self.write(change, details, now, records)?;
        if !asking.request.hold {
            self.commit(&ids, now, records)?;
        }
        Ok(ids)
    }

    fn change(
        &mut self,
        asker: &Asker,
        id: ReservationId,
        change: &ReservationChange,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, Denied> {
        let (detail, reservation) = self.seen(asker, id)?;
        let limits = asker.limits_of_change(&detail.subject(&asker.owner))?;
        self.can(id, reservation, Event::Reserve, "changed")?;
        if reservation.machine.provision.is_none() {
            return Err(self.not_now(id, reservation, "changed").into());
        }
        let subject = detail.subject(&asker.owner);
        self.check_quota(
            asker,
            Permission::Modify,
            &subject,
            0,
            usize::from(change.hold),
        )?;
        let most = wanted::access(&detail.from, &detail.to);
        let request = wanted::changed(&reservation.request, change, most, now)?;
        let asked = reported::asked(&self.names, detail, &request, change.hold);
        let mut refused = None;
        for limits in limits {
            let decision = self
                .book
                .decide_change(id, &request, &self.terms(limits), now)?;
            if let Some(held) = decision.change {
                self.keeps_ports(id, &held)?;
                self.write(held, BTreeMap::new(), now, records)?;
                if !change.hold {
                    self.happen(&[id], Event::Commit, now, records)?;
                }
                return Ok(vec![id]);
            }
            let short = FirstShort {
                place: 0,
                answer: decision.answer,
                search: decision.search,
            };
            keep_better(&mut refused, short);
        }
        let short = refused.ok_or_else(|| DeskError::Fault("nobody decided".to_owned()))?;
        Err(self.refused(asker, &asked, None, request.window, short))
    }

    /// Commits or aborts what is held, of all that were granted together.
    fn settle(
        &mut self,
        asker: &Asker,
        id: ReservationId,
        event: Event,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, DeskError> {
        let done = if event == Event::Commit {
            "committed"
        } else {
            "aborted"
        };
        // A key that may request reservations may settle its own; for those of others it needs the
        // right to change them.
        let is_own = self.seen(asker, id)?.0.owner == asker.owner;
        let permission = match is_own {
            true => Permission::Create,
            false => Permission::Modify,
        };
        let (detail, reservation) = self.allowed(asker, id, permission, event, done)?;
        let until = reservation.held.as_ref().map(|held| held.until);
        let together: Vec<ReservationId> = match (detail.series, reservation.machine.provision) {
            // What a committed reservation holds is a change, which it alone has.
            (Some(series), None) if reservation.machine.reserve == Reserve::Held => self
                .of_series(series)
                .filter(|(_, other)| {
                    other.machine.reserve == Reserve::Held
                        && other.machine.provision.is_none()
                        && other.held.as_ref().map(|held| held.until) == until
                })
                .map(|(id, _)| id)
                .collect(),
            _ => vec![id],
        };
        match event {
            Event::Commit => self.commit(&together, now, records)?,
            _ => self.happen(&together, event, now, records)?,
        }
        Ok(together)
    }

    fn cancel(
        &mut self,
        asker: &Asker,
        id: ReservationId,
        series: bool,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<Vec<ReservationId>, DeskError> {
        let (detail, reservation) = self.seen(asker, id)?;
        // All reservations of a series have the same owner and ends.
        asker.may(Permission::Modify, &detail.subject(&asker.owner))?;
        let ids: Vec<ReservationId> = match (series, detail.series) {
            (true, Some(series)) => self
                .of_series(series)
                .filter(|(_, other)| other.machine.life == Life::Created)
                .map(|(id, _)| id)
                .collect(),
            _ => {
                self.can(id, reservation, Event::Terminate, "cancelled")?;
                vec![id]
            }
        };
        for id in &ids {
            self.end(*id, now, records)?;
        }
        Ok(ids)
    }

    pub(super) fn happen(
        &mut self,
        ids: &[ReservationId],
        event: Event,
        now: Moment,
        records: &mut Vec<Record>,
    ) -> Result<(), DeskError> {
        for id in ids {
            self.write(
                Change::Event { id: *id, event },
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
    pub(super) fn seen(
        &self,
        asker: &Asker,
        id: ReservationId,
    ) -> Result<(&Detail, &Reservation), DeskError> {
        let found = self.details.get(&id).zip(self.book.reservation(id));
        found
            .filter(|(detail, _)| {
                asker
                    .may(Permission::Read, &detail.subject(&asker.owner))
                    .is_ok()
            })
            .ok_or(DeskError::Unknown(reported::number(id)))
    }

    /// Returns a reservation if the caller has the permission and the reservation's state allows
    /// the event.
    pub(super) fn allowed(
        &self,
        asker: &Asker,
        id: ReservationId,
        permission: Permission,
        event: Event,
        done: &'static str,
    ) -> Result<(&Detail, &Reservation), DeskError> {
        let (detail, reservation) = self.seen(asker, id)?;
        asker.may(permission, &detail.subject(&asker.owner))?;
        self.can(id, reservation, event, done)?;
        Ok((detail, reservation))
    }

    pub(super) fn can(
        &self,
        id: ReservationId,
        reservation: &Reservation,
        event: Event,
        done: &'static str,
    ) -> Result<(), DeskError> {
        let next = reservation.machine.on(event);
        next.map(drop)
            .map_err(|_| self.not_now(id, reservation, done))
    }

    fn not_now(
        &self,
        id: ReservationId,
        reservation: &Reservation,
        done: &'static str,
    ) -> DeskError {
        let state = super::show::state(reservation);
        DeskError::NotNow(reported::number(id), state, done)
    }

    /// Creates the refusal, without what the caller may not see.
    fn refused(
        &self,
        asker: &Asker,
        asked: &ReservationRequest,
        place: Option<usize>,
        window: Window,
        short: FirstShort,
    ) -> Denied {
        match short.answer {
            Answer::Refused(Short::Fault(fault)) => fault.into(),
            Answer::Refused(Short::Policy(refusal)) => refusal.into(),
            Answer::Refused(Short::NoRoom(none)) => {
                let seen = |id: ReservationId| self.seen(asker, id).is_ok();
                let refusal = reported::refusal(&self.names, asked, place, window, &none, &seen);
                let open = |search: Box<Search>| {
                    Box::new(Open {
                        search,
                        decided: self.snapshot(),
                        asked: asked.clone(),
                    })
                };
                Denied {
                    error: DeskError::NoRoom(Box::new(refusal)),
                    open: short.search.map(open),
                }
            }
            Answer::Granted(_) => DeskError::Fault("what is granted is not held".to_owned()).into(),
        }
    }
}

/// Keeps the more informative refusal: missing bandwidth says more than an exceeded limit.
fn keep_better(kept: &mut Option<FirstShort>, found: FirstShort) {
    let is_policy = |short: &FirstShort| matches!(short.answer, Answer::Refused(Short::Policy(_)));
    if kept
        .as_ref()
        .is_none_or(|kept| is_policy(kept) && !is_policy(&found))
    {
        *kept = Some(found);
    }
}
