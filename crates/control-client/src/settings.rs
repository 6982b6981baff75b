//! `controller.toml`: which controller this machine asks, and how it is known. It lies beside the
//! keys.
//!
//! ```toml
//! url = "https://control.example:7513"     # or unix:/PATH, on this machine
//! key = "lhk1:..."                         # its key; or, in place of that:
//! authority = "/etc/ssl/site.pem"          # the authority that signed its certificate
//!
//! [[other]]                                # as many as there are that share its store; asked when it does not answer, or does not lead
//! url = "https://control2.example:7513"
//! key = "lhk1:..."
//! ```
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use longhaul_api::tls::TlsError;
use longhaul_config::home::shown;
use longhaul_hop::read_trusted_file;
use longhaul_proto::text::printable;
use longhaul_proto::{PublicKey, SigningKey};
use longhaul_session::ServerTrust;
use serde::{Deserialize, Serialize};

use crate::client::ServiceClient;
use crate::https::{Https, Trust};
use crate::url::ServiceUrl;

/// The file's name, beside the keys.
pub const FILE: &str = "controller.toml";
/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// What the service is called in messages.
pub(crate) const SERVICE: &str = "controller";
/// Most controllers that share a store.
pub const MAX_CONTROLLERS: usize = 16;
/// Most bytes of an answer of a controller: a page of a table of routes, above all.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Which controller is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The first.
    pub first: Site,
    /// Others that share its store: one of them is asked when it does not answer, or does not lead.
    pub others: Vec<Site>,
}

/// A controller, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Where it answers.
    pub url: ServiceUrl,
    /// How it is known; at a Unix socket the system says who is there.
    pub known: Option<KnownBy>,
}

/// How a controller on another machine is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownBy {
    /// By its key.
    Key(PublicKey),
    /// By the authority that signed its certificate.
    Authority(PathBuf),
}

/// Why the file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read or written.
    #[error("{}: cannot {action} which controller is asked: {source}", shown(.file))]
    File {
        /// The file.
        file: PathBuf,
        /// What was done.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It does not say what it must.
    #[error("{}: {problem}; longhaul controller use URL writes it anew", shown(.file))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    other: Vec<TextOfOther>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextOfOther {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<PathBuf>,
}

impl From<Site> for Settings {
    fn from(first: Site) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the file; none if it is not there.
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
            Ok(found) if found.len() > MAX_BYTES => {
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

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Text = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if read.other.len() >= MAX_CONTROLLERS {
            return Err(format!(
                "other: at most {MAX_CONTROLLERS} controllers in all"
            ));
        }
        let others = read.other.into_iter();
        let others = others.map(|other| Site::read(&other.url, other.key, other.authority));
        Ok(Self {
            first: Site::read(&read.url, read.key, read.authority)?,
            others: others.collect::<Result<_, String>>()?,
        })
    }

    /// All of them, the first one first.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The text of such a file.
    #[must_use]
    pub fn text(&self) -> String {
        let (key, authority) = self.first.known_text();
        let others = self.others.iter().map(|site| {
            let (key, authority) = site.known_text();
            TextOfOther {
                url: site.url.to_string(),
                key,
                authority,
            }
        });
        let text = Text {
            url: self.first.url.to_string(),
            key,
            authority,
            other: others.collect(),
        };
        // A few strings can always be written.
        toml::to_string(&text).unwrap_or_default()
    }

    /// Writes the file, at one stroke.
    ///
    /// # Errors
    /// [`SettingsError::File`].
    pub fn save(&self, file: &Path) -> Result<(), SettingsError> {
        replace(file, self.text().as_bytes()).map_err(|source| SettingsError::File {
            file: file.to_owned(),
            action: "write",
            source,
        })
    }
}

impl Site {
    fn read(url: &str, key: Option<String>, authority: Option<PathBuf>) -> Result<Self, String> {
        let url = url
            .parse()
            .map_err(|error: crate::url::UrlError| error.to_string())?;
        let known = match (&url, key, authority) {
            (_, Some(_), Some(_)) => return Err("key and authority: leave one out".to_owned()),
            (ServiceUrl::Unix(_), None, None) => None,
            (ServiceUrl::Unix(_), ..) => {
                return Err("a Unix socket needs no key: leave it out".to_owned());
            }
            (ServiceUrl::Https(_), Some(key), None) => {
                let key: PublicKey = key.parse().map_err(|error| format!("key: {error}"))?;
                Some(KnownBy::Key(key))
            }
            (ServiceUrl::Https(_), None, Some(file)) => Some(KnownBy::Authority(file)),
            (ServiceUrl::Https(_), None, None) => {
                return Err("neither key nor authority says how the controller is known".to_owned());
            }
        };
        Ok(Self { url, known })
    }

    fn known_text(&self) -> (Option<String>, Option<PathBuf>) {
        match &self.known {
            None => (None, None),
            Some(KnownBy::Key(key)) => (Some(key.to_string()), None),
            Some(KnownBy::Authority(file)) => (None, Some(file.clone())),
        }
    }

    /// Asks that controller, with this key.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn client(&self, key: &SigningKey) -> Result<ServiceClient, TlsError> {
        let client = match &self.url {
            ServiceUrl::Unix(path) => ServiceClient::at_socket(SERVICE, path.clone()),
            ServiceUrl::Https(server) => {
                let trust = match &self.known {
                    Some(KnownBy::Authority(file)) => Trust::Authority(file.clone()),
                    Some(KnownBy::Key(key)) => Trust::Key(ServerTrust::Pinned(*key)),
                    // Whoever is not said to be known is not.
                    None => Trust::Key(ServerTrust::Callback(std::sync::Arc::new(|_, _| {
                        longhaul_session::Verdict::Unknown
                    }))),
                };
                let https = Https::new(SERVICE, server.clone(), trust, key.clone())?;
                ServiceClient::elsewhere(SERVICE, https)
            }
        };
        Ok(client.taking_at_most(MAX_ANSWER_BYTES))
    }
}

/// Puts a file in place at one stroke: who reads it meanwhile reads the old one or the new one.
///
/// # Errors
/// It cannot be written.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    new.write_all(content)?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// A file of at most so many bytes; none where it is longer, or can't be read.
#[must_use]
pub fn read_within(file: &Path, most: u64) -> Option<Vec<u8>> {
    let len = std::fs::metadata(file).ok()?.len();
    (len <= most).then(|| std::fs::read(file).ok())?
}

#[cfg(test)]
mod tests;
