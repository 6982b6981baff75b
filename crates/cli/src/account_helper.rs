//! `longhaul serve-accounts`: starts the workers of a server as local users.
//!
//! It runs as root and does nothing else, so that nothing else has to run as root. The server that
//! asks it is not trusted: it names an account, and passes the socket to the worker.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_hop::read_roots_file;
use longhaul_service::notify_ready;
use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{geteuid, umask};

use crate::account_workers::request::{WorkerAnswer, receive_request, send_answer};
use crate::answer;
use crate::exit::Exit;
use crate::home::display_path;
use crate::logging::LogOptions;

mod rules;
mod user;
mod worker_process;

use rules::{AccountRefusal, AccountRules};
use user::LocalUser;

/// Default socket, where servers ask.
pub const DEFAULT_SOCKET: &str = "/run/longhaul-accounts/socket";
/// Time for a request to arrive, and for its answer to be read. Requests are answered one after the
/// other.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of workers of one account: those of a server, and of the one that replaces it.
const MAX_WORKERS_PER_ACCOUNT: usize = 4;
/// Permission bits that the socket does not get: only root and the server's group may connect.
const SOCKET_UMASK: u32 = 0o117;

/// Let a server write as local users: start a worker as each, for `longhaul serve`.
///
/// This is the only part that runs as root. It starts `longhaul serve --worker` as a user that its
/// file lists, without capabilities, and never as root or a system user. The file must belong to
/// root; changes apply to the next request.
#[derive(Args)]
pub struct ServeAccounts {
    /// The file that lists the accounts: server = "longhaul", accounts = ["ana", "ben"], and
    /// minimum-uid = 1000.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/longhaul/accounts.toml"
    )]
    config: PathBuf,
    /// The Unix socket at which the server asks.
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    #[command(flatten)]
    log: LogOptions,
}

/// The workers that run now, by account.
type RunningWorkers = Arc<Mutex<HashMap<String, usize>>>;

impl ServeAccounts {
    /// Answers requests until a signal ends the process.
    pub fn run(self) -> Result<Exit> {
        self.log.start("info");
        if !geteuid().is_root() {
            bail!("only root can start processes of other users: start it as a system service");
        }
        let rules = self.rules()?;
        let listener = self.listen(&rules)?;
        let running = RunningWorkers::default();
        answer::write_line(format!("listening on {}", display_path(&self.socket)));
        notify_ready();
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => self.answer(&stream, &running),
                Err(error) => tracing::warn!(%error, "cannot accept a request"),
            }
        }
        Ok(Exit::Success)
    }

    /// Reads the file, which only root may write.
    fn rules(&self) -> Result<AccountRules> {
        let shown = display_path(&self.config);
        let text = read_roots_file(&self.config).with_context(|| shown.clone())?;
        AccountRules::parse(&text).map_err(|detail| anyhow::anyhow!("{shown}: {detail}"))
    }

    /// Opens the socket, to which only root and the group of the server's user may connect.
    fn listen(&self, rules: &AccountRules) -> Result<UnixListener> {
        let shown = display_path(&self.socket);
        let server = user::find(&rules.server)
            .with_context(|| format!("there is no user {:?} (server = ...)", rules.server))?;
        if let Ok(there) = std::fs::symlink_metadata(&self.socket)
            && there.file_type().is_socket()
        {
            // Of an earlier process.
            std::fs::remove_file(&self.socket).with_context(|| shown.clone())?;
        }
        let before = umask(Mode::from_raw_mode(SOCKET_UMASK));
        let listener = UnixListener::bind(&self.socket);
        umask(before);
        let listener = listener.with_context(|| shown.clone())?;
        give_to_group(&self.socket, server.gid).with_context(|| {
            format!(
                "{shown}: cannot give it to group {}: set Group= of the unit",
                server.gid
            )
        })?;
        Ok(listener)
    }

    /// Answers one request. Those that are not from the server cost no time: nothing is read.
    fn answer(&self, stream: &UnixStream, running: &RunningWorkers) {
        let answer = match self.worker(stream, running) {
            Ok(process) => WorkerAnswer::Started { process },
            Err(refusal) => {
                tracing::warn!(%refusal, "no worker");
                let reason = refusal.to_string();
                WorkerAnswer::Refused { reason }
            }
        };
        let answered = stream
            .set_write_timeout(Some(REQUEST_TIMEOUT))
            .and_then(|()| send_answer(stream, &answer));
        if let Err(error) = answered {
            tracing::warn!(%error, "cannot answer a request");
        }
    }

    /// Starts the worker that a request asks for, if the file allows it. Returns its process.
    fn worker(&self, stream: &UnixStream, running: &RunningWorkers) -> Result<u32, AccountRefusal> {
        let rules = self.rules();
        let rules =
            rules.map_err(|error| AccountRefusal::Rules(crate::failure::format_line(&error)))?;
        require_server(stream, &rules)?;
        let received = stream
            .set_read_timeout(Some(REQUEST_TIMEOUT))
            .and_then(|()| receive_request(stream));
        let (account, control) = received.map_err(AccountRefusal::Request)?;
        let user = rules.admit(&account, user::find(&account))?;
        if !admit_worker(running, &account) {
            return Err(AccountRefusal::TooMany(MAX_WORKERS_PER_ACCOUNT));
        }
        match worker_process::start(&user, control) {
            Ok(child) => {
                let process = child.id();
                tracing::info!(account, process, "worker started");
                await_end(child, account, running.clone());
                Ok(process)
            }
            Err(error) => {
                release_worker(running, &account);
                Err(AccountRefusal::Start(error))
            }
        }
    }
}

/// Refuses who is not the server's user.
fn require_server(asker: &UnixStream, rules: &AccountRules) -> Result<(), AccountRefusal> {
    let peer =
        socket_peercred(asker.as_fd()).map_err(|errno| AccountRefusal::Start(errno.into()))?;
    let server: Option<LocalUser> = user::find(&rules.server);
    match server.is_some_and(|server| server.uid == peer.uid.as_raw()) {
        true => Ok(()),
        false => Err(AccountRefusal::NotTheServer {
            uid: peer.uid.as_raw(),
            server: rules.server.clone(),
        }),
    }
}

/// Lets a group connect to a socket.
fn give_to_group(socket: &Path, group: u32) -> io::Result<()> {
    if std::fs::metadata(socket)?.gid() != group {
        chown(socket, None, Some(group))?;
    }
    let mode = 0o777 & !SOCKET_UMASK;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))
}

/// Counts a worker. Returns false if the account has as many as it may.
fn admit_worker(running: &RunningWorkers, account: &str) -> bool {
    let mut running = running.lock();
    let workers = running.entry(account.to_owned()).or_default();
    let is_free = *workers < MAX_WORKERS_PER_ACCOUNT;
    *workers += usize::from(is_free);
    is_free
}

/// Counts a worker that has ended.
fn release_worker(running: &RunningWorkers, account: &str) {
    let mut running = running.lock();
    if let Some(workers) = running.get_mut(account) {
        *workers = workers.saturating_sub(1);
    }
}

/// Waits for the end of a worker, on a thread of its own.
fn await_end(mut child: Child, account: String, running: RunningWorkers) {
    // Without a thread, the process stays a zombie, and counts until this one ends.
    let _ = std::thread::Builder::new().spawn(move || {
        let process = child.id();
        match child.wait() {
            Ok(status) => tracing::info!(account, process, %status, "worker ended"),
            Err(error) => tracing::warn!(account, process, %error, "cannot wait for a worker"),
        }
        release_worker(&running, &account);
    });
}
