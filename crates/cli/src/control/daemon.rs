//! The controller as a process: its listeners, its shutdown and its restart.

use std::fs::File;
use std::future::pending;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use longhaul_api::access::BearerToken;
use longhaul_api::{KeyGate, LocalGate, listen};
use longhaul_control::http::{MAX_BODY_BYTES, router, router_for_archives, router_for_keys};
use longhaul_control::metrics::page;
use longhaul_control::store::retention::Retention;
use longhaul_control::{Controller, ControllerConfig, ControllerStore};
use longhaul_control_client::ServiceUrl;
use longhaul_identity::Identities;
use longhaul_service::{Hangup, StatusListener, StatusPage};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::inherited::InheritedSockets;
use super::{ControllerOptions, setup};
use crate::agent::{listen_at, lock, own_identity, user_name};
use crate::agent_client::socket;
use crate::exit::Exit;
use crate::home;
use crate::local_controller::control_dir;
use crate::service::{Announcement, StartedService, StopReceiver, run_alone};
use crate::stop::StopSignals;
use crate::tls_service::{TlsSettings, first_second, host_name, names};

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Result of a run of the controller.
#[derive(Default)]
pub enum RunOutcome {
    /// It stops for good.
    #[default]
    Stopped,
    /// It restarts, and hands on these sockets.
    Again(InheritedSockets),
}

/// Runs the controller until it is told to stop.
pub fn run(service: &ControllerOptions) -> Result<Exit> {
    service.log.start("info");
    // Read now: by the time of a restart, another release may be installed at this path.
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let prepared = PreparedController::new()?;
    let runtime = crate::runtime::start()?;
    let end = runtime.block_on(async {
        let signals = StopSignals::take()?;
        let again = signal(SignalKind::user_defined2())?;
        run_alone(signals, None, service.json, |stop| {
            start(service.clone(), &prepared, stop, Some(again))
        })
        .await
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    match end {
        RunOutcome::Stopped => Ok(Exit::Success),
        RunOutcome::Again(sockets) => {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1));
            command.envs(sockets.pass_on()?);
            drop(prepared);
            Err(command.exec())
                .with_context(|| format!("cannot restart {}", home::display_path(&program)))
        }
    }
}

/// Directory of the controller, which no other process uses meanwhile.
pub struct PreparedController {
    dir: PathBuf,
    /// While this lock is held, no other controller can run here.
    _lock: File,
}

impl PreparedController {
    /// Makes this process the controller of its user, and detaches it from standard input.
    pub fn new() -> Result<Self> {
        let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
        rustix::stdio::dup2_stdin(&nothing).context("cannot detach standard input")?;
        let dir = control_dir()?;
        home::make_private(&dir)?;
        let busy = "a controller is running already: longhaul control principals queries it";
        Ok(Self {
            _lock: lock(&dir, busy)?,
            dir,
        })
    }
}

/// Opens the store and the listeners, and returns how it runs. It restarts at the signal `again`.
pub async fn start(
    service: ControllerOptions,
    prepared: &PreparedController,
    stop: StopReceiver,
    again: Option<Signal>,
) -> Result<StartedService<RunOutcome>> {
    let dir = prepared.dir.as_path();
    let hangup = Hangup::take()?;
    let inherited = InheritedSockets::take()?;
    let path = socket(dir);
    let (unix, kept_unix) = listen_locally(inherited.unix, &path)?;
    // From here on, connections wait instead of being refused.
    let elsewhere = match (service.listen, inherited.internet) {
        (None, _) => None,
        (Some(address), socket) => Some(listen_remotely(address, socket).await?),
    };
    let status = service.metrics.map(StatusListener::open).transpose()?;
    let store = match &service.store {
        Some(url) => ControllerStore::postgres(url).await?,
        None => ControllerStore::sqlite(&dir.join("control.sqlite")).await?,
    };
    let identity = own_identity(dir)?;
    let listens = elsewhere
        .as_ref()
        .and_then(|(listener, _)| listener.local_addr().ok());
    let said = setup::read(service.config.as_deref(), dir)?;
    let identities = service.principals.load()?;
    let settings = ControllerConfig {
        name: service.name.clone().unwrap_or_else(host_name),
        key: identity.public(),
        identities: identities.clone(),
        signer: identity.signing_key().clone(),
        retention: Retention {
            single: i64::from(service.keep) * DAY_SECONDS,
            ..Retention::default()
        },
        registrations: Default::default(),
        setup: said.setup,
        ospf: said.ospf,
        roots: said.roots,
        advertise: advertised_url(&service, listens)?,
        domain: said.domain,
    };
    // It also ends when one of its listeners fails.
    let (stop_all, stopped) = watch::channel(false);
    let (controller, work) = Controller::begin(store, settings, stopped.clone()).await?;
    let mut served = JoinSet::new();
    let uid = rustix::process::getuid().as_raw();
    let gate = LocalGate {
        uid,
        user: user_name(uid),
        token: None,
        sessions: Arc::default(),
    };
    served.spawn(listen::serve(
        unix,
        router(controller.clone(), gate),
        stopped.clone(),
    ));
    let mut archive = None;
    if let Some(address) = service.archive {
        let listener = listen::loopback(address).await?;
        archive = listener.local_addr().ok();
        let gate = LocalGate {
            uid,
            user: user_name(uid),
            token: Some(load_token(dir)?),
            sessions: Arc::default(),
        };
        let router = router_for_archives(controller.clone(), gate);
        served.spawn(listen::serve(listener, router, stopped.clone()));
    }
    let mut tls = None;
    let (mut address, mut kept_internet) = (None, None);
    if let Some((listener, kept)) = elsewhere {
        let at = listener
            .local_addr()
            .context("cannot determine the listening address")?;
        let files = (service.tls_cert.as_deref(), service.tls_key.as_deref());
        let secured = TlsSettings::new(&service.server_name, files, &identity, dir, at)?;
        let gate = key_gate(&controller, &secured).await;
        let router = router_for_keys(controller.clone(), gate);
        served.spawn(listen::serve_secured(
            listener,
            router,
            secured.subscribe(),
            stopped.clone(),
        ));
        (address, kept_internet) = (Some(at), Some(kept));
        tls = Some(secured);
    }
    let metrics = page(controller.clone());
    let readiness = stop.readiness();
    let status_address = status.as_ref().map(StatusListener::local_addr);
    let addresses = [address, status_address, archive];
    let announcement = announcement(&controller, &path, addresses);
    let status = status.map(|listener| {
        let page = StatusPage::new(metrics.clone(), readiness.clone());
        tokio::spawn(listener.serve(page))
    });
    let work = async move {
        let reload = || async {
            tls.iter().for_each(TlsSettings::reload);
            reload_principals(identities.clone()).await;
        };
        let restart = async {
            match again {
                Some(mut again) => drop(again.recv().await),
                None => pending().await,
            }
        };
        let (is_again, failed) = tokio::select! {
            () = stop.wait() => (false, None),
            () = restart => (true, None),
            never = hangup.run_each(reload) => match never {},
            never = identities.clone().maintain() => match never {},
            ended = served.join_next() => (false, ended),
        };
        tracing::info!(
            again = is_again,
            "draining: requests in progress are finished, new ones are refused"
        );
        stop_all.send_replace(true);
        while served.join_next().await.is_some() {}
        if let Some(status) = status {
            status.abort();
        }
        work.end(&controller).await;
        match failed {
            Some(Ok(Err(error))) => return Err(error).context("cannot keep listening"),
            Some(Err(error)) => return Err(error).context("cannot keep listening"),
            _ => {}
        }
        if !is_again {
            // By the time this process has ended, the socket may belong to another controller.
            let _ = std::fs::remove_file(&path);
            return Ok(RunOutcome::Stopped);
        }
        Ok(RunOutcome::Again(InheritedSockets {
            unix: Some(kept_unix),
            internet: kept_internet,
        }))
    };
    Ok(StartedService {
        announcement,
        metrics: Some(metrics),
        readiness,
        work: Box::pin(work),
    })
}

/// Returns the address that is given to others while this controller leads: the configured one, or
/// else its first name.
fn advertised_url(
    service: &ControllerOptions,
    listens: Option<SocketAddr>,
) -> Result<Option<String>> {
    if let Some(url) = &service.advertise {
        return Ok(Some(url.to_string()));
    }
    let Some(address) = listens else {
        return Ok(None);
    };
    let names = names(&service.server_name, address)?;
    Ok(names
        .first()
        .map(|name| ServiceUrl::Https(name.clone()).to_string()))
}

/// Loads the token for programs on loopback. It never changes, as it stands in their settings.
fn load_token(dir: &Path) -> Result<BearerToken> {
    let file = dir.join("token");
    if file.exists() {
        return BearerToken::load(&file)
            .with_context(|| format!("cannot read {}", home::display_path(&file)));
    }
    let token = BearerToken::random()?;
    token
        .save(&file)
        .with_context(|| format!("cannot write {}", home::display_path(&file)))?;
    Ok(token)
}

/// Listens on the local socket. A second descriptor keeps the socket open after the listener ends.
fn listen_locally(inherited: Option<OwnedFd>, path: &Path) -> Result<(UnixListener, OwnedFd)> {
    let listener = match inherited {
        Some(socket) => std::os::unix::net::UnixListener::from(socket),
        None => listen_at(path)?.into_std().context("cannot listen")?,
    };
    listener.set_nonblocking(true).context("cannot listen")?;
    let kept = listener.try_clone().context("cannot listen")?.into();
    Ok((
        UnixListener::from_std(listener).context("cannot listen")?,
        kept,
    ))
}

/// Listens for other machines. A second descriptor keeps the socket open after the listener ends.
async fn listen_remotely(
    address: SocketAddr,
    inherited: Option<OwnedFd>,
) -> Result<(TcpListener, OwnedFd)> {
    let listener = match inherited {
        Some(socket) => std::net::TcpListener::from(socket),
        None => listen::any_address(address)
            .await?
            .into_std()
            .context("cannot listen")?,
    };
    listener.set_nonblocking(true).context("cannot listen")?;
    let kept = listener.try_clone().context("cannot listen")?.into();
    Ok((
        TcpListener::from_std(listener).context("cannot listen")?,
        kept,
    ))
}

/// Reads the principals again. A file with an error changes nothing.
async fn reload_principals(identities: Arc<Identities>) {
    let has_file = identities.file().is_some();
    // If the task panics, the principals in force stay.
    match tokio::task::spawn_blocking(move || identities.reload()).await {
        Ok(Ok(())) if has_file => tracing::info!("the principals were reloaded"),
        Ok(Err(error)) => tracing::error!(
            %error,
            "the principals were not reloaded: the previous ones stay in force"
        ),
        _ => {}
    }
}

/// Builds the gate that admits keys that were granted a role.
async fn key_gate(controller: &Controller, secured: &TlsSettings) -> Arc<KeyGate> {
    let since = first_second().await;
    let names = secured.names.iter().map(ToString::to_string);
    let gate = KeyGate::with_body_limit(
        "longhaul control",
        MAX_BODY_BYTES,
        controller.keys(),
        names,
        since,
    )
    .with_named_callers(controller.named_callers());
    let gate = Arc::new(gate);
    controller.serve_gate(gate.clone());
    gate
}

fn announcement(
    controller: &Controller,
    socket: &Path,
    addresses: [Option<SocketAddr>; 3],
) -> Announcement {
    let (name, key) = (&controller.settings().name, controller.settings().key);
    let socket = home::display_path(socket);
    let [https, metrics, archive] =
        addresses.map(|address| address.map(|address| address.to_string()));
    let mut lines = vec![format!("controller {name} is ready at {socket}")];
    if let Some(address) = &https {
        lines.push(format!(
            "HTTP at https://{address}, for keys that were granted a role; the controller's own \
             key is {key}"
        ));
    }
    if let Some(address) = &metrics {
        lines.push(format!("metrics at http://{address}/metrics"));
    }
    if let Some(address) = &archive {
        lines.push(format!(
            "pScheduler's archives at http://{address}/api/v1/pscheduler, for requests with the \
             token"
        ));
    }
    let key = key.to_string();
    Announcement {
        json: json!({
            "event": "ready", "name": name, "socket": socket, "https": https,
            "metrics": metrics, "archive": archive, "key": key
        }),
        lines,
        hint: None,
    }
}
