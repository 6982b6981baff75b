//! The task that carries out a planner's decisions beside one connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::{Delegation, payload_rate};
use quantities::Rate;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::broker::{CircuitAnswer, CircuitBroker, WantedCircuit};
use crate::held_hop::{FlowCounters, HeldHop, HeldRate};
use crate::planner::{CircuitEnd, FlowPlanner, PlannerAction};
use crate::terms::ReserveTerms;

/// Interval between samples of a flow.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Time that the end of a connection waits until its circuit is returned.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that may get a circuit.
#[derive(Debug, Clone)]
pub struct FlowLink {
    /// Address and port of this end.
    pub local: SocketAddr,
    /// Address and port of the far end.
    pub peer: SocketAddr,
    /// Purpose, for people to read.
    pub purpose: Option<String>,
    /// Permission of the principal in whose name to ask.
    pub delegation: Option<Box<Delegation>>,
}

/// Event to log. Its display text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CircuitEvent {
    /// The connection moved to a circuit.
    Begun {
        /// The reservation.
        id: u64,
        /// Rate, in bit/s.
        rate: u64,
        /// Time until its end.
        lasts: Duration,
    },
    /// The circuit ended, and the connection continues as best effort.
    Ended(CircuitEnd),
    /// No circuit was reserved, for this reason.
    NotReserved(String),
    /// The connection ended, and its circuit was returned.
    Returned {
        /// The reservation.
        id: u64,
    },
}

impl fmt::Display for CircuitEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun { id, rate, lasts } => {
                let (rate, seconds) = (Rate::nearest(*rate as f64), lasts.as_secs());
                write!(f, "circuit of reservation {id}: {rate} for {seconds} s")
            }
            Self::Ended(CircuitEnd::Over { id }) => {
                write!(
                    f,
                    "the time of reservation {id} is over: continues as best effort"
                )
            }
            Self::Ended(CircuitEnd::Silent { id }) => {
                write!(f, "reservation {id} was returned after a silence")
            }
            Self::Ended(CircuitEnd::Lost { id, why }) => {
                write!(
                    f,
                    "reservation {id} was lost: {why}: continues as best effort"
                )
            }
            Self::NotReserved(why) => write!(f, "no circuit: {why}: continues as best effort"),
            Self::Returned { id } => write!(f, "reservation {id} was returned"),
        }
    }
}

/// Handle of a connection whose circuit is managed. When dropped, the circuit is returned in the
/// background.
#[derive(Debug)]
pub struct DrivenFlow {
    rate: watch::Receiver<Option<HeldRate>>,
    /// Dropped to end the task.
    ended: watch::Sender<()>,
    counters: Arc<FlowCounters>,
    task: JoinHandle<()>,
}

impl DrivenFlow {
    /// Returns the part for the task that moves the connection's bytes.
    #[must_use]
    pub fn held_hop(&self) -> HeldHop {
        HeldHop::new(Arc::clone(&self.counters), self.rate.clone())
    }

    /// Waits until a circuit begins or ends. Returns the one in force. It is cancel-safe, and never
    /// completes once no further circuit is possible.
    pub async fn changed(&mut self) -> Option<HeldRate> {
        match self.rate.changed().await {
            Ok(()) => *self.rate.borrow_and_update(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends the management when the connection has ended. Waits until its circuit is returned, for
    /// 3 s at most.
    pub async fn end(self) {
        let Self { ended, task, .. } = self;
        drop(ended);
        let _ = timeout(RETURN_TIMEOUT, task).await;
    }
}

/// Starts to manage the circuit of a connection, in a task of the current tokio runtime. `report`
/// logs events.
pub fn drive(
    broker: Arc<dyn CircuitBroker>,
    terms: ReserveTerms,
    link: FlowLink,
    report: impl Fn(CircuitEvent) + Send + Sync + 'static,
) -> DrivenFlow {
    let (rate, watched) = watch::channel(None);
    let (ended, watch_end) = watch::channel(());
    let counters = Arc::new(FlowCounters::default());
    let driver = FlowDriver {
        broker,
        planner: FlowPlanner::new(terms),
        link,
        counters: Arc::clone(&counters),
        report: Box::new(report),
        rate,
        began: Instant::now(),
        last_reason: None,
    };
    DrivenFlow {
        rate: watched,
        ended,
        counters,
        task: tokio::spawn(driver.run(watch_end)),
    }
}

struct FlowDriver {
    broker: Arc<dyn CircuitBroker>,
    planner: FlowPlanner,
    link: FlowLink,
    counters: Arc<FlowCounters>,
    report: Box<dyn Fn(CircuitEvent) + Send + Sync>,
    rate: watch::Sender<Option<HeldRate>>,
    began: Instant,
    /// Last reason why nothing was reserved, so that it is logged once.
    last_reason: Option<String>,
}

impl FlowDriver {
    async fn run(mut self, mut ended: watch::Receiver<()>) {
        while !self.planner.is_done() {
            let mut next = self.planner.observe(self.now(), self.counters.sample());
            // A request is completed even if the connection ends meanwhile: what it reserves must
            // be returned.
            while let Some(action) = next {
                next = self.carry_out(action).await;
            }
            tokio::select! {
                () = sleep(SAMPLE_INTERVAL) => {}
                _ = ended.changed() => break,
            }
        }
        if let Some(id) = self.planner.reserved() {
            self.broker.give_back(id).await;
            (self.report)(CircuitEvent::Returned { id });
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Carries out an action, and returns the next one.
    async fn carry_out(&mut self, action: PlannerAction) -> Option<PlannerAction> {
        match action {
            PlannerAction::Ask {
                direction,
                rate,
                duration,
            } => {
                let FlowLink {
                    local,
                    peer,
                    purpose,
                    delegation,
                } = self.link.clone();
                let answer = self.broker.reserve(WantedCircuit {
                    direction,
                    local,
                    peer,
                    rate,
                    duration,
                    purpose,
                    delegation,
                });
                let answer = answer.await;
                self.answered(answer)
            }
            PlannerAction::TakeOffer(offer) => {
                let answer = self.broker.take_offer(offer).await;
                self.answered(answer)
            }
            PlannerAction::Begin { circuit, direction } => {
                self.rate.send_replace(Some(HeldRate {
                    direction,
                    payload: payload_rate(circuit.rate),
                }));
                (self.report)(CircuitEvent::Begun {
                    id: circuit.id,
                    rate: circuit.rate,
                    lasts: circuit.lasts,
                });
                None
            }
            PlannerAction::AskState(id) => {
                let state = self.broker.state(id).await;
                self.planner.state(self.now(), id, state)
            }
            PlannerAction::End(end) => {
                self.rate.send_replace(None);
                if let CircuitEnd::Silent { id } = &end {
                    self.broker.give_back(*id).await;
                }
                (self.report)(CircuitEvent::Ended(end));
                None
            }
            PlannerAction::GiveUp(why) => {
                if self.last_reason.as_ref() != Some(&why) {
                    (self.report)(CircuitEvent::NotReserved(why.clone()));
                    self.last_reason = Some(why);
                }
                None
            }
        }
    }

    fn answered(&mut self, answer: CircuitAnswer) -> Option<PlannerAction> {
        self.planner.answer(self.now(), answer)
    }
}
