//! Sessions over connections that the far side makes: this side listens, and is the sessions' initiator all the same.
//!
//! Anybody may connect to an open port. Whoever does is sent an OPEN for the far side's key, and is the far side only if the session
//! stands.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Conn, Options};
use longhaul_session::{ConnectOptions, Session, connect_over};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::PortRange;
use crate::ports::everywhere;

/// Connections whose session is being set up, at once.
const MAX_SETUPS: usize = 16;
/// How long a session may still take once the far side says that it stands.
const SESSION_TIME_LIMIT: Duration = Duration::from_secs(5);

/// A listener, and the sessions that came of it.
#[derive(Debug)]
pub(crate) struct Reverse {
    pub port: u16,
    sessions: Mutex<mpsc::Receiver<Session>>,
    task: AbortHandle,
}

impl Reverse {
    /// Listens on the first free port of `ports`; `options` are those of each session.
    pub(crate) fn listen(ports: Option<PortRange>, options: ConnectOptions) -> io::Result<Self> {
        let hop = Options::with_congestion(options.congestion.clone());
        let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
        for port in PortRange::candidates(ports) {
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
        let (stand, sessions) = mpsc::channel(MAX_SETUPS);
        let room = Arc::new(Semaphore::new(MAX_SETUPS));
        let options = Arc::new(options);
        let accepting = async move {
            loop {
                let Ok(place) = room.clone().acquire_owned().await else {
                    return;
                };
                let (fd, _) = listener.accept(|_| {}).await;
                let (options, stand) = (options.clone(), stand.clone());
                tokio::spawn(async move {
                    if let Ok(conn) = Conn::new(fd)
                        && let Ok(session) = connect_over(conn, &options).await
                    {
                        let _ = stand.send(session).await;
                    }
                    drop(place);
                });
            }
        };
        Ok(Self {
            port,
            sessions: Mutex::new(sessions),
            task: tokio::spawn(accepting).abort_handle(),
        })
    }

    /// The next session, which the far side has just said to stand.
    pub(crate) async fn session(&self) -> Option<Session> {
        let mut sessions = self.sessions.lock().await;
        timeout(SESSION_TIME_LIMIT, sessions.recv()).await.ok().flatten()
    }
}

impl Drop for Reverse {
    fn drop(&mut self) {
        self.task.abort();
    }
}
