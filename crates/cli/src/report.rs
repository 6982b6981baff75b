//! The closing report of a copy: one JSON object for programs, a line or two for people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drs::{Limit, LimitTally};
use longhaul_copy_api::{CopyReport, FailedEntry};
use longhaul_deadline_driver::DeadlineReport;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_transfer::{
    CopyOutcome, FlowSummary, NotKeptCounts, RouteInfo, StreamCounters, explain,
};
use quantities::{ByteCount, Rate, Time};
use serde::Serialize;

use crate::cp::routing::report::RoutingReport;
use crate::exit::{Exit, for_error, is_worth_retrying};
use crate::failure;
use crate::hex::hex;
use crate::stop::Interrupted;
use crate::watch::CopyWatch;

/// Result of a copy. Field for field what `--json` prints last; documented in `docs/json.md`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "report")]
pub struct Report {
    /// Result and totals.
    #[serde(flatten)]
    pub summary: CopyReport,
    /// `push`, `pull`, `local` or `between`.
    direction: String,
    /// True if everything was encrypted; null within this machine.
    pub encrypted: Option<bool>,
    streams: Vec<StreamReport>,
    /// The streams of each route, summed.
    routes: Vec<RouteSum>,
    /// Origin and performance of the routes; null if the command line named them, or nobody could
    /// choose.
    pub routing: Option<RoutingReport>,
    /// Result of the deadline and its reservations; null without a deadline.
    pub deadline: Option<DeadlineReport>,
    /// The limit that held longest, as one word; null if the copy was too short to tell.
    limited_by: Option<&'static str>,
    /// The limit as a line for people.
    explanation: Option<String>,
    verification: Verification,
    /// Properties of the sources that were not kept, counted by the end that reads them: all zero
    /// in a pull.
    not_kept: NotKeptCounts,
    /// The first failures.
    failures: Vec<FailedEntry>,
    /// Reason why nothing was verified, if the copy succeeded.
    #[serde(skip)]
    unverified: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct StreamReport {
    stream: u32,
    route: RouteInfo,
    /// Bytes of file data that the stream carried.
    bytes: u64,
    /// Segments that the sending end retransmitted on its own hop; null if unknown.
    retransmits: Option<u64>,
    /// Seconds for which each limit held at the sending end, and at the receiving end.
    limits_sending: BTreeMap<&'static str, f64>,
    limits_receiving: BTreeMap<&'static str, f64>,
    /// Settings changed on this host's socket, with reasons.
    actions: Vec<String>,
}

/// Sums over the streams of one route.
#[derive(Debug, PartialEq, Serialize)]
pub struct RouteSum {
    /// The route.
    pub route: RouteInfo,
    /// Number of streams.
    pub streams: usize,
    /// Bytes of file data that they carried, and their bits per second over the whole copy.
    pub bytes: u64,
    bps: f64,
}

#[derive(Debug, Serialize)]
struct Verification {
    algorithm: &'static str,
    verified: bool,
    /// The subject of `root`: the one file copied, or the record of all entries.
    of: Option<&'static str>,
    /// The hash, in hexadecimal.
    root: Option<String>,
}

impl Report {
    /// Builds the report from the observations of a copy and its end.
    pub fn new(
        direction: &str,
        elapsed: Duration,
        watch: &CopyWatch,
        result: Result<&CopyOutcome, &anyhow::Error>,
    ) -> Self {
        let progress = &watch.progress;
        let failed = progress.failures.load(Ordering::Relaxed);
        let exit = match result {
            Ok(_) if failed == 0 => Exit::Success,
            Ok(_) if watch.has_no_source() => Exit::Usage,
            Ok(_) => Exit::SomeFailed,
            Err(error) if error.is::<Interrupted>() => Exit::Interrupted,
            Err(error) => for_error(error),
        };
        let bytes = progress.bytes_done.load(Ordering::Relaxed);
        let seconds = elapsed.as_secs_f64();
        let push = direction == "push";
        let streams = progress.streams();
        let limits = CopyLimits::from_streams(&streams, push);
        let resumed_bytes = progress.bytes_resumed.load(Ordering::Relaxed).min(bytes);
        let goodput_bps = if seconds > 0.0 {
            progress.bytes_travelled() as f64 * 8.0 / seconds
        } else {
            0.0
        };
        let hash = match (result, watch.only_file()) {
            (Ok(_), Some(hash)) => Some(("file", hash)),
            (Ok(outcome), None) => Some(("tree", outcome.manifest)),
            (Err(_), _) => None,
        };
        let summary = CopyReport {
            ok: exit == Exit::Success,
            exit_code: exit,
            error: result
                .err()
                .map(|error| printable(failure::format_line(error).as_bytes())),
            worth_retrying: result.is_err_and(is_worth_retrying),
            kept: false,
            bytes,
            resumed_bytes,
            unchanged_files: progress.files_unchanged.load(Ordering::Relaxed),
            unchanged_bytes: progress.bytes_unchanged.load(Ordering::Relaxed),
            linked_files: progress.files_linked.load(Ordering::Relaxed),
            linked_bytes: progress.bytes_linked.load(Ordering::Relaxed),
            saved_bytes: progress.bytes_saved.load(Ordering::Relaxed),
            files: progress.files_done.load(Ordering::Relaxed),
            entries: progress.entries_found.load(Ordering::Relaxed),
            seconds,
            goodput_bps,
            failed,
        };
        Self {
            summary,
            direction: direction.to_owned(),
            encrypted: (direction != "local")
                .then(|| progress.bytes_plaintext.load(Ordering::Relaxed) == 0),
            streams: streams
                .iter()
                .map(|stream| StreamReport::from_counters(stream, push))
                .collect(),
            routes: RouteSum::sum_by_route(&streams, seconds),
            routing: None,
            deadline: None,
            limited_by: limits.dominant(),
            // The limits of a copy between two hosts are only known to those hosts.
            explanation: matches!(direction, "push" | "pull")
                .then(|| limits.explain(push, streams.len(), goodput_bps)),
            verification: Verification {
                algorithm: "blake3",
                verified: result.is_ok(),
                of: hash.map(|(of, _)| of),
                root: hash.map(|(_, hash)| hex(&hash)),
            },
            not_kept: progress.not_kept.counts(),
            failures: watch.failures(),
            unverified: None,
        }
    }

    /// Notes that the other end has not hashed anything, and why.
    pub fn set_unverified(&mut self, why: &'static str) {
        self.verification = Verification {
            verified: false,
            of: None,
            root: None,
            ..self.verification
        };
        self.unverified = self.summary.ok.then_some(why);
    }

    /// Returns the streams of each route.
    pub fn routes(&self) -> &[RouteSum] {
        &self.routes
    }

    /// Prints the report for people on standard error. With `explain`, adds what limited the copy.
    pub fn print(&self, quiet: bool, explain: bool) {
        let copied = &self.summary;
        if let Some(error) = &copied.error {
            message!("longhaul: {error}");
        }
        if copied.kept && !quiet {
            message!(
                "longhaul: what was copied so far is kept; the same command resumes from there"
            );
        }
        if !quiet && (copied.error.is_none() || copied.files > 0) {
            // A hash over failures alone means nothing.
            let root = self.verification.root.as_deref();
            let without = match self.unverified {
                Some(why) => format!(", not verified: {why}"),
                None => String::new(),
            };
            let verified = match (root, copied.unchanged_files) {
                (Some(_), _) if copied.files == 0 && copied.failed > 0 => String::new(),
                (Some(_), 0) => ", verified".to_owned(),
                (Some(_), _) => ", transferred data verified".to_owned(),
                (None, _) => without,
            };
            let some = match copied.failed {
                0 => String::new(),
                n => format!("; {n} not copied"),
            };
            let unchanged = match copied.unchanged_files {
                0 => String::new(),
                n => format!(
                    " ({n}, {}, were there already)",
                    ByteCount(copied.unchanged_bytes)
                ),
            };
            let linked = match copied.linked_files {
                0 => String::new(),
                n => format!(" ({n}, {}, as hard links)", ByteCount(copied.linked_bytes)),
            };
            let saved = match copied.saved_bytes {
                0 => String::new(),
                n => format!(" ({} less sent)", ByteCount(n)),
            };
            let is_there = copied.failed == 0 && copied.unchanged_files + copied.linked_files > 0;
            let how = match is_there && copied.goodput_bps == 0.0 {
                true => "nothing had to be transferred".to_owned(),
                false => format!("{}{some}{verified}", Rate::nearest(copied.goodput_bps)),
            };
            message!(
                "{} file{}, {}{unchanged}{linked}{saved} in {}, {how}",
                copied.files,
                if copied.files == 1 { "" } else { "s" },
                ByteCount(copied.bytes),
                Time::from_seconds(copied.seconds),
            );
        }
        if !quiet && let Some(not_kept) = self.not_kept.line() {
            message!("longhaul: {not_kept}");
        }
        if !quiet && let Some(deadline) = &self.deadline {
            message!("{}", deadline.summary);
        }
        if explain && let (Some(of), Some(root)) = (self.verification.of, &self.verification.root) {
            message!("BLAKE3 of the {of}: {root}");
        }
        if explain && let Some(explanation) = &self.explanation {
            message!("{explanation}");
        }
        if explain && let Some(routing) = &self.routing {
            for line in routing.lines() {
                message!("{line}");
            }
        }
        if explain && let Some(deadline) = &self.deadline {
            for line in deadline.explained() {
                message!("{line}");
            }
        }
    }
}

impl StreamReport {
    fn from_counters(counters: &StreamCounters, push: bool) -> Self {
        let ends = counters.ends();
        let known_here = counters.retransmits_known.load(Ordering::Relaxed);
        let (sending, receiving, retransmits) = if push {
            let here = known_here.then(|| counters.retransmits.load(Ordering::Relaxed));
            (ends.here.tally, ends.there, here)
        } else {
            (ends.there, ends.here.tally, ends.retransmits_there)
        };
        Self {
            stream: counters.number,
            route: counters.route.clone(),
            bytes: counters.bytes.load(Ordering::Relaxed),
            retransmits,
            limits_sending: seconds_held(&sending),
            limits_receiving: seconds_held(&receiving),
            actions: ends.here.actions.iter().map(ToString::to_string).collect(),
        }
    }
}

impl RouteSum {
    /// Sums streams by route, in the order in which the routes' first streams were opened.
    fn sum_by_route(streams: &[Arc<StreamCounters>], seconds: f64) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for stream in streams {
            let known = sums.iter().position(|sum| sum.route == stream.route);
            let at = known.unwrap_or_else(|| {
                sums.push(Self {
                    route: stream.route.clone(),
                    streams: 0,
                    bytes: 0,
                    bps: 0.0,
                });
                sums.len() - 1
            });
            if let Some(sum) = sums.get_mut(at) {
                sum.streams += 1;
                sum.bytes = sum
                    .bytes
                    .saturating_add(stream.bytes.load(Ordering::Relaxed));
                if seconds > 0.0 {
                    sum.bps = sum.bytes as f64 * 8.0 / seconds;
                }
            }
        }
        sums
    }
}

fn seconds_held(tally: &LimitTally) -> BTreeMap<&'static str, f64> {
    Limit::ALL
        .into_iter()
        .filter(|limit| !tally.time_of(*limit).is_zero())
        .map(|limit| (limit.as_str(), tally.time_of(limit).as_secs_f64()))
        .collect()
}

/// Limits of a copy's streams, summed.
#[derive(Default)]
struct CopyLimits {
    sending: LimitTally,
    receiving: LimitTally,
    /// The depot next to the sending end, on the route that carried most.
    depot: Option<String>,
}

impl CopyLimits {
    fn from_streams(streams: &[Arc<StreamCounters>], push: bool) -> Self {
        let mut limits = Self::default();
        for stream in streams {
            let ends = stream.ends();
            let (sending, receiving) = if push {
                (ends.here.tally, ends.there)
            } else {
                (ends.there, ends.here.tally)
            };
            limits.sending.merge(&sending);
            limits.receiving.merge(&receiving);
        }
        let chief = streams
            .iter()
            .max_by_key(|stream| stream.bytes.load(Ordering::Relaxed));
        limits.depot = chief.and_then(|stream| {
            let hops = stream.route.route().hops();
            let hop = if push { hops.first() } else { hops.last() };
            hop.map(ToString::to_string)
        });
        limits
    }

    fn dominant(&self) -> Option<&'static str> {
        let chief = self
            .sending
            .dominant_limit()
            .or_else(|| self.receiving.dominant_limit());
        chief.map(|(limit, _)| limit.as_str())
    }

    fn explain(&self, push: bool, streams: usize, goodput_bps: f64) -> String {
        explain(&FlowSummary {
            push,
            depot: self.depot.as_deref(),
            sending: &self.sending,
            receiving: &self.receiving,
            streams,
            goodput_bps,
        })
    }
}
