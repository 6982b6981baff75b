//! Each end against rustls's own record layer, and against itself, over an in-memory pipe.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::record::*;
use super::*;
use crate::tls::{self, ServerKey};
use crate::{Identity, ServerTrust};

const BINDING: [u8; 32] = [7; 32];

struct Configs {
    client: Arc<rustls::ClientConfig>,
    server: Arc<rustls::ServerConfig>,
}

fn configs() -> Configs {
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let key = ServerKey::new(
        "server.example:7511".parse().unwrap(),
        ServerTrust::Pinned(server.public()),
    );
    Configs {
        client: Arc::new(tls::client_config(&client, key, &BINDING).unwrap()),
        server: Arc::new(tls::server_config(&server, client.public(), &BINDING).unwrap()),
    }
}

async fn client(configs: &Configs, stream: DuplexStream) -> Secured<DuplexStream> {
    let name = tls::server_name().unwrap();
    let connection = UnbufferedClientConnection::new(configs.client.clone(), name).unwrap();
    let hop = HopStream::accepted(stream, Bytes::new());
    Secured::establish(hop, connection, |state| tls::is_bound(state, &BINDING))
        .await
        .unwrap()
}

async fn server(configs: &Configs, stream: DuplexStream) -> Secured<DuplexStream> {
    let connection = UnbufferedServerConnection::new(configs.server.clone()).unwrap();
    let hop = HopStream::accepted(stream, Bytes::new());
    Secured::establish(hop, connection, |state| tls::is_bound(state, &BINDING))
        .await
        .unwrap()
}

async fn both(capacity: usize) -> (Secured<DuplexStream>, Secured<DuplexStream>) {
    let configs = configs();
    let (near, far) = duplex(capacity);
    tokio::join!(client(&configs, near), server(&configs, far))
}

fn noise(len: usize) -> Vec<u8> {
    let mut noise = vec![0; len];
    for (at, byte) in noise.iter_mut().enumerate() {
        *byte = (at * 31 + at / 251) as u8;
    }
    noise
}

/// Writes `data` in parts of `part` bytes, and closes.
async fn say<W: AsyncWrite + Unpin>(to: &mut W, data: &[u8], part: usize) {
    for part in data.chunks(part) {
        to.write_all(part).await.unwrap();
    }
    to.shutdown().await.unwrap();
}

/// Reads to the end in parts of at most `part` bytes.
async fn receive<R: AsyncRead + Unpin>(from: &mut R, part: usize) -> io::Result<Vec<u8>> {
    let (mut received, mut buffer) = (Vec::new(), vec![0; part]);
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(received),
            len => received.extend_from_slice(&buffer[..len]),
        }
    }
}

/// Sends in both directions at once, and checks that everything arrives.
async fn exchange<A, B>(one: &mut A, other: &mut B, len: usize, part: usize)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let data = noise(len);
    let ((mut from_one, mut to_one), (mut from_other, mut to_other)) =
        (tokio::io::split(one), tokio::io::split(other));
    let ((), (), at_one, at_other) = tokio::join!(
        say(&mut to_one, &data, part),
        say(&mut to_other, &data, part),
        receive(&mut from_one, part),
        receive(&mut from_other, part)
    );
    assert!(
        at_one.unwrap() == data && at_other.unwrap() == data,
        "{len} bytes in parts of {part}"
    );
}

#[tokio::test]
async fn both_ends_understand_rustls_and_each_other() {
    for (len, part) in [
        (0, 1),
        (1, 1),
        (MAX_DATA + 1, 7),
        (300_000, MAX_DATA),
        (700_000, 250_001),
    ] {
        // A pipe that holds less than a record, and one that holds many.
        for capacity in [1000, 1 << 20] {
            let (mut near, mut far) = both(capacity).await;
            exchange(&mut near, &mut far, len, part).await;

            let configs = configs();
            let (near, far) = duplex(capacity);
            let acceptor = TlsAcceptor::from(configs.server.clone());
            let (mut near, far) = tokio::join!(client(&configs, near), acceptor.accept(far));
            exchange(&mut near, &mut far.unwrap(), len, part).await;

            let (near, far) = duplex(capacity);
            let connector = TlsConnector::from(configs.client.clone());
            let connecting = connector.connect(tls::server_name().unwrap(), near);
            let (near, mut far) = tokio::join!(connecting, server(&configs, far));
            exchange(&mut near.unwrap(), &mut far, len, part).await;
        }
    }
}

/// RFC 8446, section 4.6.3: keys change mid-stream, whichever end begins.
#[tokio::test]
async fn keys_change_in_mid_stream() {
    let configs = configs();
    let (near, far) = duplex(1 << 16);
    let acceptor = TlsAcceptor::from(configs.server.clone());
    let (mut near, far) = tokio::join!(client(&configs, near), acceptor.accept(far));
    let mut far = far.unwrap();
    // rustls requests another key; its own changes too.
    far.get_mut().1.refresh_traffic_keys().unwrap();
    far.write_all(b"from rustls").await.unwrap();
    far.flush().await.unwrap();
    let mut received = [0; 11];
    near.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"from rustls");
    near.write_all(b"to rustls").await.unwrap();
    near.flush().await.unwrap();
    let mut received = [0; 9];
    far.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"to rustls");
    // A key that has reached its limit of records is followed by the next.
    let (mut near, mut far) = both(1 << 16).await;
    let data = noise(10 * MAX_DATA);
    let saying = async {
        for part in data.chunks(MAX_DATA) {
            near.sealer.expire();
            near.write_all(part).await.unwrap();
        }
        near.shutdown().await.unwrap();
    };
    let ((), received) = tokio::join!(saying, receive(&mut far, 5000));
    assert!(received.unwrap() == data);
}

#[tokio::test]
async fn modified_and_truncated_streams_are_errors() {
    let data = noise(40_000);
    for at in [0, 3, 4, 5, 100, MAX_DATA + 40, 39_999] {
        let (mut near, mut far) = both(1 << 20).await;
        near.write_all(&data).await.unwrap();
        near.flush().await.unwrap();
        // Modifies bytes that have already arrived.
        std::future::poll_fn(|cx| far.incoming.poll_fill(cx, &mut far.io))
            .await
            .unwrap();
        let len = far.incoming.bytes().len();
        far.incoming.front_mut(len)[at] ^= 1;
        let failed = receive(&mut far, 1 << 16).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::InvalidData, "{at}: {failed}");
        assert!(far.read_u8().await.is_err(), "nothing is read behind it");
        // The other end is informed.
        assert_eq!(
            near.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
    let (mut near, mut far) = both(1 << 20).await;
    near.write_all(&data).await.unwrap();
    near.flush().await.unwrap();
    drop(near);
    let failed = receive(&mut far, 1 << 16).await.unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::UnexpectedEof);
}

/// Violations by a peer that has the keys: endless records without data, and messages of a
/// completed handshake.
#[tokio::test]
async fn senseless_records_end_the_connection() {
    let senseless: [(Content, &[u8], usize); 6] = [
        (Content::Data, b"", MAX_EMPTY_RECORDS as usize + 1),
        (Content::Handshake, &[KEY_UPDATE, 0, 0, 1], 1),
        (
            Content::Handshake,
            &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0],
            1,
        ),
        (Content::Handshake, &[1, 0, 0, 0], 1),
        (
            Content::Handshake,
            &[NEW_SESSION_TICKET, 0, 0xff, 0xff, 1],
            1,
        ),
        (Content::Alert, &[WARNING], 1),
    ];
    for (content, message, times) in senseless {
        let (mut near, mut far) = both(1 << 16).await;
        for _ in 0..times {
            near.seal(content, message).unwrap();
        }
        near.flush().await.unwrap();
        let failed = far.read_u8().await.unwrap_err();
        assert_eq!(
            failed.kind(),
            io::ErrorKind::InvalidData,
            "{message:?}: {failed}"
        );
    }
    // Tickets and user_canceled alerts are ignored; only the close counts.
    let (mut near, mut far) = both(1 << 16).await;
    near.seal(Content::Handshake, &[NEW_SESSION_TICKET, 0, 0, 1, 9])
        .unwrap();
    near.seal(
        Content::Alert,
        &[WARNING, AlertDescription::UserCanceled.into()],
    )
    .unwrap();
    near.write_all(b"x").await.unwrap();
    near.flush().await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'x');
}

/// LH-CLEAR-1: plaintext bytes may come between records, however the stream is split.
#[tokio::test]
async fn plaintext_bytes_may_come_between_records() {
    for capacity in [100, 1 << 20] {
        let (mut near, mut far) = both(capacity).await;
        let (data, clear) = (noise(50_000), near.clear().clone());
        let saying = async {
            for _ in 0..3 {
                near.write_all(b"secret").await.unwrap();
                clear.send(data.len());
                near.write_all(&data).await.unwrap();
            }
            near.shutdown().await.unwrap();
        };
        let known = far.clear().clone();
        known.may_receive();
        let hearing = async {
            for _ in 0..3 {
                let mut secret = [0; 6];
                far.read_exact(&mut secret).await.unwrap();
                assert_eq!(&secret, b"secret");
                known.receive(data.len());
                let mut received = vec![0; data.len()];
                far.read_exact(&mut received).await.unwrap();
                assert!(received == data);
            }
            assert_eq!(far.read(&mut [0; 10]).await.unwrap(), 0);
        };
        tokio::join!(saying, hearing);
    }
    // The plaintext is visible on the wire.
    let (mut near, far) = both(1 << 20).await;
    near.clear().send(5);
    near.write_all(b"plain").await.unwrap();
    let mut io = far.io;
    let mut seen = [0; 5];
    io.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"plain");
}

fn pair(secrets: [u8; 44]) -> (Sealer, Opener) {
    let secrets = || {
        let (key, iv) = secrets.split_at(32);
        let key = rustls::crypto::cipher::AeadKey::from(<[u8; 32]>::try_from(key).unwrap());
        let iv = rustls::crypto::cipher::Iv::from(<[u8; 12]>::try_from(iv).unwrap());
        rustls::ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    };
    (
        Sealer::new((5, secrets()), 1 << 24).unwrap(),
        Opener::new((5, secrets())).unwrap(),
    )
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = record_body_len(&bytes);
        let (_, mut opener) = pair([1; 44]);
        prop_assert!(opener.open(&bytes, &mut [0; 300]).is_err());
    }

    #[test]
    fn a_record_opens_only_unmodified(
        data in prop::collection::vec(any::<u8>(), 0..500),
        flipped in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let (mut sealer, mut opener) = pair([3; 44]);
        let mut sealed = Outgoing::default();
        sealer.seal(Content::Data, &data, &mut sealed).unwrap();
        let record = sealed.left().to_vec();
        prop_assert_eq!(record_body_len(&record), Ok(Some(record.len() - HEADER)));
        let mut changed = record.clone();
        *flipped.get_mut(&mut changed) ^= 1 << bit;
        let mut out = vec![0; opened_len(record.len() - HEADER)];
        let (_, mut other) = pair([3; 44]);
        prop_assert!(other.open(&changed, &mut out).is_err());
        prop_assert_eq!(opener.open(&record, &mut out), Ok((Content::Data, data.len())));
        prop_assert_eq!(&out[..data.len()], &data[..]);
        // The same record again is at another position in the stream.
        prop_assert_eq!(opener.open(&record, &mut out), Err(RecordError::Forged));
    }
}
