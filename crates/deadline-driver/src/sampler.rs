//! Samples of a copy for the planner: remaining bytes, forecast and measured rate of best effort.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_control_api::routes::{RouteAnswer, RouteOption, RouteQuestion};
use longhaul_control_client::ControllerClient;
use longhaul_deadline::{PathId, ProgressSample, RateMeasurement, Rates};
use longhaul_proto::{Endpoint, Route};
use longhaul_transfer::TransferProgress;

use crate::request::DeadlineRequest;

/// Delay before the next forecast after a success.
const FORECAST_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before the next forecast after a failure.
const FORECAST_RETRY_DELAY: Duration = Duration::from_secs(10);
/// Time over which a rate is measured.
const MEASUREMENT_WINDOW: Duration = Duration::from_secs(30);
/// Start of a flow that is left out of the measurement once there is more, as slow start is under
/// way.
const SLOW_START_TIME: Duration = Duration::from_millis(1500);

/// Reservations that run beside best effort.
#[derive(Debug, Clone, PartialEq)]
pub enum ConcurrentReservation {
    /// Reserved routes whose streams are distinguishable, each with its rate in bit/s. Empty if
    /// nothing is reserved.
    Routes(Vec<(PathId, f64)>),
    /// A reservation whose streams cannot be distinguished from others.
    Unknown,
}

/// Sampler of a copy's progress.
pub struct ProgressSampler {
    progress: Arc<TransferProgress>,
    size: Option<u64>,
    server: Endpoint,
    push: bool,
    streams: Option<u32>,
    congestion: Option<String>,
    routes: Vec<Route>,
    forecast: Option<Rates>,
    forecast_due: Option<Instant>,
    /// Bytes carried by best effort, sampled during the last [`MEASUREMENT_WINDOW`].
    samples: VecDeque<(Instant, u64)>,
    /// Time of the first best-effort byte since the reservation last changed.
    flows_since: Option<Instant>,
    /// The reservations beside best effort at the last sample.
    concurrent: ConcurrentReservation,
}

impl ProgressSampler {
    /// Creates a sampler for a copy with these counters.
    pub fn new(request: &DeadlineRequest, progress: Arc<TransferProgress>) -> Self {
        Self {
            progress,
            size: request.size,
            server: request.server.clone(),
            push: request.push,
            streams: request.streams,
            congestion: request.congestion.clone(),
            routes: request.routes.clone(),
            forecast: None,
            forecast_due: None,
            samples: VecDeque::new(),
            flows_since: None,
            concurrent: ConcurrentReservation::Routes(Vec::new()),
        }
    }

    /// Requests a forecast if one is due.
    pub async fn ask_for_forecast(&mut self, controller: Option<&ControllerClient>) {
        let Some(controller) = controller else { return };
        let now = Instant::now();
        if self.forecast_due.is_some_and(|due| now < due) {
            return;
        }
        let (left, is_all) = self.remaining_bytes();
        let question = RouteQuestion {
            to: self.server.host.to_string(),
            receives: !self.push,
            bytes: Some(left).filter(|left| is_all && *left > 0),
            streams: self.streams,
            congestion: self.congestion.clone(),
            ..RouteQuestion::default()
        };
        let again = match controller.question(&question).await {
            Ok(answer) => {
                self.forecast = forecast_rates(&answer, &self.routes);
                FORECAST_INTERVAL
            }
            Err(error) => {
                tracing::info!(%error, "no forecast for best effort");
                FORECAST_RETRY_DELAY
            }
        };
        self.forecast_due = Some(now + again);
    }

    /// Returns the bytes not copied yet, and true if the total is known.
    fn remaining_bytes(&self) -> (u64, bool) {
        let progress = &self.progress;
        let is_walked = progress.walk_complete.load(Ordering::Acquire);
        let found = progress.bytes_found.load(Ordering::Relaxed);
        let found = self
            .size
            .filter(|_| !is_walked)
            .map_or(found, |size| size.max(found));
        let done = progress.bytes_done.load(Ordering::Relaxed);
        (found.saturating_sub(done), is_walked || self.size.is_some())
    }

    /// Takes a sample. Measurement of best effort restarts when `concurrent` has changed.
    pub fn sample(&mut self, concurrent: ConcurrentReservation) -> ProgressSample {
        let (left, is_all) = self.remaining_bytes();
        let measured = self.measured(Instant::now(), concurrent);
        ProgressSample {
            left,
            is_all,
            forecast: self.forecast,
            measured,
        }
    }

    fn measured(
        &mut self,
        now: Instant,
        concurrent: ConcurrentReservation,
    ) -> Option<RateMeasurement> {
        let has_changed = self.concurrent != concurrent;
        self.concurrent = concurrent;
        let streams = self.progress.streams();
        let by_best_effort = streams.iter().filter(|stream| !stream.route.is_reserved());
        let bytes = by_best_effort
            .map(|stream| stream.bytes.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add);
        if has_changed {
            self.samples.clear();
            self.flows_since = None;
        }
        if self.concurrent == ConcurrentReservation::Unknown || bytes == 0 {
            return None;
        }
        let since = *self.flows_since.get_or_insert(now);
        self.samples.push_back((now, bytes));
        // One older sample stays, so that the span is long enough; the newest is not in it yet.
        let is_over = |at: Instant| {
            now.duration_since(at) >= MEASUREMENT_WINDOW
                || at.duration_since(since) <= SLOW_START_TIME
        };
        while self.samples.len() > 2 && self.samples.get(1).is_some_and(|(at, _)| is_over(*at)) {
            self.samples.pop_front();
        }
        let (at, before) = *self.samples.front()?;
        let span = now.duration_since(at);
        (!span.is_zero()).then(|| RateMeasurement {
            bps: bytes.saturating_sub(before) as f64 * 8.0 / span.as_secs_f64(),
            over: now.duration_since(since),
        })
    }
}

/// Returns the sum of the rates of the used routes, or the rate of the direct route if they are
/// unknown.
fn forecast_rates(answer: &RouteAnswer, named: &[Route]) -> Option<Rates> {
    let all = || {
        answer
            .routes
            .iter()
            .chain(&answer.others)
            .chain(&answer.fall_back)
    };
    let route = |option: &RouteOption| option.route.parse::<Route>().ok();
    let found: Vec<&RouteOption> = match named {
        [] => answer
            .routes
            .iter()
            .filter(|option| option.share > 0.0 && !option.explores)
            .collect(),
        named => named
            .iter()
            .filter_map(|wanted| all().find(|option| route(option).as_ref() == Some(wanted)))
            .collect(),
    };
    let together = |options: &[&RouteOption]| {
        let rates: Option<Vec<_>> = options.iter().map(|option| option.rate_bps).collect();
        let rates = rates.filter(|rates| !rates.is_empty())?;
        let sum = Rates {
            p10: rates.iter().map(|rate| rate.p10).sum(),
            p50: rates.iter().map(|rate| rate.p50).sum(),
            p90: rates.iter().map(|rate| rate.p90).sum(),
        };
        sum.is_sound().then_some(sum)
    };
    let direct = || {
        let direct = all().find(|option| option.via.is_empty() && option.rate_bps.is_some());
        direct
            .filter(|_| named.is_empty())
            .and_then(|direct| together(&[direct]))
    };
    together(&found).or_else(direct)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forecast_sums_the_used_routes() {
        let option = |route: &str, rate: Option<f64>, share: f64| {
            let spread =
                rate.map(|p50| serde_json::json!({"p10": p50 / 2.0, "p50": p50, "p90": p50 * 2.0}));
            let via: Vec<serde_json::Value> = match route {
                "direct" => Vec::new(),
                depot => vec![serde_json::json!({"depot": "d", "address": depot})],
            };
            serde_json::json!({
                "via": via, "route": route, "seconds": null, "rate_bps": spread, "share": share
            })
        };
        let answer =
            |routes: Vec<serde_json::Value>, others: Vec<serde_json::Value>| -> RouteAnswer {
                serde_json::from_value(serde_json::json!({
                    "routes": routes, "others": others, "fall_back": [], "seconds": null, "why": [],
                    "map_version": 1, "made_ms": 1, "valid_until_ms": 2
                }))
                .unwrap()
            };
        let p50 = |answer: &RouteAnswer, named: &[&str]| {
            let named: Vec<Route> = named.iter().map(|route| route.parse().unwrap()).collect();
            forecast_rates(answer, &named).map(|rates| rates.p50)
        };
        let two = answer(
            vec![
                option("a:1", Some(3e6), 0.5),
                option("b:1", Some(4e6), 0.5),
                option("c:1", Some(9e6), 0.0),
            ],
            vec![option("direct", Some(1e6), 0.0)],
        );
        assert_eq!(p50(&two, &[]), Some(7e6));
        assert_eq!(p50(&two, &["direct"]), Some(1e6));
        assert_eq!(p50(&two, &["c:1", "direct"]), Some(10e6));
        assert_eq!(p50(&two, &["z:1"]), None);
        let unknown = answer(
            vec![option("a:1", None, 1.0)],
            vec![option("direct", Some(1e6), 0.0)],
        );
        assert_eq!(p50(&unknown, &[]), Some(1e6));
        assert_eq!(
            p50(&answer(vec![option("direct", None, 1.0)], vec![]), &[]),
            None
        );
    }
}
