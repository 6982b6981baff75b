//! Orders of a decider: a few actions, each with its cause, and at most one piece of advice.

use crate::{Action, Advice, Cause};

/// Maximum number of actions per decision.
pub(crate) const MAX_ACTIONS: usize = 4;

/// A fixed-size list, so that deciding never allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Orders {
    list: [Option<(Action, Cause)>; MAX_ACTIONS],
    pub advice: Option<Advice>,
}

impl Orders {
    pub(crate) fn one(action: Action, cause: Cause) -> Self {
        Self::default().and(action, cause)
    }

    /// Returns the advice without the actions.
    pub(crate) fn advice_only(&self) -> Self {
        self.advice.map_or_else(Self::default, Self::advise)
    }

    pub(crate) fn advise(advice: Advice) -> Self {
        Self {
            advice: Some(advice),
            ..Self::default()
        }
    }

    /// Adds an action. One that does not fit is left for the next decision.
    #[must_use]
    pub(crate) fn and(mut self, action: Action, cause: Cause) -> Self {
        if let Some(free) = self.list.iter_mut().find(|slot| slot.is_none()) {
            *free = Some((action, cause));
        }
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Action, Cause)> + '_ {
        self.list.iter().flatten().copied()
    }
}
