//! Settings of a domain: `[domain]` in `control.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_control_api::domains::{DomainName, TerminationPoint};
use longhaul_control_client::ServiceUrl;
use longhaul_domains::timing::Timing;
use longhaul_proto::PublicKey;
use serde::Deserialize;

/// Maximum number of peers, and of edges.
const MAX_PEERS: usize = longhaul_control_api::domains::MAX_EDGES;
/// Range of a lease, in seconds. Renewals are a third of it apart.
const LEASE_RANGE_S: std::ops::RangeInclusive<u64> = 60..=7 * 86_400;

/// Detail in which a domain publishes its available bandwidth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disclosure {
    /// The rates that are left, over time.
    #[default]
    Available,
    /// The reservable rates, whatever is reserved.
    Capacity,
    /// No rates: others learn at their request whether it fits.
    Nothing,
}

/// A peer: a domain that may request segments, and of which segments are requested.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSettings {
    /// URL of its controller.
    pub url: String,
    /// Key of its controller. Requests that this key signs are the domain's.
    pub key: String,
}

/// An edge: a site of the map that stands for the end of a link to a neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeSettings {
    /// The neighbour's edge on the same link, as `DOMAIN:EDGE`.
    pub peer: String,
}

/// Settings as they are written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainText {
    /// Name of the domain.
    pub name: String,
    /// Peers by name.
    #[serde(default)]
    pub peers: BTreeMap<String, PeerSettings>,
    /// Edges by the name of their site.
    #[serde(default)]
    pub edges: BTreeMap<String, EdgeSettings>,
    /// Published detail.
    #[serde(default)]
    pub disclose: Disclosure,
    /// Ends whose forecasts others are told.
    #[serde(default)]
    pub forecasts: BTreeSet<String>,
    /// Time for which a promise to a peer lasts without a renewal, in seconds.
    #[serde(default)]
    pub lease_s: Option<u64>,
}

/// Fault of the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainSettingsFault {
    /// A name is invalid.
    #[error("domain: {0}")]
    Name(String),
    /// The URL of a peer is invalid. Write `https://HOST:PORT`.
    #[error("domain.peers.{0}: {1}")]
    Url(String, String),
    /// The key of a peer is invalid. `longhaul control` prints it when it starts there.
    #[error("domain.peers.{0}: key: {1}")]
    Key(String, String),
    /// Two peers have the same key.
    #[error("domain.peers.{0}: another peer has the same key: each domain has a key of its own")]
    SameKey(String),
    /// An edge leads to the domain itself.
    #[error("domain.edges.{0}: it leads to this domain: name the neighbour's edge")]
    OwnEdge(String),
    /// There are too many peers or edges.
    #[error("domain: at most {MAX_PEERS} peers, and as many edges")]
    TooMany,
    /// The lease is out of range.
    #[error("domain: lease_s must be {} to {}", LEASE_RANGE_S.start(), LEASE_RANGE_S.end())]
    Lease,
}

/// A peer with its URL and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// URL of its controller.
    pub url: ServiceUrl,
    /// Key of its controller.
    pub key: PublicKey,
}

/// Validated settings of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainSettings {
    /// Name of the domain.
    pub name: DomainName,
    /// Peers.
    pub peers: BTreeMap<DomainName, Peer>,
    /// Edges by the name of their site, with the neighbours' edges.
    pub edges: BTreeMap<String, TerminationPoint>,
    /// Detail of the published available bandwidth.
    pub disclose: Disclosure,
    /// Ends whose forecasts others are told.
    pub forecasts: BTreeSet<String>,
    /// Time limits.
    pub timing: Timing,
    /// Interval between requests for the topologies of peers.
    pub exchange_interval: Duration,
}

/// Default interval between requests for the topologies of peers.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(30);

impl TryFrom<DomainText> for DomainSettings {
    type Error = DomainSettingsFault;

    fn try_from(text: DomainText) -> Result<Self, DomainSettingsFault> {
        use DomainSettingsFault as Fault;
        let parse_name = |name: &str| {
            DomainName::try_from(name.to_owned()).map_err(|e| Fault::Name(e.to_string()))
        };
        let name = parse_name(&text.name)?;
        if text.peers.len() > MAX_PEERS || text.edges.len() > MAX_PEERS {
            return Err(Fault::TooMany);
        }
        let mut keys = BTreeSet::new();
        let mut peers = BTreeMap::new();
        for (peer, settings) in text.peers {
            let url = settings.url.parse();
            let url = url.map_err(|error: longhaul_control_client::UrlError| {
                Fault::Url(peer.clone(), error.to_string())
            })?;
            let key = settings.key.parse();
            let key: PublicKey = key.map_err(|error: longhaul_proto::KeyError| {
                Fault::Key(peer.clone(), error.to_string())
            })?;
            if !keys.insert(key) {
                return Err(Fault::SameKey(peer));
            }
            peers.insert(parse_name(&peer)?, Peer { url, key });
        }
        let mut edges = BTreeMap::new();
        for (edge, settings) in text.edges {
            TerminationPoint::new(name.clone(), &edge)
                .map_err(|error| Fault::Name(error.to_string()))?;
            let other: TerminationPoint = settings
                .peer
                .parse()
                .map_err(|error| Fault::Name(format!("edges.{edge}: {error}")))?;
            if other.domain == name {
                return Err(Fault::OwnEdge(edge));
            }
            edges.insert(edge, other);
        }
        let mut timing = Timing::default();
        if let Some(lease) = text.lease_s {
            if !LEASE_RANGE_S.contains(&lease) {
                return Err(Fault::Lease);
            }
            timing.lease = lease.saturating_mul(1_000);
        }
        Ok(Self {
            name,
            peers,
            edges,
            disclose: text.disclose,
            forecasts: text.forecasts,
            timing,
            exchange_interval: EXCHANGE_INTERVAL,
        })
    }
}

impl DomainSettings {
    /// Returns the peer with that key.
    #[must_use]
    pub fn peer_with_key(&self, key: &PublicKey) -> Option<&DomainName> {
        let mut peers = self.peers.iter();
        peers
            .find(|(_, peer)| peer.key == *key)
            .map(|(domain, _)| domain)
    }

    /// Returns the keys of the peers.
    #[must_use]
    pub fn peer_keys(&self) -> BTreeMap<DomainName, PublicKey> {
        let peers = self.peers.iter();
        peers
            .map(|(domain, peer)| (domain.clone(), peer.key))
            .collect()
    }
}
