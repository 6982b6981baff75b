//! The measured relays, each a process of the ordinary user.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_proto::PublicKey;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::user;
use crate::children::listens;
use crate::identities::new_key;
use crate::tools::installed;
use crate::usage::TreeUsage;

/// Option `--max-sessions` of the depot: with it, [`KEYS`](super::requests::KEYS) keys have room
/// for 10,000 sessions together.
pub const MAX_SESSIONS: usize = 12_000;
/// Pipes of HAProxy: as many as a depot has by default.
const PIPES: usize = 64;
/// Open files of HAProxy besides those of its sessions.
const OTHER_FILES: usize = 500;
/// First port of relays that do not choose one. A node of a lab has no other listeners.
const FIRST_PORT: u16 = 7600;
/// Maximum time until a relay listens.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of checks that it listens.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Kind of relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayKind {
    /// A connection to the server, without a relay.
    None,
    /// `longhaul depot`.
    Depot,
    /// HAProxy in TCP mode.
    Haproxy,
    /// Dante's SOCKS server.
    Dante,
}

impl RelayKind {
    /// Returns its name in tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "no relay",
            Self::Depot => "`longhaul depot`",
            Self::Haproxy => "HAProxy",
            Self::Dante => "Dante",
        }
    }
}

/// Settings with which relays are started.
pub struct RelaySettings<'a> {
    /// The program `longhaul`.
    pub longhaul: &'a Path,
    /// Folder of the ordinary user.
    pub folder: &'a Path,
    /// Keys that a depot admits.
    pub principals: &'a [PublicKey],
    /// Server behind the last relay.
    pub server: SocketAddr,
}

/// A running relay, ended when dropped.
pub struct Relay {
    child: Child,
    kind: RelayKind,
    /// Address of its listener.
    pub address: SocketAddr,
}

impl Relay {
    /// Starts `hops` relays, each in front of the next, and returns them in the order of the route.
    ///
    /// # Errors
    /// One is not installed, or does not start.
    pub fn start_chain(
        settings: &RelaySettings<'_>,
        kind: RelayKind,
        hops: usize,
    ) -> Result<Vec<Self>> {
        let mut chain: Vec<Self> = Vec::with_capacity(hops);
        let mut next = settings.server;
        for number in 0..hops {
            let relay = match kind {
                RelayKind::None => bail!("a chain of no relays has no hops"),
                RelayKind::Depot => depot(settings, number)?,
                RelayKind::Haproxy => haproxy(settings, number, next)?,
                RelayKind::Dante => dante(settings, number)?,
            };
            next = relay.address;
            chain.push(relay);
        }
        chain.reverse();
        Ok(chain)
    }

    /// Returns the number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns its resources.
    ///
    /// # Errors
    /// It has ended.
    pub fn usage(&self) -> Result<TreeUsage> {
        TreeUsage::read(self.process())
    }

    /// Returns the processor time used so far, in seconds.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        TreeUsage::read_cpu_seconds(self.process())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.kind == RelayKind::Dante {
            // It then ends its child processes.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Starts a depot with the options of its packaged unit.
fn depot(settings: &RelaySettings<'_>, number: usize) -> Result<Relay> {
    let home = settings.folder.join(format!("depot-{number}"));
    new_key(settings.longhaul, &home)?;
    let policy = home.join("policy.toml");
    let principals: Vec<String> = settings
        .principals
        .iter()
        .map(|key| format!("\"{key}\""))
        .collect();
    let rules = format!(
        "[[allow]]\nname = \"load\"\nprincipals = [{}]\nto = [\"127.0.0.0/8\"]\nports = \
         [\"any\"]\nnext_hops = [\"direct\", \"127.0.0.0/8:*\"]\n",
        principals.join(", ")
    );
    fs::write(&policy, rules).with_context(|| format!("cannot write {}", policy.display()))?;
    user::give(&home)?;
    for entry in fs::read_dir(&home)? {
        user::give(&entry?.path())?;
    }
    let mut command = user::command(settings.longhaul);
    command
        .env("LONGHAUL_HOME", &home)
        .args(["depot", "--json", "--drain", "60"])
        .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--max-sessions", &MAX_SESSIONS.to_string()])
        .arg("--policy")
        .arg(&policy)
        .arg("--accounts")
        .arg(home.join("accounts.jsonl"));
    let mut relay = Relay {
        child: spawn(command, "longhaul depot")?,
        kind: RelayKind::Depot,
        address: fixed_address(number)?,
    };
    let out = relay.child.stdout.take();
    let mut line = String::new();
    BufReader::new(out.context("the depot has no output")?)
        .read_line(&mut line)
        .context("cannot read what the depot prints")?;
    let listening: serde_json::Value =
        serde_json::from_str(&line).context("the depot did not start")?;
    let address = listening["addresses"][0].as_str().unwrap_or_default();
    relay.address = address.parse().context("the depot states no address")?;
    Ok(relay)
}

/// Starts HAProxy in TCP mode, with as many threads as a depot has on two processors.
fn haproxy(settings: &RelaySettings<'_>, number: usize, next: SocketAddr) -> Result<Relay> {
    let program = installed("haproxy", "haproxy")?;
    let address = fixed_address(number)?;
    let config = settings.folder.join(format!("haproxy-{number}.cfg"));
    // It does not start if it may not open two files for each.
    let files = usize::try_from(user::max_open_files()).unwrap_or(usize::MAX);
    let connections = MAX_SESSIONS.min(files.saturating_sub(OTHER_FILES) / 2);
    let text = format!(
        "global\n    nbthread 2\n    maxconn {connections}\n    maxpipes {PIPES}\ndefaults\n    mode tcp\n    option \
         splice-auto\n    timeout connect 30s\n    timeout client 2h\n    timeout server 2h\n\
         listen relay\n    bind {address}\n    server next {next}\n"
    );
    write_config(&config, &text)?;
    let mut command = user::command(&program);
    command.args(["-db", "-f"]).arg(&config);
    start_listening(command, RelayKind::Haproxy, address)
}

/// Starts Dante's server as sockd.conf(5) has it by default, open to loopback.
fn dante(settings: &RelaySettings<'_>, number: usize) -> Result<Relay> {
    let program = installed("danted", "dante-server")?;
    let address = fixed_address(number)?;
    let config = settings.folder.join(format!("danted-{number}.conf"));
    let text = format!(
        "logoutput: stderr\ninternal: {} port = {}\nexternal: {}\nclientmethod: none\n\
         socksmethod: none\nclient pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}\n\
         socks pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 protocol: tcp }}\n",
        address.ip(),
        address.port(),
        address.ip()
    );
    write_config(&config, &text)?;
    let mut command = user::command(&program);
    command
        .arg("-f")
        .arg(&config)
        .arg("-p")
        .arg(settings.folder.join(format!("danted-{number}.pid")));
    start_listening(command, RelayKind::Dante, address)
}

fn fixed_address(number: usize) -> Result<SocketAddr> {
    let port = FIRST_PORT + u16::try_from(number).context("too many relays")?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn write_config(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    user::give(file)
}

/// Starts a relay that does not say when it is ready, and waits until it listens. Connecting to it
/// would open a session.
fn start_listening(command: Command, kind: RelayKind, address: SocketAddr) -> Result<Relay> {
    let child = spawn(command, kind.words())?;
    let mut relay = Relay {
        child,
        kind,
        address,
    };
    let deadline = Instant::now() + READY_TIMEOUT;
    while !listens(relay.process(), address.port()) {
        if let Some(status) = relay.child.try_wait()? {
            bail!("{} ended with {status}; its log is above", kind.words());
        }
        if Instant::now() > deadline {
            bail!("{} does not listen on {address}", kind.words());
        }
        thread::sleep(READY_POLL_INTERVAL);
    }
    Ok(relay)
}

/// Starts a relay whose log is read and dropped, as a journal would read it. Its first lines are
/// shown.
fn spawn(mut command: Command, name: &str) -> Result<Child> {
    const SHOWN_LINES: usize = 20;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    if let Some(log) = child.stderr.take() {
        thread::spawn(move || {
            let mut log = BufReader::new(log);
            let mut line = Vec::new();
            for _ in 0..SHOWN_LINES {
                line.clear();
                if log.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                    return;
                }
                eprint!("{}", String::from_utf8_lossy(&line));
            }
            let _ = io::copy(&mut log, &mut io::sink());
        });
    }
    Ok(child)
}
