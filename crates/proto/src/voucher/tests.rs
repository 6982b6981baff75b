use std::time::Duration;

use bytes::BytesMut;

use super::*;
use crate::{
    Chain, Endpoint, MAX_OPEN_BYTES, Open, OpenDecoder, Route, ServiceName, SessionId, SigningKey,
    Status, StatusCode,
};

fn voucher(key: PublicKey, certificate_bytes: usize) -> Voucher {
    Voucher {
        key,
        start_unix_ms: 1_000,
        end_unix_ms: 2_000,
        certificates: vec![vec![7; certificate_bytes], vec![8; 10]],
        scheme: 0x0804,
        signature: vec![9; 256],
    }
}

fn open() -> Open {
    let destination: Endpoint = "server.example:7511".parse().unwrap();
    let session = SessionId::from_bytes([1; 16]);
    let budget = Duration::from_secs(1);
    Open::new(
        session,
        ServiceName::COPY,
        Route::direct(),
        destination,
        budget,
    )
}

/// LH-VOUCHER-1.
#[test]
fn bytes_and_text_are_read_back() {
    let voucher = voucher(PublicKey::from_bytes([3; 32]), 100);
    let bytes = voucher.to_bytes().unwrap();
    assert_eq!(Voucher::from_bytes(&bytes), Ok(voucher.clone()));
    let text = voucher.to_text().unwrap();
    assert!(text.starts_with("lhv1:") && text.parse() == Ok(voucher));
    for cut in 0..bytes.len() {
        assert!(Voucher::from_bytes(&bytes[..cut]).is_err(), "{cut}");
    }
    assert!(Voucher::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
}

/// LH-VOUCHER-1.
#[test]
fn values_out_of_bounds_are_not_encoded() {
    let sound = voucher(PublicKey::from_bytes([3; 32]), 100);
    let unsound: [fn(&mut Voucher); 6] = [
        |voucher| voucher.end_unix_ms = voucher.start_unix_ms,
        |voucher| voucher.certificates.clear(),
        |voucher| voucher.certificates = vec![vec![1]; 9],
        |voucher| voucher.certificates.push(Vec::new()),
        |voucher| voucher.certificates.push(vec![1; MAX_VOUCHER_BYTES]),
        |voucher| voucher.signature.clear(),
    ];
    for change in unsound {
        let mut voucher = sound.clone();
        change(&mut voucher);
        assert!(voucher.to_bytes().is_err(), "{voucher:?}");
    }
}

/// LH-VOUCHER-2: every field but the signature is signed.
#[test]
fn every_field_changes_what_is_signed() {
    let sound = voucher(PublicKey::from_bytes([3; 32]), 100);
    let changes: [fn(&mut Voucher); 5] = [
        |voucher| voucher.key = PublicKey::from_bytes([4; 32]),
        |voucher| voucher.start_unix_ms += 1,
        |voucher| voucher.end_unix_ms += 1,
        |voucher| voucher.certificates.truncate(1),
        |voucher| voucher.scheme += 1,
    ];
    for change in changes {
        let mut voucher = sound.clone();
        change(&mut voucher);
        assert_ne!(voucher.signed_bytes(), sound.signed_bytes(), "{voucher:?}");
    }
    assert_eq!(sound.signed_bytes()[..64], [0x20; 64]);
}

/// LH-VOUCHER-4.
#[test]
fn open_carries_a_voucher_that_fits() {
    let key = SigningKey::generate().unwrap();
    let mut open = open();
    let carried = voucher(key.public(), 3_000);
    assert_eq!(open.add_voucher(&carried), Ok(true));
    open.sign(&key, 5).unwrap();
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).unwrap();
    let (read, _) = OpenDecoder::new().feed(&bytes).unwrap().unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(read.voucher(), Ok(Some(carried)));
    assert!(read.has_voucher());
}

/// LH-VOUCHER-4.
#[test]
fn open_leaves_out_a_voucher_that_does_not_fit() {
    let key = SigningKey::generate().unwrap();
    let mut open = open();
    assert_eq!(open.add_voucher(&voucher(key.public(), 7_000)), Ok(false));
    assert!(!open.has_voucher());
    // The largest that fits leaves room for all depots.
    let most = (1..7_000)
        .rev()
        .find(|bytes| open.add_voucher(&voucher(key.public(), *bytes)) == Ok(true));
    assert!(most.is_some_and(|bytes| bytes > 5_000), "{most:?}");
    open.passed = vec![key.public(); crate::MAX_PASSED_DEPOTS];
    open.sign(&key, 5).unwrap();
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).unwrap();
    assert!(bytes.len() <= MAX_OPEN_BYTES);
}

/// LH-VOUCHER-5.
#[test]
fn voucher_for_another_key_is_not_the_principals() {
    let key = SigningKey::generate().unwrap();
    let mut open = open();
    let other = PublicKey::from_bytes([3; 32]);
    assert_eq!(open.add_voucher(&voucher(other, 100)), Ok(true));
    open.sign(&key, 5).unwrap();
    assert!(open.voucher().is_err());
    assert_eq!(open.verify(), Ok(()), "the OPEN is sound");
}

/// LH-VOUCHER-3.
#[test]
fn time_and_lifetime_are_checked() {
    let ahead = u64::try_from(MAX_SIGNATURE_AHEAD.as_millis()).unwrap();
    let longest = u64::try_from(MAX_VOUCHER_LIFETIME.as_millis()).unwrap();
    let start = 1_000_000_000;
    let mut voucher = voucher(PublicKey::from_bytes([3; 32]), 100);
    (voucher.start_unix_ms, voucher.end_unix_ms) = (start, start + 1_000);
    for (now, expected) in [
        (start, Ok(())),
        (start - ahead, Ok(())),
        (start - ahead - 1, Err(VoucherFault::NotYetValid(ahead + 1))),
        (start + 999, Ok(())),
        (start + 1_000, Err(VoucherFault::Expired(0))),
    ] {
        assert_eq!(voucher.check_time(now), expected, "{now}");
    }
    voucher.end_unix_ms = start + longest;
    assert_eq!(voucher.check_time(start), Ok(()));
    voucher.end_unix_ms += 1;
    assert_eq!(
        voucher.check_time(start),
        Err(VoucherFault::LifetimeTooLong)
    );
}

/// LH-VOUCHER-6.
#[test]
fn status_carries_the_servers_voucher_if_asked() {
    let key = SigningKey::generate().unwrap();
    let proof = voucher(key.public(), 3_000);
    let answer = |open: &Open| {
        let mut status = Status::from_acceptor(StatusCode::Ok, 1);
        status.padding = open.padding.unwrap_or(0);
        status.add_server_voucher(&proof, open);
        status.into_answer(&key, Some(open))
    };
    let mut open = open();
    open.padding = Some(4_000);
    open.cursor = 1;
    open.sign(&key, 5).unwrap();
    let unasked = answer(&open);
    let mut chain = Chain::new(&open, None);
    assert!(chain.feed(&unasked).is_ok());
    assert_eq!(chain.statuses()[0].server_voucher(), None);
    assert_eq!(chain.statuses()[0].padding, 4_000);
    // Too large a voucher is left out.
    open.request_server_voucher(1_000);
    assert!(answer(&open).len() <= unasked.len());
    open.request_server_voucher(8_192);
    open.sign(&key, 5).unwrap();
    let answered = answer(&open);
    let mut chain = Chain::new(&open, None);
    assert!(chain.feed(&answered).is_ok());
    assert_eq!(chain.statuses()[0].server_voucher(), Some(proof.clone()));
    // The voucher fills the flight as well as zeros would.
    assert_eq!(answered.len(), unasked.len());
}
