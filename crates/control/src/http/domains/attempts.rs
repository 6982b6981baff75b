//! Attempts to reserve over one path after the other.

use std::collections::BTreeSet;

use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::domains::{
    Criteria, DomainName, DomainReservationRequest, GlobalReservationId, ProblemReason,
    SegmentProblem, Shape,
};
use longhaul_domains::agent::{MessageFault, Planner, UserRequest};
use longhaul_domains::connection::{Connection, Phase, Provider};
use tokio::time::timeout;

use super::REFRESH_TIMEOUT;
use crate::controller::Controller;
use crate::domains::DomainsHandle;
use crate::domains::handle::DomainError;
use crate::http::invalid;

/// Maximum number of paths that are tried for one request.
const MAX_PATHS_TRIED: u32 = 4;
/// Tries one path after the other, without domains that refused, until one is reserved.
pub(super) async fn try_paths(
    controller: &Controller,
    domains: &DomainsHandle,
    caller: &Caller,
    request: &DomainReservationRequest,
    wanted: Criteria,
    name: &str,
) -> Result<Connection, Problem> {
    let mut avoided: BTreeSet<DomainName> = BTreeSet::new();
    let mut last: Option<SegmentProblem> = None;
    for attempt in 1..=MAX_PATHS_TRIED {
        for point in [&wanted.source, &wanted.destination] {
            // An unknown domain is refused below.
            let refresh = domains.refresh_unless_known(&point.domain);
            let _ = timeout(REFRESH_TIMEOUT, refresh).await;
        }
        let mut planner = domains.planner();
        planner.avoided.clone_from(&avoided);
        let mut wanted = wanted.clone();
        wanted.shape = match request.shape {
            Some(shape) => shape,
            None if planner.knows_all_on_path(&wanted) => Shape::Tree,
            None => Shape::Chain,
        };
        let legs = match planner.plan(&wanted, &[]) {
            Ok(legs) => legs,
            Err(problem) => return Err(refusal(&last.unwrap_or(problem))),
        };
        let global: GlobalReservationId = format!("{name}-{attempt}")
            .parse()
            .map_err(|_| invalid("the name of the reservation is invalid"))?;
        let user = UserRequest {
            user: controller.asker(caller).owner,
            global: global.clone(),
            criteria: wanted.clone(),
            legs,
            is_hold_only: false,
            is_provisioned: request.provision,
        };
        let id = match domains.reserve(user).await {
            Ok(id) => id,
            // The request was made before.
            Err(DomainError::Refused(MessageFault::GlobalId)) => domains
                .connections()
                .into_iter()
                .find(|known| known.global == global && known.requester.is_user())
                .map(|known| known.id),
            Err(error) => return Err(error.into()),
        };
        let Some(id) = id else {
            return Err(invalid("the name of the reservation is in use"));
        };
        let Some(connection) = domains.wait_for_outcome(&id).await else {
            return Err(Problem::new(
                ProblemKind::Unavailable,
                "the controller is stopping: try again",
            ));
        };
        if connection.phase == Phase::Active {
            return Ok(connection);
        }
        let problem = connection.problem_or(&domains.settings().name);
        let ends = [&wanted.source.domain, &wanted.destination.domain];
        let is_between = !ends.contains(&&problem.domain);
        let blamed = blamed(&connection, &problem, domains).filter(|_| {
            matches!(
                problem.reason,
                ProblemReason::InsufficientBandwidth
                    | ProblemReason::NoPath
                    | ProblemReason::Forbidden
                    | ProblemReason::Expired
                    | ProblemReason::Unreachable
            )
        });
        last = Some(problem);
        match blamed.filter(|blamed| is_between || !ends.contains(&blamed)) {
            Some(blamed) if avoided.insert(blamed.clone()) => {}
            _ => break,
        }
    }
    Err(refusal(&last.unwrap_or_else(|| SegmentProblem {
        reason: ProblemReason::NoPath,
        domain: domains.settings().name.clone(),
        text: "no path was found".to_owned(),
    })))
}

/// Returns the domain to avoid: the one that refused, or the first peer that did not answer.
fn blamed(
    connection: &Connection,
    problem: &SegmentProblem,
    domains: &DomainsHandle,
) -> Option<DomainName> {
    if problem.domain != domains.settings().name {
        return Some(problem.domain.clone());
    }
    let legs = connection.legs.iter();
    let mut silent = legs.filter(|leg| leg.segments.is_empty());
    silent.find_map(|leg| match &leg.provider {
        Provider::Peer(domain) => Some(domain.clone()),
        Provider::Book => None,
    })
}

/// Returns the answer to a request that was not granted.
fn refusal(problem: &SegmentProblem) -> Problem {
    let kind = match problem.reason {
        ProblemReason::InsufficientBandwidth => ProblemKind::InsufficientBandwidth,
        ProblemReason::NoPath | ProblemReason::NoSuchConnection => ProblemKind::NotFound,
        ProblemReason::Forbidden => ProblemKind::Forbidden,
        ProblemReason::Invalid => ProblemKind::Invalid,
        ProblemReason::Unreachable => ProblemKind::Unreachable,
        ProblemReason::InvalidTransition
        | ProblemReason::Expired
        | ProblemReason::Terminated
        | ProblemReason::ForcedEnd => ProblemKind::Conflict,
    };
    Problem::new(kind, format!("domain {}: {}", problem.domain, problem.text))
}
