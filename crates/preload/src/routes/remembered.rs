//! Answers that stay valid for some time: destinations that are connected directly, so that the
//! on-ramp is not asked for each connection.
//!
//! Remembered answers came over the process's line, and are valid until anything else comes over
//! it. The on-ramp reports changes of its rules there, and the line ends with the on-ramp. So an
//! answer belongs to one line (`forget` is called when the line is replaced), and only the
//! holder of the line uses and keeps it. The memory has a fixed size: nothing is allocated once it
//! is made.

use std::net::IpAddr;

use longhaul_ramp_protocol::{MAX_NAME_BYTES, RouteQuery};

/// Number of answers that are kept. An answer replaces another one whose question has the same
/// hash.
const MAX_ANSWERS: usize = 64;

/// Memory of answers.
pub struct AnswerCache {
    answers: Box<[CachedAnswer]>,
    /// Current generation; answers of other generations are forgotten. Never zero, as in fresh
    /// memory.
    generation: u64,
    /// Number of connections by remembered answers that the on-ramp does not know of.
    pub unreported: u64,
}

#[derive(Clone, Copy)]
struct CachedAnswer {
    generation: u64,
    /// End of its validity, in nanoseconds of the caller's clock.
    until: u64,
    question: CacheKey,
}

/// Parts of a question on which its answer depends. All other fields of a [`RouteQuery`] are the
/// same for all questions of a process.
#[derive(Clone, Copy)]
struct CacheKey {
    address: [u8; 16],
    port: u16,
    length: u8,
    name: [u8; MAX_NAME_BYTES],
}

impl CacheKey {
    /// Returns `None` for a question that only the on-ramp can answer.
    fn from_ask(ask: &RouteQuery<'_>) -> Option<Self> {
        let address = match ask.address? {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let given = ask.name.unwrap_or("").as_bytes();
        let mut name = [0; MAX_NAME_BYTES];
        name.get_mut(..given.len())?.copy_from_slice(given);
        Some(Self {
            address,
            port: ask.port,
            length: u8::try_from(given.len()).ok()?,
            name,
        })
    }

    fn is(&self, other: &Self) -> bool {
        self.address == other.address
            && self.port == other.port
            && self.length == other.length
            && self.name == other.name
    }

    fn slot(&self) -> usize {
        // FNV-1a. The name is left out, because an address has only one at a time.
        let bytes = self.address.into_iter().chain(self.port.to_ne_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        usize::try_from(hash >> 40).unwrap_or(0) % MAX_ANSWERS
    }
}

impl AnswerCache {
    /// Returns an empty memory.
    pub fn new() -> Self {
        Self {
            // SAFETY: numbers.
            answers: unsafe { Box::new_zeroed_slice(MAX_ANSWERS).assume_init() },
            generation: 1,
            unreported: 0,
        }
    }

    /// Returns true if the answer to this question is known at this time.
    pub fn knows(&self, ask: &RouteQuery<'_>, now: u64) -> bool {
        let Some(question) = CacheKey::from_ask(ask) else {
            return false;
        };
        self.answers.get(question.slot()).is_some_and(|answer| {
            answer.generation == self.generation
                && now < answer.until
                && answer.question.is(&question)
        })
    }

    /// Remembers the answer to this question until the given time.
    pub fn remember(&mut self, ask: &RouteQuery<'_>, until: u64) {
        let Some(question) = CacheKey::from_ask(ask) else {
            return;
        };
        if let Some(answer) = self.answers.get_mut(question.slot()) {
            *answer = CachedAnswer {
                generation: self.generation,
                until,
                question,
            };
        }
    }

    /// Invalidates all answers.
    pub fn forget(&mut self) {
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: RouteQuery<'_> = RouteQuery {
        address: Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))),
        name: Some("one.example"),
        port: 80,
        route: None,
        wish: longhaul_ramp_protocol::ConnectionWish {
            purpose: None,
            size: None,
            rate: None,
            duration: None,
        },
        v6: false,
        route_required: false,
        acceptor: false,
        key: None,
        remembers: true,
        binds: false,
    };

    #[test]
    fn an_answer_is_for_its_question_and_its_time() {
        let mut remembered = AnswerCache::new();
        assert!(!remembered.knows(&ASK, 0));
        remembered.remember(&ASK, 10);
        assert!(remembered.knows(&ASK, 9) && !remembered.knows(&ASK, 10));
        for other in [
            RouteQuery { name: None, ..ASK },
            RouteQuery {
                name: Some("two.example"),
                ..ASK
            },
            RouteQuery { port: 81, ..ASK },
            RouteQuery {
                address: Some("192.0.2.2".parse().unwrap()),
                ..ASK
            },
            RouteQuery {
                address: None,
                ..ASK
            },
        ] {
            assert!(!remembered.knows(&other, 0), "{other:?}");
        }
        let mapped = RouteQuery {
            address: Some("::ffff:192.0.2.1".parse().unwrap()),
            ..ASK
        };
        assert!(remembered.knows(&mapped, 0), "the same destination");
    }

    #[test]
    fn all_answers_are_forgotten_at_once() {
        let mut remembered = AnswerCache::new();
        let ask = |port| RouteQuery { port, ..ASK };
        for port in 1..1000 {
            remembered.remember(&ask(port), 10);
            assert!(remembered.knows(&ask(port), 0), "the last is known");
        }
        let known = (1..1000)
            .filter(|port| remembered.knows(&ask(*port), 0))
            .count();
        assert!((2..=MAX_ANSWERS).contains(&known), "{known}");
        remembered.forget();
        assert!((1..1000).all(|port| !remembered.knows(&ask(port), 0)));
        remembered.remember(&ASK, 10);
        assert!(remembered.knows(&ASK, 0));
    }
}
