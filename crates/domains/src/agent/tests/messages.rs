//! Single messages to one agent: a provider with its own book only.

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::domains::{
    CorrelationId, Criteria, DomainName, Header, Message, MessageBody, ProblemReason, Shape,
};
use proptest::prelude::*;

use super::world::{HOLD, Row, TIMING, criteria, domain};
use crate::agent::{
    AgentLimits, BookCommand, BookResult, DomainAgent, Effect, MessageFault, Outcome,
};
use crate::connection::{Connection, Phase};

/// Agent of `d1`, asked by `d0`.
struct Provider {
    agent: DomainAgent,
    now: MomentMs,
}

fn wanted() -> Criteria {
    criteria(1, 1, Shape::Tree)
}

fn reserve() -> MessageBody {
    MessageBody::Reserve {
        criteria: wanted(),
        path_trace: vec![domain(0)],
    }
}

impl Provider {
    fn new() -> Self {
        let limits = AgentLimits {
            connections_per_requester: 3,
        };
        let agent = DomainAgent::restore(domain(1), TIMING, limits, Vec::<Connection>::new(), 0);
        Self { agent, now: 0 }
    }

    fn receive(&mut self, global: &str, body: MessageBody) -> Result<Outcome, MessageFault> {
        let header = Header {
            correlation_id: "c1".parse().unwrap(),
            requester_nsa: domain(0),
            provider_nsa: domain(1),
            global_reservation_id: global.parse().unwrap(),
            connection_id: None,
        };
        let message = Message { header, body };
        self.agent.receive(&domain(0), message, &Row(1), self.now)
    }

    /// Returns the bodies of the answers to a message.
    fn answers(&mut self, body: MessageBody) -> Vec<MessageBody> {
        sent(self.receive("g1", body).unwrap())
    }

    fn record(&mut self, result: BookResult) -> Vec<MessageBody> {
        let id = "d1:d0/g1".parse().unwrap();
        let recorded = self.agent.record_result(&id, 0, result, self.now);
        sent(recorded.unwrap())
    }

    fn phase(&self) -> Phase {
        let id = "d1:d0/g1".parse().unwrap();
        self.agent.connection(&id).unwrap().phase
    }

    /// Reserves and holds.
    fn hold(&mut self) {
        assert_eq!(self.answers(reserve()), []);
        let confirmed = self.record(BookResult::Held {
            reservation: 7,
            hold_ms: HOLD,
        });
        assert!(matches!(
            confirmed[..],
            [MessageBody::ReserveConfirmed { hold_ms: HOLD, .. }]
        ));
    }

    /// Holds and promises.
    fn promise(&mut self) {
        self.hold();
        assert_eq!(self.answers(MessageBody::ReserveCommit), []);
        let confirmed = self.record(BookResult::Promised);
        let lease_ms = TIMING.confirm;
        assert_eq!(
            confirmed,
            [MessageBody::ReserveCommitConfirmed { lease_ms }]
        );
    }
}

fn sent(outcome: Outcome) -> Vec<MessageBody> {
    let effects = outcome.effects.into_iter();
    effects
        .filter_map(|effect| match effect {
            Effect::Send(message) => Some(message.body),
            Effect::Book { .. } => None,
        })
        .collect()
}

fn reason(bodies: &[MessageBody]) -> ProblemReason {
    match bodies {
        [
            MessageBody::ServiceException { problem }
            | MessageBody::ReserveFailed { problem }
            | MessageBody::ReserveCommitFailed { problem }
            | MessageBody::ErrorEvent { problem },
        ] => problem.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn message_of_another_domain_is_refused() {
    let mut provider = Provider::new();
    let header = |requester: DomainName, provider: DomainName| Header {
        correlation_id: "c1".parse::<CorrelationId>().unwrap(),
        requester_nsa: requester,
        provider_nsa: provider,
        global_reservation_id: "g1".parse().unwrap(),
        connection_id: None,
    };
    for (header, is_receiver) in [
        (header(domain(2), domain(1)), false),
        (header(domain(0), domain(2)), true),
    ] {
        let body = reserve();
        let message = Message { header, body };
        let refused = provider.agent.receive(&domain(0), message, &Row(1), 0);
        match refused.unwrap_err() {
            MessageFault::Receiver { .. } => assert!(is_receiver),
            MessageFault::Sender { .. } => assert!(!is_receiver),
            other => panic!("{other}"),
        }
    }
    assert_eq!(provider.agent.connections().count(), 0);
}

#[test]
fn requests_for_unknown_segments_have_no_effect() {
    let mut provider = Provider::new();
    for body in [
        MessageBody::ReserveCommit,
        MessageBody::ReserveAbort,
        MessageBody::Renew,
        MessageBody::Terminate,
        MessageBody::Provision { sequence: 1 },
    ] {
        let answers = provider.answers(body);
        assert_eq!(reason(&answers), ProblemReason::NoSuchConnection);
    }
    assert_eq!(provider.agent.connections().count(), 0);
}

#[test]
fn requester_has_a_share_of_connections() {
    let mut provider = Provider::new();
    for global in ["g1", "g2", "g3"] {
        provider.receive(global, reserve()).unwrap();
    }
    let refused = provider.receive("g4", reserve()).unwrap_err();
    assert!(matches!(refused, MessageFault::Full(..)));
    // A repeated request needs no further share.
    assert!(provider.receive("g3", reserve()).is_ok());
    let long = provider.receive(&"g".repeat(65), reserve()).unwrap_err();
    assert_eq!(long, MessageFault::GlobalId);
}

#[test]
fn repeated_request_gets_the_same_answer() {
    let mut provider = Provider::new();
    provider.hold();
    provider.now = 3;
    let again = provider.answers(reserve());
    let hold_ms = HOLD - 3;
    let [MessageBody::ReserveConfirmed { hold_ms: left, .. }] = again[..] else {
        panic!("{again:?}");
    };
    assert_eq!(left, hold_ms);
    let other = MessageBody::Reserve {
        criteria: Criteria {
            capacity_bps: 2,
            ..wanted()
        },
        path_trace: vec![domain(0)],
    };
    let answers = provider.answers(other);
    assert_eq!(reason(&answers), ProblemReason::InvalidTransition);
}

#[test]
fn loops_and_long_paths_are_refused() {
    for path_trace in [vec![domain(0), domain(1)], vec![domain(0); 16]] {
        let mut provider = Provider::new();
        let answers = provider.answers(MessageBody::Reserve {
            criteria: wanted(),
            path_trace,
        });
        assert_eq!(reason(&answers), ProblemReason::NoPath);
        assert_eq!(provider.phase(), Phase::Terminated);
    }
}

#[test]
fn expired_hold_cannot_be_committed() {
    let mut provider = Provider::new();
    provider.hold();
    provider.now = MomentMs::try_from(HOLD).unwrap();
    let outcome = provider.receive("g1", MessageBody::ReserveCommit).unwrap();
    let cancels = outcome.effects.iter().any(|effect| {
        matches!(effect, Effect::Book { command, .. } if *command == BookCommand::Cancel(Some(7)))
    });
    assert!(cancels, "{outcome:?}");
    let answers: Vec<MessageBody> = sent(outcome)
        .into_iter()
        .filter(|body| *body != MessageBody::ReserveTimeout)
        .collect();
    assert_eq!(reason(&answers), ProblemReason::Expired);
}

#[test]
fn expired_hold_is_reported_until_acknowledged() {
    let mut provider = Provider::new();
    provider.hold();
    let mut reports = 0;
    for _ in 0..3 {
        provider.now = provider.agent.next_due().unwrap();
        let bodies = sent(provider.agent.advance(provider.now));
        reports += bodies
            .iter()
            .filter(|body| **body == MessageBody::ReserveTimeout)
            .count();
    }
    assert!(reports >= 2, "{reports}");
    provider.record(BookResult::Ended(None));
    assert_eq!(provider.answers(MessageBody::NotificationAcknowledged), []);
    assert_eq!(provider.phase(), Phase::Terminated);
    provider.now += 100;
    assert_eq!(sent(provider.agent.advance(provider.now)), []);
}

#[test]
fn promise_lapses_unless_it_is_renewed() {
    let mut provider = Provider::new();
    provider.promise();
    let renewed = provider.answers(MessageBody::Renew);
    let lease_ms = TIMING.lease;
    assert_eq!(renewed, [MessageBody::RenewConfirmed { lease_ms }]);
    provider.now = MomentMs::try_from(TIMING.lease).unwrap();
    let outcome = provider.agent.advance(provider.now);
    assert_eq!(provider.phase(), Phase::Terminating);
    assert_eq!(reason(&sent(outcome)), ProblemReason::Expired);
    let answers = provider.answers(MessageBody::Renew);
    assert_eq!(reason(&answers), ProblemReason::Expired);
}

#[test]
fn promise_cannot_be_aborted_or_set_up_before_all_have_promised() {
    let mut provider = Provider::new();
    provider.promise();
    for body in [
        MessageBody::ReserveAbort,
        MessageBody::Provision { sequence: 1 },
    ] {
        let answers = provider.answers(body);
        assert_eq!(reason(&answers), ProblemReason::InvalidTransition);
    }
    assert_eq!(provider.phase(), Phase::Committed);
}

#[test]
fn late_request_does_not_undo_a_newer_one() {
    let mut provider = Provider::new();
    provider.promise();
    provider.answers(MessageBody::Renew);
    provider.answers(MessageBody::Provision { sequence: 1 });
    provider.answers(MessageBody::Release { sequence: 2 });
    assert_eq!(
        provider.record(BookResult::SetProvisioned(2)),
        [MessageBody::ReleaseConfirmed { sequence: 2 }]
    );
    assert_eq!(provider.answers(MessageBody::Provision { sequence: 1 }), []);
    let id = "d1:d0/g1".parse().unwrap();
    let connection = provider.agent.connection(&id).unwrap();
    assert!(!connection.is_provisioned);
}

#[test]
fn ended_connections_are_forgotten() {
    let mut provider = Provider::new();
    provider.hold();
    provider.answers(MessageBody::Terminate);
    let ended = provider.record(BookResult::Ended(None));
    assert_eq!(ended, [MessageBody::TerminateConfirmed]);
    provider.now += MomentMs::try_from(TIMING.memory).unwrap();
    let outcome = provider.agent.advance(provider.now);
    assert_eq!(outcome.changed.len(), 1);
    assert_eq!(provider.agent.connections().count(), 0);
}

fn bodies() -> impl Strategy<Value = MessageBody> {
    let sequence = 0..3_u32;
    prop_oneof![
        Just(reserve()),
        Just(MessageBody::ReserveCommit),
        Just(MessageBody::ReserveAbort),
        Just(MessageBody::Renew),
        Just(MessageBody::Terminate),
        Just(MessageBody::NotificationAcknowledged),
        sequence
            .clone()
            .prop_map(|sequence| MessageBody::Provision { sequence }),
        sequence.prop_map(|sequence| MessageBody::Release { sequence }),
    ]
}

proptest! {
    /// However a peer misbehaves: phases never go back, and nothing outlives its time.
    #[test]
    fn any_messages_keep_the_order_of_phases(
        steps in prop::collection::vec((bodies(), 0..15_i64, any::<bool>()), 0..60),
    ) {
        let mut provider = Provider::new();
        let id = "d1:d0/g1".parse().unwrap();
        let mut before = Phase::Reserving;
        let mut commands: Vec<BookCommand> = Vec::new();
        for (body, pause, runs_book) in steps {
            provider.now += pause;
            let mut outcome = provider.receive("g1", body).unwrap();
            outcome.effects.extend(provider.agent.advance(provider.now).effects);
            commands.extend(outcome.effects.into_iter().filter_map(|effect| match effect {
                Effect::Book { command, .. } => Some(command),
                Effect::Send(_) => None,
            }));
            if runs_book && let Some(command) = commands.pop() {
                let result = match command {
                    BookCommand::Reserve(_) => BookResult::Held { reservation: 7, hold_ms: HOLD },
                    BookCommand::Commit(_) => BookResult::Promised,
                    BookCommand::Cancel(_) => BookResult::Ended(None),
                    BookCommand::SetProvisioned { sequence, .. } => {
                        BookResult::SetProvisioned(sequence)
                    }
                };
                provider.agent.record_result(&id, 0, result, provider.now).unwrap();
            }
            if let Some(connection) = provider.agent.connection(&id) {
                prop_assert!(connection.phase >= before);
                before = connection.phase;
                let ends = connection.phase >= Phase::Terminating;
                prop_assert!(ends || connection.until > provider.now);
            }
        }
    }
}
