//! Paths at a host with SFTP: `sftp://user@host:port/path`, or a path of an ssh login.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use std::fmt;

use longhaul_proto::text::printable;
use longhaul_remote::Login;
use longhaul_transfer::typed_path::{names_directory, source_name};

use crate::error::Error;

/// Scheme of URLs.
const SCHEME: &[u8] = b"sftp://";

/// A path at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpPath {
    /// Host as `ssh` takes it.
    host: String,
    /// Host as the user wrote it.
    shown: String,
    /// Path for the server: beneath the login's home directory unless it begins with a slash.
    path: Vec<u8>,
    is_url: bool,
}

impl SftpPath {
    /// Parses a URL. Returns `None` if the text is none. The path is absolute, except for `/~/path`
    /// and an empty path, which lie in the login's home directory. Nothing is percent-decoded.
    ///
    /// # Errors
    /// [`Error::Location`].
    pub fn parse(text: &[u8]) -> Result<Option<Self>, Error> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Ok(None);
        };
        let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(slash).unwrap_or((rest, b""));
        let no_host = || Error::Location {
            text: printable(text),
        };
        let shown = std::str::from_utf8(host).map_err(|_| no_host())?;
        let (user, address) = match shown.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, shown),
        };
        let (name, port) = split_port(address);
        let port = port.map(str::parse::<u16>).transpose();
        let port = port.map_err(|_| no_host())?;
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        let is_dash = |text: &str| text.starts_with('-');
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if bare.is_empty()
            || user.is_some_and(|user| user.is_empty() || is_dash(user))
            || is_dash(bare)
            || shown.contains(is_odd)
            || port == Some(0)
        {
            return Err(no_host());
        }
        let before = user.map_or(String::new(), |user| format!("{user}@"));
        let host = match port {
            // ssh takes a port only in a URL.
            Some(port) => format!("ssh://{before}{name}:{port}"),
            None => format!("{before}{bare}"),
        };
        Ok(Some(Self {
            host,
            shown: shown.to_owned(),
            path: in_home(path),
            is_url: true,
        }))
    }

    /// Returns the host as `ssh` takes it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the host as the user wrote it.
    #[must_use]
    pub fn shown_host(&self) -> &str {
        &self.shown
    }

    /// Returns the host, without a path.
    #[must_use]
    pub fn root(&self) -> Self {
        Self {
            path: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns a path for the server at the same host.
    #[must_use]
    pub fn with_path(&self, path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            ..self.clone()
        }
    }

    /// Returns true if the other path is this one or below it, at the same host. It is not known
    /// whether an absolute path lies in the home directory.
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        let names = |path: &Self| {
            let is_absolute = path.path.starts_with(b"/");
            let names = path.path.split(|&byte| byte == b'/');
            let names = names.filter(|name| !name.is_empty() && *name != b".");
            (is_absolute, names.map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let ((is_absolute, own), (is_other_absolute, others)) = (names(self), names(other));
        self.host == other.host && is_absolute == is_other_absolute && others.starts_with(&own)
    }

    /// Returns true if both are at hosts of one name, whatever the login and the port.
    #[must_use]
    pub fn is_on_host_of(&self, other: &Self) -> bool {
        self.host_name().eq_ignore_ascii_case(other.host_name())
    }

    fn host_name(&self) -> &str {
        let host = self.host.strip_prefix("ssh://").unwrap_or(&self.host);
        let address = host.rsplit_once('@').map_or(host, |(_, address)| address);
        let (name, _) = split_port(address);
        name.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the path for the server: absolute, or beneath the login's home directory.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self.path.is_empty() {
            true => b".",
            false => &self.path,
        }
    }

    /// Returns the name of the path in a destination directory; empty if it has none of its own.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        source_name(&self.path).to_vec()
    }

    /// Returns true if the path can only name a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        names_directory(&self.path)
    }
}

impl From<&Login> for SftpPath {
    fn from(login: &Login) -> Self {
        let slashed = [b"/", login.path.as_slice()].concat();
        let is_in_home = login.path == b"~" || login.path.starts_with(b"~/");
        Self {
            host: login.host.clone(),
            shown: login.host.clone(),
            path: match is_in_home {
                true => in_home(&slashed),
                false => login.path.clone(),
            },
            is_url: false,
        }
    }
}

impl fmt::Display for SftpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path);
        match (self.is_url, self.path.starts_with(b"/")) {
            (false, _) => write!(f, "{}:{path}", self.shown),
            (true, true) => write!(f, "sftp://{}{path}", self.shown),
            (true, false) => write!(f, "sftp://{}/~/{path}", self.shown),
        }
    }
}

/// Returns the path of a URL as the server takes it: relative if it lies in the home directory.
fn in_home(path: &[u8]) -> Vec<u8> {
    let below = match path.strip_prefix(b"/~") {
        Some(below @ ([] | [b'/', ..])) => below,
        _ => return path.to_vec(),
    };
    let slashes = below.iter().take_while(|&&byte| byte == b'/').count();
    below.get(slashes..).unwrap_or_default().to_vec()
}

/// Splits the port off a host. An IPv6 address is in brackets.
fn split_port(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (address, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SftpPath {
        SftpPath::parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn urls_name_a_login_and_a_path() {
        for (text, host, path, name) in [
            ("sftp://h/a/b", "h", "/a/b", "b"),
            ("sftp://ana@h:2222/a/", "ssh://ana@h:2222", "/a/", "a"),
            ("sftp://ana@h/~/a//b", "ana@h", "a//b", "b"),
            ("sftp://h/~", "h", ".", ""),
            ("sftp://h", "h", ".", ""),
            ("sftp://h/", "h", "/", ""),
            ("sftp://[::1]/a", "::1", "/a", "a"),
            ("sftp://[::1]:22/~x", "ssh://[::1]:22", "/~x", "~x"),
        ] {
            let location = parse(text);
            assert_eq!(location.host(), host, "{text}");
            assert_eq!(location.path(), path.as_bytes(), "{text}");
            assert_eq!(location.name(), name.as_bytes(), "{text}");
        }
        assert_eq!(parse("sftp://h:22/~/a").to_string(), "sftp://h:22/~/a");
        assert_eq!(parse("sftp://h/a").to_string(), "sftp://h/a");
        assert_eq!(SftpPath::parse(b"lh://h/a").unwrap(), None);
    }

    #[test]
    fn paths_at_the_same_host_are_shown_as_they_are_typed() {
        let root = parse("sftp://ana@h:22/a/b").root();
        assert_eq!(root, parse("sftp://ana@h:22/c").root());
        assert_ne!(root, parse("sftp://h:22/c").root());
        for (path, text) in [("/x", "sftp://ana@h:22/x"), ("x", "sftp://ana@h:22/~/x")] {
            assert_eq!(root.with_path(path.as_bytes()).to_string(), text);
        }
    }

    #[test]
    fn directories_hold_what_is_below_them() {
        for (one, other, expected) in [
            ("sftp://h/a", "sftp://h/a/b", true),
            ("sftp://h/a/", "sftp://h/a", true),
            ("sftp://h/a/b", "sftp://h/a", false),
            ("sftp://h/a", "sftp://h/ab", false),
            ("sftp://h/a", "sftp://g/a/b", false),
            ("sftp://h/~/a", "sftp://h/a/b", false),
            ("sftp://h/~/", "sftp://h/~/a", true),
        ] {
            assert_eq!(parse(one).holds(&parse(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn host_names_are_compared_without_logins_and_ports() {
        for (one, other, expected) in [
            ("sftp://h/a", "sftp://ana@h:2222/b", true),
            ("sftp://H/a", "sftp://h/a", true),
            ("sftp://[::1]:22/a", "sftp://ana@[::1]/a", true),
            ("sftp://h/a", "sftp://h2/a", false),
            ("sftp://[::1]/a", "sftp://[::2]/a", false),
        ] {
            let (one, other) = (parse(one), parse(other));
            assert_eq!(one.is_on_host_of(&other), expected, "{one} {other}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for bad in [
            "sftp://",
            "sftp:///a",
            "sftp://@h/a",
            "sftp://-oProxyCommand=x/a",
            "sftp://a@-x/a",
            "sftp://-a@h/a",
            "sftp://h:0/a",
            "sftp://h:99999/a",
            "sftp://h:x/a",
            "sftp://a b/c",
            "sftp://h\n/c",
        ] {
            let error = SftpPath::parse(bad.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn paths_of_logins_lie_at_home() {
        for (typed, path) in [
            ("a", "a"),
            ("~/a", "a"),
            ("~", "."),
            ("", "."),
            ("/a", "/a"),
        ] {
            let login = Login {
                host: "h".into(),
                path: typed.into(),
            };
            let location = SftpPath::from(&login);
            assert_eq!(location.path(), path.as_bytes(), "{typed}");
            assert_eq!(
                location.to_string(),
                format!("h:{}", path.trim_matches('.'))
            );
        }
    }
}
