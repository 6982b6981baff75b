//! Validation of a controller's answer or table, however old, wrong or hostile it is. Pure.
//!
//! Nothing here can make a copy fail. Invalid parts are left out. The rest is used alongside the
//! direct route, which takes over if a chosen route does not perform.
#![deny(clippy::indexing_slicing)] // a table comes from the network, or from a file

use std::time::Duration;

use longhaul_control_api::routes::{Destination, RouteAnswer, RouteOption, RouteTable};
use longhaul_policy::HostPattern;
use longhaul_proto::text::printable_within;
use longhaul_proto::{Host, Route};

use crate::routes::held::HeldRoutes;
use crate::routes::promise::{self, is_sound};
pub use crate::routes::question::MAX_AT_ONCE;
use crate::routes::question::{Choice, ChosenRoute, MAX_LINES, Origin, RouteQuery, Spread};

/// Size in bytes up to which copies always go direct, because setup through a depot costs more than
/// it saves.
pub const SMALL_BYTES: u64 = 256 << 10;
/// Maximum validity of a table, whatever it states.
pub const MAX_VALIDITY: Duration = Duration::from_secs(3600);
/// Time after its validity for which a table is still used, with less trust.
pub const MAX_DOUBTED_AGE: Duration = Duration::from_secs(86_400);
/// Maximum age of a table from which a copy time is promised, because links change.
pub const MAX_PROMISE_AGE: Duration = Duration::from_secs(300);
/// Maximum time by which a table may be dated ahead of this machine's clock.
const MAX_CLOCK_AHEAD: Duration = Duration::from_secs(300);
/// Maximum number of routes of one answer to examine.
const MAX_EXAMINED_ROUTES: usize = 16;
/// Maximum number of depots in a chosen route.
const MAX_DEPOTS: usize = 3;
/// Maximum length of a route's text, and of a line for people, in bytes.
const MAX_ROUTE_BYTES: usize = 1024;
const MAX_LINE_BYTES: usize = 300;
/// Text of the direct route.
const DIRECT: &str = "direct";
const NONE_IS_QUICKER: &str = "according to the last table, no route is faster than the direct one";
/// Reason why a table or an answer is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IgnoreReason {
    /// There is no table. No controller has sent one yet; the copy goes direct.
    #[error("there is no table of routes")]
    NoTable,
    /// The table is too old. The controller has not answered for a day; the copy goes direct.
    #[error("the table of routes is too old")]
    Stale,
    /// The table is dated ahead of this machine's clock.
    #[error("the table of routes is dated ahead of this machine's clock")]
    FromTheFuture,
    /// The table is for the opposite direction. Sending and fetching have separate files. The copy
    /// goes direct.
    #[error("the table of routes is for the other direction")]
    OtherDirection,
    /// The table does not list the destination. The copy goes direct.
    #[error("the table of routes does not list this destination")]
    Unlisted,
    /// The routes are invalid. The copy goes direct.
    #[error("the table of routes is inconsistent")]
    Senseless,
    /// The routes failed on this machine recently. They are not used for ten minutes.
    #[error("these routes failed here recently")]
    Failed,
}

/// Derives the choice from a controller's answer.
///
/// # Errors
/// [`IgnoreReason`].
pub fn choice_from_answer(
    answer: &RouteAnswer,
    question: &RouteQuery,
    held: &HeldRoutes,
) -> Result<Choice, IgnoreReason> {
    let mut known = [&answer.routes, &answer.others, &answer.fall_back]
        .into_iter()
        .flatten();
    let direct = known.find(|option| option.route == DIRECT);
    let direct = direct.and_then(|option| option.seconds).filter(is_sound);
    if is_small(question) {
        return Ok(direct_for_small(direct));
    }
    let mut choice = choice_from_options(&answer.routes, question, held)?;
    add_fallbacks(&mut choice, &answer.fall_back, question, held);
    // The expected time of all routes together says nothing about a subset of them. One that
    // explores may be the fourth.
    let is_whole = choice.at_once == answer.routes.len().min(MAX_AT_ONCE);
    let seconds = answer
        .seconds
        .filter(|seconds| is_whole && is_sound(seconds));
    choice.seconds = promised_time(&choice, seconds, direct, question);
    let lines = answer.why.iter().take(MAX_LINES);
    choice.why = lines
        .map(|line| printable_within(line.as_bytes(), MAX_LINE_BYTES))
        .collect();
    choice.origin = Origin::Controller;
    Ok(choice)
}

/// Derives the choice from a table, at time `now_ms`.
///
/// # Errors
/// [`IgnoreReason`].
pub fn choice_from_table(
    table: &RouteTable,
    question: &RouteQuery,
    now_ms: u64,
    held: &HeldRoutes,
) -> Result<Choice, IgnoreReason> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if table.made_ms > now_ms.saturating_add(millis(MAX_CLOCK_AHEAD)) {
        return Err(IgnoreReason::FromTheFuture);
    }
    let longest = table.made_ms.saturating_add(millis(MAX_VALIDITY));
    let valid_until = table.valid_until_ms.min(longest);
    if now_ms > valid_until.saturating_add(millis(MAX_DOUBTED_AGE)) {
        return Err(IgnoreReason::Stale);
    }
    if table.receives != question.receives {
        return Err(IgnoreReason::OtherDirection);
    }
    let is_old = now_ms > valid_until;
    let found = table
        .destinations
        .iter()
        .find(|known| matches_destination(known, question));
    let found = found.ok_or(IgnoreReason::Unlisted)?;
    let age = Duration::from_millis(now_ms.saturating_sub(table.made_ms));
    let may_promise = !is_old && age <= MAX_PROMISE_AGE;
    let sized = question.bytes.filter(|_| may_promise);
    let direct = sized.and_then(|bytes| promise::direct_time(&found.direct, bytes));
    if is_small(question) {
        return Ok(Choice {
            origin: Origin::Cache { age, is_old },
            ..direct_for_small(direct)
        });
    }
    if found.sizes.is_empty() && !found.direct.is_empty() {
        return Ok(Choice {
            origin: Origin::Cache { age, is_old },
            seconds: direct,
            ..Choice::direct(NONE_IS_QUICKER)
        });
    }
    let bytes = question.bytes.unwrap_or(u64::MAX);
    let class = found
        .sizes
        .iter()
        .filter(|class| class.at_least_bytes <= bytes)
        .max_by_key(|class| class.at_least_bytes)
        .ok_or(IgnoreReason::Unlisted)?;
    let mut choice = choice_from_options(&class.routes, question, held)?;
    if is_old {
        choice.at_once = choice.at_once.min(1);
        choice.routes.truncate(1);
    }
    if !is_better(&choice, class.direct_seconds.as_ref()) {
        return Err(IgnoreReason::Senseless);
    }
    let of_class: Option<Vec<Spread>> = choice
        .used_routes()
        .iter()
        .map(|chosen| chosen.seconds)
        .collect();
    let is_whole = choice.at_once == class.routes.len().min(MAX_AT_ONCE);
    let scaled =
        |seconds| promise::scale_time(&seconds, class.typical_bytes, sized?, &found.direct);
    let seconds = of_class
        .filter(|_| is_whole)
        .and_then(|all| promise::combined_time(&all))
        .and_then(scaled);
    choice.seconds = promised_time(&choice, seconds, direct, question);
    add_fallbacks(&mut choice, &class.fall_back, question, held);
    choice.origin = Origin::Cache { age, is_old };
    choice.why = vec![match choice.is_direct() {
        true => NONE_IS_QUICKER.to_owned(),
        false => format!(
            "according to the last table, {} is the fastest",
            choice.used_names()
        ),
    }];
    Ok(choice)
}

fn is_small(question: &RouteQuery) -> bool {
    question.bytes.is_some_and(|bytes| bytes <= SMALL_BYTES)
}

fn direct_for_small(seconds: Option<Spread>) -> Choice {
    Choice {
        seconds,
        ..Choice::direct("transfers this small go direct")
    }
}

/// Returns the promised time: that of the used routes together, alongside the direct one.
fn promised_time(
    choice: &Choice,
    together: Option<Spread>,
    direct: Option<Spread>,
    question: &RouteQuery,
) -> Option<Spread> {
    match choice.is_direct() {
        true => direct.or(together),
        false => Some(promise::alongside_direct(
            together?,
            direct,
            question.bytes.unwrap_or(u64::MAX),
        )),
    }
}

/// Returns true if an entry of a table is for the question's destination.
fn matches_destination(known: &Destination, question: &RouteQuery) -> bool {
    let (address, name) = match &question.destination.host {
        Host::Ip(ip) => (Some(*ip), None),
        Host::Name(name) => (None, Some(name.as_str())),
    };
    let fits = |text: &str| {
        text.parse::<HostPattern>()
            .is_ok_and(|pattern| pattern.matches(address, name))
    };
    fits(&known.to) || known.addresses.iter().any(|text| fits(text))
}

/// Returns the valid routes that have not failed, to be used at once, the one with the largest
/// share first.
fn choice_from_options(
    options: &[RouteOption],
    question: &RouteQuery,
    held: &HeldRoutes,
) -> Result<Choice, IgnoreReason> {
    let mut used: Vec<(f64, ChosenRoute)> = Vec::new();
    for option in options.iter().take(MAX_EXAMINED_ROUTES) {
        let share = option.share;
        if let Some(chosen) = parse_option(option, question).filter(|_| share > 0.0 && share <= 1.0)
            && used.iter().all(|(_, other)| other.route != chosen.route)
        {
            used.push((share, chosen));
        }
    }
    if used.is_empty() {
        return Err(IgnoreReason::Senseless);
    }
    used.sort_by(|one, other| other.0.total_cmp(&one.0));
    used.truncate(MAX_AT_ONCE);
    used.retain(|(_, chosen)| !held.is_held(&question.destination, &chosen.route));
    if used.is_empty() {
        return Err(IgnoreReason::Failed);
    }
    Ok(Choice {
        at_once: used.len(),
        routes: used.into_iter().map(|(_, chosen)| chosen).collect(),
        seconds: None,
        why: Vec::new(),
        origin: Origin::Nobody,
    })
}

/// Adds fallback routes.
fn add_fallbacks(
    choice: &mut Choice,
    options: &[RouteOption],
    question: &RouteQuery,
    held: &HeldRoutes,
) {
    for option in options.iter().take(MAX_EXAMINED_ROUTES) {
        if let Some(other) = parse_option(option, question)
            && choice.routes.iter().all(|known| known.route != other.route)
            && !held.is_held(&question.destination, &other.route)
        {
            choice.routes.push(other);
        }
    }
}

/// Returns true if a single chosen route is better than the direct one by its own source's figures.
fn is_better(choice: &Choice, direct: Option<&Spread>) -> bool {
    match (choice.used_routes(), direct) {
        ([one], Some(direct)) if !one.route.is_direct() => {
            is_sound(direct) && one.seconds.is_none_or(|seconds| seconds.p50 < direct.p50)
        }
        _ => true,
    }
}

/// Returns the route of an option if it is valid.
fn parse_option(option: &RouteOption, question: &RouteQuery) -> Option<ChosenRoute> {
    let route = parse_route(option)?;
    let passes_the_end = route
        .hops()
        .iter()
        .any(|hop| hop.endpoint == question.destination);
    let mut keys: Vec<_> = route.hops().iter().map(|hop| &hop.endpoint).collect();
    keys.sort();
    keys.dedup();
    let repeats = keys.len() < route.hops().len();
    let mut figures = option.seconds.iter().chain(&option.rate_bps);
    if passes_the_end || repeats || !figures.all(is_sound) {
        return None;
    }
    let names = option
        .via
        .iter()
        .map(|passed| printable_within(passed.depot.as_bytes(), MAX_LINE_BYTES));
    let depots: Vec<String> = names.take(MAX_DEPOTS).collect();
    Some(ChosenRoute {
        // Names are for people and reports. If they do not fit the route, they are left out.
        depots: if depots.len() == route.hops().len() {
            depots
        } else {
            Vec::new()
        },
        route,
        seconds: option.seconds,
    })
}

fn parse_route(option: &RouteOption) -> Option<Route> {
    let route: Route = option
        .route
        .get(..)
        .filter(|text| text.len() <= MAX_ROUTE_BYTES)?
        .parse()
        .ok()?;
    (route.hops().len() <= MAX_DEPOTS).then_some(route)
}

#[cfg(test)]
mod tests;
