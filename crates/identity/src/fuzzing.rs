//! Properties of any file of principals and any certificate, for [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property is to panic

use std::path::Path;

use longhaul_proto::fuzzing::{FuzzTarget, Seed, assert_one_line, text_seeds};
use longhaul_proto::text::is_printable;

use crate::certificate::CertificateFacts;
use crate::file::PrincipalsFile;
use crate::{PrincipalPattern, TrustAnchors};

/// Fuzz targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "principals",
        property: principals,
        seeds: files,
    },
    FuzzTarget {
        name: "certificate",
        property: certificate,
        // The corpus has certificates that OpenSSL made.
        seeds: Vec::new,
    },
];

/// Parses any text as a file of principals, and as a principal of a policy: it yields principals,
/// or a one-line error with its position.
fn principals(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let load = |_: &Path, _: Option<&Path>| Ok(TrustAnchors::default());
    if let Err(error) = PrincipalsFile::parse(text, Path::new("principals.toml"), load) {
        assert_one_line(&error);
        assert!(error.to_string().starts_with("principals.toml:"), "{error}");
    }
    match text.parse::<PrincipalPattern>() {
        Ok(pattern) => assert_eq!(pattern.to_string().parse(), Ok(pattern)),
        Err(error) => assert_one_line(&error),
    }
}

/// Reads any bytes as a certificate: its names are printable.
fn certificate(data: &[u8]) {
    if let Ok(facts) = CertificateFacts::read(data) {
        let printable = |name: &String| name.chars().all(is_printable);
        assert!(facts.names.iter().all(printable), "{:?}", facts.names);
    }
}

fn files() -> Vec<Seed> {
    let principal = "[[principal]]\nname = \"ana\"\n\
        keys = [\"lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq\"]\n\
        certificates = [\"/DC=org/CN=Ana\"]\ngroups = [\"lab\"]\n";
    let authority = "[[authority]]\nanchors = \"ca.pem\"\ncrls = \"crls\"\n\
        subjects = [\"/DC=org/*\", \"*@lab.example\"]\ngroups = [\"grid\"]\n";
    text_seeds(&[
        ("whole", &format!("{principal}{authority}")),
        ("twice", &format!("{principal}{principal}")),
        ("no-subjects", &authority.replace("subjects", "groups")),
        ("pattern-for-one", &principal.replace("CN=Ana", "CN=*")),
        ("unknown-field", "[[principal]]\n\"\u{202e}\\u001b\" = 1\n"),
        ("name", "name:/DC=org/CN=*"),
        ("group", "group:lab"),
        ("blank-letters", "name:h\u{3164}\u{115f}"),
        ("empty", ""),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }
}
