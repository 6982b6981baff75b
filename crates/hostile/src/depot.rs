//! A depot that lies about the result of an OPEN, or misdirects sessions.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{answer_and_linger, receive_open};
use longhaul_proto::{Open, PublicKey, SigningKey, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::status::Saying;
use crate::{opens, socket};

/// Time for which the peer's data is still received.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Kind of lie.
#[derive(Clone, Debug)]
pub enum Lie {
    /// It behaves as a depot should.
    None,
    /// It answers with this failure.
    Fails {
        /// Status code.
        code: StatusCode,
        /// Detail text, as bytes.
        detail: Vec<u8>,
    },
    /// It dials nobody, reports success, and then a failure in the name of the route's next depot.
    FailsForNext {
        /// Status code.
        code: StatusCode,
        /// Key of the alleged reporter; its own if `None`.
        reporter: Option<PublicKey>,
    },
    /// It forwards OPEN and early data, relays nothing more, and reports that nothing was
    /// forwarded.
    NothingWentOn,
    /// It waits for two sessions, gives each the OPEN of the other, and then relays. Later sessions
    /// are closed.
    SwapsPairs,
}

/// A depot that accepts connections until it is dropped.
#[derive(Debug)]
pub struct HostileDepot {
    /// Address on which it listens.
    pub address: SocketAddr,
    /// Key that it appends to the list of depots passed.
    pub key: PublicKey,
    _task: JoinSet<()>,
}

struct Shared {
    lie: Lie,
    key: SigningKey,
    /// First session of a pair to be swapped, and whether a pair has been.
    waiting: Mutex<(Option<Taken>, bool)>,
}

struct Taken {
    stream: TcpStream,
    open: Open,
    early: Vec<u8>,
}

impl HostileDepot {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The address cannot be bound, or there are no random numbers.
    pub async fn start(address: SocketAddr, lie: Lie) -> io::Result<Self> {
        let signing = SigningKey::generate().map_err(io::Error::other)?;
        let key = signing.public();
        let shared = Arc::new(Shared {
            lie,
            key: signing,
            waiting: Mutex::default(),
        });
        let taking = move |stream| {
            let shared = Arc::clone(&shared);
            async move { shared.take(stream).await }
        };
        let (address, _task) = socket::listen(address, taking).await?;
        Ok(Self {
            address,
            key,
            _task,
        })
    }
}

impl Shared {
    async fn take(&self, mut stream: TcpStream) -> io::Result<()> {
        let Ok((open, _, mut early)) = receive_open(&mut stream).await else {
            return Ok(());
        };
        if early.is_empty() && matches!(self.lie, Lie::SwapsPairs | Lie::NothingWentOn) {
            // The payload's first bytes belong to the session whose OPEN is swapped.
            let mut part = [0; 4096];
            let length = stream.read(&mut part).await?;
            early = part[..length].to_vec();
        }
        let taken = Taken {
            stream,
            open,
            early,
        };
        match &self.lie {
            Lie::None => self.relay(taken).await,
            Lie::Fails { code, detail } => {
                let place = taken.open.position();
                let said = self.saying(&taken.open, *code, place, detail)?;
                report(taken.stream, &said).await
            }
            Lie::FailsForNext { code, reporter } => {
                let place = taken.open.position();
                let own = self.saying(&taken.open, StatusCode::Ok, place, b"")?;
                let next = Saying {
                    code: *code,
                    place: place.saturating_add(1),
                    acceptor: false,
                    forwarded: false,
                    reporter: Some(*reporter.unwrap_or(self.key.public()).as_bytes()),
                    detail: b"",
                };
                let next = next.signed(&self.key, &taken.open)?;
                report(taken.stream, &[own, next].concat()).await
            }
            Lie::NothingWentOn => {
                let place = taken.open.position();
                let _down = self.pass_on(&taken.open, &taken.early).await?;
                let said = self.saying(&taken.open, StatusCode::DialTimeout, place, b"")?;
                report(taken.stream, &said).await
            }
            Lie::SwapsPairs => self.swap(taken).await,
        }
    }

    /// Returns its own STATUS, signed like that of a depot.
    fn saying(
        &self,
        open: &Open,
        code: StatusCode,
        place: u8,
        detail: &[u8],
    ) -> io::Result<Vec<u8>> {
        Saying {
            code,
            place,
            acceptor: false,
            forwarded: false,
            reporter: Some(*self.key.public().as_bytes()),
            detail,
        }
        .signed(&self.key, open)
    }

    async fn swap(&self, taken: Taken) -> io::Result<()> {
        let mut waiting = self.waiting.lock().await;
        if waiting.1 {
            return Ok(());
        }
        let Some(first) = waiting.0.take() else {
            waiting.0 = Some(taken);
            return Ok(());
        };
        waiting.1 = true;
        drop(waiting);
        let (a, b) = (
            Taken {
                open: taken.open.clone(),
                ..first
            },
            Taken {
                open: first.open,
                ..taken
            },
        );
        let (a, b) = tokio::join!(self.relay(a), self.relay(b));
        a.and(b)
    }

    async fn relay(&self, mut taken: Taken) -> io::Result<()> {
        let mut down = self.pass_on(&taken.open, &taken.early).await?;
        let said = self.saying(&taken.open, StatusCode::Ok, taken.open.position(), b"")?;
        taken.stream.write_all(&said).await?;
        copy_bidirectional(&mut taken.stream, &mut down).await?;
        Ok(())
    }

    async fn pass_on(&self, open: &Open, early: &[u8]) -> io::Result<TcpStream> {
        let next = open.next();
        let endpoint = next.endpoint().ok_or(io::ErrorKind::InvalidInput)?;
        let mut down = TcpStream::connect(endpoint.to_string()).await?;
        let onward = open
            .passed_on(self.key.public(), Duration::ZERO)
            .map_err(io::Error::other)?;
        down.write_all(&[opens::bytes(&onward)?, early.to_vec()].concat())
            .await?;
        Ok(down)
    }
}

/// Sends `bytes`, ends, and receives the peer's data, so that no reset overtakes them.
async fn report(stream: TcpStream, bytes: &[u8]) -> io::Result<()> {
    answer_and_linger(stream, bytes, LINGER_TIME).await;
    Ok(())
}
