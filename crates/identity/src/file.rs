//! The file of principals: parsing of TOML, with errors that name the line.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_hop::read_trusted_file;
use longhaul_proto::text::printable;
use longhaul_proto::{PublicKey, Voucher, VoucherFault};
use serde::Deserialize;
use toml::Spanned;

use crate::authority::{Authority, VouchedIdentity, judge};
use crate::principal_pattern::check_group;
use crate::{IdentityError, NamePattern, Principal, TrustAnchors};

/// Maximum length of a principal's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Principals and authorities of a file.
#[derive(Debug, Default)]
pub(crate) struct PrincipalsFile {
    by_key: HashMap<PublicKey, Vec<Arc<NamedPrincipal>>>,
    /// Principals by the names of their certificates.
    by_certificate: HashMap<String, Vec<Arc<NamedPrincipal>>>,
    authorities: Vec<Authority>,
}

/// A principal that the file names.
#[derive(Debug)]
struct NamedPrincipal {
    name: String,
    groups: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    principal: Vec<PrincipalText>,
    #[serde(default)]
    authority: Vec<AuthorityText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrincipalText {
    name: Spanned<String>,
    #[serde(default)]
    keys: Vec<Spanned<String>>,
    #[serde(default)]
    certificates: Vec<Spanned<String>>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorityText {
    anchors: PathBuf,
    crls: Option<PathBuf>,
    subjects: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
}

impl PrincipalsFile {
    /// Loads the file, and the certificates that it names. Their paths are relative to the file.
    pub(crate) fn load(path: &Path) -> Result<Self, IdentityError> {
        let text = read_trusted_file(path).map_err(|source| IdentityError::Unreadable {
            file: path.to_owned(),
            source,
        })?;
        let dir = path.parent().unwrap_or(Path::new("."));
        let load = |anchors: &Path, crls: Option<&Path>| {
            let crls = crls.map(|crls| dir.join(crls));
            TrustAnchors::load(&dir.join(anchors), crls.as_deref())
        };
        Self::parse(&text, path, load)
    }

    /// Parses the text of a file. `load` loads anchors and revocation lists.
    pub(crate) fn parse(
        text: &str,
        file: &Path,
        load: impl Fn(&Path, Option<&Path>) -> Result<TrustAnchors, IdentityError>,
    ) -> Result<Self, IdentityError> {
        let at = TextPosition { text, file };
        let parsed: FileText = toml::from_str(text).map_err(|error| {
            at.error(
                error.span().unwrap_or(0..0),
                &error.message().replace('\n', " "),
            )
        })?;
        let mut read = Self::default();
        let mut names = HashMap::new();
        for principal in parsed.principal {
            let span = principal.name.span();
            check_name(principal.name.get_ref())
                .map_err(|problem| at.error(span.clone(), problem))?;
            let name = principal.name.into_inner();
            if names.insert(name.clone(), ()).is_some() {
                let problem = format!("{name:?} is named twice: list all its keys in one place");
                return Err(at.error(span, &problem));
            }
            if principal.keys.is_empty() && principal.certificates.is_empty() {
                let problem = "it has neither keys nor certificates: list some, or remove it";
                return Err(at.error(span, problem));
            }
            let named = Arc::new(NamedPrincipal {
                name,
                groups: at.groups(principal.groups)?,
            });
            for key in &principal.keys {
                let parsed = key.get_ref().parse::<PublicKey>().map_err(|error| {
                    at.error(key.span(), &format!("{:?} is {error}", key.get_ref()))
                })?;
                read.by_key.entry(parsed).or_default().push(named.clone());
            }
            for certificate in principal.certificates {
                let span = certificate.span();
                let pattern: NamePattern = certificate
                    .get_ref()
                    .parse()
                    .map_err(|problem: String| at.error(span.clone(), &problem))?;
                let Some(exact) = pattern.exact() else {
                    let problem = "a certificate of one principal has one name, without *: \
                        authorities and policies may have patterns";
                    return Err(at.error(span, problem));
                };
                let listed = read.by_certificate.entry(exact.to_owned()).or_default();
                listed.push(named.clone());
            }
        }
        for authority in parsed.authority {
            let subjects = authority.subjects;
            if subjects.get_ref().is_empty() {
                let problem = "subjects is empty: list the names that the authority may vouch for";
                return Err(at.error(subjects.span(), problem));
            }
            let parse = |subject: Spanned<String>| {
                subject
                    .get_ref()
                    .parse::<NamePattern>()
                    .map_err(|problem| at.error(subject.span(), &problem))
            };
            read.authorities.push(Authority {
                subjects: subjects
                    .into_inner()
                    .into_iter()
                    .map(parse)
                    .collect::<Result<_, _>>()?,
                groups: at.groups(authority.groups)?,
                anchors: load(&authority.anchors, authority.crls.as_deref())?,
            });
        }
        Ok(read)
    }

    /// Returns true if certificates can vouch for keys.
    pub(crate) fn has_authorities(&self) -> bool {
        !self.authorities.is_empty()
    }

    /// Judges a voucher (LH-VOUCHER-5).
    pub(crate) fn judge(
        &self,
        voucher: &Voucher,
        now_unix_ms: u64,
    ) -> Result<VouchedIdentity, VoucherFault> {
        judge(&self.authorities, voucher, now_unix_ms)
    }

    /// Returns the principal of a key, with what was vouched for it.
    pub(crate) fn principal(&self, key: PublicKey, vouched: Option<&VouchedIdentity>) -> Principal {
        let mut principal = Principal::from_key(key);
        for named in self.by_key.get(&key).into_iter().flatten() {
            named.add_to(&mut principal, None);
        }
        if let Some(vouched) = vouched {
            let end = Some(vouched.end_unix_ms);
            principal.extend(vouched.names.clone(), vouched.groups.clone(), end);
            let listed = vouched.names.iter();
            let named = listed.filter_map(|name| self.by_certificate.get(name));
            for named in named.flatten() {
                named.add_to(&mut principal, end);
            }
        }
        principal
    }
}

impl NamedPrincipal {
    fn add_to(&self, principal: &mut Principal, end: Option<u64>) {
        principal.extend([self.name.clone()], self.groups.clone(), end);
    }
}

/// Checks that a name cannot be confused with one of a certificate, which has `/`, `@` or `:`.
fn check_name(name: &str) -> Result<(), &'static str> {
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match fits && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err("a name has 1 to 64 letters, digits, '.', '_' and '-'"),
    }
}

/// Text of a file, for errors.
struct TextPosition<'a> {
    text: &'a str,
    file: &'a Path,
}

impl TextPosition<'_> {
    fn error(&self, span: Range<usize>, problem: &str) -> IdentityError {
        let bytes = self.text.as_bytes();
        let before = bytes.get(..span.start).unwrap_or(bytes);
        IdentityError::Field {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            // The problem may quote the file.
            problem: printable(problem.as_bytes()),
        }
    }

    fn groups(&self, groups: Vec<Spanned<String>>) -> Result<Vec<String>, IdentityError> {
        let parse = |group: Spanned<String>| {
            check_group(group.get_ref()).map_err(|problem| self.error(group.span(), problem))?;
            Ok(group.into_inner())
        };
        groups.into_iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PrincipalsFile, IdentityError> {
        let load = |_: &Path, _: Option<&Path>| Ok(TrustAnchors::default());
        PrincipalsFile::parse(text, Path::new("principals.toml"), load)
    }

    fn vouched(name: &str) -> VouchedIdentity {
        VouchedIdentity {
            subject: name.to_owned(),
            names: vec![name.to_owned()],
            groups: vec!["grid".to_owned()],
            end_unix_ms: 9,
        }
    }

    #[test]
    fn keys_and_certificates_have_names_and_groups() {
        let key = PublicKey::from_bytes([1; 32]);
        let file = parse(&format!(
            "[[principal]]\nname = \"ana\"\nkeys = [\"{key}\"]\ncertificates = [\"/CN=Ana\"]\n\
             groups = [\"lab\"]\n[[authority]]\nanchors = \"ca.pem\"\nsubjects = [\"/CN=*\"]\n"
        ))
        .unwrap();
        assert!(file.has_authorities());
        let ana = file.principal(key, None);
        assert!(ana.names.contains("ana") && ana.groups.contains("lab"));
        assert_eq!(ana.expires_unix_ms, None);
        let other = PublicKey::from_bytes([2; 32]);
        assert_eq!(file.principal(other, None), Principal::from_key(other));
        let by_certificate = file.principal(other, Some(&vouched("/CN=Ana")));
        assert!(by_certificate.names.contains("ana") && by_certificate.names.contains("/CN=Ana"));
        assert!(by_certificate.groups.contains("lab") && by_certificate.groups.contains("grid"));
        assert_eq!(by_certificate.expires_unix_ms, Some(9));
        let stranger = file.principal(other, Some(&vouched("/CN=Bo")));
        assert!(!stranger.names.contains("ana") && !stranger.groups.contains("lab"));
    }

    #[test]
    fn errors_name_the_line_on_one_line() {
        for (text, line) in [
            ("[[principal]]\nname = \"a b\"\nkeys = [\"x\"]\n", 2),
            ("[[principal]]\nname = \"/CN=x\"\n", 2),
            ("[[principal]]\nname = \"ana@lab.example\"\n", 2),
            ("[[principal]]\nname = \"ana\"\n", 2),
            ("[[principal]]\nname = \"ana\"\nkeys = [\"x\"]\n", 3),
            (
                "[[principal]]\nname = \"ana\"\ncertificates = [\"/CN=*\"]\n",
                3,
            ),
            (
                "[[principal]]\nname = \"ana\"\ncertificates = [\"x\"]\ngroups = [\"\"]\n",
                4,
            ),
            ("[[principal]]\nnome = \"ana\"\n", 2),
            ("[[authority]]\nanchors = \"ca.pem\"\nsubjects = []\n", 3),
            ("[[authority]\n", 1),
        ] {
            let error = parse(text).unwrap_err().to_string();
            let place = format!("principals.toml:{line}: ");
            assert!(
                error.starts_with(&place) && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn a_name_is_defined_once() {
        let one = "[[principal]]\nname = \"ana\"\ncertificates = [\"/CN=Ana\"]\n";
        assert!(parse(one).is_ok());
        assert!(parse(&format!("{one}{one}")).is_err());
    }
}
