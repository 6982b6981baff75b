//! The part of a copy's report about its routes.

use longhaul_control_client::routes::{ChosenRoute, Origin, Spread};
use longhaul_copy_api::RouteVerdict;
use serde::Serialize;

use super::Routing;

/// Origin and result of a copy's routing, for its report.
#[derive(Debug, Serialize)]
pub struct RoutingReport {
    /// The chosen routes, by the names of their depots.
    chosen: Vec<String>,
    /// Origin of the choice: `file`, `controller`, `cache`, or `nobody`.
    by: &'static str,
    /// Age of the table, in seconds; null without a table.
    table_age_seconds: Option<u64>,
    /// Reasons for the choice, for people.
    why: Vec<String>,
    /// Promised duration, in seconds.
    promised_seconds: Option<Spread>,
    /// Seconds from the start of the copy to the promise.
    promised_after_seconds: Option<f64>,
    /// True if the duration was between p10 and p90 of the promise; null without a promise, or if
    /// the copy did not finish.
    kept_promise: Option<bool>,
    /// Verdicts on the routes compared with the direct one, in order of time.
    judged: Vec<RouteVerdict>,
    /// Lines for people.
    #[serde(skip)]
    lines: Vec<String>,
}

/// Lines that `--explain` prints.
impl RoutingReport {
    /// Returns the lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl Routing {
    /// Builds the report.
    pub fn report(
        &self,
        judged: Vec<RouteVerdict>,
        seconds: f64,
        is_done: bool,
    ) -> Option<RoutingReport> {
        let said = self.said();
        let choice = said.choice.as_ref()?;
        let promised = said.promised.as_ref().map(|(promised, _)| promised);
        let kept = promised.filter(|_| is_done);
        let mut report = RoutingReport {
            chosen: choice.used_routes().iter().map(ChosenRoute::name).collect(),
            by: choice.origin.word(),
            table_age_seconds: match &choice.origin {
                Origin::Cache { age, .. } => Some(age.as_secs()),
                _ => None,
            },
            why: choice.why.clone(),
            promised_seconds: promised.copied(),
            promised_after_seconds: said.promised.map(|(_, after)| after),
            kept_promise: kept.map(|promised| (promised.p10..=promised.p90).contains(&seconds)),
            judged,
            lines: vec![format!(
                "route: {} ({})",
                choice.used_names(),
                choice.origin
            )],
        };
        report
            .lines
            .extend(report.why.iter().map(|why| format!("  {why}")));
        if let Some(promised) = promised {
            let shown = |seconds| quantities::Time::from_seconds(seconds);
            report.lines.push(format!(
                "  promised {} to {}, took {}",
                shown(promised.p10),
                shown(promised.p90),
                shown(seconds)
            ));
        }
        for judged in &report.judged {
            let word = judged.standing.word();
            report
                .lines
                .push(format!("  {}: {word}, {}", judged.route, judged.reason));
        }
        Some(report)
    }
}
