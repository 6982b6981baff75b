//! The TLS 1.3 handshake, performed by rustls, up to the keys.
//!
//! rustls is given one record at a time, because it must not consume the data after the handshake.

#![deny(clippy::indexing_slicing)] // the input comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::future::poll_fn;
use std::io;

use longhaul_resume::ResumeSecret;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{CommonState, ConnectionTrafficSecrets, ExtractedSecrets};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use super::incoming::InputBuffer;
use super::record::HEADER_BYTES;

/// A rustls connection of either side.
pub(crate) trait HandshakeConnection {
    type Data;
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn state(&self) -> &CommonState;
    fn into_keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error>;
}

impl HandshakeConnection for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn into_keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error> {
        let (secrets, next) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Keys::Client(next)))
    }
}

impl HandshakeConnection for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn into_keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error> {
        let (secrets, next) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Keys::Server(next)))
    }
}

/// Derives the keys that follow those in use (RFC 8446, section 7.2).
pub(crate) enum Keys {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Keys {
    /// Returns the next sending keys, and the number of the first record.
    pub(super) fn next_sending(
        &mut self,
    ) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(keys) => keys.update_tx_secret(),
            Self::Server(keys) => keys.update_tx_secret(),
        }
    }

    /// Returns the next receiving keys, and the number of the first record.
    pub(super) fn next_receiving(
        &mut self,
    ) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(keys) => keys.update_rx_secret(),
            Self::Server(keys) => keys.update_rx_secret(),
        }
    }

    /// Derives the secret with which the two ends recognise each other on a further connection,
    /// from the first keys of both directions. Only the ends know them; a handshake authenticated
    /// both.
    pub(super) fn resume_secret(
        &self,
        sending: &ConnectionTrafficSecrets,
        receiving: &ConnectionTrafficSecrets,
    ) -> ResumeSecret {
        let mut keys = Zeroizing::new(Vec::new());
        let of_client_first = match self {
            Self::Client(_) => [sending, receiving],
            Self::Server(_) => [receiving, sending],
        };
        for secrets in of_client_first {
            let (key, iv) = match secrets {
                ConnectionTrafficSecrets::Aes128Gcm { key, iv }
                | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
                | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
                _ => continue,
            };
            keys.extend_from_slice(key.as_ref());
            keys.extend_from_slice(iv.as_ref());
        }
        ResumeSecret::derive(&keys)
    }

    /// Returns the maximum number of records that one key may protect (section 5.5).
    pub(super) fn records_per_key(&self) -> u64 {
        let suite = match self {
            Self::Client(keys) => keys.negotiated_cipher_suite(),
            Self::Server(keys) => keys.negotiated_cipher_suite(),
        };
        suite
            .tls13()
            .map_or(0, |suite| suite.common.confidentiality_limit)
    }
}

/// Next step of the handshake.
enum HandshakeStep {
    Process,
    Send,
    Read,
    Established,
    Failed(rustls::Error),
}

/// Performs the handshake over `io`. Input after it is returned in the [`InputBuffer`].
pub(super) async fn handshake<S, C>(io: &mut S, connection: &mut C) -> io::Result<InputBuffer>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: HandshakeConnection,
{
    let mut incoming = InputBuffer::default();
    let mut outgoing = Vec::new();
    // Number of bytes at the front that rustls may consume: whole records, one more per request.
    let mut offered = 0usize;
    let mut failed = None;
    loop {
        let UnbufferedStatus { discard, state } = connection.process(incoming.front_mut(offered));
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut outgoing, |room| data.encode(room))?;
                HandshakeStep::Process
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                HandshakeStep::Send
            }
            Ok(ConnectionState::WriteTraffic(_)) => HandshakeStep::Established,
            Ok(ConnectionState::BlockedHandshake) => HandshakeStep::Read,
            Ok(_) => HandshakeStep::Failed(rustls::Error::General(
                "the peer ended the handshake".into(),
            )),
            Err(error) => HandshakeStep::Failed(error),
        };
        incoming.consume(discard);
        offered = offered.saturating_sub(discard);
        // After a failure, one more round produces the alert for the peer.
        if let Some(error) = failed.take_if(|_| !matches!(next, HandshakeStep::Process)) {
            let reported = async {
                io.write_all(&outgoing).await?;
                io.flush().await
            };
            // The handshake's error takes precedence over an error in reporting it.
            let _: io::Result<()> = reported.await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        match next {
            HandshakeStep::Process => {}
            HandshakeStep::Send => {
                io.write_all(&outgoing).await?;
                io.flush().await?;
                outgoing.clear();
            }
            HandshakeStep::Established if !connection.state().is_handshaking() => {
                return Ok(incoming);
            }
            HandshakeStep::Established | HandshakeStep::Read => {
                offered = read_record(io, &mut incoming, offered).await?
            }
            HandshakeStep::Failed(error) => failed = Some(error),
        }
    }
}

/// Appends the data that rustls has to send to `outgoing`.
fn encode(
    outgoing: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> io::Result<()> {
    let start = outgoing.len();
    loop {
        match write(outgoing.get_mut(start..).unwrap_or_default()) {
            Ok(written) => {
                outgoing.truncate(start + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                outgoing.resize(start + required_size, 0);
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Reads until one record beyond the `offered` bytes is complete. Returns the new number of bytes.
async fn read_record<S: AsyncRead + Unpin>(
    io: &mut S,
    incoming: &mut InputBuffer,
    offered: usize,
) -> io::Result<usize> {
    loop {
        let behind = incoming.bytes().get(offered..).unwrap_or_default();
        if let Some(&[_, _, _, high, low]) = behind.first_chunk::<HEADER_BYTES>() {
            let len = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
            if behind.len() >= len {
                return Ok(offered + len);
            }
        }
        if poll_fn(|cx| incoming.poll_fill(cx, io)).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended within the TLS handshake",
            ));
        }
    }
}
