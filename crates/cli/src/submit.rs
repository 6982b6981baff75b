//! `longhaul submit`: copies that the agent makes.

use anyhow::Result;
use clap::Args;
use longhaul_agent::JobRequest;

use crate::agent_client::{AgentOptions, SubmitAgentOptions};
use crate::cp::Cp;
use crate::exit::Exit;
use crate::job_submission::{path_origin, submit};
use crate::logging;

/// Have the agent make a copy in the background; it takes the arguments of `longhaul cp`.
///
/// The agent is started if it does not run. It makes the copy even if this terminal is closed,
/// retries what breaks off, and resumes after a crash or a reboot. `longhaul jobs` lists its jobs,
/// `longhaul job NUMBER --follow` watches one. With --agent, paths are those of that agent's
/// machine, and begin with a slash.
#[derive(Args)]
#[command(override_usage = "longhaul submit [OPTIONS] <SRC>... <DST>")]
pub struct Submit {
    /// Label of the job.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Priority among your jobs, from -100 to 100; a greater one runs sooner.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    priority: i64,
    /// Do not start before this moment, such as 2030-01-31T18:00:00Z.
    #[arg(long, value_name = "MOMENT")]
    not_before: Option<String>,
    /// Program to run when the job has ended, with the job in JSON on its standard input. Repeat
    /// for its arguments.
    #[arg(long, value_name = "PROGRAM", allow_hyphen_values = true)]
    on_end: Vec<String>,
    /// Report the end of the job to this http or https URL: a POST of the job in JSON, signed by
    /// the agent [default: the agent's --on-end-url].
    #[arg(long, value_name = "URL")]
    on_end_url: Option<String>,
    /// Idempotency key: a repeated request with the same key creates no second job.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    #[command(flatten)]
    agent: SubmitAgentOptions,
    #[command(flatten)]
    cp: Cp,
}

impl Submit {
    /// Submits the job.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        let agent = AgentOptions::from(self.agent);
        let request = JobRequest {
            label: self.label,
            priority: self.priority,
            not_before: self.not_before,
            on_end: Some(self.on_end).filter(|command| !command.is_empty()),
            on_end_url: self.on_end_url,
            ..self.cp.request(path_origin(&agent)?)?
        };
        submit(&agent, &request, self.key.as_deref(), self.cp.wants_json())
    }
}
