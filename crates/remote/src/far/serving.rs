//! The service of the far side: a copy server for one key and some paths. It is reached over a
//! listener of its own, over connections that it makes itself, or over standard input and output.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Conn, HopOptions};
use longhaul_proto::{PortRange, PublicKey, SigningKey};
use longhaul_session::{Acceptor, Identity, ListenOptions, Listener, ServiceName, Session};
use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::{Access, Grants, Server, ServerLimits, serve_session};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::resolve;
use crate::dial::{self, FailedAttempts};
use crate::message::{self, FarAnswer, PathBytes, ServeAsk};
use crate::ports::{candidates, everywhere};

/// Time limit of a connection to the client, including its session.
const DIAL_TIMEOUT: Duration = Duration::from_secs(4);

pub(super) struct Serving {
    server: Arc<Server>,
    acceptor: Arc<Acceptor>,
    congestion: Option<String>,
    accepting: Option<JoinHandle<()>>,
}

impl Serving {
    /// Starts to serve, and answers. The client's clock is `clock_ahead_ms` milliseconds ahead of
    /// this host's.
    pub(super) async fn begin(
        ask: &ServeAsk,
        identity: Arc<Identity>,
        limits: ServerLimits,
        clock_ahead_ms: i64,
    ) -> Result<(Self, FarAnswer), String> {
        let (access, typed, follow) = (ask.access, ask.paths.clone(), ask.follow);
        let client = ask.client;
        let resolved = tokio::task::spawn_blocking(move || granted(client, access, &typed, follow));
        let (grants, paths) = resolved.await.map_err(|error| error.to_string())??;
        let root =
            Dir::open("/".as_ref()).map_err(|errno| std::io::Error::from(errno).to_string())?;
        let server = Server::new(root, grants, limits);
        // It serves its own user, whose rights decide.
        server.allow_owners();
        server.follow_links();
        if ask.no_encrypt {
            server.allow_plaintext();
        }
        let options = |addr| ListenOptions {
            congestion: ask.congestion.clone(),
            clock_ahead_ms,
            ..ListenOptions::new(
                addr,
                identity.clone(),
                Arc::new(move |key: &PublicKey| *key == client),
                vec![ServiceName::COPY],
            )
        };
        let acceptor = Arc::new(Acceptor::new(options(([0, 0, 0, 0], 0).into())));
        let mut serving = Self {
            server,
            acceptor,
            congestion: ask.congestion.clone(),
            accepting: None,
        };
        let (port, why_not) = match listen(ask.ports, options).await {
            Ok(listener) => {
                let port = listener.local_addr().port();
                serving.accept(listener);
                (Some(port), None)
            }
            Err(error) => (None, Some(error)),
        };
        let paths = paths
            .iter()
            .map(|path| PathBytes(path.as_bytes().to_vec()))
            .collect();
        Ok((
            serving,
            FarAnswer::Serving {
                port,
                why_not,
                paths,
            },
        ))
    }

    /// Signs the receipts of copies with `key`. Must be called before a copy begins.
    pub(super) fn sign_receipts(&self, key: SigningKey) {
        self.server.sign_receipts(key);
    }

    fn accept(&mut self, listener: Listener) {
        let server = self.server.clone();
        self.accepting = Some(tokio::spawn(async move {
            while let Ok(session) = listener.accept().await {
                tokio::spawn(serve_session(server.clone(), session));
            }
        }));
    }

    /// Connects to the client, at the one of `hosts` that proves to be it, within `within_ms`
    /// milliseconds if given.
    pub(super) async fn dial(
        &self,
        hosts: &[String],
        port: u16,
        within_ms: Option<u32>,
    ) -> Result<(Session, String), FailedAttempts> {
        let limit = within_ms.map_or(DIAL_TIMEOUT, |ms| Duration::from_millis(ms.into()));
        let limit = limit.min(DIAL_TIMEOUT);
        let addresses = dial::addresses(hosts, port, None).await;
        let options = HopOptions::with_congestion(self.congestion.clone());
        let attempt = |address| {
            let (acceptor, options) = (self.acceptor.clone(), options.clone());
            async move {
                let deadline = Instant::now() + limit;
                let dialled = longhaul_hop::dial(&[address], |_| options.clone(), deadline).await;
                let conn = dialled.map_err(|error| error.to_string())?.conn;
                acceptor
                    .accept(conn)
                    .await
                    .map_err(|error| error.to_string())
            }
        };
        let (session, address) = dial::race(addresses, limit, attempt).await?;
        Ok((session, address.ip().to_string()))
    }

    /// Serves a session.
    pub(super) fn carry(&self, session: Session) -> impl Future<Output = ()> + use<> {
        serve_session(self.server.clone(), session)
    }

    /// Accepts a session over `conn`, and serves it.
    pub(super) fn take_over(&self, conn: Conn) -> impl Future<Output = ()> + use<> {
        let (server, acceptor) = (self.server.clone(), self.acceptor.clone());
        async move {
            match acceptor.accept(conn).await {
                Ok(session) => serve_session(server, session).await,
                Err(error) => tracing::error!(%error, "no session inside the ssh connection"),
            }
        }
    }

    /// Ends work under way by withdrawing all grants. Resolves when no copy is left.
    pub(super) fn end(self) -> impl Future<Output = ()> + use<> {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.server.replace_grants(Grants::default());
        let server = Arc::downgrade(&self.server);
        drop(self);
        async move {
            // Its sessions hold a reference.
            let mut look = tokio::time::interval(Duration::from_millis(10));
            while server.strong_count() > 0 {
                look.tick().await;
            }
        }
    }
}

/// Returns the client's grants, and the paths beneath the root.
fn granted(
    client: PublicKey,
    access: message::Access,
    typed: &[PathBytes],
    follow: bool,
) -> Result<(Grants, Vec<longhaul_transfer::path::RelPath>), String> {
    let home = resolve::home();
    let mut grants = Grants::default();
    let mut paths = Vec::new();
    for path in typed {
        let writes = match access {
            message::Access::Read => {
                let path = resolve::source(&home, &path.0, follow)?;
                grants.grant(client, Access::Read, path.clone());
                paths.push(path);
                continue;
            }
            message::Access::Create => Access::Create,
            message::Access::Write => Access::Write,
        };
        let place = resolve::destination(&home, &path.0)?;
        // The user may read existing files anyway, so a file with the same content counts as
        // written.
        grants.grant(client, Access::Read, place.directory.clone());
        grants.grant(client, writes, place.directory);
        paths.push(place.path);
    }
    Ok((grants, paths))
}

/// Listens on the first free port, for both families if the system has IPv6.
async fn listen(
    ports: Option<PortRange>,
    options: impl Fn(std::net::SocketAddr) -> ListenOptions,
) -> Result<Listener, String> {
    let mut failed = String::new();
    for port in candidates(ports) {
        for address in everywhere(port) {
            match Listener::bind(options(address)).await {
                Ok(listener) => return Ok(listener),
                Err(error) => failed = error.to_string(),
            }
        }
    }
    Err(match ports {
        Some(ports) => format!("no port of {ports} is free there: {failed}"),
        None => failed,
    })
}
