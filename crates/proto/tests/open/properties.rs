//! Properties of any OPEN, and of any bytes.

use std::time::Duration;

use longhaul_proto::{
    Endpoint, MAX_OPEN_BYTES, MAX_PADDING_BYTES, Open, OpenDecoder, PublicKey, ResumeOffer,
    ResumeRequest, Route, ServiceName, SessionId, Transport, UnknownOption, is_known_option,
};
use proptest::prelude::*;

use crate::{bytes, decode, key, resealed};

prop_compose! {
    fn any_endpoint()(
        name in "[a-z0-9_]{1,20}(\\.[a-z][a-z0-9-]{0,20}){0,3}",
        v4 in any::<[u8; 4]>(), v6 in any::<[u8; 16]>(), kind in 0..3, port in 1..=u16::MAX,
    ) -> Endpoint {
        let host = match kind {
            0 => longhaul_proto::Host::parse(&name).unwrap_or(longhaul_proto::Host::Ip(v4.into())),
            1 => longhaul_proto::Host::Ip(v4.into()),
            _ => longhaul_proto::Host::Ip(v6.into()),
        };
        Endpoint::new(host, port)
    }
}

type AnyHop = (Endpoint, bool, Option<[u8; 32]>, Option<Transport>);

fn any_transport() -> impl Strategy<Value = Option<Transport>> {
    prop::option::of(prop::sample::select(&Transport::ALL[..]))
}

fn any_hop() -> impl Strategy<Value = AnyHop> {
    let key = prop::option::of(any::<[u8; 32]>());
    (any_endpoint(), any::<bool>(), key, any_transport())
}

fn any_resume() -> impl Strategy<Value = (Option<ResumeOffer>, Option<ResumeRequest>)> {
    let offer = (1u64..=u32::MAX.into()).prop_map(|within| ResumeOffer {
        within: Duration::from_millis(within),
    });
    let request = (any::<[u8; 16]>(), 1u32.., any::<u64>(), any::<[u8; 32]>()).prop_map(
        |(session, epoch, received, proof)| ResumeRequest {
            session: SessionId::from_bytes(session),
            epoch,
            received,
            proof,
        },
    );
    (prop::option::of(offer), prop::option::of(request))
}

prop_compose! {
    fn any_open()(
        id in any::<[u8; 16]>(),
        destination in any_endpoint(),
        hops in prop::collection::vec(
            any_hop(), 0..=16),
        passed in prop::collection::vec(any::<[u8; 32]>(), 0..=32),
        cursor in any::<prop::sample::Index>(),
        hop_limit: u8,
        budget: u32,
        size: Option<u64>,
        purpose in prop::option::of("[a-zA-Z ä]{1,32}"),
        circuit in prop::option::of(prop::collection::vec(any::<u8>(), 1..=128)),
        numbers in prop::collection::btree_map(
            (1u16..0x4000).prop_filter("an unknown option", |number| !is_known_option(*number)),
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)),
            0..8,
        ),
        signed_at: u64,
        service in "[a-z0-9-]{1,32}",
        rate in prop::option::of(1u64..),
        duration in prop::option::of(1u64..),
        onward in prop::option::of(any_endpoint()),
        padding in prop::option::of(1..=MAX_PADDING_BYTES),
        destination_transport in any_transport(),
        resume in any_resume(),
    ) -> Open {
        let hop = |(endpoint, strict, key, transport): AnyHop| {
            longhaul_proto::Hop {
                endpoint,
                strict,
                key: key.map(PublicKey::from_bytes),
                transport,
            }
        };
        let hops = hops.into_iter().map(hop).collect();
        let route = Route::new(hops).unwrap();
        let places = route.hops().len() + 2;
        let (id, service) = (SessionId::from_bytes(id), service.parse().unwrap());
        let budget = Duration::from_millis(budget.into());
        let mut open = Open::new(id, service, route, destination, budget);
        open.destination_transport = destination_transport;
        open.cursor = u8::try_from(cursor.index(places)).unwrap();
        open.passed = passed.into_iter().map(PublicKey::from_bytes).collect();
        (open.hop_limit, open.size) = (hop_limit, size);
        (open.purpose, open.circuit) = (purpose, circuit);
        (open.rate, open.duration, open.padding) = (rate, duration, padding);
        if let Some(server) = onward {
            (open.service, open.onward) = (ServiceName::TCP, Some(server));
        } else if [ServiceName::TCP, ServiceName::RESUME].contains(&open.service) {
            open.service = ServiceName::COPY;
        }
        open.resume_offer = resume.0;
        if let Some(request) = resume.1 {
            (open.service, open.onward) = (ServiceName::RESUME, None);
            open.resume = Some(Box::new(request));
        }
        let unknown = |(number, (mutable, value)): (u16, (bool, Vec<u8>))| UnknownOption {
            kind: number | if mutable { 0x4000 } else { 0 },
            value,
        };
        open.unknown = numbers.into_iter().map(unknown).collect();
        open.sign(&key(), signed_at).unwrap();
        open
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// An encoded OPEN decodes to itself, verifies, and encodes to the same bytes, however it was
    /// split.
    #[test]
    fn encode_and_decode_are_inverse(open in any_open(), cut in any::<prop::sample::Index>()) {
        let sent = bytes(&open);
        let (first, second) = sent.split_at(cut.index(sent.len()));
        let mut decoder = OpenDecoder::new();
        prop_assert_eq!(decoder.feed(first).unwrap(), None);
        let (found, used) = decoder.feed(second).unwrap().unwrap();
        prop_assert_eq!(used, second.len());
        prop_assert_eq!(&found, &open);
        prop_assert_eq!(found.verify(), Ok(()));
        prop_assert_eq!(bytes(&found), sent);
    }

    /// Damage behind a valid CRC never panics, and any result is in canonical form.
    #[test]
    fn damaged_options_never_panic(
        open in any_open(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut frame = bytes(&open);
        for (at, byte) in edits {
            let at = 12 + at.index(frame.len() - 12);
            frame[at] = byte;
        }
        let frame = resealed(frame);
        if let Ok(Some((found, _))) = decode(&frame) {
            prop_assert_eq!(bytes(&found), frame);
        }
    }

    /// For any bytes, the decoder does not panic and buffers no more than it was given.
    #[test]
    fn arbitrary_bytes_never_panic(
        tail in prop::collection::vec(any::<u8>(), 0..600), head in 0..3,
    ) {
        let mut input = match head {
            0 => vec![],
            1 => vec![0xf1, b'L', b'H', b'O'],
            _ => vec![0xf1, b'L', b'H', b'O', 1, 1, 2, 0],
        };
        input.extend(tail);
        let mut decoder = OpenDecoder::new();
        let _ = decoder.feed(&input);
        prop_assert!(decoder.buffered_bytes() <= input.len().min(MAX_OPEN_BYTES));
    }
}
