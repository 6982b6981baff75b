//! Simulated drivers in simulated time.

use super::*;

/// Parts of a driver, each with whether it is complete.
type DriverParts = BTreeMap<(EntityName, PartId), (CircuitPart, bool)>;

/// Fault in the handling of a request.
#[derive(Debug, Clone)]
pub enum SimulatedFault {
    /// The request is not carried out, and the driver reports the error.
    Says(DriverError),
    /// The request is carried out, but the answer is lost.
    Unreported,
    /// The request is carried out in part.
    Half,
    /// The request is not carried out, and the answer is nonsense.
    Nonsense,
}

/// Chooses the fault of a request at a driver.
type FaultChooser<'a> = dyn FnMut(&str, &DriverRequest) -> Option<SimulatedFault> + 'a;

/// Answers of the drivers.
pub struct Answers<'a>(Box<FaultChooser<'a>>);

impl<'a> Answers<'a> {
    /// Every request succeeds.
    pub fn good() -> Self {
        Self(Box::new(|_, _| None))
    }

    /// Every request succeeds except those for which an error is given.
    pub fn with_errors(
        mut error: impl FnMut(&str, &DriverRequest) -> Option<DriverError> + 'a,
    ) -> Self {
        Self::wrong(move |driver, request| error(driver, request).map(SimulatedFault::Says))
    }

    pub fn wrong(wrong: impl FnMut(&str, &DriverRequest) -> Option<SimulatedFault> + 'a) -> Self {
        Self(Box::new(wrong))
    }
}

/// All drivers.
#[derive(Default)]
pub struct Network {
    pub drivers: BTreeMap<EntityName, DriverParts>,
    /// Capacity of one driver, for all owners.
    pub room: Option<u64>,
    pub asked: Vec<DriverRequest>,
    asked_at: Vec<(MomentMs, DriverRequest)>,
}

impl Network {
    pub fn put(&mut self, driver: &str, part: CircuitPart) {
        let key = (part.owner.clone(), part.id.clone());
        self.drivers
            .entry(name(driver))
            .or_default()
            .insert(key, (part, true));
    }

    pub fn lose(&mut self, driver: &str) {
        self.drivers.remove(&name(driver));
    }

    pub fn count(&self, owner: &str) -> usize {
        self.rates(owner).len()
    }

    pub fn rates(&self, owner: &str) -> Vec<u64> {
        let all = self.drivers.values().flatten();
        all.filter(|((of, _), _)| of.as_str() == owner)
            .map(|(_, (part, _))| part.rate)
            .collect()
    }

    pub fn times_of(&self, which: impl Fn(&DriverRequest) -> bool) -> Vec<MomentMs> {
        let asked = self.asked_at.iter().filter(|(_, request)| which(request));
        asked.map(|(at, _)| *at).collect()
    }

    /// Advances the time from one moment to another, and carries out everything due at both.
    pub fn run(
        &mut self,
        reconciler: &mut Reconciler,
        from: MomentMs,
        until: MomentMs,
        answers: &mut Answers<'_>,
    ) {
        let mut now = from;
        loop {
            let asks = reconciler.next_requests(now);
            // Requests that an answer makes due are carried out at once.
            let done = asks.is_empty();
            for ask in asks {
                self.asked.push(ask.request.clone());
                self.asked_at.push((now, ask.request.clone()));
                let answer = self.answer(&ask, answers);
                reconciler.take_answer(ask.number, answer, now);
            }
            if !done {
                continue;
            }
            match reconciler.next_wake(now) {
                Some(wake) if wake <= until => now = wake,
                _ if now < until => now = until,
                _ => return,
            }
        }
    }

    fn answer(
        &mut self,
        ask: &DueRequest,
        answers: &mut Answers<'_>,
    ) -> Result<DriverReply, DriverError> {
        let has = self.drivers.entry(ask.driver.clone()).or_default();
        let wrong = (answers.0)(ask.driver.as_str(), &ask.request);
        match wrong {
            Some(SimulatedFault::Says(error)) => return Err(error),
            Some(SimulatedFault::Nonsense) => return Ok(DriverReply::Counters(Default::default())),
            _ => {}
        }
        let whole = !matches!(wrong, Some(SimulatedFault::Half));
        let reply = match &ask.request {
            DriverRequest::SetUp { part } => {
                assert_eq!(part.owner, name("us"));
                let key = (part.owner.clone(), part.id.clone());
                let others = has.iter().filter(|(other, _)| **other != key);
                let taken: u64 = others.map(|(_, (part, _))| part.rate).sum();
                if self.room.is_some_and(|room| taken + part.rate > room) {
                    return Err(DriverError::no_room(&part.link, part.rate, 0));
                }
                has.insert(key, (part.clone(), whole));
                DriverReply::Done
            }
            DriverRequest::TearDown { owner, id } => {
                assert_eq!(*owner, name("us"), "what is another's is not touched");
                let key = (owner.clone(), id.clone());
                match has.get_mut(&key) {
                    Some((_, still)) if !whole => *still = false,
                    _ => drop(has.remove(&key)),
                }
                DriverReply::Done
            }
            DriverRequest::List { .. } => {
                let parts = has.iter().map(|((owner, id), (part, whole))| ListedPart {
                    owner: owner.clone(),
                    id: id.clone(),
                    part: Some(part.clone()),
                    whole: *whole,
                });
                DriverReply::Parts {
                    parts: parts.collect(),
                }
            }
            DriverRequest::Counters { .. } => panic!("nobody asked for counters"),
        };
        match wrong {
            Some(SimulatedFault::Unreported | SimulatedFault::Half) => {
                Err(DriverError::failed("it broke off"))
            }
            _ => Ok(reply),
        }
    }
}
