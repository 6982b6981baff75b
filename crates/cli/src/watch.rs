//! Observes a copy: a progress line on a terminal, JSON lines for programs, and the data of the
//! report.

mod finish;
mod lines;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_copy_api::{CopyEvent, FailedEntry, Progress, RouteVerdict};
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_transfer::{
    Failure, FailureKind, Hash, Observer, RouteInfo, TransferEvent, TransferProgress,
};
use parking_lot::{Mutex, MutexGuard};
use quantities::{ByteCount, Time};
use serde::Serialize;

use self::lines::{BAR_TEMPLATE, ProgressState, RecentLines, waiting_message};
use crate::answer;
use crate::hex::hex;

/// Maximum failures listed in the report; all are counted and reported as they happen.
const MAX_LISTED_FAILURES: usize = 1000;
/// Maximum route changes that the report lists.
const MAX_VERDICTS: usize = 100;
/// Maximum reserved routes for which the reason of a lost stream is kept.
const MAX_LOST_ROUTES: usize = 64;
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
const JSON_INTERVAL: Duration = Duration::from_millis(250);
/// Time before a progress line appears; a shorter copy shows none.
const PROGRESS_LINE_AFTER: Duration = Duration::from_millis(500);

/// Observer of one copy.
pub struct CopyWatch {
    /// The copy's counters.
    pub progress: Arc<TransferProgress>,
    show: OutputOptions,
    started: Instant,
    bar: ProgressBar,
    /// The other end of the copy.
    server: OnceLock<String>,
    /// The destination, as the user gave it.
    destination: OnceLock<String>,
    seen: Mutex<WatchState>,
}

/// Output that the user wants.
#[derive(Debug, Clone, Copy)]
pub struct OutputOptions {
    /// Print JSON lines on standard output.
    pub json: bool,
    /// Print neither progress nor a summary.
    pub quiet: bool,
    /// Print a line on what limits the copy.
    pub explain: bool,
    /// If true, existing files are not replaced, and messages about them suggest `--overwrite`.
    pub suggests_overwrite: bool,
}

#[derive(Default)]
struct WatchState {
    /// The remote sources, and the number of them that are missing.
    sources: Vec<String>,
    missing: usize,
    failures: Vec<FailedEntry>,
    /// Failures of a copy that was lost. Its replacement reports them again.
    earlier_failures: Vec<FailedEntry>,
    lines: RecentLines,
    files: u64,
    last_hash: Option<Hash>,
    judged: Vec<RouteVerdict>,
    /// Routes whose last verdict was bad, without reserved ones.
    bad_routes: Vec<RouteInfo>,
    /// Latest reason of a lost stream, by reserved route.
    lost: BTreeMap<String, String>,
    /// True once the report has been written: nothing may follow it.
    finished: bool,
}

impl CopyWatch {
    /// Starts to observe. Must be called on a runtime.
    pub fn start(show: OutputOptions, started: Instant) -> Arc<Self> {
        let OutputOptions { json, quiet, .. } = show;
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let watch = Arc::new(Self {
            progress: Arc::default(),
            show,
            started,
            bar,
            server: OnceLock::new(),
            destination: OnceLock::new(),
            seen: Mutex::default(),
        });
        let looker = Arc::downgrade(&watch);
        let drawn = !json && !quiet && std::io::stderr().is_terminal();
        if json || drawn {
            tokio::spawn(async move {
                let mut rates = Rates::default();
                let mut tick =
                    tokio::time::interval(if json { JSON_INTERVAL } else { REDRAW_INTERVAL });
                loop {
                    tick.tick().await;
                    let Some(watch) = looker.upgrade() else {
                        return;
                    };
                    watch.look(&mut rates, drawn);
                }
            });
        }
        watch
    }

    /// Sets the destination, as the user gave it.
    pub fn set_destination(&self, destination: &OsStr) {
        let _ = self
            .destination
            .set(printable(destination.as_encoded_bytes()));
    }

    /// Describes the failure of an entry, with the end that failed and a remedy, if there is one.
    fn failure_text(&self, failure: &Failure) -> String {
        let destination = self.destination.get().filter(|_| failure.at_destination);
        match (failure.kind, destination) {
            (
                FailureKind::PermissionDenied
                | FailureKind::DiskFull
                | FailureKind::Io
                | FailureKind::NotFound,
                Some(destination),
            ) => format!("cannot write to {destination}: {failure}"),
            (FailureKind::Exists, _) if self.show.suggests_overwrite => {
                format!("{failure}; give --overwrite to replace it")
            }
            _ => failure.to_string(),
        }
    }

    /// Sets the other end of the copy, as the user knows it.
    pub fn set_server(&self, server: String) {
        // The first of two hosts is enough.
        let _ = self.server.set(printable(server.as_bytes()));
    }

    fn server(&self) -> &str {
        self.server.get().map_or("the server", String::as_str)
    }

    fn seen(&self) -> MutexGuard<'_, WatchState> {
        self.seen.lock()
    }

    fn look(&self, rates: &mut Rates, drawn: bool) {
        let progress = &self.progress;
        let done = progress.bytes_done.load(Ordering::Relaxed);
        let found = progress.bytes_found.load(Ordering::Relaxed);
        let complete = progress.walk_complete.load(Ordering::Relaxed);
        let routes = rates.by_route(progress);
        // Files that existed already have no speed.
        let speed = rates.total(progress.bytes_travelled());
        if self.show.json {
            let routes = routes.iter();
            self.line(CopyEvent::Progress {
                progress: Progress {
                    seconds: self.started.elapsed().as_secs_f64(),
                    bytes: done,
                    bytes_found: found,
                    walk_complete: complete,
                    files: progress.files_done.load(Ordering::Relaxed),
                    entries_found: progress.entries_found.load(Ordering::Relaxed),
                    bps: speed.round(),
                    routes_bps: routes
                        .map(|(route, bps)| (route.clone(), bps.round()))
                        .collect(),
                },
                waiting_seconds: progress.silence().map(|silence| silence.as_secs()),
            });
        } else if drawn
            && (found > 0 || !routes.is_empty())
            && self.started.elapsed() >= PROGRESS_LINE_AFTER
        {
            // Hidden until there is progress, as ssh may be asking for a password on the same
            // terminal.
            if self.bar.is_hidden() {
                let style = ProgressStyle::with_template(BAR_TEMPLATE);
                if let Ok(style) = style {
                    self.bar.set_style(style);
                }
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_length(found.max(1));
            self.bar.set_position(done);
            let left = complete
                .then(|| time_left(found.saturating_sub(done), speed))
                .flatten();
            self.bar.set_message(match progress.silence() {
                Some(silence) => waiting_message(silence, self.server()),
                None => ProgressState {
                    done,
                    found,
                    speed,
                    left,
                    files: progress.files_done.load(Ordering::Relaxed),
                    entries_left: complete.then(|| progress.entries_left()),
                    name: &printable(progress.current_file().as_bytes()),
                    routes: &routes,
                }
                .message(),
            });
        }
    }

    /// Prints an event, if JSON is wanted.
    pub fn print_event(&self, event: CopyEvent) {
        if self.show.json {
            self.line(event);
        }
    }

    /// Prints an event on standard output.
    fn line(&self, event: CopyEvent) {
        self.write(&event, false);
    }

    /// Prints one JSON line, with sorted keys. Nothing follows the last one.
    fn write(&self, line: &impl Serialize, is_last: bool) {
        // Text, numbers and lists of them can always be serialized.
        let Ok(line) = serde_json::to_value(line) else {
            return;
        };
        let mut seen = self.seen();
        if !seen.finished {
            seen.finished = is_last;
            answer::write_line(line);
        }
    }

    /// Reports something that is no failure, but that the user may want to change.
    pub fn notice(&self, text: &str) {
        let text = printable(text.as_bytes());
        if self.show.json {
            self.line(CopyEvent::Notice { message: text });
        } else if !self.show.quiet {
            self.bar.suspend(|| message!("longhaul: {text}"));
        }
    }

    /// Prints a line unless the user only wants failures.
    fn print_unless_quiet(&self, line: &str) {
        if !self.show.quiet {
            self.bar.suspend(|| message!("longhaul: {line}"));
        }
    }

    /// Returns true if this failure was already reported for a copy that was lost.
    fn was_reported(&self, entry: &FailedEntry) -> bool {
        self.seen().earlier_failures.contains(entry)
    }

    /// Sets the remote sources of a copy, as failures name them.
    pub fn expect_sources(&self, sources: &[String]) {
        self.seen().sources = sources
            .iter()
            .map(|source| printable(source.as_bytes()))
            .collect();
    }

    /// Returns true if all remote sources are missing, so that there is nothing to copy.
    pub fn has_no_source(&self) -> bool {
        let seen = self.seen();
        seen.missing > 0 && seen.missing == seen.sources.len()
    }

    /// Returns the failures listed so far.
    pub fn failures(&self) -> Vec<FailedEntry> {
        self.seen().failures.clone()
    }

    /// Returns the verdicts on the routes that were chosen for the copy.
    pub fn judged(&self) -> Vec<RouteVerdict> {
        self.seen().judged.clone()
    }

    /// Returns the routes whose last verdict was bad, without reserved ones.
    pub fn bad_routes(&self) -> Vec<RouteInfo> {
        self.seen().bad_routes.clone()
    }

    /// Returns the latest reason why a stream was lost or did not open, by the names of the
    /// reserved routes.
    pub fn lost_on_reserved(&self) -> BTreeMap<String, String> {
        self.seen().lost.clone()
    }

    /// Returns the hash if exactly one file was copied.
    pub fn only_file(&self) -> Option<Hash> {
        let seen = self.seen();
        let only = seen.files == 1 && self.progress.entries_found.load(Ordering::Relaxed) == 1;
        if only { seen.last_hash } else { None }
    }
}

impl Observer for CopyWatch {
    fn event(&self, event: TransferEvent) {
        // Text from a peer or a file name is about to reach a terminal or a log.
        let shown = |text: String| printable(text.as_bytes());
        match event {
            TransferEvent::StreamOpened { stream, route } => {
                let route = route.to_string();
                self.print_event(CopyEvent::StreamOpened { stream, route });
            }
            TransferEvent::StreamLost {
                stream,
                route,
                reason,
                is_silent,
            } => {
                let (is_reserved, route) = (route.is_reserved(), route.to_string());
                let reason = shown(reason);
                if is_reserved {
                    let mut seen = self.seen();
                    if seen.lost.len() < MAX_LOST_ROUTES || seen.lost.contains_key(&route) {
                        seen.lost.insert(route.clone(), reason.clone());
                    }
                }
                if self.show.json {
                    self.line(CopyEvent::StreamLost {
                        stream,
                        route,
                        reason,
                    });
                } else if stream.is_some()
                    && !is_silent
                    && !self.show.quiet
                    && self.seen().lines.is_new(&reason, Instant::now())
                {
                    self.bar
                        .suspend(|| message!("longhaul: {reason}; continuing"));
                }
            }
            TransferEvent::Waiting { silence, patience } => {
                let (seconds, server) = (silence.as_secs(), self.server());
                let patience_seconds = patience.as_secs();
                if self.show.json {
                    self.line(CopyEvent::Waiting {
                        server: server.to_owned(),
                        seconds,
                        patience_seconds,
                    });
                } else {
                    let patience = Time(Duration::from_secs(patience_seconds));
                    self.print_unless_quiet(&format!(
                        "no data for {seconds} s: waiting up to {patience} for {server} \
                         (--patience)"
                    ));
                }
            }
            TransferEvent::ArrivalResumed { after } => {
                let (seconds, server) = (after.as_secs(), self.server());
                if self.show.json {
                    let server = server.to_owned();
                    self.line(CopyEvent::Back { server, seconds });
                } else {
                    self.print_unless_quiet(&format!("{server} answers again after {seconds} s"));
                }
            }
            TransferEvent::CopyReplaced { reason } => {
                let mut seen = self.seen();
                let failures = std::mem::take(&mut seen.failures);
                if !failures.is_empty() {
                    seen.earlier_failures = failures;
                    seen.missing = 0;
                }
                (seen.files, seen.last_hash) = (0, None);
                drop(seen);
                let reason = shown(reason);
                if self.show.json {
                    self.line(CopyEvent::BegunAgain { reason });
                } else {
                    self.print_unless_quiet(&format!(
                        "{reason}; starting another copy, which resumes from what is there"
                    ));
                }
            }
            TransferEvent::RouteJudged {
                route,
                standing,
                reason,
            } => {
                let verdict = RouteVerdict {
                    route: shown(route.to_string()),
                    standing,
                    reason: shown(reason),
                };
                self.print_event(CopyEvent::Route(verdict.clone()));
                let mut seen = self.seen();
                if seen.judged.len() < MAX_VERDICTS {
                    seen.judged.push(verdict);
                }
                // The network's treatment of reserved routes says nothing about ordinary ones.
                if !route.is_reserved() {
                    seen.bad_routes.retain(|bad| *bad != route);
                    if standing.is_bad() {
                        seen.bad_routes.push(route);
                    }
                }
            }
            TransferEvent::Resumed { path, bytes, size } => {
                let path = shown(path);
                if self.show.json {
                    self.line(CopyEvent::Resumed { path, bytes, size });
                } else if !self.show.quiet {
                    let (there, whole) = (ByteCount(bytes), ByteCount(size));
                    self.bar.suspend(|| {
                        message!("longhaul: resuming {path}: {there} of {whole} are there already");
                    });
                }
            }
            TransferEvent::Done {
                path,
                bytes,
                hash,
                same,
            } => {
                let path = shown(path);
                if let Some(hash) = hash {
                    let mut seen = self.seen();
                    seen.files += 1;
                    seen.last_hash = Some(hash);
                }
                if self.show.json {
                    self.line(CopyEvent::Done {
                        path,
                        bytes,
                        blake3: hash.map(|hash| hex(&hash)),
                        same,
                    });
                }
            }
            TransferEvent::Failed { path, failure } => {
                let entry = FailedEntry {
                    path: shown(path),
                    kind: failure.kind,
                    message: shown(self.failure_text(&failure)),
                };
                if self.show.json {
                    self.line(CopyEvent::Failed(entry.clone()));
                } else if !self.was_reported(&entry) {
                    let FailedEntry { path, message, .. } = &entry;
                    self.bar.suspend(|| message!("longhaul: {path}: {message}"));
                }
                let mut seen = self.seen();
                if entry.kind == FailureKind::NotFound && seen.sources.contains(&entry.path) {
                    seen.missing += 1;
                }
                if seen.failures.len() < MAX_LISTED_FAILURES {
                    seen.failures.push(entry);
                }
            }
        }
    }
}

/// Returns the time that `bytes` take at `bps`. `None` if it is unknown or over a year: the
/// remaining bytes are the peer's claim, and may be any number.
fn time_left(bytes: u64, bps: f64) -> Option<Duration> {
    const MAX_TIME_LEFT: Duration = Duration::from_secs(365 * 24 * 3600);
    let left = Duration::try_from_secs_f64(bytes as f64 * 8.0 / bps).ok()?;
    (left <= MAX_TIME_LEFT).then_some(left)
}

/// Rates between two samples, smoothed over a few.
#[derive(Default)]
struct Rates {
    total: SmoothedRate,
    routes: Vec<(String, SmoothedRate)>,
}

#[derive(Default)]
struct SmoothedRate {
    last: Option<(Instant, u64)>,
    bps: f64,
}

impl SmoothedRate {
    fn update(&mut self, bytes: u64) -> f64 {
        let now = Instant::now();
        if let Some((then, before)) = self.last {
            let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
            let current = bytes.saturating_sub(before) as f64 * 8.0 / seconds;
            // Weighted over about the last two seconds.
            let weight = (seconds / 2.0).min(1.0);
            self.bps = if self.bps == 0.0 {
                current
            } else {
                self.bps * (1.0 - weight) + current * weight
            };
        }
        self.last = Some((now, bytes));
        self.bps
    }
}

impl Rates {
    fn total(&mut self, bytes: u64) -> f64 {
        self.total.update(bytes)
    }

    fn by_route(&mut self, progress: &TransferProgress) -> Vec<(String, f64)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for stream in progress.streams() {
            let bytes = stream.bytes.load(Ordering::Relaxed);
            match sums
                .iter_mut()
                .find(|(route, _)| *route == stream.route.name())
            {
                Some((_, sum)) => *sum += bytes,
                None => sums.push((stream.route.to_string(), bytes)),
            }
        }
        let mut list = Vec::new();
        for (route, sum) in sums {
            let known = self
                .routes
                .iter()
                .position(|(r, _)| *r == route)
                .unwrap_or_else(|| {
                    self.routes.push((route.clone(), SmoothedRate::default()));
                    self.routes.len() - 1
                });
            list.push((route, self.routes[known].1.update(sum)));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples as during a copy whose server has reported an absurd number of bytes.
    #[test]
    fn absurd_byte_counts_do_not_break_the_progress_line() {
        for json in [false, true] {
            let watch = CopyWatch {
                progress: Arc::default(),
                show: OutputOptions {
                    json,
                    quiet: false,
                    explain: true,
                    suggests_overwrite: true,
                },
                started: Instant::now()
                    .checked_sub(2 * PROGRESS_LINE_AFTER)
                    .unwrap_or(Instant::now()),
                bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
                server: OnceLock::new(),
                destination: OnceLock::new(),
                seen: Mutex::default(),
            };
            let progress = &watch.progress;
            progress.walk_complete.store(true, Ordering::Relaxed);
            let mut rates = Rates::default();
            for (found, done) in [
                (u64::MAX, 0),
                (u64::MAX, 1),
                (u64::MAX, u64::MAX),
                (0, u64::MAX),
            ] {
                progress.bytes_found.store(found, Ordering::Relaxed);
                progress.entries_found.store(found, Ordering::Relaxed);
                progress.bytes_done.store(done, Ordering::Relaxed);
                watch.look(&mut rates, true);
            }
        }
    }

    #[test]
    fn failures_name_their_end_and_a_remedy() {
        let watch = |suggests_overwrite| CopyWatch {
            progress: Arc::default(),
            show: OutputOptions {
                json: false,
                quiet: false,
                explain: false,
                suggests_overwrite,
            },
            started: Instant::now(),
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            server: OnceLock::new(),
            destination: OnceLock::from("store:/data".to_owned()),
            seen: Mutex::default(),
        };
        let denied = Failure::new(FailureKind::PermissionDenied);
        assert_eq!(watch(true).failure_text(&denied), "permission denied");
        assert_eq!(
            watch(true).failure_text(&denied.at_destination()),
            "cannot write to store:/data: permission denied"
        );
        let exists = Failure::new(FailureKind::Exists).at_destination();
        let suggested = watch(true).failure_text(&exists);
        assert!(
            suggested.ends_with("differs; give --overwrite to replace it"),
            "{suggested}"
        );
        assert!(!watch(false).failure_text(&exists).contains("--overwrite"));
    }

    #[test]
    fn time_left_handles_any_number_of_bytes() {
        assert_eq!(time_left(1_000_000, 8e6), Some(Duration::from_secs(1)));
        for (bytes, bps) in [
            (u64::MAX, 1.0),
            (u64::MAX, 1e-300),
            (5, 0.0),
            (0, 0.0),
            (5, f64::NAN),
            (5, -1.0),
        ] {
            assert_eq!(time_left(bytes, bps), None, "{bytes} {bps}");
        }
    }
}
