//! Admission of requests. Each answer proves itself: a plan, or the full cut and the time at which
//! it frees up, with counter-offers.

mod cause;
mod offer;
mod over_time;
mod search;
#[cfg(test)]
mod tests;
mod until;

use std::borrow::Cow;

use crate::ledger::{BandwidthLedger, ReservationId, View};
use crate::network::LinkId;
use crate::path::BandwidthField;
use crate::policy::{PolicyRefusal, RequestLimits};
use crate::proof::PartialFit;
use crate::request::{CircuitRequest, Demand, RequestFault, ReservationPlan};
use crate::split::{RatedPath, find_routes};
use crate::time::{BitsPerSecond, MomentMs, Window};

pub use cause::{PathConstraint, RefusalCause};
pub use search::Shortfall;

/// A request is refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdmissionRefusal {
    /// The request is malformed: correct it.
    #[error(transparent)]
    Fault(#[from] RequestFault),
    /// The limits of the user forbid the request.
    #[error(transparent)]
    Policy(#[from] PolicyRefusal),
    /// The available bandwidth does not suffice: request less, or at another time.
    #[error("not enough bandwidth")]
    Shortfall(Box<Shortfall>),
}

/// A link of a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutLink {
    /// The link.
    pub link: LinkId,
    /// Rate left on it throughout the window, in bit/s.
    pub left: BitsPerSecond,
    /// Moment at which it is fullest.
    pub at: MomentMs,
    /// Reservations that hold it at that moment.
    pub by: Vec<ReservationId>,
}

/// Counter-offers. Each is granted if it is requested before anything else is reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterOffers {
    /// The same request later. For a rate, at the earliest start that was found; for a volume, by
    /// the earliest end that was found.
    pub later: Option<CounterOffer>,
    /// The highest rate that was found for the same window.
    pub slower: Option<CounterOffer>,
    /// The largest volume that was found by the end of the window.
    pub volume: Option<CounterOffer>,
}

/// A counter-offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterOffer {
    /// Request that would be granted.
    pub request: CircuitRequest,
    /// Plan that would be promised.
    pub plan: ReservationPlan,
}

impl CounterOffers {
    /// Returns the offers that there are.
    pub fn iter(&self) -> impl Iterator<Item = &CounterOffer> {
        let all = [&self.later, &self.slower, &self.volume];
        all.into_iter().flatten()
    }
}

/// Decides a request against the available bandwidth. The ledger names the reservations that hold
/// the rest.
///
/// # Errors
/// [`AdmissionRefusal`]. Its [`Shortfall`] finds counter-offers, which takes longer than the
/// decision and can run elsewhere.
pub fn decide(
    view: &View<'_>,
    ledger: &BandwidthLedger,
    request: &CircuitRequest,
    limits: &RequestLimits,
    now: MomentMs,
) -> Result<ReservationPlan, AdmissionRefusal> {
    request.check(view.network())?;
    if request.window.start < now {
        let start = request.window.start;
        return Err(RequestFault::Past { start, now }.into());
    }
    limits.check(request, now)?;
    let view = limit_view(view, limits);
    plan_request(&view, request, limits).map_err(|partial| {
        let shortfall = Shortfall::new((&view, ledger), request, limits, now, partial);
        AdmissionRefusal::Shortfall(Box::new(shortfall))
    })
}

/// Returns the view that these limits allow.
fn limit_view<'a>(view: &'a View<'a>, limits: &RequestLimits) -> Cow<'a, View<'a>> {
    match limits.share {
        Some(share) => Cow::Owned(view.clone().with_share(share)),
        None => Cow::Borrowed(view),
    }
}

/// The best that was found for a request that passed the checks.
#[derive(Debug, Clone)]
enum BestFound {
    /// Routes for a part of the rate.
    Routes(Vec<RatedPath>),
    /// Plans for a part of the volume.
    Volume(over_time::PartialPlans),
}

/// Returns the rate left for a request on each link throughout a window.
fn available_field<'a>(
    view: &View<'a>,
    request: &CircuitRequest,
    window: Window,
) -> BandwidthField<'a> {
    let network = view.network();
    BandwidthField::new(network, |link| {
        request
            .elements
            .allows_link(network, request.ends, link)
            .then(|| view.left(link, window))
    })
}

/// Plans a request that passed the checks.
fn plan_request(
    view: &View<'_>,
    request: &CircuitRequest,
    limits: &RequestLimits,
) -> Result<ReservationPlan, PartialFit<BestFound>> {
    match request.wish {
        Demand::Rate(rate) => find_routes(
            &available_field(view, request, request.window),
            &request.path_constraints(),
            rate,
        )
        .map(|routes| ReservationPlan::constant(request.window, routes))
        .map_err(|partial| partial.map(BestFound::Routes)),
        Demand::Volume { bytes, most, pace } => {
            let goal = over_time::Goal::within_limits(bytes, most, pace, limits);
            let plan = over_time::plan_volume(view, request, &goal);
            plan.map_err(|partial| partial.map(BestFound::Volume))
        }
    }
}

/// Describes a link of a cut.
fn cut_link(view: &View<'_>, ledger: &BandwidthLedger, link: LinkId, window: Window) -> CutLink {
    let peak = view.peak(link, window);
    CutLink {
        link,
        left: view.ceiling(link).saturating_sub(peak.rate),
        at: peak.at,
        by: ledger.holders(link, peak.at).into_keys().collect(),
    }
}
