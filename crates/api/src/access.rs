//! Who asks, and whether they may.
//!
//! Over a Unix socket the system says who is at the other end: the user that the service runs for, and root, may ask. On loopback anybody on the
//! machine can connect, and so can any page in a browser, so there a request must
//!
//! - name this machine in `Host`: a page of another site that has its name resolved to 127.0.0.1 (DNS rebinding) does not;
//! - have no `Origin`, or that of the service itself: no other page can have it sent;
//! - bring the token, which only who can read the user's files has.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use data_encoding::BASE64URL_NOPAD;
use tokio::net::{TcpListener, UnixListener};

use crate::problem::{Problem, ProblemKind};

/// Bytes of a token before they are written as text.
const TOKEN_BYTES: usize = 32;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this user on this machine; none if the system does not say.
    Local(Option<u32>),
    /// Somebody who can connect to where the service listens.
    Network(SocketAddr),
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self::Local(stream.io().peer_cred().ok().map(|peer| peer.uid()))
    }
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self::Network(*stream.remote_addr())
    }
}

/// Who asks, once it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub user: String,
}

/// What a caller on loopback must bring. Shown nowhere: only its text in a file that the user alone can read.
#[derive(Clone)]
pub struct Token {
    text: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system gave no random numbers"))?;
        Ok(Self {
            text: BASE64URL_NOPAD.encode(&bytes),
        })
    }

    /// Writes it into a new file that only this user can read, in the place of an older one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        let beside = file.with_extension("new");
        let _ = std::fs::remove_file(&beside);
        let mut new = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        writeln!(new, "{}", self.text)?;
        std::fs::rename(&beside, file)
    }

    /// The one in that file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(file: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(file)?.trim().to_owned();
        Ok(Self { text })
    }

    /// As it is sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `other` is the same, in a time that does not depend on where they differ.
    fn is(&self, other: &str) -> bool {
        blake3::hash(self.text.as_bytes()) == blake3::hash(other.as_bytes())
    }
}

/// Decides who may ask. See the module.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The user that the service runs for.
    pub uid: u32,
    /// That user's name.
    pub user: String,
    /// What callers on loopback bring; none: nobody is let in there.
    pub token: Option<Token>,
}

impl Gate {
    /// Who asks, if they may.
    ///
    /// # Errors
    /// Says why not.
    pub fn admit(&self, peer: Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
        let forbidden = |detail: &str| Problem::new(ProblemKind::Forbidden, detail);
        match peer {
            Peer::Local(Some(uid)) if uid == self.uid || uid == 0 => Ok(self.caller()),
            Peer::Local(_) => Err(forbidden("this service is another user's")),
            Peer::Network(_) => {
                let host = text(headers, header::HOST).unwrap_or_default();
                if !is_this_machine(host) {
                    return Err(forbidden(
                        "Host does not name this machine: open http://127.0.0.1 with the port",
                    ));
                }
                if let Some(origin) = text(headers, header::ORIGIN)
                    && origin.strip_prefix("http://") != Some(host)
                {
                    return Err(forbidden("a page of another site asks"));
                }
                if headers.get(header::ORIGIN).is_some() && text(headers, header::ORIGIN).is_none() {
                    return Err(forbidden("a page of another site asks"));
                }
                let token =
                    text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
                match (&self.token, token) {
                    (Some(expected), Some(token)) if expected.is(token) => Ok(self.caller()),
                    _ => Err(Problem::new(
                        ProblemKind::Unauthenticated,
                        "bring the agent's token: Authorization: Bearer TOKEN",
                    )),
                }
            }
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            user: self.user.clone(),
        }
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether `host`, as it stands in the header, is this machine by its own names, with a port or without.
fn is_this_machine(host: &str) -> bool {
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| {
        host.strip_prefix(name).is_some_and(|rest| {
            rest.is_empty()
                || rest
                    .strip_prefix(':')
                    .is_some_and(|port| port.parse::<u16>().is_ok())
        })
    })
}

/// Lets a request on to its handler with its [`Caller`], or answers with the reason.
pub async fn guard(
    State(gate): State<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match gate.admit(peer, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn gate() -> Gate {
        Gate {
            uid: 1000,
            user: "ana".into(),
            token: Some(Token { text: "right".into() }),
        }
    }

    fn ask(gate: &Gate, headers: &[(&str, &[u8])]) -> Result<(), u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(
                header::HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        let network = Peer::Network("127.0.0.1:40000".parse().unwrap());
        gate.admit(network, &map)
            .map(|caller| assert_eq!(caller.user, "ana"))
            .map_err(|problem| problem.status)
    }

    #[test]
    fn a_socket_is_for_its_user_and_root() {
        let gate = gate();
        let ask = |peer| {
            gate.admit(peer, &HeaderMap::new())
                .map_err(|problem| problem.status)
        };
        assert!(ask(Peer::Local(Some(1000))).is_ok());
        assert!(ask(Peer::Local(Some(0))).is_ok());
        assert_eq!(ask(Peer::Local(Some(1001))).unwrap_err(), 403);
        assert_eq!(ask(Peer::Local(None)).unwrap_err(), 403);
    }

    #[test]
    fn on_loopback_host_origin_and_token_must_all_be_right() {
        let gate = gate();
        let host = ("host", b"127.0.0.1:7512".as_slice());
        let token = ("authorization", b"Bearer right".as_slice());
        assert_eq!(ask(&gate, &[host, token]), Ok(()));
        assert_eq!(ask(&gate, &[("host", b"localhost"), token]), Ok(()));
        assert_eq!(ask(&gate, &[("host", b"[::1]:80"), token]), Ok(()));
        // Rebinding: the name in the address bar is another.
        for other in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost:1:2",
            "127.0.0.1:99999",
            "",
            "localhostile",
        ] {
            assert_eq!(
                ask(&gate, &[("host", other.as_bytes()), token]),
                Err(403),
                "{other}"
            );
        }
        assert_eq!(ask(&gate, &[token]), Err(403));
        // Cross-site, also with the right token.
        let own = ("origin", b"http://127.0.0.1:7512".as_slice());
        assert_eq!(ask(&gate, &[host, own, token]), Ok(()));
        for other in [
            b"http://evil.example".as_slice(),
            b"null",
            b"https://127.0.0.1:7512",
            b"http://127.0.0.1:1",
            b"\xff",
        ] {
            assert_eq!(ask(&gate, &[host, ("origin", other), token]), Err(403));
        }
        // No token, a stale one, none there is.
        assert_eq!(ask(&gate, &[host]), Err(401));
        for wrong in [
            b"Bearer wrong".as_slice(),
            b"Bearer ",
            b"right",
            b"Basic right",
            b"Bearer right ",
        ] {
            assert_eq!(ask(&gate, &[host, ("authorization", wrong)]), Err(401));
        }
        let closed = Gate { token: None, ..gate };
        assert_eq!(ask(&closed, &[host, token]), Err(401));
    }

    #[test]
    fn a_token_is_in_a_file_for_its_user_alone_and_in_no_log() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let (first, second) = (Token::random().unwrap(), Token::random().unwrap());
        first.save(&file).unwrap();
        second.save(&file).unwrap();
        let found = Token::load(&file).unwrap();
        assert!(second.is(found.text()) && !first.is(found.text()));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{second:?}").contains(second.text()));
        assert_eq!(second.text().len(), 43);
    }
}
