//! Other names of the program. A link named `scp`, `bbcp` or `lget` takes the command line of that
//! program, which is translated to one of `longhaul cp`. Pure.

use std::ffi::OsString;
use std::path::Path;

mod bbcp;
mod flag_table;
mod lget;
mod scp;

/// A command line of `longhaul`, and what the user should know about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The command line, beginning with the name of the program.
    pub arguments: Vec<OsString>,
    /// Lines about flags that have no effect.
    pub notes: Vec<String>,
}

/// A command line that cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum AliasError {
    /// The command line is wrong, or asks for help. Flags are those of the program whose name is
    /// used.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The flag would change what is copied, or how much it burdens others, and Longhaul has
    /// nothing equal. The message says what to use instead.
    #[error("{program}: {flag}: {instead}")]
    Flag {
        /// Name of the program that is called.
        program: &'static str,
        /// The flag, with its value.
        flag: String,
        /// What to do.
        instead: &'static str,
    },
    /// The path is a URL of scp, which is not supported. Write `user@host:path`, and give the port
    /// with `-P`.
    #[error("{program}: {path}: write it as user@host:path, and give the port with -P")]
    Url {
        /// Name of the program that is called.
        program: &'static str,
        /// The path.
        path: String,
    },
}

/// Translates a command line, if the name of the program is an alias. Others stay as they are.
///
/// # Errors
/// [`AliasError`].
pub fn translate(arguments: Vec<OsString>) -> Result<Translation, AliasError> {
    let name = arguments
        .first()
        .and_then(|name| Path::new(name).file_name());
    let table = match name.and_then(|name| name.to_str()) {
        Some("scp") => &scp::TABLE,
        Some("bbcp") => &bbcp::TABLE,
        Some("lget") => return lget::translate(arguments),
        _ => {
            return Ok(Translation {
                arguments,
                notes: Vec::new(),
            });
        }
    };
    table.translate(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Translates words, which are split at spaces.
    fn words(line: &str) -> Result<Translation, AliasError> {
        translate(line.split(' ').map(OsString::from).collect())
    }

    fn translated(line: &str) -> (String, Vec<String>) {
        let translation = words(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let arguments: Vec<String> = translation
            .arguments
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        (arguments.join(" "), translation.notes)
    }

    #[test]
    fn other_names_are_left_alone() {
        for line in [
            "longhaul cp -r a b",
            "/usr/bin/longhaul -C",
            "./longhaul-1 x",
            "",
        ] {
            assert_eq!(translated(line), (line.to_owned(), vec![]));
        }
    }

    #[test]
    fn scp_becomes_cp_that_overwrites() {
        for (line, expected) in [
            ("scp a b", "longhaul cp --overwrite -- a b"),
            (
                "/usr/local/bin/scp -rpq a ana@h:b",
                "longhaul cp --overwrite -q -r -- a ana@h:b",
            ),
            (
                "scp -P 2222 -i key -oUser=x -o Port=3 -J hub h:a .",
                "longhaul cp --overwrite -Jhub -P2222 -ikey -oUser=x -oPort=3 -- h:a .",
            ),
            ("scp -4Bv a h:", "longhaul cp --overwrite -4 -B -v -- a h:"),
            ("scp -- - h:", "longhaul cp --overwrite -- ./- h:"),
            ("scp a lh://h/b", "longhaul cp --overwrite -- a lh://h/b"),
        ] {
            assert_eq!(translated(line), (expected.to_owned(), vec![]), "{line}");
        }
    }

    #[test]
    fn flags_of_scp_without_effect_are_reported() {
        let (line, notes) = translated("scp -C -c aes128-ctr -3 a:f b:");
        assert_eq!(line, "longhaul cp --overwrite -- a:f b:");
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(
            notes
                .iter()
                .all(|note| note.starts_with("scp: -") && !note.contains('\n'))
        );
        assert!(
            notes
                .iter()
                .any(|note| note.starts_with("scp: -c aes128-ctr: "))
        );
        // scp -q suppresses warnings.
        assert_eq!(translated("scp -qC a b").1, [""; 0]);
    }

    #[test]
    fn flags_that_would_change_the_result_are_refused() {
        for (line, flag) in [
            ("scp -l 8000 a h:", "scp: -l 8000: "),
            ("scp -D /x a h:", "scp: -D /x: "),
            ("bbcp -x 10M a h:b", "bbcp: -x 10M: "),
            ("bbcp -m 0644 a h:b", "bbcp: -m 0644: "),
            ("bbcp -I list h:b c", "bbcp: -I list: "),
        ] {
            let error = words(line).unwrap_err();
            assert!(matches!(error, AliasError::Flag { .. }), "{line}: {error}");
            let text = error.to_string();
            assert!(text.starts_with(flag) && !text.contains('\n'), "{text}");
        }
        assert!(matches!(
            words("scp scp://h:22/f ."),
            Err(AliasError::Url { .. })
        ));
    }

    #[test]
    fn invalid_command_lines_are_refused() {
        for line in [
            "scp a",
            "scp -Y a b",
            "scp -P",
            "bbcp",
            "lget",
            "lget a b c",
        ] {
            let error = words(line).unwrap_err();
            assert!(
                matches!(error, AliasError::CommandLine(_)),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn bbcp_becomes_cp() {
        for (line, expected) in [
            ("bbcp -s 16 a h:b", "longhaul cp --streams=16 -- a h:b"),
            (
                "bbcp -r -f -v a h:b",
                "longhaul cp --overwrite -r -v -- a h:b",
            ),
            (
                "bbcp -Z 5031:5040 a h:b",
                "longhaul cp --port-range=5031-5040 -- a h:b",
            ),
            (
                "bbcp -Z 5031 a h:b",
                "longhaul cp --port-range=5031-5031 -- a h:b",
            ),
            ("bbcp -y dd a h:b", "longhaul cp --fsync -- a h:b"),
            (
                "bbcp -O -p -k a h:b",
                "longhaul cp --ignore-existing -- a h:b",
            ),
            // An optional value is the next word, unless that is a flag.
            ("bbcp -a dir -A a h:b", "longhaul cp -- a h:b"),
            ("bbcp -a -- a h:b", "longhaul cp -- a h:b"),
        ] {
            assert_eq!(translated(line).0, expected, "{line}");
        }
    }

    #[test]
    fn flags_of_bbcp_without_effect_are_reported() {
        let (line, notes) = translated("bbcp -P 2 -w 8M -z -T ssh a h:b");
        assert_eq!(line, "longhaul cp -- a h:b");
        assert_eq!(notes.len(), 4, "{notes:?}");
        let window = "bbcp: -w 8M: windows are set automatically";
        assert!(notes.iter().any(|note| note == window), "{notes:?}");
    }

    #[test]
    fn lget_copies_to_the_current_directory() {
        for (line, expected) in [
            ("lget lh://h/f", "longhaul cp lh://h/f ."),
            ("lget -q -r lh://h/d to", "longhaul cp -q -r lh://h/d to"),
            ("lget -- h:f", "longhaul cp -- h:f ."),
            (
                "lget lh://h/f --route d.example",
                "longhaul cp lh://h/f --route d.example .",
            ),
        ] {
            assert_eq!(translated(line), (expected.to_owned(), vec![]), "{line}");
        }
    }

    #[test]
    fn translations_are_accepted_command_lines() {
        for line in [
            "scp -rpqvB4 a b",
            "scp -P 22 -i k -F f -J j -o X=y -S ssh -r a h:b",
            "bbcp -r -f -v -V -s 4 -Z 1:2 -y d -i key -4 -O a h:b",
            "lget -r lh://h/f",
        ] {
            let translation = words(line).unwrap();
            let command = crate::command();
            let parsed = command.try_get_matches_from(&translation.arguments);
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }

    #[test]
    fn every_flag_has_help() {
        for program in ["scp", "bbcp", "lget"] {
            let error = words(&format!("{program} --help")).unwrap_err();
            let AliasError::CommandLine(help) = error else {
                panic!("no help")
            };
            assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
            assert!(
                help.to_string().contains(&format!("Usage: {program} ")),
                "{help}"
            );
        }
    }

    #[test]
    fn names_of_any_bytes_stay() {
        use std::os::unix::ffi::OsStringExt;
        let name = OsString::from_vec(b"a\xff".to_vec());
        let arguments = vec![
            "scp".into(),
            "-i".into(),
            name.clone(),
            name.clone(),
            "h:".into(),
        ];
        let translation = translate(arguments).unwrap();
        assert_eq!(translation.arguments.get(5), Some(&name));
        let key = OsString::from_vec(b"-ia\xff".to_vec());
        assert_eq!(translation.arguments.get(3), Some(&key));
    }
}
