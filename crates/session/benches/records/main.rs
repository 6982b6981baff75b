//! Processor time of TLS records: a session, whose records are this crate's own, compared with
//! rustls's unbuffered API and with tokio-rustls. Loopback only, both ends in one process.
//!
//! All three carry the same data through the same sizes of writes and reads, alternately. The
//! figure is the processor time of both ends, kernel included, per gigabyte.
//!
//! ```sh
//! cargo bench -p longhaul-session --bench records -- [ROUNDS [GIGABYTES]]
//! ```

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)] // a benchmark may panic

mod unbuffered;

use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::SigningKey;
use longhaul_session::{
    ConnectOptions, Identity, ListenOptions, Listener, Route, ServerTrust, ServiceName, connect,
};
use rustix::time::{ClockId, clock_gettime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Sizes of a copy's writes and reads, in bytes.
const WRITE_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 128 << 10;

const NAMES: [&str; 3] = ["session", "rustls unbuffered", "tokio-rustls"];

fn main() {
    // Cargo passes `--bench` as well.
    let numbers: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let rounds = numbers.first().map_or(5, |rounds| *rounds as usize);
    let gigabytes = numbers.get(1).copied().unwrap_or(2.0);
    let bytes = (gigabytes * 1e9) as usize;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut seconds = [const { Vec::new() }; 3];
    for round in 0..=rounds {
        let carried = runtime.block_on(async {
            [
                carry_in_session(bytes).await,
                carry_unbuffered(bytes).await,
                carry_in_tokio_rustls(bytes).await,
            ]
        });
        // The first round only warms up.
        if round > 0 {
            for (all, time) in seconds.iter_mut().zip(carried) {
                all.push(time.as_secs_f64() / gigabytes);
            }
        }
    }
    let session = seconds[0].clone();
    for (name, all) in NAMES.iter().zip(&mut seconds) {
        let ratios = all
            .iter()
            .zip(&session)
            .map(|(other, session)| other / session);
        let mut ratios: Vec<f64> = ratios.collect();
        all.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        let middle = rounds / 2;
        println!(
            "{name}: {:.3} s/GB, {:.2} of the session's ({:.2} to {:.2})",
            all[middle],
            ratios[middle],
            ratios[0],
            ratios[rounds - 1],
        );
    }
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

/// Writes `bytes` bytes to one end and reads them at the other. Returns the processor time.
async fn carry(
    mut from: impl AsyncWrite + Unpin + Send + 'static,
    mut to: impl AsyncRead + Unpin,
    bytes: usize,
) -> Duration {
    let began = processor_time();
    let sent = tokio::spawn(async move {
        let data = vec![0x5a; WRITE_BYTES];
        let mut left = bytes;
        while left > 0 {
            let part = &data[..left.min(WRITE_BYTES)];
            from.write_all(part).await.unwrap();
            left -= part.len();
        }
        from.flush().await.unwrap();
        from
    });
    let mut buffer = vec![0; READ_BYTES];
    let mut received = 0;
    while received < bytes {
        received += match to.read(&mut buffer).await.unwrap() {
            0 => panic!("the stream ended early"),
            read => read,
        };
    }
    sent.await.unwrap();
    processor_time() - began
}

async fn carry_in_session(bytes: usize) -> Duration {
    let identity = || Arc::new(Identity::generate().unwrap());
    let (server, client) = (identity(), identity());
    let trust = ServerTrust::Pinned(server.public());
    let address = "127.0.0.1:0".parse().unwrap();
    let services = vec![ServiceName::COPY];
    let listen = ListenOptions::new(address, server, Arc::new(|_| true), services);
    let listener = Listener::bind(listen).await.unwrap();
    let to = listener.local_addr().into();
    let options = ConnectOptions::new(ServiceName::COPY, Route::direct(), to, client, trust);
    let (from, to) = tokio::join!(connect(&options), listener.accept());
    carry(from.unwrap(), to.unwrap(), bytes).await
}

async fn carry_unbuffered(bytes: usize) -> Duration {
    let (client, server) = configs();
    let (from, to) = unbuffered::establish(client, server);
    let (near, far) = tcp_pair().await;
    let began = processor_time();
    let sent = tokio::spawn(from.send(near, bytes, WRITE_BYTES));
    to.receive(far, bytes, READ_BYTES).await;
    sent.await.unwrap();
    processor_time() - began
}

async fn carry_in_tokio_rustls(bytes: usize) -> Duration {
    let (client, server) = configs();
    let (near, far) = tcp_pair().await;
    let (connector, acceptor) = (TlsConnector::from(client), TlsAcceptor::from(server));
    let name = ServerName::try_from("longhaul").unwrap();
    let (from, to) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    carry(from.unwrap(), to.unwrap(), bytes).await
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), accepted.unwrap().0)
}

/// Returns configurations with a raw key of the server, as sessions use it.
fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = longhaul_raw_keys::certified_key(&SigningKey::generate().unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_no_client_auth();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(
            key,
        ))));
    server.send_tls13_tickets = 0;
    (Arc::new(client), Arc::new(server))
}

/// Accepts any key, as the benchmark has no attacker.
#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(longhaul_raw_keys::only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        longhaul_raw_keys::SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
