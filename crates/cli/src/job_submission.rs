//! Submission of jobs to an agent.

use anyhow::Result;
use longhaul_agent::{Job, JobRequest};
use serde_json::json;

use crate::agent_client::{AgentClient, AgentOptions, run_in_runtime};
use crate::answer;
use crate::exit::Exit;

/// The machine that the paths of a command line belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathOrigin {
    /// This machine. Relative paths begin in the current directory.
    ThisMachine,
    /// Another machine, whose directories are unknown here.
    AnotherMachine,
}

/// Returns the machine that the paths of the command line belong to.
pub fn path_origin(agent: &AgentOptions) -> Result<PathOrigin> {
    Ok(match agent.server()? {
        Some(_) => PathOrigin::AnotherMachine,
        None => PathOrigin::ThisMachine,
    })
}

/// Submits a job, and prints its number.
pub fn submit(
    asked: &AgentOptions,
    request: &JobRequest,
    key: Option<&str>,
    as_json: bool,
) -> Result<Exit> {
    request.check()?;
    run_in_runtime(async {
        let agent = AgentClient::for_running_agent(asked).await?;
        let job: Job = agent
            .ask("POST", "/jobs", Some(&json!(request)), key)
            .await?;
        match as_json {
            true => answer::write_line(serde_json::to_string(&job)?),
            false => answer::write_line(format!(
                "job {}: longhaul job {}{} --follow shows its progress",
                job.id,
                job.id,
                asked.as_argument()
            )),
        }
        Ok(Exit::Success)
    })
}
