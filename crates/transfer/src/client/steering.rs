//! Decides how many streams each route of a copy has, if the user did not choose the routes.
//!
//! The party that chose them may be wrong, outdated or lying. Promises therefore do not count, only
//! a comparison of the routes' performance. The direct route is always one of them and opens the
//! copy; all streams take work from one queue. A route begins on **probation**: its streams are
//! added to as many direct ones as there would be without it. A useless route thus takes nothing
//! from them except what it has in flight when it is detected:
//!
//! - **Late**: it is not open after [`LATE_FACTOR`] times the opening time of the direct route. It
//!   keeps one attempt, and its other streams are given up.
//! - **Stalled**: it moves nothing for [`MIN_STALL_TIME`] and [`STALL_RTTS`] round trips, although
//!   it has something to move, while the direct route moves. Its streams are given up, so that
//!   other routes take over what they carry.
//! - **Slower**: each of its streams carries less than [`SLOWER_RATIO`] of a direct one, over two
//!   spans. It keeps one stream. It gets more again when that one carries more than all direct ones
//!   together.
//! - **Better**: each of its streams carries more than [`BETTER_RATIO`] times a direct one. The
//!   direct route keeps one stream, so that it is still measured. When that one carries twice as
//!   much as one of the route's, the streams are spread evenly for a trial, whose rate decides.
//! - **Even**: it is neither after [`PROBATION_SPANS`]. From then on the streams are spread evenly.
//! - **Gone**: no attempt can succeed.
//!
//! A **reserved** path is separate: the network promised its rate, which says nothing about other
//! routes. It has up to [`MAX_RESERVED_STREAMS`] streams in addition to all others, and is given up
//! only if it is late, stalled or gone.
//!
//! The direct route by **another transport** is separate, too. A [trial](super::transport_trial)
//! decides whether it carries the copy instead of the direct route's streams.
//!
//! This module has no clock and no sockets. The supervisor feeds it, and opens, retires and gives
//! up streams accordingly.

use std::time::Duration;

use super::route_observation::RouteObservation;
use super::transport_trial::TransportTrial;
use super::{MAX_OTHER_TRANSPORT_STREAMS, RoutePlan};
use crate::progress::RouteStanding;

/// Number of the direct route.
pub(super) const DIRECT_ROUTE: usize = 0;
/// A route is late when it takes this many times as long to open as the other one, and longer by
/// [`MIN_LATENESS`].
const LATE_FACTOR: u32 = 3;
const MIN_LATENESS: Duration = Duration::from_millis(100);
/// A route is stalled if it moves nothing for this long, in time and in round trips, while the
/// direct route does. (A server reports on its end of a stream twice as often.)
const MIN_STALL_TIME: Duration = Duration::from_secs(1);
const STALL_RTTS: u32 = 6;
/// Minimum stall of a reserved path, which may be limited to a low rate.
const RESERVED_STALL_TIME: Duration = Duration::from_secs(5);
/// Number of streams of a reserved path. Its rate is known, so there is nothing to find out. With
/// several streams, a lost packet delays only a part of the data.
const MAX_RESERVED_STREAMS: usize = 4;
/// Period over which routes are compared, in round trips and in time.
const SPAN_RTTS: u32 = 4;
const MIN_SPAN: Duration = Duration::from_millis(300);
const MAX_SPAN: Duration = Duration::from_secs(2);
/// Number of spans in which a new route is compared before it counts as any other.
const PROBATION_SPANS: u32 = 4;
/// A route is slower if its streams carry less than this part of a direct one.
const SLOWER_RATIO: f64 = 0.67;
/// A route is better if its streams carry more than this many times a direct one.
const BETTER_RATIO: f64 = 1.5;
/// Number of consecutive spans that must agree.
const MIN_AGREEING_SPANS: u32 = 2;
/// A trial begins if the one direct stream carries more than this many times one of the route's.
const TRIAL_START_RATIO: f64 = 2.0;
/// Number of spans of a trial. The streams that it opens are in slow start during the first ones.
const TRIAL_SPANS: u32 = 4;
/// Factor by which a trial must increase the rate to succeed.
const MIN_TRIAL_GAIN: f64 = 1.1;
/// Minimum time between a failed trial and the next. It doubles each time.
const MIN_TRIAL_INTERVAL: Duration = Duration::from_secs(10);

/// Notice that the standing of a route has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StandingChange {
    pub route: usize,
    pub standing: RouteStanding,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct RouteState {
    used: bool,
    /// True for a reserved path.
    reserved: bool,
    tried: Option<Duration>,
    opened: Option<Duration>,
    /// Bytes and time of the last observation at which the bytes had grown.
    grew: (u64, Duration),
    /// State at the last mark.
    marked: SpanMark,
    /// Number of consecutive spans in which the route was slower, or better.
    slower: u32,
    better: u32,
    standing: RouteStage,
}

#[derive(Debug, Clone, Copy, Default)]
struct SpanMark {
    moved: u64,
    open: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RouteStage {
    /// Compared over this many spans.
    Probation(u32),
    Even,
    Better,
    /// Evenly spread for a while. Holds the previous rate of all routes, in bytes per second, and
    /// the number of spans left.
    Trial {
        before: f64,
        left: u32,
    },
    Slower,
    Late,
    Stalled,
    Gone,
}

impl Default for RouteStage {
    fn default() -> Self {
        Self::Probation(0)
    }
}

/// Decides how many streams each route has.
#[derive(Debug, Default)]
pub(super) struct RouteSteering {
    routes: Vec<RouteState>,
    /// Direct route by another transport, and its trial.
    other_transport: Option<(usize, TransportTrial)>,
    marked_at: Duration,
    no_trial_before: Duration,
    trials: u32,
}

impl RouteSteering {
    /// Sets the routes that are used in addition to the direct route from now on. Others are no
    /// longer used.
    pub(super) fn set_used(&mut self, plan: &RoutePlan) {
        let RoutePlan {
            beside,
            reserved,
            other_transport,
            ..
        } = plan;
        let most = beside
            .iter()
            .chain(reserved)
            .chain(other_transport)
            .copied()
            .max()
            .unwrap_or(DIRECT_ROUTE);
        if self.other_transport_route() != *other_transport {
            self.other_transport = other_transport.map(|route| (route, TransportTrial::default()));
        }
        if self.routes.len() <= most {
            self.routes.resize(most + 1, RouteState::default());
        }
        for (number, route) in self.routes.iter_mut().enumerate() {
            route.reserved = number != DIRECT_ROUTE && reserved.contains(&number);
            route.used = number == DIRECT_ROUTE
                || route.reserved
                || beside.contains(&number)
                || *other_transport == Some(number);
        }
    }

    /// Returns true if the number of streams on `route` does not depend on the needs of the copy:
    /// on a reserved path, or by another transport.
    pub(super) fn is_separate(&self, route: usize) -> bool {
        let is_reserved = self.routes.get(route).is_some_and(|known| known.reserved);
        is_reserved || self.other_transport_route() == Some(route)
    }

    fn other_transport_route(&self) -> Option<usize> {
        self.other_transport.as_ref().map(|(route, _)| *route)
    }

    /// Returns the direct route by another transport, and its trial, if one is used or tried.
    fn used_transport(&self) -> Option<(usize, &TransportTrial)> {
        let (route, trial) = self.other_transport.as_ref()?;
        trial.is_used().then_some((*route, trial))
    }

    /// Returns true while another transport is used or tried, so that losses of TCP need no more
    /// streams.
    pub(super) fn has_other_transport(&self) -> bool {
        self.used_transport().is_some()
    }

    /// Returns the routes that are used, the direct one first.
    pub(super) fn used_routes(&self) -> impl Iterator<Item = usize> + '_ {
        let numbered = self.routes.iter().enumerate();
        numbered
            .filter(|(_, route)| route.used)
            .map(|(number, _)| number)
    }

    /// Returns the maximum number of streams of `route`, if one route alone would have `streams`.
    pub(super) fn max_streams(&self, route: usize, streams: usize) -> usize {
        let Some(known) = self.routes.get(route).filter(|known| known.used) else {
            return 0;
        };
        if self.other_transport_route() == Some(route) {
            return match self.has_other_transport() {
                true => MAX_OTHER_TRANSPORT_STREAMS,
                false => 0,
            };
        }
        let other_preferred = self
            .used_transport()
            .is_some_and(|(_, trial)| trial.is_preferred());
        match known.standing {
            RouteStage::Gone => 0,
            _ if route == DIRECT_ROUTE && other_preferred => 1,
            RouteStage::Late | RouteStage::Stalled if known.reserved => 1,
            _ if known.reserved => MAX_RESERVED_STREAMS,
            RouteStage::Slower | RouteStage::Late | RouteStage::Stalled => 1,
            RouteStage::Trial { .. } => (streams / 2).max(1),
            _ if route != DIRECT_ROUTE => usize::MAX,
            _ => match self
                .others()
                .any(|other| other.standing == RouteStage::Better)
            {
                true => 1,
                false => usize::MAX,
            },
        }
    }

    /// Returns the total number of streams, if one route alone would have `streams`. This adds as
    /// many for each route on probation, one for each route that is only measured, and those of
    /// reserved paths.
    pub(super) fn total_streams(&self, streams: usize) -> usize {
        let is_new = |other: &&RouteState| matches!(other.standing, RouteStage::Probation(_));
        let measured = self
            .used_routes()
            .filter(|route| !self.is_separate(*route) && self.max_streams(*route, streams) == 1)
            .count();
        let separate = self.used_routes().filter(|route| self.is_separate(*route));
        let separate: usize = separate.map(|route| self.max_streams(route, streams)).sum();
        if self.others().next().is_none() && self.max_streams(DIRECT_ROUTE, streams) == 1 {
            return measured.saturating_add(separate);
        }
        let times = 1 + self.others().filter(is_new).count();
        streams
            .saturating_mul(times)
            .saturating_add(measured)
            .saturating_add(separate)
    }

    /// Returns the states of the routes that are compared with the direct one.
    fn others(&self) -> impl Iterator<Item = &RouteState> {
        let others = self.routes.iter().enumerate().skip(DIRECT_ROUTE + 1);
        others
            .filter(|(number, other)| other.used && !self.is_separate(*number))
            .map(|(_, other)| other)
    }

    /// Records observations of all routes, by their numbers, with the round-trip time of the
    /// longest. Returns the routes whose standing has changed.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        rtt: Duration,
        looks: &[RouteObservation],
    ) -> Vec<StandingChange> {
        let mut judged = Vec::new();
        for (known, look) in self.routes.iter_mut().zip(looks) {
            if look.tried {
                known.tried.get_or_insert(now);
            }
            if look.opened && known.opened.is_none() {
                known.opened = Some(now);
                known.grew = (look.moved, now);
            }
            if look.moved != known.grew.0 || look.open == 0 || !look.busy {
                known.grew = (look.moved, now);
            }
        }
        let other_transport = self.other_transport_route();
        for route in (0..self.routes.len()).filter(|route| Some(*route) != other_transport) {
            if let Some(verdict) = self.judge_attempts(route, now, looks) {
                self.set_stage(route, verdict, &mut judged);
            }
            let is_direct = route == DIRECT_ROUTE;
            if !is_direct && let Some(verdict) = self.judge_silence(route, now, rtt, looks) {
                self.set_stage(route, verdict, &mut judged);
            }
        }
        judged.extend(self.observe_transport(now, rtt, looks));
        let span = rtt.saturating_mul(SPAN_RTTS).clamp(MIN_SPAN, MAX_SPAN);
        let spent = now.saturating_sub(self.marked_at);
        if spent >= span {
            self.compare(now, spent.as_secs_f64(), looks, &mut judged);
            self.marked_at = now;
            for (known, look) in self.routes.iter_mut().zip(looks) {
                known.marked = SpanMark {
                    moved: look.moved,
                    open: look.open,
                };
            }
        }
        judged
    }

    /// Continues the trial of another transport.
    fn observe_transport(
        &mut self,
        now: Duration,
        rtt: Duration,
        looks: &[RouteObservation],
    ) -> Option<StandingChange> {
        let (route, trial) = self.other_transport.as_mut()?;
        let (tcp, other) = (looks.get(DIRECT_ROUTE)?, looks.get(*route)?);
        let (standing, reason) = trial.observe(now, rtt, tcp, other)?;
        Some(StandingChange {
            route: *route,
            standing,
            reason: reason.to_owned(),
        })
    }

    fn set_stage(
        &mut self,
        route: usize,
        verdict: (RouteStage, String),
        judged: &mut Vec<StandingChange>,
    ) {
        let (standing, reason) = verdict;
        let Some(known) = self
            .routes
            .get_mut(route)
            .filter(|known| known.standing != standing)
        else {
            return;
        };
        known.standing = standing;
        (known.slower, known.better) = (0, 0);
        judged.push(StandingChange {
            route,
            standing: match standing {
                RouteStage::Probation(_) | RouteStage::Even | RouteStage::Trial { .. } => {
                    RouteStanding::Even
                }
                RouteStage::Better => RouteStanding::Better,
                RouteStage::Slower => RouteStanding::Slower,
                RouteStage::Late => RouteStanding::Late,
                RouteStage::Stalled => RouteStanding::Stalled,
                RouteStage::Gone => RouteStanding::Gone,
            },
            reason,
        });
    }

    /// Returns the standing that follows from attempts to open the route.
    fn judge_attempts(
        &self,
        route: usize,
        now: Duration,
        looks: &[RouteObservation],
    ) -> Option<(RouteStage, String)> {
        let (known, look) = (self.routes.get(route)?, looks.get(route)?);
        if !known.used {
            return None;
        }
        if look.gone {
            return Some((RouteStage::Gone, "no attempt can succeed".to_owned()));
        }
        match known.standing {
            RouteStage::Gone => {
                return Some((RouteStage::default(), "it is being retried".to_owned()));
            }
            RouteStage::Late if known.opened.is_some() => {
                return Some((RouteStage::default(), "it is open now".to_owned()));
            }
            _ => {}
        }
        let (tried, None) = (known.tried?, known.opened) else {
            return None;
        };
        // The direct route is compared with the quickest of the others, and they with it.
        let took = |other: &RouteState| Some(other.opened?.saturating_sub(other.tried?));
        let others = match route {
            DIRECT_ROUTE => self.others().filter_map(took).min(),
            _ => self.routes.first().and_then(took),
        };
        let allowed = others?
            .saturating_mul(LATE_FACTOR)
            .max(others? + MIN_LATENESS);
        let waited = now.saturating_sub(tried);
        (waited >= allowed && known.standing != RouteStage::Late).then(|| {
            let reason = format!("it is not open after {} ms", waited.as_millis());
            (RouteStage::Late, reason)
        })
    }

    /// Returns the standing that follows if the route moves nothing.
    fn judge_silence(
        &self,
        route: usize,
        now: Duration,
        rtt: Duration,
        looks: &[RouteObservation],
    ) -> Option<(RouteStage, String)> {
        let (known, look) = (self.routes.get(route)?, looks.get(route)?);
        let direct = self.routes.get(DIRECT_ROUTE)?;
        let silent = now.saturating_sub(known.grew.1);
        let least = if known.reserved {
            RESERVED_STALL_TIME
        } else {
            MIN_STALL_TIME
        };
        let bound = least.max(rtt.saturating_mul(STALL_RTTS));
        let direct_moves =
            direct.grew.1 > known.grew.1 && now.saturating_sub(direct.grew.1) < silent / 2;
        if known.standing == RouteStage::Stalled {
            let moves = look.open > 0 && silent.is_zero() && look.moved > known.marked.moved;
            return moves.then(|| (RouteStage::Slower, "it moves again".to_owned()));
        }
        (known.used && look.open > 0 && silent >= bound && direct_moves).then(|| {
            let reason = format!("it has moved nothing for {} ms", silent.as_millis());
            (RouteStage::Stalled, reason)
        })
    }

    /// Compares the rates of the routes since the last mark, `seconds` ago.
    fn compare(
        &mut self,
        now: Duration,
        seconds: f64,
        looks: &[RouteObservation],
        judged: &mut Vec<StandingChange>,
    ) {
        let carried = |known: &RouteState, look: &RouteObservation| {
            let whole = look.open > 0 && known.marked.open > 0;
            whole.then(|| look.moved.saturating_sub(known.marked.moved) as f64 / seconds)
        };
        let each = |known: &RouteState, look: &RouteObservation| {
            carried(known, look).map(|rate| rate / known.marked.open.max(look.open) as f64)
        };
        let all: f64 = self
            .routes
            .iter()
            .zip(looks)
            .filter_map(|(known, look)| carried(known, look))
            .sum();
        let Some((direct, direct_look)) = self.routes.first().zip(looks.first()) else {
            return;
        };
        let (Some(direct_all), Some(direct_each)) =
            (carried(direct, direct_look), each(direct, direct_look))
        else {
            return;
        };
        for route in DIRECT_ROUTE + 1..self.routes.len() {
            let (Some(known), Some(look)) = (self.routes.get(route).copied(), looks.get(route))
            else {
                continue;
            };
            if self.is_separate(route) {
                continue;
            }
            let (Some(here), Some(one)) = (carried(&known, look), each(&known, look)) else {
                continue;
            };
            let (mut slower, mut better) = (known.slower, known.better);
            let times = |says: bool, before: u32| if says { before + 1 } else { 0 };
            let verdict = match known.standing {
                RouteStage::Probation(_) | RouteStage::Even => {
                    slower = times(one < SLOWER_RATIO * direct_each, slower);
                    better = times(one > BETTER_RATIO * direct_each, better);
                    if slower >= MIN_AGREEING_SPANS && here < direct_all {
                        Some((
                            RouteStage::Slower,
                            "its streams carry less than direct ones".to_owned(),
                        ))
                    } else if better >= MIN_AGREEING_SPANS {
                        Some((
                            RouteStage::Better,
                            "its streams carry more than direct ones".to_owned(),
                        ))
                    } else if let RouteStage::Probation(spans) = known.standing {
                        if let Some(known) = self.routes.get_mut(route) {
                            known.standing = RouteStage::Probation(spans + 1);
                        }
                        let is_over = spans + 1 >= PROBATION_SPANS && slower == 0 && better == 0;
                        is_over.then(|| {
                            (
                                RouteStage::Even,
                                "its streams carry as much as direct ones".to_owned(),
                            )
                        })
                    } else {
                        None
                    }
                }
                RouteStage::Better => {
                    slower = times(direct_each > TRIAL_START_RATIO * one, slower);
                    (slower >= MIN_AGREEING_SPANS && now >= self.no_trial_before).then(|| {
                        let trial = RouteStage::Trial {
                            before: all,
                            left: TRIAL_SPANS,
                        };
                        (
                            trial,
                            "a direct stream carries more than its own".to_owned(),
                        )
                    })
                }
                RouteStage::Trial { before, left: 0 } => {
                    if all > MIN_TRIAL_GAIN * before {
                        Some((RouteStage::Slower, "direct streams carry more".to_owned()))
                    } else {
                        let pause = MIN_TRIAL_INTERVAL.saturating_mul(1 << self.trials.min(8));
                        self.no_trial_before = now + pause;
                        self.trials += 1;
                        Some((
                            RouteStage::Better,
                            "direct streams carry no more".to_owned(),
                        ))
                    }
                }
                RouteStage::Trial { before, left } => {
                    if let Some(known) = self.routes.get_mut(route) {
                        known.standing = RouteStage::Trial {
                            before,
                            left: left - 1,
                        };
                    }
                    None
                }
                RouteStage::Slower => {
                    better = times(here > direct_all, better);
                    (better >= MIN_AGREEING_SPANS).then(|| {
                        (
                            RouteStage::Even,
                            "it carries more than all direct streams".to_owned(),
                        )
                    })
                }
                _ => None,
            };
            if let Some(known) = self.routes.get_mut(route) {
                (known.slower, known.better) = (slower, better);
            }
            if let Some(verdict) = verdict {
                self.set_stage(route, verdict, judged);
            }
        }
    }
}

#[cfg(test)]
mod tests;
