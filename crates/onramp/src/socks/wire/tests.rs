//! Clients' messages are parsed, whole or in pieces, and no input causes harm.

use proptest::prelude::*;

use super::*;

fn destination(text: &str) -> Destination {
    Destination::of(text.parse().unwrap())
}

/// Parses a message that may arrive in pieces: each shorter piece must be incomplete, never wrong.
fn whole<T: PartialEq + std::fmt::Debug>(read: impl Fn(&[u8]) -> Read<T>, bytes: &[u8]) -> T {
    for end in 0..bytes.len() {
        assert_eq!(read(&bytes[..end]), Ok(None), "{end} bytes");
    }
    let mut more = bytes.to_vec();
    more.extend(b"early");
    let (value, length) = read(&more).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    value
}

#[test]
fn requests_of_version_5() {
    let bytes = [&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80][..]].concat();
    assert_eq!(whole(request, &bytes), destination("192.0.2.1:80"));
    let v6 = [&[5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[1, 187]].concat();
    assert_eq!(whole(request, &v6), destination("[::1]:443"));
    let name = [&[5, 1, 0, 3, 9][..], b"h.example", &[0, 22]].concat();
    assert_eq!(whole(request, &name), destination("h.example:22"));
    let text = [&[5, 1, 0, 3, 9][..], b"192.0.2.1", &[0, 22]].concat();
    assert_eq!(whole(request, &text), destination("192.0.2.1:22"));
}

#[test]
fn requests_of_version_4() {
    let four = |bytes: &[u8]| match whole(greeting, bytes) {
        Greeting::Four(destination) => destination,
        other => panic!("{other:?}"),
    };
    let bytes = [&[4, 1, 0, 80, 192, 0, 2, 1][..], b"me\0"].concat();
    assert_eq!(four(&bytes), destination("192.0.2.1:80"));
    let name = [&[4, 1, 0, 80, 0, 0, 0, 1][..], b"\0h.example\0"].concat();
    assert_eq!(four(&name), destination("h.example:80"));
    let endless = [&[4, 1, 0, 80, 192, 0, 2, 1][..], &[b'a'; 300]].concat();
    assert_eq!(greeting(&endless), Err(Wrong::Foreign));
}

#[test]
fn unsupported_requests_have_their_reply() {
    let refused = |bytes: &[u8]| request(bytes).unwrap_err();
    assert_eq!(refused(&[5, 2, 0, 1]), Wrong::Refused(Reply::Command));
    assert_eq!(refused(&[5, 1, 0, 2]), Wrong::Refused(Reply::AddressType));
    assert_eq!(
        refused(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 0]),
        Wrong::Refused(Reply::HostUnreachable)
    );
    assert_eq!(
        refused(&[5, 1, 0, 3, 3, b'a', b' ', b'b', 0, 1]),
        Wrong::Refused(Reply::HostUnreachable)
    );
    assert_eq!(refused(&[4]), Wrong::Foreign);
    assert_eq!(greeting(b"GET / HTTP/1.1\r\n"), Err(Wrong::Foreign));
    assert_eq!(
        greeting(&[4, 2, 0, 80, 192, 0, 2, 1, 0]),
        Err(Wrong::Refused(Reply::Command))
    );
}

#[test]
fn a_login_is_requested_if_required() {
    assert_eq!(
        whole(greeting, &[5, 2, 0, 2]),
        Greeting::Five {
            no_login: true,
            user_and_password: true
        }
    );
    assert_eq!(method(true, true, false), ([5, 0], Some(false)));
    assert_eq!(method(true, true, true), ([5, 2], Some(true)));
    assert_eq!(method(true, false, true), ([5, 0xff], None));
    // Some clients with a password offer nothing else.
    assert_eq!(method(false, true, false), ([5, 2], Some(true)));
    assert_eq!(
        whole(login, b"\x01\x02me\x04word"),
        (b"me".to_vec(), b"word".to_vec())
    );
    assert_eq!(
        whole(login, b"\x01\x02me\x00"),
        (b"me".to_vec(), Vec::new())
    );
}

#[test]
fn answers() {
    assert_eq!(
        Reply::Succeeded.encode(None),
        [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    );
    let bound = Reply::Succeeded.encode(Some("[::1]:258".parse().unwrap()));
    assert_eq!(
        (bound.len(), &bound[..4], &bound[20..]),
        (22, &[5, 0, 0, 4][..], &[1, 2][..])
    );
    assert_eq!(Reply::of(Errno::CONNREFUSED), Reply::Refused);
    assert_eq!(Reply::of(Errno::TIMEDOUT), Reply::HostUnreachable);
    assert_eq!(Reply::of(Errno::ACCESS), Reply::NotAllowed);
    assert_eq!(Reply::Refused.encode_4()[1], 91);
}

proptest! {
    #[test]
    fn any_bytes_are_read_refused_or_incomplete(
        bytes: Vec<u8>, version in 3u8..6, command in 0u8..4, kind in 0u8..6,
    ) {
        let mut like_one = vec![version, command, 0, kind];
        like_one.extend(&bytes);
        for bytes in [&bytes, &like_one] {
            let (greeting_read, login_read) = (greeting(bytes), login(bytes));
            for read in [
                request(bytes), greeting_read.map(|_| None), login_read.map(|_| None),
            ] {
                if let Ok(Some((_, length))) = read {
                    prop_assert!(length <= bytes.len());
                }
            }
            // The parser never waits for more than the maximum.
            if bytes.len() >= MAX_BYTES {
                prop_assert_ne!(greeting(bytes), Ok(None));
                prop_assert_ne!(request(bytes), Ok(None));
                prop_assert_ne!(login(bytes), Ok(None));
            }
        }
    }
}
