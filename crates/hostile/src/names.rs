//! A name server that never answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// A name server that receives questions until it is dropped, and answers none.
#[derive(Debug)]
pub struct SilentNames {
    asked: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl SilentNames {
    /// Listens at `address`. Resolvers that know no other port need port 53.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut question = [0; 512];
            while socket.recv(&mut question).await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { asked, _task: task })
    }

    /// Returns the number of questions so far.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}
