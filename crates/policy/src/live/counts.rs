//! Numbers of sessions, by the name of their rule.
#![deny(clippy::indexing_slicing)]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Number and maximum of each rule's sessions. It contains the rules in force, and former rules
/// that still have sessions.
#[derive(Debug, Default)]
pub(super) struct Counts(HashMap<Arc<str>, Count>);

#[derive(Debug)]
struct Count {
    sessions: usize,
    bound: Bound,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    /// The rule is no longer in force and admits no sessions.
    Gone,
    /// The rule admits this many sessions at a time; any number if `None`.
    InForce(Option<NonZeroUsize>),
}

/// Reason why a rule admits no further session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// The rule has its maximum number of sessions.
    Full,
    /// The rule is no longer in force.
    Gone,
}

impl Counts {
    /// Sets the rules in force: their names, and the maximum number of sessions of each.
    pub(super) fn reload<'a>(
        &mut self,
        rules: impl IntoIterator<Item = (&'a Arc<str>, Option<NonZeroUsize>)>,
    ) {
        for count in self.0.values_mut() {
            count.bound = Bound::Gone;
        }
        for (name, max) in rules {
            let sessions = self.0.get(name).map_or(0, |count| count.sessions);
            let bound = Bound::InForce(max);
            self.0.insert(Arc::clone(name), Count { sessions, bound });
        }
        self.0.retain(|_, count| !count.is_over());
    }

    /// Counts one more session of the rule `name`, if it admits one.
    pub(super) fn enter(&mut self, name: &str) -> Result<(), NoPlace> {
        let count = self.0.get_mut(name).ok_or(NoPlace::Gone)?;
        match count.bound {
            Bound::Gone => Err(NoPlace::Gone),
            Bound::InForce(Some(max)) if count.sessions >= max.get() => Err(NoPlace::Full),
            Bound::InForce(_) => {
                count.sessions = count.sessions.saturating_add(1);
                Ok(())
            }
        }
    }

    /// Counts one session less. Must be called exactly once for each session that has entered.
    pub(super) fn leave(&mut self, name: &str) {
        if let Some(count) = self.0.get_mut(name) {
            count.sessions = count.sessions.saturating_sub(1);
            if count.is_over() {
                self.0.remove(name);
            }
        }
    }

    /// Returns true if the rule `name` is in force or has sessions.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl Count {
    const fn is_over(&self) -> bool {
        matches!(self.bound, Bound::Gone) && self.sessions == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{hash_map, vec};
    use proptest::prelude::*;

    use super::*;

    /// Names and bounds of the rules in force.
    type Rules = HashMap<usize, Option<usize>>;

    #[derive(Debug, Clone)]
    enum Step {
        Enter(usize),
        /// The session with this number, modulo the number of sessions.
        Leave(usize),
        Reload(Rules),
    }

    fn rules() -> impl Strategy<Value = Rules> {
        hash_map(0..3usize, prop::option::of(1..4usize), 0..4)
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3usize).prop_map(Step::Enter),
            2 => any::<usize>().prop_map(Step::Leave),
            1 => rules().prop_map(Step::Reload),
        ]
    }

    fn name(rule: usize) -> Arc<str> {
        format!("rule {rule}").into()
    }

    fn reload(counts: &mut Counts, rules: &Rules) {
        let named: Vec<_> = rules
            .iter()
            .map(|(rule, max)| (name(*rule), max.and_then(NonZeroUsize::new)))
            .collect();
        counts.reload(named.iter().map(|(name, max)| (name, *max)));
    }

    proptest! {
        /// Admissions and counts match a plain list of sessions.
        #[test]
        fn reloads_keep_counts_and_maximums(
            first in rules(),
            steps in vec(step(), 0..60),
        ) {
            let mut counts = Counts::default();
            let mut in_force = first;
            reload(&mut counts, &in_force);
            let mut under_way: Vec<usize> = Vec::new();
            for step in steps {
                match step {
                    Step::Enter(rule) => {
                        let before = under_way.iter().filter(|of| **of == rule).count();
                        let expected = match in_force.get(&rule) {
                            None => Err(NoPlace::Gone),
                            Some(Some(max)) if before >= *max => Err(NoPlace::Full),
                            Some(_) => Ok(()),
                        };
                        prop_assert_eq!(counts.enter(&name(rule)), expected);
                        under_way.extend(expected.ok().map(|()| rule));
                    }
                    Step::Leave(_) if under_way.is_empty() => {}
                    Step::Leave(number) => {
                        let rule = under_way.swap_remove(number % under_way.len());
                        counts.leave(&name(rule));
                    }
                    Step::Reload(rules) => {
                        in_force = rules;
                        reload(&mut counts, &in_force);
                    }
                }
                for rule in 0..3 {
                    let expected = under_way.iter().filter(|of| **of == rule).count();
                    let counted = counts.0.get(&name(rule)).map(|count| count.sessions);
                    prop_assert_eq!(counted.unwrap_or(0), expected);
                    let known = expected > 0 || in_force.contains_key(&rule);
                    prop_assert_eq!(counts.knows(&name(rule)), known, "nothing is kept for ever");
                }
            }
        }
    }
}
