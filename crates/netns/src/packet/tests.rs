use proptest::prelude::*;

use super::*;

const SIX: &str = "[fd00::2]:4000 [2001:db8::1]:80";
const FOUR: &str = "192.0.0.2:4000 192.0.2.1:80";

fn pair(text: &str) -> AddressPair {
    let (program, far) = text.split_once(' ').unwrap();
    AddressPair {
        program: program.parse().unwrap(),
        far: far.parse().unwrap(),
    }
}

fn segment(
    pair: &AddressPair,
    with: impl FnOnce(
        etherparse::PacketBuilderStep<etherparse::TcpHeader>,
    ) -> etherparse::PacketBuilderStep<etherparse::TcpHeader>,
    payload: &[u8],
) -> Vec<u8> {
    let tcp = ip(pair.program.ip(), pair.far.ip()).unwrap().tcp(
        pair.program.port(),
        pair.far.port(),
        1000,
        64,
    );
    let tcp = with(tcp);
    written(tcp.size(payload.len()), |out| {
        tcp.write(out, payload).is_ok()
    })
    .unwrap()
}

#[test]
fn a_connection_that_is_asked_for_and_refused() {
    for text in [FOUR, SIX] {
        let pair = pair(text);
        let bytes = segment(&pair, |tcp| tcp.syn(), &[]);
        let Packet::Tcp(found, syn) = Packet::read(&bytes) else {
            panic!("{bytes:?}")
        };
        assert_eq!(found, pair);
        assert!(syn.opens());
        let answer = syn.refusal(&pair).unwrap();
        let Packet::Tcp(back, reset) = Packet::read(&answer) else {
            panic!("{answer:?}")
        };
        assert_eq!((back.program, back.far), (pair.far, pair.program));
        assert_eq!(
            (reset.reset, reset.acknowledges, reset.number),
            (true, Some(1001), 0)
        );
        assert_eq!(reset.refusal(&back), None, "no reset of a reset");

        let bytes = segment(&pair, |tcp| tcp.ack(77), b"late");
        let Packet::Tcp(_, late) = Packet::read(&bytes) else {
            panic!("{bytes:?}")
        };
        assert!(!late.opens());
        let answer = late.refusal(&pair).unwrap();
        let Packet::Tcp(_, reset) = Packet::read(&answer) else {
            panic!("{answer:?}")
        };
        assert_eq!(
            (reset.reset, reset.acknowledges, reset.number),
            (true, None, 77)
        );
    }
}

#[test]
fn datagrams_of_any_length_are_built() {
    for text in [FOUR, SIX] {
        let pair = pair(text);
        for length in [0, 1, 1200, 65_507 - 20 * usize::from(pair.far.is_ipv6())] {
            let payload = vec![7; length];
            let bytes = datagram(&pair, &payload).unwrap();
            let Packet::Udp(found, got) = Packet::read(&bytes) else {
                panic!("{length}")
            };
            assert_eq!((found.program, found.far), (pair.far, pair.program));
            assert!(got == payload);
        }
        assert_eq!(datagram(&pair, &vec![0; 65_536]), None);
    }
}

#[test]
fn icmp_quotes_the_undelivered_packet() {
    for text in [FOUR, SIX] {
        let pair = pair(text);
        for why in [
            Unreachable::Network,
            Unreachable::Host,
            Unreachable::Prohibited,
            Unreachable::Port,
        ] {
            let message = unreachable(&pair, &first_packet(&pair).unwrap(), why).unwrap();
            let sliced = SlicedPacket::from_ip(&message).unwrap();
            let quoted = match sliced.transport.unwrap() {
                TransportSlice::Icmpv4(icmp) => icmp.payload().to_vec(),
                TransportSlice::Icmpv6(icmp) => icmp.payload().to_vec(),
                other => panic!("{other:?}"),
            };
            let Packet::Udp(found, _) = Packet::read(&quoted) else {
                panic!("{quoted:?}")
            };
            assert_eq!(found, pair);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_device_output_does_not_panic(bytes: Vec<u8>, at: prop::sample::Index, byte: u8,
        six: bool) {
        crate::fuzzing::packet(&bytes);
        let pair = pair(if six { SIX } else { FOUR });
        let mut spoilt = segment(&pair, |tcp| tcp.syn(), b"early");
        let at = at.index(spoilt.len());
        spoilt[at] = byte;
        crate::fuzzing::packet(&spoilt);
        crate::fuzzing::packet(&spoilt[..at]);
    }
}
