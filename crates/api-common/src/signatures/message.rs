//! Components of a request that a signature can cover (RFC 9421, section 2), and the text that is
//! signed (section 2.5).

use http::request::Parts;
use http::{HeaderMap, HeaderName, header};

use super::SignatureError;

/// URL scheme: whether a request uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the suffix of an authority with the default port, which is omitted.
    fn default_port(self) -> &'static str {
        match self {
            Self::Http => ":80",
            Self::Https => ":443",
        }
    }
}

/// Request without its body.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    method: &'a str,
    scheme: Scheme,
    /// Authority as it is signed: in lower case, without the scheme's default port.
    authority: String,
    path: &'a str,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl<'a> Message<'a> {
    /// Creates the message of a request as it is sent, with exactly one `Host`.
    ///
    /// # Errors
    /// There is no `Host` or more than one, or the target names another authority.
    pub fn from_parts(parts: &'a Parts, scheme: Scheme) -> Result<Self, SignatureError> {
        let mut hosts = parts.headers.get_all(header::HOST).iter();
        let (host, None) = (hosts.next(), hosts.next()) else {
            return Err(SignatureError::Malformed("more than one Host"));
        };
        let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        let authority = normalise_authority(host, scheme);
        if authority.is_empty() {
            return Err(SignatureError::Malformed("no Host"));
        }
        if let Some(other) = parts.uri.authority()
            && normalise_authority(other.as_str(), scheme) != authority
        {
            return Err(SignatureError::Malformed("Host is not that of the target"));
        }
        Ok(Self {
            method: parts.method.as_str(),
            scheme,
            authority,
            path: parts.uri.path(),
            query: parts.uri.query(),
            headers: &parts.headers,
        })
    }

    /// Returns the host and port of the request, as in `@authority`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.headers
    }

    /// Returns the text that is signed.
    ///
    /// # Errors
    /// A component is not supported or not present.
    pub(super) fn signature_base(
        &self,
        components: &[String],
        parameters: &str,
    ) -> Result<String, SignatureError> {
        let mut base = String::new();
        for component in components {
            let value = self.component(component)?;
            base.push_str(&format!("\"{component}\": {value}\n"));
        }
        base.push_str(&format!("\"@signature-params\": {parameters}"));
        Ok(base)
    }

    fn component(&self, name: &str) -> Result<String, SignatureError> {
        let path = if self.path.is_empty() { "/" } else { self.path };
        let query = || {
            self.query
                .map(|query| format!("?{query}"))
                .unwrap_or_default()
        };
        Ok(match name {
            "@method" => self.method.to_owned(),
            "@scheme" => self.scheme.as_str().to_owned(),
            "@authority" => self.authority.clone(),
            "@target-uri" => format!(
                "{}://{}{path}{}",
                self.scheme.as_str(),
                self.authority,
                query()
            ),
            "@request-target" => format!("{path}{}", query()),
            "@path" => path.to_owned(),
            "@query" => format!("?{}", self.query.unwrap_or_default()),
            _ => {
                // Field names are in lower case (section 2.1).
                let is_field = HeaderName::from_lowercase(name.as_bytes()).is_ok();
                if !is_field {
                    return Err(SignatureError::Component(name.to_owned()));
                }
                return combined_field(self.headers, name)?
                    .ok_or_else(|| SignatureError::Absent(name.to_owned()));
            }
        })
    }
}

/// Normalises an authority for signing (section 2.2.3).
pub fn normalise_authority(authority: &str, scheme: Scheme) -> String {
    let lower = authority.to_ascii_lowercase();
    match lower.strip_suffix(scheme.default_port()) {
        Some(host) => host.to_owned(),
        None => lower,
    }
}

/// Returns a field's lines, trimmed and joined by commas (section 2.1). `None` if it is absent.
///
/// # Errors
/// The field has bytes that are not ASCII.
pub(super) fn combined_field(
    headers: &HeaderMap,
    name: &str,
) -> Result<Option<String>, SignatureError> {
    let mut lines = Vec::new();
    for line in headers.get_all(name) {
        let line = line
            .to_str()
            .map_err(|_| SignatureError::Malformed("a field that is not ASCII"))?;
        lines.push(line.trim_matches([' ', '\t']));
    }
    Ok((!lines.is_empty()).then(|| lines.join(", ")))
}
