//! `controller.toml`: the controllers of this machine, and how they are verified. The file is next
//! to the keys.
//!
//! ```toml
//! url = "https://control.example:7513"     # or unix:/PATH, on this machine
//! key = "lhk1:..."                         # its key; or instead:
//! authority = "/etc/ssl/site.pem"          # the authority that signed its certificate
//!
//! [[other]]                                # others that share its store, tried if it fails
//! url = "https://control2.example:7513"
//! key = "lhk1:..."
//! ```
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use longhaul_api_common::tls::TlsError;
use longhaul_config::home::display_path;
use longhaul_hop::read_trusted_file;
use longhaul_proto::text::printable;
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_session::ServerTrust;
use serde::{Deserialize, Serialize};

use crate::client::ServiceClient;
use crate::https::{Https, HttpsTrust};
use crate::url::ServiceUrl;

/// Name of the file, next to the keys.
pub const FILE_NAME: &str = "controller.toml";
/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Name of the service in messages.
pub(crate) const SERVICE: &str = "controller";
/// Maximum number of controllers that share a store.
pub const MAX_CONTROLLERS: usize = 16;
/// Maximum size of a controller's answer, in bytes; the largest are pages of route tables.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Controllers of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSettings {
    /// First controller.
    pub first: ControllerEntry,
    /// Others that share its store, used if it does not answer or does not lead.
    pub others: Vec<ControllerEntry>,
}

/// A controller, and how it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerEntry {
    /// URL of the controller.
    pub url: ServiceUrl,
    /// Method of verification. `None` for a Unix socket, where the kernel identifies the peer.
    pub known: Option<ControllerTrust>,
}

/// Method of verifying a controller on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerTrust {
    /// By its key.
    Key(PublicKey),
    /// By the authority that signed its certificate.
    Authority(PathBuf),
}

/// Error of the settings file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read or written. Check the permissions of `controller.toml`.
    #[error("{}: cannot {action} the settings of the controller: {source}", display_path(.file))]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Attempted action.
        action: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The file is malformed.
    #[error("{}: {problem}; longhaul controller use URL replaces it", display_path(.file))]
    Malformed {
        /// Path of the file.
        file: PathBuf,
        /// Description of the error.
        problem: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsText {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    other: Vec<OtherText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherText {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<PathBuf>,
}

impl From<ControllerEntry> for ControllerSettings {
    fn from(first: ControllerEntry) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }
}

impl ControllerSettings {
    /// Reads the file. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn load(file: &Path) -> Result<Option<Self>, SettingsError> {
        let unreadable = |source| SettingsError::File {
            file: file.to_owned(),
            action: "read",
            source,
        };
        match std::fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
            Ok(found) if found.len() > MAX_FILE_BYTES => {
                return Err(SettingsError::Malformed {
                    file: file.to_owned(),
                    problem: "it is too long".to_owned(),
                });
            }
            Ok(_) => {}
        }
        let text = read_trusted_file(file).map_err(unreadable)?;
        let parsed = Self::parse(&text).map_err(|problem| SettingsError::Malformed {
            file: file.to_owned(),
            problem: printable(problem.as_bytes()),
        });
        parsed.map(Some)
    }

    /// Parses the text of such a file.
    ///
    /// # Errors
    /// A description of the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: SettingsText =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if read.other.len() >= MAX_CONTROLLERS {
            return Err(format!(
                "other: at most {MAX_CONTROLLERS} controllers in all"
            ));
        }
        let others = read.other.into_iter();
        let others =
            others.map(|other| ControllerEntry::read(&other.url, other.key, other.authority));
        Ok(Self {
            first: ControllerEntry::read(&read.url, read.key, read.authority)?,
            others: others.collect::<Result<_, String>>()?,
        })
    }

    /// Returns all controllers, the first one first.
    pub fn sites(&self) -> impl Iterator<Item = &ControllerEntry> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns the settings as the text of such a file.
    #[must_use]
    pub fn text(&self) -> String {
        let (key, authority) = self.first.known_text();
        let others = self.others.iter().map(|site| {
            let (key, authority) = site.known_text();
            OtherText {
                url: site.url.to_string(),
                key,
                authority,
            }
        });
        let text = SettingsText {
            url: self.first.url.to_string(),
            key,
            authority,
            other: others.collect(),
        };
        // A few strings can always be serialized.
        toml::to_string(&text).unwrap_or_default()
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    /// [`SettingsError::File`].
    pub fn save(&self, file: &Path) -> Result<(), SettingsError> {
        replace_file(file, self.text().as_bytes()).map_err(|source| SettingsError::File {
            file: file.to_owned(),
            action: "write",
            source,
        })
    }
}

impl ControllerEntry {
    fn read(url: &str, key: Option<String>, authority: Option<PathBuf>) -> Result<Self, String> {
        let url = url
            .parse()
            .map_err(|error: crate::url::UrlError| error.to_string())?;
        let known = match (&url, key, authority) {
            (_, Some(_), Some(_)) => {
                return Err("key and authority: set only one of them".to_owned());
            }
            (ServiceUrl::Unix(_), None, None) => None,
            (ServiceUrl::Unix(_), ..) => {
                return Err("a Unix socket needs no key: remove it".to_owned());
            }
            (ServiceUrl::Https(_), Some(key), None) => {
                let key: PublicKey = key.parse().map_err(|error| format!("key: {error}"))?;
                Some(ControllerTrust::Key(key))
            }
            (ServiceUrl::Https(_), None, Some(file)) => Some(ControllerTrust::Authority(file)),
            (ServiceUrl::Https(_), None, None) => {
                return Err("key and authority are both missing: set one of them".to_owned());
            }
        };
        Ok(Self { url, known })
    }

    fn known_text(&self) -> (Option<String>, Option<PathBuf>) {
        match &self.known {
            None => (None, None),
            Some(ControllerTrust::Key(key)) => (Some(key.to_string()), None),
            Some(ControllerTrust::Authority(file)) => (None, Some(file.clone())),
        }
    }

    /// Creates a client of this controller, which signs with this key.
    ///
    /// # Errors
    /// The root certificates cannot be read.
    pub fn client(&self, key: &SigningKey) -> Result<ServiceClient, TlsError> {
        let client = match &self.url {
            ServiceUrl::Unix(path) => ServiceClient::at_socket(SERVICE, path.clone()),
            ServiceUrl::Https(server) => {
                let trust = match &self.known {
                    Some(ControllerTrust::Authority(file)) => HttpsTrust::Authority(file.clone()),
                    Some(ControllerTrust::Key(key)) => HttpsTrust::Key(ServerTrust::Pinned(*key)),
                    // Without a method of verification, no server is trusted.
                    None => HttpsTrust::Key(ServerTrust::Callback(std::sync::Arc::new(|_, _| {
                        longhaul_session::KeyVerdict::Unknown
                    }))),
                };
                let https = Https::new(SERVICE, server.clone(), trust, key.clone())?;
                ServiceClient::over_https(SERVICE, https)
            }
        };
        Ok(client.with_max_answer(MAX_ANSWER_BYTES))
    }
}

/// Replaces a file atomically: concurrent readers see the old or the new content.
///
/// # Errors
/// The file cannot be written.
pub fn replace_file(file: &Path, content: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    new.write_all(content)?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Reads a file of at most `most` bytes. Returns `None` if it is longer or cannot be read.
#[must_use]
pub fn read_bounded(file: &Path, most: u64) -> Option<Vec<u8>> {
    let len = std::fs::metadata(file).ok()?.len();
    (len <= most).then(|| std::fs::read(file).ok())?
}

#[cfg(test)]
mod tests;
