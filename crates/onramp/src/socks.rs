//! SOCKS proxy: version 5 (RFC 1928) with or without user and password (RFC 1929), and version 4
//! with names (4a).

pub(crate) mod wire;

use std::io;
use std::time::Duration;

use longhaul_hop::{Conn, EventLog, Payer, answer_and_linger};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::destination::{OnrampDestination, SessionWish};
use crate::door::AcceptedConnection;
use crate::engine::ConnectionRequest;
use wire::{Greeting, MAX_REQUEST_BYTES, ParseResult, SocksError, SocksReply};

/// Name of this entry in the log.
pub(crate) const ENTRY: &str = "socks";
/// Time limit for a client to state its destination.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes that a client may send before the answer; beyond it, reading stops.
const MAX_EARLY_BYTES: usize = 64 * 1024;
/// Time limit for a refused client to read the answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Four,
    Five,
}

/// Request of a client that has stated its destination.
struct SocksRequest {
    destination: OnrampDestination,
    version: Version,
    /// Data that the client sent after the request.
    early: Vec<u8>,
}

/// Serves one client.
pub(crate) async fn serve(guest: AcceptedConnection) {
    let AcceptedConnection {
        mut conn,
        asker,
        engine,
        guests,
        permit: held,
        ..
    } = guest;
    let talk = SocksExchange {
        conn: &mut conn,
        received: Vec::with_capacity(64),
        guests: &guests,
        events: &engine.events,
        payer: asker.payer(),
    };
    let asked = match tokio::time::timeout(REQUEST_TIMEOUT, talk.receive_request()).await {
        Ok(Ok(asked)) => asked,
        // Dropped, and so reset: the client speaks another protocol, has no permission,
        // disconnected, or sent nothing.
        Ok(Err(SocksRefusal::Silent)) | Err(_) => return,
        Ok(Err(SocksRefusal::Answered(answer))) => {
            return answer_and_linger(conn, &answer, REFUSAL_TIMEOUT).await;
        }
    };
    let SocksRequest {
        destination,
        version,
        mut early,
    } = asked;
    let request = ConnectionRequest::new(ENTRY, asker, destination, SessionWish::default());
    let answer = |reply: SocksReply, bound| match version {
        Version::Five => reply.encode(bound),
        Version::Four => reply.encode_4().to_vec(),
    };
    if let Err(failed) = held.admit() {
        engine.log_turned_away(&request, &failed);
        return answer_and_linger(
            conn,
            &answer(SocksReply::from_errno(failed.errno), None),
            REFUSAL_TIMEOUT,
        )
        .await;
    }
    let plan = engine.plan(&request);
    match engine
        .open_planned(&request, &plan, wait_client_gone(&mut conn, &mut early))
        .await
    {
        Some(Ok(opened)) => {
            let bound = opened.exit.local_address();
            if conn
                .write_all(&answer(SocksReply::Succeeded, bound))
                .await
                .is_ok()
            {
                engine.carry(&request, conn, opened, &early).await;
            }
        }
        Some(Err(failed)) => {
            answer_and_linger(
                conn,
                &answer(SocksReply::from_errno(failed.errno), None),
                REFUSAL_TIMEOUT,
            )
            .await
        }
        None => {}
    }
}

/// Completes when a client has given up. An end of stream means that, as no client ends its stream
/// before its request is answered. Data that it sends ahead of the answer is kept.
async fn wait_client_gone(conn: &mut Conn, early: &mut Vec<u8>) {
    let mut more = [0; 4096];
    while early.len() < MAX_EARLY_BYTES {
        match conn.read(&mut more).await {
            Ok(0) | Err(_) => return,
            Ok(count) => early.extend(more.get(..count).unwrap_or_default()),
        }
    }
    drop(conn.broken().await);
}

/// Reason why a client is not served.
enum SocksRefusal {
    /// The connection is closed without an answer.
    Silent,
    /// This answer is sent.
    Answered(Vec<u8>),
}

impl From<io::Error> for SocksRefusal {
    fn from(_: io::Error) -> Self {
        Self::Silent
    }
}

/// The exchange before a client is connected.
struct SocksExchange<'a> {
    conn: &'a mut Conn,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    guests: &'a crate::config::GuestPolicy,
    events: &'a EventLog,
    payer: Payer,
}

impl SocksExchange<'_> {
    async fn receive_request(mut self) -> Result<SocksRequest, SocksRefusal> {
        let refused_4 = |reply: SocksReply| reply.encode_4().to_vec();
        let greeting = self.receive(wire::parse_greeting, refused_4).await?;
        let (destination, version) = match greeting {
            // Version 4 has no password.
            Greeting::Four(_) if self.guests.login.is_some() => {
                return Err(SocksRefusal::Answered(refused_4(SocksReply::NotAllowed)));
            }
            Greeting::Four(destination) => (destination, Version::Four),
            Greeting::Five {
                no_login,
                user_and_password,
            } => {
                self.log_in(no_login, user_and_password).await?;
                let request = self
                    .receive(wire::parse_request, |reply| reply.encode(None))
                    .await?;
                (request, Version::Five)
            }
        };
        Ok(SocksRequest {
            destination,
            version,
            early: self.received,
        })
    }

    async fn log_in(
        &mut self,
        no_login: bool,
        user_and_password: bool,
    ) -> Result<(), SocksRefusal> {
        let (answer, chosen) =
            wire::choose_method(no_login, user_and_password, self.guests.login.is_some());
        let Some(login) = chosen else {
            return Err(SocksRefusal::Answered(answer.to_vec()));
        };
        self.conn.write_all(&answer).await?;
        if login {
            let (user, password) = self.receive(wire::parse_login, |_| Vec::new()).await?;
            let right = self.guests.check_login(&user, &password);
            let answer = wire::login_answer(right);
            if !right {
                self.events.log(Some(self.payer), |left_out| {
                    tracing::warn!(
                        entry = ENTRY,
                        left_out,
                        "connection refused: wrong user or password"
                    );
                });
                return Err(SocksRefusal::Answered(answer.to_vec()));
            }
            self.conn.write_all(&answer).await?;
        }
        Ok(())
    }

    /// Receives until `read` has a complete message, and removes its bytes.
    async fn receive<T>(
        &mut self,
        read: impl Fn(&[u8]) -> ParseResult<T>,
        refused: impl Fn(SocksReply) -> Vec<u8>,
    ) -> Result<T, SocksRefusal> {
        loop {
            match read(&self.received) {
                Ok(Some((value, length))) => {
                    self.received.drain(..length.min(self.received.len()));
                    return Ok(value);
                }
                Ok(None) if self.received.len() < MAX_REQUEST_BYTES => {}
                Ok(None) | Err(SocksError::OtherProtocol) => return Err(SocksRefusal::Silent),
                Err(SocksError::Refused(reply)) => {
                    return Err(SocksRefusal::Answered(refused(reply)));
                }
            }
            let mut more = [0; 512];
            let count = self.conn.read(&mut more).await?;
            if count == 0 {
                return Err(SocksRefusal::Silent);
            }
            self.received.extend(more.get(..count).unwrap_or_default());
        }
    }
}
