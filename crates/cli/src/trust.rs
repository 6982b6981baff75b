//! Authentication of the server: by a key on the command line, a remembered key, or the user's
//! confirmation.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use longhaul_control_client::ClientError;
use longhaul_identity::TrustAnchors;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_session::{
    ConnectOptions, Endpoint, Error, KeyVerdict, KnownHosts, PublicKey, Route, ServerTrust,
    Session, connect,
};
use longhaul_transfer::{
    ConnectError, Connector, MemberId, ReservedRoute, RouteInfo, RoutePlan, SessionConnector,
};
use parking_lot::Mutex;

use crate::home;

/// Options of the command line about the server's key.
#[derive(Debug, Clone, Default)]
pub struct HostKeyOptions {
    /// `--host-key`.
    pub key: Option<PublicKey>,
    /// `--accept-new`.
    pub accept_new: bool,
    /// `--ca`: authorities of servers; those of `X509_CERT_DIR` if `None`.
    pub ca: Option<PathBuf>,
}

impl HostKeyOptions {
    /// Loads the authorities whose certificates `server` may have, if there are any. The variable
    /// is set on many machines, so it is not read for known servers, and its errors end nothing.
    fn anchors(&self, server: &Endpoint) -> Result<Option<Arc<TrustAnchors>>> {
        if self.key.is_some() {
            return Ok(None);
        }
        if let Some(place) = &self.ca {
            return Ok(Some(Arc::new(TrustAnchors::load(place, None)?)));
        }
        let place = std::env::var_os(CERTIFICATES_DIR).filter(|place| !place.is_empty());
        let Some(place) = place.map(PathBuf::from) else {
            return Ok(None);
        };
        if is_known(self, server)? {
            return Ok(None);
        }
        match TrustAnchors::load(&place, None) {
            Ok(anchors) => Ok(Some(Arc::new(anchors))),
            Err(error) => {
                tracing::warn!(%error, "the authorities of {CERTIFICATES_DIR} are not used");
                Ok(None)
            }
        }
    }
}

/// Variable of the environment with the directory of authorities, as Grid programs have it.
const CERTIFICATES_DIR: &str = "X509_CERT_DIR";

/// A server's key to remember once the server has proved to own it. The first established session
/// proves that; merely showing a key does not.
#[derive(Debug, Clone, Default)]
pub struct PendingHostKey(Option<Arc<Mutex<PendingKeyState>>>);

#[derive(Debug)]
struct PendingKeyState {
    known: KnownHosts,
    server: Endpoint,
    /// The trusted key. If the user was not asked, it is the first key shown.
    key: Option<PublicKey>,
    written: bool,
}

/// Returns a trust that accepts no server. Options hold it until [`settle`] has found the right
/// one.
pub fn trust_nobody() -> ServerTrust {
    ServerTrust::Callback(Arc::new(|_, _| KeyVerdict::Unknown))
}

/// Describes what to do about an unknown server that showed the key `found`.
pub fn unknown_server_advice(server: &Endpoint, found: PublicKey) -> String {
    ClientError::Unknown {
        server: server.clone(),
        found,
    }
    .to_string()
}

/// Sets the server's trust in `options` as `wanted`; the user may be asked. Returns the key to
/// remember once a session is established.
pub async fn settle(
    wanted: &HostKeyOptions,
    options: &mut ConnectOptions,
) -> Result<PendingHostKey> {
    let anchors = wanted.anchors(&options.destination)?;
    let certified = |trust: ServerTrust| match &anchors {
        Some(anchors) => trust.or_certified_by(Arc::clone(anchors)),
        None => trust,
    };
    let probe = async |trust| {
        let probe = ConnectOptions {
            server: certified(trust),
            ..options.clone()
        };
        match connect(&probe).await {
            Err(Error::UnknownServer { found, .. }) => Some(found),
            // The copy's own attempt will meet and report any other error.
            _ => None,
        }
    };
    let (trust, first) =
        resolve_trust(wanted, &options.destination, "longhaul serve", probe).await?;
    options.server = certified(trust);
    Ok(first)
}

/// Determines the trust for `server`, which `program` is. `probe` connects with the given trust,
/// and returns the unknown key that the server showed.
///
/// # Errors
/// The user did not trust the server's key, or the known keys cannot be read.
pub async fn resolve_trust(
    wanted: &HostKeyOptions,
    server: &Endpoint,
    program: &str,
    probe: impl AsyncFnOnce(ServerTrust) -> Option<PublicKey>,
) -> Result<(ServerTrust, PendingHostKey)> {
    if let Some(key) = wanted.key {
        return Ok((ServerTrust::Pinned(key), PendingHostKey::default()));
    }
    let known = KnownHosts::open(&home::known_hosts_file()?)?;
    if known.get(server).is_some() {
        return Ok((known.trust(), PendingHostKey::default()));
    }
    if wanted.accept_new {
        return Ok(first_use(known, server, None));
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        // The connection will fail and report the key that the server showed.
        return Ok((known.trust(), PendingHostKey::default()));
    }
    let Some(found) = probe(known.trust()).await else {
        return Ok((known.trust(), PendingHostKey::default()));
    };
    if !confirmed(server, &found, program).await? {
        bail!("the key of {server} was not accepted; nothing was done");
    }
    Ok(first_use(known, server, Some(found)))
}

/// Returns true if the key of `server` is known already, so that nothing else counts.
pub fn is_known(wanted: &HostKeyOptions, server: &Endpoint) -> Result<bool> {
    Ok(wanted.key.is_some()
        || KnownHosts::open(&home::known_hosts_file()?)?
            .get(server)
            .is_some())
}

async fn confirmed(server: &Endpoint, found: &PublicKey, program: &str) -> Result<bool> {
    longhaul_output::prompt(&format!(
        "The server {server} is not known yet. It shows the key\n  {found}\n\
         Compare it with what `{program}` printed there. \
         Trust it from now on? [y/N] "
    ));
    let answer = typed_line().await?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Reads a line that a person types, without blocking the runtime, so that signals are still
/// handled. It uses a thread of its own, as shutdown would wait for a thread of the runtime.
async fn typed_line() -> Result<String> {
    let (sender, line) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().spawn(move || {
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        let _ = sender.send(read.map(|_| answer));
    })?;
    Ok(line.await??)
}

/// Trusts `key`, or else the first key that the server shows, and no other.
fn first_use(
    known: KnownHosts,
    server: &Endpoint,
    key: Option<PublicKey>,
) -> (ServerTrust, PendingHostKey) {
    let state = Arc::new(Mutex::new(PendingKeyState {
        known,
        server: server.clone(),
        key,
        written: false,
    }));
    let first = PendingHostKey(Some(Arc::clone(&state)));
    let trust = ServerTrust::Callback(Arc::new(move |_, found| {
        let mut state = state.lock();
        match *state.key.get_or_insert(*found) {
            expected if expected == *found => KeyVerdict::Trusted,
            expected => KeyVerdict::Mismatch { expected },
        }
    }));
    (trust, first)
}

impl PendingHostKey {
    /// Remembers the server's key at the first call. To be called once a session is established.
    pub fn remember_key(&self) {
        let Some(state) = &self.0 else { return };
        let mut state = state.lock();
        let Some(key) = state.key.filter(|_| !state.written) else {
            return;
        };
        let server = state.server.clone();
        match state.known.add(server, key) {
            Ok(()) => state.written = true,
            Err(error) => message!(
                "longhaul: the server's key was not saved: {}",
                printable(error.to_string().as_bytes())
            ),
        }
    }
}

/// Opener of sessions that remembers the server's key with the first established one.
pub struct RememberingConnector {
    sessions: SessionConnector,
    first: PendingHostKey,
}

impl RememberingConnector {
    /// Creates an opener that uses `sessions`.
    pub const fn new(sessions: SessionConnector, first: PendingHostKey) -> Self {
        Self { sessions, first }
    }

    /// Forwards to [`SessionConnector::use_beside`].
    pub fn use_beside(&self, routes: &[Route]) {
        self.sessions.use_beside(routes);
    }

    /// Forwards to [`SessionConnector::use_reserved`].
    pub fn use_reserved(&self, reserved: &[ReservedRoute]) {
        self.sessions.use_reserved(reserved);
    }

    /// Forwards to [`SessionConnector::set_awaiting_routes`].
    pub fn await_routes(&self, awaited: bool) {
        self.sessions.set_awaiting_routes(awaited);
    }

    /// Forwards to [`SessionConnector::is_planned`].
    pub fn is_planned(&self) -> bool {
        self.sessions.is_planned()
    }

    /// Returns the key that the server showed, if it was refused as unknown.
    pub fn unknown_server(&self) -> Option<PublicKey> {
        self.sessions.unknown_server()
    }
}

impl Connector for RememberingConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        self.sessions.routes()
    }

    fn plan(&self) -> Option<tokio::sync::watch::Receiver<RoutePlan>> {
        self.sessions.plan()
    }

    fn has_other_transport(&self) -> bool {
        self.sessions.has_other_transport()
    }

    fn hides_losses(&self) -> bool {
        self.sessions.hides_losses()
    }

    fn on_random_loss(&self) {
        self.sessions.on_random_loss();
    }

    fn max_streams(&self, route: usize) -> usize {
        self.sessions.max_streams(route)
    }

    fn on_accepted(&self, member: Option<MemberId>) {
        self.sessions.on_accepted(member);
    }

    fn on_next_copy(&self) {
        self.sessions.on_next_copy();
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let session = self.sessions.connect(route).await?;
        self.first.remember_key();
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_once_it_is_proved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let server: Endpoint = "h:1".parse().unwrap();
        let (one, other) = (
            PublicKey::from_bytes([1; 32]),
            PublicKey::from_bytes([2; 32]),
        );
        let written = || KnownHosts::open(&path).unwrap().get(&server);
        let begin = |key| {
            let (trust, first) = first_use(KnownHosts::open(&path).unwrap(), &server, key);
            let ServerTrust::Callback(shows) = trust else {
                panic!("a callback")
            };
            (shows, first)
        };
        let (shows, first) = begin(None);
        first.remember_key();
        assert_eq!(shows(&server, &one), KeyVerdict::Trusted);
        assert_eq!(
            shows(&server, &other),
            KeyVerdict::Mismatch { expected: one }
        );
        assert_eq!(written(), None);
        first.remember_key();
        assert_eq!(written(), Some(one));
        // A key that the user confirmed, but the server does not show.
        let (shows, _) = begin(Some(other));
        assert_eq!(
            shows(&server, &one),
            KeyVerdict::Mismatch { expected: other }
        );
        assert_eq!(written(), Some(one));
        PendingHostKey::default().remember_key();
    }
}
