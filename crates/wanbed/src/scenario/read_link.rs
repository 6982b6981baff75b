//! `[links.NAME]`: delay, rate, queue, loss and changes over time, for both directions or each.

use std::path::Path;
use std::time::Duration;

use super::fields::{Field, Fields};
use super::quantity::{self, QueueLength};
use super::read::{name, round_trip};
use super::read_noise::Noise;
use super::{Link, Located, Node, trace_file};
use crate::error::Result;
use crate::spec::{BitRate, DirectionSpec, LinkSpec, LossModel, Trace};

/// Maximum length of a device name in the kernel (IFNAMSIZ minus the NUL).
const LONGEST_DEVICE: usize = 15;
const MAX_LINKS: usize = 400;
/// Maximum delay, longer than any path on Earth; it keeps a typing error from asking for days of
/// buffering.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// Maximum queue of a link without a rate, in bytes.
const UNLIMITED_QUEUE: u64 = 16 << 20;
/// Default queue. A queue of a few packets would measure the emulator, not the path.
const DEFAULT_QUEUE: QueueLength = QueueLength::Bdp {
    multiple: 1.0,
    rtt: None,
    at_least: 256 * 1024,
};

pub(super) fn links(
    field: &Field,
    nodes: &[(Node, Option<bool>)],
    directory: &Path,
    seed: u64,
) -> Result<Vec<Link>> {
    let entries = field.entries()?;
    if entries.len() > MAX_LINKS {
        return Err(field.wrong(format!("more than {MAX_LINKS} links")).into());
    }
    let mut links: Vec<Link> = Vec::new();
    for (key, field) in entries {
        name(&field, &key, LONGEST_DEVICE)?;
        if key == "lo" || nodes.iter().any(|(node, _)| node.name == key) {
            return Err(field
                .wrong("a link needs a name that no node or device has")
                .into());
        }
        links.push(link(key, &field, nodes, directory, seed)?);
    }
    Ok(links)
}

fn link(
    key: String,
    field: &Field,
    nodes: &[(Node, Option<bool>)],
    directory: &Path,
    seed: u64,
) -> Result<Link> {
    let mut fields = field.fields()?;
    let ends_field = fields.required("ends")?;
    let [a, b] = ends(&ends_field, nodes)?;
    let mtu = match fields.optional("mtu") {
        None => 1500,
        Some(field) => u32::try_from(field.integer()?)
            .ok()
            .filter(|mtu| (576..=65_535).contains(mtu))
            .ok_or_else(|| field.wrong("an MTU is 576 to 65535 bytes"))?,
    };
    let both = Asked::read(&mut fields, directory)?;
    let mut of_direction = |key| -> Result<Asked> {
        let Some(field) = fields.optional(key) else {
            return Ok(both.clone());
        };
        let mut own = field.fields()?;
        let asked = Asked::read(&mut own, directory)?.or(&both);
        own.finish()?;
        Ok(asked)
    };
    let (forward, backward) = (of_direction("forward")?, of_direction("backward")?);
    fields.finish()?;
    let delay = |asked: &Asked| asked.delay.ok_or_else(|| field.wrong("`delay` is missing"));
    let rtt = round_trip(delay(&forward)?, delay(&backward)?);
    let spec = LinkSpec {
        seed: seed_of(seed, &key),
        mtu,
        forward: forward.direction(field, rtt, mtu)?,
        backward: backward.direction(field, rtt, mtu)?,
        name: key,
    };
    Ok(Link { a, b, spec })
}

fn ends(field: &Field, nodes: &[(Node, Option<bool>)]) -> Located<[usize; 2]> {
    let mut found = Vec::new();
    for item in field.list()? {
        let name = item.text()?;
        let index = nodes.iter().position(|(node, _)| node.name == name);
        found.push(index.ok_or_else(|| item.wrong(format!("there is no node {name:?}")))?);
    }
    match found[..] {
        [a, b] if a != b => Ok([a, b]),
        _ => Err(field.wrong("a link has two ends: [\"one\", \"other\"]")),
    }
}

/// Fields of a direction that the scenario gives.
#[derive(Debug, Clone, Default)]
struct Asked {
    delay: Option<Duration>,
    rate: Option<Option<u64>>,
    queue: Option<(Field, QueueLength)>,
    loss: Option<LossModel>,
    noise: Noise,
    trace: Option<Trace>,
}

impl Asked {
    fn read(fields: &mut Fields, directory: &Path) -> Result<Asked> {
        let mut asked = Asked::default();
        if let Some(field) = fields.optional("delay") {
            let delay = field.quantity(quantity::duration)?;
            if delay > LONGEST_DELAY {
                return Err(field.wrong("a one-way delay is at most 60 s").into());
            }
            asked.delay = Some(delay);
        }
        if let Some(field) = fields.optional("rate") {
            asked.rate = Some(field.quantity(quantity::bit_rate)?);
        }
        if let Some(field) = fields.optional("queue") {
            let length = field.quantity(quantity::queue_length)?;
            asked.queue = Some((field, length));
        }
        if let Some(field) = fields.optional("loss") {
            asked.loss = Some(loss(&field)?);
        }
        if let Some(field) = fields.optional("trace") {
            asked.trace = Some(trace_file::trace(&field, directory)?);
        }
        asked.noise = Noise::read(fields)?;
        Ok(asked)
    }

    /// Takes missing fields from `both`.
    fn or(self, both: &Asked) -> Asked {
        Asked {
            delay: self.delay.or(both.delay),
            rate: self.rate.or(both.rate),
            queue: self.queue.or_else(|| both.queue.clone()),
            loss: self.loss.or(both.loss),
            noise: self.noise.or(&both.noise),
            trace: self.trace.or_else(|| both.trace.clone()),
        }
    }

    fn direction(self, link: &Field, rtt: Duration, mtu: u32) -> Located<DirectionSpec> {
        let rate = self
            .rate
            .ok_or_else(|| link.wrong("`rate` is missing: \"unlimited\" is possible"))?;
        if rate == Some(0) && self.trace.is_none() {
            return Err(
                link.wrong("a rate of zero carries nothing: only a trace may begin with an outage")
            );
        }
        let (place, length) = match (&self.queue, rate) {
            (Some((field, length)), _) => (field, *length),
            (None, Some(_)) => (link, DEFAULT_QUEUE),
            (None, None) => (link, QueueLength::Bytes(UNLIMITED_QUEUE)),
        };
        let queue = match (length, rate) {
            (QueueLength::Bytes(bytes), _) => bytes,
            (QueueLength::Bdp { .. }, None) => {
                return Err(place.wrong("without a rate there is no bdp: give the queue in bytes"));
            }
            (
                QueueLength::Bdp {
                    multiple,
                    rtt: of,
                    at_least,
                },
                Some(rate),
            ) => {
                let bdp = rate as f64 / 8.0 * of.unwrap_or(rtt).as_secs_f64();
                at_least.max((multiple * bdp).round() as u64)
            }
        };
        if queue < u64::from(mtu) {
            return Err(place.wrong(format!(
                "a queue of {queue} bytes holds no packet of {mtu}: add \", at least 256 KB\""
            )));
        }
        let mut direction = DirectionSpec {
            delay: self.delay.unwrap_or_default(),
            rate: rate.map(BitRate),
            queue,
            loss: self.loss.unwrap_or(LossModel::None),
            changes: self.trace,
            ..DirectionSpec::default()
        };
        self.noise.put(link, &mut direction)?;
        Ok(direction)
    }
}

/// Reads `loss = "0.001%"`; `{ mean = "0.001%", burst = 10 }`; or the four numbers of Gilbert and
/// Elliott.
fn loss(field: &Field) -> Located<LossModel> {
    if !field.is_table() {
        return Ok(independent(field.probability()?));
    }
    let mut fields = field.fields()?;
    if let Some(mean_field) = fields.optional("mean") {
        let mean = mean_field.probability()?;
        let burst_field = fields.required("burst")?;
        let burst = burst_field.integer()?;
        if !(1..=1_000_000).contains(&burst) {
            return Err(burst_field.wrong("a mean burst is 1 to 1000000 packets"));
        }
        fields.finish()?;
        // Every packet of the bad state is lost. Bursts are geometric with mean 1 / bad_to_good.
        // The share of time in the bad state, good_to_bad / (good_to_bad + bad_to_good), is the
        // mean loss.
        let bad_to_good = 1.0 / burst as f64;
        let good_to_bad = bad_to_good * mean / (1.0 - mean);
        if good_to_bad > 1.0 || good_to_bad.is_nan() {
            return Err(mean_field.wrong("this mean cannot be reached with bursts that short"));
        }
        return Ok(if mean == 0.0 {
            LossModel::None
        } else {
            LossModel::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good: 0.0,
                loss_in_bad: 1.0,
            }
        });
    }
    let model = LossModel::GilbertElliott {
        good_to_bad: fields.required("good_to_bad")?.probability()?,
        bad_to_good: fields.required("bad_to_good")?.probability()?,
        loss_in_good: fields
            .optional("loss_in_good")
            .map(|field| field.probability())
            .transpose()?
            .unwrap_or(0.0),
        loss_in_bad: fields
            .optional("loss_in_bad")
            .map(|field| field.probability())
            .transpose()?
            .unwrap_or(1.0),
    };
    fields.finish()?;
    Ok(model)
}

pub(super) fn independent(probability: f64) -> LossModel {
    if probability > 0.0 {
        LossModel::Independent { probability }
    } else {
        LossModel::None
    }
}

/// Returns a link's seed, derived from the scenario's and from its own name (FNV-1a), so that
/// adding a link leaves the others' losses as they were.
fn seed_of(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
