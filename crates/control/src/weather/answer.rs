//! Answers to route questions.

use longhaul_control_api::forecasts::Spread;
use longhaul_control_api::routes::{Bottleneck, Passed, RouteAnswer, RouteOption, RouteQuestion};
use longhaul_routing::route::choice::{
    Choice, Chooser, RatedRoute, Reason, RouteRequest, is_better,
};
use longhaul_routing::route::expected::{ExpectedTime, LimitKind};
use longhaul_routing::route::explain::explain;
use longhaul_routing::route::{NodeId, RouteDepots, Transfer};

use super::{DEFAULT_STREAMS, RoutingState, spread};
use crate::places::seconds as in_seconds;

/// Default size of a transfer, in bytes: a large one.
const DEFAULT_TRANSFER_BYTES: u64 = 16 << 30;
/// Validity of an answer, in milliseconds.
const ANSWER_LIFE_MS: u64 = 60_000;
/// Maximum number of unused routes in an answer.
const MAX_OTHERS: usize = 8;

/// Question with known ends.
#[derive(Debug, Clone)]
pub struct RouteQuery<'a> {
    /// End where routes begin.
    pub from: &'a str,
    /// End where routes end.
    pub to: &'a str,
    /// The question.
    pub question: &'a RouteQuestion,
    /// Time of the question, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Seed for the choice of the explored route among equal ones.
    pub seed: u64,
}

impl RoutingState {
    /// Answers a question.
    pub fn answer(&mut self, asked: &RouteQuery<'_>) -> RouteAnswer {
        let question = asked.question;
        // Forecasts refer to the direction of the bytes, routes to the direction in which the
        // caller opens them.
        let (from, to) = match question.receives {
            true => (self.id(asked.to), self.id(asked.from)),
            false => (self.id(asked.from), self.id(asked.to)),
        };
        let opened = |via: &RouteDepots| match question.receives {
            true => via.reversed(),
            false => *via,
        };
        self.infer(&[from], &[to], in_seconds(asked.now_ms));
        let streams = question
            .streams
            .and_then(|streams| u16::try_from(streams).ok());
        let request = RouteRequest {
            from,
            to,
            transfer: Transfer {
                bytes: question.bytes.unwrap_or(DEFAULT_TRANSFER_BYTES),
                streams: streams.unwrap_or(DEFAULT_STREAMS),
            },
            urgent: !question.may_explore,
            now: in_seconds(asked.now_ms),
            seed: asked.seed,
        };
        let in_use = question
            .current
            .as_deref()
            .and_then(|current| self.read_route(current))
            .map(|current| opened(&current));
        let avoid: Vec<NodeId> = question
            .avoid
            .iter()
            .filter_map(|depot| self.ids.get(depot).copied())
            .collect();
        let mut chooser = Chooser::new(&self.hops, &self.outcomes, &self.policy);
        let mut choice = chooser.choose(&request, in_use.as_ref(), &self.account);
        let direct = choice.direct;
        let rated = chooser.rate_all(&request, direct.as_ref());
        let is_avoided = |via: &RouteDepots| avoid.iter().any(|depot| via.passes(*depot));
        if choice.at_once.iter().any(|(via, _)| is_avoided(via)) {
            avoid_depots(&mut choice, &rated, &is_avoided, self.policy.margin);
        }
        choice.fall_back.retain(|via| !is_avoided(via));
        let rate = |via: &RouteDepots| chooser.rate(&request, via).map(|rated| rated.expected);
        let bytes = request.transfer.bytes;
        let option = |via: &RouteDepots, expected: Option<&ExpectedTime>, share| {
            self.option(&opened(via), expected, bytes, share)
        };
        let explore = choice.explore.filter(|(via, _)| !is_avoided(via));
        let explored_share =
            explore.map_or(0.0, |(_, explored)| explored as f64 / bytes.max(1) as f64);
        let mut routes: Vec<RouteOption> = choice
            .at_once
            .iter()
            .map(|(via, share)| option(via, rate(via).as_ref(), share * (1.0 - explored_share)))
            .collect();
        let promised = parallel_duration(&routes);
        if let Some((via, _)) = &explore {
            let mut tried = option(via, rate(via).as_ref(), explored_share);
            tried.explores = true;
            routes.push(tried);
        }
        let is_used = |via: &RouteDepots| choice.at_once.iter().any(|(used, _)| used == via);
        let known_direct = Some(RouteDepots::DIRECT).filter(|via| !is_used(via));
        let mut others: Vec<RouteOption> = rated
            .iter()
            .filter(|rated| !is_used(&rated.via) && !is_avoided(&rated.via))
            .take(MAX_OTHERS)
            .map(|rated| option(&rated.via, Some(&rated.expected), 0.0))
            .collect();
        others.extend(known_direct.map(|via| option(&via, direct.as_ref(), 0.0)));
        let median =
            |option: &RouteOption| option.seconds.map_or(f64::INFINITY, |seconds| seconds.p50);
        others.sort_by(|one, other| median(one).total_cmp(&median(other)));
        let fall_back = choice
            .fall_back
            .iter()
            .map(|via| option(via, rate(via).as_ref(), 0.0))
            .collect();
        let shown = match question.receives {
            true => choice.reversed(),
            false => choice,
        };
        let why = explain(&shown, from, to, &|id| self.name(id)).to_vec();
        let answer = RouteAnswer {
            routes,
            others,
            fall_back,
            seconds: promised,
            why,
            map_version: self.map_version,
            made_ms: asked.now_ms,
            valid_until_ms: asked.now_ms.saturating_add(ANSWER_LIFE_MS),
        };
        if question.may_explore && question.bytes.is_some() {
            let explored = explore.map_or(0, |(_, bytes)| bytes);
            self.account.record(bytes, self.policy.bulk, explored);
        }
        answer
    }

    /// Returns a route in the form of the API.
    pub(super) fn option(
        &self,
        via: &RouteDepots,
        expected: Option<&ExpectedTime>,
        bytes: u64,
        share: f64,
    ) -> RouteOption {
        let passed: Vec<Passed> = via.depots().map(|depot| self.passed(depot)).collect();
        let hops: Vec<String> = passed
            .iter()
            .map(|passed| match &passed.key {
                Some(key) => format!("{key}@{}", passed.address),
                None => passed.address.clone(),
            })
            .collect();
        let bits = bytes as f64 * 8.0;
        RouteOption {
            route: if hops.is_empty() {
                "direct".to_owned()
            } else {
                hops.join(",")
            },
            via: passed,
            seconds: expected.map(|expected| spread(&expected.time)),
            rate_bps: expected.map(|expected| Spread {
                p10: bits / expected.time.p90,
                p50: bits / expected.time.p50,
                p90: bits / expected.time.p10,
            }),
            bottleneck: expected.map(|expected| {
                let (from, to) = expected.limit.hop;
                Bottleneck {
                    from: self.name(from),
                    to: self.name(to),
                    why: limit_word(expected.limit.kind).to_owned(),
                }
            }),
            share,
            explores: false,
        }
    }

    fn passed(&self, depot: NodeId) -> Passed {
        let name = self.name(depot);
        let place = self.depots.known.get(&name);
        Passed {
            address: place.map_or_else(|| name.clone(), |place| place.address.clone()),
            key: place.map(|place| place.key.clone()),
            depot: name,
        }
    }

    /// Parses a route in the form of `--route`, if all its depots are known.
    fn read_route(&self, route: &str) -> Option<RouteDepots> {
        if route == "direct" {
            return Some(RouteDepots::DIRECT);
        }
        let bare = |hop: &str| {
            hop.rsplit_once('@')
                .map_or(hop, |(_, address)| address)
                .trim()
                .to_owned()
        };
        let depots: Vec<String> = route.split(',').map(bare).collect();
        self.resolve_route(&depots)
    }
}

/// Replaces a choice that passes a depot to avoid with the best route that passes none.
fn avoid_depots(
    choice: &mut Choice,
    rated: &[RatedRoute],
    is_avoided: &dyn Fn(&RouteDepots) -> bool,
    margin: f64,
) {
    let direct = choice.direct;
    let best = rated.iter().find(|rated| {
        let is_quicker =
            |direct: &ExpectedTime| is_better(&rated.expected.time, &direct.time, margin, 1.0);
        !is_avoided(&rated.via) && direct.as_ref().is_none_or(is_quicker)
    });
    (choice.via, choice.expected, choice.reason) = match best {
        Some(best) => (best.via, Some(best.expected), Reason::Quickest),
        None => (RouteDepots::DIRECT, direct, Reason::NothingBetter),
    };
    choice.at_once = vec![(choice.via, 1.0)];
    choice.next = rated
        .iter()
        .find(|rated| !is_avoided(&rated.via) && rated.via != choice.via)
        .copied();
}

/// Returns the duration over several parallel routes, by the sum of their rates.
fn parallel_duration(routes: &[RouteOption]) -> Option<Spread> {
    if let [one] = routes {
        return one.seconds;
    }
    let times: Option<Vec<Spread>> = routes.iter().map(|route| route.seconds).collect();
    let times = times.filter(|times| !times.is_empty())?;
    let sum = |of: fn(&Spread) -> f64| 1.0 / times.iter().map(|time| 1.0 / of(time)).sum::<f64>();
    Some(Spread {
        p10: sum(|time| time.p10),
        p50: sum(|time| time.p50),
        p90: sum(|time| time.p90),
    })
}

const fn limit_word(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::SetUp => "set-up",
        LimitKind::SlowStart => "slow-start",
        LimitKind::Rate => "rate",
        LimitKind::Window => "window",
        LimitKind::Loss => "loss",
        LimitKind::Relay => "relay",
        LimitKind::Host => "host",
    }
}
