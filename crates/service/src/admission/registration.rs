//! Registration of vouchers for which OPENs have no room (LH-VOUCHER-8).

use std::io;

use longhaul_hop::read_announced;
use longhaul_proto::{
    MAX_VOUCHER_BYTES, NextReceiver, Open, OpenRefusal, ServiceName, VoucherFault,
};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::OpenAdmission;

/// Reason why a voucher is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The OPEN is refused, or the voucher is not believed. The initiator is to be told.
    #[error(transparent)]
    Refused(#[from] OpenRefusal),
    /// The stream ended within the voucher, or the voucher is longer than any can be.
    #[error(transparent)]
    Lost(#[from] io::Error),
}

/// Returns true if the OPEN registers a voucher with its receiver.
#[must_use]
pub fn is_registration(open: &Open) -> bool {
    open.service == ServiceName::VOUCHER && open.next_receiver() == NextReceiver::Here
}

impl OpenAdmission {
    /// Checks an OPEN that registers a voucher, reads the voucher from behind it, and remembers it
    /// until it ends. `early` is what has been read of `stream` already.
    ///
    /// Nothing else is remembered, so a repeated OPEN changes nothing. The caller limits the time.
    ///
    /// # Errors
    /// [`RegistrationError`].
    pub async fn register(
        &self,
        open: &Open,
        early: &[u8],
        stream: &mut (impl AsyncRead + Unpin),
        now_unix_ms: u64,
    ) -> Result<(), RegistrationError> {
        let reads_vouchers = self.identities.file().is_some();
        let offers = |service: &ServiceName| reads_vouchers && *service == ServiceName::VOUCHER;
        self.checks
            .check_at_acceptor(open, now_unix_ms, |_| true, offers)?;
        let voucher = receive_voucher(early, stream).await?;
        let registered = self.identities.register(&open.principal, &voucher).await;
        registered.map_err(|fault: VoucherFault| OpenRefusal::from(fault).into())
    }
}

/// Reads the length of a voucher (2 bytes) and the voucher.
async fn receive_voucher(
    early: &[u8],
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Vec<u8>> {
    let mut input = early.chain(stream);
    let length = input.read_u16().await?;
    if usize::from(length) > MAX_VOUCHER_BYTES {
        let long = "a voucher longer than 16 KiB";
        return Err(io::Error::new(io::ErrorKind::InvalidData, long));
    }
    read_announced(&mut input, length.into()).await
}
