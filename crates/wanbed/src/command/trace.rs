//! `trace-drs`: a synthetic series of a measured path.

use std::process::ExitCode;

use clap::Args;
use wanbed::drs_trace;

#[derive(Debug, Args)]
pub(super) struct TraceDrs {
    /// Seed of the series
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of steps of 20 seconds
    #[arg(long, default_value_t = 180)]
    steps: usize,
}

impl TraceDrs {
    pub(super) fn act(self) -> anyhow::Result<ExitCode> {
        longhaul_output::print(&drs_trace::write(self.seed, self.steps));
        Ok(ExitCode::SUCCESS)
    }
}
