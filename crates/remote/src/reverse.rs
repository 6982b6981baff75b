//! Sessions over connections that the far side makes. This side listens, but still initiates the
//! sessions.
//!
//! Any host may connect to an open port. It is sent an OPEN for the far side's key, and only the
//! far side can complete the session.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{AdmittedConnection, Conn, ConnectionGate, GateLimits, HopOptions};
use longhaul_proto::PortRange;
use longhaul_session::{ConnectOptions, Session, connect_over};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::ports::{candidates, everywhere};

/// Maximum established sessions that wait to be taken.
const MAX_READY: usize = 16;
/// Limits of connections whose session is being set up. Beyond them, the oldest connection of the
/// source with most is reset, so that others at the port do not keep the far side out.
const LIMITS: GateLimits = GateLimits {
    newcomers: 128,
    verified: 0,
    reserves_for_keys: false,
    header: Duration::from_secs(20),
    least_header: Duration::from_secs(5),
};
/// Time for a session once the far side reports that it is established.
const SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// A listener, and its established sessions.
#[derive(Debug)]
pub(crate) struct ReverseListener {
    pub port: u16,
    sessions: Mutex<mpsc::Receiver<Session>>,
    task: AbortHandle,
}

impl ReverseListener {
    /// Listens on the first free port of `ports`. Each session gets `options`.
    pub(crate) fn listen(ports: Option<PortRange>, options: ConnectOptions) -> io::Result<Self> {
        let hop = HopOptions::with_congestion(options.congestion.clone());
        let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
        for port in candidates(ports) {
            for address in everywhere(port) {
                match longhaul_hop::Listener::bind(address, &hop) {
                    Ok(listener) => return Self::accept(listener, options),
                    Err(error) => failed = io::Error::other(error),
                }
            }
        }
        Err(failed)
    }

    fn accept(mut listener: longhaul_hop::Listener, options: ConnectOptions) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let (stand, sessions) = mpsc::channel(MAX_READY);
        let gate = ConnectionGate::new(LIMITS);
        let options = Arc::new(options);
        let accepting = async move {
            loop {
                let (fd, peer) = listener.accept(|_| {}).await;
                let AdmittedConnection {
                    permit: place,
                    mut eviction,
                    header,
                } = gate.admit(peer.ip());
                let (options, stand) = (options.clone(), stand.clone());
                tokio::spawn(async move {
                    let set_up = async { connect_over(Conn::new(fd).ok()?, &options).await.ok() };
                    let session = tokio::select! {
                        session = timeout(header, set_up) => session.ok().flatten(),
                        () = eviction.wait() => None,
                    };
                    drop(place);
                    if let Some(session) = session {
                        let _ = stand.send(session).await;
                    }
                });
            }
        };
        Ok(Self {
            port,
            sessions: Mutex::new(sessions),
            task: tokio::spawn(accepting).abort_handle(),
        })
    }

    /// Returns the next session, which the far side has just reported as established.
    pub(crate) async fn session(&self) -> Option<Session> {
        let mut sessions = self.sessions.lock().await;
        timeout(SESSION_TIMEOUT, sessions.recv())
            .await
            .ok()
            .flatten()
    }
}

impl Drop for ReverseListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use longhaul_hop::dial;
    use longhaul_proto::{Endpoint, PublicKey, Route};
    use longhaul_session::{Acceptor, Identity, ListenOptions, ServerTrust, ServiceName};
    use tokio::net::TcpStream;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn idle_connections_do_not_block_the_far_side() {
        let [near, far] = [(); 2].map(|()| Arc::new(Identity::generate().unwrap()));
        let (client, server) = (near.public(), far.public());
        let to: Endpoint = "far.example:7511".parse().unwrap();
        let trust = ServerTrust::Pinned(server);
        let options = ConnectOptions::new(ServiceName::COPY, Route::direct(), to, near, trust);
        let reverse = ReverseListener::listen(None, options).unwrap();
        let mut crowd = Vec::new();
        for _ in 0..2 * LIMITS.newcomers {
            crowd.push(
                TcpStream::connect(("127.0.0.1", reverse.port))
                    .await
                    .unwrap(),
            );
        }
        let acceptor = Acceptor::new(ListenOptions::new(
            ([127, 0, 0, 1], 0).into(),
            far,
            Arc::new(move |key: &PublicKey| *key == client),
            vec![ServiceName::COPY],
        ));
        let at = ([127, 0, 0, 1], reverse.port).into();
        let deadline = Instant::now() + SESSION_TIMEOUT;
        let dialled = dial(&[at], |_| HopOptions::default(), deadline)
            .await
            .unwrap();
        let (accepted, session) = tokio::join!(acceptor.accept(dialled.conn), reverse.session());
        accepted.unwrap();
        assert!(session.is_some());
    }
}
