//! A server with its own key that sends answers without a question.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_session::{Identity, ListenOptions, Listener, PublicKey, Service, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Maximum duration of a session.
const SESSION_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Bytes that it sends, whatever it is asked.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Encoded frames, one after the other.
    pub frames: Vec<u8>,
    /// Delay and further frames to send after it.
    pub later: Option<(Duration, Vec<u8>)>,
}

/// A server that accepts sessions until it is dropped.
#[derive(Debug)]
pub struct HostileServer {
    /// Address on which it listens.
    pub address: SocketAddr,
    /// Key of the server.
    pub key: PublicKey,
    _task: JoinSet<()>,
}

impl HostileServer {
    /// Listens at `address` and sends `answer` to every copy.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(address: SocketAddr, answer: Answer) -> io::Result<Self> {
        let identity = Arc::new(Identity::generate().map_err(io::Error::other)?);
        let key = identity.public();
        let options =
            ListenOptions::new(address, identity, Arc::new(|_| true), vec![Service::COPY]);
        let listener = Listener::bind(options).await.map_err(io::Error::other)?;
        let address = listener.local_addr();
        let answer = Arc::new(answer);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok(session) = listener.accept().await {
                let answer = Arc::clone(&answer);
                tokio::spawn(
                    async move { timeout(SESSION_TIME_LIMIT, say(session, &answer)).await },
                );
            }
        });
        Ok(Self {
            address,
            key,
            _task: task,
        })
    }
}

/// Sends `answer` once the client has begun, and receives until its end.
async fn say(mut session: Session, answer: &Answer) -> io::Result<()> {
    let mut received = vec![0; 64 * 1024];
    if session.read(&mut received).await? == 0 {
        return Ok(());
    }
    session.write_all(&answer.frames).await?;
    session.flush().await?;
    if let Some((wait, later)) = &answer.later {
        sleep(*wait).await;
        session.write_all(later).await?;
        session.flush().await?;
    }
    while session.read(&mut received).await? > 0 {}
    session.shutdown().await
}
