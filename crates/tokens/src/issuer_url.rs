//! URLs of issuers, and of what they name.

use std::fmt;
use std::net::IpAddr;

use longhaul_proto::text::printable;
use url::{Host, Url};

/// URL of an issuer, exactly as its tokens have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IssuerUrl {
    text: String,
    url: Url,
}

/// Reason why a URL is not one of an issuer. Use `https://`, without a login, query or fragment.
/// `http://` is possible for addresses of this machine alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{url:?} is not the URL of an issuer: write https://HOST/PATH, exactly as the issuer's tokens \
     have it"
)]
pub struct IssuerUrlError {
    url: String,
}

impl IssuerUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`IssuerUrlError`].
    pub fn parse(text: &str) -> Result<Self, IssuerUrlError> {
        let wrong = || IssuerUrlError {
            url: printable(text.as_bytes()),
        };
        let url = Url::parse(text).map_err(|_| wrong())?;
        let is_plain = url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        match is_plain && is_protected(&url) {
            true => Ok(Self {
                text: text.to_owned(),
                url,
            }),
            false => Err(wrong()),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the issuer is a program of this machine, for tests.
    pub(crate) fn is_local(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// Returns the places of the issuer's metadata, in the order in which they are tried: OpenID
    /// Connect Discovery 1.0, section 4, and RFC 8414, section 3.
    pub(crate) fn metadata_urls(&self) -> Vec<Url> {
        let path = self.url.path().trim_end_matches('/').to_owned();
        let at = |path: String| {
            let mut url = self.url.clone();
            url.set_path(&path);
            url
        };
        let mut urls = vec![
            at(format!("{path}/.well-known/openid-configuration")),
            at(format!("/.well-known/oauth-authorization-server{path}")),
        ];
        // SciTokens' library looks here.
        let scitokens = at(format!("{path}/.well-known/oauth-authorization-server"));
        if !urls.contains(&scitokens) {
            urls.push(scitokens);
        }
        urls
    }

    /// Returns true if the issuer may name this URL for its keys or answers.
    pub(crate) fn may_name(&self, url: &Url) -> bool {
        url.scheme() == "https" || (self.is_local() && is_protected(url))
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(self.text.as_bytes()))
    }
}

/// Returns true if nobody on the network can change what is fetched from `url`.
fn is_protected(url: &Url) -> bool {
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => true,
        ("http", Some(Host::Ipv4(ip))) => IpAddr::V4(ip).is_loopback(),
        ("http", Some(Host::Ipv6(ip))) => IpAddr::V6(ip).is_loopback(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_are_protected_by_tls_or_local() {
        for good in [
            "https://iam.example.org/",
            "https://iam.example.org",
            "https://iam.example.org:8443/realms/one",
            "http://127.0.0.1:3000",
            "http://[::1]:3000/x",
        ] {
            assert_eq!(IssuerUrl::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "iam.example.org",
            "http://iam.example.org/",
            "http://localhost/",
            "http://192.0.2.1/",
            "ftp://iam.example.org/",
            "https://user@iam.example.org/",
            "https://:secret@iam.example.org/",
            "https://iam.example.org/?a=b",
            "https://iam.example.org/#a",
        ] {
            assert!(IssuerUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metadata_is_looked_for_where_the_standards_say() {
        let urls = |text: &str| -> Vec<String> {
            let urls = IssuerUrl::parse(text).unwrap().metadata_urls();
            urls.into_iter().map(String::from).collect()
        };
        for text in ["https://a.example/", "https://a.example"] {
            assert_eq!(
                urls(text),
                [
                    "https://a.example/.well-known/openid-configuration",
                    "https://a.example/.well-known/oauth-authorization-server",
                ]
            );
        }
        assert_eq!(
            urls("https://a.example/realms/one"),
            [
                "https://a.example/realms/one/.well-known/openid-configuration",
                "https://a.example/.well-known/oauth-authorization-server/realms/one",
                "https://a.example/realms/one/.well-known/oauth-authorization-server",
            ]
        );
    }

    #[test]
    fn issuer_cannot_lead_to_an_unprotected_url() {
        let url = |text: &str| Url::parse(text).unwrap();
        let remote = IssuerUrl::parse("https://a.example/").unwrap();
        assert!(remote.may_name(&url("https://b.example/keys")));
        assert!(!remote.may_name(&url("http://127.0.0.1/keys")));
        assert!(!remote.may_name(&url("http://a.example/keys")));
        let local = IssuerUrl::parse("http://127.0.0.1:1/").unwrap();
        assert!(local.may_name(&url("http://127.0.0.1:2/keys")));
        assert!(!local.may_name(&url("http://192.0.2.1/keys")));
        assert!(!local.may_name(&url("file:///etc/passwd")));
    }
}
