//! Keys that may have sessions with listening programs: those in a file, one per line, and this
//! user's own.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use longhaul_hop::read_trusted_file;
use longhaul_proto::PublicKey;

use crate::file_stamp::FileStamp;

/// Keys that may have sessions with programs here.
#[derive(Debug)]
pub(crate) struct AuthorisedKeys {
    file: PathBuf,
    own: PublicKey,
    read: Mutex<LoadedKeys>,
}

/// Content of the file, and its stamp when it was read.
#[derive(Debug, Default)]
struct LoadedKeys {
    stamp: FileStamp,
    keys: Vec<PublicKey>,
}

impl AuthorisedKeys {
    pub(crate) fn new(file: PathBuf, own: PublicKey) -> Self {
        Self {
            file,
            own,
            read: Mutex::default(),
        }
    }

    /// Returns true if this key may have sessions, by the current content of the file.
    ///
    /// If the file has a mistake, only the user's own key may. If others may write the file, its
    /// previous content applies.
    pub(crate) fn is_authorised(&self, key: &PublicKey) -> bool {
        if *key == self.own {
            return true;
        }
        let stamp = FileStamp::read(&self.file);
        let mut read = self.read.lock();
        if stamp != read.stamp {
            let before = std::mem::take(&mut read.keys);
            let keys = match read_trusted_file(&self.file) {
                Ok(text) => parse(&text, &self.file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::error!(
                        "keeping the previous keys: {}: {error}",
                        self.file.display()
                    );
                    Ok(before)
                }
                Err(error) => Err(format!(
                    "{}: cannot read the keys: {error}",
                    self.file.display()
                )),
            };
            let keys = keys.unwrap_or_else(|problem| {
                tracing::error!("only this user may connect to programs here: {problem}");
                Vec::new()
            });
            *read = LoadedKeys { stamp, keys };
        }
        read.keys.contains(key)
    }
}

/// Parses one key per line; text after the key is a comment. Empty lines and lines that begin with
/// `#` are skipped.
fn parse(text: &str, file: &Path) -> Result<Vec<PublicKey>, String> {
    let lines = text.lines().enumerate();
    let keys = lines.filter_map(|(index, line)| {
        let word = line
            .split_whitespace()
            .next()
            .filter(|word| !word.starts_with('#'))?;
        let wrong = |_| format!("{}:{}: expected a key, lhk1:...", file.display(), index + 1);
        Some(word.parse().map_err(wrong))
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_the_file_admits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("authorized_keys");
        let key = |number| PublicKey::from_bytes([number; 32]);
        let may =
            |peers: &AuthorisedKeys| [1, 2, 3].map(|number| peers.is_authorised(&key(number)));
        let peers = AuthorisedKeys::new(file.clone(), key(1));
        assert_eq!(may(&peers), [true, false, false]);
        std::fs::write(&file, format!("# friends\n\n{} of hers\n", key(2))).unwrap();
        assert_eq!(may(&peers), [true, true, false]);
        let fresh = AuthorisedKeys::new(file.clone(), key(1));
        std::fs::write(&file, format!("{}\nkey\n", key(3))).unwrap();
        assert_eq!(may(&fresh), [true, false, false]);
        let problem = parse("\nkey\n", &file).unwrap_err();
        assert!(
            problem.ends_with("authorized_keys:2: expected a key, lhk1:..."),
            "{problem}"
        );
    }
}
