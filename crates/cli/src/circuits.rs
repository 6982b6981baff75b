//! Reserves circuits around connections at a controller, for the on-ramp and the depot.
//!
//! Every reservation is recorded on the disk until it is returned, so that the next start returns
//! those of a killed process.

mod ends;
mod shared;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::{
    CircuitStanding, LifeState, Offer, PacketFilter, Reservation, ReservationRequest, Reserved,
    SourcePortRange, Wish,
};
use longhaul_control_client::controller::{ReservationAction, ReservationAnswer};
use longhaul_control_client::settings::{self, ControllerSettings, ControllerTrust};
use longhaul_control_client::{ClientError, ControllerClient};
use longhaul_deadline_driver::{
    LockedRecord, ReservationRecord, leftover_records, return_leftovers,
};
use longhaul_hop::unix_ms;
use longhaul_proto::text::printable;
use longhaul_proto::{PublicKey, SessionId, SigningKey};
use longhaul_wishes::{
    BrokerFuture, CircuitAnswer, CircuitBroker, CircuitState, FlowDirection, OfferedCircuit,
    ReservedCircuit, WantedCircuit,
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::home;
use ends::CircuitEnds;
use shared::SharedCircuits;

/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the return of a circuit. Afterwards, the next start returns it.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);
/// Age at which the map is requested again.
const MAX_MAP_AGE: Duration = Duration::from_secs(30);
/// Directory of controllers below the state directory.
const STATE_DIR: &str = "control";
/// Description of reservations of connections without a purpose.
const DESCRIPTION: &str = "longhaul: a connection";

/// Broker of circuits at the configured controller. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ControllerBroker(Arc<BrokerState>);

#[derive(Debug)]
struct BrokerState {
    controller: Arc<ControllerClient>,
    url: String,
    /// Key of the controller, if there is only one and it is known by its key.
    key: Option<PublicKey>,
    owner: String,
    /// Directory of the records; `None` without a state directory.
    state: Option<PathBuf>,
    map: Mutex<Option<(Instant, Arc<Map>)>>,
    records: Mutex<HashMap<u64, LockedRecord>>,
    shared: SharedCircuits,
}

impl ControllerBroker {
    /// Creates a broker at the controller of `longhaul controller use`. `None` if there is none.
    ///
    /// # Errors
    /// The settings or the certificates of authorities cannot be read.
    pub fn from_home(key: &SigningKey) -> Result<Option<Self>> {
        let file = home::make_dir()?.join(settings::FILE_NAME);
        let settings = ControllerSettings::load(&file)?;
        settings
            .map(|settings| Self::new(&settings, key))
            .transpose()
    }

    /// Creates a broker at this controller, and starts to return what an earlier process left. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn new(settings: &ControllerSettings, key: &SigningKey) -> Result<Self> {
        let controller = ControllerClient::new(settings, key)?.with_timeout(ANSWER_TIMEOUT);
        let controller = Arc::new(controller);
        let mut sites = settings.sites();
        let url = sites.next().map(|site| site.url.to_string());
        let known = settings.sites().map(|site| match &site.known {
            Some(ControllerTrust::Key(key)) => Some(*key),
            _ => None,
        });
        let controller_key = known.reduce(|_, _| None).flatten();
        let broker = Self(Arc::new(BrokerState {
            controller: Arc::clone(&controller),
            url: url.unwrap_or_default(),
            key: controller_key,
            owner: key.public().to_string(),
            state: home::state_dir().map(|state| state.join(STATE_DIR)),
            map: Mutex::default(),
            records: Mutex::default(),
            shared: SharedCircuits::default(),
        }));
        if let Some(state) = &broker.0.state {
            let left = leftover_records(state, &broker.0.url, &broker.0.owner);
            if !left.is_empty() {
                tokio::spawn(async move { return_leftovers(left, &controller).await });
            }
        }
        Ok(broker)
    }

    /// Returns the key of the controller, if there is only one and it is known by its key.
    pub fn controller_key(&self) -> Option<PublicKey> {
        self.0.key
    }
}

impl CircuitBroker for ControllerBroker {
    fn reserve(&self, wanted: WantedCircuit) -> BrokerFuture<CircuitAnswer> {
        let state = Arc::clone(&self.0);
        Box::pin(async move { state.reserve(wanted).await })
    }

    fn take_offer(&self, offer: OfferedCircuit) -> BrokerFuture<CircuitAnswer> {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            match serde_json::from_str(&offer.request) {
                Ok(request) => state.request(&request).await,
                Err(error) => failed(error.to_string(), false),
            }
        })
    }

    fn state(&self, id: u64) -> BrokerFuture<CircuitState> {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            match timeout(ANSWER_TIMEOUT, state.controller.reservation(id)).await {
                Ok(Ok(reservation)) => state_of(&reservation),
                Ok(Err(ClientError::Refused(problem))) if problem.status == 404 => {
                    CircuitState::Lost("the controller does not know it any more".to_owned())
                }
                Ok(Err(_)) | Err(_) => CircuitState::Unknown,
            }
        })
    }

    fn give_back(&self, id: u64) -> BrokerFuture<()> {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            if state.shared.leave(id) {
                state.cancel(id).await;
            }
        })
    }
}

impl BrokerState {
    async fn reserve(&self, wanted: WantedCircuit) -> CircuitAnswer {
        let map = match self.map().await {
            Ok(map) => map,
            Err(error) => return failed_request(error),
        };
        let ends = match ends::find(&map, wanted.direction, wanted.local, wanted.peer) {
            Ok(ends) => ends,
            Err(unknown) => return failed(unknown.to_string(), false),
        };
        let request = request(&wanted, &ends);
        if wanted.direction == FlowDirection::Send || wanted.delegation.is_some() {
            return self.request(&request).await;
        }
        // Packets from one port of a server all belong to one circuit, whichever connection they
        // are of.
        let key = (wanted.peer, wanted.local.ip());
        let mut shared = self.shared.lock(key).await;
        if let Some(circuit) = shared.join() {
            return CircuitAnswer::Reserved(circuit);
        }
        let answer = self.request(&request).await;
        if let CircuitAnswer::Reserved(circuit) = &answer {
            shared.begin(*circuit);
        }
        answer
    }

    /// Sends a request, and records what is reserved.
    async fn request(&self, request: &ReservationRequest) -> CircuitAnswer {
        let key = match SessionId::random() {
            Ok(key) => key.to_string(),
            Err(error) => return failed(format!("cannot make an idempotency key: {error}"), true),
        };
        match self.controller.reserve(request, &key).await {
            Ok(ReservationAnswer::Reserved(reserved)) => self.reserved(&reserved),
            Ok(ReservationAnswer::InsufficientBandwidth(refused)) => {
                let offers = &refused.refusal.offers;
                let offers = offers.later.iter().chain(&offers.slower);
                CircuitAnswer::Refused {
                    offers: offers.filter_map(offered).collect(),
                    why: printable(refused.detail.as_bytes()),
                }
            }
            Err(error) => failed_request(error),
        }
    }

    fn reserved(&self, reserved: &Reserved) -> CircuitAnswer {
        let Some(reservation) = reserved.reservations.first() else {
            return failed(
                "the controller's answer names no reservation".to_owned(),
                false,
            );
        };
        self.record(reservation.id);
        let Wish::Rate { rate_bps } = reservation.wish else {
            return failed("the controller's answer is for a volume".to_owned(), false);
        };
        let now = unix_ms();
        let start = reservation.start_ms.max(now);
        CircuitAnswer::Reserved(ReservedCircuit {
            id: reservation.id,
            rate: rate_bps,
            starts_in: Duration::from_millis(start.saturating_sub(now)),
            lasts: Duration::from_millis(reservation.end_ms.saturating_sub(start)),
        })
    }

    fn record(&self, id: u64) {
        let Some(state) = &self.state else { return };
        let record = ReservationRecord {
            controller: self.url.clone(),
            owner: self.owner.clone(),
            id,
        };
        match LockedRecord::keep(state, &record) {
            Ok(kept) => {
                self.records.lock().insert(id, kept);
            }
            Err(error) => tracing::info!(%error, "cannot record the reservation"),
        }
    }

    async fn cancel(&self, id: u64) {
        let cancel = ReservationAction::Cancel { series: false };
        let key = format!("returned-{id}");
        let done = self.controller.act_on_reservation(id, cancel, &key);
        let done = timeout(RETURN_TIMEOUT, done).await;
        let record = self.records.lock().remove(&id);
        match done {
            Ok(Err(error)) if error.is_transient() => {
                tracing::info!(id, %error, "a reservation is not returned yet");
            }
            Err(_) => tracing::info!(id, "a reservation is not returned yet: no answer"),
            // It is returned, or was over before.
            Ok(_) => {
                if let Some(record) = record {
                    record.forget();
                }
            }
        }
    }

    /// Returns the controller's map, which may be somewhat old.
    async fn map(&self) -> Result<Arc<Map>, ClientError> {
        if let Some((read, map)) = &*self.map.lock()
            && read.elapsed() < MAX_MAP_AGE
        {
            return Ok(Arc::clone(map));
        }
        let map = Arc::new(self.controller.map().await?.map);
        *self.map.lock() = Some((Instant::now(), Arc::clone(&map)));
        Ok(map)
    }
}

/// Returns the request for a circuit around a connection.
fn request(wanted: &WantedCircuit, ends: &CircuitEnds) -> ReservationRequest {
    let source: SocketAddr = match wanted.direction {
        FlowDirection::Send => wanted.local,
        FlowDirection::Receive => wanted.peer,
    };
    let delegation = wanted
        .delegation
        .as_ref()
        .and_then(|given| given.to_text().ok());
    let lasts = u64::try_from(wanted.duration.as_millis()).unwrap_or(u64::MAX);
    // A delegate's clock may be behind the principal's: its circuit ends within the delegation.
    let latest = wanted
        .delegation
        .as_ref()
        .map_or(u64::MAX, |given| given.end_unix_ms);
    let wish = Wish::Rate {
        rate_bps: wanted.rate,
    };
    let end_ms = unix_ms().saturating_add(lasts).min(latest);
    let purpose = wanted.purpose.as_deref().unwrap_or(DESCRIPTION);
    ReservationRequest {
        filter: PacketFilter {
            source_ports: Some(SourcePortRange {
                first: source.port(),
                last: source.port(),
            }),
            dscp: None,
        },
        provision: true,
        from_address: ends.from_address.map(|address| address.to_string()),
        to_address: ends.to_address.map(|address| address.to_string()),
        description: Some(purpose.to_owned()),
        delegation,
        ..ReservationRequest::new(ends.from.clone(), ends.to.clone(), wish, end_ms)
    }
}

/// Returns an offer in the planner's terms; `None` for offers of volumes.
fn offered(offer: &Offer) -> Option<OfferedCircuit> {
    let request = &offer.request;
    let Wish::Rate { rate_bps } = request.wish else {
        return None;
    };
    let now = unix_ms();
    let start = request.start_ms.unwrap_or(now).max(now);
    Some(OfferedCircuit {
        rate: rate_bps,
        starts_in: Duration::from_millis(start.saturating_sub(now)),
        lasts: Duration::from_millis(request.end_ms.saturating_sub(start)),
        request: serde_json::to_string(request).ok()?,
    })
}

/// Returns the state of a circuit by its reservation.
fn state_of(reservation: &Reservation) -> CircuitState {
    let failure = reservation.failure.as_deref().unwrap_or("it failed");
    let why = match reservation.state.life {
        LifeState::Created => match &reservation.circuit {
            Some(circuit) if circuit.standing == CircuitStanding::Failed => {
                circuit.why.as_deref().unwrap_or(failure)
            }
            _ => return CircuitState::Promised,
        },
        LifeState::PassedEndTime => "its time is over",
        LifeState::Failed => failure,
        LifeState::Terminating | LifeState::Terminated => "it was cancelled",
    };
    CircuitState::Lost(printable(why.as_bytes()))
}

fn failed(why: String, is_transient: bool) -> CircuitAnswer {
    CircuitAnswer::Failed { why, is_transient }
}

fn failed_request(error: ClientError) -> CircuitAnswer {
    let is_transient = error.is_transient();
    failed(printable(error.to_string().as_bytes()), is_transient)
}
