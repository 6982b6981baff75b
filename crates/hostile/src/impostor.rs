//! A server that shows another server's key and cannot prove it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::receive_open;
use longhaul_proto::{Open, PublicKey, SigningKey, StatusCode};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::socket;
use crate::status::Saying;

/// A server that accepts connections until it is dropped.
#[derive(Debug)]
pub struct Impostor {
    /// Address on which it listens.
    pub address: SocketAddr,
    _task: JoinSet<()>,
}

impl Impostor {
    /// Listens at `address` and shows the key `victim`, whose private half it does not have.
    ///
    /// # Errors
    /// The address cannot be bound, or TLS cannot be set up.
    pub async fn start(address: SocketAddr, victim: PublicKey) -> io::Result<Self> {
        let own = Arc::new(SigningKey::generate().map_err(io::Error::other)?);
        let pretending = move |stream| {
            let own = Arc::clone(&own);
            async move { pretend(stream, &own, victim).await }
        };
        let (address, _task) = socket::listen(address, pretending).await?;
        Ok(Self { address, _task })
    }
}

fn config(victim: PublicKey, own: &SigningKey, open: &Open) -> io::Result<ServerConfig> {
    let document = PrivatePkcs8KeyDer::from(own.to_pkcs8().map_err(io::Error::other)?.to_vec());
    let signing = aws_lc_rs::sign::any_eddsa_type(&document).map_err(io::Error::other)?;
    let shown = victim.to_spki();
    let key = CertifiedKey::new(vec![CertificateDer::from(shown)], signing);
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(Arc::new(Anybody))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(
            key,
        ))));
    // The binding is not secret (LH-TLS-4).
    let binding: String = open
        .binding()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    config.alpn_protocols = vec![format!("longhaul/1/{binding}").into_bytes()];
    Ok(config)
}

async fn pretend(mut stream: TcpStream, own: &SigningKey, victim: PublicKey) -> io::Result<()> {
    let Ok((open, _, early)) = receive_open(&mut stream).await else {
        return Ok(());
    };
    let saying = Saying {
        code: StatusCode::Ok,
        place: open.position(),
        acceptor: true,
        forwarded: false,
        reporter: Some(*own.public().as_bytes()),
        detail: b"",
    };
    stream.write_all(&saying.signed(own, &open)?).await?;
    let (from, to) = stream.into_split();
    let joined = tokio::io::join(io::Cursor::new(early).chain(from), to);
    let mut tls = TlsAcceptor::from(Arc::new(config(victim, own, &open)?))
        .accept(joined)
        .await?;
    let _ = tls.read(&mut [0; 4096]).await?;
    Ok(())
}

/// Accepts every client, because the server is under test.
#[derive(Debug)]
struct Anybody;

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
