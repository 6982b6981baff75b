//! Requests to drivers and their replies: one JSON object per line. `docs/circuits.md` shows them.

#[cfg(test)]
mod tests;

use longhaul_circuits::time::BitsPerSecond;
use serde::{Deserialize, Serialize};

use crate::circuit::{CircuitFault, CircuitPart, EntityName, PartId};

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum length of a request line, in bytes.
pub const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Maximum length of a reply line, in bytes: some ten thousand parts.
pub const MAX_REPLY_BYTES: usize = 8 << 20;

/// Maximum length of an error text, in bytes.
pub const MAX_ERROR_TEXT_BYTES: usize = 300;

/// Request to a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum DriverRequest {
    /// Ensures that this part is set up as described.
    ///
    /// A part with this owner and id that differs is changed; one that is as described stays. If it
    /// cannot be set up completely, it is rolled back.
    SetUp {
        /// The part.
        part: CircuitPart,
    },
    /// Ensures that this part is not set up. It is not an error if it never was.
    TearDown {
        /// Owner of the part.
        owner: EntityName,
        /// Id of the part.
        id: PartId,
    },
    /// Lists the parts of an owner. The reply may include those of other owners.
    List {
        /// The owner.
        owner: EntityName,
    },
    /// Reads the traffic counters of a part.
    Counters {
        /// Owner of the part.
        owner: EntityName,
        /// Id of the part.
        id: PartId,
    },
}

/// A request with the protocol version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Envelope {
    version: u32,
    #[serde(flatten)]
    request: DriverRequest,
}

/// Reply of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum DriverReply {
    /// The request is fulfilled.
    Done,
    /// The parts that are set up.
    Parts {
        /// All of them.
        parts: Vec<ListedPart>,
    },
    /// Traffic counters of a part.
    Counters(Counters),
    /// The request failed.
    Error(DriverError),
}

/// A part that is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPart {
    /// Owner of the part.
    pub owner: EntityName,
    /// Id of the part.
    pub id: PartId,
    /// The part as it was requested, if the driver knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<CircuitPart>,
    /// If true, the part is complete.
    pub whole: bool,
}

/// Traffic through a part since it was set up, or since the driver later began to count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Forwarded bytes as the driver counts them: with IP headers, and with link headers if there
    /// are any.
    pub bytes: u64,
    /// Forwarded packets.
    pub packets: u64,
    /// Packets that exceeded the rate and were dropped.
    pub drops: u64,
}

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DriverError {
    /// The request can never succeed; a retry is useless. The node says why.
    #[error("refused: {why}")]
    Refused {
        /// Problem, location and remedy.
        why: String,
    },
    /// Bandwidth is short at present; a retry may succeed later. The controller asks again for a
    /// minute.
    #[error("no room: {why}")]
    NoRoom {
        /// Problem, location and remedy.
        why: String,
    },
    /// The part does not exist. The controller sets it up again.
    #[error("unknown circuit: {why}")]
    Missing {
        /// Id of the part.
        why: String,
    },
    /// The request failed, or the driver did not answer. The part may be partly set up. The
    /// controller asks again.
    #[error("failed: {why}")]
    Failed {
        /// Problem, location and remedy.
        why: String,
    },
    /// The request or the answer could not be parsed. The part may be partly set up. Update the
    /// agent or the program at the node.
    #[error("not understood: {why}")]
    Nonsense {
        /// Problem, location and remedy.
        why: String,
    },
}

impl DriverError {
    /// Creates [`DriverError::Refused`] from an arbitrary text.
    pub fn refused(why: impl AsRef<str>) -> Self {
        Self::Refused {
            why: sanitize_line(why.as_ref()),
        }
    }

    /// Creates [`DriverError::NoRoom`] for a link.
    #[must_use]
    pub fn no_room(link: &EntityName, asked: BitsPerSecond, left: BitsPerSecond) -> Self {
        Self::NoRoom {
            why: sanitize_line(&format!(
                "link {link} has {left} bit/s free for circuits, and {asked} bit/s are requested: \
                 wait until another circuit ends"
            )),
        }
    }

    /// Creates [`DriverError::Missing`].
    #[must_use]
    pub fn missing(id: &PartId) -> Self {
        Self::Missing {
            why: sanitize_line(&format!("{id} is not set up here")),
        }
    }

    /// Creates [`DriverError::Failed`] from an arbitrary text.
    pub fn failed(why: impl AsRef<str>) -> Self {
        Self::Failed {
            why: sanitize_line(why.as_ref()),
        }
    }

    /// Creates [`DriverError::Nonsense`] from an arbitrary text.
    pub fn nonsense(why: impl AsRef<str>) -> Self {
        Self::Nonsense {
            why: sanitize_line(why.as_ref()),
        }
    }

    /// Sanitizes the text: one line of bounded length.
    fn sanitized(self) -> Self {
        match self {
            Self::Refused { why } => Self::refused(why),
            Self::NoRoom { why } => Self::NoRoom {
                why: sanitize_line(&why),
            },
            Self::Missing { why } => Self::Missing {
                why: sanitize_line(&why),
            },
            Self::Failed { why } => Self::failed(why),
            Self::Nonsense { why } => Self::nonsense(why),
        }
    }
}

impl From<CircuitFault> for DriverError {
    fn from(fault: CircuitFault) -> Self {
        Self::refused(fault.to_string())
    }
}

/// Sanitizes an arbitrary text for display: one line of bounded length, without control characters.
pub(crate) fn sanitize_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        for (at, c) in word.chars().enumerate() {
            let blank = usize::from(at == 0 && !line.is_empty());
            if line.len() + blank + c.len_utf8() > MAX_ERROR_TEXT_BYTES {
                return line;
            }
            if blank == 1 {
                line.push(' ');
            }
            line.push(c);
        }
    }
    line
}

/// Encodes a request as a line, with its newline.
///
/// # Errors
/// [`DriverError::Refused`] if the line is longer than drivers read.
pub fn encode_request(request: &DriverRequest) -> Result<Vec<u8>, DriverError> {
    let envelope = Envelope {
        version: PROTOCOL_VERSION,
        request: request.clone(),
    };
    encode_line(&envelope, MAX_REQUEST_BYTES)
}

/// Encodes a reply as a line, with its newline. A reply that is too long becomes an error.
#[must_use]
pub fn encode_reply(reply: &DriverReply) -> Vec<u8> {
    encode_line(reply, MAX_REPLY_BYTES).unwrap_or_else(|error| {
        // The text of an error is bounded, and so is its line.
        encode_line(&DriverReply::Error(error), MAX_REPLY_BYTES).unwrap_or_default()
    })
}

fn encode_line(value: &impl Serialize, most: usize) -> Result<Vec<u8>, DriverError> {
    let mut line =
        serde_json::to_vec(value).map_err(|error| DriverError::refused(error.to_string()))?;
    line.push(b'\n');
    if line.len() > most {
        return Err(DriverError::refused(format!(
            "it has {} bytes, and at most {most} are accepted: ask for less at once",
            line.len()
        )));
    }
    Ok(line)
}

/// Parses a request.
///
/// # Errors
/// [`DriverError::Nonsense`] if it is malformed or of another version; [`DriverError::Refused`] if
/// its part is invalid.
pub fn read_request(line: &[u8]) -> Result<DriverRequest, DriverError> {
    let no = |why: String| DriverError::nonsense(format!("the request is not understood: {why}"));
    if line.len() > MAX_REQUEST_BYTES {
        return Err(no(format!(
            "{} bytes, and at most {MAX_REQUEST_BYTES} are accepted",
            line.len()
        )));
    }
    let value: serde_json::Value =
        serde_json::from_slice(line).map_err(|error| no(error.to_string()))?;
    // Checked first, because another version may have other requests.
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(PROTOCOL_VERSION) => {}
        Some(version) => {
            return Err(no(format!(
                "it has version {version}, and this side speaks version {PROTOCOL_VERSION}: update \
                 one of the two"
            )));
        }
        None => return Err(no("it has no version".to_owned())),
    }
    let envelope: Envelope =
        serde_json::from_value(value).map_err(|error| no(error.to_string()))?;
    if let DriverRequest::SetUp { part } = &envelope.request {
        part.check()?;
    }
    Ok(envelope.request)
}

/// Parses a reply. Error texts in it are sanitized for display.
///
/// # Errors
/// [`DriverError::Nonsense`] if it is malformed.
pub fn read_reply(line: &[u8]) -> Result<DriverReply, DriverError> {
    let no = |why: String| DriverError::nonsense(format!("the answer is not understood: {why}"));
    if line.len() > MAX_REPLY_BYTES {
        return Err(no(format!(
            "{} bytes, and at most {MAX_REPLY_BYTES} are accepted",
            line.len()
        )));
    }
    match serde_json::from_slice(line) {
        Ok(DriverReply::Error(error)) => Ok(DriverReply::Error(error.sanitized())),
        Ok(reply) => Ok(reply),
        Err(error) => Err(no(error.to_string())),
    }
}
