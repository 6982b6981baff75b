//! Names and the addresses that they resolved to, learnt from the answers of name servers, so that
//! rules may name destinations.

use std::collections::HashMap;
use std::net::IpAddr;

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::RData;
use longhaul_ramp_protocol::MAX_NAME_BYTES;

/// Maximum number of remembered addresses. A new one replaces the one that was named longest ago.
const MAX_ADDRESSES: usize = 2048;

/// Remembered addresses and their names.
#[derive(Debug, Default)]
pub(crate) struct NamesByAddress {
    known: HashMap<IpAddr, RememberedName>,
    clock: u64,
}

#[derive(Debug)]
struct RememberedName {
    name: String,
    /// Time at which it was named.
    at: u64,
}

impl NamesByAddress {
    /// Learns from a name server's answer: its addresses belong to the requested name, through any
    /// aliases. Other packets are ignored.
    pub(crate) fn learn(&mut self, packet: &[u8]) {
        let Ok(message) = Message::from_vec(packet) else {
            return;
        };
        if message.metadata.message_type != MessageType::Response {
            return;
        }
        let Some(query) = message.queries.first() else {
            return;
        };
        let name = query.name().to_ascii();
        let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
        if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || !name.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return;
        }
        for record in &message.answers {
            match &record.data {
                RData::A(address) => self.remember(&name, IpAddr::V4(address.0)),
                RData::AAAA(address) => self.remember(&name, IpAddr::V6(address.0)),
                _ => {}
            }
        }
    }

    /// Returns the name that last resolved to an address.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<&str> {
        self.known.get(&address).map(|known| known.name.as_str())
    }

    fn remember(&mut self, name: &str, address: IpAddr) {
        self.clock += 1;
        if self.known.len() >= MAX_ADDRESSES && !self.known.contains_key(&address) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.known.remove(&oldest);
            }
        }
        let known = RememberedName {
            name: name.to_owned(),
            at: self.clock,
        };
        self.known.insert(address, known);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::{OpCode, Query};
    use hickory_proto::rr::rdata::{A, AAAA, CNAME};
    use hickory_proto::rr::{Name, Record, RecordType};
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn answer(asked: &str, records: Vec<Record>) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Response, OpCode::Query);
        message.add_query(Query::query(name(asked), RecordType::A));
        message.add_answers(records);
        message.to_vec().unwrap()
    }

    fn a(owner: &str, address: Ipv4Addr) -> Record {
        Record::from_rdata(name(owner), 60, RData::A(A(address)))
    }

    #[test]
    fn addresses_belong_to_the_name_that_was_asked_for() {
        let mut names = NamesByAddress::default();
        let six = "2001:db8::7".parse().unwrap();
        names.learn(&answer(
            "Data.Archive.Example.",
            vec![
                Record::from_rdata(
                    name("data.archive.example."),
                    60,
                    RData::CNAME(CNAME(name("node7.example."))),
                ),
                a("node7.example.", Ipv4Addr::new(192, 0, 2, 7)),
                Record::from_rdata(name("node7.example."), 60, RData::AAAA(AAAA(six))),
            ],
        ));
        assert_eq!(
            names.name_of("192.0.2.7".parse().unwrap()),
            Some("data.archive.example")
        );
        assert_eq!(names.name_of(six.into()), Some("data.archive.example"));
        assert_eq!(names.name_of("192.0.2.8".parse().unwrap()), None);
        names.learn(&answer(
            "other.example.",
            vec![a("other.example.", Ipv4Addr::new(192, 0, 2, 7))],
        ));
        assert_eq!(
            names.name_of("192.0.2.7".parse().unwrap()),
            Some("other.example")
        );
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let mut names = NamesByAddress::default();
        let address = |number: u32| Ipv4Addr::from(0x0a00_0000 + number);
        for number in 0..5000 {
            names.learn(&answer(
                "many.example.",
                vec![a("many.example.", address(number))],
            ));
        }
        assert_eq!(names.known.len(), MAX_ADDRESSES);
        assert!(
            names.name_of(address(4999).into()).is_some()
                && names.name_of(address(0).into()).is_none()
        );
    }

    proptest! {
        #[test]
        fn arbitrary_packets_do_not_panic(packet: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let mut names = NamesByAddress::default();
            names.learn(&packet);
            let mut spoilt = answer("a.example.", vec![a("a.example.", Ipv4Addr::LOCALHOST)]);
            let at = at.index(spoilt.len());
            spoilt[at] = byte;
            names.learn(&spoilt);
            names.learn(&spoilt[..at]);
            prop_assert!(names.known.values().all(|known| known.name.len() <= MAX_NAME_BYTES));
        }
    }
}
