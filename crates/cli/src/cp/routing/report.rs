//! What a copy's report says of its routes.

use longhaul_route_source::{ChosenRoute, Origin, Spread};
use longhaul_transfer::RouteStanding;
use serde::Serialize;

use super::Routing;

/// Who chose the routes of a copy, and what they said, in its report.
#[derive(Debug, Serialize)]
pub struct RoutingReport {
    /// The routes that were chosen, by the names of their depots.
    chosen: Vec<String>,
    /// Who chose: `file`, `controller`, `cache`, or `nobody`.
    by: &'static str,
    /// How old the table was, in seconds; null where it was none.
    table_age_seconds: Option<u64>,
    /// Why, for people.
    why: Vec<String>,
    /// How long it was to take, in seconds.
    promised_seconds: Option<Spread>,
    /// How long after the copy began that was said, in seconds.
    promised_after_seconds: Option<f64>,
    /// Whether it took between p10 and p90 of that; null where nothing was promised, or it did not
    /// come to its end.
    kept_promise: Option<bool>,
    /// How the routes did beside the direct one, in the order in which that showed.
    judged: Vec<Judged>,
    /// For people.
    #[serde(skip)]
    lines: Vec<String>,
}

/// That a route had another share of the streams from then on.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// Which, as `--route` takes it.
    pub route: String,
    /// How it stood.
    pub standing: RouteStanding,
    /// Why, for people.
    pub reason: String,
}

/// For people, with `--explain`.
impl RoutingReport {
    /// The lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl Routing {
    /// For the report.
    pub fn report(
        &self,
        judged: Vec<Judged>,
        seconds: f64,
        is_done: bool,
    ) -> Option<RoutingReport> {
        let said = self.said();
        let choice = said.choice.as_ref()?;
        let promised = said.promised.as_ref().map(|(promised, _)| promised);
        let kept = promised.filter(|_| is_done);
        let mut report = RoutingReport {
            chosen: choice.used().iter().map(ChosenRoute::name).collect(),
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
            lines: vec![format!("route: {} ({})", choice.names(), choice.origin)],
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
