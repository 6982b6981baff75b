//! The attacks, and how many peers take part in each.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::plans::plan;

/// Program under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Victim {
    /// `longhaul serve`.
    Serve,
    /// `longhaul depot`.
    Depot,
}

/// Plan of an attack: an entry of `plans/attacks.toml`.
#[derive(Deserialize)]
struct Plan {
    victim: Victim,
    title: &'static str,
}

/// An attack on the service of honest peers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Connections of silent strangers, from four addresses.
    IdleAtServe,
    /// Connections of strangers with half an OPEN, from four addresses.
    HalfOpensAtServe,
    /// Connections of strangers that send invalid data.
    GarbageAtServe,
    /// Connections of silent strangers, from four addresses.
    IdleAtDepot,
    /// Connections of silent strangers, from five hundred addresses.
    IdleFromManyAtDepot,
    /// Connections of strangers that send invalid data.
    GarbageAtDepot,
    /// Valid OPENs of a listed key that the policy refuses.
    RefusedOpens,
    /// OPENs in the name of a listed key with false signatures.
    ForgedOpens,
    /// OPENs of a listed key for names for which no name server answers.
    SlowNames,
    /// A key with read access holds copies whose data it does not take.
    HeldCopies,
    /// A key with read access holds streams.
    HeldStreams,
    /// A key with write access begins files and ends none.
    OpenFiles,
    /// A key with write access reports failures without end.
    Failures,
    /// A key with write access sends holes of a large file.
    Holes,
    /// A key with write access sends blocks that are never adjacent.
    Scattered,
}

impl Attack {
    fn plan(self) -> Option<&'static Plan> {
        static PLANS: LazyLock<BTreeMap<Attack, Plan>> =
            LazyLock::new(|| plan(include_str!("../../../plans/attacks.toml")));
        PLANS.get(&self)
    }

    /// Returns the program under attack.
    pub fn victim(self) -> Victim {
        self.plan().map_or(Victim::Serve, |plan| plan.victim)
    }

    /// Returns a description in one line.
    pub fn title(self) -> &'static str {
        self.plan().map_or("", |plan| plan.title)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_attack_is_planned() {
        for attack in Attack::value_variants() {
            assert!(!attack.title().is_empty(), "{attack:?}");
        }
    }
}
