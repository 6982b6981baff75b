//! Sessions and rates in use, by rule.
//!
//! Usage is counted by a rule's name, so it survives a reload. A rule whose name stays keeps its
//! count and its token buckets, whatever else changed, and its new bounds apply to current
//! sessions, too. A rule that is removed stays counted until its last session has ended, in case it
//! returns. Its sessions keep their rate.
#![deny(clippy::indexing_slicing)]

mod counts;

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_hop::RateLimits;
use parking_lot::{Mutex, MutexGuard};

use crate::{Policy, Rule};
pub use counts::NoPermit;
use counts::SessionCounts;

/// Sessions and rates of all rules.
#[derive(Debug)]
pub struct RuleUsage(Mutex<UsageState>);

#[derive(Debug, Default)]
struct UsageState {
    counts: SessionCounts,
    /// Rate limits of the rules in `counts`.
    limits: HashMap<Arc<str>, RateLimits>,
}

/// Permit of one session under its rule, returned when dropped.
#[derive(Debug)]
pub struct RuleSession {
    live: Arc<RuleUsage>,
    rule: Arc<str>,
    limits: RateLimits,
}

impl RuleUsage {
    /// Creates the counters of the policy in force.
    #[must_use]
    pub fn new(policy: &Policy) -> Arc<Self> {
        let live = Self(Mutex::default());
        live.reload(policy);
        Arc::new(live)
    }

    /// Adopts the bounds of a new policy in force.
    pub fn reload(&self, policy: &Policy) {
        let mut state = self.state();
        let UsageState { counts, limits } = &mut *state;
        counts.reload(policy.rules().map(|rule| (&rule.name, rule.max_sessions)));
        limits.retain(|name, _| counts.knows(name));
        for rule in policy.rules() {
            match limits.get(&rule.name) {
                Some(limits) => limits.set(rule.max_rate),
                None => drop(limits.insert(Arc::clone(&rule.name), RateLimits::new(rule.max_rate))),
            }
        }
    }

    /// Takes a permit for one more session of a rule, looked up by name.
    ///
    /// # Errors
    /// [`NoPermit`], according to the policy in force now, which may be newer than the one of
    /// `rule`.
    pub fn admit_session(self: &Arc<Self>, rule: &Rule) -> Result<RuleSession, NoPermit> {
        let mut state = self.state();
        let limits = state.limits.get(&rule.name).ok_or(NoPermit::Gone)?.clone();
        state.counts.enter(&rule.name)?;
        Ok(RuleSession {
            live: Arc::clone(self),
            rule: Arc::clone(&rule.name),
            limits,
        })
    }

    fn state(&self) -> MutexGuard<'_, UsageState> {
        self.0.lock()
    }
}

impl RuleSession {
    /// Returns the name of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the rate limits of the rule.
    #[must_use]
    pub fn limits(&self) -> RateLimits {
        self.limits.clone()
    }
}

impl Drop for RuleSession {
    fn drop(&mut self) {
        let mut state = self.live.state();
        state.counts.leave(&self.rule);
        if !state.counts.knows(&self.rule) {
            state.limits.remove(&self.rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use longhaul_hop::{DrawOutcome, RateLimit};

    fn policy(rules: &[(&str, &str)]) -> Policy {
        let rule = |(name, more): &(&str, &str)| {
            format!(
                "[[allow]]\nname = \"{name}\"\nprincipals = [\"*\"]\n\
                to = [\"192.0.2.0/24\"]\n{more}\n"
            )
        };
        let text: String = rules.iter().map(rule).collect();
        Policy::parse(&text, Path::new("p.toml")).expect(&text)
    }

    fn enter(live: &Arc<RuleUsage>, policy: &Policy, name: &str) -> Result<RuleSession, NoPermit> {
        let rule = policy.rules().find(|rule| &*rule.name == name);
        live.admit_session(rule.expect(name))
    }

    /// Draws all tokens of a limit, and returns their number.
    fn drain(limit: &RateLimit) -> usize {
        let mut drawn = 0;
        while let DrawOutcome::Bytes(n) = limit.draw(64 * 1024) {
            drawn += n;
        }
        drawn
    }

    #[tokio::test(start_paused = true)]
    async fn reload_does_not_refill_the_bucket() {
        let capped = policy(&[("a", "max_rate = \"80 Mbit/s\"")]);
        let live = RuleUsage::new(&capped);
        let session = enter(&live, &capped, "a").expect("a place");
        assert_eq!(drain(&session.limits().forward), 1_000_000);
        for _ in 0..10 {
            live.reload(&capped);
            let another = enter(&live, &capped, "a").expect("a place");
            assert_eq!(
                drain(&another.limits().forward),
                0,
                "the rule's burst is used"
            );
        }
        assert_eq!(
            drain(&session.limits().backward),
            1_000_000,
            "each way for itself"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn new_rate_applies_to_current_sessions() {
        let policies = [
            policy(&[("a", "")]),
            policy(&[("a", "max_rate = \"80 Mbit/s\"")]),
            policy(&[("a", "max_rate = \"8 Mbit/s\"")]),
        ];
        let live = RuleUsage::new(&policies[0]);
        let session = enter(&live, &policies[0], "a").expect("a place");
        let limit = session.limits().forward;
        assert_eq!(
            limit.draw(usize::MAX),
            DrawOutcome::Bytes(usize::MAX),
            "no cap"
        );
        live.reload(&policies[1]);
        assert_eq!(drain(&limit), 1_000_000);
        live.reload(&policies[2]);
        tokio::time::advance(std::time::Duration::from_millis(50)).await;
        assert_eq!(drain(&limit), 50_000, "a megabyte a second");
        live.reload(&policies[0]);
        assert_eq!(
            limit.draw(usize::MAX),
            DrawOutcome::Bytes(usize::MAX),
            "no cap again"
        );
    }

    #[test]
    fn removed_rule_is_counted_until_its_sessions_end() {
        let (one, none) = (policy(&[("a", "max_sessions = 1")]), policy(&[]));
        let live = RuleUsage::new(&one);
        let session = enter(&live, &one, "a").expect("a place");
        live.reload(&none);
        assert_eq!(enter(&live, &one, "a").expect_err("gone"), NoPermit::Gone);
        live.reload(&one);
        assert_eq!(enter(&live, &one, "a").expect_err("full"), NoPermit::Full);
        live.reload(&none);
        drop(session);
        assert!(
            live.state().limits.is_empty(),
            "nothing is kept for a rule that is gone"
        );
        live.reload(&one);
        enter(&live, &one, "a").expect("a place");
    }
}
