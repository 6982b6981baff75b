//! Exchange of abstract topologies with peers: the domain's own is made again, and those that peers
//! know are requested.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_control_api::domains::DomainName;
use longhaul_control_api::forecasts::{Forecast, ForecastQuery};
use longhaul_domains::publication::{
    AcceptedTopology, MAX_AGE_MS, MAX_DOMAINS, check, sign, trusted,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::controller::{Controller, now_ms};
use crate::domains::handle::DomainsHandle;
use crate::domains::peers::PeerClients;
use crate::domains::publication::topology;

/// Interval between exchanges while a peer is not known.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum interval between two exchanges, however many peers ask for them.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// Number of the domain's own forecasts that are considered.
const MAX_CONSIDERED_FORECASTS: usize = 100_000;

/// Task that exchanges topologies.
pub(super) struct Exchange {
    pub controller: Controller,
    pub domains: DomainsHandle,
    pub clients: Arc<PeerClients>,
    pub exchanged: watch::Sender<u64>,
}

impl Exchange {
    /// Exchanges topologies until it is dropped.
    pub(super) async fn run(self) {
        loop {
            let began = Instant::now();
            self.exchange().await;
            self.exchanged.send_modify(|times| *times += 1);
            let settings = self.domains.settings();
            let known = self.domains.topologies();
            let mut expected = settings.peers.keys().chain([&settings.name]);
            let interval = match expected.all(|domain| known.contains_key(domain)) {
                true => settings.exchange_interval,
                false => settings.exchange_interval.min(RETRY_INTERVAL),
            };
            tokio::select! {
                () = sleep_until(began + interval) => {}
                () = self.domains.shared().refresh.notified() => {
                    sleep_until(began + MIN_INTERVAL).await;
                }
            }
        }
    }

    async fn exchange(&self) {
        let mut found: Vec<AcceptedTopology> = self.own_topology().await.into_iter().collect();
        let settings = self.domains.settings();
        let mut asked = JoinSet::new();
        for peer in settings.peers.keys().cloned() {
            let clients = self.clients.clone();
            asked.spawn(async move { (clients.topologies(&peer).await, peer) });
        }
        while let Some(answer) = asked.join_next().await {
            let Ok((answer, peer)) = answer else { continue };
            match answer {
                Ok(known) => {
                    let items = known.items.into_iter().take(MAX_DOMAINS);
                    let now = now_ms();
                    let foreign = items
                        .filter_map(|item| check(item.signed, Some(&peer), now).ok())
                        .filter(|known| known.topology.domain != settings.name);
                    found.extend(foreign);
                }
                Err(error) => self.log_failure(&peer, &error.to_string()),
            }
        }
        // What a peer does not repeat stays until it is old.
        let before = self.domains.topologies();
        let fresh = before.values().filter(|known| {
            let age = now_ms().saturating_sub(known.topology.made_ms);
            known.learned_from.is_some() && age <= MAX_AGE_MS
        });
        found.extend(fresh.cloned());
        let own_key = self.controller.settings().key;
        let known = trusted(&settings.name, &settings.peer_keys(), own_key, found);
        *self.domains.shared().topologies.write() = Arc::new(known);
    }

    /// Makes and signs the domain's own topology; `None` while the book cannot be read.
    async fn own_topology(&self) -> Option<AcceptedTopology> {
        let settings = self.domains.settings();
        let forecasts = match settings.forecasts.is_empty() {
            true => Vec::new(),
            false => self.own_forecasts(),
        };
        let book = self.controller.book();
        let made = book.read(|desk, now| topology(settings, desk, forecasts, now));
        let made = made.await.ok()?;
        let signed = sign(&made, &self.controller.settings().signer).ok()?;
        check(signed, None, now_ms()).ok()
    }

    /// Returns the domain's own forecasts, with the newest measured value of each.
    fn own_forecasts(&self) -> Vec<(Forecast, Option<f64>)> {
        let query = ForecastQuery::default();
        let routing = self.controller.routing();
        let newest: HashMap<_, f64> = routing
            .newest()
            .map(|(key, value)| ((&key.from, &key.to, &key.reporter, key.quantity), value))
            .collect();
        let forecasts = routing.forecasts(&query, 0, MAX_CONSIDERED_FORECASTS);
        let with_newest = forecasts.into_iter().map(|one| {
            let key = (&one.from, &one.to, &one.reporter, one.quantity);
            let measured = newest.get(&key).copied();
            (one, measured)
        });
        with_newest.collect()
    }

    fn log_failure(&self, peer: &DomainName, error: &str) {
        self.controller.log().log(None, |left_out| {
            tracing::debug!(%peer, error, left_out, "cannot read the topology of a peer");
        });
    }
}
