//! Requests about reservations. A retry has the same idempotency key as the first attempt, so it
//! takes effect once.

use longhaul_control_api::grants::{GrantsInUse, Renewals};
use longhaul_control_api::reservations::{
    PathGrants, RefusedProblem, Reservation, ReservationChange, ReservationPage, ReservationQuery,
    ReservationRequest, Reserved,
};
use serde::Serialize;

use super::{Controller, encoded};
use crate::client::ServiceClient;
use crate::error::ClientError;

/// Number of reservations per page.
const PAGE: u32 = 1000;

/// Answer to a reservation request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granted {
    /// The request was granted.
    Reserved(Reserved),
    /// There is not enough bandwidth.
    NoRoom(Box<RefusedProblem>),
}

/// Action on a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
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

impl Controller {
    /// Requests bandwidth. `key` is the idempotency key: a repeated request with the same key gets
    /// the first answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reserve(
        &self,
        request: &ReservationRequest,
        key: &str,
    ) -> Result<Granted, ClientError> {
        self.granted("POST", "/reservations", request, key).await
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
    ) -> Result<Granted, ClientError> {
        self.granted("PATCH", &format!("/reservations/{id}"), change, key)
            .await
    }

    /// Performs an action on a reservation.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn act_on_reservation(
        &self,
        id: u64,
        action: Action,
        key: &str,
    ) -> Result<Reserved, ClientError> {
        let (method, rest) = match action {
            Action::Commit => ("POST", "/commit"),
            Action::Abort => ("POST", "/abort"),
            Action::Provision => ("POST", "/provision"),
            Action::Release => ("POST", "/release"),
            Action::Cancel { series: false } => ("DELETE", ""),
            Action::Cancel { series: true } => ("DELETE", "?series=true"),
        };
        let path = format!("/reservations/{id}{rest}");
        self.insist(|client| client.ask(method, &path, None::<&()>, Some(key)))
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
        let (mut all, mut after) = (Vec::new(), query.after.clone());
        loop {
            let path = path_of(query, after.as_deref());
            let page: ReservationPage = self.ask("GET", &path, None::<&()>).await?;
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    async fn granted(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
        key: &str,
    ) -> Result<Granted, ClientError> {
        self.insist(|client| granted_once(client, method, path, body, key))
            .await
    }
}

async fn granted_once(
    client: &ServiceClient,
    method: &str,
    path: &str,
    body: &impl Serialize,
    key: &str,
) -> Result<Granted, ClientError> {
    let response = client.send(method, path, Some(body), Some(key)).await?;
    let (status, bytes) = client.whole(response).await?;
    if status.is_success() {
        let read = serde_json::from_slice(&bytes).map(Granted::Reserved);
        return read.map_err(|error| client.not_understood(error.to_string()));
    }
    // A problem document without a proof is another kind of problem.
    match serde_json::from_slice(&bytes) {
        Ok(refused) => Ok(Granted::NoRoom(Box::new(refused))),
        Err(_) => Err(client.problem(status, &bytes)),
    }
}

fn path_of(query: &ReservationQuery, after: Option<&str>) -> String {
    let fields = [
        ("active", query.active.map(|active| active.to_string())),
        ("own", query.own.map(|own| own.to_string())),
        ("series", query.series.map(|series| series.to_string())),
        ("since_ms", query.since_ms.map(|since| since.to_string())),
        (
            "before_ms",
            query.before_ms.map(|before| before.to_string()),
        ),
        ("after", after.map(encoded)),
    ];
    let mut path = format!("/reservations?limit={PAGE}");
    for (name, value) in fields {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={value}"));
        }
    }
    path
}
