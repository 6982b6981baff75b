//! The crate's errors. Each message is one line: what failed, where, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Errors of a lab, from reading its scenario to taking it down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scenario is invalid; the message names file, line and field.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),

    /// A scenario or trace file could not be read.
    #[error("{path}: {source}: check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },

    /// No network namespace can be made: the user is not root, and user namespaces are not
    /// available.
    #[error(
        "this user may not make network namespaces ({0}): run as root, or allow user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    NoNamespaces(String),

    /// A program the lab calls is not installed.
    #[error(
        "`{program}` is not installed: install the package {package} (Debian, Ubuntu, Fedora name)"
    )]
    Missing {
        /// Name of the program, as looked up in PATH.
        program: &'static str,
        /// Package that contains it.
        package: &'static str,
    },

    /// `ip` refused a line of the setup.
    #[error("{program} refused `{line}` in node {node}: {answer}")]
    SetUp {
        /// Name of the program.
        program: &'static str,
        /// Node in whose namespace it ran.
        node: String,
        /// The refused line.
        line: String,
        /// Output of the program.
        answer: String,
    },

    /// A sysctl of a node could not be set.
    #[error(
        "node {node}: sysctl {key} = {value:?}: {source}: see docs/wanbed.md for what may be set \
         in a namespace"
    )]
    Sysctl {
        /// The node.
        node: String,
        /// The sysctl's dotted name.
        key: String,
        /// Requested value.
        value: String,
        /// Error of the kernel.
        source: io::Error,
    },

    /// The kernel has no such congestion control.
    #[error(
        "node {node}: congestion control {name:?} is not in this kernel (it has {available}): \
         load its module, or choose another"
    )]
    Congestion {
        /// The node.
        node: String,
        /// Requested congestion control.
        name: String,
        /// Available congestion controls.
        available: String,
    },

    /// The requested backend is not available on this machine.
    #[error("backend {backend} is not available here: {reason}")]
    Backend {
        /// `tun` or `packet`.
        backend: &'static str,
        /// Missing prerequisite.
        reason: String,
    },

    /// The link engine could not start or failed.
    #[error("link {link}: {reason}")]
    Link {
        /// The link.
        link: String,
        /// Message of the engine.
        reason: String,
    },

    /// A lab of this name is up already.
    #[error(
        "a lab named {0:?} is up already: take it down with `wanbed down --name {0}`, or choose \
         another --name"
    )]
    NameTaken(String),

    /// The name cannot be that of a directory.
    #[error("{0:?} is not a name for a lab: use letters, digits, '-', '_' and '.', at most 64")]
    BadName(String),

    /// There is no running lab of this name.
    #[error("no lab named {name:?} is up{others}: start one with `wanbed up`, or give --name")]
    NoLab {
        /// Requested name.
        name: String,
        /// Clause that lists the running labs.
        others: String,
    },

    /// The lab has no such node.
    #[error("lab {lab} has no node {node:?}: its nodes are {nodes}")]
    NoNode {
        /// The lab.
        lab: String,
        /// Requested node.
        node: String,
        /// Existing nodes.
        nodes: String,
    },

    /// The lab's scenario has no IPv6.
    #[error("lab {0} has no IPv6 addresses: set ipv6 = true in its scenario, or --set ipv6=true")]
    NoIpv6(String),

    /// The `wanbed` program, which the library starts for each lab, was not found.
    #[error(
        "the wanbed program was not found {0}: build it with `cargo build -p wanbed`, or name it \
         in WANBED_BIN"
    )]
    NoProgram(String),

    /// The lab's process ended, or gave an invalid answer.
    #[error(
        "lab {lab} does not answer ({problem}): it has ended or is ending; start it again with \
         `wanbed up`"
    )]
    Daemon {
        /// The lab.
        lab: String,
        /// Description of the problem.
        problem: String,
    },

    /// The lab's process refused; this is its complete message.
    #[error("{0}")]
    Refused(String),

    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The failed operation, with the object's name.
        doing: String,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A mistake in a scenario or trace file, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}{problem}",
    if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct ScenarioError {
    /// `file:line`, or the `--set` that brought the value.
    pub place: String,
    /// The field's dotted path, as in `--set`; empty if the file is not TOML at all.
    pub field: String,
    /// The mistake, and its correction.
    pub problem: String,
}

/// Adds the failed operation to an I/O error.
pub(crate) trait WhileDoing<T> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> WhileDoing<T> for std::result::Result<T, E> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::System {
            doing: what(),
            source: error.into(),
        })
    }
}
