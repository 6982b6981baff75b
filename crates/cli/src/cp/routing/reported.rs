//! Reports to the controller about a finished copy.

use std::sync::atomic::Ordering;

use longhaul_control_api::measurements::Batch;
use longhaul_control_api::transfers::{Outcome, RouteUsed, TransferReport};
use longhaul_control_client::Spool;
use longhaul_control_client::routes::Choice;
use longhaul_control_client::spool::SpoolEntry;
use longhaul_proto::SessionId;
use longhaul_transfer::{RouteInfo, TransferProgress};

use super::Routing;
use crate::controller::sync;
use crate::cp::measured::{CopySummary, measured};
use crate::exit::Exit;
use crate::report::Report;

/// A copy of which compression saves more than this fraction is shorter than was promised.
const MAX_SAVED_FRACTION: u64 = 20;

impl Routing {
    /// Returns the spool of reports to the controller.
    fn spool(&self) -> Option<Spool> {
        let (_, state) = self.source.controller()?;
        Some(Spool(sync::reports_dir(state)))
    }

    /// Marks the `failed` routes to be avoided, and has the copy reported to the controller in the
    /// background.
    pub fn end(&self, report: &Report, failed: &[RouteInfo], progress: &TransferProgress) {
        // An answer is of no use any more.
        if let Some(asking) = self.asking().take() {
            asking.task.abort();
        }
        if report.summary.ok {
            for failed in failed {
                self.source
                    .hold_back(&self.question.destination, failed.route());
            }
        }
        let Some(spool) = self.spool() else {
            return;
        };
        let entries = self.entries(report, failed, progress);
        for entry in &entries {
            if let Err(error) = spool.put(entry) {
                tracing::info!(%error, "this copy cannot be reported to the controller");
            }
        }
        if !entries.is_empty() {
            sync::start(self.identity.as_deref());
        }
    }

    fn entries(
        &self,
        report: &Report,
        failed: &[RouteInfo],
        progress: &TransferProgress,
    ) -> Vec<SpoolEntry> {
        let content = progress.bytes_travelled();
        if content == 0 {
            return Vec::new();
        }
        // Compression says nothing about the network, nor about the accuracy of a promise.
        let saved = progress.bytes_saved.load(Ordering::Relaxed);
        let bytes = content.saturating_sub(saved).max(1);
        let is_as_promised = saved <= content / MAX_SAVED_FRACTION;
        let mut entries = Vec::new();
        let Ok(id) = SessionId::random() else {
            return entries;
        };
        let me = self.key.public().to_string();
        let host = self.question.destination.host.to_string();
        let (from, to) = match self.push {
            true => (None, Some(host.clone())),
            false => (Some(host.clone()), None),
        };
        let choice = self.said().choice.clone();
        let names = |route: &RouteInfo| self.names(route, choice.as_ref());
        let routes = report.routes().iter().map(|sum| RouteUsed {
            via: names(&sum.route),
            bytes: sum.bytes,
            streams: u32::try_from(sum.streams).ok(),
            failed: failed.contains(&sum.route),
        });
        let promised = self.said().promised.map(|(promised, _)| promised);
        entries.push(SpoolEntry::Transfer(TransferReport {
            id: id.to_string(),
            from,
            to,
            bytes,
            began_ms: self.begun_ms,
            seconds: report.summary.seconds,
            outcome: match report.summary.exit_code {
                Exit::Success => Outcome::Done,
                Exit::SomeFailed => Outcome::Incomplete,
                Exit::Interrupted => Outcome::Cancelled,
                _ => Outcome::Failed,
            },
            promised: promised.filter(|_| is_as_promised),
            routes: routes.collect(),
            error: report.summary.error.as_deref().map(str::to_owned),
        }));
        let whole = CopySummary {
            me: &me,
            host: &host,
            push: self.push,
            begun_ms: self.begun_ms,
            seconds: report.summary.seconds,
            transfer: &id.to_string(),
        };
        let measurements = measured(&whole, &progress.streams(), names);
        if !measurements.is_empty() {
            entries.push(SpoolEntry::Measurements(Batch { measurements }));
        }
        entries
    }

    /// Returns a route's depots by their names on the map, or by their addresses if those are
    /// unknown.
    fn names(&self, route: &RouteInfo, choice: Option<&Choice>) -> Vec<String> {
        let route = route.route();
        let chosen =
            choice.and_then(|choice| choice.routes.iter().find(|chosen| chosen.route == *route));
        match chosen {
            Some(chosen) if !chosen.depots.is_empty() => chosen.depots.clone(),
            _ => route
                .hops()
                .iter()
                .map(|hop| hop.endpoint.to_string())
                .collect(),
        }
    }
}
