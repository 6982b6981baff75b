//! The closing report of a copy: one JSON object for programs, a line or two for people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drs::{Limit, Tally};
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_transfer::{NotKeptCounts, Outcome, Picture, StreamCounters, depots_of, explain};
use quantities::{ByteCount, Rate, Time};
use serde::Serialize;

use crate::cp::Interrupted;
use crate::cp::deadline::DeadlineReport;
use crate::cp::routing::RoutingReport;
use crate::exit::Exit;
use crate::failure;
use crate::watch::Watch;

/// How a copy went. Field for field what `--json` prints last; documented in `docs/json.md`.
#[derive(Debug, Serialize)]
pub struct Report {
    event: &'static str,
    /// `push`, `pull`, `local` or `between`.
    direction: String,
    /// Everything was copied.
    ok: bool,
    exit_code: u8,
    /// What ended the copy early, in one line.
    error: Option<String>,
    /// Whether another attempt may do what this one did not: no route, the copy broke off, or a
    /// bound on what may be held at once was met.
    worth_retrying: bool,
    /// It ended early, and what is there of large files is kept for the next copy.
    pub kept: bool,
    /// Bytes of the files in place, holes included.
    pub bytes: u64,
    /// Bytes among them that an earlier copy had left, and that did not travel again.
    resumed_bytes: u64,
    /// Files among those in place that were there already and did not travel, and their bytes.
    unchanged_files: u64,
    unchanged_bytes: u64,
    /// Files among those in place that are other names of one of them and did not travel for that,
    /// and their bytes.
    linked_files: u64,
    linked_bytes: u64,
    /// Files in place.
    pub files: u64,
    /// Files, directories and links seen.
    entries: u64,
    /// From the start of the command to the verified end.
    pub seconds: f64,
    /// Bits of file content that this copy put in place, by seconds.
    pub goodput_bps: f64,
    /// Whether all of it travelled encrypted; null within this machine.
    pub encrypted: Option<bool>,
    streams: Vec<Stream>,
    /// The streams of each route, taken together.
    routes: Vec<RouteSum>,
    /// Who chose the routes, and how they did; null where the command line named them, or nobody
    /// was there to choose.
    pub routing: Option<RoutingReport>,
    /// What became of the deadline, and what was reserved for it; null where there was none.
    pub deadline: Option<DeadlineReport>,
    /// What limited the copy for longest, as one word; null when it was too short to say.
    limited_by: Option<&'static str>,
    /// The same as a line for people.
    explanation: Option<String>,
    verification: Verification,
    /// What is not kept of the sources, counted by the end that reads them: all zero in a pull.
    not_kept: NotKeptCounts,
    failures: Vec<FailedEntry>,
    /// All failures, also those beyond the listed.
    pub failed: u64,
}

#[derive(Debug, Serialize)]
struct Stream {
    stream: u32,
    route: String,
    /// Bytes of file data it carried.
    bytes: u64,
    /// Segments that the end which sends the files sent again on its own hop; null when not known.
    retransmits: Option<u64>,
    /// Seconds for which each limit held at the end that sends the files, and at the one that
    /// receives them.
    limits_sending: BTreeMap<&'static str, f64>,
    limits_receiving: BTreeMap<&'static str, f64>,
    /// What was set on this host's socket, and why.
    actions: Vec<String>,
}

/// The streams of one route.
#[derive(Debug, PartialEq, Serialize)]
pub struct RouteSum {
    /// Which.
    pub route: String,
    /// How many there were.
    pub streams: usize,
    /// Bytes of file data that they carried, and bits of them by the seconds of the whole copy.
    pub bytes: u64,
    bps: f64,
}

#[derive(Debug, Serialize)]
struct Verification {
    algorithm: &'static str,
    verified: bool,
    /// What `root` is the hash of: the one file copied, or the record of all entries.
    of: Option<&'static str>,
    /// Hexadecimal.
    root: Option<String>,
}

/// One entry that was not copied.
#[derive(Debug, Clone, Serialize)]
pub struct FailedEntry {
    /// Which.
    pub path: String,
    /// Why, for programs.
    pub kind: longhaul_transfer::FailureKind,
    /// Why, for people.
    pub message: String,
}

impl Report {
    /// From what was watched and how it ended.
    pub fn new(
        direction: &str,
        elapsed: Duration,
        watch: &Watch,
        result: Result<&Outcome, &anyhow::Error>,
    ) -> Self {
        let progress = &watch.progress;
        let failed = progress.failures.load(Ordering::Relaxed);
        let exit = match result {
            Ok(_) if failed == 0 => Exit::Success,
            Ok(_) if watch.has_no_source() => Exit::Usage,
            Ok(_) => Exit::SomeFailed,
            Err(error) if error.is::<Interrupted>() => Exit::Interrupted,
            Err(error) => Exit::of(error),
        };
        let bytes = progress.bytes_done.load(Ordering::Relaxed);
        let seconds = elapsed.as_secs_f64();
        let push = direction == "push";
        let streams = progress.streams();
        let limits = Limits::of(&streams, push);
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
        Self {
            event: "report",
            direction: direction.to_owned(),
            ok: exit == Exit::Success,
            exit_code: exit.code(),
            error: result
                .err()
                .map(|error| printable(failure::line(error).as_bytes())),
            worth_retrying: result.is_err_and(Exit::is_worth_retrying),
            kept: false,
            bytes,
            resumed_bytes,
            unchanged_files: progress.files_unchanged.load(Ordering::Relaxed),
            unchanged_bytes: progress.bytes_unchanged.load(Ordering::Relaxed),
            linked_files: progress.files_linked.load(Ordering::Relaxed),
            linked_bytes: progress.bytes_linked.load(Ordering::Relaxed),
            files: progress.files_done.load(Ordering::Relaxed),
            entries: progress.entries_found.load(Ordering::Relaxed),
            seconds,
            goodput_bps,
            encrypted: (direction != "local")
                .then(|| progress.bytes_clear.load(Ordering::Relaxed) == 0),
            streams: streams
                .iter()
                .map(|stream| Stream::of(stream, push))
                .collect(),
            routes: RouteSum::of(&streams, seconds),
            routing: None,
            deadline: None,
            limited_by: limits.chief(),
            // Of a copy between two hosts, only those know.
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
            failed,
        }
    }

    /// Whether everything was copied.
    pub fn ok(&self) -> bool {
        self.ok
    }

    /// The streams of each route.
    pub fn routes(&self) -> &[RouteSum] {
        &self.routes
    }

    /// What ended the copy early.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The exit code it stands for.
    pub fn exit(&self) -> Exit {
        Exit::from_code(Some(i64::from(self.exit_code))).unwrap_or(Exit::Usage)
    }

    /// For people, on standard error; with `explain`, also what limited the copy.
    pub fn print(&self, quiet: bool, explain: bool) {
        if let Some(error) = &self.error {
            message!("longhaul: {error}");
        }
        if self.kept && !quiet {
            message!(
                "longhaul: what was copied so far is kept; the same command goes on from there"
            );
        }
        if !quiet && (self.error.is_none() || self.files > 0) {
            // The hash over nothing but failures says nothing.
            let root = self.verification.root.as_deref();
            let root =
                root.filter(|_| self.files > 0 || self.failed == 0)
                    .map_or(String::new(), |root| match self.unchanged_files {
                        0 => format!(", verified: BLAKE3 {root}"),
                        _ => format!(", what travelled verified: BLAKE3 {root}"),
                    });
            let some = match self.failed {
                0 => String::new(),
                n => format!("; {n} not copied"),
            };
            let unchanged = match self.unchanged_files {
                0 => String::new(),
                n => format!(
                    " ({n}, {}, were there already)",
                    ByteCount(self.unchanged_bytes)
                ),
            };
            let linked = match self.linked_files {
                0 => String::new(),
                n => format!(" ({n}, {}, as hard links)", ByteCount(self.linked_bytes)),
            };
            let is_there = self.failed == 0 && self.unchanged_files + self.linked_files > 0;
            let how = match is_there && self.goodput_bps == 0.0 {
                true => "nothing had to travel".to_owned(),
                false => format!("{}{some}{root}", Rate::nearest(self.goodput_bps)),
            };
            message!(
                "{} file{}, {}{unchanged}{linked} in {}, {how}",
                self.files,
                if self.files == 1 { "" } else { "s" },
                ByteCount(self.bytes),
                Time::from_seconds(self.seconds),
            );
        }
        if !quiet && let Some(not_kept) = self.not_kept.line() {
            message!("longhaul: {not_kept}");
        }
        if !quiet && let Some(deadline) = &self.deadline {
            message!("{}", deadline.summary);
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

impl Stream {
    fn of(counters: &StreamCounters, push: bool) -> Self {
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
    /// In the order in which the routes' first streams were opened.
    fn of(streams: &[Arc<StreamCounters>], seconds: f64) -> Vec<Self> {
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

fn seconds_held(tally: &Tally) -> BTreeMap<&'static str, f64> {
    Limit::ALL
        .into_iter()
        .filter(|limit| !tally.held(*limit).is_zero())
        .map(|limit| (limit.word(), tally.held(limit).as_secs_f64()))
        .collect()
}

/// What limited the streams of a copy, taken together.
#[derive(Default)]
struct Limits {
    sending: Tally,
    receiving: Tally,
    /// The depot next to the end that sends, on the route that carried most.
    depot: Option<String>,
}

impl Limits {
    fn of(streams: &[Arc<StreamCounters>], push: bool) -> Self {
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
            let mut hops = depots_of(&stream.route)
                .split(',')
                .filter(|hop| *hop != "direct");
            let hop = if push { hops.next() } else { hops.next_back() };
            hop.map(str::to_owned)
        });
        limits
    }

    fn chief(&self) -> Option<&'static str> {
        let chief = self.sending.chief().or_else(|| self.receiving.chief());
        chief.map(|(limit, _)| limit.word())
    }

    fn explain(&self, push: bool, streams: usize, goodput_bps: f64) -> String {
        explain(&Picture {
            push,
            depot: self.depot.as_deref(),
            sending: &self.sending,
            receiving: &self.receiving,
            streams,
            goodput_bps,
        })
    }
}

/// Hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            // Writing to a string can't fail.
            let _ = write!(out, "{byte:02x}");
            out
        })
}
