//! A job, as it is asked for and shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
pub use longhaul_jobs::State as JobState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::notice::Receiver;

/// Most sources of one job, and most routes and the like of its options.
const MAX_LIST_ENTRIES: usize = 1000;
/// Most bytes of a path, an option, a label or an argument.
const MAX_TEXT_BYTES: usize = 4096;
/// Fewest and most parts of a job that is split.
pub const MIN_PARTS: u32 = 2;
/// See [`MIN_PARTS`].
pub const MAX_PARTS: u32 = 1000;
/// Priorities lie between this and its negative.
pub const MAX_PRIORITY: i64 = 100;

/// What is to be copied, and how: the arguments of `longhaul cp`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// What to copy: absolute paths here, `user@host:path`, or `lh://host[:port]/path`.
    #[schema(min_items = 1, max_items = 1000, example = json!(["/data/run-7"]))]
    pub sources: Vec<String>,
    /// Where to, in the same form.
    #[schema(min_length = 1, max_length = 4096, example = "ana@dtn.example.org:/store/")]
    pub destination: String,
    /// How.
    #[serde(default)]
    pub options: CopyOptions,
    /// What its owner calls it.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 4096)]
    pub label: Option<String>,
    /// Greater is sooner, among the jobs of one user.
    #[serde(default)]
    #[schema(minimum = -100, maximum = 100)]
    pub priority: i64,
    /// It does not begin before this moment (RFC 3339).
    #[serde(default)]
    #[schema(format = "date-time")]
    pub not_before: Option<String>,
    /// A program and its arguments, run when the job has ended, with the job in JSON on its standard input.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 1000)]
    pub on_end: Option<Vec<String>>,
    /// In how many parts it is carried out, each a job that any agent takes; afterwards it runs as a whole and copies what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 2, maximum = 1000)]
    pub split: Option<u32>,
    /// An `http` or `https` URL that is told when the job has ended: a POST of the job in JSON.
    // Where it is not used, what is kept stays as older releases read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2048)]
    pub on_end_url: Option<String>,
}

/// Options of `longhaul cp`, by the names that they have there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CopyOptions {
    /// Copy directories with all they hold.
    pub recursive: bool,
    /// Replace files that exist and differ.
    pub overwrite: bool,
    /// Force every file to disk before it counts as copied.
    pub fsync: bool,
    /// Begin every file from its start.
    pub no_resume: bool,
    /// Send the content of large files as it is, where the server allows it.
    pub no_encrypt: bool,
    /// Compare the content of files that are there already, by hash.
    pub checksum: bool,
    /// Keep hard links.
    pub hard_links: bool,
    /// When a route fails before anything was sent, connect directly instead.
    pub fall_back: bool,
    /// Trust a server that is not known yet, and remember its key.
    pub accept_new: bool,
    /// Bring this program along over ssh.
    pub bootstrap: bool,
    /// Depots to pass, in order and with commas between them, or `direct`: streams spread over the routes.
    pub routes: Vec<String>,
    /// Addresses of this host that sessions begin at.
    pub source_addresses: Vec<String>,
    /// Streams in all.
    pub streams: Option<u32>,
    /// TCP congestion control of this host's connections.
    pub congestion: Option<String>,
    /// The server's key; nothing else is trusted then.
    pub host_key: Option<String>,
    /// File of the key to be known by.
    pub identity: Option<String>,
    /// TCP ports for the data of copies over ssh.
    pub port_range: Option<String>,
    /// Port of the host's ssh server.
    pub ssh_port: Option<u16>,
    /// File with the key to log in with.
    pub ssh_key: Option<String>,
    /// File with ssh's settings.
    pub ssh_config: Option<String>,
    /// Host to log in by way of.
    pub ssh_jump: Option<String>,
    /// Options of ssh_config(5).
    pub ssh_options: Vec<String>,
    /// The ssh program.
    pub ssh_program: Option<String>,
    /// Connect to the host by IPv4 alone.
    pub ipv4: bool,
    /// Connect to the host by IPv6 alone.
    pub ipv6: bool,
}

impl CopyOptions {
    /// As they stand on the command line of `longhaul cp`.
    pub fn arguments(&self) -> Vec<String> {
        let flags = [
            (self.recursive, "--recursive"),
            (self.overwrite, "--overwrite"),
            (self.fsync, "--fsync"),
            (self.no_resume, "--no-resume"),
            (self.no_encrypt, "--no-encrypt"),
            (self.checksum, "--checksum"),
            (self.hard_links, "--hard-links"),
            (self.fall_back, "--fall-back"),
            (self.accept_new, "--accept-new"),
            (self.bootstrap, "--bootstrap"),
            (self.ipv4, "-4"),
            (self.ipv6, "-6"),
        ];
        let mut arguments: Vec<String> = flags
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, flag)| (*flag).to_owned())
            .collect();
        // In one word with their values: none of those can be taken for a flag.
        let mut long = |flag: &str, values: &mut dyn Iterator<Item = String>| {
            arguments.extend(values.map(|value| format!("--{flag}={value}")));
        };
        long("route", &mut self.routes.iter().cloned());
        long("source", &mut self.source_addresses.iter().cloned());
        long("streams", &mut self.streams.iter().map(u32::to_string));
        long("congestion", &mut self.congestion.iter().cloned());
        long("host-key", &mut self.host_key.iter().cloned());
        long("identity", &mut self.identity.iter().cloned());
        long("ssh", &mut self.ssh_program.iter().cloned());
        long("port-range", &mut self.port_range.iter().cloned());
        let mut short = |flag: &str, values: &mut dyn Iterator<Item = String>| {
            arguments.extend(values.map(|value| format!("-{flag}{value}")));
        };
        short("P", &mut self.ssh_port.iter().map(u16::to_string));
        short("i", &mut self.ssh_key.iter().cloned());
        short("F", &mut self.ssh_config.iter().cloned());
        short("J", &mut self.ssh_jump.iter().cloned());
        short("o", &mut self.ssh_options.iter().cloned());
        arguments
    }

    /// Everything in it that is text.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let single = [
            &self.congestion,
            &self.host_key,
            &self.identity,
            &self.port_range,
            &self.ssh_key,
            &self.ssh_config,
            &self.ssh_jump,
            &self.ssh_program,
        ];
        let lists = [&self.routes, &self.source_addresses, &self.ssh_options];
        lists.into_iter().flatten().chain(single.into_iter().flatten())
    }
}

/// A request cannot be a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// Nothing to copy.
    #[error("sources: name what to copy")]
    NoSources,
    /// Too much of something.
    #[error("{0}: at most {MAX_LIST_ENTRIES} entries")]
    TooMany(&'static str),
    /// A text that is none, too long, or could not be an argument.
    #[error("{0}: empty, longer than {MAX_TEXT_BYTES} bytes, or with a NUL byte")]
    Text(&'static str),
    /// A path that would be taken from wherever the agent happens to run.
    #[error("{0}: not an absolute path, user@host:path or lh://host/path")]
    Relative(String),
    /// Out of bounds.
    #[error("priority: between -{MAX_PRIORITY} and {MAX_PRIORITY}")]
    Priority,
    /// Not a moment.
    #[error("not_before: {0} is not a moment like 2030-01-31T18:00:00Z")]
    NotBefore(String),
    /// Too few or too many parts.
    #[error("split: between {MIN_PARTS} and {MAX_PARTS} parts")]
    Parts,
    /// Where it goes depends on whether it is there, which the first part changes.
    #[error(
        "split: {0}: end the destination with a slash, so that it means a directory whether it is there or not"
    )]
    SplitInto(String),
    /// The data does not pass any agent.
    #[error("split: between two other hosts there is nothing to divide among agents: leave it out")]
    SplitBetween,
    /// No program.
    #[error("on_end: name a program")]
    NoProgram,
    /// Nothing that can be told.
    #[error("on_end_url: an http or https URL of up to 2048 characters, without a name or a password in it")]
    Url,
    /// `longhaul cp` does not understand it.
    #[error("{0}")]
    Copy(String),
}

impl JobRequest {
    /// Whether it can be a job at all, as far as that shows before it runs.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        if self.sources.is_empty() {
            return Err(InvalidRequest::NoSources);
        }
        let lists = [
            ("sources", self.sources.len()),
            ("routes", self.options.routes.len()),
            ("source_addresses", self.options.source_addresses.len()),
            ("ssh_options", self.options.ssh_options.len()),
            ("on_end", self.on_end.as_ref().map_or(0, Vec::len)),
        ];
        if let Some((name, _)) = lists.iter().find(|(_, entries)| *entries > MAX_LIST_ENTRIES) {
            return Err(InvalidRequest::TooMany(name));
        }
        let is_text =
            |text: &String| !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
        let texts: [(&str, Box<dyn Iterator<Item = &String> + '_>); 5] = [
            ("sources", Box::new(self.sources.iter())),
            ("destination", Box::new(std::iter::once(&self.destination))),
            ("options", Box::new(self.options.texts())),
            ("label", Box::new(self.label.iter())),
            ("on_end", Box::new(self.on_end.iter().flatten())),
        ];
        for (name, mut texts) in texts {
            if !texts.all(is_text) {
                return Err(InvalidRequest::Text(name));
            }
        }
        if let Some(path) = self
            .paths()
            .find(|path| far_end(path).is_none() && !path.starts_with('/'))
        {
            return Err(InvalidRequest::Relative(path.clone()));
        }
        if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&self.priority) {
            return Err(InvalidRequest::Priority);
        }
        if self.on_end.as_ref().is_some_and(Vec::is_empty) {
            return Err(InvalidRequest::NoProgram);
        }
        self.check_split()?;
        if self
            .on_end_url
            .as_deref()
            .is_some_and(|url| Receiver::of(url).is_none())
        {
            return Err(InvalidRequest::Url);
        }
        self.due().map(|_| ())
    }

    fn check_split(&self) -> Result<(), InvalidRequest> {
        let Some(parts) = self.split else {
            return Ok(());
        };
        let is_far = |path: &String| far_end(path).is_some();
        if !(MIN_PARTS..=MAX_PARTS).contains(&parts) {
            return Err(InvalidRequest::Parts);
        }
        if is_far(&self.destination) && self.sources.iter().any(is_far) {
            return Err(InvalidRequest::SplitBetween);
        }
        match self.sources.len() > 1 || self.destination.ends_with(['/', ':']) {
            true => Ok(()),
            false => Err(InvalidRequest::SplitInto(self.destination.clone())),
        }
    }

    fn paths(&self) -> impl Iterator<Item = &String> {
        self.sources.iter().chain(std::iter::once(&self.destination))
    }

    /// Before when it does not begin, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// What is there is not a moment.
    pub fn due(&self) -> Result<Option<i64>, InvalidRequest> {
        let Some(text) = &self.not_before else {
            return Ok(None);
        };
        let moment: Result<Timestamp, _> = text.parse();
        moment
            .map(|moment| Some(moment.as_millisecond()))
            .map_err(|_| InvalidRequest::NotBefore(text.clone()))
    }

    /// The place that it is limited by: the far end, or this machine.
    pub fn place(&self) -> String {
        // The destination first: it is what a copy between two hosts writes to.
        let ends = std::iter::once(&self.destination).chain(&self.sources);
        let far = ends.filter_map(|path| far_end(path)).next();
        far.unwrap_or("this machine").to_owned()
    }

    /// The arguments of `longhaul cp`, behind its name.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = self.options.arguments();
        arguments.push("--".into());
        arguments.extend(self.paths().cloned());
        arguments
    }
}

/// The host in `user@host:path` or `lh://host/path`, with the user; none for a path here.
fn far_end(path: &str) -> Option<&str> {
    if let Some(rest) = path.strip_prefix("lh://") {
        return Some(rest.split('/').next().unwrap_or(rest));
    }
    // In brackets there may be colons.
    let brackets = path.find(']').map_or(0, |end| end + 1);
    let (host, _) = path.split_at(brackets + path[brackets..].find(':')?);
    (!host.contains('/')).then_some(host)
}

/// Whether it is an absolute path here, `user@host:path` or `lh://host/path`.
pub(crate) fn is_location(text: &str) -> bool {
    let is_text = !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
    is_text && (text.starts_with('/') || far_end(text).is_some())
}

/// What a job that runs is being stopped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stopping {
    /// To rest.
    Pause,
    /// For good.
    Cancel,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// Whose it is.
    pub user: String,
    /// The job that this is a part of, and which part; none if somebody submitted it.
    pub part: Option<PartOf>,
    /// How its parts stand, if it is split.
    pub parts: Option<JobParts>,
    /// What is to be copied, and how.
    pub request: JobRequest,
    /// Where it stands.
    pub state: JobState,
    /// While it runs: what it is being stopped for.
    pub stopping: Option<Stopping>,
    /// Attempts that were begun.
    pub attempts: u32,
    /// While it is queued or waiting: it does not begin before this.
    #[schema(format = "date-time")]
    pub due: Option<String>,
    /// When it was submitted.
    #[schema(format = "date-time")]
    pub created: String,
    /// When its first attempt began.
    #[schema(format = "date-time")]
    pub started: Option<String>,
    /// When it came to its end.
    #[schema(format = "date-time")]
    pub ended: Option<String>,
    /// Which agent carries it out, or was the last one to.
    pub agent: Option<String>,
    /// How far the last attempt came.
    pub progress: Option<Progress>,
    /// Why the last attempt ended, if it was not that all was copied.
    pub error: Option<String>,
    /// The last attempt's exit code, as of `longhaul cp`.
    pub exit_code: Option<i64>,
    /// The number of its last change: of two views of a job, the greater is the newer.
    pub change: i64,
}

impl Job {
    /// The arguments of `longhaul cp` for its attempts, behind its name.
    pub fn arguments(&self) -> Vec<String> {
        let portion = match (&self.part, self.request.split) {
            (Some(part), _) => Some(format!("--part={}/{}", part.number, part.of)),
            (None, Some(_)) => Some("--part=rest".to_owned()),
            (None, None) => None,
        };
        portion.into_iter().chain(self.request.arguments()).collect()
    }
}

/// Which part of a job a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartOf {
    /// The job's number.
    pub job: i64,
    /// Which of its parts, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// How many of a job's parts are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobParts {
    /// All of them.
    pub of: u32,
    /// Carried out by agents at present.
    pub running: u32,
    /// Copied.
    pub done: u32,
    /// Failed; the job's own run mends what it can of them.
    pub failed: u32,
    /// Cancelled.
    pub cancelled: u32,
}

impl JobParts {
    /// So many more are in `state`.
    pub(crate) fn add(&mut self, state: Option<JobState>, count: u32) {
        self.of = self.of.saturating_add(count);
        let counter = match state {
            Some(JobState::Running) => &mut self.running,
            Some(JobState::Done) => &mut self.done,
            Some(JobState::Failed) => &mut self.failed,
            Some(JobState::Cancelled) => &mut self.cancelled,
            _ => return,
        };
        *counter = counter.saturating_add(count);
    }

    /// Whether none is under way or waits any more.
    pub fn have_ended(&self) -> bool {
        self.done
            .saturating_add(self.failed)
            .saturating_add(self.cancelled)
            >= self.of
    }
}

/// How far a copy has come: the fields of the event `progress` of `longhaul cp --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Progress {
    /// Since it began.
    pub seconds: f64,
    /// In place.
    pub bytes: u64,
    /// Found at the source until now.
    pub bytes_found: u64,
    /// Whether `bytes_found` is all there is.
    pub walk_complete: bool,
    /// In place.
    pub files: u64,
    /// Files, directories and links found until now.
    pub entries_found: u64,
    /// Rate, in bit/s.
    pub bps: f64,
    /// The same for each route.
    pub routes_bps: BTreeMap<String, f64>,
}

impl Progress {
    /// What the parts of a copy have come to together, of which there are so many.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>, of: u32) -> Self {
        let (mut sum, mut begun) = (Self::default(), 0u32);
        let mut all_walked = true;
        for part in parts {
            begun = begun.saturating_add(1);
            all_walked &= part.walk_complete;
            sum.seconds = sum.seconds.max(part.seconds);
            sum.bytes = sum.bytes.saturating_add(part.bytes);
            sum.bytes_found = sum.bytes_found.saturating_add(part.bytes_found);
            sum.files = sum.files.saturating_add(part.files);
            sum.entries_found = sum.entries_found.saturating_add(part.entries_found);
            sum.bps += part.bps;
            for (route, bps) in &part.routes_bps {
                *sum.routes_bps.entry(route.clone()).or_default() += bps;
            }
        }
        sum.walk_complete = all_walked && begun >= of;
        sum
    }
}

/// A moment as it is shown: RFC 3339, in UTC.
pub fn shown_moment(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sources: &[&str], destination: &str) -> JobRequest {
        JobRequest {
            sources: sources.iter().map(|&source| source.to_owned()).collect(),
            destination: destination.into(),
            options: CopyOptions::default(),
            label: None,
            priority: 0,
            not_before: None,
            on_end: None,
            split: None,
            on_end_url: None,
        }
    }

    #[test]
    fn places_are_the_far_ends() {
        for (sources, destination, place) in [
            (["/a"], "ana@dtn:/b", "ana@dtn"),
            (["lh://dtn:7511/a"], "/b", "dtn:7511"),
            (["one:/a"], "two:b", "two"),
            (["ana@[2001:db8::1]:a"], "/b", "ana@[2001:db8::1]"),
            (["/a:b"], "/c", "this machine"),
        ] {
            let request = request(&sources, destination);
            assert_eq!(request.check(), Ok(()), "{destination}");
            assert_eq!(request.place(), place);
        }
    }

    #[test]
    fn what_cannot_be_a_job_is_told() {
        let good = || request(&["/a"], "/b");
        let told = |request: JobRequest| request.check().unwrap_err();
        assert_eq!(told(request(&[], "/b")), InvalidRequest::NoSources);
        assert_eq!(told(request(&["a"], "/b")), InvalidRequest::Relative("a".into()));
        assert_eq!(
            told(request(&["./a:b"], "/b")),
            InvalidRequest::Relative("./a:b".into())
        );
        assert_eq!(told(request(&["/a\0"], "/b")), InvalidRequest::Text("sources"));
        assert_eq!(told(request(&["/a"], "")), InvalidRequest::Text("destination"));
        assert_eq!(
            told(request(&["/a"; 1001], "/b")),
            InvalidRequest::TooMany("sources")
        );
        let bad = JobRequest {
            priority: i64::MIN,
            ..good()
        };
        assert_eq!(told(bad), InvalidRequest::Priority);
        let bad = JobRequest {
            not_before: Some("tomorrow".into()),
            ..good()
        };
        assert_eq!(told(bad), InvalidRequest::NotBefore("tomorrow".into()));
        let bad = JobRequest {
            on_end: Some(Vec::new()),
            ..good()
        };
        assert_eq!(told(bad), InvalidRequest::NoProgram);
        let bad = JobRequest {
            on_end_url: Some("file:///etc/passwd".into()),
            ..good()
        };
        assert_eq!(told(bad), InvalidRequest::Url);
    }

    #[test]
    fn what_is_split_goes_to_a_directory_and_passes_an_agent() {
        let split = |sources: &[&str], destination: &str, parts| JobRequest {
            split: Some(parts),
            ..request(sources, destination)
        };
        for (sources, destination) in [
            (&["/a"][..], "dtn:/b/"),
            (&["/a"], "dtn:"),
            (&["lh://dtn/a"], "/b/"),
            (&["/a", "/b"], "/c"),
        ] {
            assert_eq!(split(sources, destination, 8).check(), Ok(()));
        }
        for parts in [0, 1, 1001] {
            assert_eq!(split(&["/a"], "/b/", parts).check(), Err(InvalidRequest::Parts));
        }
        let into = InvalidRequest::SplitInto("dtn:/b".into());
        assert_eq!(split(&["/a"], "dtn:/b", 8).check(), Err(into));
        assert_eq!(
            split(&["one:/a"], "two:/b/", 8).check(),
            Err(InvalidRequest::SplitBetween)
        );
        // What a release that knew nothing of parts has kept reads the same.
        let text = serde_json::to_string(&request(&["/a"], "/b")).unwrap();
        assert!(!text.contains("split"));
    }

    #[test]
    fn what_parts_have_come_to_is_one_sum() {
        let part = |bytes, walk_complete| Progress {
            seconds: bytes as f64,
            bytes,
            bytes_found: 10,
            walk_complete,
            files: 1,
            entries_found: 2,
            bps: 4.0,
            routes_bps: [("direct".to_owned(), 4.0)].into(),
        };
        let sum = Progress::sum(&[part(3, true), part(5, true)], 2);
        assert_eq!(
            (sum.seconds, sum.bytes, sum.bytes_found, sum.files),
            (5.0, 8, 20, 2)
        );
        assert_eq!(
            (sum.bps, sum.routes_bps["direct"], sum.entries_found),
            (8.0, 8.0, 4)
        );
        assert!(sum.walk_complete);
        // Of one that has not begun nobody knows what it will find.
        assert!(!Progress::sum(&[part(3, true), part(5, true)], 3).walk_complete);
        assert!(!Progress::sum(&[part(3, true), part(5, false)], 2).walk_complete);
    }

    #[test]
    fn no_value_can_be_taken_for_a_flag() {
        let mut request = request(&["--overwrite"], "/b");
        request.options.host_key = Some("--json".into());
        request.options.ssh_options = vec!["-v".into()];
        request.options.recursive = true;
        assert_eq!(
            request.arguments(),
            [
                "--recursive",
                "--host-key=--json",
                "-o-v",
                "--",
                "--overwrite",
                "/b"
            ]
        );
    }
}
