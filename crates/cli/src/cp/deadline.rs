//! `--by` and `--reserve`, of `cp` and of jobs, and the copy as its deadline sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use jiff::{Timestamp, Zoned};
use longhaul_copy_api::{CopyEvent, RouteVerdict};
use longhaul_deadline::ReservationMode;
use longhaul_deadline_driver::{DeadlineSettings, ObservedCopy};
use longhaul_proto::text::printable;
use longhaul_transfer::{ReservedRoute, TransferProgress};

use crate::moment;
use crate::trust::RememberingConnector;
use crate::watch::CopyWatch;

/// Parses the options. Returns `None` if neither is given.
///
/// # Errors
/// The deadline is invalid or in the past, or a reservation has no purpose.
pub fn parse(
    by: Option<&str>,
    reserve: Option<ReservationMode>,
    now: &Zoned,
) -> Result<Option<DeadlineSettings>> {
    let by = by.map(|text| {
        let shown = printable(text.as_bytes());
        let by = moment::read(text, now).map_err(|why| anyhow!("--by {shown}: {why}"))?;
        // An absolute timestamp comes from a job: the job may start after its deadline, and still
        // has to copy.
        if by <= *now && text.parse::<Timestamp>().is_err() {
            bail!("--by {shown}: that is in the past: write a time in the future");
        }
        Ok(by)
    });
    let by = by.transpose()?;
    let mode = match (reserve, &by) {
        (Some(ReservationMode::Auto), None) => {
            bail!("--reserve auto needs a deadline: give --by, or a rate to reserve")
        }
        (Some(ReservationMode::Never) | None, None) => return Ok(None),
        (mode, _) => mode.unwrap_or(ReservationMode::Auto),
    };
    Ok(Some(DeadlineSettings { by, mode }))
}

/// A copy of this command, as its deadline observes it.
pub struct AccompaniedCopy {
    /// Opener of the copy's sessions.
    pub connector: Arc<RememberingConnector>,
    /// Observer of the copy.
    pub watch: Arc<CopyWatch>,
}

impl ObservedCopy for AccompaniedCopy {
    fn progress(&self) -> &Arc<TransferProgress> {
        &self.watch.progress
    }

    fn verdicts(&self) -> Vec<RouteVerdict> {
        self.watch.judged()
    }

    fn lost_on_reserved(&self) -> BTreeMap<String, String> {
        self.watch.lost_on_reserved()
    }

    fn use_reserved(&self, reserved: &[ReservedRoute]) {
        self.connector.use_reserved(reserved);
    }

    fn print_event(&self, event: CopyEvent) {
        self.watch.print_event(event);
    }

    fn notice(&self, text: &str) {
        self.watch.notice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_options_are_parsed() {
        let now: Zoned = "2026-11-25T12:30:00Z[UTC]".parse().unwrap();
        let wanted = |by: Option<&str>, what: Option<&str>| {
            let reserve = what.map(|what| what.parse().unwrap());
            parse(by, reserve, &now).map_err(|error| error.to_string())
        };
        assert_eq!(wanted(None, None), Ok(None));
        assert_eq!(wanted(None, Some("never")), Ok(None));
        let mode = |by, what| wanted(by, what).unwrap().unwrap().mode;
        assert_eq!(mode(Some("Fri 18:00"), None), ReservationMode::Auto);
        assert_eq!(
            mode(Some("Fri 18:00"), Some("never")),
            ReservationMode::Never
        );
        assert_eq!(mode(None, Some("2G")), ReservationMode::Rate(2e9));
        assert!(wanted(None, Some("auto")).unwrap_err().contains("--by"));
        for by in ["2001-01-01", "now"] {
            assert!(
                wanted(Some(by), None).unwrap_err().contains("in the past"),
                "{by}"
            );
        }
        assert_eq!(
            mode(Some("2001-01-01T00:00:00Z"), None),
            ReservationMode::Auto
        );
        assert!(
            wanted(Some("soon"), None)
                .unwrap_err()
                .contains("not a moment")
        );
        assert!("much".parse::<ReservationMode>().is_err());
    }
}
