//! The controller that this user runs: its directory, and a client over its Unix socket.

use std::path::PathBuf;

use anyhow::{Context, Result};
use longhaul_control_client::{ClientError, ServiceClient};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent_client::{run_in_runtime, socket};
use crate::home;

/// Name of the controller in messages.
pub const SERVICE: &str = "controller";
/// Maximum bytes of an answer, such as a map with all its links.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Reasons why there is no controller to ask.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The controller does not run, as its socket does not answer. Start it with
    /// `longhaul control`.
    #[error("no controller runs here ({}): start it with longhaul control", .0.display())]
    NotRunning(PathBuf),
}

/// Client of this user's controller.
pub struct ControlClient {
    client: ServiceClient,
}

impl ControlClient {
    /// Creates a client of the controller on this machine.
    pub fn local() -> Result<Self> {
        let client = ServiceClient::at_socket(SERVICE, socket(&control_dir()?));
        Ok(Self {
            client: client.with_max_answer(MAX_ANSWER_BYTES),
        })
    }

    /// Sends a request, and parses the answer.
    pub fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        run_in_runtime(async {
            let answer = self.client.ask(method, path, body, None).await;
            answer.map_err(|error| match error {
                ClientError::NoSocket { path, .. } => ControlError::NotRunning(path).into(),
                error => anyhow::Error::from(error),
            })
        })
    }
}

/// Body of a request without one.
pub const NO_BODY: Option<&()> = None;

/// Returns the directory of the controller's own files.
pub fn control_dir() -> Result<PathBuf> {
    let state = home::state_dir().context(
        "neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: set LONGHAUL_STATE to the \
         directory for the controller's state",
    )?;
    Ok(state.join("control"))
}
