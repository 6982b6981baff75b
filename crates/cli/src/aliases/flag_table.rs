//! Flags of another program, and what becomes of each.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, ArgMatches, Command};
use longhaul_proto::text::printable;

use super::{AliasError, Translation};

/// Argument that holds the paths.
const PATHS: &str = "paths";

/// A program whose command line is translated.
pub struct FlagTable {
    /// Name of the program.
    pub program: &'static str,
    /// First line of its help.
    pub about: &'static str,
    /// Flags of `longhaul cp` that are always given.
    pub always: &'static [&'static str],
    /// Flags of the program.
    pub flags: &'static [Flag],
}

/// A flag of a program.
pub struct Flag {
    /// Its letter.
    pub letter: &'static str,
    /// Its value.
    pub value: FlagValue,
    /// Its effect.
    pub effect: Effect,
}

/// Value of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagValue {
    /// It has none.
    Bare,
    /// The next word, unless that is a flag.
    Optional(&'static str),
    /// The next word.
    Required(&'static str),
}

/// Effect of a flag.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// It becomes this flag of `longhaul cp`, with its value.
    Becomes(&'static str),
    /// It becomes this flag of `longhaul cp`, without its value.
    Means(&'static str),
    /// It becomes `--port-range`; the ports are separated by a colon, or are one.
    PortRange,
    /// It has no effect, because copies are like that anyway.
    Holds(&'static str),
    /// It has no effect, which is reported.
    Ignored(&'static str),
    /// The command line is refused. The text says what to use instead.
    Refused(&'static str),
    /// It has the effect of `longhaul cp -q`, and hides notes.
    Quiet,
}

impl FlagTable {
    /// Translates a command line of the program.
    ///
    /// # Errors
    /// [`AliasError`].
    pub fn translate(&self, arguments: Vec<OsString>) -> Result<Translation, AliasError> {
        let matches = self.command().try_get_matches_from(arguments)?;
        let mut words: Vec<OsString> = ["longhaul", "cp"].map(OsString::from).to_vec();
        words.extend(self.always.iter().map(OsString::from));
        let mut notes = Vec::new();
        let mut is_quiet = false;
        // In alphabetical order, so that a translation does not depend on the order of the table.
        let mut flags: Vec<&Flag> = self.flags.iter().collect();
        flags.sort_by_key(|flag| flag.letter);
        for flag in flags {
            for value in flag.values(&matches) {
                match flag.effect {
                    Effect::Becomes(name) => add(&mut words, join(name, value.as_deref())),
                    Effect::Means(name) => add(&mut words, name.into()),
                    Effect::Quiet => {
                        is_quiet = true;
                        words.push("-q".into());
                    }
                    Effect::PortRange => words.push(port_range(value.as_deref())),
                    Effect::Holds(_) => {}
                    Effect::Ignored(why) => {
                        let flag = flag.shown(value.as_deref());
                        notes.push(format!("{}: {flag}: {why}", self.program));
                    }
                    Effect::Refused(instead) => {
                        return Err(AliasError::Flag {
                            program: self.program,
                            flag: flag.shown(value.as_deref()),
                            instead,
                        });
                    }
                }
            }
        }
        words.push("--".into());
        for path in matches.get_many::<OsString>(PATHS).into_iter().flatten() {
            if path.as_encoded_bytes().starts_with(b"scp://") {
                return Err(AliasError::Url {
                    program: self.program,
                    path: printable(path.as_encoded_bytes()),
                });
            }
            // For cp, - is standard input or output.
            words.push(if path == "-" {
                "./-".into()
            } else {
                path.clone()
            });
        }
        if is_quiet {
            notes.clear();
        }
        Ok(Translation {
            arguments: words,
            notes,
        })
    }

    fn command(&self) -> Command {
        let paths = Arg::new(PATHS)
            .value_name("PATH")
            .value_parser(clap::value_parser!(OsString))
            .required(true)
            .num_args(2..)
            .help("Sources, then the destination");
        let command = Command::new(self.program)
            .about(self.about)
            // bbcp has its own -V.
            .disable_version_flag(true)
            .override_usage(format!("{} [OPTIONS] <SRC>... <DST>", self.program))
            .after_help("This is longhaul, called by another name: see longhaul cp --help.");
        command
            .args(self.flags.iter().map(Flag::argument))
            .arg(paths)
    }
}

impl Flag {
    fn argument(&self) -> Arg {
        let arg = Arg::new(self.letter)
            .short(self.letter.chars().next())
            .help(self.effect.help());
        match self.value {
            FlagValue::Bare => arg.action(ArgAction::Count),
            FlagValue::Optional(name) => arg
                .value_name(name)
                .value_parser(clap::value_parser!(OsString))
                .action(ArgAction::Append)
                .num_args(0..=1),
            FlagValue::Required(name) => arg
                .value_name(name)
                .value_parser(clap::value_parser!(OsString))
                .action(ArgAction::Append)
                .allow_hyphen_values(true),
        }
    }

    /// Returns the values that are given, with `None` for one that the flag does not have.
    fn values(&self, matches: &ArgMatches) -> Vec<Option<OsString>> {
        if self.value == FlagValue::Bare {
            // Repetition changes nothing.
            return vec![None; usize::from(matches.get_count(self.letter).min(1))];
        }
        let occurrences = matches.get_occurrences::<OsString>(self.letter);
        let occurrences = occurrences.into_iter().flatten();
        occurrences
            .map(|mut values| values.next().cloned())
            .collect()
    }

    /// Formats the flag as it was given.
    fn shown(&self, value: Option<&OsStr>) -> String {
        match value {
            Some(value) => format!("-{} {}", self.letter, printable(value.as_encoded_bytes())),
            None => format!("-{}", self.letter),
        }
    }
}

impl Effect {
    fn help(self) -> String {
        match self {
            Self::Becomes(flag) | Self::Means(flag) => format!("As longhaul cp {flag}"),
            Self::PortRange => "As longhaul cp --port-range".to_owned(),
            Self::Quiet => "As longhaul cp -q".to_owned(),
            Self::Holds(what) => format!("Accepted: {what}"),
            Self::Ignored(why) => format!("Ignored: {why}"),
            Self::Refused(instead) => format!("Refused: {instead}"),
        }
    }
}

/// Adds a flag, unless it is there already: `longhaul cp` takes most of them once.
fn add(words: &mut Vec<OsString>, flag: OsString) {
    if !words.contains(&flag) {
        words.push(flag);
    }
}

/// Joins a flag and its value to one word, so that no value can be taken for a flag.
fn join(flag: &str, value: Option<&OsStr>) -> OsString {
    let mut word = OsString::from(flag);
    if let Some(value) = value {
        // After a short flag, one equals sign is not part of the value.
        if flag.starts_with("--") || value.is_empty() || value.as_encoded_bytes().starts_with(b"=")
        {
            word.push("=");
        }
        word.push(value);
    }
    word
}

fn port_range(value: Option<&OsStr>) -> OsString {
    let value = value.unwrap_or_default().to_string_lossy();
    let (first, last) = value.split_once(':').unwrap_or((&*value, &*value));
    format!("--port-range={first}-{last}").into()
}
