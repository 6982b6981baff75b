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

use serde::{Deserialize, Serialize};

use crate::ledger::{BandwidthLedger, ReservationId, View};
use crate::network::LinkId;
use crate::path::BandwidthField;
use crate::policy::{PolicyRefusal, RequestLimits};
use crate::request::{CircuitRequest, Demand, RequestFault, ReservationPlan};
use crate::split::{Cut, RateEvidence, find_routes};
use crate::time::{BitsPerSecond, MomentMs, Volume, Window};

pub use cause::{PathConstraint, RefusalCause};
pub use search::OfferSearch;

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// The request is granted with this plan.
    Granted(ReservationPlan),
    /// The request is refused.
    Refused(AdmissionRefusal),
}

/// Reason for a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionRefusal {
    /// The request is malformed.
    Fault(RequestFault),
    /// The limits of the user forbid the request.
    Policy(PolicyRefusal),
    /// The available bandwidth does not suffice.
    NoRoom(Box<InsufficientBandwidth>),
}

/// A shortage of bandwidth: its proof, and counter-offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsufficientBandwidth {
    /// Evidence that the request does not fit.
    pub proof: RefusalProof,
    /// Constraints on the paths without which it would fit. `None` if bandwidth is short whatever
    /// paths are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RefusalCause>,
    /// Counter-offers.
    pub offers: CounterOffers,
}

/// Evidence that a request does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalProof {
    /// Every path between the ends crosses these links, and too little is left on them.
    Cut {
        /// Links of the cut, with the reservations that hold them.
        links: Vec<CutLink>,
        /// Most that the allowed number of paths carries across the cut, in bit/s. It is less than
        /// the requested rate.
        rate: BitsPerSecond,
        /// Start before which the cut is always too full. `None` if the links are too narrow even
        /// when nothing is reserved.
        until: Option<MomentMs>,
    },
    /// Within the window, these links carry less than the requested volume.
    Volume {
        /// Links of the cut, with the reservations that hold them when they are fullest.
        links: Vec<CutLink>,
        /// Most that crosses the cut within the window.
        volume: Volume,
    },
    /// In each stretch of the window without changes, some cut is too full. This is the most that
    /// all stretches carry together.
    Stretches {
        /// Upper bound of what fits.
        volume: Volume,
    },
    /// Every choice of that many paths was tried. More paths would carry the rate.
    Searched {
        /// Rate of all paths together, in bit/s.
        all: BitsPerSecond,
    },
    /// No choice of paths within the constraints of the request carries the rate.
    Constrained {
        /// Most that was found, in bit/s.
        found: BitsPerSecond,
        /// If true, every choice was tried.
        complete: bool,
    },
    /// Missing evidence: no choice was found, but there are too many to try them all. More paths,
    /// or a choice that was not tried, would carry the rate.
    Unknown,
}

/// A link of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterOffer {
    /// Request that would be granted.
    pub request: CircuitRequest,
    /// Plan that would be promised.
    pub plan: ReservationPlan,
}

/// Handling of counter-offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterOfferMode {
    /// Search for them before answering.
    Offer,
    /// Do not search for them, which is faster.
    Refuse,
    /// Answer without them, and return a [`OfferSearch`] that finds them later.
    Later,
}

/// Decides a request against the available bandwidth. The ledger names the reservations that hold
/// the rest.
#[must_use]
pub fn decide(
    view: &View<'_>,
    ledger: &BandwidthLedger,
    request: &CircuitRequest,
    limits: &RequestLimits,
    now: MomentMs,
    counter: CounterOfferMode,
) -> Admission {
    let (mut answer, search) = decide_without_offers(view, ledger, request, limits, now);
    if let (
        CounterOfferMode::Offer,
        Some(search),
        Admission::Refused(AdmissionRefusal::NoRoom(none)),
    ) = (counter, search, &mut answer)
    {
        none.offers = search.find_offers_in(&limit_view(view, limits), &mut || true);
    }
    answer
}

/// Decides a request without counter-offers. If bandwidth is short, also returns the
/// [`OfferSearch`] for counter-offers. It takes longer than the decision and can run elsewhere.
#[must_use]
pub fn decide_without_offers(
    view: &View<'_>,
    ledger: &BandwidthLedger,
    request: &CircuitRequest,
    limits: &RequestLimits,
    now: MomentMs,
) -> (Admission, Option<OfferSearch>) {
    let refused = |refusal| (Admission::Refused(refusal), None);
    if let Err(fault) = request.check(view.network()) {
        return refused(AdmissionRefusal::Fault(fault));
    }
    if request.window.start < now {
        let start = request.window.start;
        return refused(AdmissionRefusal::Fault(RequestFault::Past { start, now }));
    }
    if let Err(refusal) = limits.check(request, now) {
        return refused(AdmissionRefusal::Policy(refusal));
    }
    let view = limit_view(view, limits);
    let short = match plan_request(&view, request, limits) {
        Ok(plan) => return (Admission::Granted(plan), None),
        Err(short) => short,
    };
    let proof = prove_refusal((&view, ledger), request, &short);
    let cause = cause::find_cause(&view, request, limits, &short);
    let search = OfferSearch::new(&view, request, limits, now, (short, &proof));
    let offers = CounterOffers::default();
    let none = Box::new(InsufficientBandwidth {
        proof,
        cause,
        offers,
    });
    (
        Admission::Refused(AdmissionRefusal::NoRoom(none)),
        Some(search),
    )
}

/// Returns the view that these limits allow.
fn limit_view<'a>(view: &'a View<'a>, limits: &RequestLimits) -> Cow<'a, View<'a>> {
    match limits.share {
        Some(share) => Cow::Owned(view.clone().with_share(share)),
        None => Cow::Borrowed(view),
    }
}

/// Shortfall of a request that passed the checks.
#[derive(Debug, Clone)]
enum RequestShortfall {
    /// A rate does not fit.
    Rate(crate::split::RateShortfall),
    /// A volume does not fit.
    Volume(over_time::VolumeShortfall),
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
) -> Result<ReservationPlan, RequestShortfall> {
    match request.wish {
        Demand::Rate(rate) => find_routes(
            &available_field(view, request, request.window),
            &request.path_constraints(),
            rate,
        )
        .map(|routes| ReservationPlan::constant(request.window, routes))
        .map_err(RequestShortfall::Rate),
        Demand::Volume { bytes, most, pace } => {
            let goal = over_time::Goal::within_limits(bytes, most, pace, limits);
            over_time::plan_volume(view, request, &goal).map_err(RequestShortfall::Volume)
        }
    }
}

fn prove_refusal(
    (view, ledger): (&View<'_>, &BandwidthLedger),
    request: &CircuitRequest,
    short: &RequestShortfall,
) -> RefusalProof {
    let full = |cut: &Cut| -> Vec<CutLink> {
        let links = cut.links.iter();
        links
            .map(|link| {
                let peak = view.peak(*link, request.window);
                let by = ledger.holders(*link, peak.at).into_keys().collect();
                CutLink {
                    link: *link,
                    left: view.ceiling(*link).saturating_sub(peak.rate),
                    at: peak.at,
                    by,
                }
            })
            .collect()
    };
    match (short, request.wish) {
        (RequestShortfall::Rate(short), Demand::Rate(rate)) => match &short.known {
            RateEvidence::Cut(cut) => {
                let until = until::earliest_free_start(
                    view,
                    &cut.links,
                    request.paths,
                    rate,
                    request.window,
                );
                RefusalProof::Cut {
                    links: full(cut),
                    rate: cut.rate,
                    until,
                }
            }
            RateEvidence::Searched(all) => RefusalProof::Searched { all: *all },
            RateEvidence::Unknown(_) => RefusalProof::Unknown,
            RateEvidence::Bounded { found, complete } => RefusalProof::Constrained {
                found: *found,
                complete: *complete,
            },
        },
        (RequestShortfall::Volume(short), _) => match &short.known {
            over_time::VolumeEvidence::Cut(cut, volume) => RefusalProof::Volume {
                links: full(cut),
                volume: *volume,
            },
            over_time::VolumeEvidence::Stretches(volume) => {
                RefusalProof::Stretches { volume: *volume }
            }
            over_time::VolumeEvidence::Unknown => RefusalProof::Unknown,
        },
        (RequestShortfall::Rate(_), Demand::Volume { .. }) => RefusalProof::Unknown,
    }
}
