//! Report on a deadline and its reservations, for programs and for people.

use jiff::{Timestamp, Zoned};
use longhaul_control_api::forecasts::Spread;
use longhaul_control_api::reservations::Offers;
use longhaul_deadline::{PlanReason, Planner, ReservationMode};
use quantities::{ByteCount, Rate, Time};
use serde::Serialize;

use crate::ends::MapEnds;
use crate::routes::ReservedRouteReport;

/// The part of a copy's report about its deadline.
#[derive(Debug, Serialize)]
pub struct DeadlineReport {
    /// The deadline (RFC 3339); null if a rate was reserved without one.
    pub by: Option<String>,
    /// True if everything was copied by the deadline; null without a deadline, or if the copy ended
    /// early before it.
    pub met: Option<bool>,
    /// Seconds from the end of the copy to the deadline; negative if it was missed.
    pub early_seconds: Option<f64>,
    /// `auto`, `never` or `rate`.
    pub reserve: &'static str,
    /// The last decision, in one word.
    pub decision: &'static str,
    /// The sending end on the controller's map.
    pub from: Option<String>,
    /// The receiving end.
    pub to: Option<String>,
    /// Number of the last reservation.
    pub reservation: Option<u64>,
    /// Bytes that were promised in all.
    pub reserved_bytes: u64,
    /// The part of them that was returned early.
    pub returned_bytes: u64,
    /// Maximum number of simultaneous paths.
    pub paths: usize,
    /// The reserved routes of the copy.
    pub ways: Vec<ReservedRouteReport>,
    /// Number of requests to the controller for bandwidth.
    pub requests: u32,
    /// Latest forecast of best effort, in bit/s.
    pub best_effort_bps: Option<Spread>,
    /// The controller's offers when it lacked capacity.
    pub offers: Option<Offers>,
    /// Reason why nothing could be reserved, in one line.
    pub error: Option<String>,
    /// True if every reservation is returned or over. Otherwise it lasts until its end, or until
    /// the next copy returns it.
    pub returned: bool,
    /// One line for people.
    #[serde(skip)]
    pub summary: String,
    /// The steps in order, one line each.
    #[serde(skip)]
    pub lines: Vec<String>,
}

/// Data that the report is built from.
pub struct ReportInput<'a> {
    pub by: Option<&'a Zoned>,
    pub mode: ReservationMode,
    pub planner: &'a Planner,
    pub ends: Option<&'a MapEnds>,
    pub reservation: Option<u64>,
    pub offers: Option<&'a Offers>,
    pub error: Option<&'a str>,
    /// The steps in order, one line each.
    pub steps: Vec<String>,
    pub routes: Vec<ReservedRouteReport>,
}

impl DeadlineReport {
    /// Builds the report at the end of a copy. `is_done` is true if the copy completed.
    pub fn new(input: ReportInput<'_>, ended: Timestamp, is_done: bool) -> Self {
        let planner = input.planner;
        let account = planner.account();
        let bytes = |bytes: f64| bytes.max(0.0) as u64;
        let early = input
            .by
            .map(|by| by.timestamp().duration_since(ended).as_secs_f64());
        let met = early.and_then(|early| match (is_done, early >= 0.0) {
            (true, met) => Some(met),
            (false, false) => Some(false),
            (false, true) => None,
        });
        let mut report = Self {
            by: input.by.map(|by| by.timestamp().to_string()),
            met,
            early_seconds: early,
            reserve: match input.mode {
                ReservationMode::Auto => "auto",
                ReservationMode::Never => "never",
                ReservationMode::Rate(_) => "rate",
            },
            decision: decision(planner.reason()),
            from: input.ends.map(|ends| ends.from.clone()),
            to: input.ends.map(|ends| ends.to.clone()),
            reservation: input.reservation,
            reserved_bytes: bytes(account.reserved),
            returned_bytes: bytes(account.returned),
            paths: account.paths,
            ways: input.routes,
            requests: planner.requests(),
            best_effort_bps: planner.expected().map(|rates| Spread {
                p10: rates.p10,
                p50: rates.p50,
                p90: rates.p90,
            }),
            offers: input.offers.cloned(),
            error: input.error.map(str::to_owned),
            returned: planner.is_settled(),
            summary: String::new(),
            lines: input.steps,
        };
        report.summary = report.summary(input.by);
        report
    }

    fn summary(&self, by: Option<&Zoned>) -> String {
        let shown = |seconds: f64| Time::from_seconds(seconds.abs().round());
        let deadline = by.zip(self.early_seconds).map(|(by, early)| {
            let by = moment(by.timestamp(), &Zoned::now());
            match self.met {
                Some(true) => format!("by {by}: met, {} early", shown(early)),
                Some(false) => format!("by {by}: missed by {}", shown(early)),
                None => format!("by {by}: not done"),
            }
        });
        let reserved = match (self.reserved_bytes, &self.error, self.decision) {
            (0, Some(error), _) => format!("nothing was reserved: {error}"),
            (0, None, "no-room") => "there was not enough bandwidth to reserve".to_owned(),
            (0, None, _) => "nothing was reserved".to_owned(),
            (reserved, ..) => {
                let paths = if self.paths == 1 { "path" } else { "paths" };
                let back = match self.returned {
                    true => format!("{} of it returned", ByteCount(self.returned_bytes)),
                    false => "not yet returned".to_owned(),
                };
                format!(
                    "{} were reserved over {} {paths}, {back}",
                    ByteCount(reserved),
                    self.paths
                )
            }
        };
        match deadline {
            Some(deadline) => format!("{deadline}; {reserved}"),
            None => reserved,
        }
    }

    /// Returns the lines that `--explain` prints.
    pub fn explained(&self) -> Vec<String> {
        let expected = self.best_effort_bps.map(|rates| {
            let shown = |bps: f64| Rate::nearest(bps);
            format!(
                "  best effort: {} ({} in nine cases of ten)",
                shown(rates.p50),
                shown(rates.p10)
            )
        });
        let first = format!("deadline: {}", self.decision);
        let steps = self.lines.iter().map(|line| format!("  {line}"));
        let ways = self.ways.iter().map(|way| format!("  {}", way.line()));
        let lines = std::iter::once(first).chain(expected);
        lines.chain(steps).chain(ways).collect()
    }
}

/// Returns the word for a decision in reports.
pub const fn decision(why: PlanReason) -> &'static str {
    match why {
        PlanReason::Undecided => "undecided",
        PlanReason::BestEffort => "best-effort",
        PlanReason::Reserved => "reserved",
        PlanReason::InsufficientBandwidth => "no-room",
        PlanReason::Unable => "unable",
        PlanReason::Never => "never",
        PlanReason::Returned => "returned",
    }
}

/// Formats a moment in this machine's time zone, with the day if it is not today.
pub fn moment(at: Timestamp, now: &Zoned) -> String {
    let at = at.to_zoned(now.time_zone().clone());
    let form = match (at.date() == now.date(), at.year() == now.year()) {
        (true, _) => "%H:%M:%S",
        (false, true) => "%a %-d %b %H:%M",
        (false, false) => "%a %-d %b %Y %H:%M",
    };
    at.strftime(form).to_string()
}
