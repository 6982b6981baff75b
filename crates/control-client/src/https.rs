//! A service on another machine: by TLS, with requests that the caller's key has signed.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hyper::Request;
use hyper::body::Bytes;
use longhaul_api::signatures::message::Scheme;
use longhaul_api::signatures::sign::random_nonce;
use longhaul_api::signatures::{Purpose, sign};
use longhaul_api::tls::{self, ClientTls, Known, TlsError};
use longhaul_hop::{Resolver, unix_ms};
use longhaul_proto::{Endpoint, Host, PublicKey, SigningKey};
use longhaul_session::{ServerTrust, Verdict};
use tokio::net::TcpStream;

use crate::error::ClientError;

/// How a service is known.
#[derive(Clone)]
pub enum Trust {
    /// By its key alone.
    Key(ServerTrust),
    /// By an authority that this machine trusts, or else by its key.
    AuthorityOrKey(ServerTrust),
    /// By an authority whose certificate is in this file.
    Authority(PathBuf),
}

/// What was found of the key that the service showed, if it was asked for.
type Seen = Arc<OnceLock<(PublicKey, Verdict)>>;
/// Called each time a connection stands, since the service has proved then to have the key that it
/// shows.
type Proved = Box<dyn Fn() + Send + Sync>;

/// See the module.
pub struct Https {
    service: &'static str,
    server: Endpoint,
    tls: ClientTls,
    key: SigningKey,
    seen: Seen,
    proved: Option<Proved>,
}

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} at {}", self.service, self.server)
    }
}

/// What `trust` says of the key that a server shows.
#[must_use]
pub fn verdict(trust: &ServerTrust, server: &Endpoint, found: &PublicKey) -> Verdict {
    match trust {
        ServerTrust::Pinned(expected) if expected == found => Verdict::Trusted,
        ServerTrust::Pinned(expected) => Verdict::Mismatch {
            expected: *expected,
        },
        ServerTrust::Callback(ask) => ask(server, found),
    }
}

impl Https {
    /// A `service`, in a word for messages, at `server`, asked with `key`.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn new(
        service: &'static str,
        server: Endpoint,
        trust: Trust,
        key: SigningKey,
    ) -> Result<Self, TlsError> {
        let seen = Seen::default();
        let by_key = |trust: ServerTrust| {
            let (seen, server) = (seen.clone(), server.clone());
            Arc::new(move |found: &PublicKey| {
                let verdict = verdict(&trust, &server, found);
                seen.get_or_init(|| (*found, verdict));
                verdict == Verdict::Trusted
            })
        };
        let known = match trust {
            Trust::Key(trust) => Known::ByKey(by_key(trust)),
            Trust::AuthorityOrKey(trust) => Known::Either(by_key(trust)),
            Trust::Authority(file) => Known::ByAuthority(file),
        };
        Ok(Self {
            service,
            server,
            tls: tls::client(known)?,
            key,
            seen,
            proved: None,
        })
    }

    /// Has `proved` called each time a connection stands.
    #[must_use]
    pub fn telling(self, proved: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            proved: Some(Box::new(proved)),
            ..self
        }
    }

    /// The key that the service showed, if it was asked for one.
    #[must_use]
    pub fn shown_key(&self) -> Option<PublicKey> {
        self.seen.get().map(|(found, _)| *found)
    }

    /// As `Host` has it.
    #[must_use]
    pub fn authority(&self) -> String {
        self.server.to_string()
    }

    /// A connection to a service that is the right one.
    ///
    /// # Errors
    /// [`ClientError`]: it cannot be reached, or is not known.
    pub async fn connect(
        &self,
    ) -> Result<impl hyper::rt::Read + hyper::rt::Write + Send + Unpin + use<>, ClientError> {
        let (service, server) = (self.service, self.server.clone());
        let host = match &self.server.host {
            Host::Name(name) => name.clone(),
            Host::Ip(ip) => ip.to_string(),
        };
        let connecting = async {
            // A look-up that ends with whoever asked: the system's own holds a thread, which the
            // end of a program would wait for.
            let addresses = Resolver::new().addresses(&self.server).await?;
            TcpStream::connect(addresses.as_slice()).await
        };
        let stream = connecting
            .await
            .map_err(|source| ClientError::Unreachable {
                service,
                server: server.clone(),
                source,
            })?;
        // One request and one answer: nothing is gained by waiting for more to send.
        let _ = stream.set_nodelay(true);
        let secured = tls::connect(&self.tls, &host, stream).await;
        let secured = secured.map_err(|source| match self.seen.get() {
            Some(&(found, Verdict::Unknown)) => ClientError::Unknown { server, found },
            Some(&(found, Verdict::Mismatch { expected })) => ClientError::OtherKey {
                service,
                server,
                expected,
                found,
            },
            _ => ClientError::NotSecure {
                service,
                server,
                source,
            },
        })?;
        if let Some(proved) = &self.proved {
            proved();
        }
        Ok(hyper_util::rt::TokioIo::new(secured))
    }

    /// The request, signed now: what is signed is good for a minute.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn signed(&self, request: Request<Bytes>) -> Result<Request<Bytes>, ClientError> {
        let (mut parts, body) = request.into_parts();
        let nonce = random_nonce()?;
        let now = unix_ms() / 1000;
        sign(
            &mut parts,
            Scheme::Https,
            &body,
            &self.key,
            Purpose::Api,
            now,
            &nonce,
        )?;
        Ok(Request::from_parts(parts, body))
    }
}
