//! Options of the services that mark flows.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_scitags::{FlowMarker, FlowTag};

/// Options of a service that marks the flows of copies.
#[derive(Args)]
#[command(next_help_heading = "Flow marking")]
pub struct ScitagsOptions {
    /// Mark the flows of copies as this experiment and activity, by their numbers in the SciTags
    /// registry [default: none].
    #[arg(long, value_name = "EXPERIMENT:ACTIVITY")]
    scitags: Option<FlowTag>,
    /// Send the marks to this address as well as to the other end of each flow; repeatable. 10514
    /// is the usual port.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "scitags")]
    scitags_collector: Vec<SocketAddr>,
}

impl ScitagsOptions {
    /// Starts to mark flows, if they are to be marked.
    ///
    /// # Errors
    /// The system has no socket or thread for it.
    pub fn start(&self) -> Result<Option<FlowMarker>> {
        let start = |tag| FlowMarker::start(tag, self.scitags_collector.clone());
        let marker = self.scitags.map(start).transpose();
        marker.context("cannot mark flows (--scitags)")
    }
}
