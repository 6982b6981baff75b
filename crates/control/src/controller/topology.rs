//! Tasks that follow the running network: the states of links, and the reservations over them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use longhaul_circuits::ledger::ReservationId;
use longhaul_map::LiveNetwork;
use longhaul_map::ospf::{ObservedLinks, TrafficDatabase, observe};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Controller, now_ms, set, wait_for_stop};
use crate::authority::OPERATOR;
use crate::leader;
use crate::reservations::writer::AskError;
use crate::reservations::{ReservationCaller, ReservationCommand};
use crate::topology::source::{SourceFault, TopologySource};
use crate::topology::tracker::TopologyTracker;

/// Factor by which a pause is at least as long as the reading before it, so that a router spends
/// little of its time on answers.
const MIN_PAUSE_FACTOR: u32 = 4;
/// Interval between attempts to plan impaired reservations again.
const REROUTE_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failed attempt to reach the book.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of reservations that are planned again in one turn, to limit delays of others.
const MAX_REROUTED_PER_TURN: usize = 16;
/// Maximum number of reservations and links that are logged after one change.
const MAX_LOGGED: usize = 32;

/// Last reading of a database.
#[derive(Default)]
struct LastReading {
    text: String,
    /// Change number of the operator's map.
    map: Option<i64>,
    observed: ObservedLinks,
}

impl Controller {
    /// Follows the states of links.
    pub(super) async fn follow_topology(
        self,
        mut sources: Vec<TopologySource>,
        mut stop: watch::Receiver<bool>,
    ) {
        let names = self.0.settings.ospf.names();
        let interval = self.0.settings.ospf.interval();
        let mut tracker = TopologyTracker::default();
        let mut last = LastReading::default();
        let mut failing: Option<String> = None;
        loop {
            let begun = Instant::now();
            let reading = async {
                let Some(source) = sources.first_mut() else {
                    return std::future::pending().await;
                };
                let text = source.read().await?;
                self.take_database(text, &source.name(), &names, &mut last)
            };
            let read = tokio::select! {
                read = reading => read,
                () = wait_for_stop(&mut stop) => return,
            };
            let has_changed = match read {
                Ok(is_same) => {
                    if failing.take().is_some() {
                        tracing::info!("the topology is read again");
                    }
                    // Nothing is due if neither the database nor the map has changed.
                    !(is_same && tracker.is_calm()) && tracker.observe(now_ms(), &last.observed)
                }
                Err(fault) => {
                    let why = fault.to_string();
                    if failing.as_ref() != Some(&why) {
                        tracing::warn!(why, "cannot read the topology; links are as last known");
                    }
                    failing = Some(why.clone());
                    // The next router may answer.
                    sources.rotate_left(1);
                    tracker.fail(now_ms(), &why, fault.is_restart())
                }
            };
            self.0.metrics.topology().set_current(tracker.is_current());
            if has_changed {
                self.take_live(tracker.network());
            }
            let pause = interval.max(begun.elapsed().saturating_mul(MIN_PAUSE_FACTOR));
            tokio::select! {
                () = sleep(pause) => {}
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    /// Processes a database. Returns true if nothing has changed since the last one.
    fn take_database(
        &self,
        text: String,
        from: &str,
        names: &longhaul_map::ospf::RouterNames,
        last: &mut LastReading,
    ) -> Result<bool, SourceFault> {
        let map = self.0.changes.lock().map(|changes| changes.by_operator);
        if last.text == text && last.map == map {
            return Ok(true);
        }
        let database = TrafficDatabase::parse(&text).map_err(|fault| SourceFault::Database {
            from: from.to_owned(),
            fault,
        })?;
        let observed = observe(&self.0.file().map, names, &database);
        *last = LastReading {
            text,
            map,
            observed,
        };
        Ok(false)
    }

    /// Uses new states of links for all answers from now on.
    fn take_live(&self, live: LiveNetwork) {
        let before = super::read(&self.0.live);
        let mut logged = 0;
        for (name, link) in &live.links {
            let was_up = before.links.get(name).is_none_or(|link| link.up);
            if was_up != link.up && logged < MAX_LOGGED {
                logged += 1;
                match link.up {
                    true => tracing::info!(link = name, "a link is up again"),
                    false => tracing::warn!(link = name, "a link has failed"),
                }
            }
        }
        for problem in live
            .problems
            .iter()
            .filter(|problem| !before.problems.contains(problem))
            .take(MAX_LOGGED)
        {
            tracing::warn!(problem, "the topology");
        }
        if live.links != before.links {
            let down = live.down();
            let up = live.links.len().saturating_sub(down);
            self.0.metrics.topology().set_links(up, down);
        }
        set(&self.0.live, std::sync::Arc::new(live));
        self.publish_map();
        self.rebuild_places();
        self.0.live_changes.send_modify(|changes| *changes += 1);
    }

    /// Plans reservations again after links have failed, while this controller leads.
    pub(super) async fn reroute_reservations(self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.0.live_changes.subscribe();
        let mut leadership = self.0.leadership.clone();
        let mut impaired = BTreeSet::new();
        loop {
            changes.mark_unchanged();
            let term = leadership.borrow_and_update().term();
            let pause = match term {
                None => None,
                Some(_) => match self.reroute(&mut impaired).await {
                    Ok(()) => Some(REROUTE_INTERVAL).filter(|_| !impaired.is_empty()),
                    Err(error) => {
                        tracing::debug!(%error, "cannot plan reservations again yet");
                        Some(RETRY_PAUSE)
                    }
                },
            };
            // Bandwidth may become free while reservations are impaired.
            let pause = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = leader::changed(&mut leadership) => {}
                () = pause => {}
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    /// Plans all impaired reservations again, and reports those for which no path is left.
    async fn reroute(&self, impaired: &mut BTreeSet<ReservationId>) -> Result<(), AskError> {
        // The writer takes the map before the first command.
        self.execute_reroute(Vec::new()).await?;
        let found = self.impaired_reservations().await?;
        for ids in found.chunks(MAX_REROUTED_PER_TURN) {
            let moved = self.execute_reroute(ids.to_vec()).await?;
            for id in &moved {
                tracing::info!(reservation = id, "a reservation was moved to other links");
            }
            self.0.metrics.topology().count_rerouted(moved.len());
        }
        let left: BTreeSet<_> = self.impaired_reservations().await?.into_iter().collect();
        for id in left.difference(impaired).take(MAX_LOGGED) {
            tracing::warn!(
                reservation = id.0,
                "a reservation has a failed or overbooked link, and no other path was found"
            );
        }
        for id in impaired.difference(&left).take(MAX_LOGGED) {
            tracing::info!(reservation = id.0, "a reservation is no longer impaired");
        }
        self.0.metrics.topology().set_impaired(left.len());
        *impaired = left;
        Ok(())
    }

    async fn impaired_reservations(&self) -> Result<Vec<ReservationId>, AskError> {
        let book = &self.0.book;
        Ok(book
            .read(|desk, now| desk.impaired_reservations(now))
            .await?)
    }

    /// Returns the numbers of the reservations that have a new plan.
    async fn execute_reroute(&self, ids: Vec<ReservationId>) -> Result<Vec<u64>, AskError> {
        let asker = ReservationCaller {
            owner: OPERATOR.to_owned(),
            name: OPERATOR.to_owned(),
            rights: None,
        };
        let command = ReservationCommand::Reroute(ids);
        let reserved = self.0.book.execute(asker, command, None).await?;
        Ok(reserved.reservations.iter().map(|one| one.id).collect())
    }
}
