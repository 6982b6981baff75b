//! Identity of this end: an Ed25519 key pair, stored in a file that only its owner may read.

#![deny(clippy::indexing_slicing)] // the input comes from a file

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use data_encoding::BASE64;
use longhaul_proto::{
    KeyError, MAX_VOUCHER_BYTES, Open, PublicKey, SigningKey, Voucher, VoucherFault,
};
use longhaul_raw_keys::certified_key;
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::Error;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// Maximum size of a key file, in bytes: far more than any Ed25519 key takes.
const MAX_FILE_BYTES: usize = 4096;
/// Ending of the file beside a key that holds its voucher.
const VOUCHER_ENDING: &str = ".voucher";

/// An Ed25519 key pair that signs OPENs and authenticates TLS. Files hold it as PKCS #8 in PEM (RFC
/// 7468).
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Generates an identity without saving it.
    ///
    /// # Errors
    /// [`Error::Key`] when the system's random generator fails.
    pub fn generate() -> Result<Self, Error> {
        Self::from_key(SigningKey::generate()?)
    }

    /// Generates an identity and saves it to a file that must not exist yet.
    ///
    /// # Errors
    /// [`Error::File`] when it exists or cannot be written; [`Error::Key`].
    pub fn create(path: &Path) -> Result<Self, Error> {
        let identity = Self::generate()?;
        identity.save(path)?;
        Ok(identity)
    }

    /// Loads the identity from a file, and its voucher from the file beside it, if there is one.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read, [`Error::Exposed`] when others can read it,
    /// [`Error::Owner`] when it belongs to another user, [`Error::Malformed`] when it holds no
    /// identity.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let identity = Self::load_without_voucher(path)?;
        match load_voucher(&Self::voucher_file(path), identity.public())? {
            Some(voucher) => Ok(identity.with_voucher(voucher)),
            None => Ok(identity),
        }
    }

    /// Loads the identity from a file, without its voucher.
    ///
    /// # Errors
    /// As [`Identity::load`].
    pub fn load_without_voucher(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File {
            action: "read the identity",
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        // Taken from the open file, so that the checked file is the one that is read.
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(Error::Exposed {
                path: path.into(),
                mode,
            });
        }
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if !is_trusted_owner(owner, user) {
            return Err(Error::Owner {
                path: path.into(),
                owner,
                user,
            });
        }
        // Allocated in full, so that no copy of the secret remains where the buffer grew.
        let mut text = Zeroizing::new(Vec::with_capacity(2 * MAX_FILE_BYTES));
        file.take(MAX_FILE_BYTES as u64)
            .read_to_end(&mut text)
            .map_err(failed)?;
        let malformed = |why| Error::Malformed {
            path: path.into(),
            line: None,
            why,
        };
        let document = from_pem(&text).ok_or_else(|| malformed("no private key in PEM form"))?;
        let key = SigningKey::from_pkcs8(&document)
            .map_err(|_| malformed("not an Ed25519 private key"))?;
        Self::from_key(key)
    }

    /// Returns the path of the file that holds the voucher of the key at `path`.
    #[must_use]
    pub fn voucher_file(path: &Path) -> PathBuf {
        let mut file = path.as_os_str().to_owned();
        file.push(VOUCHER_ENDING);
        file.into()
    }

    /// Saves a voucher beside the key at `path`, and replaces an earlier one.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written.
    pub fn save_voucher(path: &Path, voucher: &Voucher) -> Result<(), Error> {
        let file = Self::voucher_file(path);
        let text = voucher.to_text().map_err(io::Error::other);
        text.and_then(|text| replace_file(&file, &format!("{text}\n")))
            .map_err(|source| Error::File {
                action: "save the voucher",
                path: file,
                source,
            })
    }

    /// Returns the identity with this voucher, which its OPENs carry from now on.
    #[must_use]
    pub fn with_voucher(mut self, voucher: Voucher) -> Self {
        self.key = self.key.with_voucher(voucher);
        self
    }

    /// Returns the voucher, if there is one.
    #[must_use]
    pub fn voucher(&self) -> Option<&Voucher> {
        self.key.voucher()
    }

    /// Signs an OPEN, which carries the voucher if it is valid and fits (LH-VOUCHER-4).
    ///
    /// # Errors
    /// [`Error::Key`] when the cryptographic library refuses.
    pub(crate) fn sign_open(&self, open: &mut Open, now_unix_ms: u64) -> Result<(), Error> {
        if let Some(voucher) = self.key.voucher() {
            let added = match voucher.check_time(now_unix_ms) {
                Ok(()) => open.add_voucher(voucher).map_err(VoucherFault::from),
                Err(fault) => Err(fault),
            };
            match added {
                Ok(true) => {}
                // It is registered with receivers that refuse the key (LH-VOUCHER-8).
                Ok(false) => tracing::debug!("the certificate's chain is too long for a request"),
                Err(fault) => tracing::warn!("the certificate is not sent: {fault}"),
            }
        }
        open.sign(&self.key, now_unix_ms)?;
        Ok(())
    }

    /// Saves the identity to a file that must not exist yet, readable by its owner only.
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
                let written = file
                    .write_all(pem.as_bytes())
                    .and_then(|()| file.sync_all());
                if written.is_err() {
                    // A partial key is useless and would block the next attempt.
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

    /// Returns the public half, by which others know this identity.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.key.public()
    }

    /// Returns the key that signs OPENs.
    #[must_use]
    pub const fn signing_key(&self) -> &SigningKey {
        &self.key
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Returns an identity that signs as itself and uses TLS as another, which acceptors must
    /// refuse.
    #[cfg(test)]
    pub(crate) fn with_certificate_of(&self, other: &Self) -> Self {
        Self {
            key: self.key.clone(),
            certified: other.certified(),
        }
    }

    fn from_key(key: SigningKey) -> Result<Self, Error> {
        let certified = certified_key(&key).map_err(|_| KeyError::NotPkcs8)?;
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

/// Loads the voucher for `key`, if the file exists. It is no secret, and its signature protects it.
fn load_voucher(file: &Path, key: PublicKey) -> Result<Option<Voucher>, Error> {
    let failed = |source| Error::File {
        action: "read the voucher",
        path: file.into(),
        source,
    };
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    opened
        .take(2 * MAX_VOUCHER_BYTES as u64)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let voucher = text.trim_end().parse().ok();
    let own = voucher.filter(|voucher: &Voucher| voucher.key == key);
    own.map(Some).ok_or_else(|| Error::Malformed {
        path: file.into(),
        line: None,
        why: "no voucher for this key: remove it, or make it again with: longhaul keys vouch",
    })
}

/// Returns true if a secret in a file of `owner` is safe for `user`. The owner of a file can read
/// and replace it, and so can root.
const fn is_trusted_owner(owner: u32, user: u32) -> bool {
    owner == user || owner == 0
}

fn to_pem(document: &[u8]) -> Zeroizing<String> {
    let digits = Zeroizing::new(BASE64.encode(document));
    // Allocated in full, so that no copy of the secret remains where the buffer grew.
    let mut pem = Zeroizing::new(String::with_capacity(2 * digits.len() + 2 * BEGIN.len()));
    pem.push_str(BEGIN);
    for (index, digit) in digits.chars().enumerate() {
        if index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(digit);
    }
    pem.push('\n');
    pem.push_str(END);
    pem.push('\n');
    pem
}

pub(crate) fn from_pem(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (_, rest) = std::str::from_utf8(text).ok()?.split_once(BEGIN)?;
    let (body, _) = rest.split_once(END)?;
    let mut digits = Zeroizing::new(String::with_capacity(body.len()));
    digits.extend(body.split_ascii_whitespace());
    BASE64.decode(digits.as_bytes()).ok().map(Zeroizing::new)
}

/// Replaces a file atomically: a reader sees the old text or the new one, and a crash loses
/// neither.
///
/// Only the owner may read the file. The new text goes to a new file with an unpredictable name, so
/// that nobody can place a file there beforehand.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Created with O_EXCL and mode 0600, and removed on drop.
    let mut temporary = tempfile::Builder::new()
        .prefix(".longhaul-")
        .suffix(".new")
        .tempfile_in(folder)?;
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().sync_all()?;
    temporary.persist(path)?;
    File::open(folder)?.sync_all()
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
            matches!(
                &error,
                Error::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists
            ),
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
            assert!(
                error.to_string().contains(&format!("{mode:04o}")),
                "{error}"
            );
        }
    }

    #[test]
    fn voucher_beside_the_key_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        let made = Identity::create(&path).unwrap();
        assert!(Identity::load(&path).unwrap().voucher().is_none());
        let mut voucher = Voucher {
            key: made.public(),
            start_unix_ms: 0,
            end_unix_ms: 1,
            certificates: vec![vec![1]],
            scheme: 1,
            signature: vec![1],
        };
        Identity::save_voucher(&path, &voucher).unwrap();
        assert_eq!(Identity::load(&path).unwrap().voucher(), Some(&voucher));
        voucher.key = Identity::generate().unwrap().public();
        Identity::save_voucher(&path, &voucher).unwrap();
        let error = Identity::load(&path).unwrap_err();
        assert!(error.to_string().contains("identity.voucher"), "{error}");
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        for (owner, user, trusted) in [
            (7, 7, true),
            (0, 7, true),
            (0, 0, true),
            (7, 0, false),
            (7, 8, false),
        ] {
            assert_eq!(is_trusted_owner(owner, user), trusted, "{owner} {user}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        Identity::create(&path).unwrap();
        // Only root may change the owner of a file.
        if std::os::unix::fs::chown(&path, Some(12345), None).is_err() {
            return;
        }
        let error = Identity::load(&path).unwrap_err();
        assert!(
            matches!(error, Error::Owner { owner: 12345, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("12345"), "{error}");
    }

    #[test]
    fn a_replacement_ignores_a_planted_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (
            directory.path().join("hosts"),
            directory.path().join("victim"),
        );
        std::fs::write(&victim, "untouched").unwrap();
        // The predictable name to which the text was once written.
        let guessed = directory
            .path()
            .join(format!("hosts.{}.new", std::process::id()));
        std::os::unix::fs::symlink(&victim, &guessed).unwrap();
        replace_file(&path, "text").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(replace_file(&directory.path().join("none/hosts"), "text").is_err());
    }

    #[test]
    fn other_files_are_not_identities() {
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
