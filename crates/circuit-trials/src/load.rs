//! How many requests a second are decided and kept with many reservations on the books, and how
//! long one takes.

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

/// The time over which reservations are spread: what a year of planning ahead holds.
const SPREAD: Moment = 365 * 24 * HOUR;
/// Requests for each reservation that is wanted on the books, at most.
const MAX_TRIES: usize = 4;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Reservations on the books.
    pub reservations: usize,
    /// Requests that are timed.
    pub requests: usize,
    /// What the requests are made of.
    pub seed: u64,
    /// Whether counter-offers are worked out for what is refused.
    pub offers: bool,
}

/// What it took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// Reservations that were on the books.
    pub booked: usize,
    /// Requests decided, and kept where granted, in a second.
    pub per_second: f64,
    /// The share of them that was granted.
    pub granted: f64,
    /// The time of one, in milliseconds: the median, the 99th percentile, the longest.
    pub p50_ms: f64,
    /// See `p50_ms`.
    pub p99_ms: f64,
    /// See `p50_ms`.
    pub longest_ms: f64,
}

/// The requests of a load, always the same for one seed.
#[derive(Debug, Clone)]
pub struct Requests<'a> {
    network: &'a Network,
    random: Xoshiro256PlusPlus,
    /// What the middle one of the links may reserve.
    middle: Rate,
}

impl<'a> Requests<'a> {
    /// For a network.
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

    /// One for what is on the books before anything is timed: small, so that as many as are wanted
    /// fit.
    pub fn small(&mut self) -> Request {
        request(&mut self.random, self.network, self.middle / 4_000)
    }

    /// One that is timed.
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

/// Decides, and keeps what is granted; whether it was.
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

/// Fills the book and times what is asked then.
///
/// # Errors
/// [`Error::Book`]: the book refuses its own entry.
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
