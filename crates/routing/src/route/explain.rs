//! Explanation of a choice in five lines: route, time, limit, next best route, and evidence.

use std::fmt::Write;

use quantities::Time;

use super::choice::{Choice, Reason};
use super::expected::LimitKind;
use super::{NodeId, RouteDepots};

/// Returns five lines for a person, without newlines. `name` returns the names of nodes.
#[must_use]
pub fn explain(
    choice: &Choice,
    from: NodeId,
    to: NodeId,
    name: &dyn Fn(NodeId) -> String,
) -> [String; 5] {
    [
        route_line(choice, name),
        time_line(choice),
        limit_line(choice, name),
        next_line(choice, name),
        evidence_line(choice, (from, to), name),
    ]
}

/// Formats a route in the syntax of `--route`.
fn route_text(via: &RouteDepots, name: &dyn Fn(NodeId) -> String) -> String {
    if via.is_direct() {
        return "direct".to_owned();
    }
    let names: Vec<String> = via.depots().map(name).collect();
    names.join(",")
}

fn route_line(choice: &Choice, name: &dyn Fn(NodeId) -> String) -> String {
    let mut line = format!("route: {}", route_text(&choice.via, name));
    for (via, share) in choice.at_once.iter().skip(1) {
        let _ = write!(
            line,
            " and {} ({:.0} %)",
            route_text(via, name),
            share * 100.0
        );
    }
    line.push_str(match choice.reason {
        Reason::Small => ": small transfers go direct",
        Reason::DirectUnknown => {
            ": nothing is known of the direct route, so there is nothing to compare with"
        }
        Reason::DirectDead => ": the direct route fails",
        Reason::NothingBetter => ": no route is faster by more than its uncertainty",
        Reason::Quickest => ": the fastest",
        Reason::InUse => ": in use, and no other is faster by enough",
        Reason::NothingKnown => ": nothing is known of any route",
    });
    line
}

fn rounded_seconds(seconds: f64) -> String {
    let digits = match seconds {
        s if s < 10.0 => 100.0,
        s if s < 100.0 => 10.0,
        _ => 1.0,
    };
    Time::from_seconds((seconds * digits).round() / digits).to_string()
}

fn time_line(choice: &Choice) -> String {
    match &choice.expected {
        Some(expected) => {
            let time = &expected.time;
            let mut line = format!(
                "time: {} ({} to {} in eight cases of ten)",
                rounded_seconds(time.p50),
                rounded_seconds(time.p10),
                rounded_seconds(time.p90)
            );
            if choice.at_once.len() > 1 {
                line.push_str(" by the first route alone");
            }
            line
        }
        None => "time: not known".to_owned(),
    }
}

fn limit_line(choice: &Choice, name: &dyn Fn(NodeId) -> String) -> String {
    let Some(expected) = &choice.expected else {
        return "limit: not known".to_owned();
    };
    let (from, to) = expected.limit.hop;
    let what = match expected.limit.kind {
        LimitKind::SetUp => "mostly round trips before and after the data,",
        LimitKind::SlowStart => "windows that are still growing,",
        LimitKind::Rate => "the available rate",
        LimitKind::Window => "the hosts' largest window",
        LimitKind::Loss => "losses",
        LimitKind::Relay => "the rate at which a depot relays,",
        LimitKind::Host => "the disk or processors of an end,",
    };
    format!("limit: {what} from {} to {}", name(from), name(to))
}

fn next_line(choice: &Choice, name: &dyn Fn(NodeId) -> String) -> String {
    match (&choice.next, &choice.expected) {
        (Some(next), Some(expected)) => {
            let part = (next.expected.time.p50 / expected.time.p50 - 1.0) * 100.0;
            let word = if part < 0.0 { "sooner" } else { "later" };
            format!(
                "next: {} in {}, {:.0} % {word}",
                route_text(&next.via, name),
                rounded_seconds(next.expected.time.p50),
                part.abs()
            )
        }
        (Some(next), None) => format!(
            "next: {} in {}",
            route_text(&next.via, name),
            rounded_seconds(next.expected.time.p50)
        ),
        (None, _) => "next: no other route comes close".to_owned(),
    }
}

fn evidence_line(
    choice: &Choice,
    ends: (NodeId, NodeId),
    name: &dyn Fn(NodeId) -> String,
) -> String {
    match &choice.expected {
        Some(expected) => format!(
            "based on: measurements of up to {} ago, at least {} of each hop from {} to {}",
            rounded_seconds(expected.age.max(0.0)),
            expected.samples,
            name(ends.0),
            name(ends.1)
        ),
        None => format!(
            "based on: no measurements from {} to {}",
            name(ends.0),
            name(ends.1)
        ),
    }
}

#[cfg(test)]
mod tests;
