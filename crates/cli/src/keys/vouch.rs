//! `longhaul keys vouch`: lets an X.509 certificate vouch for a key.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use longhaul_hop::unix_ms;
use longhaul_identity::{VouchRequest, certificate_names, vouch};
use longhaul_session::Identity;
use quantities::Time;
use zeroize::Zeroizing;

use crate::{answer, home};

/// Maximum size of a file of certificates or of a private key, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Let an X.509 certificate vouch for a key, so that servers know whose it is.
///
/// The private key of the certificate signs a statement, which is kept beside the key and sent with
/// each request from then on. Servers that trust the certificate's authority then know the subject
/// of the certificate. The private key itself is not needed again until the statement ends. Whoever
/// sees a request sees the certificate.
#[derive(Args)]
pub struct Vouch {
    /// Name of the key [default: the default key, which is made when it is first needed].
    name: Option<String>,
    /// The file of the key, instead of its name.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    identity: Option<PathBuf>,
    /// The certificate in PEM form, then those of its issuers if servers lack them
    /// [default: ~/.globus/usercert.pem].
    #[arg(long, value_name = "FILE", env = "X509_USER_CERT")]
    certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM form and not encrypted
    /// [default: ~/.globus/userkey.pem].
    #[arg(long, value_name = "FILE", env = "X509_USER_KEY")]
    private_key: Option<PathBuf>,
    /// Time for which the certificate vouches: 12h, 7d; a bare number is seconds. At most 31 days,
    /// and not longer than the certificate is valid.
    #[arg(long, value_name = "TIME", default_value = "7d")]
    valid: Time,
}

impl Vouch {
    /// Makes the voucher, and keeps it beside the key.
    pub fn run(self) -> Result<()> {
        let certificate = given_or_globus(self.certificate, "usercert.pem")?;
        let private_key = given_or_globus(self.private_key, "userkey.pem")?;
        let file = match (self.identity, &self.name) {
            (Some(file), _) => file,
            (None, Some(name)) => home::identity_file(Some(name))?,
            (None, None) => {
                let file = home::identity_file(None)?;
                if !file.exists() {
                    home::identity(None)?;
                }
                file
            }
        };
        // An old voucher must not prevent a new one.
        let voucher_file = Identity::voucher_file(&file);
        let identity = Identity::load_without_voucher(&file)?;
        let voucher = vouch(&VouchRequest {
            key: identity.public(),
            certificates: &read(&certificate)?,
            private_key: &read(&private_key)?,
            now_unix_ms: unix_ms(),
            lifetime: self.valid.0,
        })
        .with_context(|| home::display_path(&certificate))?;
        Identity::save_voucher(&file, &voucher)?;
        let names = certificate_names(&voucher)?.join(", ");
        let end = i64::try_from(voucher.end_unix_ms / 1000).unwrap_or(i64::MAX);
        let end = Timestamp::from_second(end).context("the end of the certificate")?;
        answer::write_line(format_args!(
            "{} belongs to {names} until {end} ({})",
            identity.public(),
            home::display_path(&voucher_file)
        ));
        Ok(())
    }
}

/// Returns the file, or the one of that name in `~/.globus`.
fn given_or_globus(given: Option<PathBuf>, name: &str) -> Result<PathBuf> {
    match (given, std::env::var_os("HOME")) {
        (Some(given), _) => Ok(given),
        (None, Some(home)) => Ok(Path::new(&home).join(".globus").join(name)),
        (None, None) => {
            bail!("HOME is not set: name the files with --certificate and --private-key")
        }
    }
}

/// Reads a file that may be a pipe. It may be a secret.
fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let unreadable = || format!("cannot read {}", home::display_path(file));
    let opened = File::open(file).with_context(unreadable)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(64 * 1024));
    opened
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .with_context(unreadable)?;
    Ok(bytes)
}
