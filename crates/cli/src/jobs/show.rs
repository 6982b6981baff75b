//! Formats jobs for people.

use std::cell::Cell;
use std::io::IsTerminal;

use anyhow::Result;
use longhaul_agent::http::{AgentInfo, JobProgress};
use longhaul_agent::model::{JobParts, Stopping};
use longhaul_agent::{Job, JobState, Progress};
use longhaul_proto::text::printable;
use quantities::{ByteCount, Rate, Time};

use crate::answer;

/// Maximum characters of a path in a list.
const MAX_LISTED_CHARS: usize = 40;

/// Formats the agent's numbers of jobs in one line.
pub fn counts(info: &AgentInfo) -> String {
    let order = [
        "running",
        "split",
        "queued",
        "waiting",
        "paused",
        "done",
        "failed",
        "cancelled",
    ];
    let counts = order.iter().filter_map(|state| {
        let jobs = info.jobs.get(*state)?;
        Some(format!("{jobs} {state}"))
    });
    let counts: Vec<String> = counts.collect();
    match counts.is_empty() {
        true => "no jobs: longhaul submit takes the arguments of longhaul cp".to_owned(),
        false => counts.join(", "),
    }
}

/// Formats a job's number and state in one line.
pub fn state(job: &Job) -> String {
    let line = format!("job {}: {}", job.id, state_word(job));
    match &job.parts {
        Some(parts) if job.state == JobState::Split => format!("{line}, {}", parts_done(parts)),
        _ => line,
    }
}

/// Formats how many parts are done, and the states of the others.
fn parts_done(parts: &JobParts) -> String {
    let mut text = format!("{} of {} parts done", parts.done, parts.of);
    for (count, what) in [(parts.running, "running"), (parts.failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

/// Formats a part of a job, as a line below the job.
pub fn part(job: &Job) -> String {
    let number = job.part.map_or(0, |part| part.number);
    let word = state_word(job);
    let come = job.progress.as_ref().map_or(String::new(), progress);
    let agent = job
        .agent
        .as_ref()
        .map_or(String::new(), |agent| printable(agent.as_bytes()));
    let error = job
        .error
        .as_ref()
        .map_or(String::new(), |error| printable(error.as_bytes()));
    format!("  part {number:<5}  {word:<9}  {agent}  {come}  {error}")
        .trim_end()
        .to_owned()
}

fn state_word(job: &Job) -> String {
    let word = job.state.word();
    match (job.state, job.stopping) {
        (JobState::Running | JobState::Split, Some(Stopping::Pause)) => "pausing".to_owned(),
        (JobState::Running | JobState::Split, Some(Stopping::Cancel)) => "stopping".to_owned(),
        (JobState::Waiting, _) => match &job.due {
            Some(due) => format!("waiting until {}", to_the_second(due)),
            None => word.to_owned(),
        },
        _ => word.to_owned(),
    }
}

/// Formats a job as a row of a list.
pub fn row(job: &Job) -> String {
    let word = match job.state {
        JobState::Waiting => "waiting".to_owned(),
        _ => state_word(job),
    };
    let name = match (&job.part, &job.request.label) {
        (Some(part), _) => format!("part {} of {} of job {}", part.number, part.of, part.job),
        (None, Some(label)) => printable(label.as_bytes()),
        (None, None) => {
            let first = job.request.sources.first().map_or("", String::as_str);
            let more = match job.request.sources.len() {
                0 | 1 => String::new(),
                sources => format!(" and {} more", sources - 1),
            };
            format!(
                "{}{more} -> {}",
                shorten(first),
                shorten(&job.request.destination)
            )
        }
    };
    let come = job.progress.as_ref().map_or(String::new(), progress);
    let parts = job
        .parts
        .as_ref()
        .filter(|_| job.state == JobState::Split)
        .map(parts_done);
    let come = [parts.unwrap_or_default(), come];
    let come: Vec<String> = come.into_iter().filter(|text| !text.is_empty()).collect();
    let come = come.join(", ");
    format!("{:>6}  {word:<9}  {name}  {come}", job.id)
        .trim_end()
        .to_owned()
}

/// Shortens a path from its beginning, as the end says most.
fn shorten(path: &str) -> String {
    let shown = printable(path.as_bytes());
    let chars = shown.chars().count();
    match chars > MAX_LISTED_CHARS {
        true => {
            let end: String = shown.chars().skip(chars - MAX_LISTED_CHARS + 3).collect();
            format!("...{end}")
        }
        false => shown,
    }
}

/// Formats the progress of a copy in one line.
fn progress(come: &Progress) -> String {
    let bytes = ByteCount::nearest(come.bytes as f64);
    let mut line = match come.walk_complete && come.bytes_found > 0 {
        true => format!(
            "{bytes} of {} ({:.0} %)",
            ByteCount::nearest(come.bytes_found as f64),
            100.0 * come.bytes as f64 / come.bytes_found as f64
        ),
        false => bytes.to_string(),
    };
    if come.bps > 0.0 && come.bytes < come.bytes_found {
        line.push_str(&format!(", {}", Rate::nearest(come.bps)));
        let left = come.bytes_found.saturating_sub(come.bytes) as f64 * 8.0 / come.bps;
        if come.walk_complete && left.is_finite() {
            line.push_str(&format!(", {} left", Time::from_seconds(left.ceil())));
        }
    }
    line
}

/// Formats a job in several lines.
pub fn details(job: &Job) -> String {
    let mut lines = vec![state(job)];
    let mut add = |name: &str, value: String| {
        lines.push(format!("  {name:<9}  {}", printable(value.as_bytes())))
    };
    if let Some(label) = &job.request.label {
        add("label", label.clone());
    }
    for source in &job.request.sources {
        add("from", source.clone());
    }
    add("to", job.request.destination.clone());
    let options = job.request.options.arguments();
    if !options.is_empty() {
        add("options", options.join(" "));
    }
    if let Some(part) = &job.part {
        add(
            "part",
            format!("{} of {} of job {}", part.number, part.of, part.job),
        );
    }
    if let Some(parts) = &job.parts {
        add("parts", parts_done(parts));
    }
    if let Some(come) = &job.progress {
        add("copied", progress(come));
    }
    if let Some(error) = &job.error {
        add("error", error.clone());
    }
    let moments = [
        ("submitted", Some(&job.created)),
        ("due", job.due.as_ref().filter(|due| **due > job.created)),
        ("started", job.started.as_ref()),
        ("ended", job.ended.as_ref()),
    ];
    for (name, moment) in moments {
        if let Some(moment) = moment {
            add(name, to_the_second(moment));
        }
    }
    if job.attempts > 1 {
        add("attempts", job.attempts.to_string());
    }
    lines.join("\n")
}

/// Removes fractions of a second from a timestamp of the API.
fn to_the_second(moment: &str) -> String {
    match moment.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => moment.to_owned(),
    }
}

/// Display of a job that is followed.
pub struct JobDisplay {
    json: bool,
    /// If true, progress overwrites the previous line.
    in_place: bool,
    /// True while a progress line is displayed.
    written: Cell<bool>,
}

impl JobDisplay {
    /// Creates a display that prints JSON lines, or text for people.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            in_place: !json && std::io::stdout().is_terminal(),
            written: Cell::new(false),
        }
    }

    /// Shows a changed job.
    pub fn job(&self, job: &Job) -> Result<()> {
        if self.json {
            answer::write_line(serde_json::to_string(job)?);
            return Ok(());
        }
        self.end();
        let mut line = state(job);
        if let Some(error) = &job.error {
            line.push_str(&format!(": {}", printable(error.as_bytes())));
        }
        if job.state == JobState::Done
            && let Some(come) = &job.progress
        {
            line.push_str(&format!(", {}", ByteCount::nearest(come.bytes as f64)));
        }
        answer::write_line(line);
        Ok(())
    }

    /// Shows progress.
    pub fn progress(&self, id: i64, data: &str) -> Result<()> {
        let come: JobProgress = serde_json::from_str(data)?;
        if come.id != id {
            return Ok(());
        }
        if self.json {
            answer::write_line(data);
        } else if self.in_place {
            longhaul_output::print(&format!("\r\x1b[K{}", progress(&come.progress)));
            self.written.set(true);
        }
        Ok(())
    }

    /// Ends the progress line, so that it is not overwritten.
    pub fn end(&self) {
        if self.written.replace(false) {
            answer::write_line("");
        }
    }
}
