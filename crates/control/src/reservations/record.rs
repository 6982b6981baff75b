//! Records of the journal, and the details of reservations in them.

use std::collections::BTreeMap;

use longhaul_circuits::book::JournalEntry;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::MomentMs;
use longhaul_control_api::reservations::SourcePortRange;
use serde::{Deserialize, Serialize};

use super::delegated::RecordedDelegation;
use super::names::NetworkNames;
use super::wanted::{ReservationEnd, path_sites};
use crate::authority::Subject;

/// Details of a reservation that the book does not have. Only `document` and `failure` ever change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationDetail {
    /// Owner: a key as text, or `operator`.
    pub owner: String,
    /// Display name of the owner at the time of the request.
    pub owner_name: String,
    /// Source of the bytes.
    pub from: ReservationEnd,
    /// Destination of the bytes.
    pub to: ReservationEnd,
    /// Purpose, for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// First of the reservations that were granted together, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<ReservationId>,
    /// First of its source ports; `None` if its addresses are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<u16>,
    /// If true, its streams are recognised by ports even with one path.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Packets that use it, if not all between its ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<ReservedPackets>,
    /// If true, its paths are set up in its window once it is committed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provision: bool,
    /// Signed document that requested it. Of several that were granted together, only the first
    /// remaining one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Delegation under which the owner's delegate requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<RecordedDelegation>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Time of the request.
    pub created: MomentMs,
}

/// Packets that use a reservation, of those between its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedPackets {
    /// Source ports, if the request names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<SourcePortRange>,
    /// Number of paths that share the source ports.
    pub paths: u16,
    /// Differentiated services code point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl ReservationDetail {
    /// Returns the subject of requests by that owner about this reservation.
    #[must_use]
    pub fn subject(&self, owner: &str) -> Subject {
        Subject {
            own: self.owner == owner,
            sites: path_sites(&self.from, &self.to),
        }
    }

    /// Returns the source ports that the request names.
    #[must_use]
    pub fn own_ports(&self) -> Option<SourcePortRange> {
        self.packets.and_then(|packets| packets.source_ports)
    }

    /// Returns the differentiated services code point of its packets.
    #[must_use]
    pub fn dscp(&self) -> Option<u8> {
        self.packets.and_then(|packets| packets.dscp)
    }
}

/// Journal record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The map from here on.
    Network(NetworkNames),
    /// Entry of the book, with the details of new reservations.
    Entry {
        /// The entry.
        entry: Box<JournalEntry>,
        /// Details by reservation.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        details: BTreeMap<ReservationId, ReservationDetail>,
    },
}
