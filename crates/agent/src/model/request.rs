//! Job requests: the copy, its options, and their validation.

use jiff::Timestamp;
use longhaul_copy_api::CopyOptions;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::notice::Receiver;

/// Maximum number of a job's sources, and of the entries of each list among its options.
const MAX_LIST_ENTRIES: usize = 1000;
/// Maximum length of a path, an option, a label or an argument, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Minimum number of parts of a split job.
pub const MIN_PARTS: u32 = 2;
/// Maximum number of parts of a split job.
pub const MAX_PARTS: u32 = 1000;
/// Maximum priority; its negative is the minimum.
pub const MAX_PRIORITY: i64 = 100;

/// The requested copy: the arguments of `longhaul cp`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// Sources: absolute paths on this machine, `user@host:path`, or `lh://host[:port]/path`.
    #[schema(min_items = 1, max_items = 1000, example = json!(["/data/run-7"]))]
    pub sources: Vec<String>,
    /// Destination, in the same form.
    #[schema(
        min_length = 1,
        max_length = 4096,
        example = "ana@dtn.example.org:/store/"
    )]
    pub destination: String,
    /// Options of the copy.
    #[serde(default)]
    pub options: CopyOptions,
    /// Label, chosen by the owner.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 4096)]
    pub label: Option<String>,
    /// Priority among the jobs of one user; greater is sooner.
    #[serde(default)]
    #[schema(minimum = -100, maximum = 100)]
    pub priority: i64,
    /// Earliest start (RFC 3339).
    #[serde(default)]
    #[schema(format = "date-time")]
    pub not_before: Option<String>,
    /// Program and its arguments, run when the job has ended, with the job in JSON on its standard
    /// input.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 1000)]
    pub on_end: Option<Vec<String>>,
    /// Number of parts, each a job that any agent can run. Afterwards the job runs as a whole and
    /// copies what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 2, maximum = 1000)]
    pub split: Option<u32>,
    /// `http` or `https` URL to which the job's end is reported: a POST of the job in JSON.
    // Left out if unused, so that older releases can read stored jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2048)]
    pub on_end_url: Option<String>,
}

/// The request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// The request has no sources.
    #[error("sources: name what to copy")]
    NoSources,
    /// A list has too many entries. Name a directory, with `-r`.
    #[error("{0}: at most {MAX_LIST_ENTRIES} entries")]
    TooMany(String),
    /// A text is empty, too long, or not a valid argument.
    #[error("{0}: empty, longer than {MAX_TEXT_BYTES} bytes, or with a NUL byte")]
    Text(&'static str),
    /// A path is relative, so it would depend on the agent's working directory.
    #[error("{0}: not an absolute path, user@host:path or lh://host/path")]
    Relative(String),
    /// The priority is out of range.
    #[error("priority: between -{MAX_PRIORITY} and {MAX_PRIORITY}")]
    Priority,
    /// The time is malformed. Write it as in RFC 3339, with `Z` or an offset.
    #[error("not_before: {0} is not a moment like 2030-01-31T18:00:00Z")]
    NotBefore(String),
    /// There are too few or too many parts. Three to ten times as many as there are nodes are
    /// enough.
    #[error("split: between {MIN_PARTS} and {MAX_PARTS} parts")]
    Parts,
    /// The meaning of the destination depends on whether it exists, which the first part changes.
    #[error(
        "split: {0}: end the destination with a slash, so that it names a directory even if it \
         does not exist yet"
    )]
    SplitInto(String),
    /// The data passes no agent, so it cannot be divided among agents.
    #[error("split: a copy between two other hosts cannot be divided among agents: leave it out")]
    SplitBetween,
    /// The program's name is missing. Name one, or leave the list out.
    #[error("on_end: name a program")]
    NoProgram,
    /// The URL is invalid.
    #[error(
        "on_end_url: an http or https URL of up to 2048 characters, without a user name or password"
    )]
    Url,
    /// `longhaul cp` refuses the options.
    #[error("{0}")]
    Copy(String),
}

impl JobRequest {
    /// Validates the request, as far as that is possible before it runs.
    ///
    /// # Errors
    /// A description of the error.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        if self.sources.is_empty() {
            return Err(InvalidRequest::NoSources);
        }
        let options = self.options.to_json();
        let option_lists = options
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_array()?.len())));
        let mut lists = option_lists.chain([
            ("sources", self.sources.len()),
            ("on_end", self.on_end.as_ref().map_or(0, Vec::len)),
        ]);
        if let Some((name, _)) = lists.find(|(_, entries)| *entries > MAX_LIST_ENTRIES) {
            return Err(InvalidRequest::TooMany(name.to_owned()));
        }
        let is_text =
            |text: &str| !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
        let is_option = |value: &Value| value.as_str().is_none_or(is_text);
        let are_options = |value: &Value| match value.as_array() {
            Some(list) => list.iter().all(is_option),
            None => is_option(value),
        };
        let are_texts = |texts: &[String]| texts.iter().all(|text| is_text(text));
        let texts = [
            ("sources", are_texts(&self.sources)),
            ("destination", is_text(&self.destination)),
            ("options", options.values().all(are_options)),
            ("label", self.label.as_deref().is_none_or(is_text)),
            ("on_end", self.on_end.as_deref().is_none_or(are_texts)),
        ];
        if let Some((name, _)) = texts.iter().find(|(_, valid)| !valid) {
            return Err(InvalidRequest::Text(name));
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
            .is_some_and(|url| Receiver::parse(url).is_none())
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
        self.sources
            .iter()
            .chain(std::iter::once(&self.destination))
    }

    /// Returns the earliest start, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// The time is malformed.
    pub fn due(&self) -> Result<Option<i64>, InvalidRequest> {
        let Some(text) = &self.not_before else {
            return Ok(None);
        };
        let moment: Result<Timestamp, _> = text.parse();
        moment
            .map(|moment| Some(moment.as_millisecond()))
            .map_err(|_| InvalidRequest::NotBefore(text.clone()))
    }

    /// Returns the place whose limit applies to the job: the far end, or this machine.
    pub fn place(&self) -> String {
        // The destination first, as a copy between two other hosts writes there.
        let ends = std::iter::once(&self.destination).chain(&self.sources);
        let far = ends.filter_map(|path| far_end(path)).next();
        far.unwrap_or("this machine").to_owned()
    }

    /// Returns the arguments of `longhaul cp`, after the command name.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = self.options.arguments();
        arguments.push("--".into());
        arguments.extend(self.paths().cloned());
        arguments
    }
}

/// Returns the host, with the user, of `user@host:path` or `lh://host/path`. `None` for a local
/// path.
fn far_end(path: &str) -> Option<&str> {
    if let Some(rest) = path.strip_prefix("lh://") {
        return Some(rest.split('/').next().unwrap_or(rest));
    }
    // An address in brackets contains colons.
    let brackets = path.find(']').map_or(0, |end| end + 1);
    let (host, _) = path.split_at(brackets + path[brackets..].find(':')?);
    (!host.contains('/')).then_some(host)
}

/// Returns true for an absolute path, `user@host:path` or `lh://host/path`.
pub(crate) fn is_location(text: &str) -> bool {
    let is_text = !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
    is_text && (text.starts_with('/') || far_end(text).is_some())
}
