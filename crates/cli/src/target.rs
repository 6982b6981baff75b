//! Paths on the command line: a local path, `user@host:path`, `lh://host[:port]/path`,
//! `sftp://host[:port]/path`, or a path in a store such as `s3://bucket/key`.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use longhaul_endpoints::EndpointPath;
use longhaul_remote::Login;
use longhaul_session::Endpoint;
use longhaul_sftp::SftpPath;
use longhaul_transfer::path::RelPath;
use longhaul_transfer::typed_path::{names_directory, source_name};

/// Default port of a server.
pub const SERVER_PORT: u16 = 7511;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A path on this machine.
    Local(PathBuf),
    /// A path on an ssh host.
    Login(Login),
    /// A path on a server.
    Remote(Remote),
    /// A path on a host with an SFTP server.
    Sftp(SftpPath),
    /// A path in an object store, or at a web server.
    Endpoint(EndpointPath),
}

/// A path on a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    /// The server.
    pub server: Endpoint,
    /// The path beneath the server's root.
    pub path: RelPath,
    /// True if the typed text can only name a directory.
    pub is_directory: bool,
    /// Name of the source in a destination directory; empty if the content of a directory is meant.
    name: Vec<u8>,
}

impl Target {
    /// Parses a path. It needn't be UTF-8; nothing is percent-decoded.
    pub fn parse(text: &std::ffi::OsStr) -> Result<Self> {
        let bytes = text.as_encoded_bytes();
        if let Some(path) = SftpPath::parse(bytes)? {
            return Ok(Self::Sftp(path));
        }
        if let Some(path) = EndpointPath::parse(bytes)? {
            return Ok(Self::Endpoint(path));
        }
        let Some(rest) = bytes.strip_prefix(b"lh://") else {
            return match bytes.is_empty() {
                true => Err(anyhow!(
                    "an empty path: name a file, a directory, user@host:path or lh://host/path"
                )),
                false => Ok(match Login::parse(bytes)? {
                    Some(login) => Self::Login(login),
                    None => Self::Local(PathBuf::from(text)),
                }),
            };
        };
        let shown = longhaul_proto::text::printable(bytes);
        let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(slash);
        let host = std::str::from_utf8(host)
            .map_err(|_| anyhow!("{shown}: the host is not a name or address"))?;
        let server = Endpoint::parse_with_port(host, SERVER_PORT)
            .map_err(|error| anyhow!("{shown}: {error}"))?;
        if server.port == 0 {
            return Err(anyhow!("{shown}: port 0 cannot be connected to"));
        }
        Ok(Self::Remote(Remote {
            server,
            path: RelPath::from_typed(path).map_err(|error| anyhow!("{shown}: {error}"))?,
            is_directory: names_directory(path),
            name: source_name(path).to_vec(),
        }))
    }
}

impl Remote {
    /// Returns the name of the source in a destination directory; see [`source_name`].
    pub fn name(&self) -> Vec<u8> {
        self.name.clone()
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lh://{}/", self.server)?;
        if self.path.is_root() {
            Ok(())
        } else {
            write!(f, "{}", self.path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> Remote {
        match Target::parse(text.as_ref()).unwrap() {
            Target::Remote(remote) => remote,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_and_paths_are_distinguished() {
        assert_eq!(
            Target::parse("a/b".as_ref()).unwrap(),
            Target::Local("a/b".into())
        );
        for local in ["./a:b", "/a:b", "a/b:c"] {
            assert_eq!(
                Target::parse(local.as_ref()).unwrap(),
                Target::Local(local.into())
            );
        }
        let Target::Login(login) = Target::parse("ana@h.example:a:b".as_ref()).unwrap() else {
            panic!("a login")
        };
        assert_eq!(
            (login.host.as_str(), &login.path[..]),
            ("ana@h.example", &b"a:b"[..])
        );
        let full = remote("lh://h.example:99/a//b/");
        assert_eq!(
            (
                full.server.to_string().as_str(),
                full.path.as_bytes(),
                full.is_directory
            ),
            ("h.example:99", &b"a/b"[..], true)
        );
        assert_eq!(full.name(), b"b");
        assert_eq!(remote("lh://h").server.port, SERVER_PORT);
        assert!(remote("lh://h").path.is_root() && remote("lh://h").is_directory);
        assert_eq!(remote("lh://[::1]/x").to_string(), "lh://[::1]:7511/x");
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for bad in [
            "",
            "lh://",
            "lh:///x",
            "lh://h:0/x",
            "lh://h:99999/x",
            "lh://h/../x",
            "lh://a b/x",
            ":x",
            "-oProxyCommand=x:y",
            "sftp://",
            "sftp://h:0/x",
            "s3://",
            "https://ana:secret@h/x",
        ] {
            let error = Target::parse(bad.as_ref()).unwrap_err().to_string();
            assert!(!error.contains('\n') && !error.is_empty(), "{bad}: {error}");
        }
    }
}
