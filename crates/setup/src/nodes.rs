//! Which driver each node has, as an operator writes it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::circuit::Name;
use crate::conductor::Drivers;
use crate::driver::Driver;
use crate::program::{PROGRAM_TIME, Program};
use crate::remote::{AGENT_TIME, Remote};

/// What an agent's address begins with.
const SOCKET_SCHEME: &str = "unix:";

/// Whose circuits are set up, and by which drivers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupConfig {
    /// The name under which everything is set up; `longhaul` where none is said.
    #[serde(default)]
    pub owner: Option<Name>,
    /// How each node is asked. What leaves a node that is not named here is best effort.
    #[serde(default)]
    pub nodes: BTreeMap<Name, NodeConfig>,
}

/// How a node is asked: one of the three ways.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// An agent that listens at `unix:PATH`.
    #[serde(default)]
    pub agent: Option<String>,
    /// An agent behind the standard input and output of a command.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// A program that is started for each request.
    #[serde(default)]
    pub program: Option<Vec<String>>,
    /// How long an answer may take, in seconds; 30 where it is not said.
    #[serde(default)]
    pub time_s: Option<u64>,
}

/// What an operator wrote makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupFault {
    /// None of the three, or several.
    #[error("setup.nodes.{0}: name one of agent, command and program")]
    Ways(Name),
    /// Nothing to start.
    #[error(
        "setup.nodes.{0}: the command is empty: write the program and its arguments, as [\"ssh\", \"router\", \"longhaul\", \"router\"]"
    )]
    Empty(Name),
    /// Not such an address.
    #[error("setup.nodes.{0}: {1:?} is no agent's address: write unix:/PATH")]
    Address(Name, String),
    /// No such time.
    #[error("setup.nodes.{0}: time_s is 1 to {MAX_TIME_S}")]
    Time(Name),
}

/// The longest time that an answer may take, in seconds: less than the conductor waits.
const MAX_TIME_S: u64 = 100;

/// A driver that is to be made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Agent(PathBuf),
    Command(PathBuf, Vec<String>),
    Program(PathBuf, Vec<String>),
}

impl SetupConfig {
    /// The owner's name.
    #[must_use]
    pub fn owner(&self) -> Name {
        self.owner.clone().unwrap_or_else(Name::usual_owner)
    }

    /// Of each node its driver's name, and the drivers. Nodes that are asked in the same way have
    /// one driver: what it lists is theirs together.
    ///
    /// # Errors
    /// [`SetupFault`]: the first thing that is wrong.
    pub fn drivers(&self) -> Result<(BTreeMap<Name, Name>, Drivers), SetupFault> {
        let mut ways: BTreeMap<(Way, Duration), Name> = BTreeMap::new();
        let (mut nodes, mut drivers) = (BTreeMap::new(), Drivers::new());
        for (node, config) in &self.nodes {
            let (way, time) = config.way(node)?;
            let driver = ways
                .entry((way.clone(), time))
                .or_insert_with(|| node.clone());
            nodes.insert(node.clone(), driver.clone());
            drivers
                .entry(driver.clone())
                .or_insert_with(|| way.driver(time));
        }
        Ok((nodes, drivers))
    }
}

impl NodeConfig {
    fn way(&self, node: &Name) -> Result<(Way, Duration), SetupFault> {
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
                (Way::Agent(path.into()), AGENT_TIME)
            }
            (None, Some(command), None) => {
                let (program, arguments) = started(command)?;
                (Way::Command(program, arguments), AGENT_TIME)
            }
            (None, None, Some(program)) => {
                let (program, arguments) = started(program)?;
                (Way::Program(program, arguments), PROGRAM_TIME)
            }
            _ => return Err(SetupFault::Ways(node.clone())),
        };
        match self.time_s {
            None => Ok((way, usual)),
            Some(time @ 1..=MAX_TIME_S) => Ok((way, Duration::from_secs(time))),
            Some(_) => Err(SetupFault::Time(node.clone())),
        }
    }
}

impl Way {
    fn driver(self, time: Duration) -> Arc<dyn Driver> {
        match self {
            Self::Agent(path) => Arc::new(Remote::socket(path, time)),
            Self::Command(program, arguments) => {
                Arc::new(Remote::command(program, arguments, time))
            }
            Self::Program(program, arguments) => Arc::new(Program::new(program, arguments, time)),
        }
    }
}
