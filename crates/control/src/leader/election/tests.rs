use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::leader::SERVER_LIMIT_MS;

#[test]
fn leads_from_the_answer_until_the_lease_expires() {
    let mut election = Election::default();
    assert_eq!(election.take(Event::Held { sent: 0 }, 1), Standing::Lost);
    assert_eq!(election.take(Event::Connected, 10), Standing::Following);
    assert_eq!(election.take(Event::NotHeld, 20), Standing::Following);
    let first = Standing::Leading {
        term: 1,
        until: 1_000 + LEASE_MS,
    };
    assert_eq!(election.take(Event::Held { sent: 1_000 }, 1_500), first);
    assert_eq!(election.term(1_500), Some(1));
    // An older answer does not shorten the lease.
    assert_eq!(election.take(Event::Held { sent: 900 }, 1_600), first);
    assert_eq!(election.take(Event::Passed, 999 + LEASE_MS), first);
    assert_eq!(
        election.term(1_000 + LEASE_MS),
        None,
        "before anybody has said so, too"
    );
    assert_eq!(
        election.take(Event::Held { sent: 2_000 }, 1_000 + LEASE_MS),
        Standing::Lost
    );
    election.take(Event::Connected, 9_000);
    let second = Standing::Leading {
        term: 2,
        until: 9_000 + LEASE_MS,
    };
    assert_eq!(election.take(Event::Held { sent: 9_000 }, 9_001), second);
    assert_eq!(election.take(Event::NotHeld, 9_002), Standing::Following);
}

#[test]
fn late_answer_makes_nobody_lead() {
    let mut election = Election::default();
    election.take(Event::Connected, 0);
    assert_eq!(
        election.take(Event::Held { sent: 0 }, LEASE_MS),
        Standing::Lost
    );
}

/// Simulated server that gives the lock to one session at a time, and ends sessions from which
/// nothing has arrived for its limit.
#[derive(Default)]
struct Server {
    received: BTreeMap<(usize, u64), u64>,
    holder: Option<(usize, u64)>,
}

impl Server {
    fn pass(&mut self, now: u64) {
        self.received.retain(|_, at| *at + SERVER_LIMIT_MS > now);
        if self
            .holder
            .is_some_and(|holder| !self.received.contains_key(&holder))
        {
            self.holder = None;
        }
    }

    /// Processes a request of a session. Returns true if the session has the lock, `None` if it was
    /// ended.
    fn asked(&mut self, session: (usize, u64), now: u64) -> Option<bool> {
        self.pass(now);
        *self.received.get_mut(&session)? = now;
        Some(*self.holder.get_or_insert(session) == session)
    }
}

/// Simulated controller: its state, its session, and its messages in flight with their times of
/// arrival.
#[derive(Default)]
struct Node {
    election: Election,
    session: u64,
    asks: Vec<(u64, u64, u64)>,
    answers: Vec<(u64, u64, u64, Option<bool>)>,
    terms: u64,
}

#[derive(Debug, Clone)]
enum Step {
    /// A controller opens a new connection.
    Connect(usize),
    /// A controller sends a request; request and answer take this long.
    Ask(usize, u64, u64),
    /// The connection fails on both sides.
    Break(usize),
    /// The connection fails at the controller only; the server receives nothing more from it.
    Abandon(usize),
    /// This much time passes.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..3_usize;
    let delay = prop_oneof![4 => 0..50_u64, 1 => 0..12_000_u64];
    prop_oneof![
        2 => node.clone().prop_map(Step::Connect),
        8 => (node.clone(), delay.clone(), delay)
            .prop_map(|(node, there, back)| Step::Ask(node, there, back)),
        1 => node.clone().prop_map(Step::Break),
        1 => node.prop_map(Step::Abandon),
        8 => (1..1_500_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever is delayed, lost or ended, no two controllers lead at the same time, and terms only
    /// grow.
    #[test]
    fn at_most_one_controller_leads(steps in vec(step(), 1..150)) {
        let mut server = Server::default();
        let mut nodes: [Node; 3] = Default::default();
        let mut now = 0;
        for step in steps {
            let until = match step {
                Step::Pass(time) => now + time,
                _ => now,
            };
            match step {
                Step::Connect(at) => {
                    let node = &mut nodes[at];
                    node.session += 1;
                    server.received.insert((at, node.session), now);
                    node.election.take(Event::Connected, now);
                }
                Step::Ask(at, there, back) => {
                    let node = &mut nodes[at];
                    node.asks.push((now + there, now, node.session));
                    node.answers.push((now + there + back, now, node.session, None));
                }
                Step::Break(at) => {
                    server.received.remove(&(at, nodes[at].session));
                    nodes[at].election.take(Event::Broken, now);
                }
                Step::Abandon(at) => {
                    nodes[at].election.take(Event::Broken, now);
                    nodes[at].session += 1;
                }
                Step::Pass(_) => {}
            }
            loop {
                server.pass(now);
                for (at, node) in nodes.iter_mut().enumerate() {
                    let arrived: Vec<(u64, u64, u64)> = node
                        .asks
                        .extract_if(.., |(when, ..)| *when <= now)
                        .collect();
                    for (_, sent, session) in arrived {
                        let held = server.asked((at, session), now);
                        for answer in &mut node.answers {
                            if (answer.1, answer.2) == (sent, session) {
                                answer.3 = held;
                            }
                        }
                    }
                    let arrived: Vec<_> = node
                        .answers
                        .extract_if(.., |(when, ..)| *when <= now)
                        .collect();
                    for (_, sent, session, held) in arrived {
                        // Answers of a previous connection are ignored.
                        if session == node.session {
                            let event = match held {
                                None => Event::Broken,
                                Some(true) => Event::Held { sent },
                                Some(false) => Event::NotHeld,
                            };
                            node.election.take(event, now);
                        }
                    }
                    if let Some(term) = node.election.term(now) {
                        prop_assert!(term >= node.terms);
                        node.terms = term;
                    }
                }
                let leading: Vec<usize> = (0..3)
                    .filter(|at| nodes[*at].election.term(now).is_some())
                    .collect();
                prop_assert!(leading.len() <= 1, "{leading:?} lead at {now}");
                if let [leader] = leading[..] {
                    prop_assert_eq!(server.holder.map(|(at, _)| at), Some(leader));
                }
                if now >= until {
                    break;
                }
                now = (now + 10).min(until);
            }
        }
    }
}
