//! Sessions with off-ramps that continue over another route.

use std::sync::Arc;
use std::time::Duration;

use longhaul_config::routes::{RouteTable, SessionEnd};
use longhaul_hop::{EventLog, Payer};
use longhaul_proto::Route;
use longhaul_session::{
    ResumeEvent, ResumeLimits, ResumeMemory, ResumeObserver, ResumeOptions, RouteList,
};

use crate::destination::OnrampDestination;
use crate::metrics::OnrampMetrics;
use crate::table::ReloadingTable;

/// State that all resumable sessions of an on-ramp share.
#[derive(Debug)]
pub(crate) struct ResumableSessions {
    within: Duration,
    pub(crate) memory: Arc<ResumeMemory>,
    metrics: Arc<OnrampMetrics>,
    events: Arc<EventLog>,
}

/// Routes of a session with an off-ramp.
#[derive(Debug, Clone)]
pub(crate) struct SessionRoutes {
    pub(crate) destination: OnrampDestination,
    /// Off-ramp of the session.
    pub(crate) end: SessionEnd,
    /// Routes that were known when it began, best first.
    pub(crate) known: Vec<Route>,
}

impl ResumableSessions {
    pub(crate) fn new(
        limits: &ResumeLimits,
        metrics: Arc<OnrampMetrics>,
        events: Arc<EventLog>,
    ) -> Self {
        Self {
            within: limits.within,
            memory: ResumeMemory::new(limits.memory, limits.window),
            metrics,
            events,
        }
    }

    /// Returns the options of a session for a client. The table may name further routes later.
    pub(crate) fn options(
        &self,
        payer: Payer,
        routes: SessionRoutes,
        table: &Arc<ReloadingTable>,
    ) -> ResumeOptions {
        let destination = routes.destination.to_string();
        let table = Arc::clone(table);
        ResumeOptions {
            within: self.within,
            memory: Arc::clone(&self.memory),
            payer,
            routes: RouteList::new(move || routes.current(&table.current())),
            observer: self.observer(destination),
        }
    }

    fn observer(&self, destination: String) -> ResumeObserver {
        let (metrics, events) = (Arc::clone(&self.metrics), Arc::clone(&self.events));
        ResumeObserver::new(move |session, payer, event| match event {
            ResumeEvent::Started => {
                metrics.sessions_resumable.inc();
            }
            ResumeEvent::Lost => events.log(Some(payer), |left_out| {
                tracing::warn!(
                    %session, destination, left_out,
                    "session lost its connection: resuming it over another route"
                );
            }),
            ResumeEvent::Resumed {
                route,
                after,
                retransmitted,
            } => {
                metrics.sessions_resumed.inc();
                events.log(Some(payer), |left_out| {
                    tracing::info!(
                        %session, destination, route = route.map(tracing::field::display),
                        after_seconds = after.as_secs_f64(),
                        retransmitted_bytes = retransmitted, left_out,
                        "session resumed"
                    );
                });
            }
            ResumeEvent::GivenUp(error) => {
                metrics.sessions_not_resumed.inc();
                events.log(Some(payer), |left_out| {
                    tracing::warn!(%session, destination, %error, left_out, "session not resumed");
                });
            }
            ResumeEvent::Ended => {
                metrics.sessions_resumable.dec();
            }
            _ => {}
        })
    }
}

impl SessionRoutes {
    /// Returns the routes to the session's off-ramp: those that the table names now, then those
    /// that were known before.
    fn current(&self, table: &RouteTable) -> Vec<Route> {
        let destination = &self.destination;
        let rule = table
            .rule(
                destination.address(),
                destination.name(),
                destination.port(),
            )
            .filter(|rule| is_same_offramp(&rule.end, &self.end));
        let mut routes: Vec<Route> = rule
            .into_iter()
            .flat_map(|rule| std::iter::once(&rule.via).chain(&rule.alternatives))
            .cloned()
            .collect();
        for known in &self.known {
            if !routes.contains(known) {
                routes.push(known.clone());
            }
        }
        routes
    }
}

/// Returns true if both are the off-ramp at the same address. The session has its key.
fn is_same_offramp(one: &SessionEnd, other: &SessionEnd) -> bool {
    match (one, other) {
        (SessionEnd::Offramp { at: one, .. }, SessionEnd::Offramp { at: other, .. }) => {
            one == other
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn table(rules: &str) -> RouteTable {
        RouteTable::parse(rules, Path::new("routes.toml")).unwrap()
    }

    #[test]
    fn routes_of_the_current_table_come_first() {
        let first = table("[[route]]\nto = [\"192.0.2.0/24\"]\nvia = \"a\"\nofframp = \"exit\"");
        let routes = SessionRoutes {
            destination: OnrampDestination::from_address("192.0.2.1:5432".parse().unwrap()),
            end: first.rules()[0].end.clone(),
            known: vec!["a".parse().unwrap(), Route::direct()],
        };
        let names = |table: &RouteTable| {
            let routes = routes.current(table);
            let names: Vec<String> = routes.iter().map(Route::to_string).collect();
            names.join(" ")
        };
        assert_eq!(names(&first), "a:7510 direct");
        let second = table(
            "[[route]]\nto = [\"*\", \"192.0.2.0/24\"]\nvia = \"b\"\nalternatives = [\"c,d\"]\n\
             offramp = \"exit\"",
        );
        assert_eq!(names(&second), "b:7510 c:7510,d:7510 a:7510 direct");
        let elsewhere =
            table("[[route]]\nto = [\"192.0.2.0/24\"]\nvia = \"b\"\nofframp = \"other\"");
        assert_eq!(names(&elsewhere), "a:7510 direct");
        assert_eq!(names(&table("")), "a:7510 direct");
    }
}
