//! The crate's errors. Each message is one line: what failed, where, and what to do about it.

use std::io;
use std::path::PathBuf;

/// What can go wrong with a lab, from reading its scenario to taking it down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scenario says something that cannot be; the place names file, line and field.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),

    /// A scenario or trace file could not be read.
    #[error("{path}: {source}: check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why reading failed.
        source: io::Error,
    },

    /// Neither root nor user namespaces: no network namespace can be made.
    #[error(
        "this user may not make network namespaces ({0}): run as root, or allow user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )]
    NoNamespaces(String),

    /// A program the lab calls is not installed.
    #[error(
        "`{program}` is not installed: install the package {package} (Debian, Ubuntu, Fedora name)"
    )]
    Missing {
        /// The program looked for in PATH.
        program: &'static str,
        /// The package that brings it.
        package: &'static str,
    },

    /// `ip` refused a line of set-up.
    #[error("{program} refused `{line}` in node {node}: {answer}")]
    SetUp {
        /// `ip`.
        program: &'static str,
        /// The node whose namespace it ran in.
        node: String,
        /// The refused line.
        line: String,
        /// What the program said.
        answer: String,
    },

    /// A sysctl of a node could not be set.
    #[error(
        "node {node}: sysctl {key} = {value:?}: {source}: see docs/wanbed.md for what may be set in a namespace"
    )]
    Sysctl {
        /// The node.
        node: String,
        /// The sysctl's dotted name.
        key: String,
        /// The value asked.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },

    /// The kernel has no such congestion control.
    #[error(
        "node {node}: congestion control {name:?} is not in this kernel (it has {available}): load its module, or choose another"
    )]
    Congestion {
        /// The node.
        node: String,
        /// What was asked.
        name: String,
        /// What there is.
        available: String,
    },

    /// The backend asked for is not to be had on this machine.
    #[error("backend {backend} is not available here: {reason}")]
    Backend {
        /// `tun` or `packet`.
        backend: &'static str,
        /// What is missing.
        reason: String,
    },

    /// The link engine could not start or failed.
    #[error("link {link}: {reason}")]
    Link {
        /// The link.
        link: String,
        /// What the engine said.
        reason: String,
    },

    /// A lab of this name is up already.
    #[error(
        "a lab named {0:?} is up already: take it down with `wanbed down --name {0}`, or choose another --name"
    )]
    NameTaken(String),

    /// The name cannot be a directory's.
    #[error("{0:?} cannot name a lab: use letters, digits, '-', '_' and '.', at most 64")]
    BadName(String),

    /// No lab of this name is up.
    #[error("no lab named {name:?} is up{others}: start one with `wanbed up`, or give --name")]
    NoLab {
        /// The name asked for.
        name: String,
        /// Which labs are up instead, as a clause.
        others: String,
    },

    /// The lab has no such node.
    #[error("lab {lab} has no node {node:?}: its nodes are {nodes}")]
    NoNode {
        /// The lab.
        lab: String,
        /// The node asked for.
        node: String,
        /// What there is.
        nodes: String,
    },

    /// The `wanbed` program, which the library starts for each lab, was not found.
    #[error(
        "the wanbed program was not found {0}: build it with `cargo build -p wanbed`, or name it in WANBED_BIN"
    )]
    NoProgram(String),

    /// The lab's process ended or answered nonsense.
    #[error(
        "lab {lab} does not answer ({problem}): it is gone or going; start it anew with `wanbed up`"
    )]
    Daemon {
        /// The lab.
        lab: String,
        /// What happened.
        problem: String,
    },

    /// The lab's process refused; the message is its own, complete.
    #[error("{0}")]
    Refused(String),

    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, with the object's name.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A mistake in a scenario or trace file, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}{problem}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct ScenarioError {
    /// `file:line`, or the `--set` that brought the value.
    pub place: String,
    /// The field's dotted path, as `--set` would name it; empty when the file is no TOML at all.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// Puts what was being done beside an I/O error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::System {
            doing: what(),
            source: error.into(),
        })
    }
}
