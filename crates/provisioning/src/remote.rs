//! A driver that forwards requests to an agent ([`crate::agent`]) at the other end of a stream.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::ask::{
    DriverError, DriverReply, DriverRequest, MAX_REPLY_BYTES, encode_request, read_reply,
};
use crate::driver::{Driver, DriverFuture};
use crate::lines::next_line;

/// Default time limit of an agent's answer, including the connection to it.
pub const DEFAULT_AGENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Bidirectional stream of lines.
trait LineStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> LineStream for S {}

/// Future of a connection.
type ConnectFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn LineStream>>> + Send + 'a>>;

/// Access to the agent.
#[derive(Debug, Clone)]
enum AgentAccess {
    Socket(PathBuf),
    Command {
        program: PathBuf,
        arguments: Vec<String>,
    },
}

/// A remote agent. One connection is kept as long as it works; after an error, the next request
/// opens a new one.
pub struct RemoteDriver {
    way: AgentAccess,
    time: Duration,
    held: Mutex<Option<BufReader<Box<dyn LineStream>>>>,
}

impl RemoteDriver {
    /// Creates a driver for an agent that listens on a Unix socket of this machine.
    #[must_use]
    pub fn socket(path: impl Into<PathBuf>, time: Duration) -> Self {
        Self::with_access(AgentAccess::Socket(path.into()), time)
    }

    /// Creates a driver for an agent behind the standard input and output of a command, such as
    /// `ssh ROUTER longhaul router`. The command inherits this process's standard error.
    #[must_use]
    pub fn command(program: impl Into<PathBuf>, arguments: Vec<String>, time: Duration) -> Self {
        let program = program.into();
        Self::with_access(AgentAccess::Command { program, arguments }, time)
    }

    fn with_access(way: AgentAccess, time: Duration) -> Self {
        Self {
            way,
            time,
            held: Mutex::new(None),
        }
    }

    async fn exchange(&self, line: &[u8]) -> Result<DriverReply, DriverError> {
        let mut held = self.held.lock().await;
        // Taken out, so that a connection that failed or was abandoned is not used again.
        let mut stream = match held.take() {
            Some(stream) => stream,
            None => {
                let stream = self.way.connect().await;
                let stream = stream.map_err(|error| {
                    self.failed(&format!(
                        "cannot be reached ({error}): check that it is running"
                    ))
                })?;
                BufReader::new(stream)
            }
        };
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => self.nonsense(&error.to_string()),
            _ => self.failed(&format!("the connection broke ({error})")),
        };
        stream.write_all(line).await.map_err(lost)?;
        stream.flush().await.map_err(lost)?;
        let Some(answer) = next_line(&mut stream, MAX_REPLY_BYTES)
            .await
            .map_err(lost)?
        else {
            return Err(self.failed("closed the connection without an answer: see its log"));
        };
        let reply = read_reply(&answer).map_err(|error| self.nonsense(&error.to_string()))?;
        if !stream.buffer().is_empty() {
            return Err(self.nonsense("it sent more than one answer"));
        }
        *held = Some(stream);
        Ok(reply)
    }

    fn failed(&self, what: &str) -> DriverError {
        DriverError::failed(format!("agent at {}: {what}", self.way.describe()))
    }

    fn nonsense(&self, what: &str) -> DriverError {
        DriverError::nonsense(format!("agent at {}: {what}", self.way.describe()))
    }
}

impl AgentAccess {
    fn describe(&self) -> String {
        match self {
            Self::Socket(path) => path.display().to_string(),
            Self::Command { program, arguments } => {
                let words =
                    std::iter::once(program.display().to_string()).chain(arguments.iter().cloned());
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn connect(&self) -> ConnectFuture<'_> {
        Box::pin(async move {
            Ok(match self {
                Self::Socket(path) => {
                    Box::new(UnixStream::connect(path).await?) as Box<dyn LineStream>
                }
                Self::Command { program, arguments } => {
                    Box::new(PipedCommand::start(program, arguments)?)
                }
            })
        })
    }
}

impl Driver for RemoteDriver {
    fn ask<'a>(&'a self, request: &'a DriverRequest) -> DriverFuture<'a, DriverReply> {
        Box::pin(async move {
            let line = encode_request(request)?;
            let late = || self.failed(&format!("no answer within {} s", self.time.as_secs_f64()));
            match timeout(self.time, self.exchange(&line)).await {
                Ok(Ok(DriverReply::Error(error))) | Ok(Err(error)) => Err(error),
                Ok(Ok(reply)) => Ok(reply),
                Err(_) => Err(late()),
            }
        })
    }
}

/// Standard input and output of a command, which is killed when they are dropped.
struct PipedCommand {
    _child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl PipedCommand {
    fn start(program: &PathBuf, arguments: &[String]) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("its pipes are missing"));
        };
        Ok(Self {
            _child: child,
            input,
            output,
        })
    }
}

impl AsyncRead for PipedCommand {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PipedCommand {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(cx)
    }
}
