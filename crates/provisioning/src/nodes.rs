//! The operator's configuration of a driver for each node.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::circuit::EntityName;
use crate::conductor::Drivers;
use crate::driver::Driver;
use crate::program::{DEFAULT_PROGRAM_TIMEOUT, ProgramDriver};
use crate::remote::{DEFAULT_AGENT_TIMEOUT, RemoteDriver};

/// Prefix of an agent's address.
const SOCKET_SCHEME: &str = "unix:";

/// Owner of the circuits, and the drivers that set them up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupConfig {
    /// Name under which everything is set up; `longhaul` if `None`.
    #[serde(default)]
    pub owner: Option<EntityName>,
    /// Access to each node. Traffic that leaves a node not named here is best effort.
    #[serde(default)]
    pub nodes: BTreeMap<EntityName, NodeConfig>,
}

/// Access to a node by exactly one of agent, command and program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Address of an agent's socket, as `unix:PATH`.
    #[serde(default)]
    pub agent: Option<String>,
    /// Command whose standard input and output lead to an agent.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Program that is run once for each request.
    #[serde(default)]
    pub program: Option<Vec<String>>,
    /// Time limit of an answer in seconds; 30 if `None`.
    #[serde(default)]
    pub time_s: Option<u64>,
}

/// Fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupFault {
    /// The access is missing or ambiguous: name one of agent, command and program.
    #[error("setup.nodes.{0}: name one of agent, command and program")]
    NotExactlyOne(EntityName),
    /// The command is empty: write the program and its arguments.
    #[error(
        "setup.nodes.{0}: the command is empty: write the program and its arguments, as \
        [\"ssh\", \"router\", \"longhaul\", \"router\"]"
    )]
    Empty(EntityName),
    /// The agent's address is malformed: write `unix:/PATH`.
    #[error("setup.nodes.{0}: {1:?} is not the address of an agent: write unix:/PATH")]
    Address(EntityName, String),
    /// The time limit is out of range: choose a shorter one, of at least 1 s.
    #[error("setup.nodes.{0}: time_s must be 1 to {MAX_TIME_S}")]
    Time(EntityName),
}

/// Maximum time limit of an answer, in seconds. It is less than the conductor waits.
const MAX_TIME_S: u64 = 100;

/// Specification of a driver.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DriverSpec {
    Agent(PathBuf),
    Command(PathBuf, Vec<String>),
    Program(PathBuf, Vec<String>),
}

impl SetupConfig {
    /// Returns the name of the owner.
    #[must_use]
    pub fn owner(&self) -> EntityName {
        self.owner.clone().unwrap_or_else(EntityName::default_owner)
    }

    /// Returns the driver's name of each node, and the drivers. Nodes with the same access share
    /// one driver, which lists the parts of all of them.
    ///
    /// # Errors
    /// [`SetupFault`] names the first fault.
    pub fn drivers(&self) -> Result<(BTreeMap<EntityName, EntityName>, Drivers), SetupFault> {
        let mut ways: BTreeMap<(DriverSpec, Duration), EntityName> = BTreeMap::new();
        let (mut nodes, mut drivers) = (BTreeMap::new(), Drivers::new());
        for (node, config) in &self.nodes {
            let (way, time) = config.driver_spec(node)?;
            let driver = ways
                .entry((way.clone(), time))
                .or_insert_with(|| node.clone());
            nodes.insert(node.clone(), driver.clone());
            drivers
                .entry(driver.clone())
                .or_insert_with(|| way.create_driver(time));
        }
        Ok((nodes, drivers))
    }
}

impl NodeConfig {
    fn driver_spec(&self, node: &EntityName) -> Result<(DriverSpec, Duration), SetupFault> {
        let started = |words: &[String]| match words.split_first() {
            Some((program, arguments)) if !program.is_empty() => {
                Ok((PathBuf::from(program), arguments.to_vec()))
            }
            _ => Err(SetupFault::Empty(node.clone())),
        };
        let (way, usual) = match (&self.agent, &self.command, &self.program) {
            (Some(agent), None, None) => {
                let path = agent
                    .strip_prefix(SOCKET_SCHEME)
                    .filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| SetupFault::Address(node.clone(), agent.clone()))?;
                (DriverSpec::Agent(path.into()), DEFAULT_AGENT_TIMEOUT)
            }
            (None, Some(command), None) => {
                let (program, arguments) = started(command)?;
                (
                    DriverSpec::Command(program, arguments),
                    DEFAULT_AGENT_TIMEOUT,
                )
            }
            (None, None, Some(program)) => {
                let (program, arguments) = started(program)?;
                (
                    DriverSpec::Program(program, arguments),
                    DEFAULT_PROGRAM_TIMEOUT,
                )
            }
            _ => return Err(SetupFault::NotExactlyOne(node.clone())),
        };
        match self.time_s {
            None => Ok((way, usual)),
            Some(time @ 1..=MAX_TIME_S) => Ok((way, Duration::from_secs(time))),
            Some(_) => Err(SetupFault::Time(node.clone())),
        }
    }
}

impl DriverSpec {
    fn create_driver(self, time: Duration) -> Arc<dyn Driver> {
        match self {
            Self::Agent(path) => Arc::new(RemoteDriver::socket(path, time)),
            Self::Command(program, arguments) => {
                Arc::new(RemoteDriver::command(program, arguments, time))
            }
            Self::Program(program, arguments) => {
                Arc::new(ProgramDriver::new(program, arguments, time))
            }
        }
    }
}
