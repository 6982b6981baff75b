//! Tables of routes that a controller gives.
//!
//! Sessions end at an off-ramp, so its operator can read the plaintext. A controller is trusted
//! only with the choice of depots, which cannot read anything. So keys of off-ramps come from
//! `known_hosts` alone. Keys in a controller's table are dropped wherever it is read, stored or
//! printed.

use std::path::Path;

use longhaul_proto::text::printable;

use longhaul_wishes::ReserveRule;

use super::{Author, RouteRule, RouteTable, RoutesError, SessionEnd};

/// Heading of a controller's table where it is stored or printed.
const HEADING: &str =
    "# Routes chosen by a controller. Off-ramps are known by their keys in known_hosts.\n\n";

impl RouteTable {
    /// Reads a file of rules by `author`. A file that does not exist has no rules.
    ///
    /// # Errors
    /// [`RoutesError`].
    pub fn load_as(file: &Path, author: Author) -> Result<Self, RoutesError> {
        Ok(Self::load(file)?.with_author(author))
    }

    fn with_author(self, author: Author) -> Self {
        let rules = match author {
            Author::User => self.rules,
            Author::Controller => self
                .rules
                .into_iter()
                .map(RouteRule::restricted_to_controller)
                .collect(),
        };
        Self { rules, author }
    }
}

impl RouteRule {
    /// Returns the rule without the settings that a controller does not decide.
    fn restricted_to_controller(self) -> Self {
        let end = match self.end {
            SessionEnd::Offramp { at, .. } => SessionEnd::Offramp { at, key: None },
            end => end,
        };
        Self {
            end,
            always: false,
            fall_back: true,
            reserve: ReserveRule::default(),
            delegate: false,
            ..self
        }
    }
}

/// Returns the text of a controller's table without the settings that a controller does not decide,
/// so that it can be used as a user's own table.
///
/// # Errors
/// [`RoutesError`] if the text is not a table of routes.
pub fn without_trusted_settings(text: &str) -> Result<String, RoutesError> {
    let file = Path::new("routes.toml");
    RouteTable::parse(text, file)?;
    // Just parsed as a table, so errors are not expected.
    let malformed = |problem: String| RoutesError::Line {
        file: file.to_owned(),
        line: 1,
        problem: printable(problem.as_bytes()),
    };
    let mut table: toml::Table =
        toml::from_str(text).map_err(|error| malformed(error.message().to_owned()))?;
    let rules = table.get_mut("route").and_then(toml::Value::as_array_mut);
    for rule in rules
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_table_mut)
    {
        for option in ["always", "fall_back", "reserve", "delegate"] {
            rule.remove(option);
        }
        if let Some(toml::Value::String(offramp)) = rule.get_mut("offramp")
            && let Some((_, at)) = offramp.rsplit_once('@')
        {
            *offramp = at.to_owned();
        }
    }
    let text = toml::to_string(&table).map_err(|error| malformed(error.to_string()))?;
    Ok(format!("{HEADING}{text}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)] // a test may panic

    use super::*;

    const KEY: &str = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq";

    fn table() -> String {
        format!(
            "# by evil\n[[route]]\nto = [\"*\"]\nports = [\"1-65535\"]\n\
             offramp = \"{KEY}@evil.example\"\n\
             always = true\nfall_back = false\n[[route]]\nto = [\"a.example\"]\n\
             via = \"{KEY}@d.example\"\n\
             acceptor = true\n"
        )
    }

    #[test]
    fn controller_table_cannot_set_offramp_keys() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("routes.toml");
        std::fs::write(&file, table()).unwrap();
        let read = RouteTable::load_as(&file, Author::Controller).unwrap();
        let [first, second] = read.rules() else {
            panic!("{read:?}")
        };
        let SessionEnd::Offramp { at, key } = &first.end else {
            panic!("{first:?}")
        };
        assert_eq!(
            (at.to_string(), *key),
            ("evil.example:7512".to_owned(), None)
        );
        assert!(!first.always && first.fall_back, "it only speeds up");
        // Depots cannot read anything, so a controller may set their keys.
        assert!(second.via.to_string().starts_with(KEY));
        assert_eq!(read.author(), Author::Controller);
        let own = RouteTable::load_as(&file, Author::User).unwrap();
        assert!(own.rules()[0].always && own.author() == Author::User);
    }

    #[test]
    fn stored_controller_table_has_no_offramp_keys() {
        let text = without_trusted_settings(&table()).unwrap();
        let file = Path::new("routes.toml");
        let kept = RouteTable::parse(&text, file).unwrap();
        let by_controller = RouteTable::parse(&table(), file)
            .unwrap()
            .with_author(Author::Controller);
        for (kept, rule) in kept.rules().iter().zip(by_controller.rules()) {
            assert_eq!((&kept.end, &kept.via), (&rule.end, &rule.via));
            assert_eq!((kept.always, kept.fall_back), (false, true));
            assert_eq!(
                (kept.destinations().len(), kept.ports()),
                (rule.destinations().len(), rule.ports())
            );
        }
        assert_eq!(
            without_trusted_settings(&text).unwrap(),
            text,
            "the same rules are the same text"
        );
        without_trusted_settings("[[rout]]\n").unwrap_err();
        assert!(
            RouteTable::parse(&without_trusted_settings("").unwrap(), file)
                .unwrap()
                .rules()
                .is_empty()
        );
    }
}
