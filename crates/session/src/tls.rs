//! End-to-end security: TLS 1.3 with raw public keys (RFC 7250) on both sides, each pinned by the
//! other (LH-TLS-1..3).

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

use data_encoding::HEXLOWER;
use longhaul_hop::unix_ms;
use longhaul_identity::{TrustAnchors, verify_server};
use longhaul_proto::{Endpoint, Host, PublicKey, Voucher};
use longhaul_raw_keys::{SCHEMES, only_tls13, presented_key, verify_handshake};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::{Error, Identity};

/// Prefix of the application protocol's name (LH-TLS-2).
const ALPN_PREFIX: &str = "longhaul/1";
/// Callback that decides on a server by its address and the key that it presents.
pub type ServerKeyCallback = Arc<dyn Fn(&Endpoint, &PublicKey) -> KeyVerdict + Send + Sync>;

/// The initiator's check of the server's key.
#[derive(Clone)]
pub enum ServerTrust {
    /// Accepts exactly this key.
    Pinned(PublicKey),
    /// Calls a function in the middle of the handshake. It must not wait for a person.
    Callback(ServerKeyCallback),
    /// Accepts a key that a certificate of these authorities vouches for, in the server's name
    /// (LH-VOUCHER-6). About others, the function decides.
    Certified(Arc<TrustAnchors>, ServerKeyCallback),
}

/// Verdict on a server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVerdict {
    /// The key is the server's.
    Trusted,
    /// The server is unknown; the connection fails with [`Error::UnknownServer`].
    Unknown,
    /// The server has another key; the connection fails with [`Error::ServerKey`].
    Mismatch {
        /// Key known for the server.
        expected: PublicKey,
    },
}

impl ServerTrust {
    /// Returns the server's key if it is known before the handshake.
    pub(crate) const fn pinned(&self) -> Option<PublicKey> {
        match self {
            Self::Pinned(key) => Some(*key),
            Self::Callback(_) | Self::Certified(..) => None,
        }
    }

    /// Accepts certificates of these authorities as well, unless a key is pinned.
    #[must_use]
    pub fn or_certified_by(self, anchors: Arc<TrustAnchors>) -> Self {
        match self {
            Self::Pinned(key) => Self::Pinned(key),
            Self::Callback(ask) | Self::Certified(_, ask) => Self::Certified(anchors, ask),
        }
    }

    /// Returns true if the server may prove itself by a certificate.
    pub(crate) const fn has_authorities(&self) -> bool {
        matches!(self, Self::Certified(..))
    }

    fn verdict(
        &self,
        server: &Endpoint,
        found: &PublicKey,
        voucher: Option<&Voucher>,
    ) -> KeyVerdict {
        match self {
            Self::Pinned(expected) if expected == found => KeyVerdict::Trusted,
            Self::Pinned(expected) => KeyVerdict::Mismatch {
                expected: *expected,
            },
            Self::Callback(ask) => ask(server, found),
            Self::Certified(anchors, ask) => match voucher {
                Some(voucher) if is_certified(server, found, voucher, anchors) => {
                    KeyVerdict::Trusted
                }
                _ => ask(server, found),
            },
        }
    }
}

/// Returns true if the voucher proves that the key is that of the server.
fn is_certified(
    server: &Endpoint,
    found: &PublicKey,
    voucher: &Voucher,
    anchors: &TrustAnchors,
) -> bool {
    if voucher.key != *found {
        return false;
    }
    let host = match &server.host {
        Host::Name(name) => name.clone(),
        Host::Ip(ip) => ip.to_string(),
    };
    match verify_server(voucher, &host, anchors, unix_ms()) {
        Ok(()) => true,
        Err(fault) => {
            tracing::warn!("the certificate of {server} is not accepted: {fault}");
            false
        }
    }
}

impl fmt::Debug for ServerTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pinned(key) => f.debug_tuple("Pinned").field(key).finish(),
            Self::Callback(_) => f.write_str("Callback"),
            Self::Certified(..) => f.write_str("Certified"),
        }
    }
}

/// Returns the only application protocol of a session whose OPEN has this binding (LH-TLS-4). Both
/// ends' signatures in the handshake cover it.
fn application_protocol(binding: &[u8; 32]) -> Vec<u8> {
    format!("{ALPN_PREFIX}/{}", HEXLOWER.encode(binding)).into_bytes()
}

/// Returns true if the completed handshake was bound to the OPEN. Without this check, a peer that
/// offers no protocol would pass.
pub(crate) fn is_bound(connection: &rustls::CommonState, binding: &[u8; 32]) -> bool {
    connection.alpn_protocol() == Some(&application_protocol(binding))
}

/// Returns the initiator's configuration for one connection.
pub(crate) fn client_config(
    identity: &Identity,
    server: Arc<ServerKey>,
    binding: &[u8; 32],
) -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&server.provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?;
    let mut config = builder
        .dangerous() // uses the verifier of this module
        .with_custom_certificate_verifier(server)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
            identity.certified(),
        )));
    config.alpn_protocols = vec![application_protocol(binding)];
    // Depots see the ClientHello, so it carries no name and nothing that links sessions.
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    // The record layer is this crate's own (see `secured`) and needs the keys.
    config.enable_secret_extraction = true;
    Ok(config)
}

/// Returns the acceptor's configuration for one connection, whose OPEN named the client (LH-TLS-3).
pub(crate) fn server_config(
    identity: &Identity,
    principal: PublicKey,
    binding: &[u8; 32],
) -> io::Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let client = Arc::new(ClientKey {
        principal,
        algorithms: provider.signature_verification_algorithms,
    });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(client)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
            identity.certified(),
        )));
    config.alpn_protocols = vec![application_protocol(binding)];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    Ok(config)
}

/// Returns a dummy name: TLS requires one, but only keys are checked.
pub(crate) fn server_name() -> io::Result<ServerName<'static>> {
    ServerName::try_from("longhaul").map_err(io::Error::other)
}

/// Checks the server's key for one connection, and remembers the result.
#[derive(Debug)]
pub(crate) struct ServerKey {
    destination: Endpoint,
    trust: ServerTrust,
    provider: Arc<CryptoProvider>,
    seen: OnceLock<(PublicKey, KeyVerdict)>,
    /// Voucher of the server's answer, which comes before its handshake.
    voucher: OnceLock<Voucher>,
}

impl ServerKey {
    pub(crate) fn new(destination: Endpoint, trust: ServerTrust) -> Arc<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Arc::new(Self {
            destination,
            trust,
            provider,
            seen: OnceLock::new(),
            voucher: OnceLock::new(),
        })
    }

    /// Takes the voucher of the server's answer, before its handshake is read.
    pub(crate) fn show_voucher(&self, voucher: Voucher) {
        let _ = self.voucher.set(voucher);
    }

    /// Returns the server's key once the server has proved to have it.
    pub(crate) fn trusted_key(&self) -> Option<PublicKey> {
        self.seen
            .get()
            .filter(|(_, verdict)| *verdict == KeyVerdict::Trusted)
            .map(|&(key, _)| key)
    }

    /// Returns the error for a handshake that failed with `source`: the key's, if the key was the
    /// reason.
    pub(crate) fn handshake_error(&self, source: io::Error) -> Error {
        let destination = self.destination.clone();
        match self.seen.get() {
            Some(&(found, KeyVerdict::Unknown)) => Error::UnknownServer { destination, found },
            Some(&(found, KeyVerdict::Mismatch { expected })) => Error::ServerKey {
                destination,
                expected,
                found,
            },
            _ => Error::Tls {
                destination,
                source,
            },
        }
    }
}

impl ServerCertVerifier for ServerKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = presented_key(end_entity)?;
        let judge = || {
            let voucher = self.voucher.get();
            self.trust.verdict(&self.destination, &found, voucher)
        };
        let (_, verdict) = self.seen.get_or_init(|| (found, judge()));
        match verdict {
            KeyVerdict::Trusted => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_handshake(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Requires the client's key to be the principal of its OPEN (LH-TLS-3).
#[derive(Debug)]
struct ClientKey {
    principal: PublicKey,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if presented_key(end_entity)? == self.principal {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_handshake(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
