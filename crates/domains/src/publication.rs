//! Signing and checking of abstract topologies.
//!
//! A topology is signed by its domain's key, so others may pass it on. The key of a domain that is
//! no peer is learned from topologies of its neighbours, beginning with those of peers. The first
//! one to name it counts, so a remote domain cannot replace the key of a nearer one.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use longhaul_control_api::domains::{
    DomainName, DomainTopology, MAX_CROSSINGS, MAX_EDGES, MAX_FORECASTS, MAX_STEPS, SignedTopology,
};
use longhaul_proto::{KeyError, PublicKey, SigningKey};

/// Context of the signature, before the document.
const CONTEXT: &[u8] = b"longhaul-domain-topology\0";
/// Maximum size of a document, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// Maximum number of domains that are known.
pub const MAX_DOMAINS: usize = 256;
/// Time after which a topology is forgotten, in milliseconds.
pub const MAX_AGE_MS: u64 = 3_600_000;
/// Time by which the clock of a domain may be ahead, in milliseconds.
const MAX_AHEAD_MS: u64 = 60_000;

/// A published topology is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationFault {
    /// The document is too large or not of the expected form. The other release may be newer.
    #[error("the topology cannot be read: {0}")]
    Malformed(String),
    /// The signature is wrong: the document was changed on the way.
    #[error("the topology of {0} is not signed by its key: it was changed on the way")]
    Signature(DomainName),
    /// The topology is too old, or from the future. Check both clocks.
    #[error("the topology of {0} is too old or from the future: check both clocks")]
    Time(DomainName),
}

/// Accepted topology.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedTopology {
    /// The topology.
    pub topology: DomainTopology,
    /// Key that signed it.
    pub key: PublicKey,
    /// Neighbour that passed it on; `None` for one's own.
    pub learned_from: Option<DomainName>,
    /// Signed form.
    pub signed: SignedTopology,
}

/// Signs a topology.
///
/// # Errors
/// The key cannot sign.
pub fn sign(topology: &DomainTopology, key: &SigningKey) -> Result<SignedTopology, KeyError> {
    // It consists of lists and maps with text keys, so it can always be serialized.
    let document = serde_json::to_string(topology).unwrap_or_default();
    let signature = key.sign(&[CONTEXT, document.as_bytes()].concat())?;
    Ok(SignedTopology {
        document,
        key: key.public().to_string(),
        signature: signature.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// Checks a topology that a neighbour passed on, except for the owner of its key.
///
/// # Errors
/// [`PublicationFault`].
pub fn check(
    signed: SignedTopology,
    learned_from: Option<&DomainName>,
    now_ms: u64,
) -> Result<AcceptedTopology, PublicationFault> {
    let malformed = |why: &str| PublicationFault::Malformed(why.to_owned());
    if signed.document.len() > MAX_DOCUMENT_BYTES {
        return Err(malformed("it is too large"));
    }
    let key: PublicKey = signed
        .key
        .parse()
        .map_err(|_| malformed("it names no key"))?;
    let topology: DomainTopology = serde_json::from_str(&signed.document)
        .map_err(|error| PublicationFault::Malformed(error.to_string()))?;
    let signature = parse_signature(&signed.signature);
    let message = [CONTEXT, signed.document.as_bytes()].concat();
    if !signature.is_some_and(|signature| key.verify(&message, &signature)) {
        return Err(PublicationFault::Signature(topology.domain));
    }
    let is_old = now_ms.saturating_sub(topology.made_ms) > MAX_AGE_MS;
    if is_old || topology.made_ms.saturating_sub(now_ms) > MAX_AHEAD_MS {
        return Err(PublicationFault::Time(topology.domain));
    }
    if is_too_large(&topology) {
        return Err(malformed(
            "it has more edges, steps or forecasts than allowed",
        ));
    }
    Ok(AcceptedTopology {
        topology,
        key,
        learned_from: learned_from.cloned(),
        signed,
    })
}

/// Returns true if a topology has more than allowed of anything.
fn is_too_large(topology: &DomainTopology) -> bool {
    let rates = topology
        .crossings
        .iter()
        .map(|crossing| &crossing.available);
    let accesses = topology.accesses.iter();
    let mut rates = rates.chain(accesses.flat_map(|access| [&access.inward, &access.outward]));
    topology.edges.len() > MAX_EDGES
        || topology.peers.len() > MAX_EDGES
        || topology.accesses.len() > MAX_EDGES
        || topology.crossings.len() > MAX_CROSSINGS
        || topology.forecasts.len() > MAX_FORECASTS
        || rates.any(|steps| steps.len() > MAX_STEPS)
}

/// Returns the topologies that are trusted: the domain's own, those that peers signed, and those of
/// further domains whose keys these name. Of several of a domain, the newest counts.
#[must_use]
pub fn trusted(
    own: &DomainName,
    peers: &BTreeMap<DomainName, PublicKey>,
    own_key: PublicKey,
    found: Vec<AcceptedTopology>,
) -> BTreeMap<DomainName, AcceptedTopology> {
    let mut by_key: BTreeMap<(DomainName, PublicKey), AcceptedTopology> = BTreeMap::new();
    for accepted in found {
        let place = (accepted.topology.domain.clone(), accepted.key);
        let known = by_key.get(&place);
        if known.is_none_or(|known| known.topology.made_ms < accepted.topology.made_ms) {
            by_key.insert(place, accepted);
        }
    }
    let mut trusted = BTreeMap::new();
    let mut keys: BTreeMap<DomainName, PublicKey> = peers.clone();
    keys.insert(own.clone(), own_key);
    let mut open: VecDeque<DomainName> = keys.keys().cloned().collect();
    while let Some(domain) = open.pop_front().filter(|_| trusted.len() < MAX_DOMAINS) {
        let Some(key) = keys.get(&domain) else {
            continue;
        };
        let Some(accepted) = by_key.remove(&(domain.clone(), *key)) else {
            continue;
        };
        for peer in &accepted.topology.peers {
            if let Ok(key) = peer.key.parse()
                && !keys.contains_key(&peer.domain)
            {
                keys.insert(peer.domain.clone(), key);
                open.push_back(peer.domain.clone());
            }
        }
        trusted.insert(domain, accepted);
    }
    trusted
}

fn parse_signature(text: &str) -> Option<[u8; 64]> {
    if !text.is_ascii() || text.len() != 128 {
        return None;
    }
    let bytes = (0..text.len()).step_by(2).map(|at| {
        let digits = text.get(at..at.saturating_add(2))?;
        u8::from_str_radix(digits, 16).ok()
    });
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes?.try_into().ok()
}
