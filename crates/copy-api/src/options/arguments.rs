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
    use clap::FromArgMatches;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::{FilterOptions, MetadataOptions};
    use super::*;

    fn command() -> Command {
        CopyOptions::augment_args(Command::new("cp").no_binary_name(true))
    }

    /// Returns the options of a command line. `None` if it is invalid.
    fn parse(arguments: &[String]) -> Option<CopyOptions> {
        let matches = command().try_get_matches_from(arguments).ok()?;
        CopyOptions::from_arg_matches(&matches).ok()
    }

    /// An option that a job can have, alone or with a value.
    fn argument() -> impl Strategy<Value = String> {
        let flags: Vec<String> = command().get_arguments().filter_map(flag).collect();
        let key = longhaul_proto::PublicKey::from_bytes([1; 32]).to_string();
        let values = select(vec![
            "direct",
            "quic",
            "a.example,~b.example:7",
            "192.0.2.1",
            "7",
            "never",
            "auto",
            "zstd:9",
            "2.5G",
            "50-60",
        ]);
        let value = prop_oneof![
            Just(key),
            values.prop_map(str::to_owned),
            "[=-]{0,2}[a-z]{0,3}",
            "\\PC{0,8}"
        ];
        (select(flags), value)
            .prop_map(|(flag, value)| [format!("{flag}={value}"), flag])
            .prop_filter_map("no such option", |words| {
                words
                    .into_iter()
                    .find(|word| parse(std::slice::from_ref(word)).is_some())
            })
    }

    fn flag(arg: &Arg) -> Option<String> {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        long.or(short).filter(|flag| flag != "-B")
    }

    proptest! {
        #[test]
        fn options_survive_the_command_line_and_json(
            arguments in prop::collection::vec(argument(), 0..6)
        ) {
            // Some options exclude each other, and most may be given once.
            if let Some(options) = parse(&arguments) {
                let again = parse(&options.arguments());
                prop_assert_eq!(again.as_ref(), Some(&options));
                let text = serde_json::to_string(&options).unwrap();
                prop_assert_eq!(serde_json::from_str::<CopyOptions>(&text).unwrap(), options);
            }
        }
    }

    #[test]
    fn every_option_has_its_name_in_json() {
        let options = CopyOptions {
            by: Some("+2h".to_owned()),
            reserve: Some(longhaul_deadline::ReservationMode::Auto),
            transport: Some(longhaul_proto::Transport::Quic),
            compress: Some(longhaul_transfer::Compression::Auto),
            delta: true,
            inplace: true,
            update: true,
            existing: true,
            ignore_existing: true,
            filter: FilterOptions {
                exclude: vec!["a".to_owned()],
                include: vec!["b".to_owned()],
                exclude_from: vec!["c".into()],
                no_ignore_files: true,
                newer: Some("7d".to_owned()),
                older: Some("1d".to_owned()),
                min_size: Some(1),
                max_size: Some(2),
                files_from: Some("d".into()),
                from0: true,
                one_file_system: true,
            },
            metadata: MetadataOptions {
                archive: true,
                owner: true,
                group: true,
                numeric_ids: true,
                acls: true,
                xattrs: true,
                set_id: true,
                specials: true,
                copy_links: true,
                safe_links: true,
                chmod: Some("go-w".to_owned()),
                chown: Some("ana".to_owned()),
            },
            ..CopyOptions::default()
        };
        let mut names: Vec<String> = options
            .to_json()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.push("batch".to_owned());
        names.sort();
        let command = command();
        let ids = command.get_arguments().map(|arg| arg.get_id().to_string());
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        assert_eq!(ids, names);
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
