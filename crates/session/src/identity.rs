//! Who this end is: an Ed25519 key pair, kept in a file that only its owner may read.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use data_encoding::BASE64;
use longhaul_proto::{KeyError, PublicKey, SigningKey};
use rustls::sign::CertifiedKey;

use crate::{Error, tls};

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// Far more than any Ed25519 key takes.
const MAX_FILE: u64 = 4096;

/// An Ed25519 key pair, ready to sign OPENs and to speak TLS. Files hold it as PKCS #8 in PEM (RFC 7468).
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// A fresh identity that is in no file.
    ///
    /// # Errors
    /// [`Error::Key`] when the system's random generator fails.
    pub fn generate() -> Result<Self, Error> {
        Self::from_key(SigningKey::generate()?)
    }

    /// A fresh identity, saved to a file that must not exist yet.
    ///
    /// # Errors
    /// [`Error::File`] when it exists or cannot be written; [`Error::Key`].
    pub fn create(path: &Path) -> Result<Self, Error> {
        let identity = Self::generate()?;
        identity.save(path)?;
        Ok(identity)
    }

    /// The identity in a file.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, [`Error::Exposed`] when others can, [`Error::Malformed`] when it holds none.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File {
            action: "read the identity",
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        // Of the opened file, so that it cannot be another than the one checked.
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(Error::Exposed {
                path: path.into(),
                mode,
            });
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
        let malformed = |why| Error::Malformed {
            path: path.into(),
            line: None,
            why,
        };
        let document = from_pem(&text).ok_or_else(|| malformed("no private key in PEM form"))?;
        let key = SigningKey::from_pkcs8(&document).map_err(|_| malformed("not an Ed25519 private key"))?;
        Self::from_key(key)
    }

    /// Saves to a file that must not exist yet, readable by its owner only.
    ///
    /// # Errors
    /// [`Error::File`] when it exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let pem = to_pem(&self.key.to_pkcs8()?);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| {
                let written = file.write_all(pem.as_bytes()).and_then(|()| file.sync_all());
                if written.is_err() {
                    // Half a key helps nobody and would be in the way next time.
                    let _ = std::fs::remove_file(path);
                }
                written
            });
        written.map_err(|source| Error::File {
            action: "create the identity",
            path: path.into(),
            source,
        })
    }

    /// The public half, by which others know this identity.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.key.public()
    }

    /// The key that signs OPENs.
    #[must_use]
    pub const fn signing_key(&self) -> &SigningKey {
        &self.key
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Signs as itself and speaks TLS as another: what an acceptor must refuse.
    #[cfg(test)]
    pub(crate) fn with_certified_of(&self, other: &Self) -> Self {
        Self {
            key: self.key.clone(),
            certified: other.certified(),
        }
    }

    fn from_key(key: SigningKey) -> Result<Self, Error> {
        let certified = tls::certified_key(&key).map_err(|_| KeyError::NotPkcs8)?;
        Ok(Self {
            key,
            certified: Arc::new(certified),
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public())
    }
}

fn to_pem(document: &[u8]) -> String {
    let digits = BASE64.encode(document);
    let mut pem = format!("{BEGIN}\n");
    for line in digits.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + END + "\n"
}

fn from_pem(text: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (body, _) = rest.split_once(END)?;
    let digits: String = body.split_ascii_whitespace().collect();
    BASE64.decode(digits.as_bytes()).ok()
}

/// Replaces a file as a whole, so that a reader sees the old text or the new one and a crash loses neither.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_identity_survives_its_file_and_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        let made = Identity::create(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(Identity::load(&path).unwrap().public(), made.public());
        let error = Identity::create(&path).unwrap_err();
        assert!(
            matches!(&error, Error::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists),
            "{error}"
        );
        assert_eq!(Identity::load(&path).unwrap().public(), made.public());
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        Identity::create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load(&path).unwrap_err();
            assert!(matches!(error, Error::Exposed { .. }), "{error}");
            assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
        }
    }

    #[test]
    fn other_files_are_no_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        assert!(matches!(Identity::load(&path), Err(Error::File { .. })));
        let long = "a".repeat(10_000);
        for text in [
            "",
            "junk",
            BEGIN,
            &format!("{BEGIN}\n!!\n{END}"),
            &format!("{BEGIN}\nAAAA\n{END}"),
            &long,
        ] {
            replace_file(&path, text).unwrap();
            assert!(
                matches!(Identity::load(&path), Err(Error::Malformed { .. })),
                "{text}"
            );
        }
    }
}
