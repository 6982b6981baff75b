//! Requests about reservations across domains.

use longhaul_control_api::domains::{
    DomainReservation, DomainReservationList, DomainReservationRequest, KnownDomains,
};

use super::ControllerClient;
use crate::error::ClientError;

impl ControllerClient {
    /// Requests bandwidth between an end of the controller's domain and one of another domain.
    /// `key` is the idempotency key: a repeated request with the same key reserves once.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn reserve_across(
        &self,
        request: &DomainReservationRequest,
        key: &str,
    ) -> Result<DomainReservation, ClientError> {
        self.ask_with_retries(|client| {
            client.ask("POST", "/domain/reservations", Some(request), Some(key))
        })
        .await
    }

    /// Requests all reservations across domains that the caller may see.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn domain_reservations(&self) -> Result<DomainReservationList, ClientError> {
        self.ask("GET", "/domain/reservations", None::<&()>).await
    }

    /// Requests the domains that the controller knows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn domains(&self) -> Result<KnownDomains, ClientError> {
        self.ask("GET", "/domain/topology", None::<&()>).await
    }
}
