//! OPEN over the wire: every rule of the codec, from well-formed, damaged and hostile bytes.

#![allow(clippy::unwrap_used)] // failed tests panic, also in helpers

mod frame;
mod options;
mod properties;
mod rules;

use std::time::Duration;

use bytes::BytesMut;
use longhaul_proto::{Open, OpenDecoder, OpenError, Route, Service, SessionId, SigningKey};

const NOW: u64 = 1_800_000_000_000;

fn key() -> SigningKey {
    // Ed25519 from a fixed seed (RFC 8410 document), so that failures repeat.
    let mut document = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    document.extend([7; 32]);
    SigningKey::from_pkcs8(&document).unwrap()
}

fn signed(change: impl FnOnce(&mut Open)) -> Open {
    let route: Route = "depot1.example:7510,~192.0.2.2:99,[2001:db8::3]:7510"
        .parse()
        .unwrap();
    let destination = "server.example:7511".parse().unwrap();
    let mut open = Open::new(
        SessionId::from_bytes([9; 16]),
        Service::COPY,
        route,
        destination,
        Duration::from_millis(19_500),
    )
    .departing();
    change(&mut open);
    open.sign(&key(), NOW).unwrap();
    open
}

fn bytes(open: &Open) -> Vec<u8> {
    let mut out = BytesMut::new();
    open.encode(&mut out).unwrap();
    out.to_vec()
}

fn decode(bytes: &[u8]) -> Result<Option<(Open, usize)>, OpenError> {
    OpenDecoder::new().feed(bytes)
}

/// Recomputes length and CRC, so that the decoder reaches damage after them.
fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(frame.len()).unwrap();
    frame[6..8].copy_from_slice(&length.to_be_bytes());
    frame[8..12].fill(0);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame);
    frame[8..12].copy_from_slice(&hasher.finalize().to_be_bytes());
    frame
}

fn with_option(frame: Vec<u8>, kind: u16, value: &[u8]) -> Vec<u8> {
    let mut frame = frame;
    frame.extend(kind.to_be_bytes());
    frame.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
    frame.extend(value);
    resealed(frame)
}

/// Splits the frame into its options, lets `change` edit them as (kind, value), and reassembles it.
fn edited(open: &Open, change: impl FnOnce(&mut Vec<(u16, Vec<u8>)>)) -> Vec<u8> {
    let frame = bytes(open);
    let (mut options, mut rest) = (Vec::new(), &frame[12..]);
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        options.push((
            u16::from_be_bytes([rest[0], rest[1]]),
            rest[4..4 + length].to_vec(),
        ));
        rest = &rest[4 + length..];
    }
    change(&mut options);
    options
        .into_iter()
        .fold(frame[..12].to_vec(), |frame, (kind, value)| {
            with_option(frame, kind, &value)
        })
}
