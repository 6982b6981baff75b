//! A member of a striped server, and how it reaches the others.
//!
//! A member serves a stream itself, or relays it to the member that has the copy. Members
//! authenticate each other by the key that all of them have.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use longhaul_hop::{Duplex, DuplexOptions};
use longhaul_proto::{FailureKind, PublicKey, Route, ServiceName, StatusCode};
use longhaul_session::{
    ConnectOptions, Error as SessionError, Identity, JoinObserver, ServerTrust, Session, connect,
};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use super::preface::StreamPreface;
use crate::client::{StreamOrigin, Transport};
use crate::error::Error;
use crate::server::{Server, StreamKind, StreamPermit};
use crate::stripe::{MemberId, MemberNaming};

/// Time for a session with another member, over all attempts. After that, the member counts as
/// gone.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the second attempt to reach a member. A failure in passing costs it no copies.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Time for which a member that is gone is not tried again.
const GONE_FOR: Duration = Duration::from_secs(10);
/// Idle time after which a relayed stream is broken. Either end of a copy sends something every few
/// seconds (LH-COPY-28).
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The members of a striped server, as one of them knows them.
pub struct StripeMembers {
    own: MemberId,
    others: HashMap<MemberId, SocketAddr>,
    identity: Arc<Identity>,
    congestion: Option<String>,
    /// Times at which members turned out to be gone.
    gone: Mutex<HashMap<MemberId, Instant>>,
    relays: DuplexOptions,
}

/// Treatment of a stream by a member.
enum Handling {
    /// It serves the stream.
    Serve,
    /// It relays the stream over this session with the member that has the copy.
    Relay(Box<Session>),
    /// It refuses the stream, for this reason. The member that has the copy is alive.
    Refuse(String),
}

impl StripeMembers {
    /// Creates the view of the member at `own`, which has the key of all members.
    ///
    /// # Errors
    /// [`SessionError::Key`] if the key cannot sign.
    pub fn new(
        own: SocketAddr,
        members: &[SocketAddr],
        identity: Arc<Identity>,
        congestion: Option<String>,
    ) -> Result<Self, SessionError> {
        let naming = MemberNaming::new(identity.signing_key())?;
        let own = naming.id(own);
        let members = members
            .iter()
            .map(|address| (naming.id(*address), *address));
        Ok(Self {
            own,
            others: members.filter(|(id, _)| *id != own).collect(),
            identity,
            congestion,
            gone: Mutex::default(),
            relays: DuplexOptions::revocable(IDLE_TIMEOUT),
        })
    }

    /// Returns the identity of this member.
    #[must_use]
    pub fn own(&self) -> MemberId {
        self.own
    }

    /// Serves one session of the service `stripe`. `key` is that of its client.
    pub(in super::super) async fn serve(
        &self,
        server: &Arc<Server>,
        mut session: Session,
        key: PublicKey,
    ) -> Result<(), Error> {
        let from = session.info().first_hop;
        // An address has no part in the share of the members' key.
        let permit = match key == self.identity.public() {
            true => server.permit_stream(key),
            false => server.permit_relay(key, from),
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(error) => {
                let reason = error.to_string();
                server.turn_away(session, StreamKind::Copy, reason).await;
                return Err(error);
            }
        };
        let read = StreamPreface::read(&mut session);
        let preface = match timeout(server.limits().hello_timeout, read).await {
            Ok(read) => read?,
            Err(_) => return Err(Error::Protocol("no preface in time".into())),
        };
        match preface {
            StreamPreface::ForMember { member } => {
                self.serve_client(server, session, key, member, permit)
                    .await
            }
            // LH-COPY-78.
            StreamPreface::FromClient { .. } if key != self.identity.public() => {
                let reason = "only members of this server speak for its clients";
                server
                    .turn_away(session, StreamKind::Copy, reason.to_owned())
                    .await;
                Err(Error::Unauthorised(reason.to_owned()))
            }
            StreamPreface::FromClient { client, origin } => {
                drop(permit);
                let from = origin.as_ref().and_then(|origin| origin.from);
                let served = server.serve(RelayedStream { session, origin }, client);
                match served.await {
                    Ok(()) => {}
                    Err(error @ Error::Stream(_)) => {
                        tracing::debug!(%client, %error, "relayed stream lost");
                    }
                    // The log rate is that of the client, not of the members' key.
                    Err(error) => server.log(client, || {
                        let from = from.map(|from| from.to_string()).unwrap_or_default();
                        tracing::info!(key = %client, %from, %error, "relayed stream failed");
                    }),
                }
                Ok(())
            }
        }
    }

    /// Serves or relays a stream of the client with this key, whose copy `member` has. The stream
    /// has a `permit` to be relayed.
    async fn serve_client(
        &self,
        server: &Arc<Server>,
        session: Session,
        key: PublicKey,
        member: MemberId,
        permit: StreamPermit,
    ) -> Result<(), Error> {
        let Some(address) = self.others.get(&member) else {
            drop(permit);
            return server.serve(session, key).await;
        };
        match self.reach(member, *address, server, key).await {
            Handling::Serve => {
                drop(permit);
                server.serve(session, key).await
            }
            Handling::Refuse(reason) => {
                server.turn_away(session, StreamKind::Copy, reason).await;
                Ok(())
            }
            Handling::Relay(mut owner) => {
                tracing::debug!(%key, to = %address, "stream relayed to the member with its copy");
                let preface = StreamPreface::FromClient {
                    client: key,
                    origin: session.origin(),
                };
                preface.write(&mut *owner).await?;
                let observer = JoinObserver::default();
                // The two ends of the copy know why it ended.
                drop(Duplex::new(session, *owner, self.relays.clone(), observer).await);
                Ok(())
            }
        }
    }

    /// Opens a session with another member for a stream of `key`.
    async fn reach(
        &self,
        member: MemberId,
        address: SocketAddr,
        server: &Server,
        key: PublicKey,
    ) -> Handling {
        if self.is_gone(member) {
            return Handling::Serve;
        }
        let options = ConnectOptions {
            congestion: self.congestion.clone(),
            setup_timeout: SETUP_TIMEOUT,
            ..ConnectOptions::new(
                ServiceName::STRIPE,
                Route::direct(),
                address.into(),
                self.identity.clone(),
                ServerTrust::Pinned(self.identity.public()),
            )
        };
        match connect_twice(options).await {
            Ok(session) => {
                self.gone.lock().remove(&member);
                Handling::Relay(Box::new(session))
            }
            Err(error) if let Some(code) = refusal(&error) => {
                server.log(key, || {
                    tracing::warn!(member = %address, %error, "a member refuses a relayed stream");
                });
                // The client learns no address from it.
                Handling::Refuse(format!(
                    "the member of this server that has the copy refuses its stream: it {code}"
                ))
            }
            Err(error) if is_local(&error) => {
                server.log(key, || {
                    tracing::warn!(member = %address, %error, "a stream cannot be relayed");
                });
                Handling::Refuse(
                    "this member of the server cannot connect to the one that has the copy; \
                     try again later"
                        .to_owned(),
                )
            }
            Err(error) => {
                let is_known = self.is_gone(member);
                self.gone.lock().insert(member, Instant::now());
                if !is_known {
                    tracing::warn!(
                        member = %address, %error, "a member does not answer; this one takes over"
                    );
                }
                Handling::Serve
            }
        }
    }

    fn is_gone(&self, member: MemberId) -> bool {
        let gone = self.gone.lock();
        gone.get(&member).is_some_and(|at| at.elapsed() < GONE_FOR)
    }
}

/// Connects to a member, and once more if that fails in passing. Two members must not have one copy
/// because a single connection was lost.
async fn connect_twice(mut options: ConnectOptions) -> Result<Session, SessionError> {
    let deadline = Instant::now() + options.setup_timeout;
    let first = connect(&options).await;
    let left = deadline.saturating_duration_since(Instant::now());
    match &first {
        Err(error) if refusal(error).is_none() && left > RETRY_PAUSE => {}
        _ => return first,
    }
    sleep(RETRY_PAUSE).await;
    options.setup_timeout = left.saturating_sub(RETRY_PAUSE);
    connect(&options).await
}

/// Returns the status by which the other member refused, if it answered.
fn refusal(error: &SessionError) -> Option<StatusCode> {
    match error {
        SessionError::Hop(failure) => match failure.kind {
            FailureKind::Acceptor(code) => Some(code),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if this machine lacks what a connection takes. The other member may be alive.
fn is_local(error: &SessionError) -> bool {
    match error {
        SessionError::NotConnected { .. } => {
            let errno = Errno::from_raw_os_error(error.errno());
            [
                Errno::MFILE,
                Errno::NFILE,
                Errno::NOMEM,
                Errno::NOBUFS,
                Errno::ADDRNOTAVAIL,
            ]
            .contains(&errno)
        }
        SessionError::Congestion(_) | SessionError::Key(_) => true,
        _ => false,
    }
}

/// Stream of a client that another member relays.
struct RelayedStream {
    session: Session,
    origin: Option<StreamOrigin>,
}

/// The connection between the members says nothing about the path of the data, so it is not
/// watched. Plaintext does not pass the relay.
impl Transport for RelayedStream {
    fn origin(&self) -> Option<StreamOrigin> {
        self.origin.clone()
    }
}

impl AsyncRead for RelayedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_read(cx, buffer)
    }
}

impl AsyncWrite for RelayedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.session).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_session::FirstHop;

    use super::*;

    #[test]
    fn shortage_of_this_machine_is_no_death_of_a_member() {
        let error = |errno: Errno| SessionError::NotConnected {
            endpoint: "192.0.2.1:7511".parse().unwrap(),
            place: FirstHop::Server,
            source: errno.into(),
        };
        for errno in [Errno::MFILE, Errno::NOMEM, Errno::ADDRNOTAVAIL] {
            assert!(is_local(&error(errno)), "{errno}");
        }
        for errno in [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH] {
            assert!(!is_local(&error(errno)), "{errno}");
        }
    }
}
