//! Conversion of options to a command line.

use clap::{Arg, Args, Command};
use serde_json::{Map, Value};

use super::CopyOptions;

impl CopyOptions {
    /// Returns the options in JSON, by name. It is empty if one has text that is not UTF-8, which
    /// options from JSON never have.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(options)) => options,
            _ => Map::new(),
        }
    }

    /// Returns the options as command-line arguments of `longhaul cp`.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let options = self.to_json();
        let command = Self::augment_args(Command::new("cp"));
        let given = command
            .get_arguments()
            .filter_map(|arg| Some((arg, options.get(arg.get_id().as_str())?)));
        given.flat_map(|(arg, value)| words(arg, value)).collect()
    }
}

/// Returns the words of an option. A value is in one word with its flag, so that it cannot be taken
/// for a flag.
fn words(arg: &Arg, value: &Value) -> Vec<String> {
    let value = match value {
        Value::Null | Value::Bool(false) | Value::Object(_) => return Vec::new(),
        Value::Array(list) => return list.iter().flat_map(|value| words(arg, value)).collect(),
        Value::Bool(true) => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
    };
    let word = match (arg.get_long(), arg.get_short(), value) {
        (Some(long), _, None) => format!("--{long}"),
        (Some(long), _, Some(value)) => format!("--{long}={value}"),
        (None, Some(short), None) => format!("-{short}"),
        // After a short flag, one equals sign is not part of the value.
        (None, Some(short), Some(value)) if value.is_empty() || value.starts_with('=') => {
            format!("-{short}={value}")
        }
        (None, Some(short), Some(value)) => format!("-{short}{value}"),
        (None, None, _) => return Vec::new(),
    };
    vec![word]
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::path::PathBuf;

    use clap::FromArgMatches;
    use longhaul_deadline::ReservationMode;
    use longhaul_proto::PublicKey;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::SshOptions;

    fn parsed(arguments: &[String]) -> CopyOptions {
        let command = CopyOptions::augment_args(Command::new("cp").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        CopyOptions::from_arg_matches(&matches).unwrap()
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[=-]{0,2}[a-z]{0,3}", "\\PC{0,8}"]
    }

    fn file() -> impl Strategy<Value = Option<PathBuf>> {
        let text = text().prop_filter("a file has a name", |text| !text.is_empty());
        option::of(text.prop_map(PathBuf::from))
    }

    fn ssh_options() -> impl Strategy<Value = SshOptions> {
        let ports = option::of("[1-9]{1,4}".prop_map(|text| text.parse().unwrap()));
        let files = (file(), file(), file(), option::of(text()));
        let flags = (any::<bool>(), 0..3);
        let options = vec(text().prop_map(Into::into), 0..3);
        (flags, ports, files, any::<Option<u16>>(), options).prop_map(
            |((bootstrap, family), port_range, files, ssh_port, ssh_options)| SshOptions {
                bootstrap,
                port_range,
                ssh_program: files.0,
                ssh_port,
                ssh_key: files.1,
                ssh_config: files.2,
                ssh_jump: files.3,
                ssh_options,
                batch: false,
                ipv4: family == 1,
                ipv6: family == 2,
            },
        )
    }

    fn copy_options() -> impl Strategy<Value = CopyOptions> {
        let route = prop_oneof!["direct", "[a-z]{1,5}\\.example,~[a-z]{1,5}\\.example:7"];
        let route = route.prop_map(|text| text.parse().unwrap());
        let reserve = prop_oneof![
            Just(ReservationMode::Auto),
            Just(ReservationMode::Never),
            (1e-3..1e13).prop_map(ReservationMode::Rate)
        ];
        let trust = prop_oneof![
            any::<bool>().prop_map(|accept_new| (accept_new, None)),
            any::<[u8; 32]>().prop_map(|key| (false, Some(PublicKey::from_bytes(key)))),
        ];
        let texts = (option::of(text()), file(), option::of(text()));
        let numbers = (option::of(1..=64u32), option::of(reserve));
        let lists = (vec(route, 0..3), vec(any::<IpAddr>(), 0..3));
        (
            any::<[bool; 8]>(),
            trust,
            texts,
            numbers,
            lists,
            ssh_options(),
        )
            .prop_map(|(flags, trust, texts, numbers, lists, ssh)| CopyOptions {
                recursive: flags[0],
                overwrite: flags[1],
                fsync: flags[2],
                no_resume: flags[3],
                no_encrypt: flags[4],
                checksum: flags[5],
                hard_links: flags[6],
                fall_back: flags[7],
                routes: lists.0,
                source_addresses: lists.1,
                streams: numbers.0,
                congestion: texts.0,
                host_key: trust.1,
                accept_new: trust.0,
                identity: texts.1,
                by: texts.2,
                reserve: numbers.1,
                ssh,
            })
    }

    proptest! {
        #[test]
        fn options_survive_the_command_line_and_json(options in copy_options()) {
            prop_assert_eq!(&parsed(&options.arguments()), &options);
            let text = serde_json::to_string(&options).unwrap();
            prop_assert_eq!(serde_json::from_str::<CopyOptions>(&text).unwrap(), options);
        }
    }

    #[test]
    fn values_cannot_be_taken_for_flags() {
        let options: CopyOptions = serde_json::from_str(
            r#"{"recursive": true, "congestion": "--json", "ssh_options": ["-v"]}"#,
        )
        .unwrap();
        let arguments = ["--recursive", "--congestion=--json", "-o-v"];
        assert_eq!(options.arguments(), arguments);
    }

    #[test]
    fn unknown_options_are_refused() {
        for wrong in [
            r#"{"unknown": 1}"#,
            r#"{"batch": true}"#,
            r#"{"ssh": {}}"#,
            r#"{"ssh_port": 70000}"#,
            r#"{"host_key": "lhk1:short"}"#,
            r#"{"reserve": "0"}"#,
        ] {
            assert!(
                serde_json::from_str::<CopyOptions>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
