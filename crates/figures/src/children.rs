//! Servers and depots started for one copy, and ended when the copy is over.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time until a server or a depot says that it listens.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Interval of checks that a silent server listens.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process that serves until it is dropped.
pub struct Server {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Server {
    /// Starts `command`, which says nothing when it is ready.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_silent(mut command: Command, name: &str) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let (_, said) = mpsc::channel();
        Ok(Self { child, said })
    }

    /// Starts `command` and waits until it prints a line that contains `ready`.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or stays silent for 20 s. The error quotes its output.
    pub fn start(command: Command, name: &str, ready: &'static str) -> Result<Self> {
        Self::start_within(command, name, ready, READY_WITHIN)
    }

    /// Starts `command` with another time limit.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_within(
        command: Command,
        name: &str,
        ready: &'static str,
        limit: Duration,
    ) -> Result<Self> {
        let server = Self::spawn(command, name)?;
        let deadline = Instant::now() + limit;
        let mut said = Vec::new();
        loop {
            match server
                .said
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.contains(ready) => return Ok(server),
                Ok(line) => said.push(line),
                Err(_) => bail!("{name} did not start serving: {}", said.join(" | ")),
            }
        }
    }

    /// Starts `command` and waits until a TCP socket of its network namespace listens on `port`,
    /// for servers that do not say when they are ready. The port must be the server's own.
    ///
    /// # Errors
    /// It cannot be started, ends before, or does not listen within 20 s. The error quotes its
    /// output.
    pub fn start_listening(command: Command, name: &str, port: u16) -> Result<Self> {
        let server = Self::spawn(command, name)?;
        let deadline = Instant::now() + READY_WITHIN;
        let mut said = Vec::new();
        loop {
            if listens(server.child.id(), port) {
                return Ok(server);
            }
            match server.said.recv_timeout(LISTEN_POLL_INTERVAL) {
                Ok(line) => said.push(line),
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => bail!(
                    "{name} does not listen on port {port}: {}",
                    said.join(" | ")
                ),
            }
        }
    }

    /// Starts `command`, and reads what it prints to its end, so that it never blocks on what it
    /// logs.
    fn spawn(command: Command, name: &str) -> Result<Self> {
        let mut child = spawn_piped(command, name)?;
        let (lines, received) = mpsc::channel();
        let out = child
            .stdout
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
        let err = child
            .stderr
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
        for pipe in [out, err].into_iter().flatten() {
            let lines = lines.clone();
            thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    let _ = lines.send(line);
                }
            });
        }
        drop(lines);
        Ok(Self {
            child,
            said: received,
        })
    }
}

impl Server {
    /// Returns the number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself. Returns the lines that it wrote since it was ready.
    ///
    /// # Errors
    /// It did not end within `limit`.
    pub fn rest(self, limit: Duration) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        loop {
            match self
                .said
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => lines.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(lines),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    bail!("it did not end: {}", lines.join(" | "))
                }
            }
        }
    }
}

impl Server {
    /// Kills its child processes, and waits until it ends because of that: for a program that only
    /// waits for another, such as `unshare --fork`. Nothing of a process namespace is left then,
    /// because its first process ends after all others.
    pub fn end_with_children(&mut self) {
        let pid = self.child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let killed = children
            .split_ascii_whitespace()
            .filter_map(|child| rustix::process::Pid::from_raw(child.parse().ok()?))
            .filter(|child| {
                rustix::process::kill_process(*child, rustix::process::Signal::KILL).is_ok()
            })
            .count();
        if killed == 0 {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if a TCP socket listens on `port` in the network namespace of process `pid`, by
/// proc_net(5).
pub fn listens(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut fields = line.split_ascii_whitespace();
            // Number, local address and port, remote ones, state: 0A is LISTEN.
            let local = fields.nth(1).and_then(|local| local.rsplit(':').next());
            local.is_some_and(|local| u16::from_str_radix(local, 16) == Ok(port))
                && fields.nth(1) == Some("0A")
        })
    })
}

/// Starts `command` with nothing to read, and with both of its outputs captured.
fn spawn_piped(mut command: Command, name: &str) -> Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))
}

/// Runs a command, which must succeed within `limit`. Returns its standard output.
///
/// # Errors
/// It cannot be started, did not end in time, or failed. The error quotes its output.
pub fn succeed_within(command: Command, name: &str, limit: Duration) -> Result<String> {
    let (status, out, errors) = output_within(command, name, limit)?;
    ensure!(
        status.success(),
        "{name} ended with {status}: {out}{}",
        errors.trim()
    );
    Ok(out)
}

/// Runs `command` to its end, but no longer than `limit`. Returns its exit status and both outputs.
///
/// # Errors
/// It cannot be started, or it did not end in time and was killed.
pub fn output_within(
    mut command: Command,
    name: &str,
    limit: Duration,
) -> Result<(ExitStatus, String, String)> {
    // A process group of its own: its children end with it, and keep no output open.
    command.process_group(0);
    let mut child = spawn_piped(command, name)?;
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_string(&mut text);
            }
            text
        })
    };
    let out = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let (ended, watch) = mpsc::channel::<()>();
    let pid = child.id();
    // A watchdog instead of polling: it ends the child by pid only while the child has not been
    // waited for.
    let watchdog = thread::spawn(move || {
        let late = matches!(
            watch.recv_timeout(limit),
            Err(mpsc::RecvTimeoutError::Timeout)
        );
        if late && let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        late
    });
    let text = (
        out.join().unwrap_or_default(),
        err.join().unwrap_or_default(),
    );
    drop(ended);
    let late = watchdog.join().unwrap_or(false);
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for {name}"))?;
    if late {
        bail!(
            "{name} did not end within {} s and was stopped: {}",
            limit.as_secs(),
            text.1.trim()
        );
    }
    Ok((status, text.0, text.1))
}
