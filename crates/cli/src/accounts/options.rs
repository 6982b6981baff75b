//! Options of the services that keep accounts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use longhaul_accounts::{AccountLog, AccountOptions, RotationLimits};
use longhaul_service::MetricsPage;
use quantities::{ByteCount, Time};

use crate::quantity::{positive_bytes, positive_time};

/// Time for the last records to become durable when the service ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of a service that keeps accounts.
#[derive(Args)]
#[command(next_help_heading = "Accounts")]
pub struct AccountsOptions {
    /// Append a record of each copy or session to this file, as a line of JSON (see longhaul
    /// accounts) [default: none].
    #[arg(long, value_name = "FILE")]
    accounts: Option<PathBuf>,
    /// Send each record to the journal of systemd as well, or instead.
    #[arg(long)]
    accounts_journal: bool,
    /// Size from which the file is rotated.
    #[arg(
        long,
        value_name = "SIZE",
        default_value_t = ByteCount(RotationLimits::default().max_bytes),
        value_parser = positive_bytes,
    )]
    accounts_size: ByteCount,
    /// Age of its first record from which the file is rotated.
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = Time(RotationLimits::default().max_age),
        value_parser = positive_time,
    )]
    accounts_age: Time,
    /// Maximum number of rotated files. The oldest are removed.
    #[arg(long, value_name = "N", default_value_t = RotationLimits::default().max_files)]
    accounts_files: usize,
}

impl AccountsOptions {
    /// Opens the log of the accounts, if they are to be kept.
    ///
    /// # Errors
    /// The file or the journal cannot be opened.
    pub fn open(&self) -> Result<Option<AccountLog>> {
        if self.accounts.is_none() && !self.accounts_journal {
            return Ok(None);
        }
        let log = AccountLog::open(&AccountOptions {
            file: self.accounts.clone(),
            rotation: RotationLimits {
                max_bytes: self.accounts_size.0,
                max_age: self.accounts_age.0,
                max_files: self.accounts_files,
            },
            journal: self.accounts_journal,
        })?;
        Ok(Some(log))
    }
}

/// Makes the last records durable when a service ends.
pub fn flush(log: Option<&AccountLog>) {
    if log.is_some_and(|log| !log.flush(FLUSH_TIMEOUT)) {
        tracing::error!("the last records of the accounts could not be written");
    }
}

/// Returns the metrics of the accounts, for the page of a service.
pub fn metrics(log: &AccountLog) -> MetricsPage {
    let log = log.clone();
    MetricsPage::new(move || log.metrics_page())
}
