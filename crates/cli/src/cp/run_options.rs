//! Options of how a copy runs and what it prints, which `cp` and `sync` share.

use clap::Args;
use quantities::Time;

use crate::quantity;

/// Options of how a copy runs and what it prints.
#[derive(Args, Clone, Copy)]
pub struct RunOptions {
    /// Time to wait once nothing arrives from the server any more, after a stream was established;
    /// time for which this machine is suspended does not count [default: 5 min].
    #[arg(
        help_heading = "Network",
        long,
        value_name = "TIME",
        value_parser = quantity::positive_time,
    )]
    pub patience: Option<Time>,
    /// Write events and a closing report as JSON lines to standard output.
    #[arg(help_heading = "Output", long)]
    pub json: bool,
    /// Print in one line what limits the copy, and what would help.
    #[arg(help_heading = "Output", long)]
    pub explain: bool,
    /// Show no progress; failures are still reported.
    #[arg(help_heading = "Output", short, long)]
    pub quiet: bool,
}
