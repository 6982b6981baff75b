//! Choice of the next hop, and the dial: depots of the forwarding table before a loose hop, then
//! the hop itself (LH-ROUTE-9).

use std::time::Duration;

use longhaul_hop::{DialledConnection, Payer};
use longhaul_policy::{
    AccessRequest, Candidates, NoPermit, Policy, ResolvedTarget, RuleSession, StatedWishes,
    Unreachable,
};
use longhaul_proto::{Hop, NextReceiver, Open, StatusCode};
use tokio::time::Instant;

use crate::dial::{policy_refusal, policy_request};
use crate::metrics::TransportLabel;
use crate::refusal::DepotRefusal;
use crate::state::DepotState;

/// Maximum time for an attempt, unless it is the last. A depot that does not answer delays each
/// session by this much.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Receivers that the literal policy lets an OPEN go to, in the order in which they are tried.
pub(crate) struct NextHops {
    attempts: Vec<Attempt>,
    /// If true, a rule lists the principal's key.
    pub(crate) lists_principal: bool,
}

/// One receiver.
struct Attempt {
    /// Depot to add; `None` for the next receiver of the OPEN.
    added: Option<Hop>,
    candidates: Candidates,
}

/// A next hop that was dialled.
pub(crate) struct DialledHop {
    pub(crate) target: ResolvedTarget,
    pub(crate) rule: RuleSession,
    pub(crate) connection: DialledConnection,
    /// The depot that was added, if it is one.
    pub(crate) added: Option<Hop>,
}

impl NextHops {
    /// Finds the receivers of `open`. No name is resolved (LH-ADMIT-2).
    ///
    /// # Errors
    /// The refusal, if the OPEN is not for a depot, or only the wishes that it states prevent it
    /// (LH-WISH-1).
    pub(crate) fn find(
        shared: &DepotState,
        policy: &Policy,
        open: &Open,
    ) -> Result<Self, DepotRefusal> {
        let own = shared.dialler.own_addresses();
        let wishes = StatedWishes::from(open);
        let candidates = |asked| {
            policy
                .candidates(&open.principal, asked, &own)
                .retain_within(&wishes)
        };
        let (table, me) = (shared.forwarding.table(), shared.key.public());
        let added = table.next_hops(open, &me);
        let added = added.filter_map(|hop| {
            let candidates = candidates(added_request(open, hop)).ok()?;
            Some(Attempt {
                added: Some(hop.clone()),
                candidates,
            })
        });
        let mut attempts: Vec<Attempt> = added.collect();
        attempts.retain(Attempt::is_allowed);
        match candidates(policy_request(open)?) {
            Ok(candidates) => attempts.push(Attempt {
                added: None,
                candidates,
            }),
            Err(unmet) if attempts.is_empty() => return Err(Unreachable::from_unmet(&unmet).into()),
            Err(_) => {}
        }
        attempts.retain(Attempt::is_allowed);
        let lists_principal = attempts.iter().any(|attempt| attempt.candidates.listed);
        Ok(Self {
            attempts,
            lists_principal,
        })
    }

    /// Returns true if no rule allows any of them.
    pub(crate) const fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Dials them in turn until one answers. All but the last have half of the time left, and at
    /// most [`ATTEMPT_TIMEOUT`].
    pub(crate) async fn dial(
        self,
        shared: &DepotState,
        open: &Open,
        payer: Payer,
        limit: Instant,
    ) -> Result<DialledHop, DepotRefusal> {
        let mut attempts = self.attempts.into_iter().peekable();
        let mut failure = None;
        while let Some(attempt) = attempts.next() {
            let now = Instant::now();
            let limit = match attempts.peek() {
                Some(_) => now + (limit.saturating_duration_since(now) / 2).min(ATTEMPT_TIMEOUT),
                None => limit,
            };
            let added = attempt.added.clone();
            let dialled = attempt.dial(shared, open, payer, limit).await;
            match (dialled, added) {
                (Ok(dialled), None) => return Ok(dialled),
                (Ok(dialled), Some(hop)) => {
                    shared.forwarding.record_success(&hop);
                    shared.metrics.count_added_hop("dialled");
                    return Ok(dialled);
                }
                (Err(why), None) => failure = Some(why),
                (Err(why), Some(hop)) => {
                    shared.forwarding.record_failure(&hop, &why);
                    shared.metrics.count_added_hop("failed");
                    failure = Some(why.tried(hop.endpoint));
                }
            }
        }
        // There is at least one, or the OPEN was refused.
        Err(failure.unwrap_or_else(|| policy_refusal(open)))
    }
}

impl Attempt {
    fn is_allowed(&self) -> bool {
        !self.candidates.rules.is_empty()
    }

    /// Finds the addresses by the policy, takes a permit under its rule, and connects.
    async fn dial(
        self,
        shared: &DepotState,
        open: &Open,
        payer: Payer,
        limit: Instant,
    ) -> Result<DialledHop, DepotRefusal> {
        let Self { added, candidates } = self;
        let asked = match &added {
            Some(hop) => added_request(open, hop),
            None => policy_request(open)?,
        };
        let (key, transport) = match &added {
            Some(hop) => (hop.key, hop.transport),
            None => (open.next_receiver().key(), open.next_transport()),
        };
        let target = shared
            .dialler
            .authorise(candidates, asked, payer, limit)
            .await?;
        let rule = take_permit(shared, &target, asked)?;
        let began = Instant::now();
        let connection = shared
            .dialler
            .dial(&target, key, transport, open.rate, limit)
            .await?;
        shared.metrics.observe_dial_time(began.elapsed());
        let transport = TransportLabel::new(connection.conn.transport().as_str());
        shared.metrics.dialled.get_or_create(&transport).inc();
        Ok(DialledHop {
            target,
            rule,
            connection,
            added,
        })
    }
}

/// Takes a session's permit under the rule that allows `target`.
fn take_permit(
    shared: &DepotState,
    target: &ResolvedTarget,
    asked: AccessRequest<'_>,
) -> Result<RuleSession, DepotRefusal> {
    let admitted = shared.policy.live().admit_session(&target.rule);
    admitted.map_err(|no| match no {
        NoPermit::Full => DepotRefusal::new(
            StatusCode::Overloaded,
            format!(
                "{}: its maximum number of sessions is reached (max_sessions)",
                target.rule.name()
            ),
        ),
        // The policy changed while the name was looked up.
        NoPermit::Gone => Unreachable::not_allowed(asked).into(),
    })
}

/// Returns the request that `open` makes of the policy if `hop` is added before its loose hop.
const fn added_request<'a>(open: &'a Open, hop: &'a Hop) -> AccessRequest<'a> {
    AccessRequest::Relay {
        destination: &open.destination,
        next: NextReceiver::Hop(hop),
    }
}
