//! Rate and duration of decisions with many existing reservations.

use std::time::{Duration, Instant};

use longhaul_circuits::admit::AdmissionRefusal;
use longhaul_circuits::book::{DecisionTerms, ReservationBook};
use longhaul_circuits::network::{CircuitLink, CircuitNetwork, NodeId};
use longhaul_circuits::path::{Disjoint, PathBounds, PathEnds, Preference};
use longhaul_circuits::policy::RequestLimits;
use longhaul_circuits::request::{CircuitRequest, Demand, Pace, PathElements};
use longhaul_circuits::time::{BitsPerSecond, MomentMs, Volume, Window};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::trial::commit_granted;
use crate::{Error, HOUR, MINUTE};

/// Period over which reservations are spread: a year of planning ahead.
const SPREAD_PERIOD: MomentMs = 365 * 24 * HOUR;
/// Maximum number of requests per wanted reservation.
const MAX_REQUESTS_PER_RESERVATION: usize = 4;

/// Parameters of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadParameters {
    /// Number of existing reservations.
    pub reservations: usize,
    /// Number of timed requests.
    pub requests: usize,
    /// Seed of the requests.
    pub seed: u64,
    /// If true, refusals include counter-offers.
    pub offers: bool,
}

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Number of reservations that existed.
    pub booked: usize,
    /// Requests decided per second, including the storage of granted ones.
    pub per_second: f64,
    /// Share of requests that were granted.
    pub granted: f64,
    /// Median duration of a request, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the duration, in milliseconds.
    pub p99_ms: f64,
    /// Longest duration, in milliseconds.
    pub longest_ms: f64,
}

/// Requests of a measurement, the same for the same seed.
#[derive(Debug, Clone)]
pub struct LoadRequests<'a> {
    network: &'a CircuitNetwork,
    random: Xoshiro256PlusPlus,
    /// Reservable rate of the median link.
    middle: BitsPerSecond,
}

impl<'a> LoadRequests<'a> {
    /// Creates the requests for a network.
    #[must_use]
    pub fn new(network: &'a CircuitNetwork, seed: u64) -> Self {
        let mut rooms: Vec<BitsPerSecond> = network
            .links()
            .iter()
            .map(CircuitLink::reservable)
            .collect();
        rooms.sort_unstable();
        Self {
            network,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            middle: rooms.get(rooms.len() / 2).copied().unwrap_or(0),
        }
    }

    /// Returns a request for the time before the measurement. It is small, so that enough of them
    /// fit.
    pub fn small_request(&mut self) -> CircuitRequest {
        request(&mut self.random, self.network, self.middle / 4_000)
    }

    /// Returns a request that is timed.
    pub fn timed_request(&mut self) -> CircuitRequest {
        request(&mut self.random, self.network, self.middle / 50)
    }
}

fn request(
    random: &mut Xoshiro256PlusPlus,
    network: &CircuitNetwork,
    unit: BitsPerSecond,
) -> CircuitRequest {
    let nodes = network.nodes();
    let from = random.random_range(0..nodes);
    let to = (from + random.random_range(1..nodes)) % nodes;
    let start = random.random_range(0..SPREAD_PERIOD / MINUTE) * MINUTE;
    let length = random.random_range(1..24) * HOUR / 2;
    let rate = unit * random.random_range(1..40);
    let wish = if random.random_bool(0.3) {
        let bytes = Volume::carried(rate, length.unsigned_abs() / 2).bytes();
        Demand::Volume {
            bytes,
            most: None,
            pace: if random.random_bool(0.5) {
                Pace::Even
            } else {
                Pace::Early
            },
        }
    } else {
        Demand::Rate(rate)
    };
    CircuitRequest {
        ends: PathEnds {
            from: NodeId(from),
            to: NodeId(to),
        },
        window: Window::new(start, start + length),
        wish,
        paths: 1 << random.random_range(0..3),
        diversity: Disjoint::No,
        preference: Preference::FewestHops,
        elements: PathElements::default(),
        bounds: PathBounds::default(),
    }
}

/// Decides a request, stores what is granted, and returns true if it was. If `offers` is true,
/// counter-offers for a refused one are found.
fn decide(
    book: &mut ReservationBook,
    request: &CircuitRequest,
    terms: &DecisionTerms,
    offers: bool,
) -> Result<bool, Error> {
    match book.decide(request, terms, 0) {
        Ok(change) => commit_granted(book, change, 0).map(|_| true),
        Err(refusal) => {
            if let AdmissionRefusal::Shortfall(short) = &refusal
                && offers
            {
                std::hint::black_box(short.find_offers(&book.snapshot(), &mut || true));
            }
            Ok(false)
        }
    }
}

/// Fills the book, then times further requests.
///
/// # Errors
/// [`Error::Book`]: the book refused its own entry.
pub fn run(network: &CircuitNetwork, load: &LoadParameters) -> Result<LoadResult, Error> {
    let mut requests = LoadRequests::new(network, load.seed);
    let mut book = ReservationBook::new(network.clone());
    let terms = DecisionTerms {
        limits: RequestLimits::default(),
        hold: MINUTE.unsigned_abs(),
    };
    let (mut booked, mut tried) = (0, 0);
    while booked < load.reservations && tried < MAX_REQUESTS_PER_RESERVATION * load.reservations {
        booked += usize::from(decide(&mut book, &requests.small_request(), &terms, false)?);
        tried += 1;
    }
    let (mut times, mut granted) = (Vec::with_capacity(load.requests), 0);
    let begun = Instant::now();
    for _ in 0..load.requests {
        let request = requests.timed_request();
        let start = Instant::now();
        granted += usize::from(decide(&mut book, &request, &terms, load.offers)?);
        times.push(start.elapsed());
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| {
        let place = (times.len().saturating_sub(1) as f64 * part) as usize;
        times.get(place).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    Ok(LoadResult {
        booked,
        per_second: load.requests as f64 / seconds,
        granted: granted as f64 / load.requests.max(1) as f64,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        longest_ms: at(1.0),
    })
}
