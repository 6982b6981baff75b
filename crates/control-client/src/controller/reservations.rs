//! Requests about reservations. A retry has the same idempotency key as the first attempt, so it
//! takes effect once.

use longhaul_control_api::grants::{GrantsInUse, Renewals};
use longhaul_control_api::reservations::{
    PathGrants, RefusedProblem, Reservation, ReservationChange, ReservationPage, ReservationQuery,
    ReservationRequest, Reserved,
};
use serde::Serialize;

use super::{ControllerClient, path_with_query};
use crate::client::ServiceClient;
use crate::error::ClientError;

/// Number of reservations per page.
const PAGE_SIZE: u32 = 1000;

/// Answer to a reservation request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationAnswer {
    /// The request was granted.
    Reserved(Reserved),
    /// There is not enough bandwidth.
    InsufficientBandwidth(Box<RefusedProblem>),
}

/// Action on a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationAction {
    /// Commit what is held.
    Commit,
    /// Return what is held.
    Abort,
    /// Set up its paths in its window.
    Provision,
    /// Tear down its paths.
    Release,
    /// Cancel it.
    Cancel {
        /// If true, cancels the whole series.
        series: bool,
    },
}

impl ControllerClient {
    /// Requests bandwidth. `key` is the idempotency key: a repeated request with the same key gets
    /// the first answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reserve(
        &self,
        request: &ReservationRequest,
        key: &str,
    ) -> Result<ReservationAnswer, ClientError> {
        self.request_grant("POST", "/reservations", request, key)
            .await
    }

    /// Requests a change of a reservation.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_reservation(
        &self,
        id: u64,
        change: &ReservationChange,
        key: &str,
    ) -> Result<ReservationAnswer, ClientError> {
        self.request_grant("PATCH", &format!("/reservations/{id}"), change, key)
            .await
    }

    /// Performs an action on a reservation.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn act_on_reservation(
        &self,
        id: u64,
        action: ReservationAction,
        key: &str,
    ) -> Result<Reserved, ClientError> {
        let (method, rest) = match action {
            ReservationAction::Commit => ("POST", "/commit"),
            ReservationAction::Abort => ("POST", "/abort"),
            ReservationAction::Provision => ("POST", "/provision"),
            ReservationAction::Release => ("POST", "/release"),
            ReservationAction::Cancel { series: false } => ("DELETE", ""),
            ReservationAction::Cancel { series: true } => ("DELETE", "?series=true"),
        };
        let path = format!("/reservations/{id}{rest}");
        self.ask_with_retries(|client| client.ask(method, &path, None::<&()>, Some(key)))
            .await
    }

    /// Requests a reservation.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reservation(&self, id: u64) -> Result<Reservation, ClientError> {
        self.ask("GET", &format!("/reservations/{id}"), None::<&()>)
            .await
    }

    /// Requests the grants with which this key's sessions use the reservation's paths at their
    /// depots, now or in the next piece of its time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn grants(&self, id: u64) -> Result<PathGrants, ClientError> {
        self.ask("GET", &format!("/reservations/{id}/grants"), None::<&()>)
            .await
    }

    /// Renews grants that the depot with this key has in use.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn renew_grants(&self, in_use: &GrantsInUse) -> Result<Renewals, ClientError> {
        self.ask("POST", "/grants/renewals", Some(in_use)).await
    }

    /// Requests all reservations that match a query, page by page.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reservations(
        &self,
        query: &ReservationQuery,
    ) -> Result<Vec<Reservation>, ClientError> {
        let mut query = ReservationQuery {
            limit: Some(PAGE_SIZE),
            ..query.clone()
        };
        let mut all = Vec::new();
        loop {
            let path = path_with_query("/reservations", &query)?;
            let page: ReservationPage = self.ask("GET", &path, None::<&()>).await?;
            all.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }

    async fn request_grant(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
        key: &str,
    ) -> Result<ReservationAnswer, ClientError> {
        self.ask_with_retries(|client| request_grant_once(client, method, path, body, key))
            .await
    }
}

async fn request_grant_once(
    client: &ServiceClient,
    method: &str,
    path: &str,
    body: &impl Serialize,
    key: &str,
) -> Result<ReservationAnswer, ClientError> {
    let response = client.send(method, path, Some(body), Some(key)).await?;
    let (status, bytes) = client.read_body(response).await?;
    if status.is_success() {
        let read = serde_json::from_slice(&bytes).map(ReservationAnswer::Reserved);
        return read.map_err(|error| client.malformed_answer(error.to_string()));
    }
    // A problem document without a proof is another kind of problem.
    match serde_json::from_slice(&bytes) {
        Ok(refused) => Ok(ReservationAnswer::InsufficientBandwidth(Box::new(refused))),
        Err(_) => Err(client.problem_error(status, &bytes)),
    }
}
