//! Registration of vouchers for which OPENs have no room (LH-VOUCHER-8).

use std::io;
use std::time::Duration;

use longhaul_hop::{Conn, unix_ms};
use longhaul_proto::{Open, Status, StatusCode};
use longhaul_service::RegistrationError;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::refusal::DepotRefusal;
use crate::state::DepotState;

/// Registers the voucher behind `open` at this depot within `limit`, and answers as its acceptor.
/// Returns the reason if it refuses. No hop is dialled.
///
/// # Errors
/// The peer died or ended its stream within the voucher, or the voucher is too long.
pub(crate) async fn serve(
    shared: &DepotState,
    upstream: &mut Conn,
    open: &Open,
    early: &[u8],
    limit: Duration,
) -> io::Result<Option<DepotRefusal>> {
    let registered = async {
        let admission = &shared.admission;
        admission.register(open, early, upstream, unix_ms()).await?;
        let status = Status::from_acceptor(StatusCode::Ok, open.position());
        let answer = status.into_answer(&shared.key, Some(open));
        upstream.write_all(&answer).await?;
        Ok::<_, RegistrationError>(())
    };
    match timeout(limit, registered).await {
        Ok(Ok(())) => Ok(None),
        Ok(Err(RegistrationError::Lost(error))) => Err(error),
        Ok(Err(RegistrationError::Refused(refusal))) => Ok(Some(refusal.into())),
        Err(_) => Ok(Some(DepotRefusal::new(StatusCode::HeaderTimeout, ""))),
    }
}
