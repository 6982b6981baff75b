//! Messages between a lab's process and its clients: JSON, one line in each direction.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::scenario::{Overrides, Scenario};

/// Maximum length of a message: a report of a few hundred links.
const MAX_LINE_BYTES: u64 = 4 << 20;

/// Description of the lab to build; the first line on the new process's standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    pub(crate) scenario: Scenario,
    pub(crate) overrides: Overrides,
    pub(crate) name: String,
    pub(crate) base: PathBuf,
    /// If true, the lab ends when its standard input does, so it never outlives the program that
    /// started it.
    pub(crate) attached: bool,
}

/// Request of a client on the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub(crate) enum LabRequest {
    Describe,
    Links,
    /// Measure one direction of a link.
    Check {
        link: usize,
        forward: bool,
    },
    Down,
}

/// Every answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LabResponse<T> {
    Ok(T),
    Error(Problem),
}

/// An error of the lab's process: its message, and its kind for clients.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    kind: LabErrorKind,
    message: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LabErrorKind {
    NameTaken,
    NoNamespaces,
    Other,
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        match error {
            Error::NameTaken(name) => Problem {
                kind: LabErrorKind::NameTaken,
                message: name.clone(),
            },
            Error::NoNamespaces(reason) => Problem {
                kind: LabErrorKind::NoNamespaces,
                message: reason.clone(),
            },
            other => Problem {
                kind: LabErrorKind::Other,
                message: other.to_string(),
            },
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        match problem.kind {
            LabErrorKind::NameTaken => Error::NameTaken(problem.message),
            LabErrorKind::NoNamespaces => Error::NoNamespaces(problem.message),
            LabErrorKind::Other => Error::Refused(problem.message),
        }
    }
}

/// A lab as its clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LabDescription {
    pub(crate) lab: String,
    pub(crate) process: u32,
    pub(crate) scenario: String,
    pub(crate) title: String,
    pub(crate) seed: u64,
    pub(crate) backend: String,
    pub(crate) nodes: Vec<NodeDescription>,
    /// Name and the two ends of each link.
    pub(crate) links: Vec<(String, String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeDescription {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// Number of the thread whose namespaces are the node's.
    pub(crate) thread: i32,
}

/// Writes one line.
pub(crate) fn write_line<T: Serialize>(to: &mut impl Write, message: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(std::io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one line. The error is a message.
pub(crate) fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T, String> {
    let mut line = Vec::new();
    let read = from
        .by_ref()
        .take(MAX_LINE_BYTES)
        .read_until(b'\n', &mut line)
        .map_err(|error| error.to_string())?;
    match read {
        0 => Err("it ended without an answer".to_owned()),
        _ => serde_json::from_slice(&line)
            .map_err(|error| format!("its message is not understood ({error})")),
    }
}

/// Sends a request to the lab behind `socket`. The error is a message.
pub(crate) fn request<T: DeserializeOwned>(
    socket: &Path,
    question: LabRequest,
) -> Result<LabResponse<T>, String> {
    let mut stream = UnixStream::connect(socket).map_err(|error| error.to_string())?;
    write_line(&mut stream, &question).map_err(|error| error.to_string())?;
    read_line(&mut BufReader::new(stream))
}
