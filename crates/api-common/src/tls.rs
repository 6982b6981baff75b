//! TLS of a service: its certificate, and how clients verify it.
//!
//! A service's own certificate is made from its Ed25519 key, and is the same each time for the same
//! key and names. Clients verify it by that key, like other Longhaul servers. A site's own
//! certificate is verified by the authority that signed it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_hop::read_trusted_file;
use longhaul_proto::{PublicKey, SigningKey};
use rcgen::{CertificateParams, DistinguishedName, DnType, PKCS_ED25519, SanType, SerialNumber};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The only ALPN protocol.
const ALPN: &[u8] = b"http/1.1";
/// Length of a certificate's serial number, in bytes (RFC 5280 allows 20).
const SERIAL_BYTES: usize = 16;

/// TLS configuration of a service.
pub type ServerTls = Arc<ServerConfig>;
/// TLS configuration of a client.
pub type ClientTls = Arc<ClientConfig>;

/// A certificate, a key or root certificates are not available.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain what was expected.
    #[error("{}: no {what} in PEM form: {why}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Expected content.
        what: &'static str,
        /// Cause.
        why: String,
    },
    /// All users of the machine can read the private key.
    #[error("{}: everybody can read this private key: run chmod o-rwx on it", .0.display())]
    Exposed(PathBuf),
    /// A certificate cannot contain this name. Give a host name or an address to `--server-name`.
    #[error("{0}: not a name that a certificate can have")]
    Name(String),
    /// The certificate and the key do not match, or their kind is not supported. Check that
    /// `--tls-cert` and `--tls-key` belong together, and that TLS 1.3 supports their kind.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
    /// This machine has no root certificates. Install the package `ca-certificates`, or give
    /// `--ca FILE`.
    #[error("this machine has no certificates of authorities (ca-certificates): {0}")]
    NoRoots(String),
}

/// A service's certificate with its private key, ready for TLS, and as text.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Configuration for connections.
    pub config: ServerTls,
    /// The certificate and its chain, in PEM form.
    pub pem: Option<String>,
}

/// The service's key with the interface that `rcgen` expects.
struct Signer<'a> {
    key: &'a SigningKey,
    public: PublicKey,
}

impl rcgen::PublicKeyData for Signer<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl rcgen::SigningKey for Signer<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.key.sign(message);
        signature
            .map(Vec::from)
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

impl Certificate {
    /// Creates the service's own certificate from its key, for these names (hosts or addresses).
    ///
    /// # Errors
    /// A name is invalid.
    pub fn from_key(key: &SigningKey, names: &[String]) -> Result<Self, TlsError> {
        let unusable = |error: &dyn ToString| TlsError::Unusable(error.to_string());
        let mut params = CertificateParams::default();
        for name in names {
            let name = match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let dns = ServerName::try_from(name.as_str());
                    let name = || TlsError::Name(name.clone());
                    let Ok(ServerName::DnsName(dns)) = dns else {
                        return Err(name());
                    };
                    SanType::DnsName(dns.as_ref().try_into().map_err(|_| name())?)
                }
            };
            params.subject_alt_names.push(name);
        }
        let mut subject = DistinguishedName::new();
        // Differs between keys, so that one certificate is not taken for another's issuer.
        subject.push(
            DnType::CommonName,
            format!("Longhaul {}", key_suffix(&key.public())),
        );
        params.distinguished_name = subject;
        params.serial_number = Some(serial(&key.public(), names));
        let signer = Signer {
            key,
            public: key.public(),
        };
        let certificate = params
            .self_signed(&signer)
            .map_err(|error| unusable(&error))?;
        let document = key.to_pkcs8().map_err(|error| unusable(&error))?;
        let private = PrivatePkcs8KeyDer::from(document.to_vec());
        let der = certificate.der().clone();
        let pem = pem(&der);
        Ok(Self {
            config: server_config(vec![der], private.into())?,
            pem: Some(pem),
        })
    }

    /// Reads a site's certificate from files.
    ///
    /// # Errors
    /// The files cannot be read, do not match, or all users can read the key.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        use std::os::unix::fs::MetadataExt;
        let chain = read_certificates(certificates, |path| std::fs::read(path))?;
        let wrong = |why: &dyn ToString| TlsError::File {
            path: key.into(),
            what: "private key",
            why: why.to_string(),
        };
        let metadata = std::fs::metadata(key).map_err(|error| wrong(&error))?;
        if metadata.mode() & 0o007 != 0 {
            return Err(TlsError::Exposed(key.into()));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(&error))?;
        Ok(Self {
            config: server_config(chain, private)?,
            pem: None,
        })
    }
}

/// Reads certificates with `read`, which determines how far the file is trusted.
fn read_certificates(
    path: &Path,
    read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::File {
        path: path.into(),
        what: "certificate",
        why,
    };
    let pem = read(path).map_err(|error| wrong(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| wrong(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(wrong("it has none".to_owned())),
        false => Ok(certificates),
    }
}

/// Returns the end of a key's text, enough to tell keys apart.
fn key_suffix(key: &PublicKey) -> String {
    let text = key.to_string();
    let (_, digits) = text.split_once(':').unwrap_or_default();
    digits.chars().take(32).collect()
}

/// Derives a serial number that is unique for each key and set of names.
fn serial(key: &PublicKey, names: &[String]) -> SerialNumber {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key.as_bytes());
    for name in names {
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
    }
    let mut bytes = [0; SERIAL_BYTES];
    hasher.finalize_xof().fill(&mut bytes);
    // Positive, and of full length (RFC 5280, section 4.1.2.2).
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

fn pem(der: &CertificateDer<'_>) -> String {
    let digits = data_encoding::BASE64.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(digit);
    }
    pem.push_str("\n-----END CERTIFICATE-----\n");
    pem
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerTls, TlsError> {
    let unusable = |error: rustls::Error| TlsError::Unusable(error.to_string());
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// Callback that returns true if the service's Ed25519 key is trusted.
pub type IsTrusted = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// Method of verifying a service.
#[derive(Clone)]
pub enum ServerVerification {
    /// By its Ed25519 key only.
    ByKey(IsTrusted),
    /// By an authority whose certificate is in this file.
    ByAuthority(PathBuf),
    /// By an authority that this machine trusts, otherwise by its Ed25519 key.
    Either(IsTrusted),
    /// By an authority that this machine trusts.
    BySystem,
}

impl std::fmt::Debug for ServerVerification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ByKey(_) => "ByKey",
            Self::ByAuthority(_) => "ByAuthority",
            Self::Either(_) => "Either",
            Self::BySystem => "BySystem",
        })
    }
}

/// Creates the configuration of a client that verifies services in this way.
///
/// # Errors
/// The root certificates cannot be read.
pub fn client_config(known: ServerVerification) -> Result<ClientTls, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let (authorities, is_trusted) = match known {
        ServerVerification::ByKey(is_trusted) => (None, Some(is_trusted)),
        ServerVerification::ByAuthority(file) => (Some(load_roots(&file)?), None),
        // A machine without root certificates can still verify a service by its key.
        ServerVerification::Either(is_trusted) => (system_roots().ok(), Some(is_trusted)),
        ServerVerification::BySystem => (Some(system_roots()?), None),
    };
    let unusable = |error: &dyn ToString| TlsError::Unusable(error.to_string());
    let authorities = authorities.map(|roots| {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()
    });
    let authorities = authorities.transpose().map_err(|error| unusable(&error))?;
    let verifier = Arc::new(Verifier {
        authorities,
        is_trusted,
        provider: provider.clone(),
    });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable(&error))?
        .dangerous() // the verifier is this module's own
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

fn load_roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // The file determines which services are trusted.
    let trusted = |path: &Path| read_trusted_file(path).map(String::into_bytes);
    for certificate in read_certificates(file, trusted)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::Unusable(error.to_string()))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        true => Err(TlsError::NoRoots(
            found
                .errors
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
        )),
        false => Ok(roots),
    }
}

/// Verifier by authority or by key. The handshake's signature is verified in either case.
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    is_trusted: Option<IsTrusted>,
    provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier")
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let by_authority = self.authorities.as_ref().map(|authorities| {
            authorities.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            )
        });
        if let Some(Ok(verified)) = by_authority {
            return Ok(verified);
        }
        let otherwise = || match by_authority {
            Some(Err(error)) => error,
            _ => CertificateError::ApplicationVerificationFailure.into(),
        };
        let Some(is_trusted) = &self.is_trusted else {
            return Err(otherwise());
        };
        match ed25519_key(end_entity)? {
            Some(key) if is_trusted(&key) => Ok(ServerCertVerified::assertion()),
            Some(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            None => Err(otherwise()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Returns the key of a certificate, if it is an Ed25519 key.
fn ed25519_key(certificate: &CertificateDer<'_>) -> Result<Option<PublicKey>, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(PublicKey::from_spki(&parsed.subject_public_key_info()))
}

/// Performs the TLS handshake with the service at `host`, as written in a URL.
///
/// # Errors
/// The service cannot be verified, or the connection failed.
pub async fn connect(
    tls: &ClientTls,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let name = ServerName::try_from(bare.unwrap_or(host).to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(tls.clone()).connect(name, stream).await
}
