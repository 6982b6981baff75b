//! A service of a node: its options, and how it starts.

use anyhow::Result;
use longhaul_service::Hangup;

use super::hosted;
use crate::agent::AgentCommand;
use crate::control::{ControllerOptions, PreparedController};
use crate::depot::DepotCommand;
use crate::offramp::OfframpCommand;
use crate::onramp::{self, Entries};
use crate::router::Router;
use crate::serve::ServeCommand;
use crate::service::{ServicePlan, StartedService, StopReceiver};
use crate::{control, serve};

/// Options of a service.
pub enum Role {
    /// Copies to and from a directory.
    Serve(Box<ServeCommand>),
    /// Relay of sessions.
    Depot(Box<DepotCommand>),
    /// Exit of sessions.
    Offramp(Box<OfframpCommand>),
    /// Connections of programs on routes.
    Onramp(Box<Entries>),
    /// Jobs.
    Agent(Box<AgentCommand>),
    /// Controller.
    Control(Box<ControllerOptions>),
    /// Circuits on this machine.
    Router(Box<Router>),
}

impl Role {
    /// Returns the name of its section.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Serve(_) => "serve",
            Self::Depot(_) => "depot",
            Self::Offramp(_) => "offramp",
            Self::Onramp(_) => "onramp",
            Self::Agent(_) => "agent",
            Self::Control(_) => "control",
            Self::Router(_) => "router",
        }
    }

    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        match self {
            Self::Serve(serve) => serve.plan(),
            Self::Depot(depot) => depot.plan(),
            Self::Offramp(offramp) => offramp.plan(),
            Self::Onramp(entries) => onramp::plan(entries),
            Self::Agent(agent) => agent.plan(),
            Self::Control(control) => control.plan(),
            Self::Router(router) => router.plan(),
        }
    }

    /// Returns the blocking threads that it needs.
    ///
    /// # Errors
    /// This process may not have enough descriptors.
    pub fn blocking_threads(&self) -> Result<usize> {
        match self {
            Self::Serve(serve) => Ok(serve::blocking_threads(&serve.limits()?)),
            _ => Ok(0),
        }
    }

    /// Opens its listeners, and returns how it runs.
    pub async fn start(self, stop: StopReceiver) -> Result<StartedService> {
        match self {
            Self::Serve(serve) => {
                let limits = serve.limits()?;
                serve.start(limits, Hangup::take()?, stop).await
            }
            Self::Depot(depot) => depot.start(stop).await,
            Self::Offramp(offramp) => offramp.start(stop).await,
            Self::Onramp(entries) => onramp::start(*entries, stop).await,
            Self::Agent(agent) => hosted::start_agent(*agent, stop).await,
            Self::Control(options) => {
                let prepared = PreparedController::new()?;
                let StartedService {
                    announcement,
                    metrics,
                    readiness,
                    work,
                } = control::start(*options, &prepared, stop, None).await?;
                let work = async move {
                    let ended = work.await.map(drop);
                    drop(prepared);
                    ended
                };
                Ok(StartedService {
                    announcement,
                    metrics,
                    readiness,
                    work: Box::pin(work),
                })
            }
            Self::Router(router) => router.start(stop).await,
        }
    }
}
