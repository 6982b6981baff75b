//! GraphML (graphml.graphdrawing.org), with the attributes of the networks in the Internet Topology
//! Zoo.
//!
//! | on the map | source |
//! |---|---|
//! | site | each `node`, named by its `label`, else by its `id`; a number makes it unique |
//! | junction | node whose `hyperedge` is 1, and each `hyperedge` element |
//! | position | `Latitude` and `Longitude`, if both are present and in range |
//! | link | each `edge`, even if several join the same nodes |
//! | capacity | `LinkSpeedRaw` in bit/s; else `LinkSpeed` with `LinkSpeedUnits`; else labels |
//! | latency | positions of the ends |
//!
//! Labels that may state a capacity (`OC-192c`, `45 Mbps`) are `LinkLabel`, `LinkType`, `LinkNote`
//! and the like. Edges from a node to itself are left out. If edges are directed, an edge and its
//! opposite become one link; an edge without an opposite becomes a one-way link.

mod speed;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use longhaul_proto::text::printable;
use quantities::Rate;
use roxmltree::{Document, Node, ParsingOptions};

use crate::check::{MAX_ITEMS, MapFault, shorten};
use crate::model::{Capacity, CapacitySource, Direction, Link, Map, Position, Site, SiteKind};
use crate::names::{UniqueNames, normalize_label};

/// Maximum number of elements, attribute values and texts in a document.
const MAX_XML_NODES: u32 = 4_000_000;
/// Labels by which tools denote a missing one.
const NO_LABEL: [&str; 3] = ["", "None", "?"];

/// Assumptions about what a document leaves out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Assumptions {
    /// Capacity of links without a stated one; it stays unknown if `None`.
    pub capacity: Option<Rate>,
}

/// Reason why a document yields no map.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GraphmlError {
    /// The document is not valid XML, is too large, or has a document type definition (DTD), which
    /// is not supported: correct it, or remove the definition.
    #[error(
        "{}:{line}: is not readable as XML: {problem}",
        printable(file.as_os_str().as_encoded_bytes())
    )]
    Xml {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Message of the parser.
        problem: String,
    },
    /// The document does not describe a valid graph: correct the line.
    #[error("{}:{line}: {problem}", printable(file.as_os_str().as_encoded_bytes()))]
    Graph {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Fault and remedy.
        problem: String,
    },
    /// The resulting map is invalid.
    #[error("{}: {fault}", printable(file.as_os_str().as_encoded_bytes()))]
    Map {
        /// The file.
        file: PathBuf,
        /// Fault of the map.
        fault: MapFault,
    },
}

/// Parses a document. `file` is its name in errors.
///
/// # Errors
/// [`GraphmlError`].
pub fn read(text: &str, file: &Path, assumptions: &Assumptions) -> Result<Map, GraphmlError> {
    let options = ParsingOptions {
        nodes_limit: MAX_XML_NODES,
        ..ParsingOptions::default()
    };
    let text = text.trim_start_matches('\u{feff}');
    let document =
        Document::parse_with_options(text, options).map_err(|error| GraphmlError::Xml {
            file: file.to_owned(),
            line: usize::try_from(error.pos().row).unwrap_or(usize::MAX),
            problem: shorten(&error.to_string()),
        })?;
    let mut map = GraphmlReader::new(&document, file).read(assumptions)?;
    map.estimate_latencies();
    map.check().map_err(|fault| GraphmlError::Map {
        file: file.to_owned(),
        fault,
    })?;
    Ok(map)
}

/// Attributes of a node or an edge, by lower-case name.
type Attributes<'a> = HashMap<&'a str, &'a str>;

struct GraphmlReader<'a, 'input> {
    document: &'a Document<'input>,
    file: &'a Path,
    /// Lower-case attribute names of nodes and edges, by identifier of the key.
    keys: HashMap<&'a str, String>,
    /// Default values of node attributes, by identifier of the key.
    node_defaults: HashMap<&'a str, &'a str>,
    edge_defaults: HashMap<&'a str, &'a str>,
    /// Names of sites, by identifier of the node.
    sites: HashMap<&'a str, String>,
    site_names: UniqueNames,
    link_names: UniqueNames,
    map: Map,
    loops: usize,
    without_capacity: usize,
    /// Links from directed edges without an opposite yet: their indices, by their ends.
    one_way: HashMap<(String, String), Vec<usize>>,
}

impl<'a, 'input> GraphmlReader<'a, 'input> {
    fn new(document: &'a Document<'input>, file: &'a Path) -> Self {
        Self {
            document,
            file,
            keys: HashMap::new(),
            node_defaults: HashMap::new(),
            edge_defaults: HashMap::new(),
            sites: HashMap::new(),
            site_names: UniqueNames::default(),
            link_names: UniqueNames::default(),
            map: Map::default(),
            loops: 0,
            without_capacity: 0,
            one_way: HashMap::new(),
        }
    }

    fn graph_error(&self, node: Node<'_, '_>, problem: String) -> GraphmlError {
        GraphmlError::Graph {
            file: self.file.to_owned(),
            line: usize::try_from(self.document.text_pos_at(node.range().start).row)
                .unwrap_or(usize::MAX),
            problem,
        }
    }

    fn read(mut self, assumptions: &Assumptions) -> Result<Map, GraphmlError> {
        let root = self.document.root_element();
        if root.tag_name().name() != "graphml" {
            let problem = format!(
                "is not GraphML: it begins with <{}>",
                shorten(root.tag_name().name())
            );
            return Err(self.graph_error(root, problem));
        }
        for key in elements(root, "key") {
            self.add_key(key);
        }
        for node in elements(root, "node") {
            self.add_node(node)?;
        }
        for edge in elements(root, "edge") {
            self.add_edge(edge, assumptions)?;
        }
        for hyperedge in elements(root, "hyperedge") {
            self.add_hyperedge(hyperedge, assumptions)?;
        }
        self.add_notes();
        Ok(self.map)
    }

    fn add_key(&mut self, key: Node<'a, 'input>) {
        let (Some(id), name) = (key.attribute("id"), key.attribute("attr.name")) else {
            return;
        };
        self.keys
            .insert(id, name.unwrap_or(id).to_ascii_lowercase());
        let default = key
            .children()
            .find(|child| child.tag_name().name() == "default");
        let Some(default) = default.and_then(|default| default.text()) else {
            return;
        };
        let whose = key.attribute("for").unwrap_or("all");
        if matches!(whose, "node" | "all") {
            self.node_defaults.insert(id, default);
        }
        if matches!(whose, "edge" | "all") {
            self.edge_defaults.insert(id, default);
        }
    }

    /// Returns the attributes of an element, with `defaults` for those that it lacks.
    fn attributes<'s>(
        &'s self,
        element: Node<'a, 'input>,
        defaults: &'s HashMap<&'a str, &'a str>,
    ) -> Attributes<'s> {
        let own = element
            .children()
            .filter(|child| child.tag_name().name() == "data")
            .filter_map(|data| Some((data.attribute("key")?, data.text().unwrap_or_default())));
        let all = defaults.iter().map(|(id, value)| (*id, *value)).chain(own);
        all.map(|(id, value)| (self.keys.get(id).map_or(id, String::as_str), value.trim()))
            .collect()
    }

    fn add_node(&mut self, node: Node<'a, 'input>) -> Result<(), GraphmlError> {
        let Some(id) = node.attribute("id") else {
            return Err(self.graph_error(node, "a node without an id: give it one".to_owned()));
        };
        let attributes = self.attributes(node, &self.node_defaults);
        let number = |name: &str| attributes.get(name)?.parse::<f64>().ok();
        let position = match (number("latitude"), number("longitude")) {
            (Some(latitude), Some(longitude)) => Some(Position {
                latitude,
                longitude,
            }),
            _ => None,
        };
        let kind = match attributes.get("hyperedge") {
            Some(&("1" | "true" | "True")) => SiteKind::Junction,
            _ => SiteKind::Place,
        };
        let label = attributes
            .get("label")
            .map(|label| normalize_label(label))
            .filter(|label| !NO_LABEL.contains(&label.as_str()));
        let base = label.unwrap_or_else(|| match kind {
            SiteKind::Junction => format!("junction {}", normalize_label(id)),
            _ => format!("node {}", normalize_label(id)),
        });
        self.add_site(
            node,
            id,
            &base,
            kind,
            position.filter(|position| position.is_valid()),
        )
    }

    fn add_site(
        &mut self,
        node: Node<'_, '_>,
        id: &'a str,
        base: &str,
        kind: SiteKind,
        position: Option<Position>,
    ) -> Result<(), GraphmlError> {
        if self.map.sites.len() == MAX_ITEMS {
            return Err(self.graph_error(node, format!("more than {MAX_ITEMS} nodes")));
        }
        let name = self.site_names.claim(base);
        if self.sites.insert(id, name.clone()).is_some() {
            let problem = format!("node {:?} appears twice: give each its own id", shorten(id));
            return Err(self.graph_error(node, problem));
        }
        self.map.sites.push(Site {
            name,
            label: None,
            kind,
            position,
            drawn: None,
        });
        Ok(())
    }

    fn add_edge(
        &mut self,
        edge: Node<'a, 'input>,
        assumptions: &Assumptions,
    ) -> Result<(), GraphmlError> {
        let end = |attribute| {
            let id = edge.attribute(attribute).unwrap_or_default();
            self.sites.get(id).cloned().ok_or_else(|| {
                let problem = format!("{attribute}: there is no node {:?}", shorten(id));
                self.graph_error(edge, problem)
            })
        };
        let (from, to) = (end("source")?, end("target")?);
        let attributes = self.attributes(edge, &self.edge_defaults);
        let capacity = capacity(&attributes);
        let directed = match edge.attribute("directed") {
            Some(directed) => directed == "true",
            None => edge
                .ancestors()
                .find(|node| node.tag_name().name() == "graph")
                .is_some_and(|graph| graph.attribute("edgedefault") == Some("directed")),
        };
        self.add_link(edge, (from, to), capacity, directed, assumptions)
    }

    /// Adds an edge with any number of ends, as a junction and a link from each end to it.
    fn add_hyperedge(
        &mut self,
        hyperedge: Node<'a, 'input>,
        assumptions: &Assumptions,
    ) -> Result<(), GraphmlError> {
        let attributes = self.attributes(hyperedge, &self.edge_defaults);
        let capacity = capacity(&attributes);
        let base = format!(
            "junction {}",
            normalize_label(hyperedge.attribute("id").unwrap_or_default())
        );
        if self.map.sites.len() == MAX_ITEMS {
            return Err(self.graph_error(hyperedge, format!("more than {MAX_ITEMS} nodes")));
        }
        let name = self.site_names.claim(base.trim_end());
        self.map.sites.push(Site {
            name: name.clone(),
            label: None,
            kind: SiteKind::Junction,
            position: None,
            drawn: None,
        });
        for endpoint in hyperedge
            .children()
            .filter(|child| child.tag_name().name() == "endpoint")
        {
            let id = endpoint.attribute("node").unwrap_or_default();
            let Some(end) = self.sites.get(id).cloned() else {
                return Err(self.graph_error(
                    endpoint,
                    format!("node: there is no node {:?}", shorten(id)),
                ));
            };
            self.add_link(endpoint, (end, name.clone()), capacity, false, assumptions)?;
        }
        Ok(())
    }

    fn add_link(
        &mut self,
        element: Node<'_, '_>,
        (from, to): (String, String),
        capacity: Option<Capacity>,
        directed: bool,
        assumptions: &Assumptions,
    ) -> Result<(), GraphmlError> {
        if from == to {
            self.loops += 1;
            return Ok(());
        }
        if self.map.links.len() == MAX_ITEMS {
            return Err(self.graph_error(element, format!("more than {MAX_ITEMS} edges")));
        }
        self.without_capacity += usize::from(capacity.is_none());
        let assumed = || {
            Some(Capacity {
                rate: assumptions.capacity?,
                source: CapacitySource::Assumed,
            })
        };
        let direction = Direction {
            capacity: capacity.or_else(assumed),
            ..Direction::default()
        };
        if directed {
            let opposite = self
                .one_way
                .get_mut(&(to.clone(), from.clone()))
                .and_then(Vec::pop);
            if let Some(link) = opposite.and_then(|index| self.map.links.get_mut(index)) {
                link.backward = Some(direction);
                return Ok(());
            }
            let ends = (from.clone(), to.clone());
            self.one_way
                .entry(ends)
                .or_default()
                .push(self.map.links.len());
        }
        self.map.links.push(Link {
            name: self.link_names.claim(&format!("{from} - {to}")),
            from,
            to,
            forward: direction,
            backward: (!directed).then_some(direction),
            latency: None,
            live: None,
        });
        Ok(())
    }

    fn add_notes(&mut self) {
        let nowhere = self
            .map
            .sites
            .iter()
            .filter(|site| site.position.is_none())
            .count();
        let sites = self.map.sites.len();
        if nowhere > 0 {
            let note = format!(
                "{nowhere} of {sites} sites have no coordinates: their links have no latency"
            );
            self.map.notes.push(note);
        }
        if self.without_capacity > 0 {
            let note = format!("{} edges state no capacity", self.without_capacity);
            self.map.notes.push(note);
        }
        if self.loops > 0 {
            let note = format!("{} edges from a node to itself are left out", self.loops);
            self.map.notes.push(note);
        }
    }
}

fn elements<'a, 'input: 'a>(
    root: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    root.descendants()
        .filter(move |node| node.is_element() && node.tag_name().name() == name)
}

/// Returns the capacity that an edge states.
fn capacity(attributes: &Attributes<'_>) -> Option<Capacity> {
    let text = |name: &str| {
        attributes
            .get(name)
            .copied()
            .filter(|text| !text.is_empty())
    };
    let raw = || {
        let rate = Rate::new(text("linkspeedraw")?.parse().ok()?)?;
        (rate > Rate::ZERO).then_some(Capacity {
            rate,
            source: CapacitySource::Stated,
        })
    };
    let split = || {
        speed::with_unit(
            text("linkspeed")?,
            text("linkspeedunits").unwrap_or_default(),
        )
    };
    let labels = || {
        [
            "linklabel",
            "linktype",
            "linknote",
            "label",
            "bandwidth",
            "capacity",
            "speed",
        ]
        .into_iter()
        .filter_map(text)
        .find_map(speed::read)
    };
    raw().or_else(split).or_else(labels)
}
