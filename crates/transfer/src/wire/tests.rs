//! Encoded frames decode to the same value; anything else is refused without a panic.

use longhaul_filter::{FilterRules, NameRule};
use longhaul_proto::PublicKey;
use proptest::prelude::*;

use super::*;
use crate::attributes::{ExtendedAttribute, Owner, SpecialKind};
use crate::bearer::{BearerToken, MAX_TOKEN_BYTES};
use crate::compression::Compression;
use crate::existing::ExistingPolicy;
use crate::part::{CopyPart, MAX_PARTS, Portion};
use crate::preservation::Preservation;
use crate::stripe::MemberId;

fn path() -> impl Strategy<Value = RelPath> {
    proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..20), 0..4)
        .prop_filter_map("plain", |names| {
            RelPath::from_bytes(&names.join(&b'/')).ok()
        })
}

fn head() -> impl Strategy<Value = EntryHead> {
    (0..MAX_FILE_BYTES, any::<u32>(), path()).prop_map(|(id, source, path)| EntryHead {
        id,
        source,
        path,
    })
}

fn meta() -> impl Strategy<Value = Meta> {
    let attributes = prop::option::of(attributes().prop_map(Arc::new));
    (0u32..=0o777, any::<i64>(), 0u32..1_000_000_000, attributes).prop_map(
        |(mode, s, n, attributes)| Meta {
            mode,
            mtime: (s, n),
            attributes,
        },
    )
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let owner = (prop::option::of(0..u32::MAX), "[a-z]{1,9}", any::<bool>()).prop_map(
        |(id, name, is_required)| Owner {
            id,
            name: name.into_bytes(),
            is_required,
        },
    );
    let xattrs = prop::collection::btree_map("user\\.[a-z]{1,5}", any::<[u8; 3]>(), 0..4);
    let xattrs = xattrs.prop_map(|map| {
        let each = map.into_iter().map(|(name, value)| ExtendedAttribute {
            name: name.into_bytes(),
            value: value.to_vec(),
        });
        each.filter(|one| !one.name.starts_with(b"user.longhaul."))
            .collect()
    });
    let acl = any::<[u8; 4]>().prop_map(|value| {
        vec![ExtendedAttribute {
            name: b"system.posix_acl_access".to_vec(),
            value: value.to_vec(),
        }]
    });
    (
        prop::option::of((0u32..8).prop_map(|bits| bits << 9)),
        prop::option::of(owner.clone()),
        prop::option::of(owner),
        prop::option::of(acl),
        prop::option::of(xattrs),
    )
        .prop_map(|(special_bits, user, group, acls, xattrs)| Attributes {
            special_bits,
            user,
            group,
            acls,
            xattrs,
        })
}

fn special() -> impl Strategy<Value = SpecialFile> {
    (1u8..=4, any::<(u32, u32)>()).prop_map(|(kind, device)| {
        let special = SpecialFile {
            kind: SpecialKind::from_repr(kind).unwrap(),
            device,
        };
        match special.is_device() {
            true => special,
            false => SpecialFile {
                device: (0, 0),
                ..special
            },
        }
    })
}

fn keep() -> impl Strategy<Value = Preservation> {
    (0u16..1 << 9).prop_map(|flags| Preservation::from_flags(flags).unwrap())
}

fn failure() -> impl Strategy<Value = Failure> {
    (1u8..=15, "[ -~]{0,100}").prop_map(|(code, detail)| {
        Failure::with_detail(FailureKind::from_repr(code).unwrap(), detail)
    })
}

fn block() -> impl Strategy<Value = Block> {
    (
        0..MAX_FILE_BYTES,
        0..MAX_FILE_BYTES,
        proptest::collection::vec((0u32..100, 1u32..1000), 0..20),
    )
        .prop_map(|(id, offset, runs)| {
            let mut at = 0;
            let extents = runs
                .into_iter()
                .map(|(gap, len)| {
                    let extent = Extent {
                        offset: at + gap,
                        len,
                    };
                    at += gap + len;
                    extent
                })
                .collect();
            Block {
                id,
                offset,
                len: at.max(1),
                extents,
            }
        })
}

/// Subtrees that are disjoint, each at a multiple of its size.
fn subtrees() -> impl Strategy<Value = Vec<Subtree>> {
    let steps = proptest::collection::vec((16u32..40, 0u64..5, any::<[u8; 32]>()), 1..9);
    steps.prop_map(|steps| {
        let mut from = 0u64;
        let place = |(level, gap, chaining_value): (u32, u64, [u8; 32])| {
            let offset = (from.next_multiple_of(1 << level)) + (gap << level);
            from = offset + (1 << level);
            Subtree {
                offset,
                level,
                chaining_value,
            }
        };
        steps.into_iter().map(place).collect()
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let push = (
        path(),
        any::<[bool; 3]>(),
        proptest::collection::vec("[a-z]{0,9}", 1..5),
    )
        .prop_map(|(d, f, names)| {
            let names = names.into_iter().map(String::into_bytes).collect();
            CopyRequest::Push {
                destination: d,
                into: f[0],
                overwrite: f[1],
                fsync: f[2],
                names,
            }
        });
    let pull = (any::<bool>(), proptest::collection::vec(path(), 1..5))
        .prop_map(|(recursive, sources)| CopyRequest::Pull { recursive, sources });
    let compare = prop_oneof![Just(Compare::SizeAndTime), Just(Compare::Content)];
    let part = (1..=MAX_PARTS)
        .prop_flat_map(|of| (1..=of).prop_map(move |number| CopyPart::new(number, of).unwrap()));
    let portion = prop_oneof![
        Just(Portion::Whole),
        part.prop_map(Portion::Part),
        Just(Portion::Rest)
    ];
    let options = (
        any::<[bool; 6]>(),
        prop::option::of(compare),
        portion,
        prop::option::of(placement()),
        (filter(), 0u8..8, keep()),
        (
            prop::option::of(0..=Compression::MAX_LEVEL),
            any::<[bool; 4]>(),
            prop::option::of("[A-Za-z0-9._-]{1,40}"),
        ),
    );
    (any::<[u8; 16]>(), prop_oneof![push, pull], options).prop_map(|(token, request, options)| {
        let (flags, offer, portion, placement, (filter, existing, keep), last) = options;
        let (compression, [delta, in_place, packs, late_sizes], bearer) = last;
        let bearer = bearer.map(|text| BearerToken::new(&text).unwrap());
        let [resume, clear, hard_links, single, reports_not_kept, receipt] = flags;
        Hello {
            token: CopyToken(token),
            request,
            resume,
            clear,
            offer,
            hard_links,
            single,
            portion,
            placement,
            reports_not_kept,
            filter,
            existing: ExistingPolicy::from_flags(existing).unwrap(),
            receipt,
            compression: compression
                .and_then(Compression::from_code)
                .unwrap_or_default(),
            packs,
            delta,
            in_place,
            late_sizes,
            keep,
            bearer,
        }
    })
}

fn filter() -> impl Strategy<Value = FilterRules> {
    let names = proptest::collection::vec(("[a-z*]{1,4}", any::<bool>()), 0..3);
    (names, any::<bool>(), prop::option::of(any::<u64>())).prop_map(
        |(names, ignore_files, max_bytes)| FilterRules {
            names: names
                .into_iter()
                .map(|(pattern, is_included)| match is_included {
                    true => NameRule::include(pattern),
                    false => NameRule::exclude(pattern),
                })
                .collect(),
            ignore_files,
            max_bytes,
            ..FilterRules::default()
        },
    )
}

fn placement() -> impl Strategy<Value = Placement> {
    prop_oneof![Just(Placement::Itself), Just(Placement::IntoDirectory)]
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        hello().prop_map(Frame::Hello),
        (
            any::<u16>(),
            any::<Option<[u8; 8]>>(),
            any::<[bool; 8]>(),
            prop::option::of(placement()),
            keep(),
            any::<Option<[u8; 8]>>()
        )
            .prop_map(|(max_streams, instance, flags, placement, keep, member)| {
                let [
                    clear,
                    present,
                    hard_links,
                    receipt,
                    compression,
                    delta,
                    packs,
                    late_sizes,
                ] = flags;
                Frame::Accept(Acceptance {
                    max_streams,
                    instance,
                    clear,
                    present,
                    hard_links,
                    placement,
                    receipt,
                    compression,
                    packs,
                    delta,
                    keep,
                    member: member.map(MemberId),
                    late_sizes,
                })
            }),
        (head(), 0..MAX_FILE_BYTES, (any::<u32>(), path()))
            .prop_map(|(head, size, first)| Frame::HardLink(HardLink { head, size, first })),
        (head(), meta(), 0..MAX_FILE_BYTES, any::<Option<[u8; 32]>>()).prop_map(
            |(head, meta, size, hash)| {
                Frame::Offer(FileOffer {
                    head,
                    meta,
                    size,
                    hash,
                })
            }
        ),
        (0..MAX_FILE_BYTES).prop_map(|id| Frame::Want { id }),
        (0u8..3, "[ -~]{0,50}").prop_map(|(kind, detail)| Frame::Refuse {
            kind: RefusalKind::from_repr(kind).unwrap(),
            detail,
        }),
        (
            head(),
            meta(),
            0..MAX_FILE_BYTES,
            BLOCK_LOG2,
            any::<Option<[u8; 32]>>()
        )
            .prop_map(|(head, meta, size, block_log2, identity)| Frame::File {
                head,
                meta,
                size,
                block_log2,
                identity
            }),
        (
            head(),
            meta(),
            any::<[u8; 32]>(),
            proptest::collection::vec(any::<u8>(), 0..300)
        )
            .prop_map(|(head, meta, hash, data)| Frame::Small {
                head,
                meta,
                hash,
                data: data.into()
            }),
        (head(), meta()).prop_map(|(head, meta)| Frame::Directory { head, meta }),
        (head(), meta(), proptest::collection::vec(1u8..=255, 1..50))
            .prop_map(|(head, meta, target)| Frame::Symlink { head, meta, target }),
        (head(), meta(), special()).prop_map(|(head, meta, special)| Frame::Special {
            head,
            meta,
            special
        }),
        block().prop_map(Frame::Block),
        block().prop_map(Frame::PackedBlock),
        (
            1..=MAX_PACK_BYTES as u32,
            proptest::collection::vec(any::<u8>(), 0..50)
        )
            .prop_map(|(len, parts)| Frame::Pack {
                len,
                parts: parts.into()
            }),
        (block(), any::<[u8; 32]>())
            .prop_map(|(block, hash)| Frame::PatchBlock(block, BlockHash::from_bytes(hash))),
        (
            0..MAX_FILE_BYTES,
            CHUNK_LOG2,
            any::<bool>(),
            0..MAX_FILE_BYTES,
            proptest::collection::vec((any::<u32>(), any::<[u8; 16]>()), 0..20)
        )
            .prop_map(|(id, chunk_log2, more, offset, chunks)| Frame::Signature {
                id,
                chunk_log2,
                more,
                offset,
                chunks: chunks
                    .into_iter()
                    .map(|(len, hash)| SignedChunk { len, hash })
                    .collect(),
            }),
        (block(), any::<[u8; 32]>())
            .prop_map(|(block, hash)| Frame::ClearBlock(block, BlockHash::from_bytes(hash))),
        (0..MAX_FILE_BYTES, any::<[u8; 32]>()).prop_map(|(id, hash)| Frame::FileEnd { id, hash }),
        (0..MAX_FILE_BYTES, 0..MAX_FILE_BYTES, any::<[u8; 32]>())
            .prop_map(|(id, size, hash)| Frame::LateEnd { id, size, hash }),
        (head(), failure()).prop_map(|(head, failure)| Frame::Failed { head, failure }),
        (0..MAX_FILE_BYTES, any::<u64>())
            .prop_map(|(entries, bytes)| Frame::End { entries, bytes }),
        (
            any::<[u32; 9]>(),
            any::<u64>(),
            any::<(u32, u32)>(),
            any::<(u64, u64)>(),
            any::<u16>()
        )
            .prop_map(
                |(held_ms, retransmits, rtt_us, (window, send_buffer), streams)| {
                    Frame::Flow(FlowReport {
                        held_ms,
                        retransmits,
                        rtt_us,
                        window,
                        send_buffer,
                        streams,
                    })
                }
            ),
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(entries, bytes, complete)| {
            Frame::Totals {
                entries,
                bytes,
                complete,
            }
        }),
        any::<[u64; 4]>().prop_map(|[owners, set_id_bits, acls, extended_attributes]| {
            Frame::NotKept(NotKeptCounts {
                owners,
                set_id_bits,
                acls,
                extended_attributes,
            })
        }),
        (0..MAX_FILE_BYTES, 0..MAX_FILE_BYTES).prop_map(|(id, offset)| Frame::Ack { id, offset }),
        (
            0..MAX_FILE_BYTES,
            prop_oneof![
                Just(Ok(EntryOutcome::New)),
                Just(Ok(EntryOutcome::Same)),
                Just(Ok(EntryOutcome::Unchanged)),
                failure().prop_map(Err)
            ]
        )
            .prop_map(|(id, outcome)| Frame::Result { id, outcome }),
        any::<[u8; 32]>().prop_map(|manifest| Frame::Done { manifest }),
        any::<([u8; 32], [u8; 32], u64, [u8; 32])>().prop_map(|(key, client, time_ms, half)| {
            Frame::Receipt(ServerReceipt {
                key: PublicKey::from_bytes(key),
                client: PublicKey::from_bytes(client),
                time_ms,
                signature: [half, half].concat().try_into().unwrap(),
            })
        }),
        Just(Frame::KeepAlive),
        Just(Frame::Retire),
        (0..MAX_FILE_BYTES, any::<bool>(), subtrees())
            .prop_map(|(id, more, subtrees)| Frame::Have { id, more, subtrees }),
    ]
}

/// Returns the type and body of one encoded frame, after a check of its length.
fn split(bytes: &[u8], data_len: usize) -> (FrameType, Bytes) {
    let len = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    assert_eq!(len + 4, bytes.len() + data_len);
    (
        FrameType::from_repr(bytes[4]).unwrap(),
        Bytes::copy_from_slice(&bytes[5..]),
    )
}

/// Returns the body of a frame that carries no data of a block.
fn body_of(frame: &Frame) -> Bytes {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes.split_off(5).into()
}

proptest! {
    #[test]
    fn frames_round_trip(frame in frame()) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let data_len = match &frame {
            Frame::Block(block) | Frame::ClearBlock(block, _) => block.data_len(),
            _ => 0,
        };
        let (frame_type, body) = split(&bytes, data_len);
        prop_assert_eq!(decode(frame_type, body).unwrap(), frame);
    }

    #[test]
    fn lh_copy_2_truncated_or_extended_frame_is_refused(
        frame in frame(),
        cut in any::<prop::sample::Index>(),
    ) {
        // The data of SMALL and PACK extends to the frame's end, so only a cut before the data is
        // certain to be detected.
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let body = Bytes::copy_from_slice(&bytes[5..]);
        let frame_type = FrameType::from_repr(bytes[4]).unwrap();
        // A cut between two options is not detected either.
        let certain = match &frame {
            Frame::Small { data, .. } => body.len() - data.len(),
            Frame::Pack { parts, .. } => body.len() - parts.len(),
            Frame::Hello(hello) => body_of(&Frame::Hello(Hello {
                token: hello.token,
                request: hello.request.clone(),
                ..plain_hello()
            }))
            .len(),
            Frame::Accept(_) => body_of(&Frame::Accept(Acceptance::default())).len(),
            _ => body.len(),
        };
        if certain > 0 {
            prop_assert!(decode(frame_type, body.slice(..cut.index(certain))).is_err());
        }
        // A byte behind HELLO or ACCEPT is a truncated option.
        if !matches!(frame_type, FrameType::Small | FrameType::Pack) {
            bytes.push(0);
            prop_assert!(decode(frame_type, Bytes::copy_from_slice(&bytes[5..])).is_err());
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused(
        kind in 1u8..=33,
        body in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        if let Some(frame_type) = FrameType::from_repr(kind) {
            let _ = decode(frame_type, Bytes::from(body));
        }
    }

    #[test]
    fn frame_with_one_flipped_bit_never_panics(
        frame in frame(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let frame_type = FrameType::from_repr(bytes[4]).unwrap();
        let mut body = bytes[5..].to_vec();
        if !body.is_empty() {
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
        }
        let _ = decode(frame_type, body.into());
    }
}

#[test]
fn small_frame_built_in_place_is_the_same_frame() {
    let head = EntryHead {
        id: 7,
        source: 1,
        path: RelPath::from_bytes(b"a/b").unwrap(),
    };
    let meta = Meta::new(0o644, (5, 6));
    let mut plain = Vec::new();
    Frame::Small {
        head: head.clone(),
        meta: meta.clone(),
        hash: [9; 32],
        data: Bytes::from_static(b"data"),
    }
    .encode(&mut plain);
    let mut placed = Vec::new();
    let start = begin_small(&mut placed, &head, &meta);
    let data = placed.len();
    placed.extend_from_slice(b"data");
    finish_small(&mut placed, start, data, &[9; 32]);
    assert_eq!(placed, plain);
}

/// Returns a pull of one file, without options.
fn plain_hello() -> Hello {
    Hello {
        token: CopyToken([1; 16]),
        request: CopyRequest::Pull {
            recursive: false,
            sources: vec![RelPath::root()],
        },
        resume: false,
        clear: false,
        offer: None,
        hard_links: false,
        single: false,
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: FilterRules::default(),
        existing: ExistingPolicy::default(),
        receipt: false,
        compression: Compression::None,
        packs: false,
        delta: false,
        in_place: false,
        late_sizes: false,
        keep: Preservation::default(),
        bearer: None,
    }
}

#[test]
fn lh_copy_71_token_ends_hello_and_is_not_critical() {
    let token = "eyJhbGciOiJFUzI1NiJ9.e30.c2ln";
    let hello = Hello {
        bearer: Some(BearerToken::new(token).unwrap()),
        ..plain_hello()
    };
    let plain = body_of(&Frame::Hello(plain_hello()));
    let body = body_of(&Frame::Hello(hello.clone()));
    let option = [&[22, 0, 29, 0][..], token.as_bytes()].concat();
    assert_eq!(&body[..], &[&plain[..], &option].concat()[..]);
    assert_eq!(
        decode(FrameType::Hello, body.clone()),
        Ok(Frame::Hello(hello.clone()))
    );
    assert!(!format!("{hello:?}").contains(token), "it would be logged");
    let long = "a".repeat(MAX_TOKEN_BYTES + 1);
    for text in ["", "a b", " a", "a\n", "\u{e9}", long.as_str()] {
        let mut bytes = plain.to_vec();
        encode::put_option(&mut bytes, options::TOKEN, text.as_bytes());
        assert_eq!(
            decode(FrameType::Hello, bytes.into()),
            Err(WireError::Value("token")),
            "{text:?}"
        );
    }
}

#[test]
fn lh_copy_65_what_is_kept_is_requested_and_confirmed() {
    let keep = |keep| Hello {
        keep,
        ..plain_hello()
    };
    let owners = Preservation {
        owner: true,
        ..Preservation::default()
    };
    let links = Preservation {
        safe_links: true,
        ..owners
    };
    let plain = body_of(&Frame::Hello(plain_hello()));
    // It is critical if the other end would send other entries without it.
    for (selection, option) in [
        (owners, &b"\x10\0\x02\0\x01\0"[..]),
        (links, b"\x10\x80\x02\0\x01\x01"),
    ] {
        let hello = keep(selection);
        let body = body_of(&Frame::Hello(hello.clone()));
        assert_eq!(&body[..], &[&plain[..], option].concat()[..]);
        assert_eq!(decode(FrameType::Hello, body), Ok(Frame::Hello(hello)));
    }
    let unknown = [&plain[..], b"\x10\0\x02\0\0\x80"].concat();
    assert!(decode(FrameType::Hello, unknown.into()).is_err());
    let accepted = Frame::Accept(Acceptance {
        max_streams: 9,
        keep: owners,
        ..Acceptance::default()
    });
    let body = [&VERSION.to_le_bytes()[..], &[9, 0], b"\x10\0\x02\0\x01\0"];
    assert_eq!(
        decode(FrameType::Accept, body.concat().into()),
        Ok(accepted)
    );
    let refusal = WireError::UnknownOption(16).to_string();
    assert!(keep(links).missing_capability(&refusal).is_some());
    assert!(keep(owners).missing_capability(&refusal).is_none());
}

#[test]
fn lh_copy_76_accept_names_the_member_with_the_copy() {
    let accepted = |member| {
        Frame::Accept(Acceptance {
            max_streams: 9,
            delta: true,
            member,
            ..Acceptance::default()
        })
    };
    let plain = body_of(&accepted(None));
    let named = accepted(Some(MemberId(*b"member 1")));
    let body = body_of(&named);
    let option = &b"\x19\0\x08\0member 1"[..];
    assert_eq!(&body[..], &[&plain[..], option].concat()[..]);
    assert_eq!(decode(FrameType::Accept, body), Ok(named));
    let short = [&plain[..], b"\x19\0\x07\0member "].concat();
    assert!(decode(FrameType::Accept, short.into()).is_err());
}

/// Returns a directory with these attributes, as they are on the wire.
fn directory_with(attributes: &[u8]) -> Result<Frame, WireError> {
    let meta = Meta {
        attributes: Some(Arc::default()),
        ..Meta::default()
    };
    let head = EntryHead {
        id: 0,
        source: 0,
        path: RelPath::root(),
    };
    let body = body_of(&Frame::Directory { head, meta });
    // The empty attributes are a length of two bytes and the byte of flags.
    let before = &body[..body.len() - 3];
    let length = (attributes.len() as u16).to_le_bytes();
    decode(
        FrameType::Directory,
        [before, &length, attributes].concat().into(),
    )
}

#[test]
fn lh_copy_66_attributes_are_bounded_and_of_known_classes() {
    let xattr = |name: &[u8], value: &[u8]| {
        let mut list = Vec::new();
        encode::put_bytes(&mut list, name);
        encode::put_bytes(&mut list, value);
        list
    };
    let list = |flag: u8, each: &[Vec<u8>]| {
        let count = (each.len() as u16).to_le_bytes();
        [&[flag][..], &count, &each.concat()].concat()
    };
    let (user, acl) = (b"user.a", b"system.posix_acl_access");
    for valid in [
        vec![0],
        vec![1, 0, 0x0e],
        list(16, &[xattr(user, b"1"), xattr(b"user.b", b"")]),
        list(16, &[xattr(user, &[7; 60_000])]),
        list(8, &[xattr(acl, b"1")]),
        [&[2, 7, 0, 0, 0, 0][..], &[0, 0]].concat(),
    ] {
        assert!(directory_with(&valid).is_ok(), "{valid:?}");
    }
    let too_many: Vec<Vec<u8>> = (0..1025)
        .map(|number| xattr(format!("user.{number:04}").as_bytes(), b""))
        .collect();
    for invalid in [
        // An unknown flag, other mode bits, and a byte too many.
        vec![32],
        vec![1, 0, 0x10],
        vec![0, 0],
        // An owner without name and number, and a long name.
        [&[2, 255, 255, 255, 255, 0][..], &[0, 0]].concat(),
        [&[2, 7, 0, 0, 0, 0][..], &[0, 1], &[b'a'; 256]].concat(),
        // The wrong class, the wrong order, and too many.
        list(16, &[xattr(acl, b"1")]),
        list(8, &[xattr(user, b"1")]),
        list(16, &[xattr(b"system.other", b"1")]),
        list(16, &[xattr(b"user.longhaul.directory", b"1")]),
        list(16, &[xattr(b"user.b", b""), xattr(user, b"")]),
        list(16, &[xattr(user, b""), xattr(user, b"")]),
        list(16, &too_many),
    ] {
        assert!(directory_with(&invalid).is_err(), "{invalid:?}");
    }
}

#[test]
fn lh_copy_67_only_devices_have_numbers() {
    let special = |kind: u8, device: (u32, u32)| {
        let known = SpecialFile {
            kind: SpecialKind::CharacterDevice,
            device,
        };
        let head = EntryHead {
            id: 0,
            source: 0,
            path: RelPath::root(),
        };
        let frame = Frame::Special {
            head,
            meta: Meta::default(),
            special: known,
        };
        let mut body = body_of(&frame).to_vec();
        let at = body.len() - 9;
        body[at] = kind;
        decode(FrameType::Special, body.into())
    };
    assert!(special(3, (1, 3)).is_ok() && special(4, (8, 0)).is_ok());
    assert!(special(1, (0, 0)).is_ok() && special(2, (0, 0)).is_ok());
    for (kind, device) in [(1, (1, 3)), (2, (0, 1)), (0, (0, 0)), (5, (0, 0))] {
        assert!(special(kind, device).is_err(), "{kind}");
    }
}

#[test]
fn lh_copy_57_a_receipt_is_requested_and_confirmed_by_an_option() {
    let hello = Hello {
        receipt: true,
        ..plain_hello()
    };
    let plain = body_of(&Frame::Hello(plain_hello()));
    let body = body_of(&Frame::Hello(hello.clone()));
    assert_eq!(&body[..], &[&plain[..], b"\x0f\0\0\0"].concat()[..]);
    assert_eq!(decode(FrameType::Hello, body), Ok(Frame::Hello(hello)));
    let accepted = Frame::Accept(Acceptance {
        max_streams: 9,
        receipt: true,
        ..Acceptance::default()
    });
    let body = [&VERSION.to_le_bytes()[..], &[9, 0], b"\x0f\0\0\0"].concat();
    assert_eq!(decode(FrameType::Accept, body.into()), Ok(accepted));
}

#[test]
fn lh_copy_79_late_sizes_are_offered_and_confirmed() {
    let hello = Hello {
        late_sizes: true,
        ..plain_hello()
    };
    let plain = body_of(&Frame::Hello(plain_hello()));
    let body = body_of(&Frame::Hello(hello.clone()));
    assert_eq!(&body[..], &[&plain[..], b"\x1a\0\0\0"].concat()[..]);
    assert_eq!(decode(FrameType::Hello, body), Ok(Frame::Hello(hello)));
    let accepted = Frame::Accept(Acceptance {
        max_streams: 9,
        late_sizes: true,
        ..Acceptance::default()
    });
    let body = [&VERSION.to_le_bytes()[..], &[9, 0], b"\x1a\0\0\0"].concat();
    assert_eq!(decode(FrameType::Accept, body.into()), Ok(accepted));
}

#[test]
fn lh_copy_81_size_at_the_end_is_bounded() {
    let end = |size: u64| {
        let body = [&5u64.to_le_bytes()[..], &size.to_le_bytes(), &[1; 32]].concat();
        decode(FrameType::LateEnd, body.into())
    };
    assert!(end(MAX_FILE_BYTES - 1).is_ok());
    assert_eq!(end(MAX_FILE_BYTES), Err(WireError::Bound));
}

#[test]
fn lh_copy_6_common_version_is_required() {
    let hello = plain_hello();
    let mut bytes = Vec::new();
    Frame::Hello(hello.clone()).encode(&mut bytes);
    let body = &bytes[5..];
    let with = |oldest: u16, newest: u16, options: &[u8]| {
        let versions = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
        let bytes = [&body[..4], &versions, &body[8..], options].concat();
        decode(FrameType::Hello, bytes.into())
    };
    let good = Ok(Frame::Hello(hello));
    assert_eq!(with(VERSION, VERSION, b""), good);
    assert_eq!(with(0, u16::MAX, b"\x63\0\x01\0x"), good, "LH-COPY-8");
    assert_eq!(
        with(VERSION + 1, VERSION + 3, b""),
        Err(WireError::Version(VERSION + 1, VERSION + 3))
    );
    assert_eq!(with(5, 4, b""), Err(WireError::Value("version range")));
    assert_eq!(
        with(0, u16::MAX, b"\x63\x80\0\0"),
        Err(WireError::UnknownOption(0x63))
    );
    let accept = |options: &[u8]| {
        let body = [&VERSION.to_le_bytes()[..], &[9, 0], options].concat();
        decode(FrameType::Accept, body.into())
    };
    let accepted = Frame::Accept(Acceptance {
        max_streams: 9,
        ..Acceptance::default()
    });
    assert_eq!(accept(b"\x63\0\x01\0x"), Ok(accepted));
    assert_eq!(accept(b"\x63\x80\0\0"), Err(WireError::UnknownOption(0x63)));
}

#[test]
fn lh_copy_3_meaningless_values_are_refused() {
    let mut flag = Vec::new();
    Frame::Totals {
        entries: 1,
        bytes: 1,
        complete: true,
    }
    .encode(&mut flag);
    *flag.last_mut().unwrap() = 2;
    assert_eq!(
        decode(FrameType::Totals, Bytes::copy_from_slice(&flag[5..])),
        Err(WireError::Value("flag"))
    );
    let none = NO_ENTRY.to_le_bytes();
    assert_eq!(
        decode(FrameType::FileEnd, [&none[..], &[0; 32]].concat().into()),
        Err(WireError::Bound)
    );
    let meta = |mode: u32, nanos: u32| {
        let mut body = [0; 14].to_vec();
        body.extend_from_slice(&mode.to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&nanos.to_le_bytes());
        decode(FrameType::Directory, body.into())
    };
    assert!(meta(0o777, 999_999_999).is_ok());
    assert_eq!(meta(0o1000, 0), Err(WireError::Value("mode")));
    assert_eq!(meta(0, 1_000_000_000), Err(WireError::Value("time")));
}

#[test]
fn lh_copy_4_extents_of_a_block_ascend_within_it() {
    let block = |len: u32, extents: &[(u32, u32)]| {
        let mut body = [0; 16].to_vec();
        body.extend_from_slice(&len.to_le_bytes());
        body.extend_from_slice(&(extents.len() as u16).to_le_bytes());
        for (offset, len) in extents {
            body.extend_from_slice(&offset.to_le_bytes());
            body.extend_from_slice(&len.to_le_bytes());
        }
        decode(FrameType::Block, body.into())
    };
    assert!(block(10, &[(0, 2), (2, 3), (7, 3)]).is_ok());
    for extents in [
        &[(0, 3), (2, 1)][..],
        &[(5, 1), (0, 1)],
        &[(0, 11)],
        &[(0, 0)],
    ] {
        assert_eq!(
            block(10, extents),
            Err(WireError::Value("extent")),
            "{extents:?}"
        );
    }
    assert_eq!(block(10, &[(u32::MAX, 5)]), Err(WireError::Bound));
    assert_eq!(block((1 << 20) + 1, &[]), Err(WireError::Bound));
}

#[test]
fn hostile_names_are_refused() {
    for name in [&b"../x"[..], b"/etc/passwd", b"a//b", b"a/./b", b"a\0b"] {
        let mut body = 0u64.to_le_bytes().to_vec();
        body.extend_from_slice(&0u32.to_le_bytes());
        encode::put_bytes(&mut body, name);
        body.extend_from_slice(&[0; 16]);
        assert!(
            matches!(
                decode(FrameType::Directory, body.into()),
                Err(WireError::Path(_))
            ),
            "{name:?}"
        );
    }
}

#[test]
fn lh_copy_36_existing_parts_ascend_and_are_whole_subtrees() {
    let have = |count: u16, parts: &[(u64, u8)]| {
        let mut body = [0; 9].to_vec();
        body.extend_from_slice(&count.to_le_bytes());
        for (offset, level) in parts {
            body.extend_from_slice(&offset.to_le_bytes());
            body.push(*level);
            body.extend_from_slice(&[7; 32]);
        }
        decode(FrameType::Have, body.into())
    };
    assert!(have(3, &[(0, 20), (1 << 20, 16), (1 << 61, 61)]).is_ok());
    assert!(have(1, &[(0, 62)]).is_ok());
    for parts in [
        [(0, 20), (1 << 16, 16)],
        [(1 << 20, 20), (0, 20)],
        [(0, 15), (1 << 20, 20)],
    ] {
        assert_eq!(
            have(2, &parts),
            Err(WireError::Value("subtree")),
            "{parts:?}"
        );
    }
    for part in [(0, 63), (0, 255), (1 << 16, 17)] {
        assert_eq!(
            have(1, &[part]),
            Err(WireError::Value("subtree")),
            "{part:?}"
        );
    }
    assert!(have(0, &[]).is_ok(), "nothing is in place");
    assert_eq!(have(u16::MAX, &[]), Err(WireError::Bound));
    assert_eq!(have(2, &[(0, 20)]), Err(WireError::Short));
}

#[test]
fn lh_copy_33_identity_has_32_bytes_or_none() {
    let mut bytes = Vec::new();
    Frame::File {
        head: EntryHead {
            id: 1,
            source: 0,
            path: RelPath::root(),
        },
        meta: Meta::default(),
        size: 1,
        block_log2: 16,
        identity: None,
    }
    .encode(&mut bytes);
    let plain = &bytes[5..bytes.len() - 2];
    let with = |identity: &[u8]| {
        let mut body = plain.to_vec();
        encode::put_bytes(&mut body, identity);
        decode(FrameType::File, body.into())
    };
    assert!(with(&[]).is_ok() && with(&[9; 32]).is_ok());
    for len in [1, 31, 33] {
        assert_eq!(with(&vec![9; len]), Err(WireError::Value("identity")));
    }
}

#[test]
fn lh_copy_40_offered_hash_has_32_bytes_or_none() {
    let mut bytes = Vec::new();
    Frame::Offer(FileOffer {
        head: EntryHead {
            id: 1,
            source: 0,
            path: RelPath::root(),
        },
        meta: Meta::default(),
        size: MAX_FILE_BYTES,
        hash: None,
    })
    .encode(&mut bytes);
    let plain = &bytes[5..bytes.len() - 2];
    let with = |plain: &[u8], hash: &[u8]| {
        let mut body = plain.to_vec();
        encode::put_bytes(&mut body, hash);
        decode(FrameType::Offer, body.into())
    };
    assert!(with(plain, &[]).is_ok() && with(plain, &[9; 32]).is_ok());
    for len in [1, 31, 33] {
        assert_eq!(with(plain, &vec![9; len]), Err(WireError::Value("hash")));
    }
    let over = [
        &plain[..plain.len() - 8],
        &(MAX_FILE_BYTES + 1).to_le_bytes(),
    ]
    .concat();
    assert_eq!(with(&over, &[]), Err(WireError::Bound));
}

#[test]
fn lh_copy_39_unknown_comparison_is_refused() {
    let hello = |value: &[u8]| {
        let mut bytes = Vec::new();
        Frame::Hello(plain_hello()).encode(&mut bytes);
        encode::put_option(&mut bytes, options::OFFER, value);
        decode(FrameType::Hello, Bytes::copy_from_slice(&bytes[5..]))
    };
    for (byte, compare) in [(1, Compare::SizeAndTime), (2, Compare::Content)] {
        assert!(matches!(hello(&[byte]), Ok(Frame::Hello(hello)) if hello.offer == Some(compare)));
    }
    assert_eq!(hello(&[0]), Err(WireError::Value("way to compare")));
    assert_eq!(hello(&[]), Err(WireError::Short));
    assert_eq!(hello(&[1, 1]), Err(WireError::Long));
}

#[test]
fn lh_copy_48_single_stream_option_ends_hello() {
    let hello = |single| {
        let mut bytes = Vec::new();
        let hello = Hello {
            single,
            ..plain_hello()
        };
        Frame::Hello(hello).encode(&mut bytes);
        bytes
    };
    let (single, several) = (hello(true), hello(false));
    assert_eq!(single[5..], [&several[5..], &[7, 0, 0, 0]].concat());
}

#[test]
fn lh_copy_49_part_option_is_critical_and_rest_is_not() {
    let hello = |portion| {
        let mut bytes = Vec::new();
        let hello = Hello {
            portion,
            ..plain_hello()
        };
        Frame::Hello(hello).encode(&mut bytes);
        bytes
    };
    let part = hello(Portion::Part(CopyPart::new(3, 8).unwrap()));
    let (rest, whole) = (hello(Portion::Rest), hello(Portion::Whole));
    // One critical option (LH-COPY-8), and one that is not.
    let option = [8, 0x80, 8, 0, 3, 0, 0, 0, 8, 0, 0, 0];
    assert_eq!(part[5..], [&whole[5..], &option].concat());
    assert_eq!(rest[5..], [&whole[5..], &[9, 0, 0, 0]].concat());
    let read = |options: &[u8]| decode(FrameType::Hello, [&whole[5..], options].concat().into());
    for [number, of] in [[0, 8], [9, 8], [1, 0]] {
        let option = [8, 0x80, 8, 0, number, 0, 0, 0, of, 0, 0, 0];
        assert_eq!(read(&option), Err(WireError::Value("part")));
    }
    assert_eq!(
        read(&[8, 0x80, 8, 0, 1, 0, 0, 0, 0xe9, 3, 0, 0]),
        Err(WireError::Value("part"))
    );
    let both = [&option[..], &[9, 0, 0, 0]].concat();
    assert_eq!(read(&both), Err(WireError::Value("part")));
}

#[test]
fn lh_copy_53_placement_follows_the_other_options() {
    let bytes = |placement| {
        let mut bytes = Vec::new();
        let hello = Hello {
            portion: Portion::Rest,
            placement,
            ..plain_hello()
        };
        Frame::Hello(hello).encode(&mut bytes);
        bytes
    };
    let (plain, itself) = (bytes(None), bytes(Some(Placement::Itself)));
    assert_eq!(itself[5..], [&plain[5..], &[10, 0, 1, 0, 0]].concat());
    let wrong = [&plain[5..], &[10, 0, 1, 0, 2]].concat();
    assert_eq!(
        decode(FrameType::Hello, wrong.into()),
        Err(WireError::Value("placement"))
    );
}

#[test]
fn lh_copy_55_filter_is_critical_unless_it_is_optional() {
    let kind = |filter: FilterRules| {
        let hello = Hello {
            filter,
            ..plain_hello()
        };
        let (mut plain, mut bytes) = (Vec::new(), Vec::new());
        Frame::Hello(plain_hello()).encode(&mut plain);
        Frame::Hello(hello.clone()).encode(&mut bytes);
        let body = Bytes::copy_from_slice(&bytes[5..]);
        assert_eq!(decode(FrameType::Hello, body), Ok(Frame::Hello(hello)));
        u16::from_le_bytes([bytes[plain.len()], bytes[plain.len() + 1]])
    };
    let ignore_files = true;
    let optional = FilterRules {
        ignore_files,
        ..FilterRules::default()
    };
    assert_eq!(kind(optional.clone()), 12);
    let critical = FilterRules {
        names: vec![NameRule::exclude("*.tmp")],
        ..optional
    };
    assert_eq!(kind(critical), 0x8000 | 12);
}

#[test]
fn refusal_of_an_earlier_release_is_recognised() {
    let hello = Hello {
        filter: FilterRules {
            max_bytes: Some(1),
            ..FilterRules::default()
        },
        ..plain_hello()
    };
    let refusal = WireError::UnknownOption(12).to_string();
    assert!(
        hello
            .missing_capability(&refusal)
            .unwrap()
            .contains("--exclude")
    );
    assert_eq!(plain_hello().missing_capability(&refusal), None);
    let update = Hello {
        existing: ExistingPolicy {
            update: true,
            ..ExistingPolicy::default()
        },
        ..plain_hello()
    };
    assert_eq!(update.missing_capability(&refusal), None);
    let refusal = WireError::UnknownOption(13).to_string();
    assert!(
        update
            .missing_capability(&refusal)
            .unwrap()
            .contains("--update")
    );
}

#[test]
fn lh_copy_55_unknown_rule_is_refused() {
    let mut bytes = Vec::new();
    Frame::Hello(plain_hello()).encode(&mut bytes);
    encode::put_option(&mut bytes, 0x8000 | 12, br#"{"later":1}"#);
    assert_eq!(
        decode(FrameType::Hello, Bytes::copy_from_slice(&bytes[5..])),
        Err(WireError::Value("filter"))
    );
}

#[test]
fn lh_copy_75_packs_are_offered_and_confirmed() {
    let hello = Hello {
        packs: true,
        ..plain_hello()
    };
    let plain = body_of(&Frame::Hello(plain_hello()));
    let body = body_of(&Frame::Hello(hello.clone()));
    assert_eq!(&body[..], &[&plain[..], &[24, 0, 0, 0]].concat()[..]);
    assert_eq!(decode(FrameType::Hello, body), Ok(Frame::Hello(hello)));
    let accepted = Frame::Accept(Acceptance {
        packs: true,
        ..Acceptance::default()
    });
    let body = body_of(&accepted);
    assert_eq!(&body[4..], [24, 0, 0, 0]);
    assert_eq!(decode(FrameType::Accept, body), Ok(accepted));
}

#[test]
fn lh_copy_75_length_of_a_pack_is_bounded() {
    let pack = |len: u32| decode(FrameType::Pack, len.to_le_bytes().to_vec().into());
    let parts = Bytes::new();
    let longest = MAX_PACK_BYTES as u32;
    assert_eq!(longest, 344_064);
    assert_eq!(
        pack(longest),
        Ok(Frame::Pack {
            len: longest,
            parts
        })
    );
    for wrong in [0, longest + 1, u32::MAX] {
        assert_eq!(pack(wrong), Err(WireError::Bound));
    }
}
