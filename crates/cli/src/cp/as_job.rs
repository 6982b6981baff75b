//! Conversion of a `cp` command line to a job's request, and back.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Command, FromArgMatches};
use longhaul_agent::JobRequest;
use longhaul_copy_api::SshOptions;
use longhaul_proto::text::printable;
use quantities::Time;

use super::Cp;
use crate::agent_client::AgentOptions;
use crate::exit::Exit;
use crate::job_submission::{PathOrigin, path_origin, submit};
use crate::target::Target;
use crate::{failure, home};

/// Time for which one attempt of a job tolerates an outage. The job is retried after that.
pub const ATTEMPT_PATIENCE: Time = Time(Duration::from_secs(40));

impl Cp {
    /// Has the agent copy in the background.
    pub fn submit(&self) -> Result<Exit> {
        let agent = AgentOptions::from_environment();
        submit(
            &agent,
            &self.request(path_origin(&agent)?)?,
            None,
            self.wants_json(),
        )
    }

    /// Converts the command line to a job. Its paths mean the same wherever the agent was started.
    ///
    /// # Errors
    /// The command line is invalid, or names something that JSON cannot express.
    pub fn request(&self, of: PathOrigin) -> Result<JobRequest> {
        self.parse_job()?;
        if self.run_options.patience.is_some() {
            bail!(
                "--patience is for copies in the foreground: attempts of a job give up after \
                 {ATTEMPT_PATIENCE} and are retried"
            );
        }
        let paths: Result<Vec<String>> = self.paths.iter().map(|path| absolute(path, of)).collect();
        let mut paths = paths?;
        let destination = paths
            .pop()
            .ok_or_else(|| anyhow!("name what to copy and where to"))?;
        let mut options = self.options.clone();
        options.compress = self.requested_compression();
        let SshOptions {
            ssh_key,
            ssh_config,
            ..
        } = &mut options.ssh;
        for file in [&mut options.identity, ssh_key, ssh_config] {
            *file = match file.as_deref() {
                Some(file) => Some(absolute_file(file, of)?.into()),
                None => None,
            };
        }
        if options.filter.files_from.as_deref() == Some(Path::new("-")) {
            bail!("--files-from -: a job has no standard input: write the list to a file");
        }
        let lists = options.filter.exclude_from.iter_mut();
        for file in lists.chain(&mut options.filter.files_from) {
            *file = absolute_file(file, of)?.into();
        }
        let program = options.ssh.ssh_program.iter().map(|file| file.as_os_str());
        let arguments = options.ssh.ssh_options.iter().map(OsString::as_os_str);
        for value in program.chain(arguments) {
            text(value)?;
        }
        let by = self.deadline()?.and_then(|deadline| deadline.by);
        options.by = by.map(|by| by.timestamp().to_string());
        Ok(JobRequest {
            sources: paths,
            destination,
            options,
            label: None,
            priority: 0,
            not_before: None,
            on_end: None,
            split: self.split,
            on_end_url: None,
        })
    }

    /// Returns true if the report is to be JSON.
    pub fn wants_json(&self) -> bool {
        self.run_options.json
    }
}

/// Checks that `longhaul cp` accepts a request.
///
/// # Errors
/// Describes in one line what it does not accept.
pub fn check_request(request: &JobRequest) -> Result<(), String> {
    let command = Cp::augment_args(Command::new("cp").no_binary_name(true)).disable_help_flag(true);
    let matches = command
        .try_get_matches_from(request.arguments())
        .map_err(|error| {
            let reported = error.to_string();
            let line = reported.lines().next().unwrap_or_default();
            line.strip_prefix("error: ").unwrap_or(line).to_owned()
        })?;
    let cp = Cp::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    cp.parse_job()
        .map(|_| ())
        .map_err(|error| failure::format_line(&error))
}

/// Makes a path of the command line absolute.
fn absolute(path: &OsStr, of: PathOrigin) -> Result<String> {
    match Target::parse(path)? {
        // Joined, not cleaned: a slash or a dot at the end is significant.
        Target::Local(path) => absolute_file(&path, of),
        Target::Login(_) | Target::Remote(_) | Target::Sftp(_) | Target::Endpoint(_) => text(path),
    }
}

fn absolute_file(path: &Path, of: PathOrigin) -> Result<String> {
    if of == PathOrigin::AnotherMachine && !path.is_absolute() {
        bail!(
            "{}: with --agent, paths are those of that agent's machine: begin them with a slash",
            home::display_path(path)
        );
    }
    let here = std::env::current_dir().context("cannot find the current directory")?;
    text(here.join(path).as_os_str())
}

fn text(value: &OsStr) -> Result<String> {
    let text = value.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        let shown = printable(value.as_encoded_bytes());
        anyhow!(
            "{shown}: a job's names must be UTF-8: copy it with longhaul cp, or name the \
            directory that it is in"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: &[&str]) -> Result<JobRequest> {
        let command = Cp::augment_args(Command::new("cp").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        Cp::from_arg_matches(&matches)
            .unwrap()
            .request(PathOrigin::ThisMachine)
    }

    #[test]
    fn a_command_line_survives_conversion_to_a_job() {
        let all = [
            "-r",
            "--overwrite",
            "--fsync",
            "--no-resume",
            "--no-encrypt",
            "--checksum",
            "-H",
            "--fall-back",
            "--accept-new",
            "--route",
            "direct",
            "--route",
            "one.example,two.example",
            "--source",
            "192.0.2.1",
            "--streams",
            "3",
            "--congestion",
            "bbr",
            "--identity",
            "/key",
            "--by",
            "2100-01-01T00:00:00Z",
            "--reserve",
            "2000000000",
            "--exclude",
            "*.tmp",
            "--include",
            "keep.tmp",
            "--newer",
            "7d",
            "--max-size",
            "10M",
            "--files-from",
            "/list",
            "-0",
            "--update",
            "/a",
            "lh://dtn.example/b/",
        ];
        let over_ssh = [
            "--bootstrap",
            "-P",
            "2222",
            "-i",
            "/id",
            "-F",
            "/config",
            "-J",
            "jump",
            "-o",
            "LogLevel=quiet",
            "-o",
            "User=x",
            "-4",
            "-S",
            "/usr/bin/ssh",
            "--port-range",
            "5000-5010",
            "ana@host:a",
            "/b",
        ];
        for line in [&all[..], &over_ssh] {
            let first = request(line).unwrap();
            assert_eq!(check_request(&first), Ok(()));
            let arguments = first.arguments();
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            assert_eq!(request(&words).unwrap(), first);
        }
    }

    #[test]
    fn job_paths_are_absolute_and_keep_trailing_characters() {
        let here = std::env::current_dir().unwrap();
        let asked = request(&["a", "./b:c", "/d/", "e/."]).unwrap();
        let here = |path: &str| here.join(path).to_str().unwrap().to_owned();
        assert_eq!(asked.sources, [here("a"), here("./b:c"), "/d/".into()]);
        assert!(asked.destination.ends_with("/e/."));
    }

    #[test]
    fn relative_paths_are_refused_for_another_machine() {
        let asked = |line: &[&str]| {
            let command = Cp::augment_args(Command::new("cp").no_binary_name(true));
            let matches = command.try_get_matches_from(line).unwrap();
            Cp::from_arg_matches(&matches)
                .unwrap()
                .request(PathOrigin::AnotherMachine)
        };
        let good = asked(&["-i", "/key", "/a", "ana@host:b"]).unwrap();
        assert_eq!(
            (&*good.sources, &*good.destination),
            (&["/a".to_owned()][..], "ana@host:b")
        );
        for line in [
            &["a", "h:b"][..],
            &["h:b", "."],
            &["-i", "key", "/a", "h:b"],
            &["lh://h/a", "b"],
        ] {
            let reported = asked(line).unwrap_err().to_string();
            assert!(reported.contains("that agent's machine"), "{reported}");
        }
    }

    #[test]
    fn invalid_jobs_are_refused_at_submission() {
        let mut asked = request(&["/a", "lh://dtn.example/b"]).unwrap();
        asked.options.ssh.ssh_jump = Some("jump".into());
        assert!(check_request(&asked).unwrap_err().contains("-J"));
        asked.options.ssh.ssh_jump = None;
        asked.options.streams = Some(1_000_000);
        assert!(check_request(&asked).unwrap_err().contains("1000000"));
        asked.options.streams = None;
        asked.options.host_key = Some(longhaul_session::PublicKey::from_bytes([1; 32]));
        asked.options.accept_new = true;
        assert!(!check_request(&asked).unwrap_err().contains('\n'));
    }
}
