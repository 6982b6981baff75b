//! Logs of the long-running commands, on standard error.

use tracing_subscriber::EnvFilter;

/// Starts logging; `RUST_LOG` overrides `default`.
pub fn start(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let started = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).try_init();
    // Only fails when logging has been started before.
    drop(started);
}
