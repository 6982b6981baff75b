//! Client of a service on another machine: TLS, with requests signed by the caller's key.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use longhaul_api_common::signatures::message::Scheme;
use longhaul_api_common::signatures::sign::random_nonce;
use longhaul_api_common::signatures::{Purpose, VOUCHER_HEADER, sign};
use longhaul_api_common::tls::{self, ClientTls, ServerVerification, TlsError};
use longhaul_hop::{Resolver, unix_ms};
use longhaul_proto::{Endpoint, Host, PublicKey, SigningKey};
use longhaul_session::{KeyVerdict, ServerTrust};
use tokio::net::TcpStream;

use crate::error::ClientError;

/// Method of verifying a service.
#[derive(Clone)]
pub enum HttpsTrust {
    /// By its key only.
    Key(ServerTrust),
    /// By an authority that this machine trusts, otherwise by its key.
    AuthorityOrKey(ServerTrust),
    /// By an authority whose certificate is in this file.
    Authority(PathBuf),
}

/// Key that the service presented with the verdict on it, if it was checked.
type VerdictCell = Arc<OnceLock<(PublicKey, KeyVerdict)>>;
/// Callback after each TLS handshake, which has proved that the service holds the key it presents.
type ConnectedCallback = Box<dyn Fn() + Send + Sync>;

/// TLS client of one service.
pub struct Https {
    service: &'static str,
    server: Endpoint,
    tls: ClientTls,
    key: SigningKey,
    seen: VerdictCell,
    proved: Option<ConnectedCallback>,
}

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} at {}", self.service, self.server)
    }
}

/// Returns the verdict of `trust` on a key that a server presents.
#[must_use]
pub fn trust_verdict(trust: &ServerTrust, server: &Endpoint, found: &PublicKey) -> KeyVerdict {
    match trust {
        ServerTrust::Pinned(expected) if expected == found => KeyVerdict::Trusted,
        ServerTrust::Pinned(expected) => KeyVerdict::Mismatch {
            expected: *expected,
        },
        // Certificates of HTTPS are not vouchers.
        ServerTrust::Callback(ask) | ServerTrust::Certified(_, ask) => ask(server, found),
    }
}

impl Https {
    /// Creates a client for the server at `server`, which signs with `key`. `service` is a word for
    /// messages.
    ///
    /// # Errors
    /// The root certificates cannot be read.
    pub fn new(
        service: &'static str,
        server: Endpoint,
        trust: HttpsTrust,
        key: SigningKey,
    ) -> Result<Self, TlsError> {
        let seen = VerdictCell::default();
        let by_key = |trust: ServerTrust| {
            let (seen, server) = (seen.clone(), server.clone());
            Arc::new(move |found: &PublicKey| {
                let verdict = trust_verdict(&trust, &server, found);
                seen.get_or_init(|| (*found, verdict));
                verdict == KeyVerdict::Trusted
            })
        };
        let known = match trust {
            HttpsTrust::Key(trust) => ServerVerification::ByKey(by_key(trust)),
            HttpsTrust::AuthorityOrKey(trust) => ServerVerification::Either(by_key(trust)),
            HttpsTrust::Authority(file) => ServerVerification::ByAuthority(file),
        };
        Ok(Self {
            service,
            server,
            tls: tls::client_config(known)?,
            key,
            seen,
            proved: None,
        })
    }

    /// Sets a callback for each established connection.
    #[must_use]
    pub fn on_connected(self, proved: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            proved: Some(Box::new(proved)),
            ..self
        }
    }

    /// Returns the key that the service presented, if it was checked.
    #[must_use]
    pub fn shown_key(&self) -> Option<PublicKey> {
        self.seen.get().map(|(found, _)| *found)
    }

    /// Returns the authority, as in `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        self.server.to_string()
    }

    /// Connects to the service and verifies it.
    ///
    /// # Errors
    /// [`ClientError`]: the service cannot be reached, or is not trusted.
    pub async fn connect(
        &self,
    ) -> Result<impl hyper::rt::Read + hyper::rt::Write + Send + Unpin + use<>, ClientError> {
        let (service, server) = (self.service, self.server.clone());
        let host = match &self.server.host {
            Host::Name(name) => name.clone(),
            Host::Ip(ip) => ip.to_string(),
        };
        let connecting = async {
            // This resolver stops when the caller does. The system's resolver would occupy a thread
            // that delays the end of the program.
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
        // One request and one answer: delaying small packets gains nothing.
        let _ = stream.set_nodelay(true);
        let secured = tls::connect(&self.tls, &host, stream).await;
        let secured = secured.map_err(|source| match self.seen.get() {
            Some(&(found, KeyVerdict::Unknown)) => ClientError::Unknown { server, found },
            Some(&(found, KeyVerdict::Mismatch { expected })) => ClientError::OtherKey {
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

    /// Signs a request now; the signature is valid for a minute.
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
        let voucher = self.key.voucher();
        let valid = voucher.filter(|voucher| voucher.check_time(unix_ms()).is_ok());
        if let Some(text) = valid.and_then(|voucher| voucher.to_text().ok())
            && let Ok(value) = HeaderValue::from_str(&text)
        {
            parts.headers.insert(VOUCHER_HEADER, value);
        }
        Ok(Request::from_parts(parts, body))
    }
}
