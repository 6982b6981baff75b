//! The properties of this crate's parsers.

use std::{fmt::Display, str::FromStr, time::Duration};

use bytes::BytesMut;

use super::{assert_one_line, assert_short_line};
use crate::{
    Admission, Chain, ChainProgress, CircuitGrant, Endpoint, Hop, Host, MAX_OPEN_BYTES,
    MAX_PADDING_BYTES, MAX_STATUS_BYTES, Open, OpenDecoder, OpenError, PublicKey, Route,
    ServiceName, SessionId, Status, StatusDecoder, StatusError, Voucher, text,
};

/// Tests any bytes as an OPEN: unchanged, and as options after a valid header.
pub(super) fn check_open(data: &[u8]) {
    check_decoded_open(data);
    check_decoded_open(&build_frame(*b"\xf1LHO", [1, 1], data));
}

/// Tests any bytes as a circuit grant. A decoded grant has canonical form and a short display line,
/// and its signature is not accepted.
pub(super) fn check_circuit_grant(data: &[u8]) {
    match CircuitGrant::from_bytes(data) {
        Ok(grant) => {
            assert_eq!(grant.to_bytes().as_deref(), Ok(data));
            assert_short_line(&grant);
            let holder = PublicKey::from_bytes([1; 32]);
            if let Err(fault) = grant.check(&holder, &holder, 1, |_| true) {
                assert_short_line(&fault);
            }
        }
        Err(error) => assert_short_line(&error),
    }
}

/// Tests any bytes as a voucher. A decoded voucher has canonical form, as bytes and as text.
pub(super) fn check_voucher(data: &[u8]) {
    match Voucher::from_bytes(data) {
        Ok(voucher) => {
            assert_eq!(voucher.to_bytes().as_deref(), Ok(data));
            assert_eq!(voucher.to_text().unwrap().parse(), Ok(voucher));
        }
        Err(error) => assert_short_line(&error),
    }
}

/// Tests any bytes as status records, in the same two forms.
pub(super) fn check_status(data: &[u8]) {
    check_decoded_status(data);
    let flags = data.first().map_or(0, |byte| byte & 3);
    check_decoded_status(&build_frame(*b"\xf1LHS", [1, flags], data));
}

fn check_decoded_open(data: &[u8]) {
    let whole = feed_open(&[data]);
    // The result does not depend on how the input is split.
    let (first, second) = data.split_at(data.len() / 3);
    assert_eq!(whole, feed_open(&[first, second]));
    if let Err(error) = &whole {
        assert_short_line(error);
    }
    let Ok(Some((open, used))) = whole else {
        return;
    };
    assert!(used <= MAX_OPEN_BYTES);
    assert_short_line(&open.route);
    assert_short_line(&open.destination);
    assert_short_line(&open.service);
    assert!(
        open.purpose
            .iter()
            .all(|purpose| purpose.chars().all(text::is_printable))
    );
    assert_eq!(open.route.to_string().parse().as_ref(), Ok(&open.route));
    // A decoded OPEN has canonical form, so a depot forwards exactly what the principal signed.
    let mut again = BytesMut::new();
    open.encode(&mut again).unwrap();
    assert_eq!(Some(&again[..]), data.get(..used));
    let me = PublicKey::from_bytes([1; 32]);
    let _ = (open.verify(), open.binding(), open.named_key());
    let _ = open.detour(me, Duration::from_secs(1));
    let _ = Admission::new(me).check_at_depot(&open, open.signed_at_unix_ms, |_| true);
    let _ = Admission::new(me).check_at_acceptor(&open, open.signed_at_unix_ms, |_| true, |_| true);
    if let Ok(onward) = open.forwarded(me, Duration::from_secs(1)) {
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
        assert!(decoder.buffered_bytes() <= before.min(MAX_OPEN_BYTES));
    }
    Ok(None)
}

fn check_decoded_status(data: &[u8]) {
    for padding in [0, MAX_PADDING_BYTES] {
        check_padded_status(data, padding);
    }
    let keyed = format!("{}@d1.example,~d2.example", PublicKey::from_bytes([3; 32]));
    for route in ["direct", "d1.example,d2.example", "~d1.example", &keyed] {
        let id = SessionId::from_bytes([1; 16]);
        let destination = "server.example:7511".parse().unwrap();
        let mut open = Open::new(
            id,
            ServiceName::COPY,
            route.parse().unwrap(),
            destination,
            Duration::from_secs(1),
        );
        open.padding = Some(MAX_PADDING_BYTES).filter(|_| route.starts_with('d'));
        let mut chain = Chain::new(
            &open,
            Some(PublicKey::from_bytes([5; 32])).filter(|_| route.contains('@')),
        );
        match chain.feed(data) {
            Ok(ChainProgress::Established { consumed }) => assert!(consumed <= data.len()),
            Ok(ChainProgress::Waiting) => {}
            Err(failure) => assert_short_line(&failure),
        }
    }
}

/// Decodes the bytes as an initiator that asked for this much padding.
fn check_padded_status(data: &[u8], padding: u16) {
    let whole = feed_status(&[data], padding);
    let (first, second) = data.split_at(data.len() / 3);
    assert_eq!(whole, feed_status(&[first, second], padding));
    if let Err(error) = &whole {
        assert_short_line(error);
    }
    if let Ok(Some((status, used))) = &whole {
        let longest = MAX_STATUS_BYTES + usize::from(padding);
        assert!(*used <= longest && status.detail.chars().all(text::is_printable));
        let mut again = BytesMut::new();
        status.encode(&mut again);
        let _ = status.verify(&[7; 64]);
        assert_eq!(
            feed_status(&[&again], padding),
            Ok(Some((status.clone(), again.len())))
        );
    }
}

fn feed_status(pieces: &[&[u8]], padding: u16) -> Result<Option<(Status, usize)>, StatusError> {
    let mut decoder = StatusDecoder::with_padding(padding);
    let mut before = 0;
    for piece in pieces {
        if let Some((status, used)) = decoder.feed(piece)? {
            return Ok(Some((status, before + used)));
        }
        before += piece.len();
        assert!(decoder.buffered_bytes() <= before.min(MAX_STATUS_BYTES + usize::from(padding)));
    }
    Ok(None)
}

/// Returns a frame with a valid length and CRC around `body`, so that the parser reaches the body.
fn build_frame(magic: [u8; 4], own: [u8; 2], body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(12 + body.len()).unwrap_or(u16::MAX);
    let mut frame = [&magic[..], &own, &length.to_be_bytes(), &[0; 4], body].concat();
    let crc = crc32fast::hash(&frame);
    frame.splice(8..12, crc.to_be_bytes());
    frame
}

/// Tests any text as typed by a person or read from a file: a route, an endpoint, a host, a key, a
/// service.
pub(super) fn check_texts(data: &[u8]) {
    assert!(text::printable(data).chars().all(text::is_printable));
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    check_text_round_trip::<Route>(text);
    check_text_round_trip::<Endpoint>(text);
    check_text_round_trip::<PublicKey>(text);
    check_text_round_trip::<ServiceName>(text);
    if let Ok(route) = text.parse::<Route>() {
        assert!(route.hops().len() <= crate::MAX_HOPS);
        assert!(
            route
                .hops()
                .iter()
                .all(|Hop { endpoint, .. }| endpoint.port != 0)
        );
    }
    match Endpoint::parse_with_port(text, 7) {
        Ok(endpoint) => assert_eq!(endpoint.to_string().parse(), Ok(endpoint)),
        Err(error) => assert_one_line(&error),
    }
    match Host::parse(text) {
        Ok(host) => assert_one_line(&host),
        Err(error) => assert_one_line(&error),
    }
}

fn check_text_round_trip<T>(text: &str)
where
    T: FromStr<Err: Display + std::fmt::Debug + PartialEq> + Display + std::fmt::Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => {
            assert_one_line(&value);
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        Err(error) => assert_one_line(&error),
    }
}
