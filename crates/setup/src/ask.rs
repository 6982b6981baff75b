//! What drivers are asked and what they answer: one JSON object each, in one line.
//! `docs/circuits.md` shows them.

#[cfg(test)]
mod tests;

use longhaul_circuits::time::Rate;
use serde::{Deserialize, Serialize};

use crate::circuit::{CircuitFault, Name, Part, PartId};

/// The version of this language.
pub const VERSION: u32 = 1;

/// Most bytes of a request's line.
pub const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Most bytes of a reply's line: some ten thousand parts.
pub const MAX_REPLY_BYTES: usize = 8 << 20;

/// Most bytes of an error's text.
pub const MAX_WHY_BYTES: usize = 300;

/// What a driver is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// To see to it that this part is there as it is described. One with its owner and id that is
    /// there otherwise becomes it; one that is there so stays. What can't be set up whole is taken
    /// back.
    SetUp {
        /// The part.
        part: Part,
    },
    /// To see to it that this part is not there. That it wasn't is no error.
    TearDown {
        /// Whose it is.
        owner: Name,
        /// Which.
        id: PartId,
    },
    /// What is there of an owner; what is there of others may be reported with it.
    List {
        /// The owner.
        owner: Name,
    },
    /// What went through a part.
    Counters {
        /// Whose it is.
        owner: Name,
        /// Which.
        id: PartId,
    },
}

/// A request with the version of its language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Envelope {
    version: u32,
    #[serde(flatten)]
    request: Request,
}

/// What a driver answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Reply {
    /// It is so.
    Done,
    /// What is there.
    Parts {
        /// All of it.
        parts: Vec<Found>,
    },
    /// What went through.
    Counters(Counters),
    /// It is not so.
    Error(DriverError),
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Whose it is.
    pub owner: Name,
    /// Which.
    pub id: PartId,
    /// As it was asked for, where the driver knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Whether all of it is there.
    pub whole: bool,
}

/// What went through a part since it was set up, or since a later start of the driver's counting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes that were sent on, as the driver counts them: with IP's headers, and those of the link
    /// where it has some.
    pub bytes: u64,
    /// Packets that were sent on.
    pub packets: u64,
    /// Packets that were not, because there were more than the rate allows.
    pub drops: u64,
}

/// Why something isn't so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DriverError {
    /// It never will be: asking again is in vain.
    #[error("refused: {why}")]
    Refused {
        /// What, where, and what to do.
        why: String,
    },
    /// There is no room now; there may be later.
    #[error("no room: {why}")]
    NoRoom {
        /// What, where, and what to do.
        why: String,
    },
    /// There is no such part.
    #[error("no such part: {why}")]
    Missing {
        /// Which.
        why: String,
    },
    /// It failed, or nobody answered: some of it may be there.
    #[error("failed: {why}")]
    Failed {
        /// What, where, and what to do.
        why: String,
    },
    /// What was said makes no sense: some of it may be there.
    #[error("not understood: {why}")]
    Nonsense {
        /// What, where, and what to do.
        why: String,
    },
}

impl DriverError {
    /// [`DriverError::Refused`], with a text of anybody's.
    pub fn refused(why: impl AsRef<str>) -> Self {
        Self::Refused {
            why: one_line(why.as_ref()),
        }
    }

    /// [`DriverError::NoRoom`] on a link.
    #[must_use]
    pub fn no_room(link: &Name, asked: Rate, left: Rate) -> Self {
        Self::NoRoom {
            why: one_line(&format!(
                "link {link} has {left} bit/s left for circuits, and {asked} bit/s are asked for: wait until another ends"
            )),
        }
    }

    /// [`DriverError::Missing`].
    #[must_use]
    pub fn missing(id: &PartId) -> Self {
        Self::Missing {
            why: one_line(&format!("{id} is not set up here")),
        }
    }

    /// [`DriverError::Failed`], with a text of anybody's.
    pub fn failed(why: impl AsRef<str>) -> Self {
        Self::Failed {
            why: one_line(why.as_ref()),
        }
    }

    /// [`DriverError::Nonsense`], with a text of anybody's.
    pub fn nonsense(why: impl AsRef<str>) -> Self {
        Self::Nonsense {
            why: one_line(why.as_ref()),
        }
    }

    /// The same with a text in one line of bounded length, whoever wrote it.
    fn tidied(self) -> Self {
        match self {
            Self::Refused { why } => Self::refused(why),
            Self::NoRoom { why } => Self::NoRoom {
                why: one_line(&why),
            },
            Self::Missing { why } => Self::Missing {
                why: one_line(&why),
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

/// A text for people, of whoever's: in one line, without what terminals take for commands, and of
/// bounded length.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        for (at, c) in word.chars().enumerate() {
            let blank = usize::from(at == 0 && !line.is_empty());
            if line.len() + blank + c.len_utf8() > MAX_WHY_BYTES {
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

/// A request as its line, with its end.
///
/// # Errors
/// [`DriverError::Refused`]: it is longer than any driver reads.
pub fn request_line(request: &Request) -> Result<Vec<u8>, DriverError> {
    let envelope = Envelope {
        version: VERSION,
        request: request.clone(),
    };
    line_of(&envelope, MAX_REQUEST_BYTES)
}

/// A reply as its line, with its end. One that is too long becomes an error of its own.
#[must_use]
pub fn reply_line(reply: &Reply) -> Vec<u8> {
    line_of(reply, MAX_REPLY_BYTES).unwrap_or_else(|error| {
        // An error's text is bounded, and so is its line.
        line_of(&Reply::Error(error), MAX_REPLY_BYTES).unwrap_or_default()
    })
}

fn line_of(value: &impl Serialize, most: usize) -> Result<Vec<u8>, DriverError> {
    let mut line =
        serde_json::to_vec(value).map_err(|error| DriverError::refused(error.to_string()))?;
    line.push(b'\n');
    if line.len() > most {
        return Err(DriverError::refused(format!(
            "it takes {} bytes to say, and at most {most} are read: ask for less at once",
            line.len()
        )));
    }
    Ok(line)
}

/// Reads a request.
///
/// # Errors
/// [`DriverError::Nonsense`]: it is none, or of another version; [`DriverError::Refused`]: its part can't be.
pub fn read_request(line: &[u8]) -> Result<Request, DriverError> {
    let no = |why: String| DriverError::nonsense(format!("the request is not understood: {why}"));
    if line.len() > MAX_REQUEST_BYTES {
        return Err(no(format!(
            "{} bytes, and at most {MAX_REQUEST_BYTES} are read",
            line.len()
        )));
    }
    let value: serde_json::Value =
        serde_json::from_slice(line).map_err(|error| no(error.to_string()))?;
    // Before anything else, for another version may have other requests.
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(no(format!(
                "it is of version {version}, and {VERSION} is spoken here: update one of the two"
            )));
        }
        None => return Err(no("it has no version".to_owned())),
    }
    let envelope: Envelope =
        serde_json::from_value(value).map_err(|error| no(error.to_string()))?;
    if let Request::SetUp { part } = &envelope.request {
        part.check()?;
    }
    Ok(envelope.request)
}

/// Reads a reply. Texts in it are for people as they come out.
///
/// # Errors
/// [`DriverError::Nonsense`]: it is none.
pub fn read_reply(line: &[u8]) -> Result<Reply, DriverError> {
    let no = |why: String| DriverError::nonsense(format!("the answer is not understood: {why}"));
    if line.len() > MAX_REPLY_BYTES {
        return Err(no(format!(
            "{} bytes, and at most {MAX_REPLY_BYTES} are read",
            line.len()
        )));
    }
    match serde_json::from_slice(line) {
        Ok(Reply::Error(error)) => Ok(Reply::Error(error.tidied())),
        Ok(reply) => Ok(reply),
        Err(error) => Err(no(error.to_string())),
    }
}
