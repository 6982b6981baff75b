//! An OpenSSH server with keys of its own, and the settings of its clients: scp, sftp, rsync and
//! rclone.

use super::place::{PeerNode, SERVED, Serving, USER, write};
use super::{Abilities, Need};
use crate::children::output_within;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Port of the server in its node.
pub const PORT: u16 = 2222;
/// Host name in the clients' settings, whatever its address.
pub const HOST: &str = "peer";

/// The server.
pub const SSHD: Need = Need {
    program: "sshd",
    package: "openssh-server",
};
/// The client.
pub const SSH: Need = Need {
    program: "ssh",
    package: "openssh-client",
};
/// Program that makes the keys.
pub const KEYGEN: Need = Need {
    program: "ssh-keygen",
    package: "openssh-client",
};
/// The netcat that supports SOCKS; other programs of that name do not.
const NETCAT: Need = Need {
    program: "nc.openbsd",
    package: "netcat-openbsd",
};

/// Abilities of every peer over SSH: one connection, to one port.
pub const ABILITIES: Abilities = Abilities {
    send: true,
    trees: true,
    streams: false,
    forward: true,
    socks: true,
};

/// Maximum time to make a key.
const KEYGEN_TIME_LIMIT: Duration = Duration::from_secs(20);

/// Serves [`SERVED`] and a shell by SSH, for one key.
///
/// # Errors
/// A program is missing, or the server does not start.
pub fn serve(place: &PeerNode, root: &Path) -> Result<Serving> {
    serve_with(place, root, "")
}

/// Serves like [`serve`], with `more` lines of settings.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(place: &PeerNode, root: &Path, more: &str) -> Result<Serving> {
    let settings = place.settings()?;
    let folder = settings.path().to_path_buf();
    let host_key = make_key(&folder.join("host"))?;
    write(
        &folder.join("authorized_keys"),
        &make_key(&folder.join("user"))?,
    )?;
    // OpenSSH looks the host up by its alias, rclone by address and port.
    write(
        &folder.join("known_hosts"),
        &format!("{HOST} {host_key}[*]:{PORT} {host_key}"),
    )?;
    let at = folder.display();
    // The key files are below a folder that others may write to (sticky), which StrictModes
    // refuses.
    let config = format!(
        "Port {PORT}\nListenAddress 0.0.0.0\nHostKey {at}/host\n\
         AuthorizedKeysFile {at}/authorized_keys\nStrictModes no\n\
         UsePAM no\nUseDNS no\nPidFile none\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nMaxStartups 100\n\
         MaxSessions 100\nPrintMotd no\nSubsystem sftp internal-sftp\n{more}"
    );
    let file = folder.join("sshd_config");
    write(&file, &config)?;
    let arguments = ["-D", "-e", "-f", &file.to_string_lossy()];
    place.serve(&SSHD, &arguments, settings, root, PORT)
}

/// Makes a key pair without a passphrase, and returns the line of the public key.
fn make_key(path: &Path) -> Result<String> {
    let mut command = Command::new(KEYGEN.find()?);
    command
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(path);
    let (status, _, err) = output_within(command, KEYGEN.program, KEYGEN_TIME_LIMIT)?;
    if !status.success() {
        bail!("ssh-keygen cannot make {}: {}", path.display(), err.trim());
    }
    let line = fs::read_to_string(path.with_extension("pub"))?;
    Ok(format!("{}\n", line.trim()))
}

/// Writes the clients' settings for the server's endpoint. AES-GCM comes first, because processors
/// have instructions for it (ssh_config(5), `Ciphers`). Netcat connects through a SOCKS server, and
/// then hands over the connection instead of copying (`ProxyUseFdpass`).
///
/// # Errors
/// netcat is needed and missing, or the file cannot be written.
pub fn client_config(serving: &Serving) -> Result<PathBuf> {
    let at = serving.endpoint.address;
    let mut config = format!(
        "Host {HOST}\nHostName {}\nHostKeyAlias {HOST}\nPort {}\nUser {USER}\nIdentityFile {}\n\
         IdentitiesOnly yes\n\
         UserKnownHostsFile {}\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n\
         BatchMode yes\nCompression no\n\
         Ciphers ^aes128-gcm@openssh.com\n",
        at.ip(),
        at.port(),
        serving.setting("user").display(),
        serving.setting("known_hosts").display(),
    );
    if let Some(socks) = serving.endpoint.socks {
        let netcat = NETCAT.find()?;
        config += &format!(
            "ProxyUseFdpass yes\nProxyCommand {} -F -X 5 -x {socks} %h %p\n",
            netcat.display()
        );
    }
    let file = serving.setting("ssh_config");
    write(&file, &config)?;
    Ok(file)
}

/// Returns the name of a served file or folder in the format of scp and rsync.
pub fn remote(name: &str) -> String {
    format!("{HOST}:{SERVED}/{name}")
}
