//! Authentication of local callers.
//!
//! Over a Unix socket, the kernel reports the peer's user: the user that the service runs as and
//! root are admitted. On loopback, any user of the machine can connect, and so can any page in a
//! browser. There, a request must
//!
//! - name this machine in `Host`; a page of another site whose name resolves to 127.0.0.1 (DNS
//!   rebinding) does not;
//! - have no `Origin`, or the service's own; no other page can send such a request;
//! - carry the token, which only those who can read the user's files have, or the cookie of a page
//!   that was opened with a ticket ([`PageSessions`]).

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use blake3::Hash;
use data_encoding::BASE64URL_NOPAD;
use longhaul_hop::Payer;
use longhaul_service::http::PeerIdentity;
use parking_lot::{Mutex, MutexGuard};

pub use crate::caller::Caller;
use crate::key_gate::charge_connection;
use crate::problem::{Problem, ProblemKind};

/// Length of a token, in bytes, before it is encoded as text.
const TOKEN_BYTES: usize = 32;

/// Secret that callers on loopback must present. It is never logged; its text is only in a file
/// that the user alone can read.
#[derive(Clone)]
pub struct BearerToken {
    text: String,
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl BearerToken {
    /// Creates a random token.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system's random generator failed"))?;
        Ok(Self {
            text: BASE64URL_NOPAD.encode(&bytes),
        })
    }

    /// Writes the token into a new file that only this user can read, replacing an older file.
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

    /// Reads the token from a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(file: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(file)?.trim().to_owned();
        Ok(Self { text })
    }

    /// Returns the token as it is sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn hash(&self) -> Hash {
        blake3::hash(self.text.as_bytes())
    }

    /// Returns true if `other` equals the token, in constant time.
    fn matches(&self, other: &str) -> bool {
        self.hash() == blake3::hash(other.as_bytes())
    }
}

/// Browser pages that are signed in. A page is opened with a *ticket* in the fragment of its
/// address, which no server sees. The ticket is valid once, for a minute. The page exchanges it for
/// a cookie that no script can read and that no page of another site can send.
#[derive(Debug, Default)]
pub struct PageSessions {
    inner: Mutex<PageSessionsState>,
}

#[derive(Debug, Default)]
struct PageSessionsState {
    /// Tickets with the time when each expires.
    tickets: Vec<(Hash, Instant)>,
    /// Sessions, the oldest first.
    sessions: Vec<Hash>,
}

/// Lifetime of a ticket.
const TICKET_LIFE: Duration = Duration::from_secs(60);
/// Maximum number of valid tickets; a new one replaces the oldest.
const MAX_TICKETS: usize = 8;
/// Maximum number of signed-in pages; a new one replaces the oldest.
const MAX_SESSIONS: usize = 64;
/// Name of the session cookie.
pub const COOKIE: &str = "longhaul";

impl PageSessions {
    fn inner(&self) -> MutexGuard<'_, PageSessionsState> {
        self.inner.lock()
    }

    /// Creates a ticket for a page that is about to be opened.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn ticket(&self, now: Instant) -> io::Result<BearerToken> {
        let ticket = BearerToken::random()?;
        let mut inner = self.inner();
        inner.tickets.retain(|(_, until)| *until > now);
        if inner.tickets.len() >= MAX_TICKETS {
            inner.tickets.remove(0);
        }
        inner.tickets.push((ticket.hash(), now + TICKET_LIFE));
        Ok(ticket)
    }

    /// Exchanges a valid ticket for the value of `Set-Cookie`, and invalidates the ticket. Returns
    /// `None` for an invalid one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn sign_in(&self, ticket: &str, now: Instant) -> io::Result<Option<String>> {
        let hash = blake3::hash(ticket.as_bytes());
        let session = BearerToken::random()?;
        let mut inner = self.inner();
        let is_it = |(known, until): &(Hash, Instant)| *known == hash && *until > now;
        let Some(found) = inner.tickets.iter().position(is_it) else {
            return Ok(None);
        };
        inner.tickets.remove(found);
        if inner.sessions.len() >= MAX_SESSIONS {
            inner.sessions.remove(0);
        }
        inner.sessions.push(session.hash());
        Ok(Some(format!(
            "{COOKIE}={}; Path=/api/; HttpOnly; SameSite=Strict",
            session.text()
        )))
    }

    /// Returns true if one of the cookies belongs to a signed-in page.
    fn is_signed_in(&self, cookies: &str) -> bool {
        let named = cookies.split(';');
        let mut values =
            named.filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        let inner = self.inner();
        values.any(|value| inner.sessions.contains(&blake3::hash(value.as_bytes())))
    }
}

/// Admission of local callers: by user ID on a Unix socket, by token or cookie on loopback.
#[derive(Debug, Clone)]
pub struct LocalGate {
    /// ID of the user that the service runs as.
    pub uid: u32,
    /// Name of that user.
    pub user: String,
    /// Token that callers on loopback present. If `None`, no token is accepted there.
    pub token: Option<BearerToken>,
    /// Pages that are signed in.
    pub sessions: Arc<PageSessions>,
}

impl LocalGate {
    /// Returns the caller of a request, if it is admitted.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn admit(&self, peer: PeerIdentity, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.check_origin(peer, headers)?;
        match peer {
            PeerIdentity::Local(Some(uid)) if uid == self.uid || uid == 0 => Ok(self.caller()),
            PeerIdentity::Local(_) => Err(forbidden("this service belongs to another user")),
            PeerIdentity::Network(_) => {
                // Newer browsers send this header. Any site may link to the page, but only the page
                // itself may send requests.
                let site = text(headers, HeaderName::from_static("sec-fetch-site"));
                if !matches!(site, None | Some("same-origin" | "none")) {
                    return Err(forbidden("requests from pages of other sites are refused"));
                }
                let bearer = text(headers, header::AUTHORIZATION)
                    .and_then(|value| value.strip_prefix("Bearer "));
                let by_token = matches!(
                    (&self.token, bearer),
                    (Some(expected), Some(token)) if expected.matches(token)
                );
                let by_cookie = || {
                    text(headers, header::COOKIE)
                        .is_some_and(|cookies| self.sessions.is_signed_in(cookies))
                };
                match by_token || by_cookie() {
                    true => Ok(self.caller()),
                    false => Err(Problem::new(
                        ProblemKind::Unauthenticated,
                        "open the page with longhaul ui, or send the agent's token: Authorization: \
                         Bearer TOKEN",
                    )),
                }
            }
        }
    }

    /// Checks that a request came from this machine's own programs and pages, without
    /// authenticating it.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub fn check_origin(&self, peer: PeerIdentity, headers: &HeaderMap) -> Result<(), Problem> {
        let PeerIdentity::Network(_) = peer else {
            return Ok(());
        };
        let host = text(headers, header::HOST).unwrap_or_default();
        if !is_this_machine(host) {
            return Err(forbidden(
                "Host does not name this machine: use http://127.0.0.1 with the port",
            ));
        }
        let is_own = |origin: &HeaderValue| {
            origin
                .to_str()
                .is_ok_and(|origin| origin.strip_prefix("http://") == Some(host))
        };
        match headers.get(header::ORIGIN).is_none_or(is_own) {
            true => Ok(()),
            false => Err(forbidden("requests from pages of other sites are refused")),
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            user: self.user.clone(),
            key: None,
        }
    }
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(ProblemKind::Forbidden, detail)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns true if the header value `host` is a loopback name of this machine, with or without a
/// port.
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

/// Middleware that admits requests from this machine's own programs and pages.
pub async fn guard_origin(
    State(gate): State<Arc<LocalGate>>,
    ConnectInfo(peer): ConnectInfo<PeerIdentity>,
    request: Request,
    next: Next,
) -> Response {
    match gate.check_origin(peer, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Middleware that passes a request to its handler with its [`Caller`], or answers with the reason.
pub async fn guard(
    State(gate): State<Arc<LocalGate>>,
    ConnectInfo(peer): ConnectInfo<PeerIdentity>,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = gate.admit(peer, request.headers()).and_then(|caller| {
        charge_connection(
            request.extensions(),
            Payer::from_address(peer.source_address()),
        )?;
        Ok(caller)
    });
    match admitted {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> LocalGate {
        LocalGate {
            uid: 1000,
            user: "ana".into(),
            token: Some(BearerToken {
                text: "right".into(),
            }),
            sessions: Arc::default(),
        }
    }

    fn ask(gate: &LocalGate, headers: &[(&str, &[u8])]) -> Result<(), u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        let network = PeerIdentity::Network("127.0.0.1:40000".parse().unwrap());
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
        assert!(ask(PeerIdentity::Local(Some(1000))).is_ok());
        assert!(ask(PeerIdentity::Local(Some(0))).is_ok());
        assert_eq!(ask(PeerIdentity::Local(Some(1001))).unwrap_err(), 403);
        assert_eq!(ask(PeerIdentity::Local(None)).unwrap_err(), 403);
    }

    #[test]
    fn loopback_needs_the_right_host_origin_and_token() {
        let gate = gate();
        let host = ("host", b"127.0.0.1:7512".as_slice());
        let token = ("authorization", b"Bearer right".as_slice());
        assert_eq!(ask(&gate, &[host, token]), Ok(()));
        assert_eq!(ask(&gate, &[("host", b"localhost"), token]), Ok(()));
        assert_eq!(ask(&gate, &[("host", b"[::1]:80"), token]), Ok(()));
        // DNS rebinding: the address bar shows another name.
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
        // A cross-site request is refused even with the right token.
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
        // No token, an outdated one, and one that never existed.
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
        let closed = LocalGate {
            token: None,
            ..gate
        };
        assert_eq!(ask(&closed, &[host, token]), Err(401));
    }

    #[test]
    fn ticket_is_valid_once_for_a_minute_and_one_site() {
        let gate = gate();
        let now = Instant::now();
        let ticket = gate.sessions.ticket(now).unwrap();
        let late = gate.sessions.ticket(now).unwrap();
        let sign_in = |ticket: &str, at| gate.sessions.sign_in(ticket, at).unwrap();
        assert_eq!(sign_in("made up", now), None);
        assert_eq!(sign_in(late.text(), now + TICKET_LIFE), None);
        let cookie = sign_in(ticket.text(), now).unwrap();
        assert_eq!(sign_in(ticket.text(), now), None);
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
        let (cookie, _) = cookie.split_once(';').unwrap();
        let host = ("host", b"127.0.0.1:7512".as_slice());
        let with = ("cookie", cookie.as_bytes());
        assert_eq!(ask(&gate, &[host, with]), Ok(()));
        let among_others = format!("a=b; {cookie}; longhaul2=x");
        assert_eq!(
            ask(&gate, &[host, ("cookie", among_others.as_bytes())]),
            Ok(())
        );
        assert_eq!(
            ask(&gate, &[host, ("cookie", b"longhaul=made-up")]),
            Err(401)
        );
        // The right cookie does not help a page of another site.
        let others = [
            ("origin", "http://evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ];
        for (name, value) in others {
            assert_eq!(
                ask(&gate, &[host, with, (name, value.as_bytes())]),
                Err(403)
            );
        }
        // The numbers of tickets and pages are bounded.
        let first = gate.sessions.ticket(now).unwrap();
        for _ in 0..MAX_TICKETS {
            gate.sessions.ticket(now).unwrap();
        }
        assert_eq!(sign_in(first.text(), now), None);
        for _ in 0..MAX_SESSIONS {
            let ticket = gate.sessions.ticket(now).unwrap();
            sign_in(ticket.text(), now).unwrap();
        }
        assert_eq!(ask(&gate, &[host, with]), Err(401));
    }

    #[test]
    fn token_is_private_and_never_logged() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let (first, second) = (
            BearerToken::random().unwrap(),
            BearerToken::random().unwrap(),
        );
        first.save(&file).unwrap();
        second.save(&file).unwrap();
        let found = BearerToken::load(&file).unwrap();
        assert!(second.matches(found.text()) && !first.matches(found.text()));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{second:?}").contains(second.text()));
        assert_eq!(second.text().len(), 43);
    }
}
