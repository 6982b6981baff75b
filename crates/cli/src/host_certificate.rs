//! The certificate by which `longhaul serve` proves its name (LH-VOUCHER-6).

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use longhaul_hop::unix_ms;
use longhaul_identity::{VouchRequest, vouch};
use longhaul_proto::{MAX_VOUCHER_LIFETIME, PublicKey};
use longhaul_session::ServerVoucher;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::{failure, home};

/// Interval at which the files are read again. Certificates of hosts are often short-lived.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

/// Files of a host's certificate and its private key.
#[derive(Debug, Clone)]
pub struct HostCertificate {
    key: PublicKey,
    certificate: PathBuf,
    private_key: PathBuf,
}

impl HostCertificate {
    /// Creates it for the server with this key.
    pub const fn new(key: PublicKey, certificate: PathBuf, private_key: PathBuf) -> Self {
        Self {
            key,
            certificate,
            private_key,
        }
    }

    /// Reads the files, and lets the certificate vouch for the server's key from now on.
    ///
    /// # Errors
    /// A file cannot be read, or cannot be used.
    pub fn renew(&self, proof: &ServerVoucher) -> Result<()> {
        let read = |file: &PathBuf| {
            let bytes = std::fs::read(file).map(Zeroizing::new);
            bytes.with_context(|| format!("cannot read {}", home::display_path(file)))
        };
        let voucher = vouch(&VouchRequest {
            key: self.key,
            certificates: &read(&self.certificate)?,
            private_key: &read(&self.private_key)?,
            now_unix_ms: unix_ms(),
            lifetime: MAX_VOUCHER_LIFETIME,
        })
        .with_context(|| home::display_path(&self.certificate))?;
        proof.replace(voucher);
        Ok(())
    }

    /// Renews the voucher, or logs why that failed. The previous one then stays until its end.
    pub fn renew_or_log(&self, proof: &ServerVoucher) {
        if let Err(error) = self.renew(proof) {
            tracing::error!(
                "the certificate was not read again, the previous one stays in use: {}",
                failure::format_line(&error)
            );
        }
    }

    /// Renews the voucher every hour.
    pub async fn renew_hourly(&self, proof: &ServerVoucher) -> Infallible {
        loop {
            sleep(RENEWAL_INTERVAL).await;
            self.renew_or_log(proof);
        }
    }
}
