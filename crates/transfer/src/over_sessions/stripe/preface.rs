//! First bytes of a stream of the service `stripe`: their number (2 bytes, big-endian) and JSON
//! (LH-COPY-77).

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::io;

use longhaul_hop::read_announced;
use longhaul_proto::PublicKey;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::client::StreamOrigin;
use crate::stripe::MemberId;

/// Maximum length of the JSON, in bytes. A route of 32 depots with keys takes less.
const MAX_PREFACE_BYTES: u16 = 16 * 1024;

/// Purpose of a stream between a client and a member, or between two members. What follows is an
/// ordinary stream of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StreamPreface {
    /// From a client: the copy is that of a member.
    ForMember { member: MemberId },
    /// From a member: it relays a stream of this client, who has proved its key there.
    FromClient {
        client: PublicKey,
        origin: Option<StreamOrigin>,
    },
}

impl StreamPreface {
    /// Writes the preface.
    ///
    /// # Errors
    /// Those of the stream.
    pub(super) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        let len = u16::try_from(json.len()).map_err(|_| too_long())?;
        let message = [&len.to_be_bytes()[..], &json].concat();
        stream.write_all(&message).await
    }

    /// Reads the preface, and no byte behind it.
    ///
    /// # Errors
    /// Those of the stream, and [`io::ErrorKind::InvalidData`] if it is no preface.
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let len = stream.read_u16().await?;
        if len > MAX_PREFACE_BYTES {
            return Err(too_long());
        }
        let json = read_announced(stream, len.into()).await?;
        Ok(serde_json::from_slice(&json)?)
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the preface is too long")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(mut bytes: &[u8]) -> (io::Result<StreamPreface>, Vec<u8>) {
        let read = longhaul_proto::fuzzing::expect_ready(StreamPreface::read(&mut bytes));
        (read, bytes.to_vec())
    }

    fn written(preface: &StreamPreface) -> Vec<u8> {
        let mut bytes = Vec::new();
        longhaul_proto::fuzzing::expect_ready(preface.write(&mut bytes)).unwrap();
        bytes
    }

    #[test]
    fn lh_copy_77_a_preface_is_read_as_it_was_written() {
        let origin = StreamOrigin {
            from: Some("192.0.2.1:7".parse().unwrap()),
            local: None,
            is_tcp: true,
            route: "direct".to_owned(),
            purpose: Some("a".to_owned()),
        };
        for preface in [
            StreamPreface::ForMember {
                member: MemberId([9; 8]),
            },
            StreamPreface::FromClient {
                client: PublicKey::from_bytes([1; 32]),
                origin: Some(origin),
            },
        ] {
            let mut bytes = written(&preface);
            bytes.extend_from_slice(b"HELLO");
            let (found, rest) = read(&bytes);
            assert_eq!((found.unwrap(), &rest[..]), (preface, &b"HELLO"[..]));
        }
    }

    #[test]
    fn lh_copy_77_a_preface_over_its_bound_is_refused() {
        let long = [&(MAX_PREFACE_BYTES + 1).to_be_bytes()[..], &[b' '; 20_000]].concat();
        assert_eq!(
            read(&long).0.unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let preface = StreamPreface::ForMember {
            member: MemberId([9; 8]),
        };
        let bytes = written(&preface);
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).0.is_err(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_preface_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
        }
    }
}
