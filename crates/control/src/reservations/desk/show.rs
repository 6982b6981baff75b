//! Reservations as each caller may see them.

use longhaul_circuits::book::Reservation as Booked;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{LifeState, ProvisionState, ReserveState};
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::principals::Permission;
use longhaul_control_api::reservations::{
    ConstraintCause, Proof, Refusal, RefusalCause, Reservation, ReservationQuery, Reserved,
};
use quantities::{Rate, Time};

use super::{ReservationError, ReservationStore};
use crate::reservations::asker::ReservationCaller;
use crate::reservations::{book_moment, reported};

/// Maximum number of links that one line names.
const MAX_NAMED_LINKS: usize = 3;

impl ReservationStore {
    /// Returns current reservations, by ID.
    pub(super) fn reported(&self, ids: &[ReservationId], now: MomentMs) -> Reserved {
        Reserved {
            reservations: ids
                .iter()
                .filter_map(|id| self.report_reservation(*id, now))
                .collect(),
        }
    }

    fn report_reservation(&self, id: ReservationId, now: MomentMs) -> Option<Reservation> {
        let (detail, reservation) = self.details.get(&id).zip(self.book.reservation(id))?;
        let above = self.book.overbooked_links(&reservation.plan, now);
        Some(reported::reservation(
            &self.names,
            id,
            detail,
            reservation,
            &above,
        ))
    }

    /// Returns a reservation.
    ///
    /// # Errors
    /// The reservation does not exist, or the caller may not see it.
    pub fn show(
        &self,
        asker: &ReservationCaller,
        id: ReservationId,
        now: MomentMs,
    ) -> Result<Reservation, ReservationError> {
        let unknown = || ReservationError::Unknown(id.0);
        let detail = self.details.get(&id).ok_or_else(unknown)?;
        let may = asker.may(Permission::Read, &detail.subject(&asker.owner));
        may.map_err(|_| unknown())?;
        self.report_reservation(id, now).ok_or_else(unknown)
    }

    /// Returns the signed document that requested a reservation, if there was one.
    ///
    /// # Errors
    /// The reservation does not exist, or the caller may not see it.
    pub fn document(
        &self,
        asker: &ReservationCaller,
        id: ReservationId,
    ) -> Result<Option<&str>, ReservationError> {
        let (detail, _) = self.visible_reservation(asker, id)?;
        let first = detail.series.unwrap_or(id);
        let together = self.details.range(first..).take_while(|(other, of_other)| {
            **other == id || of_other.series.is_some() && of_other.series == detail.series
        });
        let mut found = together.filter_map(|(_, of_one)| of_one.document.as_deref());
        Ok(found.next())
    }

    /// Returns reservations with IDs above `after` that the caller may see, by ID, at most `limit`.
    /// The flag is true if more follow.
    #[must_use]
    pub fn list(
        &self,
        asker: &ReservationCaller,
        query: &ReservationQuery,
        after: u64,
        limit: usize,
        now: MomentMs,
    ) -> (Vec<Reservation>, bool) {
        let mut found = self
            .details
            .range(ReservationId(after.saturating_add(1))..)
            .filter(|(id, detail)| {
                let Some(reservation) = self.book.reservation(**id) else {
                    return false;
                };
                let (start, end) = reported::span(reservation);
                let is_active = !self.over.contains_key(id);
                let subject = detail.subject(&asker.owner);
                query.active.is_none_or(|active| active == is_active)
                    && query.own.is_none_or(|own| own == subject.own)
                    && query
                        .series
                        .is_none_or(|series| detail.series == Some(ReservationId(series)))
                    && query.since_ms.is_none_or(|since| end > book_moment(since))
                    && query
                        .before_ms
                        .is_none_or(|before| start < book_moment(before))
                    && asker.may(Permission::Read, &subject).is_ok()
            });
        let page = found.by_ref().take(limit);
        let page = page
            .filter_map(|(id, _)| self.report_reservation(*id, now))
            .collect();
        (page, found.next().is_some())
    }
}

/// Returns the state of a reservation in one word.
pub(super) fn state(reservation: &Booked) -> String {
    let machine = reservation.machine;
    let word = match (machine.life, machine.reserve, machine.provision) {
        (LifeState::Failed, ..) => "failed",
        (LifeState::PassedEndTime, ..) => "past its end",
        (LifeState::Terminating | LifeState::Terminated, ..) => "ended",
        (LifeState::Created, ReserveState::Held, _) => "held",
        (LifeState::Created, ReserveState::Timeout, None) => "not committed in time",
        (LifeState::Created, _, None) => "not reserved",
        (LifeState::Created, _, Some(ProvisionState::Released | ProvisionState::Releasing)) => {
            "reserved"
        }
        (
            LifeState::Created,
            _,
            Some(ProvisionState::Provisioned | ProvisionState::Provisioning),
        ) => "provisioned",
    };
    word.to_owned()
}

/// Formats a refusal in one line.
pub(super) fn refusal_line(refusal: &Refusal) -> String {
    let cause = refusal.cause.as_ref();
    let what = cause.map_or_else(|| proof_text(&refusal.proof), cause_text);
    let which = refusal
        .occurrence
        .map(|place| format!("window {place}: "))
        .unwrap_or_default();
    let offers = &refusal.offers;
    let is_any = offers.later.is_some() || offers.slower.is_some() || offers.volume.is_some();
    let else_what = match (is_any, offers.left_out) {
        _ if cause.is_some() && !is_any => "change that constraint, or ask at another time",
        _ if cause.is_some() => "change that constraint, or ask for one of the offers",
        (true, _) => "ask for one of the offers",
        (false, true) => "ask again for offers, for less, or at another time",
        (false, false) => "ask for less, or at another time",
    };
    format!("{which}not enough bandwidth: {what}; {else_what}")
}

fn proof_text(proof: &Proof) -> String {
    match proof {
        Proof::Cut {
            links,
            rate_bps,
            until_ms,
        } => {
            let names: Vec<&str> = links
                .iter()
                .map(|full| full.link.link.as_str())
                .take(MAX_NAMED_LINKS)
                .collect();
            let more = if links.len() > MAX_NAMED_LINKS {
                " and others"
            } else {
                ""
            };
            let (rate, names) = (rate(*rate_bps), names.join(", "));
            match (names.is_empty(), until_ms) {
                (true, _) => "no links on the map connect the ends".to_owned(),
                (false, Some(_)) => format!("only {rate} is free on {names}{more}"),
                (false, None) => format!("at most {rate} can be reserved on {names}{more}"),
            }
        }
        Proof::Volume { links, bytes } => {
            let names: Vec<&str> = links
                .iter()
                .map(|full| full.link.link.as_str())
                .take(MAX_NAMED_LINKS)
                .collect();
            format!(
                "only {bytes} bytes fit over {} in that window",
                names.join(", ")
            )
        }
        Proof::Stretches { bytes } => format!("only {bytes} bytes fit in that window"),
        Proof::Searched { all_bps } => {
            format!(
                "that many paths cannot carry it; all paths together carry {}",
                rate(*all_bps)
            )
        }
        Proof::Constrained { most_bps: 0, .. } => {
            "no path within the constraints has anything free".to_owned()
        }
        Proof::Constrained { most_bps, .. } => {
            format!(
                "paths within the constraints carry at most {}",
                rate(*most_bps)
            )
        }
        Proof::Unknown => "no paths were found that carry it; try more paths".to_owned(),
    }
}

/// Returns the constraints that make a request fail, and what fits within them.
fn cause_text(cause: &RefusalCause) -> String {
    if cause.together {
        let words: Vec<String> = cause.constraints.iter().map(constraint_text).collect();
        return format!("it fits only without all of {}", words.join(", "));
    }
    let free = match (cause.asked_bps, cause.most_bps) {
        (Some(_), Some(0)) => "has anything free".to_owned(),
        (Some(asked), Some(most)) => {
            format!("has {} free: the most is {}", rate(asked), rate(most))
        }
        _ => "carries the volume".to_owned(),
    };
    let texts = cause.constraints.iter().map(|constraint| match constraint {
        ConstraintCause::MaxHops {
            most,
            needed,
            unreachable: true,
        } => format!("no path of at most {most} hops: the shortest has {needed}"),
        ConstraintCause::MaxHops { most, needed, .. } => {
            format!("no path of at most {most} hops {free}, and {needed} hops are needed")
        }
        ConstraintCause::MaxLatency {
            most_us,
            needed_us,
            unreachable: true,
        } => format!(
            "no path of at most {}: the fastest has {}",
            latency(*most_us),
            latency(*needed_us)
        ),
        ConstraintCause::MaxLatency {
            most_us, needed_us, ..
        } => format!(
            "no path of at most {} {free}, and {} is needed",
            latency(*most_us),
            latency(*needed_us)
        ),
        ConstraintCause::Path {
            path,
            from,
            to,
            needed_bps,
            left_bps,
        } => {
            let (needed, left) = (rate(*needed_bps), rate(*left_bps));
            // Several links may have enough only together.
            let not_one = match left_bps >= needed_bps {
                true => ", but not on one link for each path",
                false => "",
            };
            format!(
                "path {path} needs {needed} from {from} to {to}, and {left} is free there{not_one}"
            )
        }
        ConstraintCause::Disjoint => format!("no set of disjoint paths {free}"),
        ConstraintCause::Via { sites } => format!("no path via {} {free}", sites.join(", ")),
        ConstraintCause::OnlyLinks { links } => {
            format!("no path over only-links {} {free}", links.join(", "))
        }
        ConstraintCause::AvoidSite { sites } => {
            format!("no path around avoid-site {} {free}", sites.join(", "))
        }
        ConstraintCause::AvoidLink { links } => {
            format!("no path around avoid-link {} {free}", links.join(", "))
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Names a constraint as the options of a request do.
fn constraint_text(constraint: &ConstraintCause) -> String {
    match constraint {
        ConstraintCause::Via { sites } => format!("via {}", sites.join(", ")),
        ConstraintCause::OnlyLinks { links } => format!("only-links {}", links.join(", ")),
        ConstraintCause::AvoidSite { sites } => format!("avoid-site {}", sites.join(", ")),
        ConstraintCause::AvoidLink { links } => format!("avoid-link {}", links.join(", ")),
        ConstraintCause::MaxHops { most, .. } => format!("max-hops {most}"),
        ConstraintCause::MaxLatency { most_us, .. } => {
            format!("max-latency {}", latency(*most_us))
        }
        ConstraintCause::Disjoint => "disjoint".to_owned(),
        ConstraintCause::Path { path, .. } => format!("path {path}"),
    }
}

fn latency(us: u64) -> Time {
    Time(std::time::Duration::from_micros(us))
}

fn rate(bps: u64) -> Rate {
    Rate::nearest(bps as f64)
}
