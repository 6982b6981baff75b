//! Client of the agent: this user's over its Unix socket, or one on another machine.

mod elsewhere;

use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
pub use elsewhere::{AgentOptions, SubmitAgentOptions};
use http_body_util::BodyExt;
use longhaul_control_client::client::MAX_ANSWER_BYTES;
use longhaul_control_client::{ClientError, ServiceClient};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use crate::home;

/// Time within which an agent that was just started must answer, if the machine is busy.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time within which an agent must answer that another command started at the same time.
const OTHER_START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to connect to an agent that is starting.
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Name of the agent in messages.
const SERVICE: &str = "agent";

/// Reasons why there is no agent to ask.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent does not run, as its socket does not answer. Start it with `longhaul agent`.
    /// `longhaul submit` starts one by itself.
    #[error("no agent runs here ({}): start it with longhaul agent", .0.display())]
    NotRunning(PathBuf),
    /// Starting the agent failed, for the reason given.
    #[error("the agent did not start: {0}")]
    NotStarted(String),
}

/// Returns the directory of the agent's own files.
pub fn agent_dir() -> Result<PathBuf> {
    let state = home::state_dir().context(
        "neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: set LONGHAUL_STATE to the \
         directory for jobs",
    )?;
    Ok(state.join("agent"))
}

/// Returns the path of the agent's socket.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// Runs a request to the agent to completion.
pub fn run_in_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    crate::runtime::start_small()?.block_on(work)
}

/// Client of one agent, here or on another machine.
pub struct AgentClient {
    client: ServiceClient,
}

impl AgentClient {
    /// Connects to the agent that the options name, whether or not it runs.
    pub async fn for_options(options: &AgentOptions) -> Result<Self> {
        let client = match options.server()? {
            Some(server) => elsewhere::client(server, options).await?,
            None => ServiceClient::at_socket(SERVICE, socket(&agent_dir()?)),
        };
        Ok(Self { client })
    }

    /// Connects to a running agent. A local agent is started if none runs; a remote one never is.
    pub async fn for_running_agent(options: &AgentOptions) -> Result<Self> {
        let agent = Self::for_options(options).await?;
        if let Some(socket) = agent.client.socket()
            && UnixStream::connect(socket).await.is_err()
        {
            start(socket).await?;
        }
        Ok(agent)
    }

    /// Sends a request, and parses the answer.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<T> {
        self.client
            .ask(method, path, body, key)
            .await
            .map_err(explain_missing_agent)
    }

    /// Passes each event to `received`, by name and content, until that returns that it is enough.
    /// Ends when the agent does.
    pub async fn events(
        &self,
        after: i64,
        mut received: impl FnMut(&str, &str) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let path = format!("/events?after={after}");
        let response = self.client.send("GET", &path, None::<&Value>, None).await;
        let response = response.map_err(explain_missing_agent)?;
        if !response.status().is_success() {
            self.client.read_success(response).await?;
            return Ok(());
        }
        let mut body = response.into_body();
        let (mut waiting, mut name) = (Vec::new(), String::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.client.broken_off_error(error))?;
            waiting.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
            while let Some(end) = waiting.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let line = line.trim_end();
                if let Some(event) = line.strip_prefix("event: ") {
                    event.clone_into(&mut name);
                } else if let Some(data) = line.strip_prefix("data: ")
                    && received(&name, data)?.is_break()
                {
                    return Ok(());
                }
            }
            if waiting.len() > MAX_ANSWER_BYTES {
                return Err(self
                    .client
                    .malformed_answer("an endless line".into())
                    .into());
            }
        }
        Ok(())
    }
}

/// Replaces the error of a local agent that does not run by one that says what to do.
fn explain_missing_agent(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::NoSocket { path, .. } => AgentError::NotRunning(path).into(),
        error => error.into(),
    }
}

/// Starts this user's agent.
async fn start(socket: &Path) -> Result<()> {
    let dir = agent_dir()?;
    home::make_private(&dir)?;
    let log_file = dir.join("log");
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log_file);
    let log = log.with_context(|| format!("cannot write {}", log_file.display()))?;
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut child = Command::new(program)
        .args(["agent", "--detach"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start the agent")?;
    let began = Instant::now();
    while UnixStream::connect(socket).await.is_err() {
        let limit = match child.try_wait() {
            Ok(None) => START_TIMEOUT,
            // It may have ended because another one runs.
            Ok(Some(_)) | Err(_) => OTHER_START_TIMEOUT,
        };
        if began.elapsed() >= limit {
            let why = format!("see {}", log_file.display());
            return Err(AgentError::NotStarted(why).into());
        }
        sleep(START_POLL_INTERVAL).await;
    }
    Ok(())
}
