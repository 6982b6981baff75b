//! The byte stream between TLS and the changing connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_hop::{Conn, TcpConn, TransportStream};
use longhaul_proto::SessionId;
use longhaul_resume::{ReadOutcome, ResumableEnd, Role, StreamLimits};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use super::link::{Link, Turn};
use super::wakers::Waiter;
use super::{Continuations, ResumeObserver, SessionMemory};

/// Time for which a dropped session still delivers its last bytes, in addition to the time that it
/// may be without a connection.
const LINGER_TIME: Duration = Duration::from_secs(60);

/// Period in which a session does what is due although its application neither reads nor writes. It
/// is shorter than any silence after which the peer would leave the connection.
const KEEP_UP_PERIOD: Duration = Duration::from_secs(1);

/// A stream that continues over other connections. Dropping it resets the session, unless both
/// directions have ended.
pub(crate) struct ResumableStream {
    link: Arc<Mutex<Link>>,
    within: Duration,
}

impl ResumableStream {
    /// Puts a stream onto the connection of an established session. `ahead` are bytes that were
    /// read from it already.
    pub(crate) fn new(
        session: SessionId,
        conn: Conn,
        ahead: &[u8],
        within: Duration,
        memory: SessionMemory,
        continuations: Option<Continuations>,
        observer: ResumeObserver,
    ) -> Self {
        let role = match continuations {
            Some(_) => Role::Initiator,
            None => Role::Acceptor,
        };
        let limits = StreamLimits {
            within,
            max_window: memory.max_window(),
        };
        let payer = memory.payer();
        let began = Instant::now();
        let mut end = ResumableEnd::new(role, limits, Box::new(memory), Duration::ZERO);
        end.on_input(Duration::ZERO, ahead, &mut []);
        let link = Link::new(session, payer, end, conn, began, continuations, observer);
        let link = Arc::new(Mutex::new(link));
        tokio::spawn(keep_up(Arc::downgrade(&link)));
        Self { link, within }
    }

    pub(super) const fn link(&self) -> &Arc<Mutex<Link>> {
        &self.link
    }
}

/// Answers the peer while the application waits for something else.
async fn keep_up(link: Weak<Mutex<Link>>) {
    loop {
        sleep(KEEP_UP_PERIOD).await;
        let Some(link) = link.upgrade() else { return };
        let mut link = link.lock();
        if link.end.close_reason().is_some() {
            return;
        }
        if link.idle_time() >= KEEP_UP_PERIOD {
            link.drive(Turn::Both, &mut []);
        }
    }
}

impl AsyncRead for ResumableStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut link = self.link.lock();
        link.wakers.register(Waiter::Reader, cx.waker());
        let room = buffer.initialize_unfilled();
        let now = link.now();
        let read = match link.end.read(now, room) {
            ReadOutcome::Bytes(read) => {
                // The peer may wait for the room that this has made.
                link.drive(Turn::Output, &mut []);
                read
            }
            ReadOutcome::End => 0,
            ReadOutcome::Pending | ReadOutcome::Closed => match link.drive(Turn::Both, room) {
                0 => match link.end.read(now, room) {
                    ReadOutcome::Bytes(read) => read,
                    ReadOutcome::End => 0,
                    ReadOutcome::Pending => return Poll::Pending,
                    ReadOutcome::Closed => {
                        let error = link.error();
                        return Poll::Ready(Err(
                            error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
                        ));
                    }
                },
                read => read,
            },
        };
        drop(link);
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ResumableStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut link = self.link.lock();
        link.wakers.register(Waiter::Writer, cx.waker());
        let now = link.now();
        let mut taken = link.end.write(now, data);
        if taken == Some(0) && !data.is_empty() {
            // Acknowledgements make room.
            link.drive(Turn::Both, &mut []);
            taken = link.end.write(now, data);
        }
        match taken {
            None => {
                let error = link.error();
                Poll::Ready(Err(
                    error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
                ))
            }
            Some(0) if !data.is_empty() => Poll::Pending,
            Some(taken) => {
                link.drive(Turn::Output, &mut []);
                Poll::Ready(Ok(taken))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.lock().drive(Turn::Output, &mut []);
        Poll::Ready(Ok(()))
    }

    /// Ends the sending direction. Completes once the peer has received everything.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut link = self.link.lock();
        link.wakers.register(Waiter::Writer, cx.waker());
        link.end.finish();
        if !link.end.is_delivered() {
            link.drive(Turn::Both, &mut []);
        }
        if link.end.is_delivered() {
            return Poll::Ready(Ok(()));
        }
        match link.error() {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }
}

impl TransportStream for ResumableStream {
    fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut link = self.link.lock();
        link.wakers.register(Waiter::Watcher, cx.waker());
        link.drive(Turn::Both, &mut []);
        match link.error() {
            Some(error) => Poll::Ready(error),
            None => Poll::Pending,
        }
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        let mut link = self.link.lock();
        link.end.finish();
        link.drive(Turn::Output, &mut []);
        match link.error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Has no effect: only a stream whose both directions have ended is dropped without a reset.
    fn end_cleanly(&mut self) {}

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (peer, _) = self.link.lock().addresses();
        peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let (_, local) = self.link.lock().addresses();
        local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn round_trip(&self) -> Option<Duration> {
        self.link.lock().end.round_trip()
    }

    fn measure(&self, measure: &mut dyn FnMut(&TcpConn, u32)) {
        let link = self.link.lock();
        if let Some(tcp) = link.conn().and_then(Conn::tcp) {
            measure(tcp, link.end.epoch());
        }
    }
}

impl Drop for ResumableStream {
    /// Tells the peer. What cannot be done at once is done by a task of its own.
    fn drop(&mut self) {
        let mut link = self.link.lock();
        link.end.abandon();
        link.drive(Turn::Both, &mut []);
        if link.end.close_reason().is_some() {
            return;
        }
        drop(link);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let link = Arc::clone(&self.link);
        let limit = self.within.saturating_add(LINGER_TIME);
        runtime.spawn(async move {
            let over = poll_fn(|cx| {
                let mut link = link.lock();
                link.wakers.register(Waiter::Watcher, cx.waker());
                link.drive(Turn::Both, &mut []);
                match link.end.close_reason() {
                    Some(_) => Poll::Ready(()),
                    None => Poll::Pending,
                }
            });
            // A peer that leaves its direction open for longer is reset.
            let _ = timeout(limit, over).await;
        });
    }
}

impl fmt::Debug for ResumableStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumableStream").finish_non_exhaustive()
    }
}
