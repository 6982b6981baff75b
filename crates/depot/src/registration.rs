//! Registration of vouchers for which OPENs have no room (LH-VOUCHER-8).

use std::time::Duration;

use longhaul_hop::{Conn, unix_ms};
use longhaul_proto::{Open, Status, StatusCode};
use longhaul_service::RegistrationError;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::refusal::DepotRefusal;
use crate::setup::SetupFailure;
use crate::state::DepotState;

/// Registers the voucher behind `open` at this depot within `limit`, and answers as its acceptor.
/// Returns how the set-up ends. No hop is dialled.
pub(crate) async fn serve(
    shared: &DepotState,
    upstream: &mut Conn,
    open: Open,
    early: &[u8],
    limit: Duration,
) -> SetupFailure {
    let registered = async {
        let admission = &shared.admission;
        admission
            .register(&open, early, upstream, unix_ms())
            .await?;
        let status = Status::from_acceptor(StatusCode::Ok, open.position());
        let answer = status.into_answer(&shared.key, Some(&open));
        upstream.write_all(&answer).await?;
        Ok::<_, RegistrationError>(())
    };
    let why = match timeout(limit, registered).await {
        Ok(Ok(())) => return SetupFailure::Empty,
        Ok(Err(RegistrationError::Lost(error))) => return SetupFailure::Lost(error),
        Ok(Err(RegistrationError::Refused(refusal))) => DepotRefusal::from(refusal),
        Err(_) => DepotRefusal::new(StatusCode::HeaderTimeout, ""),
    };
    SetupFailure::Refused(Some(Box::new(open)), why)
}
