//! Topology of ESnet, as published in the repository of OSCARS (`esnet-devices.json`,
//! `esnet-adjcies.json`, `esnet-positions.json`).
//!
//! | on the map | source |
//! |---|---|
//! | site (a router) | device: its `urn`, its `location` as the label, its coordinates |
//! | point of a drawing | position whose name is a prefix of the device's: `chic` for `chic-cr5` |
//! | link | two adjacencies of the same two ports, one per direction |
//! | reservable rate | lesser of egress at the sending and ingress at the receiving port (Mbit/s) |
//! | capacity | the same rate, as a bound: the files state no other |
//! | metric | MPLS metric of the adjacency |
//! | latency | coordinates of the ends |
//!
//! An adjacency without an opposite becomes a one-way link.

use std::collections::HashMap;

use longhaul_proto::text::printable;
use quantities::Rate;
use serde::Deserialize;

use crate::check::{MAX_ITEMS, MapFault, shorten};
use crate::model::{
    Capacity, CapacitySource, Direction, Drawn, Link, Map, Position, Reservable, Site, SiteKind,
};
use crate::names::{UniqueNames, normalize_label};

/// Texts of the files.
#[derive(Debug, Clone, Copy)]
pub struct TopologyFiles<'a> {
    /// `esnet-devices.json`.
    pub devices: &'a str,
    /// `esnet-adjcies.json`.
    pub adjacencies: &'a str,
    /// `esnet-positions.json`, if a drawing is wanted.
    pub positions: Option<&'a str>,
}

/// Reason why the files yield no map.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EsnetError {
    /// A file is not the expected JSON.
    #[error("the {file} of the topology: line {line}: {problem}")]
    Json {
        /// The file: `devices`, `adjacencies` or `positions`.
        file: &'static str,
        /// Line number, from 1.
        line: usize,
        /// Fault.
        problem: String,
    },
    /// Two devices have the same name.
    #[error("the devices of the topology: {device:?} is listed twice")]
    DeviceTwice {
        /// The name.
        device: String,
    },
    /// An adjacency names an unknown device.
    #[error(
        "the adjacencies of the topology: number {number} names {device:?}, which is not among the \
        devices"
    )]
    NoDevice {
        /// Number of the adjacency, from 1.
        number: usize,
        /// The name.
        device: String,
    },
    /// The coordinates are not numbers. Correct the device's latitude and longitude.
    #[error("the devices of the topology: {device:?}: coordinates {text:?} are invalid")]
    Coordinates {
        /// The device.
        device: String,
        /// Text of the coordinate.
        text: String,
    },
    /// The resulting map is invalid.
    #[error("the topology: {0}")]
    Map(MapFault),
}

#[derive(Deserialize)]
struct DeviceText {
    urn: String,
    #[serde(default)]
    ports: Vec<PortText>,
    location: Option<String>,
    latitude: Option<NumberText>,
    longitude: Option<NumberText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortText {
    urn: String,
    reservable_ingress_bw: Option<f64>,
    reservable_egress_bw: Option<f64>,
}

/// Coordinate. The files have them as texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberText {
    Number(f64),
    Text(String),
}

#[derive(Deserialize)]
struct AdjacencyText {
    a: EndText,
    z: EndText,
    #[serde(default)]
    metrics: HashMap<String, f64>,
}

#[derive(Deserialize)]
struct EndText {
    device: String,
    port: String,
}

#[derive(Deserialize)]
struct PositionsText {
    positions: HashMap<String, Drawn>,
}

/// Parses the topology.
///
/// # Errors
/// [`EsnetError`].
pub fn read(files: &TopologyFiles<'_>) -> Result<Map, EsnetError> {
    let devices: Vec<DeviceText> = parse_json("devices", files.devices)?;
    let adjacencies: Vec<AdjacencyText> = parse_json("adjacencies", files.adjacencies)?;
    let positions = match files.positions {
        Some(text) => parse_json::<PositionsText>("positions", text)?.positions,
        None => HashMap::new(),
    };
    for (kind, count) in [("sites", devices.len()), ("links", adjacencies.len())] {
        if count > MAX_ITEMS {
            return Err(EsnetError::Map(MapFault::TooMany { kind, count }));
        }
    }
    let mut map = Map::default();
    let mut ports = HashMap::new();
    let mut names = HashMap::new();
    let mut own = UniqueNames::default();
    for device in &devices {
        let name = own.claim(&device.urn);
        if names.insert(device.urn.as_str(), name.clone()).is_some() {
            let device = shorten(&device.urn);
            return Err(EsnetError::DeviceTwice { device });
        }
        map.sites.push(Site {
            name,
            label: device
                .location
                .as_deref()
                .map(normalize_label)
                .filter(|label| !label.is_empty()),
            kind: SiteKind::Router,
            position: position(device)?,
            drawn: drawn_position(&device.urn, &positions),
        });
        for port in &device.ports {
            ports.insert((device.urn.as_str(), port.urn.as_str()), port);
        }
    }
    add_links(&mut map, &adjacencies, &names, &ports)?;
    map.estimate_latencies();
    map.check().map_err(EsnetError::Map)?;
    Ok(map)
}

fn add_links(
    map: &mut Map,
    adjacencies: &[AdjacencyText],
    names: &HashMap<&str, String>,
    ports: &HashMap<(&str, &str), &PortText>,
) -> Result<(), EsnetError> {
    let mut own = UniqueNames::default();
    // Links whose opposite direction has not been read yet, by the ports of their ends.
    let mut one_way: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut unknown = 0;
    for (index, adjacency) in adjacencies.iter().enumerate() {
        let name = |device: &str| {
            names.get(device).ok_or_else(|| EsnetError::NoDevice {
                number: index + 1,
                device: shorten(device),
            })
        };
        let (from, to) = (name(&adjacency.a.device)?, name(&adjacency.z.device)?);
        let port = |end: &EndText| {
            ports
                .get(&(end.device.as_str(), end.port.as_str()))
                .copied()
        };
        let direction = direction(adjacency, port(&adjacency.a), port(&adjacency.z));
        unknown += usize::from(direction.capacity.is_none());
        let (a, z) = (adjacency.a.port.as_str(), adjacency.z.port.as_str());
        let opposite = one_way.get_mut(&(z, a)).and_then(Vec::pop);
        if let Some(link) = opposite.and_then(|index| map.links.get_mut(index)) {
            link.backward = Some(direction);
            continue;
        }
        one_way.entry((a, z)).or_default().push(map.links.len());
        map.links.push(Link {
            name: own.claim(&format!("{from} - {to}")),
            from: from.clone(),
            to: to.clone(),
            forward: direction,
            backward: None,
            latency: None,
            live: None,
        });
    }
    let alone = map
        .links
        .iter()
        .filter(|link| link.backward.is_none())
        .count();
    if alone > 0 {
        map.notes
            .push(format!("{alone} adjacencies have no opposite direction"));
    }
    if unknown > 0 {
        map.notes.push(format!(
            "{unknown} adjacencies name ports without a reservable bandwidth"
        ));
    }
    Ok(())
}

/// Returns the direction from the port `out` into the port `into`.
fn direction(
    adjacency: &AdjacencyText,
    out: Option<&PortText>,
    into: Option<&PortText>,
) -> Direction {
    let out = out.and_then(|port| port.reservable_egress_bw);
    let into = into.and_then(|port| port.reservable_ingress_bw);
    let rate = match (out, into) {
        (Some(out), Some(into)) => Some(out.min(into)),
        (out, into) => out.or(into),
    };
    let rate = rate.and_then(|megabits| Rate::new(megabits * 1e6));
    let metric = adjacency
        .metrics
        .get("MPLS")
        .copied()
        .filter(|metric| (0.0..=4e9).contains(metric));
    Direction {
        // A port with a reservable rate of 0 says nothing about its capacity.
        capacity: rate.filter(|rate| *rate > Rate::ZERO).map(|rate| Capacity {
            rate,
            source: CapacitySource::Bound,
        }),
        reservable: rate.map(Reservable::Rate),
        metric: metric.map(|metric| metric as u32),
    }
}

fn position(device: &DeviceText) -> Result<Option<Position>, EsnetError> {
    let number = |number: &Option<NumberText>| match number {
        None => Ok(None),
        Some(NumberText::Number(number)) => Ok(Some(*number)),
        Some(NumberText::Text(text)) => {
            text.trim()
                .parse()
                .map(Some)
                .map_err(|_| EsnetError::Coordinates {
                    device: shorten(&device.urn),
                    text: shorten(text),
                })
        }
    };
    Ok(
        match (number(&device.latitude)?, number(&device.longitude)?) {
            (Some(latitude), Some(longitude)) => Some(Position {
                latitude,
                longitude,
            }),
            _ => None,
        },
    )
}

/// Returns the position with the longest name that is the device's, or a part of it before a dash.
fn drawn_position(device: &str, positions: &HashMap<String, Drawn>) -> Option<Drawn> {
    let mut name = device;
    loop {
        if let Some(drawn) = positions.get(name) {
            return (drawn.x.is_finite() && drawn.y.is_finite()).then_some(*drawn);
        }
        name = name.rsplit_once('-')?.0;
    }
}

fn parse_json<'a, T: Deserialize<'a>>(file: &'static str, text: &'a str) -> Result<T, EsnetError> {
    serde_json::from_str(text).map_err(|error| EsnetError::Json {
        file,
        line: error.line(),
        problem: printable(error.to_string().as_bytes()),
    })
}
