//! The options: presence, form and values.

use std::time::Duration;

use longhaul_proto::{Endpoint, MAX_PADDING, OpenError, Refusal, Service};

use crate::{bytes, decode, edited, key, signed};

/// LH-OPEN-14.
#[test]
fn a_server_is_named_exactly_if_the_service_is_tcp() {
    let server: Endpoint = "[2001:db8::7]:443".parse().unwrap();
    let open = signed(|open| {
        open.service = Service::TCP;
        open.onward = Some(server.clone());
    });
    let (found, _) = decode(&bytes(&open)).unwrap().unwrap();
    assert_eq!(
        (found.onward.as_ref(), found.verify()),
        (Some(&server), Ok(()))
    );
    // The signature covers it, and no depot changes it.
    let mut elsewhere = found.clone();
    elsewhere.onward = Some("[2001:db8::7]:22".parse().unwrap());
    assert_eq!(elsewhere.verify(), Err(Refusal::BadSignature));
    let passed_on = found.passed_on(key().public(), Duration::ZERO).unwrap();
    assert_eq!(passed_on.onward, found.onward);
    let without = decode(&edited(&open, |options| {
        options.retain(|(kind, _)| *kind != 0x8000 | 18)
    }));
    assert!(matches!(without, Err(OpenError::Missing(_))), "{without:?}");
    let for_copy = decode(&edited(&open, |options| {
        for (kind, value) in options {
            if *kind == 0x8000 | 15 {
                *value = b"copy".to_vec();
            }
        }
    }));
    assert!(
        matches!(
            for_copy,
            Err(OpenError::Invalid {
                option: "onward",
                ..
            })
        ),
        "{for_copy:?}"
    );
    let unmarked = decode(&edited(&open, |options| {
        for (kind, _) in options {
            if *kind == 0x8000 | 18 {
                *kind = 18;
            }
        }
    }));
    assert!(
        matches!(unmarked, Err(OpenError::Invalid { .. })),
        "{unmarked:?}"
    );
}

/// LH-OPEN-15.
#[test]
fn wishes_are_forwarded_as_signed() {
    let open = signed(|open| {
        open.size = Some(1 << 40);
        open.rate = Some(10_000_000_000);
        open.duration = Some(3600);
    });
    let passed_on = open.passed_on(key().public(), Duration::ZERO).unwrap();
    let (found, _) = decode(&bytes(&passed_on)).unwrap().unwrap();
    assert_eq!(
        (found.size, found.rate, found.duration),
        (Some(1 << 40), Some(10_000_000_000), Some(3600))
    );
    assert_eq!(found.verify(), Ok(()));
    let mut more = found.clone();
    more.rate = Some(20_000_000_000);
    assert_eq!(more.verify(), Err(Refusal::BadSignature));
    for number in [16, 17] {
        for value in [vec![0; 8], vec![0, 0, 0, 1]] {
            let odd = decode(&edited(&open, |options| {
                for (kind, found) in options {
                    if *kind == number {
                        *found = value.clone();
                    }
                }
            }));
            assert!(
                matches!(odd, Err(OpenError::Invalid { .. })),
                "{number}: {odd:?}"
            );
        }
    }
}

/// LH-OPEN-16.
#[test]
fn padding_is_asked_for_within_its_bounds() {
    let open = signed(|open| open.padding = Some(MAX_PADDING));
    let passed_on = open.passed_on(key().public(), Duration::ZERO).unwrap();
    let (found, _) = decode(&bytes(&passed_on)).unwrap().unwrap();
    assert_eq!((found.padding, found.verify()), (Some(MAX_PADDING), Ok(())));
    let mut less = found.clone();
    less.padding = None;
    assert_eq!(less.verify(), Err(Refusal::BadSignature));
    for value in [
        &[0, 0][..],
        &(MAX_PADDING + 1).to_be_bytes(),
        &[1],
        &[0, 0, 1],
    ] {
        let odd = decode(&edited(&open, |options| {
            for (kind, found) in options {
                if *kind == 20 {
                    *found = value.to_vec();
                }
            }
        }));
        assert!(
            matches!(
                odd,
                Err(OpenError::Invalid {
                    option: "padding",
                    ..
                })
            ),
            "{odd:?}"
        );
    }
}

/// LH-OPEN-9 and LH-OPEN-8: each mandatory option missing, longer, shorter or with other flags.
#[test]
fn every_mandatory_option_is_checked() {
    let open = signed(|_| ());
    for index in 0..11 {
        assert!(
            matches!(
                decode(&edited(&open, |all| drop(all.remove(index)))),
                Err(OpenError::Missing(_))
            ),
            "{index}"
        );
        for change in [
            (|(_, value): &mut (u16, Vec<u8>)| value.push(0)) as fn(&mut (u16, Vec<u8>)),
            |(kind, _)| *kind ^= 0x8000,
            |(kind, _)| *kind ^= 0x4000,
        ] {
            let frame = edited(&open, |all| change(&mut all[index]));
            assert!(
                matches!(decode(&frame), Err(OpenError::Invalid { .. })),
                "{index}: {:?}",
                decode(&frame)
            );
        }
        // The list of passed depots may be empty and a service name has any length, so neither can
        // be too short.
        if !matches!(index, 4 | 10) {
            let frame = edited(&open, |all| _ = all[index].1.pop());
            assert!(
                matches!(decode(&frame), Err(OpenError::Invalid { .. })),
                "{index}"
            );
        }
    }
}

/// LH-OPEN-10, LH-ROUTE-1, LH-ROUTE-4: values that are well-formed bytes but make no sense.
#[test]
fn senseless_values_are_refused() {
    let open = signed(|_| ());
    let destination = |value: &[u8]| {
        let value = value.to_vec();
        edited(&open, move |all| all[1].1 = value)
    };
    for value in [
        &[0, 0, 0x1d, 0x57][..],      // an empty name
        &[0, 1, b'-', 0x1d, 0x57],    // an ill-formed name
        &[0, 1, 0xff, 0x1d, 0x57],    // not ASCII
        &[0, 200, b'a', 0x1d, 0x57],  // a truncated name
        b"\x00\x09127.0.0.1\x1d\x57", // an address encoded as a name
        &[4, 127, 0, 0, 1, 0, 0],     // port 0
        &[9, 127, 0, 0, 1, 0, 1],     // an unknown kind
        &[],
    ] {
        assert!(
            matches!(
                decode(&destination(value)),
                Err(OpenError::Invalid {
                    option: "destination",
                    ..
                })
            ),
            "{value:?}"
        );
    }
    let route = |value: Vec<u8>| edited(&open, move |all| all[2].1 = value);
    let hop = [1, 4, 192, 0, 2, 1, 0, 80];
    assert!(
        decode(&route([&[16][..], &hop.repeat(16)].concat()))
            .unwrap()
            .is_some()
    );
    assert!(decode(&route([&[17][..], &hop.repeat(17)].concat())).is_err());
    assert!(decode(&route([&[2][..], &hop].concat())).is_err());
    assert!(decode(&route([&[1, 4][..], &hop[1..]].concat())).is_err());
    assert!(
        decode(&route([&[1, 3][..], &hop[1..]].concat())).is_err(),
        "a key that is not there"
    );
    assert!(decode(&route([&[1, 3][..], &hop[1..], &[7; 32]].concat())).is_ok());
    for (cursor, fine) in [(0, true), (4, true), (5, false), (255, false)] {
        assert_eq!(
            decode(&edited(&open, |all| all[3].1 = vec![cursor])).is_ok(),
            fine,
            "{cursor}"
        );
    }
    assert!(
        decode(&edited(&open, |all| all[4].1 = vec![0; 32 * 32]))
            .unwrap()
            .is_some()
    );
    assert!(decode(&edited(&open, |all| all[4].1 = vec![0; 32 * 33])).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (9, b"bell\x07".to_vec())))).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (9, vec![b'a'; 65])))).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (9, "a\u{202e}b".into())))).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (10, Vec::new())))).is_err());
    for service in [
        &b""[..],
        b"Copy",
        b"co py",
        &[b'a'; 33],
        b"caf\xc3\xa9",
        b"\xff",
    ] {
        assert!(decode(&edited(&open, |all| all[10].1 = service.to_vec())).is_err());
    }
}
