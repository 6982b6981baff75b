//! `--by` and `--reserve`, of `cp` and of jobs.

use anyhow::{Result, anyhow, bail};
use clap::Args;
use jiff::{Timestamp, Zoned};
use longhaul_deadline::ReservationMode;
use longhaul_proto::text::printable;
use quantities::Rate;

use crate::moment;
use crate::quantity::positive_rate;

/// Deadline of a copy, and what may be reserved for it.
#[derive(Args, Debug, Clone, Default)]
pub struct DeadlineOptions {
    /// Finish by then: 18:00, 'Fri 18:00', '2026-11-27 18:00', +2h. What best effort is not sure to
    /// carry by that time is reserved at the controller, and returned as soon as it is not needed.
    /// lh:// only.
    #[arg(long, value_name = "TIME")]
    by: Option<String>,
    /// Bandwidth to reserve: `auto`, what the deadline needs; `never`; or a rate, such as 2G, for
    /// as long as the copy is expected to take, also without --by. [default: auto with --by, else
    /// never]
    #[arg(long, value_name = "auto|never|RATE", value_parser = reserve)]
    reserve: Option<ReserveMode>,
}

/// Value of `--reserve`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReserveMode {
    Auto,
    Never,
    Rate(Rate),
}

fn reserve(text: &str) -> Result<ReserveMode, String> {
    match text {
        "auto" => Ok(ReserveMode::Auto),
        "never" => Ok(ReserveMode::Never),
        rate => positive_rate(rate)
            .map(ReserveMode::Rate)
            .map_err(|why| format!("write auto, never or a rate: {why}")),
    }
}

/// The parsed options.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadlineSettings {
    /// The deadline, if there is one.
    pub by: Option<Zoned>,
    /// Bandwidth that may be reserved.
    pub mode: ReservationMode,
}

impl DeadlineOptions {
    /// Returns true if either option is given.
    pub fn is_given(&self) -> bool {
        self.by.is_some() || self.reserve.is_some()
    }

    /// Parses the options. Returns `None` if neither is given.
    ///
    /// # Errors
    /// The deadline is invalid or in the past, or a reservation has no purpose.
    pub fn settings(&self, now: &Zoned) -> Result<Option<DeadlineSettings>> {
        let by = self.by.as_deref().map(|text| {
            let shown = printable(text.as_bytes());
            let by = moment::read(text, now).map_err(|why| anyhow!("--by {shown}: {why}"))?;
            // An absolute timestamp comes from a job: the job may start after its deadline, and
            // still has to copy.
            if by <= *now && text.parse::<Timestamp>().is_err() {
                bail!("--by {shown}: that is in the past: write a time in the future");
            }
            Ok(by)
        });
        let by = by.transpose()?;
        let mode = match (self.reserve, &by) {
            (Some(ReserveMode::Auto), None) => {
                bail!("--reserve auto needs a deadline: give --by, or a rate to reserve")
            }
            (Some(ReserveMode::Rate(rate)), _) => ReservationMode::Rate(rate.bits_per_second()),
            (Some(ReserveMode::Auto) | None, Some(_)) => ReservationMode::Auto,
            (Some(ReserveMode::Never), Some(_)) => ReservationMode::Never,
            (Some(ReserveMode::Never) | None, None) => return Ok(None),
        };
        Ok(Some(DeadlineSettings { by, mode }))
    }

    /// Converts the options for a job, with a deadline that means the same whenever the job runs.
    ///
    /// # Errors
    /// As [`Self::settings`].
    pub fn for_job(&self, now: &Zoned) -> Result<(Option<String>, Option<String>)> {
        let by = self.settings(now)?.and_then(|wanted| wanted.by);
        let by = by.map(|by| by.timestamp().to_string());
        let reserve = self.reserve.map(|reserve| match reserve {
            ReserveMode::Auto => "auto".to_owned(),
            ReserveMode::Never => "never".to_owned(),
            ReserveMode::Rate(rate) => rate.bits_per_second().to_string(),
        });
        Ok((by, reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_options_are_parsed() {
        let now: Zoned = "2026-11-25T12:30:00Z[UTC]".parse().unwrap();
        let wanted = |by: Option<&str>, what: Option<&str>| {
            let options = DeadlineOptions {
                by: by.map(str::to_owned),
                reserve: what.map(|what| reserve(what).unwrap()),
            };
            options.settings(&now).map_err(|error| error.to_string())
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
        assert!(reserve("much").is_err());
    }
}
