//! The file of a node. A section is turned into the command line of its command, so both have the
//! same options, defaults and checks.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, ArgAction, Args, Command};
use longhaul_hop::read_trusted_file;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::role::Role;
use crate::agent::AgentCommand;
use crate::control::ControllerOptions;
use crate::depot::DepotCommand;
use crate::home;
use crate::offramp::OfframpCommand;
use crate::onramp::Entries;
use crate::router::Router;
use crate::serve::ServeCommand;

/// Section of the node itself.
const NODE: &str = "node";
/// Sections of services, in the order in which they start.
const SECTIONS: [&str; 7] = [
    "router", "control", "depot", "offramp", "serve", "agent", "onramp",
];
/// Options that a section cannot have: what the node prints is said on its own command line.
const NOT_IN_SECTIONS: [&str; 3] = ["json", "help", "version"];
/// Blocking threads for everything but copies.
const OTHER_BLOCKING_THREADS: usize = 128;

/// Reasons why the file of a node is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum NodeConfigError {
    /// The file cannot be read, or others may write it. `packaging/node.toml` is an example; name
    /// another file with `--config`.
    #[error("{}: {source}", home::display_path(.file))]
    Read {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is no TOML. Fix the line.
    #[error("{place}: {message}")]
    Syntax {
        /// File and line.
        place: Place,
        /// Expectation of the parser.
        message: String,
    },
    /// A section has no such name. Sections have the names of the commands that they start.
    #[error("{place}: no section [{name}]: there are [node], [{}]", SECTIONS.join("], ["))]
    Section {
        /// File and line.
        place: Place,
        /// Name of the section.
        name: String,
    },
    /// A section has no such key. Its keys are the options of its command, without the dashes:
    /// `longhaul COMMAND --help` lists them.
    #[error("{place}: [{section}] has no key {key}{}", advice(.section))]
    Key {
        /// File and line.
        place: Place,
        /// Name of the section.
        section: String,
        /// Name of the key.
        key: String,
    },
    /// A key has a value of another type.
    #[error("{place}: {key} must be {expected}")]
    Value {
        /// File and line.
        place: Place,
        /// Name of the key.
        key: String,
        /// Description of the type.
        expected: &'static str,
    },
    /// The command does not accept the options of its section. Fix the one that the message names.
    #[error("{place}: [{section}]: {message}")]
    Options {
        /// File and line.
        place: Place,
        /// Name of the section.
        section: String,
        /// Message of the command line's parser.
        message: String,
    },
    /// The file starts nothing: add a section.
    #[error(
        "{}: no service: add a section, such as [serve] or [depot]",
        home::display_path(.0)
    )]
    Empty(PathBuf),
    /// A depot with `offramp` and the section `[offramp]` cannot be in one process: keep one.
    #[error("{0}: [depot] with offramp is an off-ramp already: remove one of both")]
    TwoOfframps(Place),
}

/// Place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    file: String,
    line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Returns the end of the message about a key.
fn advice(section: &str) -> String {
    match section {
        NODE => ": it has metrics".to_owned(),
        command => format!(": its keys are the options of longhaul {command}"),
    }
}

/// Services of a node.
pub struct NodeConfig {
    /// Address of the page for all services.
    pub metrics: Option<SocketAddr>,
    /// The services, in the order in which they start.
    pub roles: Vec<Role>,
}

impl NodeConfig {
    /// Loads a file.
    ///
    /// # Errors
    /// [`NodeConfigError`].
    pub fn load(file: &Path) -> Result<Self, NodeConfigError> {
        let text = read_trusted_file(file).map_err(|source| NodeConfigError::Read {
            file: file.to_owned(),
            source,
        })?;
        let config = Self::parse(&text, file)?;
        match config.roles.is_empty() {
            true => Err(NodeConfigError::Empty(file.to_owned())),
            false => Ok(config),
        }
    }

    /// Parses the text of a file.
    fn parse(text: &str, file: &Path) -> Result<Self, NodeConfigError> {
        let document = Document { text, file };
        let table = DeTable::parse(text).map_err(|error| NodeConfigError::Syntax {
            place: document.place(&error.span().unwrap_or_default()),
            message: error.message().to_owned(),
        })?;
        let table = table.get_ref();
        let mut config = Self {
            metrics: None,
            roles: Vec::new(),
        };
        for (name, value) in table {
            let section = name.get_ref().as_ref();
            if section != NODE && !SECTIONS.contains(&section) {
                return Err(NodeConfigError::Section {
                    place: document.place(&name.span()),
                    name: section.to_owned(),
                });
            }
            let keys = document.section(section, value)?;
            if section == NODE {
                config.metrics = document.node(keys)?;
            }
        }
        let mut depot_offramp = false;
        for section in SECTIONS {
            let Some(value) = table.get(section) else {
                continue;
            };
            let keys = document.section(section, value)?;
            let role = document.role(section, value.span(), keys)?;
            if let Role::Depot(depot) = &role {
                depot_offramp = depot.is_offramp();
            }
            if depot_offramp && section == "offramp" {
                return Err(NodeConfigError::TwoOfframps(document.place(&value.span())));
            }
            config.roles.push(role);
        }
        Ok(config)
    }

    /// Returns the blocking threads of a runtime for all services.
    ///
    /// # Errors
    /// This process may not have enough descriptors.
    pub fn blocking_threads(&self) -> Result<usize> {
        let mut threads = OTHER_BLOCKING_THREADS;
        for role in &self.roles {
            threads = threads.saturating_add(role.blocking_threads()?);
        }
        Ok(threads)
    }

    /// Returns the depot, if there is one.
    pub fn depot(&self) -> Option<&DepotCommand> {
        self.roles.iter().find_map(|role| match role {
            Role::Depot(depot) => Some(&**depot),
            _ => None,
        })
    }
}

/// Text of a file.
struct Document<'a> {
    text: &'a str,
    file: &'a Path,
}

type Keys<'a> = DeTable<'a>;

impl Document<'_> {
    fn place(&self, span: &Range<usize>) -> Place {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        Place {
            file: home::display_path(self.file),
            line: before.matches('\n').count() + 1,
        }
    }

    /// Returns the keys of a section.
    fn section<'v, 'i>(
        &self,
        name: &str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Result<&'v Keys<'i>, NodeConfigError> {
        let table = value.get_ref().as_table();
        table.ok_or_else(|| NodeConfigError::Value {
            place: self.place(&value.span()),
            key: name.to_owned(),
            expected: "a section",
        })
    }

    /// Returns the address of the page of the whole node.
    fn node(&self, keys: &Keys<'_>) -> Result<Option<SocketAddr>, NodeConfigError> {
        let mut metrics = None;
        for (key, value) in keys {
            if key.get_ref() != "metrics" {
                return Err(NodeConfigError::Key {
                    place: self.place(&key.span()),
                    section: NODE.to_owned(),
                    key: key.get_ref().to_string(),
                });
            }
            let address = value.get_ref().as_str().and_then(|text| text.parse().ok());
            metrics = Some(address.ok_or_else(|| NodeConfigError::Value {
                place: self.place(&value.span()),
                key: "metrics".to_owned(),
                expected: "an address with a port, such as \"127.0.0.1:9510\"",
            })?);
        }
        Ok(metrics)
    }

    fn role(
        &self,
        section: &str,
        span: Range<usize>,
        keys: &Keys<'_>,
    ) -> Result<Role, NodeConfigError> {
        Ok(match section {
            "router" => Role::Router(self.options::<Router>(section, span, keys)?),
            "control" => Role::Control(self.options::<ControllerOptions>(section, span, keys)?),
            "depot" => Role::Depot(self.options::<DepotCommand>(section, span, keys)?),
            "offramp" => Role::Offramp(self.options::<OfframpCommand>(section, span, keys)?),
            "agent" => Role::Agent(self.options::<AgentCommand>(section, span, keys)?),
            "onramp" => Role::Onramp(self.options::<Entries>(section, span, keys)?),
            _ => Role::Serve(self.options::<ServeCommand>(section, span, keys)?),
        })
    }

    /// Parses the options of a section.
    fn options<T: Args>(
        &self,
        section: &str,
        span: Range<usize>,
        keys: &Keys<'_>,
    ) -> Result<Box<T>, NodeConfigError> {
        let command = T::augment_args(Command::new("longhaul").no_binary_name(true));
        let mut arguments = Vec::new();
        for (key, value) in keys {
            let option = option(&command, key.get_ref());
            let option = option.ok_or_else(|| NodeConfigError::Key {
                place: self.place(&key.span()),
                section: section.to_owned(),
                key: key.get_ref().to_string(),
            })?;
            self.push(&mut arguments, option, key.get_ref(), value)?;
        }
        let refused = |error: clap::Error| NodeConfigError::Options {
            place: self.place(&span),
            section: section.to_owned(),
            message: one_line(&error),
        };
        let matches = command.try_get_matches_from(arguments).map_err(refused)?;
        T::from_arg_matches(&matches).map(Box::new).map_err(refused)
    }

    /// Adds a key as an argument.
    fn push(
        &self,
        arguments: &mut Vec<OsString>,
        option: &Arg,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), NodeConfigError> {
        let wrong = |value: &Spanned<DeValue<'_>>, expected| NodeConfigError::Value {
            place: self.place(&value.span()),
            key: key.to_owned(),
            expected,
        };
        let is_flag = !option.get_action().takes_values();
        match (is_flag, value.get_ref()) {
            (true, DeValue::Boolean(true)) => arguments.push(format!("--{key}").into()),
            (true, DeValue::Boolean(false)) => {}
            (true, _) => return Err(wrong(value, "true or false")),
            (false, DeValue::Array(values)) if is_repeatable(option) => {
                for value in values.iter() {
                    let text = scalar(value.get_ref());
                    let text = text.ok_or_else(|| wrong(value, "a list of texts or numbers"))?;
                    arguments.push(format!("--{key}={text}").into());
                }
            }
            (false, scalar_value) => {
                let expected = match is_repeatable(option) {
                    true => "a text, a number, or a list of them",
                    false => "a text or a number",
                };
                let text = scalar(scalar_value).ok_or_else(|| wrong(value, expected))?;
                arguments.push(format!("--{key}={text}").into());
            }
        }
        Ok(())
    }
}

/// Returns the option of a command that a key stands for.
fn option<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    let mut options = command.get_arguments();
    options.find(|option| {
        option.get_long() == Some(key) && !option.is_hide_set() && !NOT_IN_SECTIONS.contains(&key)
    })
}

fn is_repeatable(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// Returns a value as it would be on a command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the message of a command line's parser, without its hints about the command line.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn parse(text: &str) -> Result<NodeConfig, String> {
        NodeConfig::parse(text, Path::new("n.toml")).map_err(|error| error.to_string())
    }

    fn names(config: &NodeConfig) -> Vec<&'static str> {
        config.roles.iter().map(Role::name).collect()
    }

    #[test]
    fn sections_are_the_options_of_their_commands() {
        let config = parse(&format!(
            "[node]\nmetrics = \"127.0.0.1:9510\"\n\
             [serve]\nroot = \"/srv\"\nread = [\"{KEY}\", \"{KEY}=/x\"]\nno-quic = true\n\
             max-copies = 3\n\
             [depot]\npolicy = \"p\"\nlisten = \"127.0.0.1:0\"\nno-quic = false\ndrain = 90\n\
             [agent]\n[control]\nkeep = 7\n[onramp]\nsocks = [1080]\n\
             [offramp]\npolicy = \"p\"\n[router]\nconfig = \"r.json\"\n"
        ))
        .unwrap();
        assert_eq!(config.metrics, Some("127.0.0.1:9510".parse().unwrap()));
        assert_eq!(names(&config), SECTIONS);
        assert!(config.depot().is_some_and(|depot| !depot.is_offramp()));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, expected) in [
            ("[serve\n", "n.toml:1: "),
            (
                "\n[server]\n",
                "n.toml:2: no section [server]: there are [node], [router], ",
            ),
            ("depot = 3\n", "n.toml:1: depot must be a section"),
            (
                "[node]\nlisten = 1\n",
                "n.toml:2: [node] has no key listen: it has metrics",
            ),
            (
                "[node]\nmetrics = \"x\"\n",
                "n.toml:2: metrics must be an address with a port",
            ),
            (
                "[depot]\npolicy = \"p\"\n\nroot = \"/\"\n",
                "n.toml:4: [depot] has no key root: its keys are the options of longhaul depot",
            ),
            (
                "[depot]\njson = true\n",
                "n.toml:2: [depot] has no key json",
            ),
            (
                "[serve]\nover-stdio = true\n",
                "n.toml:2: [serve] has no key over-stdio",
            ),
            (
                "[depot]\npolicy = true\n",
                "n.toml:2: policy must be a text or a number",
            ),
            (
                "[depot]\npolicy = [\"a\"]\n",
                "n.toml:2: policy must be a text or a number",
            ),
            (
                "[depot]\nno-quic = 1\n",
                "n.toml:2: no-quic must be true or false",
            ),
            (
                "[depot]\nlisten = [true]\n",
                "n.toml:2: listen must be a list of texts or numbers",
            ),
            (
                "\n[depot]\n",
                "n.toml:2: [depot]: the following required arguments were not provided: --policy \
                 <FILE>",
            ),
            (
                "[depot]\npolicy = \"p\"\nlisten = \"x\"\n",
                "n.toml:1: [depot]: invalid value 'x' for",
            ),
            (
                "[depot]\npolicy = \"p\"\nofframp = \"[::]:0\"\n[offramp]\npolicy = \"p\"\n",
                "n.toml:4: [depot] with offramp is an off-ramp already",
            ),
        ] {
            let error = parse(text).err().unwrap_or_default();
            assert!(error.starts_with(expected), "{text}\n{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
