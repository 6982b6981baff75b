//! `[links.NAME]`: delay, rate, queue, loss and changes over time, for both directions or each.

use std::path::Path;
use std::time::Duration;

use super::fields::{ScenarioField, TableFields, name};
use super::loss::loss;
use super::quantity::{self, QueueLength};
use super::read_noise::NoiseFields;
use super::{Located, Node, ScenarioLink, trace_file};
use crate::error::Result;
use crate::spec::{BitRate, DirectionSpec, LinkSpec, LossModel, MAX_TIME, Trace};

/// Maximum length of a device name in the kernel (IFNAMSIZ minus the NUL).
const MAX_DEVICE_NAME_BYTES: usize = 15;
const MAX_LINKS: usize = 400;
/// Maximum number of times at which a direction drops a packet.
const MAX_DROPS: usize = 1000;
/// Maximum delay, longer than any path on Earth; it keeps a typing error from asking for days of
/// buffering.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Maximum queue of a link without a rate, in bytes.
const UNLIMITED_QUEUE_BYTES: u64 = 16 << 20;
/// Default queue. A queue of a few packets would measure the emulator, not the path.
const DEFAULT_QUEUE: QueueLength = QueueLength::Bdp {
    multiple: 1.0,
    rtt: None,
    at_least: 256 * 1024,
};

pub(super) fn links(
    field: &ScenarioField,
    nodes: &[(Node, Option<bool>)],
    directory: &Path,
    seed: u64,
) -> Result<Vec<ScenarioLink>> {
    let entries = field.entries()?;
    if entries.len() > MAX_LINKS {
        return Err(field.wrong(format!("more than {MAX_LINKS} links")).into());
    }
    let mut links: Vec<ScenarioLink> = Vec::new();
    for (key, field) in entries {
        name(&field, &key, MAX_DEVICE_NAME_BYTES)?;
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
    field: &ScenarioField,
    nodes: &[(Node, Option<bool>)],
    directory: &Path,
    seed: u64,
) -> Result<ScenarioLink> {
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
    let both = DirectionFields::read(&mut fields, directory)?;
    let mut of_direction = |key| -> Result<DirectionFields> {
        let Some(field) = fields.optional(key) else {
            return Ok(both.clone());
        };
        let mut own = field.fields()?;
        let asked = DirectionFields::read(&mut own, directory)?.with_defaults(&both);
        own.finish()?;
        Ok(asked)
    };
    let (forward, backward) = (of_direction("forward")?, of_direction("backward")?);
    fields.finish()?;
    let delay =
        |asked: &DirectionFields| asked.delay.ok_or_else(|| field.wrong("`delay` is missing"));
    let rtt = round_trip(delay(&forward)?, delay(&backward)?);
    let spec = LinkSpec {
        seed: link_seed(seed, &key),
        mtu,
        forward: forward.direction(field, rtt, mtu)?,
        backward: backward.direction(field, rtt, mtu)?,
        name: key,
    };
    Ok(ScenarioLink { a, b, spec })
}

fn ends(field: &ScenarioField, nodes: &[(Node, Option<bool>)]) -> Located<[usize; 2]> {
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
struct DirectionFields {
    delay: Option<Duration>,
    rate: Option<Option<u64>>,
    queue: Option<(ScenarioField, QueueLength)>,
    loss: Option<LossModel>,
    noise: NoiseFields,
    trace: Option<Trace>,
    drop_at: Option<Vec<Duration>>,
}

impl DirectionFields {
    fn read(fields: &mut TableFields, directory: &Path) -> Result<DirectionFields> {
        let mut asked = DirectionFields::default();
        if let Some(field) = fields.optional("delay") {
            let delay = field.quantity(quantity::duration)?;
            if delay > MAX_DELAY {
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
        if let Some(field) = fields.optional("drop_at") {
            asked.drop_at = Some(drop_times(&field)?);
        }
        asked.noise = NoiseFields::read(fields)?;
        Ok(asked)
    }

    /// Takes missing fields from `both`.
    fn with_defaults(self, both: &DirectionFields) -> DirectionFields {
        DirectionFields {
            delay: self.delay.or(both.delay),
            rate: self.rate.or(both.rate),
            queue: self.queue.or_else(|| both.queue.clone()),
            loss: self.loss.or(both.loss),
            noise: self.noise.with_defaults(&both.noise),
            trace: self.trace.or_else(|| both.trace.clone()),
            drop_at: self.drop_at.or_else(|| both.drop_at.clone()),
        }
    }

    fn direction(self, link: &ScenarioField, rtt: Duration, mtu: u32) -> Located<DirectionSpec> {
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
            (None, None) => (link, QueueLength::Bytes(UNLIMITED_QUEUE_BYTES)),
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
            drop_at: self.drop_at.unwrap_or_default(),
            ..DirectionSpec::default()
        };
        self.noise.apply_to(link, &mut direction)?;
        Ok(direction)
    }
}

/// Reads `drop_at = "20 s"`, or a list of times.
fn drop_times(field: &ScenarioField) -> Located<Vec<Duration>> {
    let items = if field.is_list() {
        field.list()?
    } else {
        vec![field.clone()]
    };
    if items.len() > MAX_DROPS {
        return Err(field.wrong(format!("more than {MAX_DROPS} times")));
    }
    let mut times: Vec<Duration> = Vec::with_capacity(items.len());
    for item in items {
        let at = item.quantity(quantity::duration)?;
        if at > MAX_TIME {
            return Err(item.wrong("must lie within a day"));
        }
        if times.last().is_some_and(|before| *before >= at) {
            return Err(item.wrong("must come after the time before it"));
        }
        times.push(at);
    }
    Ok(times)
}

/// Returns a link's seed, derived from the scenario's and from its own name (FNV-1a), so that
/// adding a link leaves the others' losses as they were.
fn link_seed(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Adds any two durations of a scenario without overflow.
fn round_trip(there: Duration, back: Duration) -> Duration {
    there.saturating_add(back)
}
