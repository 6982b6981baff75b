//! The voucher by which a server proves its name to clients that ask for it (LH-VOUCHER-6).

use std::sync::Arc;

use longhaul_proto::Voucher;
use parking_lot::RwLock;

/// Voucher of a server's certificate, which can be replaced at any time; none at first.
#[derive(Debug, Default)]
pub struct ServerVoucher(RwLock<Option<Arc<Voucher>>>);

impl ServerVoucher {
    /// Proves the server by this voucher from now on.
    pub fn replace(&self, voucher: Voucher) {
        *self.0.write() = Some(Arc::new(voucher));
    }

    /// Returns the voucher, unless it has ended.
    pub(crate) fn current(&self, now_unix_ms: u64) -> Option<Arc<Voucher>> {
        let voucher = self.0.read().clone();
        voucher.filter(|voucher| voucher.check_time(now_unix_ms).is_ok())
    }
}
