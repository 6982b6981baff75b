//! `longhaul jobs`, `job`, `pause`, `resume`, `cancel` and `retry`: lists and controls the agent's
//! jobs.

mod show;

use std::ops::ControlFlow;

use anyhow::Result;
use clap::Args;
use longhaul_agent::http::{AgentInfo, JobPage};
use longhaul_agent::model::MAX_PARTS;
use longhaul_agent::{Job as TheJob, JobState};
use serde_json::Value;

use crate::agent_client::{AgentClient, AgentOptions, run_in_runtime};
use crate::exit::Exit;
use crate::{answer, logging};

/// Jobs requested at a time.
const PAGE_JOBS: u32 = 500;

/// List the agent's jobs, newest first. The agent is started if it does not run.
#[derive(Args)]
pub struct JobsCommand {
    /// Only jobs in this state: queued, split (its parts run), running, paused, waiting, done,
    /// failed or cancelled.
    #[arg(
        long,
        value_name = "STATE",
        value_parser = [
            "queued", "split", "running", "paused", "waiting", "done", "failed", "cancelled"
        ],
    )]
    state: Option<String>,
    /// Maximum number of jobs to list [default: 50].
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 50,
        hide_default_value = true
    )]
    number: u32,
    /// List parts of jobs too.
    #[arg(long)]
    parts: bool,
    /// Print each job as one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentOptions,
}

/// Show a job of the agent.
#[derive(Args)]
pub struct JobCommand {
    /// Number of the job.
    id: i64,
    /// Show progress until it has ended; the exit status is then that of its copy.
    #[arg(short, long)]
    follow: bool,
    /// Print the closing report of its last attempt, as of `longhaul cp --json`.
    #[arg(long, conflicts_with = "follow")]
    report: bool,
    /// Print JSON: one object, or with --follow one per line.
    #[arg(long)]
    json: bool,
    /// Remove it from the history. It must have ended.
    #[arg(long, conflicts_with_all = ["follow", "report", "json"])]
    forget: bool,
    #[command(flatten)]
    agent: AgentOptions,
}

macro_rules! request {
    ($(#[doc = $doc:literal])* $name:ident, $verb:literal) => {
        $(#[doc = $doc])*
        #[derive(Args)]
        pub struct $name {
            /// Numbers of the jobs.
            #[arg(required = true, value_name = "ID")]
            ids: Vec<i64>,
            /// Print each job as one line of JSON.
            #[arg(long)]
            json: bool,
            #[command(flatten)]
            agent: AgentOptions,
        }

        impl $name {
            /// Sends the request.
            pub fn run(self) -> Result<Exit> {
                request(&self.ids, $verb, self.json, &self.agent)
            }
        }
    };
}

request! {
    /// Pause jobs of the agent. A running one stops first; what it has copied is kept.
    Pause, "pause"
}
request! {
    /// Resume paused jobs of the agent.
    Resume, "resume"
}
request! {
    /// Cancel jobs of the agent. What they have copied stays.
    Cancel, "cancel"
}
request! {
    /// Retry jobs of the agent now that failed, were cancelled, or wait for their next attempt.
    Retry, "retry"
}

fn request(ids: &[i64], verb: &str, as_json: bool, agent: &AgentOptions) -> Result<Exit> {
    logging::start("error");
    run_in_runtime(async {
        let agent = AgentClient::for_running_agent(agent).await?;
        for id in ids {
            let job: TheJob = agent
                .ask("POST", &format!("/jobs/{id}/{verb}"), None, None)
                .await?;
            match as_json {
                true => answer::write_line(serde_json::to_string(&job)?),
                false => answer::write_line(show::state(&job)),
            }
        }
        Ok(Exit::Success)
    })
}

impl JobsCommand {
    /// Lists the jobs.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        run_in_runtime(async {
            let agent = AgentClient::for_running_agent(&self.agent).await?;
            let (mut left, mut before) = (self.number, None);
            if !self.json {
                let info: AgentInfo = agent.ask("GET", "/agent", None, None).await?;
                answer::write_line(show::counts(&info));
            }
            while left > 0 {
                let mut path = format!("/jobs?limit={}", left.min(PAGE_JOBS));
                if let Some(state) = &self.state {
                    path.push_str(&format!("&state={state}"));
                }
                if self.parts {
                    path.push_str("&parts=true");
                }
                if let Some(before) = before {
                    path.push_str(&format!("&before={before}"));
                }
                let page: JobPage = agent.ask("GET", &path, None, None).await?;
                if let (true, None, Some(state), false) =
                    (page.items.is_empty(), before, &self.state, self.json)
                {
                    answer::write_line(format!("no jobs are {state}"));
                }
                left = left.saturating_sub(u32::try_from(page.items.len()).unwrap_or(u32::MAX));
                let lines: Result<Vec<String>> = match self.json {
                    true => page
                        .items
                        .iter()
                        .map(|job| Ok(serde_json::to_string(job)?))
                        .collect(),
                    false => Ok(page.items.iter().map(show::row).collect()),
                };
                if !answer::write_lines(lines?.into_iter()) {
                    break;
                }
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            Ok(Exit::Success)
        })
    }
}

impl JobCommand {
    /// Shows the job.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        run_in_runtime(async {
            let agent = AgentClient::for_options(&self.agent).await?;
            let path = format!("/jobs/{}", self.id);
            if self.forget {
                let () = agent.ask("DELETE", &path, None, None).await?;
                return Ok(Exit::Success);
            }
            if self.report {
                let report: Value = agent
                    .ask("GET", &format!("{path}/report"), None, None)
                    .await?;
                answer::write_line(report);
                return Ok(Exit::Success);
            }
            let job: TheJob = agent.ask("GET", &path, None, None).await?;
            if self.follow {
                return self.follow(&agent, job).await;
            }
            match self.json {
                true => answer::write_line(serde_json::to_string(&job)?),
                false => {
                    answer::write_line(show::details(&job));
                    if job.parts.is_some() {
                        answer::write_lines(self.parts(&agent).await?.iter().map(show::part));
                    }
                }
            }
            Ok(Exit::Success)
        })
    }

    /// Returns its parts, by number.
    async fn parts(&self, agent: &AgentClient) -> Result<Vec<TheJob>> {
        // All parts fit into one answer.
        let path = format!("/jobs?part_of={}&limit={MAX_PARTS}", self.id);
        let page: JobPage = agent.ask("GET", &path, None, None).await?;
        let mut parts = page.items;
        parts.sort_by_key(|part| part.id);
        Ok(parts)
    }

    async fn follow(&self, agent: &AgentClient, mut job: TheJob) -> Result<Exit> {
        let lines = show::JobDisplay::new(self.json);
        lines.job(&job)?;
        // The current state is known; every later change arrives as an event.
        while !job.state.is_end() {
            let received = agent.events(job.change, |name, data| {
                match name {
                    "job" => {
                        let changed: TheJob = serde_json::from_str(data)?;
                        if changed.id == self.id {
                            job = changed;
                            lines.job(&job)?;
                        }
                    }
                    "progress" => lines.progress(self.id, data)?,
                    _ => {}
                }
                Ok(match job.state.is_end() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            });
            received.await?;
            if !job.state.is_end() {
                // The agent has ended, and may be back.
                job = agent
                    .ask("GET", &format!("/jobs/{}", self.id), None, None)
                    .await?;
            }
        }
        lines.end();
        Ok(match job.state {
            JobState::Done => Exit::Success,
            JobState::Cancelled => Exit::Interrupted,
            _ => job
                .exit_code
                .and_then(Exit::from_code)
                .unwrap_or(Exit::SomeFailed),
        })
    }
}
