//! Facts about a copy with a deadline, and access to the copy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Zoned;
use longhaul_control_client::ControllerClient;
use longhaul_copy_api::{CopyEvent, RouteVerdict};
use longhaul_deadline::ReservationMode;
use longhaul_proto::{Endpoint, Route};
use longhaul_transfer::{ReservedRoute, TransferProgress};

/// Deadline of a copy, and what may be reserved for it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadlineSettings {
    /// The deadline, if there is one.
    pub by: Option<Zoned>,
    /// Bandwidth that may be reserved.
    pub mode: ReservationMode,
}

/// A copy with a deadline, and the controller that can reserve bandwidth for it.
pub struct DeadlineRequest {
    /// The deadline, and what may be reserved.
    pub settings: DeadlineSettings,
    /// The controller, the directory of its state, and its URL. `None` if no controller is used.
    pub controller: Option<(Arc<ControllerClient>, PathBuf, String)>,
    /// The public key that authenticates to the controller.
    pub owner: String,
    /// The server that the copy is to or from.
    pub server: Endpoint,
    /// If true, this end sends.
    pub push: bool,
    /// If true, reserved routes can join the copy.
    pub joins: bool,
    /// If true, streams of reserved routes leave from ports of their own. Otherwise a reservation
    /// covers all streams between the ends.
    pub pins: bool,
    /// Bytes to copy, if known before the walk.
    pub size: Option<u64>,
    /// Number of streams, if the user chose it.
    pub streams: Option<u32>,
    /// Congestion control of the copy, if the user chose it.
    pub congestion: Option<String>,
    /// Routes that the command line names; empty if they are chosen.
    pub routes: Vec<Route>,
}

/// The copy that a deadline accompanies.
pub trait ObservedCopy: Send + Sync {
    /// Returns the copy's counters.
    fn progress(&self) -> &Arc<TransferProgress>;

    /// Returns the verdicts on the routes chosen for the copy, oldest first. The list only grows.
    fn verdicts(&self) -> Vec<RouteVerdict>;

    /// Returns the latest reason why a stream was lost or did not open, by the names of the
    /// reserved routes.
    fn lost_on_reserved(&self) -> BTreeMap<String, String>;

    /// Makes the copy use these reserved routes, and no others.
    fn use_reserved(&self, reserved: &[ReservedRoute]);

    /// Publishes an event to the program that observes the copy.
    fn print_event(&self, event: CopyEvent);

    /// Tells the user something that is no failure of the copy.
    fn notice(&self, text: &str);
}
