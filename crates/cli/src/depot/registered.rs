//! A depot registered with a controller: renews its registration, reports its hops, and measures
//! paths to other depots when scheduled.
//!
//! Relaying does not depend on any of this: sessions are relayed whether a controller answers or
//! not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use longhaul_control_api::map::{DepotAddress, DepotLimits, Registration, Transport};
use longhaul_control_api::measurements::{Batch, Measurement};
use longhaul_control_api::probes::{ProbeKind, ProbeResult, ProbeTask};
use longhaul_control_client::settings::{self, ControllerEntry, ControllerTrust};
use longhaul_control_client::spool::{Spool, SpoolEntry};
use longhaul_control_client::{ControllerClient, ControllerSettings, ServiceUrl};
use longhaul_depot::{Activity, HopObserver, ProbeFigures, ProbePlan, probe};
use longhaul_hop::unix_ms;
use longhaul_policy::{OwnAddressReader, is_local};
use longhaul_proto::text::printable_within;
use longhaul_proto::{DEPOT_PORT, Endpoint, MAX_PROBE_BYTES, PublicKey, SigningKey};
use longhaul_service::is_handed_over;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::hops::HopSums;
use crate::controller::sync::reports_dir;
use crate::failure::format_line;
use crate::of_path::probe_measurements;
use crate::service::ServicePlan;
use crate::{controller, home};

/// Validity of a registration, unless the controller sets a shorter one.
const REGISTRATION_VALIDITY: Duration = Duration::from_secs(90);
/// Bounds of the interval between registrations.
const MIN_REGISTER_INTERVAL: Duration = Duration::from_secs(5);
const MAX_REGISTER_INTERVAL: Duration = Duration::from_secs(600);
/// Interval between reports about hops.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Bounds of the interval between requests for probe plans.
const MIN_PROBES_INTERVAL: Duration = Duration::from_secs(10);
const MAX_PROBES_INTERVAL: Duration = Duration::from_secs(600);
/// Time for telling the controller that the depot ends.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum measurements in one file of the spool. Even with long names they fit the size limit of a
/// file.
const MAX_SPOOLED_MEASUREMENTS: usize = 500;
/// Maximum length of a reported reason, in bytes.
const MAX_REASON_BYTES: usize = 500;

/// Error of a registration without a controller.
const NO_CONTROLLER: &str =
    "--register needs a controller: longhaul controller use URL, or --controller URL";

/// Options to register a depot with a controller.
#[derive(Args)]
#[command(next_help_heading = "A controller that knows it")]
pub struct RegisterOptions {
    /// Register with the controller under this name, report to it the hops relayed over, and make
    /// the small measurements that it plans.
    #[arg(long, value_name = "NAME")]
    register: Option<String>,
    /// Address at which other hosts reach the depot; repeatable, routes name the first [default:
    /// the addresses that it listens at].
    #[arg(long, value_name = "HOST[:PORT]", requires = "register")]
    advertise: Vec<String>,
    /// The depot's site, by its name on the map.
    #[arg(long, value_name = "NAME", requires = "register")]
    site: Option<String>,
    /// The controller, as https://HOST[:PORT] or unix:/PATH [default: the one of longhaul
    /// controller use]. It is asked whether grants of circuits that are in use still hold, with or
    /// without --register.
    #[arg(long, value_name = "URL")]
    controller: Option<ServiceUrl>,
    /// The key of --controller, as `longhaul control` prints it.
    #[arg(long, value_name = "KEY", requires = "controller")]
    controller_key: Option<PublicKey>,
}

/// A depot's registration with a controller.
pub struct DepotRegistration {
    controller: ControllerClient,
    key: SigningKey,
    name: String,
    site: Option<String>,
    advertise: Vec<Endpoint>,
    limits: DepotLimits,
    sums: Arc<Mutex<HopSums>>,
    spool: Option<Spool>,
    own: OwnAddressReader,
}

impl RegisterOptions {
    /// Adds to a plan what it would register, and where.
    pub fn plan(&self, plan: &mut ServicePlan) {
        match (&self.register, self.settings()) {
            (Some(name), Ok(Some(settings))) => plan
                .facts
                .push(format!("registers as {name} with {}", settings.first.url)),
            (Some(_), Ok(None)) => plan.faults.push(NO_CONTROLLER.to_owned()),
            (_, Err(error)) => plan.faults.push(format_line(&error)),
            (None, Ok(_)) => {}
        }
    }

    /// Returns the name to register, if one is given.
    pub fn name(&self) -> Option<&str> {
        self.register.as_deref()
    }

    /// Returns the site, if one is given.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }

    /// Returns the addresses at which others reach the depot.
    ///
    /// # Errors
    /// One is invalid.
    pub fn advertised(&self) -> Result<Vec<Endpoint>> {
        let parse = |text: &String| {
            Endpoint::parse_with_port(text, DEPOT_PORT).with_context(|| "--advertise".to_owned())
        };
        self.advertise.iter().map(parse).collect()
    }

    /// Returns the controller to use, if there is one. The depot needs it to register; without one,
    /// grants of circuits lapse.
    ///
    /// # Errors
    /// A controller is needed, and none is configured or its key is unknown.
    pub fn settings(&self) -> Result<Option<ControllerSettings>> {
        let Some(url) = &self.controller else {
            let kept = || {
                anyhow::Ok(ControllerSettings::load(
                    &home::make_dir()?.join(settings::FILE_NAME),
                )?)
            };
            return match self.register.is_some() {
                true => kept(),
                // Its grants lapse without one.
                false => Ok(kept().unwrap_or_default()),
            };
        };
        let known = self.controller_key.map(ControllerTrust::Key);
        if known.is_none() && matches!(url, ServiceUrl::Https(_)) {
            bail!("--controller needs --controller-key: the key that longhaul control prints");
        }
        let site = ControllerEntry {
            url: url.clone(),
            known,
        };
        Ok(Some(site.into()))
    }

    /// Returns the registration to maintain, if one is requested.
    ///
    /// # Errors
    /// There is no controller, or an option is invalid.
    pub fn registration(
        &self,
        settings: Option<&ControllerSettings>,
        key: &SigningKey,
        limits: DepotLimits,
    ) -> Result<Option<DepotRegistration>> {
        let Some(name) = &self.register else {
            return Ok(None);
        };
        let settings = settings.ok_or_else(|| anyhow!(NO_CONTROLLER))?;
        Ok(Some(DepotRegistration {
            controller: ControllerClient::new(settings, key)?,
            key: key.clone(),
            name: name.clone(),
            site: self.site.clone(),
            advertise: self.advertised()?,
            limits,
            sums: Arc::default(),
            own: OwnAddressReader::new().context("cannot read this machine's addresses")?,
            spool: controller::state_dir()
                .map(|state: PathBuf| Spool(reports_dir(&state.join("depot")))),
        }))
    }
}

impl DepotRegistration {
    /// Returns the observer of hops.
    pub fn observer(&self) -> HopObserver {
        let sums = Arc::clone(&self.sums);
        HopObserver(Arc::new(move |report| {
            let mut sums = sums.lock();
            sums.add(&report, unix_ms());
        }))
    }

    /// Maintains the registration until `stopped`. The depot listens at `listens`, and `activity`
    /// counts its sessions.
    pub async fn run(
        mut self,
        listens: Vec<std::net::SocketAddr>,
        activity: Activity,
        stopped: impl Future<Output = ()>,
    ) {
        if self.advertise.is_empty() {
            let known = listens
                .into_iter()
                .filter(|address| !address.ip().is_unspecified());
            self.advertise = known.map(Endpoint::from).collect();
        }
        if self.advertise.is_empty() {
            tracing::error!(
                "not registered: the depot listens on every address; give --advertise HOST:PORT, \
                 where others reach it"
            );
            return;
        }
        tokio::select! {
            () = self.keep_registered() => {}
            () = self.keep_reporting() => {}
            () = self.keep_measuring(&activity) => {}
            () = stopped => {}
        }
        self.spool_sums();
        let farewell = async {
            // A successor has registered under the same key.
            if !is_handed_over() {
                let _ = self.controller.unregister(&self.key.public()).await;
            }
            self.report().await;
        };
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }

    async fn keep_registered(&self) {
        let mut was_received = None;
        loop {
            let registration = Registration {
                limits: self.limits,
                ..registration(&self.key, &self.name, self.site.as_deref(), &self.advertise)
            };
            let answer = self.controller.register(&registration).await;
            let received = answer.is_ok();
            let again = match answer {
                Ok(registered) => {
                    if was_received != Some(true) {
                        tracing::info!(name = registered.name, "registered with the controller");
                    }
                    Duration::try_from_secs_f64(registered.again_in_s)
                        .unwrap_or(REGISTRATION_VALIDITY / 3)
                }
                Err(error) => {
                    if was_received != Some(false) {
                        tracing::warn!(%error, "not registered with the controller; retrying");
                    }
                    REGISTRATION_VALIDITY / 3
                }
            };
            was_received = Some(received);
            sleep(again.clamp(MIN_REGISTER_INTERVAL, MAX_REGISTER_INTERVAL)).await;
        }
    }

    async fn keep_reporting(&self) {
        loop {
            sleep(REPORT_INTERVAL).await;
            self.spool_sums();
            self.report().await;
        }
    }

    /// Spools the sums until they are reported.
    fn spool_sums(&self) {
        let Some(spool) = &self.spool else { return };
        let seen = {
            let mut sums = self.sums.lock();
            // Named by its key, by which the controller knows it under any name.
            sums.take(&self.key.public().to_string(), unix_ms())
        };
        for part in seen.chunks(MAX_SPOOLED_MEASUREMENTS) {
            let measurements = part.to_vec();
            if let Err(error) = spool.put(&SpoolEntry::Measurements(Batch { measurements })) {
                tracing::warn!(%error, "some hops cannot be reported to the controller");
            }
        }
    }

    async fn report(&self) {
        if let Some(spool) = &self.spool
            && let Err(error) = spool.report(&self.controller).await
        {
            tracing::debug!(%error, "cannot report hops to the controller now; retrying later");
        }
    }

    async fn keep_measuring(&self, activity: &Activity) {
        loop {
            let asked = Instant::now();
            let again = match self.controller.probes().await {
                Ok(list) => {
                    let until = asked
                        + Duration::from_secs(list.again_in_s)
                            .clamp(MIN_PROBES_INTERVAL, MAX_PROBES_INTERVAL);
                    for task in &list.items {
                        if !self.take_turn(task, until, activity).await {
                            break;
                        }
                    }
                    until
                }
                Err(error) => {
                    tracing::debug!(%error, "the controller plans no measurements");
                    asked + MAX_PROBES_INTERVAL / 10
                }
            };
            sleep_until(again).await;
        }
    }

    /// Waits for the scheduled turn, and measures. Returns false if the turn comes after `until`,
    /// when there is another plan.
    async fn take_turn(&self, task: &ProbeTask, until: Instant, activity: &Activity) -> bool {
        let begins = Duration::from_millis(task.not_before_ms.saturating_sub(unix_ms()));
        if Instant::now() + begins >= until {
            return false;
        }
        sleep(begins).await;
        let now = unix_ms();
        // A missed turn belongs to another depot.
        let left = Duration::from_millis(task.not_after_ms.saturating_sub(now));
        if now < task.not_before_ms || left.is_zero() {
            return true;
        }
        let result = self.measured(task, left, activity).await;
        if let Err(error) = self.controller.probe_result(&task.id, &result).await {
            tracing::debug!(%error, "cannot report a measurement");
        }
        true
    }

    async fn measured(
        &self,
        task: &ProbeTask,
        within: Duration,
        activity: &Activity,
    ) -> ProbeResult {
        let failed = |why: &str| ProbeResult {
            error: Some(printable_within(why.as_bytes(), MAX_REASON_BYTES)),
            ..ProbeResult::default()
        };
        let plan = match task.kind {
            ProbeKind::RoundTrips { count } => ProbePlan::RoundTrips(count),
            // Relayed sessions measure the path better, and must not be disturbed.
            ProbeKind::Bulk { .. } if activity.sessions() > 0 => {
                return ProbeResult {
                    path_in_use: true,
                    ..ProbeResult::default()
                };
            }
            ProbeKind::Bulk { bytes } => ProbePlan::Train(bytes.min(MAX_PROBE_BYTES)),
        };
        let Ok(to) = task.address.parse::<Endpoint>() else {
            return failed("the address is invalid");
        };
        let expected = match task.key.as_deref().map(str::parse::<PublicKey>) {
            None => None,
            Some(Ok(key)) => Some(key),
            Some(Err(_)) => return failed("the key is invalid"),
        };
        // The controller names addresses that others registered. None of them may lead to this
        // machine itself.
        let own = self.own.addresses();
        let may_reach = |address| !is_local(address, &own);
        match probe(&to, expected, &self.key, plan, within, may_reach).await {
            Ok(figures) => ProbeResult {
                measurements: measurements(
                    &figures,
                    &self.key.public().to_string(),
                    &task.to,
                    unix_ms(),
                ),
                ..ProbeResult::default()
            },
            Err(error) => failed(&error.to_string()),
        }
    }
}

/// Returns the registration of a depot with this key, name and site, and these addresses.
pub fn registration(
    key: &SigningKey,
    name: &str,
    site: Option<&str>,
    addresses: &[Endpoint],
) -> Registration {
    let addresses = addresses.iter().map(|endpoint| DepotAddress {
        endpoint: endpoint.clone(),
        transports: vec![Transport::Tcp],
    });
    Registration {
        key: key.public(),
        name: name.to_owned(),
        site: site.map(str::to_owned),
        addresses: addresses.collect(),
        limits: DepotLimits::default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sent_at: unix_ms() as f64 / 1000.0,
        valid_for: REGISTRATION_VALIDITY,
    }
}

/// Converts the result of a probe to measurements.
fn measurements(figures: &ProbeFigures, me: &str, to: &str, at_ms: u64) -> Vec<Measurement> {
    let mut round_trips = figures.round_trips.clone();
    round_trips.sort();
    // The median: a single round trip delayed by the processor says nothing about the path.
    let rtt = round_trips
        .get(round_trips.len() / 2)
        .map(Duration::as_secs_f64);
    let segments = figures
        .segments
        .filter(|(sent, _)| figures.counts_losses && *sent > 0);
    let loss = segments.map(|(sent, again)| (again as f64 / sent as f64).min(1.0));
    probe_measurements(
        (me.to_owned(), to.to_owned()),
        at_ms,
        rtt,
        figures.train.as_ref(),
        loss,
    )
}
