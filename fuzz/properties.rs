//! What must hold for any bytes. Shared by the fuzz targets and by the ordinary test that replays the corpus.

#![allow(dead_code, clippy::unwrap_used)] // each target uses its own part; a broken property is to panic

use std::time::Duration;

use bytes::BytesMut;
use longhaul_proto::{
    Admission, Chain, MAX_OPEN, MAX_STATUS, Open, OpenDecoder, OpenError, Progress, PublicKey, Service,
    SessionId, Status, StatusDecoder, StatusError, text,
};

/// Any bytes as an OPEN: as they are, and as the options behind a header that is in order.
pub fn open(data: &[u8]) {
    decoded_open(data);
    decoded_open(&framed(*b"\xf1LHO", [1, 1], data));
}

/// Any bytes as status records, likewise.
pub fn status(data: &[u8]) {
    decoded_status(data);
    let flags = data.first().map_or(0, |byte| byte & 3);
    decoded_status(&framed(*b"\xf1LHS", [1, flags], data));
}

fn decoded_open(data: &[u8]) {
    let whole = feed_open(&[data]);
    // However it is cut up, it comes to the same.
    let (first, second) = data.split_at(data.len() / 3);
    assert_eq!(whole, feed_open(&[first, second]));
    let Ok(Some((open, used))) = whole else { return };
    // What decodes is in its one form, so that a depot passes on what the principal signed.
    let mut again = BytesMut::new();
    open.encode(&mut again).unwrap();
    assert_eq!(Some(&again[..]), data.get(..used));
    let me = PublicKey::from_bytes([1; 32]);
    let _ = open.verify();
    let _ = open.detour(me, Duration::from_secs(1));
    let _ = Admission::new(me).depot(&open, open.signed_at_unix_ms, |_| true);
    let _ = Admission::new(me).acceptor(&open, open.signed_at_unix_ms, |_| true, |_| true);
    if let Ok(onward) = open.onward(me, Duration::from_secs(1)) {
        assert!(onward.hop_limit < open.hop_limit && onward.unknown == open.unknown);
    }
}

fn feed_open(pieces: &[&[u8]]) -> Result<Option<(Open, usize)>, OpenError> {
    let mut decoder = OpenDecoder::new();
    let mut before = 0;
    for piece in pieces {
        if let Some((open, used)) = decoder.feed(piece)? {
            return Ok(Some((open, before + used)));
        }
        before += piece.len();
        assert!(decoder.held() <= before.min(MAX_OPEN));
    }
    Ok(None)
}

fn decoded_status(data: &[u8]) {
    let whole = feed_status(&[data]);
    let (first, second) = data.split_at(data.len() / 3);
    assert_eq!(whole, feed_status(&[first, second]));
    if let Ok(Some((status, used))) = &whole {
        assert!(*used <= MAX_STATUS && status.detail.chars().all(text::is_printable));
        let mut again = BytesMut::new();
        status.encode(&mut again);
        assert_eq!(feed_status(&[&again]), Ok(Some((status.clone(), again.len()))));
    }
    for route in ["direct", "d1.example,d2.example", "~d1.example"] {
        let id = SessionId::from_bytes([1; 16]);
        let destination = "server.example:7511".parse().unwrap();
        let open = Open::new(
            id,
            Service::COPY,
            route.parse().unwrap(),
            destination,
            Duration::from_secs(1),
        );
        let mut chain = Chain::new(&open, None);
        match chain.feed(data) {
            Ok(Progress::Established { consumed }) => assert!(consumed <= data.len()),
            Ok(Progress::Waiting) => {}
            Err(failure) => assert!(failure.to_string().chars().all(text::is_printable)),
        }
    }
}

fn feed_status(pieces: &[&[u8]]) -> Result<Option<(Status, usize)>, StatusError> {
    let mut decoder = StatusDecoder::new();
    let mut before = 0;
    for piece in pieces {
        if let Some((status, used)) = decoder.feed(piece)? {
            return Ok(Some((status, before + used)));
        }
        before += piece.len();
        assert!(decoder.held() <= before.min(MAX_STATUS));
    }
    Ok(None)
}

/// A frame with the right length and CRC around `body`, so that what is behind them is reached.
fn framed(magic: [u8; 4], own: [u8; 2], body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(12 + body.len()).unwrap_or(u16::MAX);
    let mut frame = [&magic[..], &own, &length.to_be_bytes(), &[0; 4], body].concat();
    let crc = crc32fast::hash(&frame);
    frame.splice(8..12, crc.to_be_bytes());
    frame
}
