//! Reservations as each caller may see them.

use longhaul_circuits::book::Reservation as Booked;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::machine::{Life, Provision, Reserve};
use longhaul_circuits::time::Moment;
use longhaul_control_api::principals::Permission;
use longhaul_control_api::reservations::{Proof, Refusal, Reservation, ReservationQuery, Reserved};
use quantities::Rate;

use super::{Desk, DeskError};
use crate::reservations::asker::Asker;
use crate::reservations::{book_moment, reported};

/// Maximum number of links that one line names.
const MAX_NAMED: usize = 3;

impl Desk {
    /// Returns current reservations, by ID.
    pub(super) fn reported(&self, ids: &[ReservationId], now: Moment) -> Reserved {
        Reserved {
            reservations: ids.iter().filter_map(|id| self.one(*id, now)).collect(),
        }
    }

    fn one(&self, id: ReservationId, now: Moment) -> Option<Reservation> {
        let (detail, reservation) = self.details.get(&id).zip(self.book.reservation(id))?;
        let above = self.book.above(&reservation.plan, now);
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
        asker: &Asker,
        id: ReservationId,
        now: Moment,
    ) -> Result<Reservation, DeskError> {
        let unknown = || DeskError::Unknown(reported::number(id));
        let detail = self.details.get(&id).ok_or_else(unknown)?;
        let may = asker.may(Permission::Read, &detail.subject(&asker.owner));
        may.map_err(|_| unknown())?;
        self.one(id, now).ok_or_else(unknown)
    }

    /// Returns the signed document that requested a reservation, if there was one.
    ///
    /// # Errors
    /// The reservation does not exist, or the caller may not see it.
    pub fn document(&self, asker: &Asker, id: ReservationId) -> Result<Option<&str>, DeskError> {
        let (detail, _) = self.seen(asker, id)?;
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
        asker: &Asker,
        query: &ReservationQuery,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> (Vec<Reservation>, bool) {
        let mut found = self
            .details
            .range(ReservationId(after)..)
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
                        .is_none_or(|series| detail.series.map(reported::number) == Some(series))
                    && query.since_ms.is_none_or(|since| end > book_moment(since))
                    && query
                        .before_ms
                        .is_none_or(|before| start < book_moment(before))
                    && asker.may(Permission::Read, &subject).is_ok()
            });
        let page = found.by_ref().take(limit);
        let page = page.filter_map(|(id, _)| self.one(*id, now)).collect();
        (page, found.next().is_some())
    }
}

/// Returns the state of a reservation in one word.
pub(super) fn state(reservation: &Booked) -> String {
    let machine = reservation.machine;
    let word = match (machine.life, machine.reserve, machine.provision) {
        (Life::Failed, ..) => "failed",
        (Life::PassedEndTime, ..) => "past its end",
        (Life::Terminating | Life::Terminated, ..) => "ended",
        (Life::Created, Reserve::Held, _) => "held",
        (Life::Created, Reserve::Timeout, None) => "not committed in time",
        (Life::Created, _, None) => "not reserved",
        (Life::Created, _, Some(Provision::Released | Provision::Releasing)) => "reserved",
        (Life::Created, _, Some(Provision::Provisioned | Provision::Provisioning)) => "provisioned",
    };
    word.to_owned()
}

/// Formats a refusal in one line.
pub(super) fn in_a_line(refusal: &Refusal) -> String {
    let what = match &refusal.proof {
        Proof::Cut {
            links,
            rate_bps,
            until_ms,
        } => {
            let names: Vec<&str> = links
                .iter()
                .map(|full| full.link.link.as_str())
                .take(MAX_NAMED)
                .collect();
            let more = if links.len() > MAX_NAMED {
                " and others"
            } else {
                ""
            };
            let (rate, names) = (rate(*rate_bps), names.join(", "));
            match (names.is_empty(), until_ms) {
                (true, _) => "no links of the map join the ends".to_owned(),
                (false, Some(_)) => format!("{rate} is left on {names}{more}"),
                (false, None) => format!("{rate} is all that {names}{more} can promise"),
            }
        }
        Proof::Volume { links, bytes } => {
            let names: Vec<&str> = links
                .iter()
                .map(|full| full.link.link.as_str())
                .take(MAX_NAMED)
                .collect();
            format!("{bytes} bytes pass {} in that window", names.join(", "))
        }
        Proof::Stretches { bytes } => format!("{bytes} bytes go in that window"),
        Proof::Searched { all_bps } => {
            format!(
                "no choice of so many paths carries it; all paths carry {}",
                rate(*all_bps)
            )
        }
        Proof::Unknown => "no paths were found that carry it; more paths may".to_owned(),
    };
    let which = refusal
        .occurrence
        .map(|place| format!("window {place}: "))
        .unwrap_or_default();
    let offers = &refusal.offers;
    let is_any = offers.later.is_some() || offers.slower.is_some() || offers.volume.is_some();
    let else_what = match (is_any, offers.left_out) {
        (true, _) => "ask for one of the offers",
        (false, true) => "ask again for offers, for less, or at another time",
        (false, false) => "ask for less, or at another time",
    };
    format!("{which}no room: {what}; {else_what}")
}

fn rate(bps: u64) -> Rate {
    Rate::nearest(bps as f64)
}
