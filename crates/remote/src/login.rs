//! `user@host:path`, as scp and rsync read it.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use std::fmt;

use longhaul_proto::text::printable;
use longhaul_transfer::typed_path::{names_directory, source_name};

use crate::Error;

/// A path on a host with an ssh login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Host as given to `ssh`: a name of ~/.ssh/config or of the network, optionally after `user@`.
    pub host: String,
    /// Path as typed: beneath the login's home directory unless it begins with a slash. Any bytes.
    pub path: Vec<u8>,
}

impl Login {
    /// Parses typed text; returns `None` for a local path. A colon before any slash ends a host: a
    /// local file whose name has a colon is written `./a:b`. An IPv6 address is in brackets.
    ///
    /// # Errors
    /// [`Error::Host`]: the text before the colon is not a host.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, Error> {
        let Some((host, path)) = split(text) else {
            return Ok(None);
        };
        let no_host = || Error::Host {
            text: printable(text),
        };
        let host = std::str::from_utf8(host).map_err(|_| no_host())?;
        let bare = host.rsplit_once('@').map_or(host, |(_, bare)| bare);
        // ssh would take a leading dash for an option.
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if bare.is_empty() || host.starts_with('-') || bare.starts_with('-') || host.contains(odd) {
            return Err(no_host());
        }
        Ok(Some(Self {
            // ssh takes an IPv6 address without its brackets.
            host: host.replace(['[', ']'], ""),
            path: path.to_vec(),
        }))
    }

    /// Returns the name of the path in a destination directory; empty if it has none of its own,
    /// such as `.` and the home directory.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        source_name(below_home(&self.path)).to_vec()
    }

    /// Returns true if the path can only name a directory, as the home directory does.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        names_directory(below_home(&self.path))
    }
}

/// Returns a typed path relative to the home directory. Only a leading `~` stands for that
/// directory: `dir/~` and `./~` are files of that name.
pub(crate) fn below_home(typed: &[u8]) -> &[u8] {
    if typed == b"~" {
        return b"";
    }
    match typed.strip_prefix(b"~/") {
        // Otherwise `~//f` would become `/f`.
        Some(below) => {
            let slashes = below.iter().take_while(|&&byte| byte == b'/').count();
            below.get(slashes..).unwrap_or_default()
        }
        None => typed,
    }
}

/// Splits the text at the colon that ends the host.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
    let before_slash = text.get(..slash)?;
    // An address in brackets has colons of its own.
    let from = match before_slash.iter().position(|&b| b == b'[') {
        Some(open) => before_slash.iter().skip(open).position(|&b| b == b']')? + open,
        None => 0,
    };
    let colon = from + before_slash.get(from..)?.iter().position(|&b| b == b':')?;
    Some((text.get(..colon)?, text.get(colon + 1..)?))
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, printable(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn login(text: &str) -> Option<(String, String)> {
        Login::parse(text.as_bytes())
            .unwrap()
            .map(|login| (login.host, String::from_utf8(login.path).unwrap()))
    }

    #[test]
    fn hosts_and_local_paths_are_distinguished_as_scp_does() {
        for (text, host, path) in [
            ("h:f", "h", "f"),
            ("ana@h.example:/srv/a:b", "ana@h.example", "/srv/a:b"),
            ("h:", "h", ""),
            ("[2001:db8::1]:f", "2001:db8::1", "f"),
            ("ana@[::1]:~/f", "ana@::1", "~/f"),
        ] {
            assert_eq!(login(text), Some((host.into(), path.into())), "{text}");
        }
        for local in ["f", "./a:b", "/a:b", "a/b:c", "", "[a", "[::1]"] {
            assert_eq!(login(local), None, "{local}");
        }
        for bad in [
            ":f",
            "@:f",
            "ana@:f",
            "-oProxyCommand=x:f",
            "ana@-x:f",
            "a b:f",
            "a\n:f",
        ] {
            let error = Login::parse(bad.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn names_are_the_last_components_of_paths() {
        for (path, name, directory) in [
            ("a/b", "b", false),
            ("a/b/", "b", true),
            ("", "", true),
            ("~", "", true),
            ("~/", "", true),
            ("~//b", "b", false),
            ("~/.", "", true),
            ("a/~", "~", false),
            ("./~", "~", false),
            ("~/~", "~", false),
            ("~x", "~x", false),
            ("a/.", "", true),
            ("..", "", true),
            ("/", "", true),
        ] {
            let login = Login {
                host: "h".into(),
                path: path.into(),
            };
            assert_eq!(login.name(), name.as_bytes(), "{path}");
            assert_eq!(login.is_directory(), directory, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic_and_no_host_is_an_option(text: Vec<u8>) {
            if let Ok(Some(login)) = Login::parse(&text) {
                prop_assert!(!login.host.starts_with('-') && !login.host.is_empty());
            }
        }
    }
}
