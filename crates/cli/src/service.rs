//! Life of a resident command: it starts, announces where it listens, and runs until a signal, or
//! until another process replaces it, and until it has drained.

mod plan;

use std::future::pending;
use std::pin::Pin;

use anyhow::Result;
use longhaul_output::message;
use longhaul_service::{Handover, MetricsPage, Readiness, notify_ready, systemd};
use serde_json::Value;
use tokio::sync::watch;

use crate::answer;
use crate::exit::Exit;
use crate::stop::StopSignals;
pub use plan::ServicePlan;

/// A service whose listeners are open. Its work returns `T` in the end.
pub struct StartedService<T = ()> {
    /// First lines of its output.
    pub announcement: Announcement,
    /// Its metrics, for a page of several services; `None` if it has none.
    pub metrics: Option<MetricsPage>,
    /// Its readiness, for that page.
    pub readiness: Readiness,
    /// Future that runs it until it is told to stop and has drained.
    pub work: Pin<Box<dyn Future<Output = Result<T>>>>,
}

/// Statement of a service that it is ready, and where it listens.
pub struct Announcement {
    /// For programs.
    pub json: Value,
    /// For people, on standard output.
    pub lines: Vec<String>,
    /// For people, on standard error: how to use it.
    pub hint: Option<String>,
}

impl Announcement {
    /// Prints it, as one JSON object or for people.
    pub fn print(&self, json: bool) {
        if json {
            return answer::write_line(&self.json);
        }
        for line in &self.lines {
            answer::write_line(line);
        }
        if let Some(hint) = &self.hint {
            message!("{hint}");
        }
    }
}

/// Receiver of the request to stop.
#[derive(Debug, Clone)]
pub struct StopReceiver(watch::Receiver<bool>);

impl StopReceiver {
    /// Creates a receiver, and the sender of the request. Dropping the sender is a request, too.
    pub fn channel() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Completes when the service is to stop.
    pub async fn wait(mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Returns the receiver for services that take one.
    pub fn receiver(&self) -> watch::Receiver<bool> {
        self.0.clone()
    }

    /// Returns the readiness of a service without phases: it is ready until it is to stop.
    pub fn readiness(&self) -> Readiness {
        Readiness::until(self.0.clone())
    }
}

/// Runs a service until a signal, in a runtime of its own. Another process can replace it.
pub fn run_in_own_runtime<F: Future<Output = Result<StartedService>>>(
    json: bool,
    start: impl FnOnce(StopReceiver) -> F,
) -> Result<Exit> {
    let runtime = crate::runtime::start()?;
    runtime.block_on(async {
        let handover = Handover::take()?;
        run_alone(StopSignals::take()?, Some(handover), json, start).await
    })?;
    Ok(Exit::Success)
}

/// Starts a service, announces it, and runs it until a signal, or until another process replaces
/// it. A second signal ends it without waiting for what is under way.
pub async fn run_alone<T: Default, F: Future<Output = Result<StartedService<T>>>>(
    mut signals: StopSignals,
    handover: Option<Handover>,
    json: bool,
    start: impl FnOnce(StopReceiver) -> F,
) -> Result<T> {
    let (stop, stopped) = StopReceiver::channel();
    let StartedService {
        announcement,
        mut work,
        ..
    } = start(stopped).await?;
    announcement.print(json);
    notify_ready();
    let run = async {
        tokio::select! {
            ended = &mut work => return ended,
            () = stop_requested(&mut signals, handover) => {}
        }
        stop.send_replace(true);
        tokio::select! {
            ended = work => ended,
            () = signals.received() => Ok(T::default()),
        }
    };
    tokio::select! {
        ended = run => ended,
        never = systemd::keep_alive() => match never {},
    }
}

/// Completes when the process is to stop: at a signal, or once another accepts its connections.
pub async fn stop_requested(signals: &mut StopSignals, handover: Option<Handover>) {
    let replaced = async {
        match handover {
            Some(handover) => handover.completed().await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = signals.received() => systemd::notify_stopping(),
        () = replaced => {}
    }
}
