//! Requests for reservations as commands, with the rights and the ends of the callers.

use longhaul_api::Caller;
use longhaul_circuits::ledger::ReservationId;
use longhaul_control_api::reservations::ReservationRequest;
use longhaul_proto::PublicKey;

use super::Controller;
use crate::reservations::delegated::{self, RecordedDelegation};
use crate::reservations::parse::{ParsedRequest, parse};
use crate::reservations::recurrence::{RuleFault, windows};
use crate::reservations::wanted::InvalidReservation;
use crate::reservations::writer::AskError;
use crate::reservations::{ReservationCommand, ReservationError, book_moment};
use crate::store::StoreError;

impl Controller {
    /// Converts a request into a command. Returns it with the caller in whose name it is made: a
    /// delegate's principal, else the caller itself.
    ///
    /// # Errors
    /// The request is invalid, its delegation does not permit it, or this controller does not lead.
    pub async fn reservation_command(
        &self,
        caller: &Caller,
        request: ReservationRequest,
        document: Option<String>,
    ) -> Result<(Caller, ReservationCommand), AskError> {
        let leadership = self.leadership();
        if leadership.term().is_none() {
            // A controller that does not lead may have an outdated map.
            let leader = leadership.leader_url().map(str::to_owned);
            return Err(StoreError::NotLeading { leader }.into());
        }
        let command = self.parse_request(caller, request, document).await;
        Ok(command?)
    }

    async fn parse_request(
        &self,
        caller: &Caller,
        request: ReservationRequest,
        document: Option<String>,
    ) -> Result<(Caller, ReservationCommand), ReservationError> {
        let now = book_moment(self.book().now());
        let mut parsed = parse(request, &self.places(), caller.key.is_none(), now)?;
        let (owner, delegation) = match parsed.request.delegation.take() {
            None => (caller.clone(), None),
            Some(text) => {
                let (owner, given) = self.verify_delegation(caller, text, &parsed)?;
                (owner, Some(given))
            }
        };
        let ParsedRequest {
            mut request,
            from,
            to,
            window,
        } = parsed;
        let is_end = self
            .speaker(&owner)
            .is_some_and(|speaker| speaker.speaks_for(&from.name) || speaker.speaks_for(&to.name));
        let windows = match request.recurrence.clone() {
            None => vec![window],
            Some(recurrence) => {
                // The expansion of a rule can take some time.
                let found = tokio::task::spawn_blocking(move || windows(window, &recurrence)).await;
                let failed = |_| RuleFault::Rule("it cannot be expanded".to_owned());
                let found = found.map_err(failed).flatten();
                found.map_err(InvalidReservation::from)?
            }
        };
        // Offers repeat the request, so they are made under the same delegation.
        request.delegation = delegation.as_ref().map(|given| given.text.clone());
        let command = ReservationCommand::Reserve {
            request: Box::new(request),
            from,
            to,
            windows,
            is_end,
            document: document.map(String::into_boxed_str),
            delegation: delegation.map(Box::new),
        };
        Ok((owner, command))
    }

    /// Verifies a delegate's request. Returns the principal, and what the journal records.
    fn verify_delegation(
        &self,
        caller: &Caller,
        text: String,
        parsed: &ParsedRequest,
    ) -> Result<(Caller, RecordedDelegation), ReservationError> {
        let delegate = caller.key.ok_or(InvalidReservation::UnsignedDelegate)?;
        let keys = (&delegate, &self.settings().key);
        let ends = (&parsed.from, &parsed.to);
        let places = self.places();
        let (map, now) = (&places.known.map, self.book().now());
        let principal = delegated::verify(&text, &parsed.request, ends, map, keys, now)?;
        let recorded = RecordedDelegation {
            delegate: delegate.to_string(),
            delegate_name: caller.user.clone(),
            text,
        };
        Ok((self.caller(principal), recorded))
    }

    /// Returns the caller in whose name `caller` acts on a reservation: the owner if `caller`
    /// requested it as the owner's delegate, else `caller` itself.
    ///
    /// # Errors
    /// The journal cannot be read at the moment.
    pub async fn acting_for(
        &self,
        caller: &Caller,
        id: ReservationId,
    ) -> Result<Caller, StoreError> {
        let Some(key) = caller.key else {
            return Ok(caller.clone());
        };
        let key = key.to_string();
        let owner = self.book().read(|desk, _| {
            let owner = desk.delegating_owner(&key, id)?;
            owner.parse().ok()
        });
        let owner: Option<PublicKey> = owner.await?;
        Ok(owner.map_or_else(|| caller.clone(), |owner| self.caller(owner)))
    }
}
