//! Rate and duration of decisions with many existing reservations.

use std::time::{Duration, Instant};

use longhaul_circuits::admit::{Answer, Counter};
use longhaul_circuits::book::{Book, Terms};
use longhaul_circuits::network::{Link, Network, NodeId};
use longhaul_circuits::path::{Diversity, Ends, Preference};
use longhaul_circuits::policy::Limits;
use longhaul_circuits::request::{Elements, Pace, Request, Wish};
use longhaul_circuits::time::{Moment, Rate, Volume, Window};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::trial::keep;
use crate::{Error, HOUR, MINUTE};

/// Period over which reservations are spread: a year of planning ahead.
const SPREAD: Moment = 365 * 24 * HOUR;
/// Maximum number of requests per wanted reservation.
const MAX_TRIES: usize = 4;

/// Parameters of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
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
pub struct Took {
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
pub struct Requests<'a> {
    network: &'a Network,
    random: Xoshiro256PlusPlus,
    /// Reservable rate of the median link.
    middle: Rate,
}

impl<'a> Requests<'a> {
    /// Creates the requests for a network.
    #[must_use]
    pub fn new(network: &'a Network, seed: u64) -> Self {
        let mut rooms: Vec<Rate> = network.links().iter().map(Link::reservable).collect();
        rooms.sort_unstable();
        Self {
            network,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            middle: rooms.get(rooms.len() / 2).copied().unwrap_or(0),
        }
    }

    /// Returns a request for the time before the measurement. It is small, so that enough of them
    /// fit.
    pub fn small(&mut self) -> Request {
        request(&mut self.random, self.network, self.middle / 4_000)
    }

    /// Returns a request that is timed.
    pub fn timed(&mut self) -> Request {
        request(&mut self.random, self.network, self.middle / 50)
    }
}

fn request(random: &mut Xoshiro256PlusPlus, network: &Network, unit: Rate) -> Request {
    let nodes = network.nodes();
    let from = random.random_range(0..nodes);
    let to = (from + random.random_range(1..nodes)) % nodes;
    let start = random.random_range(0..SPREAD / MINUTE) * MINUTE;
    let length = random.random_range(1..24) * HOUR / 2;
    let rate = unit * random.random_range(1..40);
    let wish = if random.random_bool(0.3) {
        let bytes = Volume::carried(rate, length.unsigned_abs() / 2).bytes();
        Wish::Volume {
            bytes,
            most: None,
            pace: if random.random_bool(0.5) {
                Pace::Even
            } else {
                Pace::Early
            },
        }
    } else {
        Wish::Rate(rate)
    };
    Request {
        ends: Ends {
            from: NodeId(from),
            to: NodeId(to),
        },
        window: Window::new(start, start + length),
        wish,
        paths: 1 << random.random_range(0..3),
        diversity: Diversity::Any,
        preference: Preference::FewestHops,
        elements: Elements::default(),
    }
}

/// Decides a request, stores what is granted, and returns true if it was.
fn ask(book: &mut Book, request: &Request, terms: &Terms) -> Result<bool, Error> {
    let decision = book.decide(request, terms, 0);
    match (decision.change, decision.answer) {
        (Some(change), _) => keep(book, change, 0).map(|_| true),
        (None, Answer::Refused(_)) => Ok(false),
        (None, Answer::Granted(_)) => {
            Err(Error::Book("what is granted changes nothing".to_owned()))
        }
    }
}

/// Fills the book, then times further requests.
///
/// # Errors
/// [`Error::Book`]: the book refused its own entry.
pub fn run(network: &Network, load: &Load) -> Result<Took, Error> {
    let mut requests = Requests::new(network, load.seed);
    let mut book = Book::new(network.clone());
    let terms = |counter| Terms {
        limits: Limits::default(),
        hold: MINUTE.unsigned_abs(),
        counter,
    };
    let filling = terms(Counter::Refuse);
    let (mut booked, mut tried) = (0, 0);
    while booked < load.reservations && tried < MAX_TRIES * load.reservations {
        booked += usize::from(ask(&mut book, &requests.small(), &filling)?);
        tried += 1;
    }
    let asking = terms(match load.offers {
        true => Counter::Offer,
        false => Counter::Refuse,
    });
    let (mut times, mut granted) = (Vec::with_capacity(load.requests), 0);
    let begun = Instant::now();
    for _ in 0..load.requests {
        let request = requests.timed();
        let start = Instant::now();
        granted += usize::from(ask(&mut book, &request, &asking)?);
        times.push(start.elapsed());
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| {
        let place = (times.len().saturating_sub(1) as f64 * part) as usize;
        times.get(place).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    Ok(Took {
        booked,
        per_second: load.requests as f64 / seconds,
        granted: granted as f64 / load.requests.max(1) as f64,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        longest_ms: at(1.0),
    })
}
