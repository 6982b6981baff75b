//! Replacing a running process by a new one of the same program, for example of the release that
//! was installed meanwhile. The successor takes over the listeners; this process then drains.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use longhaul_hop::{SUCCESSOR_VARIABLE, is_successor, send_offered};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::{Error, systemd};

/// Time for a successor to open what it needs.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Variables that concern only the process that systemd started.
const OWN_VARIABLES: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

/// True once a successor accepts the connections of this process.
static HANDED_OVER: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Receiver of SIGUSR2, which asks to replace this process.
#[derive(Debug)]
pub struct Handover {
    signal: Signal,
    program: PathBuf,
}

/// Reason why a process is not replaced.
#[derive(Debug, thiserror::Error)]
enum HandoverError {
    /// The program cannot be started, or the sockets cannot be passed to it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The new process ended or did not become ready. Its own message says why.
    #[error("the new process did not start: see its message")]
    NotReady,
}

impl Handover {
    /// Takes the signal over from the system. Must be called within a tokio runtime, and before
    /// another program may be installed at this one's path.
    ///
    /// # Errors
    /// [`Error::Signals`].
    pub fn take() -> Result<Self, Error> {
        // Without /proc, the path is the one that started this process.
        let program = std::env::current_exe()
            .unwrap_or_else(|_| std::env::args_os().next().unwrap_or_default().into());
        Ok(Self {
            signal: signal(SignalKind::user_defined2()).map_err(Error::Signals)?,
            program,
        })
    }

    /// Completes once a successor accepts the connections of this process, which then should
    /// drain. An attempt that fails is logged and changes nothing.
    pub async fn completed(mut self) {
        loop {
            // The signal of a process has no end.
            if self.signal.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            match self.start_successor().await {
                Ok(process) => {
                    tracing::info!(process, "replaced: the new process accepts connections");
                    systemd::notify_main_process(process);
                    HANDED_OVER.send_replace(true);
                    return;
                }
                Err(error) => tracing::error!(
                    program = %self.program.display(), %error,
                    "not replaced: this process continues"
                ),
            }
        }
    }

    /// Starts the program with the arguments of this process, and returns its process number when
    /// it is ready.
    async fn start_successor(&self) -> Result<u32, HandoverError> {
        let (own, other) = StdUnixStream::pair()?;
        send_offered(&own)?;
        let mut command = Command::new(&self.program);
        command
            .args(std::env::args_os().skip(1))
            .env(SUCCESSOR_VARIABLE, "1")
            .stdin(Stdio::from(OwnedFd::from(other)));
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        let mut successor = command.spawn()?;
        // The command has the other end, which closes with the successor.
        drop(command);
        match wait_until_ready(own).await {
            true => Ok(successor.id()),
            false => {
                end(&mut successor)?;
                Err(HandoverError::NotReady)
            }
        }
    }
}

/// Returns true once the successor is ready, and false if it ends before or takes too long.
async fn wait_until_ready(socket: StdUnixStream) -> bool {
    let read = async {
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)?.read(&mut [0]).await
    };
    matches!(timeout(START_TIMEOUT, read).await, Ok(Ok(1)))
}

fn end(successor: &mut Child) -> io::Result<()> {
    successor.kill()?;
    successor.wait()?;
    Ok(())
}

/// Returns a receiver of true, once a successor accepts the connections of this process.
pub(crate) fn subscribe() -> watch::Receiver<bool> {
    HANDED_OVER.subscribe()
}

/// Returns true if a successor accepts the connections of this process.
#[must_use]
pub fn is_handed_over() -> bool {
    *HANDED_OVER.borrow()
}

/// Tells who waits for it that this process accepts connections: its predecessor, or systemd.
pub fn notify_ready() {
    if !is_successor() {
        return systemd::notify_ready();
    }
    if let Err(error) = tell_predecessor() {
        tracing::warn!(%error, "cannot tell the replaced process that this one is ready");
    }
}

fn tell_predecessor() -> io::Result<()> {
    rustix::io::write(io::stdin(), b"1")?;
    // What else reads standard input finds its end.
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    Ok(())
}
