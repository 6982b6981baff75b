//! The domain's own abstract topology, made of its map and its book.

use std::collections::BTreeSet;

use longhaul_circuits::ledger::View;
use longhaul_circuits::network::{CircuitNetwork, NodeId};
use longhaul_circuits::path::{BandwidthField, LinkPath, PathEnds, Preference};
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_control_api::domains::{
    Access, AvailableRate, Crossing, DomainForecast, DomainTopology, Edge, MAX_FORECASTS,
    MAX_STEPS, PeerDomain,
};
use longhaul_control_api::forecasts::Forecast;

use super::settings::{Disclosure, DomainSettings};
use crate::reservations::ReservationStore;
use crate::reservations::api_moment;

/// Time for which available rates are published, in milliseconds: four weeks.
const HORIZON_MS: u64 = 28 * 24 * 3_600_000;

/// Returns the domain's topology at a time. `forecasts` come with the newest measured values.
#[must_use]
pub fn topology(
    settings: &DomainSettings,
    desk: &ReservationStore,
    forecasts: Vec<(Forecast, Option<f64>)>,
    now: MomentMs,
) -> DomainTopology {
    let names = desk.names();
    let nodes = settings
        .edges
        .keys()
        .filter_map(|edge| Some((edge.as_str(), names.node(edge)?)));
    let nodes: Vec<(&str, NodeId)> = nodes.collect();
    let view = desk.book().view();
    let network = desk.book().network();
    let steps = steps(&view, network, settings.disclose, now);
    let fields: Vec<(MomentMs, BandwidthField<'_>)> = steps
        .iter()
        .map(|window| {
            let field = BandwidthField::new(network, |link| {
                Some(match settings.disclose {
                    Disclosure::Available => view.left(link, *window),
                    _ => view.ceiling(link),
                })
            });
            (window.start, field)
        })
        .collect();
    let rates = |rate: &dyn Fn(&BandwidthField<'_>) -> u64| -> Vec<AvailableRate> {
        if settings.disclose == Disclosure::Nothing {
            return Vec::new();
        }
        let rates = fields.iter().map(|(start, field)| AvailableRate {
            from_ms: api_moment(*start),
            rate_bps: rate(field),
        });
        let mut rates: Vec<AvailableRate> = rates.collect();
        rates.dedup_by_key(|rate| rate.rate_bps);
        rates
    };
    let pairs = nodes
        .iter()
        .flat_map(|from| nodes.iter().map(move |to| (from, to)));
    let crossings = pairs.filter(|(from, to)| from.1 != to.1).map(|(from, to)| {
        let ends = PathEnds {
            from: from.1,
            to: to.1,
        };
        let width =
            |field: &BandwidthField<'_>| field.widest_path(ends).map_or(0, |(_, width)| width);
        Crossing {
            from: from.0.to_owned(),
            to: to.0.to_owned(),
            latency_us: latency(network, &view, ends),
            available: rates(&width),
        }
    });
    let accesses = nodes.iter().map(|(edge, node)| Access {
        edge: (*edge).to_owned(),
        inward: rates(&|field| widest_link(field, network, |from, _| from == *node)),
        outward: rates(&|field| widest_link(field, network, |_, to| to == *node)),
    });
    DomainTopology {
        domain: settings.name.clone(),
        made_ms: api_moment(now),
        peers: settings
            .peers
            .iter()
            .map(|(domain, peer)| PeerDomain {
                domain: domain.clone(),
                key: peer.key.to_string(),
            })
            .collect(),
        edges: settings
            .edges
            .iter()
            .map(|(name, peer)| Edge {
                name: name.clone(),
                peer: peer.clone(),
                leads_to: None,
            })
            .collect(),
        crossings: crossings.collect(),
        accesses: accesses.collect(),
        forecasts: disclosed(&settings.forecasts, forecasts),
    }
}

/// Returns the windows in which available rates are constant. If there are too many, the last one
/// covers the rest.
fn steps(
    view: &View<'_>,
    network: &CircuitNetwork,
    disclose: Disclosure,
    now: MomentMs,
) -> Vec<Window> {
    let horizon = Window::new(now, now.saturating_add_unsigned(HORIZON_MS));
    if disclose != Disclosure::Available {
        return vec![horizon];
    }
    let changes = network.ids().flat_map(|link| view.changes(link, horizon));
    let moments: BTreeSet<MomentMs> = changes.map(|(moment, _)| moment).chain([now]).collect();
    let starts: Vec<MomentMs> = moments
        .into_iter()
        .filter(|moment| horizon.contains(*moment))
        .take(MAX_STEPS)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([horizon.end]);
    let windows = starts.iter().zip(ends);
    windows
        .map(|(start, end)| Window::new(*start, end))
        .collect()
}

/// Returns the latency of the best path, in microseconds, whatever is reserved.
fn latency(network: &CircuitNetwork, view: &View<'_>, ends: PathEnds) -> u64 {
    let field = BandwidthField::new(network, |link| Some(view.ceiling(link)));
    let path = field.best_path(ends, 1, Preference::LeastLatency);
    let LinkPath(links) = path.unwrap_or(LinkPath(Vec::new()));
    let links = links.iter().filter_map(|link| network.link(*link));
    links.map(|link| link.latency).fold(0, u64::saturating_add)
}

/// Returns the highest rate left on one of the links that `is_at` accepts by their nodes.
fn widest_link(
    field: &BandwidthField<'_>,
    network: &CircuitNetwork,
    is_at: impl Fn(NodeId, NodeId) -> bool,
) -> u64 {
    let links = network.ids().filter(|id| {
        network
            .link(*id)
            .is_some_and(|link| is_at(link.from, link.to))
    });
    links.map(|id| field.room(id)).max().unwrap_or(0)
}

/// Returns the forecasts of paths between ends that the settings name.
fn disclosed(
    ends: &BTreeSet<String>,
    forecasts: Vec<(Forecast, Option<f64>)>,
) -> Vec<DomainForecast> {
    let named = forecasts
        .into_iter()
        .filter(|(one, _)| ends.contains(&one.from) && ends.contains(&one.to));
    let published = named.map(|(one, measured)| DomainForecast {
        from: one.from,
        to: one.to,
        quantity: one.quantity,
        next: one.next,
        measured,
        measured_ms: one.measured_ms,
        samples: one.samples,
    });
    published.take(MAX_FORECASTS).collect()
}
