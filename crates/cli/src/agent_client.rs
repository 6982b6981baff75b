//! Asks the agent: that of this user over its Unix socket, or one on another machine.

mod elsewhere;

use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use elsewhere::Remote;
pub use elsewhere::{AgentOptions, AgentOptionsOfSubmit};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use longhaul_api::Problem;
use longhaul_proto::text::printable;
use longhaul_proto::{Endpoint, PublicKey};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use crate::exit::Exit;
use crate::home;
use crate::trust::unknown;

/// How long an agent that was just started may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is tried meanwhile.
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Most bytes of an answer: a report names a thousand failures.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The agent cannot be asked, or says no.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody listens there.
    #[error("no agent runs here ({}): start it with longhaul agent", .0.display())]
    NotRunning(PathBuf),
    /// Nobody answers there.
    #[error("cannot connect to the agent at {server}: {source}")]
    Unreachable {
        /// Where.
        server: Endpoint,
        /// Why.
        source: std::io::Error,
    },
    /// What answers there is not known.
    #[error("{}", unknown(server, *found))]
    Unknown {
        /// Where.
        server: Endpoint,
        /// The key that it showed.
        found: PublicKey,
    },
    /// It is not who it was.
    #[error(
        "the agent at {server} shows key {found}, but {expected} is expected: somebody may be in between"
    )]
    OtherKey {
        /// Where.
        server: Endpoint,
        /// The key that is pinned or known.
        expected: PublicKey,
        /// The key that it showed.
        found: PublicKey,
    },
    /// TLS did not come about.
    #[error(
        "no secure connection to the agent at {server}: {source}; --ca FILE names the authority of its certificate"
    )]
    NotSecure {
        /// Where.
        server: Endpoint,
        /// Why.
        source: std::io::Error,
    },
    /// It could not be started.
    #[error("the agent did not start: {0}")]
    NotStarted(String),
    /// It says why not.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// It ended in between.
    #[error("the agent broke off: {0}")]
    BrokeOff(String),
    /// It is of another release.
    #[error("the agent's answer is not understood: {0}; if it is of another release, start it anew")]
    Answer(String),
}

impl AgentError {
    /// The code for it.
    pub fn exit(&self) -> Exit {
        match self {
            Self::NotRunning(_) | Self::NotStarted(_) | Self::Unreachable { .. } | Self::NotSecure { .. } => {
                Exit::NoRoute
            }
            Self::Unknown { .. } | Self::OtherKey { .. } => Exit::Unauthorised,
            Self::Refused(problem) if matches!(problem.status, 401 | 403) => Exit::Unauthorised,
            Self::Refused(_) => Exit::SomeFailed,
            Self::BrokeOff(_) => Exit::BrokeOff,
            Self::Answer(_) => Exit::Disagreement,
        }
    }
}

/// Where the agent keeps what is its own.
pub fn agent_dir() -> Result<PathBuf> {
    let state = home::state_dir()
        .context("neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: say where jobs are to be kept")?;
    Ok(state.join("agent"))
}

/// Its socket.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// Runs to its end what asks the agent.
pub fn in_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(work)
}

/// See the module.
pub struct AgentClient {
    way: Way,
}

/// How the agent is reached.
enum Way {
    Socket(PathBuf),
    Elsewhere(Box<Remote>),
}

impl AgentClient {
    /// Of whichever agent runs, if one does when it is asked.
    pub async fn of(options: &AgentOptions) -> Result<Self> {
        let way = match options.server()? {
            Some(server) => Way::Elsewhere(Box::new(Remote::of(server, options).await?)),
            None => Way::Socket(socket(&agent_dir()?)),
        };
        Ok(Self { way })
    }

    /// Of an agent that runs: one is started if there is none here, and none elsewhere is asked.
    pub async fn of_a_running_one(options: &AgentOptions) -> Result<Self> {
        let client = Self::of(options).await?;
        if let Way::Socket(socket) = &client.way
            && UnixStream::connect(socket).await.is_err()
        {
            start(socket).await?;
        }
        Ok(client)
    }
    /// Asks, and reads the answer.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<T> {
        let response = self.send(method, path, body, key).await?;
        let (status, bytes) = whole(response).await?;
        if !status.is_success() {
            return Err(problem(status, &bytes).into());
        }
        // An answer without content is `null`.
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| AgentError::Answer(error.to_string()).into())
    }

    /// Hands what changes to `heard`, by name and content, until that says that it is enough. Ends when the agent does.
    pub async fn events(
        &self,
        after: i64,
        mut heard: impl FnMut(&str, &str) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let response = self
            .send("GET", &format!("/events?after={after}"), None, None)
            .await?;
        if !response.status().is_success() {
            let (status, bytes) = whole(response).await?;
            return Err(problem(status, &bytes).into());
        }
        let mut body = response.into_body();
        let (mut waiting, mut name) = (Vec::new(), String::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| AgentError::BrokeOff(error.to_string()))?;
            waiting.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
            while let Some(end) = waiting.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let line = line.trim_end();
                if let Some(event) = line.strip_prefix("event: ") {
                    event.clone_into(&mut name);
                } else if let Some(data) = line.strip_prefix("data: ")
                    && heard(&name, data)?.is_break()
                {
                    return Ok(());
                }
            }
            if waiting.len() > MAX_ANSWER_BYTES {
                return Err(AgentError::Answer("an endless line".into()).into());
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Response<Incoming>> {
        let host = match &self.way {
            Way::Socket(_) => "localhost".to_owned(),
            Way::Elsewhere(remote) => remote.authority(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("host", host);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Bytes::from(body));
        let request = request.map_err(|error| anyhow!("cannot ask that: {error}"))?;
        match &self.way {
            Way::Socket(socket) => {
                let stream = UnixStream::connect(socket).await;
                let stream = stream.map_err(|_| AgentError::NotRunning(socket.clone()))?;
                exchange(TokioIo::new(stream), request).await
            }
            Way::Elsewhere(remote) => {
                let stream = remote.connect().await?;
                // Now, since what is signed is good for a minute.
                exchange(stream, remote.signed(request)?).await
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Bytes>) -> Result<Response<Incoming>>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let broke_off = |error: hyper::Error| AgentError::BrokeOff(error.to_string());
    let (mut sender, connection) = http1::handshake(stream).await.map_err(broke_off)?;
    tokio::spawn(connection);
    Ok(sender
        .send_request(request.map(Full::new))
        .await
        .map_err(broke_off)?)
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
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut child = Command::new(program)
        .args(["agent", "--detach"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start the agent")?;
    let until = Instant::now() + START_TIMEOUT;
    while UnixStream::connect(socket).await.is_err() {
        let why = match child.try_wait() {
            // Another command may have started one at the same time.
            Ok(None) | Ok(Some(_)) if Instant::now() < until => {
                sleep(START_POLL_INTERVAL).await;
                continue;
            }
            _ => format!("see {}", log_file.display()),
        };
        return Err(AgentError::NotStarted(why).into());
    }
    Ok(())
}

async fn whole(response: Response<Incoming>) -> Result<(StatusCode, Bytes)> {
    let status = response.status();
    let body = http_body_util::Limited::new(response.into_body(), MAX_ANSWER_BYTES);
    let body = body
        .collect()
        .await
        .map_err(|error| AgentError::BrokeOff(error.to_string()))?;
    Ok((status, body.to_bytes()))
}

fn problem(status: StatusCode, bytes: &[u8]) -> AgentError {
    match serde_json::from_slice(bytes) {
        Ok(problem) => AgentError::Refused(problem),
        Err(_) => AgentError::Answer(format!(
            "{status} {}",
            printable(bytes.get(..200).unwrap_or(bytes))
        )),
    }
}
