//! Trust of a server in issuers: the file of `longhaul serve --issuers`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use longhaul_proto::text::printable;
use longhaul_session::read_trusted_file;
use longhaul_transfer::path::RelPath;
use serde::Deserialize;

use crate::claims::OneOrMany;
use crate::error::IssuersError;
use crate::issuer_url::IssuerUrl;

/// Leeway for the clocks of issuers, unless the file says otherwise.
const DEFAULT_LEEWAY: Duration = Duration::from_secs(60);
/// Maximum leeway.
const MAX_LEEWAY: Duration = Duration::from_secs(600);
/// Maximum number of issuers. Each is asked for its keys in the background.
const MAX_ISSUERS: usize = 64;

/// The issuers that a server trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IssuerPolicies(Vec<IssuerPolicy>);

/// Trust in one issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPolicy {
    /// URL of the issuer, exactly as the claim `iss` has it.
    pub url: IssuerUrl,
    /// Names of this server. A token is for one of them.
    pub audience: Vec<String>,
    /// If true, tokens for any audience are accepted, too.
    pub any_audience: bool,
    /// Directory beneath the server's root to which the paths of the issuer's scopes belong.
    pub base: RelPath,
    /// Scopes that a token must have, besides those that permit access to files.
    pub require_scopes: Vec<String>,
    /// Groups of which a token must have one, if there are any.
    pub require_groups: Vec<String>,
    /// Subjects whose tokens are refused.
    pub deny_subjects: BTreeSet<String>,
    /// Leeway for the issuer's clock.
    pub leeway: Duration,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuersFile {
    #[serde(default)]
    issuer: Vec<FileIssuer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIssuer {
    url: toml::Spanned<String>,
    audience: OneOrMany,
    #[serde(default)]
    any_audience: bool,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    require_scopes: Vec<String>,
    #[serde(default)]
    require_groups: Vec<String>,
    #[serde(default)]
    deny_subjects: BTreeSet<String>,
    #[serde(default)]
    leeway_seconds: Option<u64>,
}

impl IssuerPolicies {
    /// Reads the file.
    ///
    /// # Errors
    /// [`IssuersError`].
    pub fn load(path: &Path) -> Result<Self, IssuersError> {
        let file = printable(path.as_os_str().as_encoded_bytes());
        let text = read_trusted_file(path).map_err(|source| IssuersError::Read {
            file: file.clone(),
            source,
        })?;
        Self::parse(&text, &file)
    }

    /// Parses the text of the file. `file` is its name in errors.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Self, IssuersError> {
        let at = |byte: usize| {
            let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
            let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
            format!("{file}:{line}")
        };
        let parsed: IssuersFile = toml::from_str(text).map_err(|error| IssuersError::Form {
            file: error.span().map_or(file.to_owned(), |span| at(span.start)),
            // The message quotes the file.
            detail: printable(error.message().replace('\n', " ").as_bytes()),
        })?;
        if parsed.issuer.len() > MAX_ISSUERS {
            return Err(IssuersError::Form {
                file: file.to_owned(),
                detail: format!("it has more than {MAX_ISSUERS} issuers"),
            });
        }
        let mut policies: Vec<IssuerPolicy> = Vec::new();
        for issuer in parsed.issuer {
            let place = at(issuer.url.span().start);
            let wrong = |detail: String| IssuersError::Form {
                file: place.clone(),
                detail,
            };
            let policy = IssuerPolicy::from_file(issuer).map_err(wrong)?;
            if policies.iter().any(|other| other.url == policy.url) {
                return Err(wrong(format!("{} is there twice", policy.url)));
            }
            policies.push(policy);
        }
        Ok(Self(policies))
    }

    /// Returns true if no issuer is trusted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the policies.
    pub(crate) fn into_vec(self) -> Vec<IssuerPolicy> {
        self.0
    }
}

impl IssuerPolicy {
    fn from_file(file: FileIssuer) -> Result<Self, String> {
        let url = IssuerUrl::parse(file.url.get_ref()).map_err(|error| error.to_string())?;
        let audience = file.audience.values().to_vec();
        if audience.is_empty() || audience.iter().any(String::is_empty) {
            return Err("audience: write the names by which the issuer knows this server".into());
        }
        let base = RelPath::from_typed(file.base.unwrap_or_default().as_bytes())
            .map_err(|error| format!("base: {error}"))?;
        let leeway = file
            .leeway_seconds
            .map_or(DEFAULT_LEEWAY, Duration::from_secs);
        if leeway > MAX_LEEWAY {
            let most = MAX_LEEWAY.as_secs();
            return Err(format!("leeway_seconds: at most {most}"));
        }
        Ok(Self {
            url,
            audience,
            any_audience: file.any_audience,
            base,
            require_scopes: file.require_scopes,
            require_groups: file.require_groups,
            deny_subjects: file.deny_subjects,
            leeway,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<IssuerPolicies, IssuersError> {
        IssuerPolicies::parse(text, "issuers.toml")
    }

    #[test]
    fn file_of_issuers_is_parsed() {
        let text = "[[issuer]]\nurl = \"https://a.example/\"\naudience = \"https://dtn.example\"\n\
                    [[issuer]]\nurl = \"https://b.example\"\naudience = [\"x\", \"y\"]\n\
                    base = \"/b\"\nrequire_scopes = [\"z\"]\nrequire_groups = [\"/g\"]\n\
                    deny_subjects = [\"eve\"]\nany_audience = true\nleeway_seconds = 0\n";
        let policies = parse(text).unwrap().into_vec();
        let [first, second] = &policies[..] else {
            panic!("two issuers");
        };
        assert_eq!(first.url.as_str(), "https://a.example/");
        assert_eq!(first.audience, ["https://dtn.example"]);
        assert!(first.base.is_root() && !first.any_audience);
        assert_eq!(first.leeway, DEFAULT_LEEWAY);
        assert_eq!(second.audience, ["x", "y"]);
        assert_eq!(second.base, RelPath::from_typed(b"b").unwrap());
        assert_eq!(second.leeway, Duration::ZERO);
        assert!(second.deny_subjects.contains("eve") && second.any_audience);
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn errors_of_the_file_have_a_line() {
        let issuer = "\n[[issuer]]\nurl = \"https://a.example/\"\naudience = \"x\"\n";
        for (text, line) in [
            ("[[issuer]\n".to_owned(), 1),
            ("\n[[issuer]]\nurl = 5\naudience = \"x\"\n".to_owned(), 3),
            ("\n[[issuer]]\nurl = \"https://a.example/\"\n".to_owned(), 2),
            (
                "\n[[issuer]]\nurl = \"http://a.example/\"\naudience = \"x\"\n".into(),
                3,
            ),
            (format!("{issuer}base = \"/a/../b\"\n"), 3),
            (format!("{issuer}leeway_seconds = 601\n"), 3),
            (format!("{issuer}bases = \"/\"\n"), 5),
            (format!("{issuer}{issuer}"), 7),
            (
                "\n[[issuer]]\nurl = \"https://a.example/\"\naudience = []\n".into(),
                3,
            ),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            let place = format!("issuers.toml:{line}: ");
            assert!(error.contains(&place) && !error.contains('\n'), "{error}");
        }
    }
}
