//! Paths in object stores and at web servers: `s3://bucket/key` and others.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use std::fmt;

use longhaul_proto::text::printable;
use longhaul_transfer::typed_path::{names_directory, source_name};
use object_store::path::Path as Key;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::Error;

/// Kind of a store or server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Amazon S3, or a store with its interface.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// Single files of a web server. If true, with TLS.
    Web(bool),
    /// Trees of a WebDAV server. If true, with TLS.
    Dav(bool),
}

const SCHEMES: [(&str, Scheme); 7] = [
    ("s3", Scheme::S3),
    ("gs", Scheme::Google),
    ("az", Scheme::Azure),
    ("https", Scheme::Web(true)),
    ("http", Scheme::Web(false)),
    ("webdavs", Scheme::Dav(true)),
    ("webdav", Scheme::Dav(false)),
];

impl Scheme {
    /// Returns true if it has buckets rather than hosts.
    pub(crate) const fn has_buckets(self) -> bool {
        matches!(self, Self::S3 | Self::Google | Self::Azure)
    }

    fn name(self) -> &'static str {
        let named = SCHEMES.iter().find(|(_, scheme)| *scheme == self);
        named.map_or("", |(name, _)| name)
    }

    const fn example(self) -> &'static str {
        match self {
            Self::S3 => "s3://bucket/key",
            Self::Google => "gs://bucket/key",
            Self::Azure => "az://container/key",
            Self::Web(_) => "https://host/path",
            Self::Dav(_) => "webdavs://host/path",
        }
    }
}

/// A path in a bucket or at a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPath {
    scheme: Scheme,
    /// Bucket, or host with its port.
    authority: String,
    key: Key,
    /// Query of a URL.
    query: Option<String>,
    /// Name in a destination directory; empty if the content of a directory is meant.
    name: Vec<u8>,
    is_directory: bool,
}

impl EndpointPath {
    /// Parses a location. Returns `None` if the text has none of the schemes. Keys of object stores
    /// are taken as they are; paths of URLs are percent-decoded.
    ///
    /// # Errors
    /// [`Error::Location`], [`Error::PasswordInUrl`].
    pub fn parse(text: &[u8]) -> Result<Option<Self>, Error> {
        let scheme_of = |(name, scheme): &(&str, Scheme)| {
            let rest = text.strip_prefix(name.as_bytes())?;
            Some((*scheme, rest.strip_prefix(b"://")?))
        };
        let Some((scheme, rest)) = SCHEMES.iter().find_map(scheme_of) else {
            return Ok(None);
        };
        let wrong = |reason| Error::Location {
            text: printable(text),
            reason,
            example: scheme.example(),
        };
        let rest = std::str::from_utf8(rest).map_err(|_| wrong("not UTF-8"))?;
        if rest.chars().any(char::is_control) {
            return Err(wrong("a control character"));
        }
        let (authority, path, query) = match scheme.has_buckets() {
            true => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                if let Some((_, bucket)) = bucket.rsplit_once('@') {
                    return Err(Error::PasswordInUrl {
                        place: format!("{}://{bucket}", scheme.name()),
                        remedy: "set the variables of the store's own tools",
                    });
                }
                if bucket.is_empty() || bucket.contains([':', ' ', '?', '#']) {
                    return Err(wrong("not the name of a bucket"));
                }
                (bucket.to_owned(), key.to_owned(), None)
            }
            false => parse_url(scheme, rest, wrong)?,
        };
        let typed = path.trim_start_matches('/').as_bytes();
        let is_directory = names_directory(typed);
        let name = source_name(typed).to_vec();
        let key = path.trim_matches('/');
        // `dir/.` means the content of `dir`.
        let key = match key {
            "." => "",
            key => key.strip_suffix("/.").unwrap_or(key),
        };
        let key = Key::parse(key).map_err(|_| wrong("an empty name, . or .. in the path"))?;
        Ok(Some(Self {
            scheme,
            authority,
            key,
            query,
            name,
            is_directory,
        }))
    }

    /// Returns the kind of the store.
    pub(crate) const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the bucket, or the host with its port.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the key in the bucket, or the path at the host.
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the query of a URL.
    pub(crate) fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Returns the bucket or host as a person knows it.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}://{}", self.scheme.name(), self.authority)
    }

    /// Returns the key in the bucket, or the path at the host.
    #[must_use]
    pub fn path(&self) -> &str {
        self.key.as_ref()
    }

    /// Returns the whole bucket or host.
    #[must_use]
    pub fn root(&self) -> Self {
        Self {
            key: Key::ROOT,
            query: None,
            name: Vec::new(),
            is_directory: true,
            ..self.clone()
        }
    }

    /// Returns true if the store lists what it holds.
    #[must_use]
    pub const fn is_listable(&self) -> bool {
        !matches!(self.scheme, Scheme::Web(_))
    }

    /// Returns the name of the path in a destination directory; empty if it has none of its own.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    /// Returns true if the path can only name a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.is_directory
    }
}

/// The query may hold a signature, and is not shown.
impl fmt::Display for EndpointPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            self.place(),
            printable(self.key.as_ref().as_bytes())
        )
    }
}

/// Parses a URL. Returns the host with its port, the path and the query.
fn parse_url(
    scheme: Scheme,
    rest: &str,
    wrong: impl Fn(&'static str) -> Error,
) -> Result<(String, String, Option<String>), Error> {
    let plain = match scheme {
        Scheme::Web(false) | Scheme::Dav(false) => "http",
        _ => "https",
    };
    if rest.starts_with('/') {
        return Err(wrong("no host"));
    }
    let url = Url::parse(&format!("{plain}://{rest}")).map_err(|_| wrong("not a URL"))?;
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    if !url.username().is_empty() || url.password().is_some() {
        let place = format!("{}://{authority}{}", scheme.name(), url.path());
        return Err(Error::PasswordInUrl {
            place,
            remedy: "put them into ~/.netrc, or into LONGHAUL_HTTP_USER and LONGHAUL_HTTP_PASSWORD",
        });
    }
    // The parser of URLs resolves `.` and `..`, so the text is taken.
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once('/').map_or("", |(_, path)| path);
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| wrong("a path that is not UTF-8"))?;
    let query = url.query().map(str::to_owned);
    Ok((authority, path.into_owned(), query))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> EndpointPath {
        EndpointPath::parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn locations_name_a_place_and_a_key() {
        for (text, place, key, name, is_directory) in [
            ("s3://b/runs/a.h5", "s3://b", "runs/a.h5", "a.h5", false),
            ("s3://b/runs/", "s3://b", "runs", "runs", true),
            ("s3://b/runs/.", "s3://b", "runs", "", true),
            ("s3://b", "s3://b", "", "", true),
            ("s3://b/", "s3://b", "", "", true),
            ("s3://b/a%20b", "s3://b", "a%20b", "a%20b", false),
            ("gs://b/a b#1", "gs://b", "a b#1", "a b#1", false),
            ("az://c/x", "az://c", "x", "x", false),
            ("https://h/a%20b", "https://h", "a b", "a b", false),
            ("http://h:81/a", "http://h:81", "a", "a", false),
            ("webdavs://h/d/", "webdavs://h", "d", "d", true),
            ("webdav://[::1]:8/d", "webdav://[::1]:8", "d", "d", false),
        ] {
            let path = parse(text);
            assert_eq!(path.place(), place, "{text}");
            assert_eq!(path.key().as_ref(), key, "{text}");
            assert_eq!(path.name(), name.as_bytes(), "{text}");
            assert_eq!(path.is_directory(), is_directory, "{text}");
        }
        for other in ["a/b", "lh://h/a", "s3:/b", "h:s3", "xs3://b"] {
            assert_eq!(
                EndpointPath::parse(other.as_bytes()).unwrap(),
                None,
                "{other}"
            );
        }
    }

    #[test]
    fn query_is_kept_and_not_shown() {
        let path = parse("https://h/f.zip?download=1&signature=x");
        assert_eq!(path.query(), Some("download=1&signature=x"));
        assert_eq!(path.name(), b"f.zip");
        assert_eq!(path.to_string(), "https://h/f.zip");
    }

    #[test]
    fn passwords_are_refused_and_not_repeated() {
        for text in [
            "https://ana:s3cret@h/a",
            "webdav://ana@h/a",
            "s3://ana:s3cret@b/a",
        ] {
            let error = EndpointPath::parse(text.as_bytes()).unwrap_err();
            assert!(matches!(error, Error::PasswordInUrl { .. }), "{error}");
            let shown = error.to_string();
            assert!(
                !shown.contains("s3cret") && !shown.contains("ana"),
                "{shown}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for bad in [
            "s3://",
            "s3:///a",
            "s3://b/a//b",
            "s3://b/../a",
            "gs://b/a\nb",
            "https://",
            "https:///a",
            "https://h:99999/a",
            "https://h/%ff",
            "webdav://h/a/../b",
        ] {
            let error = EndpointPath::parse(bad.as_bytes()).unwrap_err().to_string();
            assert!(
                !error.contains('\n') && error.contains("write it as"),
                "{error}"
            );
        }
    }
}
