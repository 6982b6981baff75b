//! The Unix socket for programs with a hook or the C API (`crates/ramp-protocol`).

mod listening;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::home;
use longhaul_hop::{Conn, is_successor};
use longhaul_proto::PublicKey;
use longhaul_ramp_protocol::{MAX_MESSAGE_BYTES, RampReply, RouteQuery};
use longhaul_service::{Phase, PhaseReceiver};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

use crate::asker::OnrampClient;
use crate::destination::{OnrampDestination, SessionWish};
use crate::engine::{ConnectionPlan, ConnectionRequest, Engine, OpenedConnection, PlannedExit};
use crate::error::OnrampError;
use crate::failure::ConnectFailure;
use crate::metrics::ConnectionOutcome;
use crate::peers::AuthorisedKeys;
use crate::route::NamedRoute;
use crate::status::split_parts;
use crate::table::{FILE_CHECK_INTERVAL, ReloadingTable};
use crate::waiting::ProgramListeners;

/// Name of this entry in the log.
const ENTRY: &str = "program";
/// Maximum length of a Unix socket's path, in bytes, as limited by the system.
const MAX_SOCKET_PATH: usize = 107;
/// Maximum number of program connections to the socket: each process may keep one for its
/// questions.
const MAX_PROGRAM_CONNECTIONS: usize = 16_384;
/// Maximum number of unused tickets of one program. Beyond it, the oldest ones become invalid.
const MAX_TICKETS: usize = 64;
/// Maximum fill bytes discarded by one read.
const DISCARD_BUFFER_BYTES: usize = 16 * 1024;

/// Time for which a program may remember that a destination is connected to directly.
///
/// It is informed when rules change. The limit covers the other inputs of the choice, such as the
/// size of earlier connections.
const REMEMBER_FOR: Duration = Duration::from_secs(10);

/// State shared by all programs' connections.
#[derive(Debug)]
pub(crate) struct ProgramsState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) waiting: Arc<ProgramListeners>,
    /// Keys that may have sessions with listening programs.
    pub(crate) peers: Arc<AuthorisedKeys>,
    conversations: Arc<Semaphore>,
}

impl ProgramsState {
    pub(crate) fn new(
        engine: Arc<Engine>,
        waiting: Arc<ProgramListeners>,
        peers: Arc<AuthorisedKeys>,
    ) -> Self {
        Self {
            engine,
            waiting,
            peers,
            conversations: Arc::new(Semaphore::new(MAX_PROGRAM_CONNECTIONS)),
        }
    }
}

/// The socket and its file, which is removed with it.
#[derive(Debug)]
pub(crate) struct ProgramSocket {
    listener: UnixSeqpacketListener,
    path: PathBuf,
    /// Identity of the created file, so that another on-ramp's file is left alone.
    made: Option<(u64, u64)>,
}

impl ProgramSocket {
    /// Creates the socket in a directory for this user only. Must be called within a tokio runtime.
    pub(crate) fn open(path: &Path) -> Result<Self, OnrampError> {
        let failed = |source| OnrampError::Socket {
            path: path.to_owned(),
            source,
        };
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(OnrampError::LongPath {
                path: path.to_owned(),
            });
        }
        let directory = path
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        home::make_private(directory)?;
        let found = std::fs::metadata(directory).map_err(failed)?;
        if found.mode() & 0o077 != 0 || found.uid() != rustix::process::getuid().as_raw() {
            return Err(OnrampError::Exposed {
                directory: directory.to_owned(),
            });
        }
        // A successor takes the path over, and this process keeps its programs.
        if has_listener(path) && !is_successor() {
            return Err(OnrampError::Running {
                path: path.to_owned(),
            });
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixSeqpacketListener::bind(path).map_err(failed)?;
        // The directory keeps others out; the mode makes that visible.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            made: file_identity(path),
        })
    }

    /// Answers programs until it is dropped.
    pub(crate) async fn serve(mut self, programs: Arc<ProgramsState>, phases: PhaseReceiver) {
        let own = rustix::process::getuid().as_raw();
        loop {
            let socket = match self.listener.accept().await {
                Ok(socket) => socket,
                Err(error) => {
                    programs.engine.events.log(None, |left_out| {
                        tracing::warn!(%error, left_out, "cannot accept connections of programs; \
                            retrying");
                    });
                    tokio::time::sleep(crate::ACCEPT_RETRY_PAUSE).await;
                    continue;
                }
            };
            match socket.peer_cred() {
                Ok(peer) if peer.uid() == own => {}
                // Dropped: the directory should have kept this user out.
                Ok(peer) => {
                    programs.engine.events.log(None, |left_out| {
                        tracing::warn!(
                            user = peer.uid(),
                            left_out,
                            "refused a program of another user"
                        );
                    });
                    continue;
                }
                Err(_) => continue,
            }
            let Ok(place) = Arc::clone(&programs.conversations).try_acquire_owned() else {
                // Closed: the program continues as if there were no on-ramp.
                continue;
            };
            let program = ProgramConnection {
                programs: Arc::clone(&programs),
                socket: Arc::new(socket),
                tickets: HashMap::new(),
                next_ticket: 1,
                remembers_until: None,
                rules: programs.engine.table().subscribe(),
                gone: watch::channel(false).0,
            };
            tokio::spawn(program.serve(place, phases.clone()));
        }
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        if self.made.is_some() && file_identity(&self.path) == self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Returns true if any process listens on this socket.
#[must_use]
pub fn has_listener(path: &Path) -> bool {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(address) = SocketAddrUnix::new(path) else {
        return false;
    };
    let connected = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .and_then(|socket| connect(&socket, &address));
    // A full queue belongs to a listener too.
    matches!(connected, Ok(()) | Err(Errno::AGAIN))
}

/// One connection of a program. It serves one attempt to connect, one listener, or the questions of
/// a process.
struct ProgramConnection {
    programs: Arc<ProgramsState>,
    socket: Arc<UnixSeqpacket>,
    tickets: HashMap<u64, (ConnectionRequest, ConnectionPlan)>,
    next_ticket: u64,
    /// Time until which the program may use a remembered answer.
    remembers_until: Option<Instant>,
    /// Signals that the rules behind its answers have changed.
    rules: watch::Receiver<()>,
    /// Tells current attempts that the program has closed the socket.
    gone: watch::Sender<bool>,
}

impl ProgramConnection {
    async fn serve(mut self, _place: OwnedSemaphorePermit, mut phases: PhaseReceiver) {
        let mut packet = vec![0; MAX_MESSAGE_BYTES];
        loop {
            let table = self.programs.engine.table();
            let read = tokio::select! {
                read = self.socket.recv(&mut packet) => read,
                // Current attempts have their own tasks.
                () = phases.wait_until(Phase::Draining) => return,
                changed = rules_changed(table, &mut self.rules, self.remembers_until) => {
                    self.remembers_until = None;
                    if changed {
                        report(&self.socket, RampReply::Forget).await;
                    }
                    continue;
                }
            };
            let length = match read {
                Ok(read) if read.bytes_read() > 0 && !read.truncated() => read.bytes_read(),
                // The program has closed the socket, or its packet is invalid.
                _ => break,
            };
            let request = longhaul_ramp_protocol::RampRequest::decode(
                packet.get(..length).unwrap_or_default(),
            );
            let request = match request {
                Ok(request) => request,
                Err(error) => {
                    self.programs.engine.events.log(
                        Some(OnrampClient::Machine.payer()),
                        |left_out| {
                            tracing::warn!(%error, left_out, "cannot parse a program's request");
                        },
                    );
                    break;
                }
            };
            match request {
                longhaul_ramp_protocol::RampRequest::Ask(ask) => self.ask(&ask).await,
                longhaul_ramp_protocol::RampRequest::Begin {
                    ticket,
                    local,
                    fill,
                } => self.begin(ticket, local, fill, &phases).await,
                longhaul_ramp_protocol::RampRequest::Peer { local } => {
                    match self.programs.waiting.registered_peer(local) {
                        Some(address) => report(&self.socket, RampReply::Peer { address }).await,
                        None => {
                            refuse(
                                &self.socket,
                                &ConnectFailure::new(
                                    Errno::NOTCONN,
                                    "no connection of this on-ramp has that address",
                                ),
                            )
                            .await
                        }
                    }
                }
                longhaul_ramp_protocol::RampRequest::Measured {
                    address,
                    round_trip,
                } => {
                    let rtt = Duration::from_micros(round_trip);
                    self.programs.engine.record_round_trip(address, rtt);
                }
                longhaul_ramp_protocol::RampRequest::Remembered { connections } => {
                    self.programs.engine.metrics.count_many(
                        ENTRY,
                        ConnectionOutcome::Direct,
                        connections,
                    );
                }
                longhaul_ramp_protocol::RampRequest::Status => {
                    let text = self.programs.engine.status().to_string();
                    let parts = split_parts(&text);
                    for (index, part) in parts.iter().enumerate() {
                        let more = index + 1 < parts.len();
                        report(&self.socket, RampReply::Status { part, more }).await;
                    }
                }
                longhaul_ramp_protocol::RampRequest::Listen { at } => {
                    return listening::serve(&self.programs, &self.socket, at, phases).await;
                }
            }
        }
        self.gone.send_replace(true);
    }

    async fn ask(&mut self, ask: &RouteQuery<'_>) {
        let request = match to_request(ask) {
            Ok(request) => request,
            Err(failed) => return refuse(&self.socket, &failed).await,
        };
        if self.remembers_until.is_none() {
            // Changes count from here on, so that an answer never uses older rules than those
            // marked as seen.
            self.rules.mark_unchanged();
        }
        let plan = self.programs.engine.decide(&request);
        if !matches!(plan.exit, PlannedExit::Direct)
            || plan.reserve.is_some()
            || plan.path.is_some()
        {
            self.programs.engine.log_plan(&request, &plan);
        }
        match plan.exit {
            PlannedExit::Direct if plan.reserve.is_none() => {
                if let Some(path) = &plan.path {
                    return self.direct_from(path.source, &plan.reason).await;
                }
                let measure = self.programs.engine.needs_round_trip(&request.destination);
                // An answer that asks for a measurement must not be remembered.
                let remember = (ask.remembers && !measure).then_some(REMEMBER_FOR);
                let direct = RampReply::Direct {
                    reason: &plan.reason,
                    measure,
                    remember: remember.and_then(|time| time.as_millis().try_into().ok()),
                };
                report(&self.socket, direct).await;
                if let Some(time) = remember {
                    self.remembers_until = Some(Instant::now() + time);
                }
                self.programs
                    .engine
                    .metrics
                    .count(ENTRY, ConnectionOutcome::Direct);
                // Logged after the answer, so that the program does not wait for the log.
                self.programs.engine.log_plan(&request, &plan);
            }
            PlannedExit::Refuse => {
                self.programs
                    .engine
                    .metrics
                    .count(ENTRY, ConnectionOutcome::Failed);
                refuse(
                    &self.socket,
                    &ConnectFailure::new(Errno::NETUNREACH, plan.reason),
                )
                .await
            }
            PlannedExit::Direct | PlannedExit::Route(_) => {
                let Some(listener) = self.programs.waiting.listener(ask.v6) else {
                    let failed = ConnectFailure::new(
                        Errno::AFNOSUPPORT,
                        "this machine has no loopback address of that family",
                    );
                    return refuse(&self.socket, &failed).await;
                };
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                self.tickets
                    .remove(&ticket.saturating_sub(MAX_TICKETS as u64));
                let reason = plan.reason.clone();
                self.tickets.insert(ticket, (request, plan));
                let via = RampReply::Via {
                    listener,
                    ticket,
                    reason: &reason,
                };
                report(&self.socket, via).await;
            }
        }
    }

    /// Answers with a direct connection from a given local address.
    async fn direct_from(&self, source: SocketAddr, reason: &str) {
        report(&self.socket, RampReply::DirectFrom { source, reason }).await;
        let metrics = &self.programs.engine.metrics;
        metrics.count(ENTRY, ConnectionOutcome::Direct);
    }

    async fn begin(&mut self, ticket: u64, local: SocketAddr, fill: u32, phases: &PhaseReceiver) {
        let Some((request, plan)) = self.tickets.remove(&ticket) else {
            let failed = ConnectFailure::new(Errno::INVAL, "no such ticket, or it was used before");
            return report_done(&self.socket, Some(&failed)).await;
        };
        let place = match self.programs.engine.take_permit() {
            Ok(place) => place,
            Err(failed) => return report_done(&self.socket, Some(&failed)).await,
        };
        let attempt = ConnectAttempt {
            programs: Arc::clone(&self.programs),
            socket: Arc::clone(&self.socket),
            request,
            plan,
            local,
            fill,
            gone: self.gone.subscribe(),
            _place: place,
            _phases: phases.clone(),
        };
        tokio::spawn(attempt.run());
    }
}

/// Completes with `true` when the rules have changed, or with `false` once no remembered answer is
/// valid any more. Without remembered answers, never completes.
async fn rules_changed(
    table: &ReloadingTable,
    rules: &mut watch::Receiver<()>,
    until: Option<Instant>,
) -> bool {
    let Some(until) = until else {
        return std::future::pending().await;
    };
    while Instant::now() < until {
        if let Ok(changed) = timeout(FILE_CHECK_INTERVAL, rules.changed()).await {
            return changed.is_ok();
        }
        // Programs that remember answers do not ask, so the file is checked here.
        table.current();
    }
    false
}

/// Converts a program's question into a request.
fn to_request(ask: &RouteQuery<'_>) -> Result<ConnectionRequest, ConnectFailure> {
    let destination = OnrampDestination::from_name_and_address(ask.name, ask.address, ask.port)
        .ok_or_else(|| {
            ConnectFailure::new(
                Errno::INVAL,
                "no destination: neither a name nor an address",
            )
        })?;
    // Only a destination that speaks the session protocol can prove a key.
    let acceptor = ask.acceptor || ask.key.is_some();
    let route = ask
        .route
        .map(|text| NamedRoute::parse(text, acceptor))
        .transpose();
    let route = route.map_err(|problem| ConnectFailure::new(Errno::INVAL, problem))?;
    let wish = SessionWish {
        purpose: ask.wish.purpose.map(str::to_owned),
        size: ask.wish.size,
        rate: ask.wish.rate,
        duration: ask.wish.duration,
    };
    Ok(ConnectionRequest {
        route,
        route_required: ask.route_required,
        acceptor,
        key: ask.key.map(PublicKey::from_bytes),
        can_bind: ask.binds,
        ..ConnectionRequest::new(ENTRY, OnrampClient::Machine, destination, wish)
    })
}

/// A program's socket that is to be connected to its destination.
struct ConnectAttempt {
    programs: Arc<ProgramsState>,
    socket: Arc<UnixSeqpacket>,
    request: ConnectionRequest,
    plan: ConnectionPlan,
    /// Local address of the program's socket.
    local: SocketAddr,
    /// Number of fill bytes before the program's own data.
    fill: u32,
    gone: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
    _phases: PhaseReceiver,
}

impl ConnectAttempt {
    async fn run(self) {
        let peer = peer_of(&self.request.destination, self.local);
        let announced = match self.programs.waiting.wait_announced(self.local, peer).await {
            Ok(announced) => announced,
            Err(failed) => return report_done(&self.socket, Some(&failed)).await,
        };
        let mut program = match Conn::new(announced.socket) {
            Ok(program) => program,
            Err(error) => {
                return report_done(&self.socket, Some(&ConnectFailure::from_io(&error))).await;
            }
        };
        let engine = &self.programs.engine;
        let opened = engine
            .open_planned(&self.request, &self.plan, self.program_gone(&program))
            .await;
        let opened: OpenedConnection = match opened {
            Some(Ok(opened)) => opened,
            // Reported before the reset, so that the program has the reason when it sees the reset.
            Some(Err(failed)) => return report_done(&self.socket, Some(&failed)).await,
            None => return,
        };
        // Reported before its socket becomes writable, so that the answer is there when the program
        // looks for it.
        report_done(&self.socket, None).await;
        if let Err(error) = discard(&mut program, self.fill).await {
            let payer = OnrampClient::Machine.payer();
            self.programs.engine.events.log(Some(payer), |left_out| {
                tracing::info!(
                    entry = ENTRY, destination = %self.request.destination, %error, left_out,
                    "the program closed its socket while it was being connected"
                );
            });
            return;
        }
        let Self {
            programs,
            socket,
            request,
            _place,
            _phases,
            ..
        } = self;
        // From here on, the program may close its end of the Unix socket.
        drop(socket);
        programs.engine.carry(&request, program, opened, &[]).await;
    }

    /// Completes when the program has given up: its socket is broken, or the Unix socket is closed,
    /// as the program's death does too. An end of stream on its own socket would be hidden behind
    /// the fill bytes.
    async fn program_gone(&self, program: &Conn) {
        let mut gone = self.gone.clone();
        let closed = async {
            if gone.wait_for(|gone| *gone).await.is_err() {
                // The sender is gone because the on-ramp stops.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = program.broken() => {}
            () = closed => {}
        }
    }
}

/// Returns the peer address to report to a program: all zeros if the destination's address is not
/// known here.
fn peer_of(destination: &OnrampDestination, local: SocketAddr) -> SocketAddr {
    let unknown = match local {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(destination.address().unwrap_or(unknown), destination.port())
}

/// Reads exactly this many bytes, and discards them.
async fn discard(program: &mut Conn, fill: u32) -> io::Result<()> {
    let mut left = usize::try_from(fill).unwrap_or(usize::MAX);
    let mut discarded = vec![0; DISCARD_BUFFER_BYTES.min(left)];
    while left > 0 {
        let at_most = left.min(discarded.len());
        let read = program
            .read(discarded.get_mut(..at_most).unwrap_or_default())
            .await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read;
    }
    // Until it is acknowledged, the fill takes space in the program's send buffer.
    if let Some(socket) = program.tcp() {
        let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
    }
    Ok(())
}

/// Sends a reply. Errors are ignored: a program that is gone needs none, and one that does not read
/// gets no more than the socket holds.
pub(crate) async fn report(socket: &UnixSeqpacket, reply: RampReply<'_>) {
    if let Ok(bytes) = reply.encode().finish() {
        let _ = socket.send(bytes).await;
    }
}

pub(crate) async fn refuse(socket: &UnixSeqpacket, failed: &ConnectFailure) {
    let reply = RampReply::Refuse {
        errno: failed.errno.raw_os_error(),
        reason: &failed.description,
    };
    report(socket, reply).await;
}

async fn report_done(socket: &UnixSeqpacket, failed: Option<&ConnectFailure>) {
    let reply = RampReply::Done {
        errno: failed.map_or(0, |failed| failed.errno.raw_os_error()),
        reason: failed.map_or("", |failed| &failed.description),
    };
    report(socket, reply).await;
}
