//! The attacks, and how many peers take part in each.

use serde::{Deserialize, Serialize};

/// Program under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// `longhaul serve`.
    Serve,
    /// `longhaul depot`.
    Depot,
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
    /// Returns the program under attack.
    pub fn victim(self) -> Victim {
        match self {
            Self::IdleAtDepot
            | Self::IdleFromManyAtDepot
            | Self::GarbageAtDepot
            | Self::RefusedOpens
            | Self::ForgedOpens
            | Self::SlowNames => Victim::Depot,
            _ => Victim::Serve,
        }
    }

    /// Returns a description in one line.
    pub fn title(self) -> &'static str {
        match self {
            Self::IdleAtServe => {
                "serve: 1,400 idle connections from 4 addresses, up to 1,500 made a second"
            }
            Self::HalfOpensAtServe => {
                "serve: 1,400 connections with half an OPEN from 4 addresses, up to 1,500 made a \
                 second"
            }
            Self::GarbageAtServe => {
                "serve: up to 2,000 connections a second that say something else"
            }
            Self::IdleAtDepot => {
                "depot: 1,400 idle connections from 4 addresses, up to 1,500 made a second"
            }
            Self::IdleFromManyAtDepot => {
                "depot: 2,000 idle connections from 500 addresses, up to 1,500 made a second"
            }
            Self::GarbageAtDepot => {
                "depot: up to 2,000 connections a second that say something else"
            }
            Self::RefusedOpens => "depot: 66,000 valid OPENs of a listed key, refused by policy",
            Self::ForgedOpens => {
                "depot: up to 2,000 OPENs a second in a listed key's name, falsely signed"
            }
            Self::SlowNames => {
                "depot: 96 OPENs at a time of a listed key, for names nobody answers for"
            }
            Self::HeldCopies => "serve: a reading key holds 64 copies",
            Self::HeldStreams => "serve: a reading key holds 520 streams",
            Self::OpenFiles => "serve: a writing key begins 28,000 files over 7 streams",
            Self::Failures => "serve: a writing key reports failures over 4 streams",
            Self::Holes => "serve: a writing key sends holes of 1 MiB over 4 streams",
            Self::Scattered => "serve: a writing key sends scattered blocks over 4 streams",
        }
    }
}
