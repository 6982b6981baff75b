//! Known state of one driver: its parts, its current request, and its retries.

use std::collections::BTreeMap;

use longhaul_circuits::time::MomentMs;

use super::{FIRST_BACKOFF_MS, LIST_INTERVAL_MS, MAX_BACKOFF_MS};
use crate::ask::{DriverError, DriverReply, DriverRequest, ListedPart};
use crate::circuit::{CircuitPart, EntityName, PartId};

/// Request that a driver is working on.
#[derive(Debug, Clone)]
pub(super) enum DriverTask {
    List,
    TearDown(PartId),
    SetUp(CircuitPart),
}

impl DriverTask {
    pub fn request(&self, owner: &EntityName) -> DriverRequest {
        let owner = owner.clone();
        match self.clone() {
            Self::List => DriverRequest::List { owner },
            Self::TearDown(id) => DriverRequest::TearDown { owner, id },
            Self::SetUp(part) => DriverRequest::SetUp { part },
        }
    }

    const fn id(&self) -> Option<&PartId> {
        match self {
            Self::List => None,
            Self::TearDown(id) => Some(id),
            Self::SetUp(part) => Some(&part.id),
        }
    }
}

/// Backoff before a retry.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
    until: MomentMs,
    /// If true, bandwidth was short, and the backoff ends when a part is torn down.
    no_room: bool,
    why: String,
}

impl Backoff {
    fn extend(&mut self, error: &DriverError, now: MomentMs) {
        let doublings = self.failures.min(16); // more would exceed the maximum anyway
        let wait = FIRST_BACKOFF_MS
            .saturating_mul(1 << doublings)
            .min(MAX_BACKOFF_MS);
        self.failures = self.failures.saturating_add(1);
        self.until = now.saturating_add_unsigned(wait);
        self.no_room = matches!(error, DriverError::NoRoom { .. });
        self.why = error.to_string();
    }

    /// Returns true if the backoff is over. One that ends further in the future than possible was
    /// set before the clock was set back.
    fn is_over(&self, now: MomentMs) -> bool {
        self.until <= now || self.until > now.saturating_add_unsigned(MAX_BACKOFF_MS)
    }
}

/// Known state of a part at a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartState {
    /// Complete, as described.
    Whole(CircuitPart),
    /// Partly set up, or not at all.
    Unknown,
}

/// Known state of one driver.
#[derive(Debug, Default)]
pub(super) struct DriverState {
    /// Time of its last list.
    listed: Option<MomentMs>,
    there: BTreeMap<PartId, PartState>,
    under_way: Option<(u64, DriverTask)>,
    /// Backoff since the driver last carried out a request.
    pause: Backoff,
    /// Backoffs of parts that could not be set up.
    set_ups: BTreeMap<PartId, Backoff>,
    /// Backoffs of parts that could not be torn down. What could not be set up is torn down at
    /// once.
    tear_downs: BTreeMap<PartId, Backoff>,
}

impl DriverState {
    pub const fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// Returns true if the driver has this part as described.
    pub fn has(&self, part: &CircuitPart) -> bool {
        matches!(self.there.get(&part.id), Some(PartState::Whole(there)) if there == part)
    }

    /// Returns the number of parts of a circuit that the driver may have.
    pub fn part_count(&self, circuit: &EntityName) -> usize {
        self.there
            .keys()
            .filter(|id| id.belongs_to(circuit))
            .count()
    }

    /// Returns the reason why a part is missing.
    pub fn missing_reason(&self, id: &PartId) -> String {
        let said = [self.set_ups.get(id), Some(&self.pause)];
        let mut said = said.into_iter().flatten().map(|pause| &pause.why);
        said.find(|why| !why.is_empty())
            .cloned()
            .unwrap_or_else(|| "it did not answer in time: check that it is running".to_owned())
    }

    /// Returns the request that is due.
    pub fn next_task(
        &mut self,
        mut desired: BTreeMap<PartId, CircuitPart>,
        now: MomentMs,
    ) -> Option<DriverTask> {
        // Once a part is set up, earlier failures are over: its next change starts with the first
        // backoff.
        let mut set_ups = std::mem::take(&mut self.set_ups);
        set_ups.retain(|id, _| desired.get(id).is_some_and(|part| !self.has(part)));
        self.set_ups = set_ups;
        self.tear_downs
            .retain(|id, _| self.there.contains_key(id) && !desired.contains_key(id));
        if self.under_way.is_some() || !self.pause.is_over(now) {
            return None;
        }
        let list_is_due = |listed: MomentMs| {
            now < listed || now >= listed.saturating_add_unsigned(LIST_INTERVAL_MS)
        };
        if self.listed.is_none_or(list_is_due) {
            return Some(DriverTask::List);
        }
        let due = |pauses: &BTreeMap<PartId, Backoff>, id: &PartId| {
            pauses.get(id).is_none_or(|pause| pause.is_over(now))
        };
        // Teardown comes first, because it frees bandwidth.
        let mut there = self.there.keys().filter(|id| !desired.contains_key(*id));
        if let Some(id) = there.find(|id| due(&self.tear_downs, id)) {
            return Some(DriverTask::TearDown(id.clone()));
        }
        let missing = desired.iter().filter(|(_, part)| !self.has(part));
        let id = missing
            .map(|(id, _)| id)
            .find(|id| due(&self.set_ups, id))?
            .clone();
        desired.remove(&id).map(DriverTask::SetUp)
    }

    /// Records that a request was sent.
    pub fn start(&mut self, number: u64, doing: DriverTask) {
        if let Some(id) = doing.id() {
            self.there.insert(id.clone(), PartState::Unknown);
        }
        self.under_way = Some((number, doing));
    }

    /// Returns the number of the request in progress.
    pub fn task_number(&self) -> Option<u64> {
        self.under_way.as_ref().map(|(number, _)| *number)
    }

    /// Takes the answer to the request in progress. Returns the request and its error if it failed.
    pub fn take_answer(
        &mut self,
        answer: Result<DriverReply, DriverError>,
        owner: &EntityName,
        now: MomentMs,
    ) -> Option<(DriverTask, DriverError)> {
        let (_, doing) = self.under_way.take()?;
        let error = match (&doing, answer) {
            (DriverTask::List, Ok(DriverReply::Parts { parts })) => {
                self.take_list(parts, owner);
                self.listed = Some(now);
                None
            }
            (DriverTask::SetUp(part), Ok(DriverReply::Done)) => {
                self.there
                    .insert(part.id.clone(), PartState::Whole(part.clone()));
                self.set_ups.remove(&part.id);
                None
            }
            (
                DriverTask::TearDown(id),
                Ok(DriverReply::Done) | Err(DriverError::Missing { .. }),
            ) => {
                self.there.remove(id);
                self.tear_downs.remove(id);
                for pause in self.set_ups.values_mut().filter(|pause| pause.no_room) {
                    pause.until = now;
                }
                None
            }
            (_, Ok(DriverReply::Error(error)) | Err(error)) => Some(error),
            (_, Ok(_)) => Some(DriverError::nonsense(
                "the answer does not match the request",
            )),
        };
        let Some(error) = error else {
            self.pause = Backoff::default();
            return None;
        };
        let (part, refuses) = match &doing {
            DriverTask::List => (None, false),
            DriverTask::TearDown(id) => (Some(self.tear_downs.entry(id.clone())), true),
            DriverTask::SetUp(part) => (Some(self.set_ups.entry(part.id.clone())), true),
        };
        if let Some(part) = part {
            part.or_default().extend(&error, now);
        }
        // A driver that gave a reason for its refusal is alive, and can be asked for other parts at
        // once.
        if !refuses
            || matches!(
                error,
                DriverError::Failed { .. } | DriverError::Nonsense { .. }
            )
        {
            self.pause.extend(&error, now);
        }
        Some((doing, error))
    }

    /// Takes the list of its parts.
    fn take_list(&mut self, parts: Vec<ListedPart>, owner: &EntityName) {
        let mut before = std::mem::take(&mut self.there);
        for found in parts.into_iter().filter(|found| found.owner == *owner) {
            let is_it = |part: &CircuitPart| part.owner == found.owner && part.id == found.id;
            // A driver need not keep the descriptions of its parts.
            let part = match (found.part.filter(is_it), before.remove(&found.id)) {
                (Some(part), _) | (None, Some(PartState::Whole(part))) if found.whole => {
                    PartState::Whole(part)
                }
                _ => PartState::Unknown,
            };
            self.there.insert(found.id, part);
        }
    }

    /// Returns the moments at which requests may become due.
    pub fn wake_times(&self) -> impl Iterator<Item = MomentMs> {
        let pauses = self
            .set_ups
            .values()
            .chain(self.tear_downs.values())
            .map(|pause| pause.until);
        let listed = self
            .listed
            .map(|listed| listed.saturating_add_unsigned(LIST_INTERVAL_MS));
        pauses.chain(listed).chain([self.pause.until])
    }
}
