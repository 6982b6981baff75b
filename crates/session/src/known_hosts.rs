//! Servers whose keys were accepted before: one line each, `host:port lhk1:...`.

#![deny(clippy::indexing_slicing)] // the input comes from a file

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use longhaul_hop::read_trusted_file;
use longhaul_proto::{Endpoint, PublicKey};

use crate::{Error, ServerTrust, Verdict, identity::replace_file};

/// A file of servers and their keys. Empty lines and lines that begin with `#` are skipped, and
/// dropped on saving.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    path: PathBuf,
    keys: BTreeMap<Endpoint, PublicKey>,
}

impl KnownHosts {
    /// Reads the file. A missing file counts as empty.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, [`Error::Malformed`] with the line when it cannot be
    /// parsed.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let text = match read_trusted_file(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(Error::File {
                    action: "read known hosts",
                    path: path.into(),
                    source,
                });
            }
        };
        Self::parse(&text, path)
    }

    /// Parses the text of such a file. `path` is used in errors and for saving.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let mut keys = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let malformed = |why| Error::Malformed {
                path: path.into(),
                line: Some(index + 1),
                why,
            };
            let mut fields = line.split_whitespace();
            match (fields.next(), fields.next(), fields.next()) {
                (None, ..) => continue,
                (Some(first), ..) if first.starts_with('#') => continue,
                (Some(host), Some(key), None) => {
                    let endpoint = host
                        .parse()
                        .map_err(|_| malformed("expected host:port before the key"))?;
                    let key = key
                        .parse()
                        .map_err(|_| malformed("expected a key, lhk1:..., after host:port"))?;
                    if keys
                        .insert(endpoint, key)
                        .is_some_and(|earlier| earlier != key)
                    {
                        return Err(malformed(
                            "a second key for the same server: remove one of the two",
                        ));
                    }
                }
                _ => return Err(malformed("expected two fields: host:port and a key")),
            }
        }
        Ok(Self {
            path: path.into(),
            keys,
        })
    }

    /// Returns the key of a server, if it is known.
    #[must_use]
    pub fn get(&self, server: &Endpoint) -> Option<PublicKey> {
        self.keys.get(server).copied()
    }

    /// Adds a server, or changes its key, and saves. Entries that other processes added to the file
    /// meanwhile are kept.
    ///
    /// # Errors
    /// As [`KnownHosts::open`], and [`Error::File`] when it cannot be written.
    pub fn add(&mut self, server: Endpoint, key: PublicKey) -> Result<(), Error> {
        self.keys = Self::open(&self.path)?.keys;
        self.keys.insert(server, key);
        self.save()
    }

    /// Removes a server and saves. Returns true if it was known.
    ///
    /// # Errors
    /// As [`KnownHosts::add`].
    pub fn remove(&mut self, server: &Endpoint) -> Result<bool, Error> {
        self.keys = Self::open(&self.path)?.keys;
        let known = self.keys.remove(server).is_some();
        if known {
            self.save()?;
        }
        Ok(known)
    }

    /// Returns trust in exactly the servers known now. Another key is refused, and a server not
    /// listed gives [`Error::UnknownServer`]. The caller may then ask the user, [`add`](Self::add)
    /// the key, and connect again.
    #[must_use]
    pub fn trust(&self) -> ServerTrust {
        let keys = self.keys.clone();
        ServerTrust::Callback(Arc::new(move |server, found| match keys.get(server) {
            Some(known) if known == found => Verdict::Trusted,
            Some(&known) => Verdict::Mismatch { expected: known },
            None => Verdict::Unknown,
        }))
    }

    pub(crate) fn text(&self) -> String {
        self.keys
            .iter()
            .map(|(server, key)| format!("{server} {key}\n"))
            .collect()
    }

    fn save(&self) -> Result<(), Error> {
        replace_file(&self.path, &self.text()).map_err(|source| Error::File {
            action: "write known hosts",
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    #[test]
    fn servers_are_kept_and_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let (one, two): (Endpoint, Endpoint) = (
            "one.example:7511".parse().unwrap(),
            "[::1]:1".parse().unwrap(),
        );
        let mut hosts = KnownHosts::open(&path).unwrap();
        let mut other = hosts.clone();
        hosts.add(one.clone(), key(1)).unwrap();
        other.add(two.clone(), key(2)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut read = KnownHosts::open(&path).unwrap();
        assert_eq!(
            (read.get(&one), read.get(&two)),
            (Some(key(1)), Some(key(2)))
        );
        assert!(read.remove(&one).unwrap());
        assert!(!read.remove(&one).unwrap());
        let ServerTrust::Callback(verdict) = KnownHosts::open(&path).unwrap().trust() else {
            panic!("a callback")
        };
        assert_eq!(verdict(&one, &key(1)), Verdict::Unknown);
        assert_eq!(verdict(&two, &key(2)), Verdict::Trusted);
        assert_eq!(
            verdict(&two, &key(3)),
            Verdict::Mismatch { expected: key(2) }
        );
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn errors_name_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let (good, other) = (format!("h:1 {}", key(1)), format!("h:1 {}", key(2)));
        for bad in ["h:1", "h lhk1:x", "h:1 key", "h:1 lhk1:aa extra", &other] {
            std::fs::write(&path, format!("# servers\n\n{good}\n{bad}\n")).unwrap();
            let error = KnownHosts::open(&path).unwrap_err();
            assert!(
                matches!(error, Error::Malformed { line: Some(4), .. }),
                "{bad}: {error}"
            );
        }
    }
}
