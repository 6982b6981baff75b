//! Real networks in the form that the book uses.

use std::path::Path;

use longhaul_circuits::network::{Link, Network, NodeId, Share};
use longhaul_circuits::time::Rate;
use longhaul_map::graphml::Assumptions;
use longhaul_map::{Graph, Map, esnet, graphml};

use crate::Error;

/// Assumed capacity of a link without one in its file, in bit/s.
const ASSUMED_CAPACITY: Rate = 10_000_000_000;
/// Assumed latency of a link without one in its file, in microseconds.
const ASSUMED_LATENCY: u64 = 1_000;

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../map/data/", $name))
    };
}

/// Names of the networks.
pub const NAMES: [&str; 4] = ["ESnet", "Abilene", "Geant2012", "Uunet"];

/// Converts a map into a network. Sites become nodes, and each direction of a link becomes a link.
/// Half of it is reservable if the map does not state how much.
fn of_graph(graph: &Graph, network: &'static str) -> Result<Network, Error> {
    let links = graph.edges().iter().map(|edge| {
        let whole = |rate: quantities::Rate| rate.bits_per_second() as Rate;
        let capacity = edge.capacity.map_or(ASSUMED_CAPACITY, whole);
        let share = edge
            .reservable
            .filter(|_| capacity > 0)
            .and_then(|reservable| {
                Share::millionths(
                    u32::try_from(whole(reservable).saturating_mul(1_000_000) / capacity).ok()?,
                )
            });
        Link {
            from: NodeId(edge.from),
            to: NodeId(edge.to),
            capacity,
            share: share.unwrap_or_default(),
            latency: edge.latency.map_or(ASSUMED_LATENCY, |latency| {
                u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)
            }),
            cable: edge.link,
        }
    });
    let why = |why: String| Error::Network { network, why };
    let nodes = u32::try_from(graph.nodes()).map_err(|error| why(error.to_string()))?;
    Network::new(nodes, links.collect()).map_err(|error| why(error.to_string()))
}

/// Returns a network by its name, one of [`NAMES`].
///
/// # Errors
/// [`Error::Network`]: the name is unknown, or the file is invalid.
pub fn network(name: &'static str) -> Result<Network, Error> {
    of_graph(&Graph::of(&map(name)?), name)
}

/// Returns a network as a map.
///
/// # Errors
/// As [`network`].
pub fn map(name: &'static str) -> Result<Map, Error> {
    let why = |why: String| Error::Network { network: name, why };
    let text = match name {
        "ESnet" => {
            let files = esnet::Files {
                devices: data!("esnet/esnet-devices.json"),
                adjacencies: data!("esnet/esnet-adjcies.json"),
                positions: None,
            };
            return esnet::read(&files).map_err(|error| why(error.to_string()));
        }
        "Abilene" => data!("zoo/Abilene.graphml"),
        "Geant2012" => data!("zoo/Geant2012.graphml"),
        "Uunet" => data!("zoo/Uunet.graphml"),
        _ => return Err(why("no network of the trials".to_owned())),
    };
    graphml::read(text, Path::new(name), &Assumptions::default())
        .map_err(|error| why(error.to_string()))
}
