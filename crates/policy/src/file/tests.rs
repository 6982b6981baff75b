//! Tests of valid policy files and of errors in invalid ones.

use proptest::prelude::*;
use toml::Value;

use super::super::Policy;
use super::*;

const KEY: &str = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn probers_are_listed_by_key() {
    let key = KEY.parse().unwrap();
    let parse =
        |text: &str| Policy::parse(text, Path::new("p.toml")).map_err(|error| error.to_string());
    assert!(!parse("").unwrap().may_probe(&key), "nobody, unless named");
    let rule = format!("[[allow]]\nprincipals = [\"{KEY}\", \"*\"]\nto = [\"*\"]\n");
    assert!(
        !parse(&rule).unwrap().may_probe(&key),
        "whoever may pass need not measure"
    );
    assert!(
        parse(&format!("probes = [\"{KEY}\"]\n{rule}"))
            .unwrap()
            .may_probe(&key)
    );
    let error = parse("\nprobes = [\"*\"]").unwrap_err();
    assert!(error.starts_with("p.toml:2: probes: "), "{error}");
}

#[test]
fn errors_name_file_line_and_field() {
    let head = format!("# a comment\n[[allow]]\nprincipals = [\"{KEY}\"]\n");
    for (rest, expected) in [
        (
            "to = [\"10.0.0.0/8\"]\nports = [0]",
            "p.toml:5: allow[1].ports: ",
        ),
        (
            "to = [\"10.0.0.0/8\",\n  \"10.0.0.1/8\"]",
            "p.toml:5: allow[1].to: ",
        ),
        ("to = []", "p.toml:4: allow[1].to: is empty: "),
        (
            "to = [\"*\"]\nports = []",
            "p.toml:5: allow[1].ports: is empty: such a rule allows nothing; remove it",
        ),
        (
            "to = [\"*\"]\nports = [\"+80\"]",
            "p.toml:5: allow[1].ports: ",
        ),
        (
            "to = [\"*\"]\nports = [90000]",
            "p.toml:5: allow[1].ports: ",
        ),
        (
            "to = [\"*\"]\nports = [\"9-8\"]",
            "p.toml:5: allow[1].ports: ",
        ),
        ("to = [\"*\"]\nports = [[1]]", "p.toml:5: allow[1].ports: "),
        ("to = [\"*\"]\nname = \"\"", "p.toml:5: allow[1].name: "),
        (
            "to = [\"*\"]\nname = \"a\\u001bb\"",
            "p.toml:5: allow[1].name: ",
        ),
        (
            "to = [\"*\"]\n\"a\\u001b\\u202eb\" = 1",
            "p.toml:5: unknown field `a\\u{1b}\\u{202e}b`",
        ),
        (
            "to = [\"*\"]\nmax_rate = \"2 GB/s\"",
            "p.toml:5: allow[1].max_rate: ",
        ),
        (
            "to = [\"*\"]\nmax_sessions = 0",
            "p.toml:5: allow[1].max_sessions: ",
        ),
        (
            "to = [\"*\"]\nnext_hops = [\"x:y\"]",
            "p.toml:5: allow[1].next_hops: ",
        ),
        ("to = [\"*\"]\nport = [1]", "p.toml:5: unknown field `port`"),
        ("to = \"*\"", "p.toml:4: "),
        ("to = [", "p.toml:4: "),
    ] {
        let error = Policy::parse(&format!("{head}{rest}"), Path::new("p.toml"))
            .expect_err(rest)
            .to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} should start with {expected:?}"
        );
        assert!(!error.contains('\n'), "{error:?} is more than a line");
    }
    let error = Policy::parse(
        "[[allow]]\nprincipals = [\"me\"]\nto = [\"*\"]",
        Path::new("p.toml"),
    )
    .expect_err("key");
    assert!(
        error
            .to_string()
            .starts_with("p.toml:2: allow[1].principals: \"me\" is not a public key"),
        "{error}"
    );
    let missing = Policy::load(Path::new("/nonexistent/p.toml")).expect_err("no file");
    assert!(
        missing
            .to_string()
            .starts_with("/nonexistent/p.toml: cannot read"),
        "{missing}"
    );
}

#[test]
fn rates_have_units() {
    for (text, rate) in [
        ("1.5 Mbit/s", Some(1_500_000)),
        ("8bit/s", Some(8)),
        ("2 Gbit/s", Some(2_000_000_000)),
        ("7 bit/s", None),
        ("100 kbit/s", Some(100_000)),
        ("1000000 Gbit/s", Some(1_000_000_000_000_000)),
        ("1e3 bit/s", Some(1000)),
        ("1001 Tbit/s", None),
        ("-1 kbit/s", None),
        ("2 GB/s", None),
        ("2", None),
        ("", None),
    ] {
        assert_eq!(bit_rate(text).ok(), rate, "{text}");
    }
}

#[test]
fn rule_names_are_unique() {
    let rule = |name: &str| format!("[[allow]]\n{name}\nprincipals = [\"*\"]\nto = [\"*\"]\n");
    for (names, expected) in [
        (
            ["name = \"a\"", "name = \"a\""],
            Err("p.toml:6: allow[2].name: \"a\" is also the name of rule 1"),
        ),
        (
            ["", "name = \"rule 1\""],
            Err("p.toml:6: allow[2].name: \"rule 1\" is also the name of rule 1"),
        ),
        (
            ["name = \"rule 2\"", ""],
            Err("p.toml:2: allow[1].name: \"rule 2\" is also the name of rule 2"),
        ),
        (["name = \"a\"", "name = \"b\""], Ok(())),
        (["", ""], Ok(())),
    ] {
        let text = names.map(rule).concat();
        let parsed = Policy::parse(&text, Path::new("p.toml")).map_err(|error| error.to_string());
        match (parsed, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
            (parsed, _) => panic!("{names:?}: {parsed:?}"),
        }
    }
}

#[test]
fn deep_nesting_is_an_error() {
    const DEEP: usize = 50_000;
    let dotted = format!("{}a = 1", "a.".repeat(DEEP));
    let table = format!("[{}a]", "a.".repeat(DEEP));
    let list = format!("[[allow]]\nports = {}", "[".repeat(DEEP));
    let closed = format!(
        "[[allow]]\nports = {}{}",
        "[".repeat(DEEP),
        "]".repeat(DEEP)
    );
    let inline = format!("[[allow]]\nports = {}", "{a=".repeat(DEEP));
    for text in [dotted, table, list, closed, inline] {
        let error = Policy::parse(&text, Path::new("p.toml")).expect_err("nested too deep");
        assert!(
            error.to_string().len() < 1000,
            "{}",
            error.to_string().len()
        );
    }
}

/// Generates text that is a policy or resembles one: policy words in any order, mixed with other
/// text.
fn near_policy() -> impl Strategy<Value = String> {
    let words = vec![
        "[[allow]]",
        "[allow]",
        "name",
        "principals",
        "to",
        "ports",
        "next_hops",
        "max_rate",
        "max_sessions",
        " = ",
        "[",
        "]",
        "\"",
        "\"\"\"",
        "'",
        ",",
        "\n",
        "\r",
        "\t",
        "\"*\"",
        "\"any\"",
        "\"direct\"",
        "\"10.0.0.0/8\"",
        "\"::/0\"",
        "\"[::1]:7510\"",
        "\"8-9\"",
        "\"2 Gbit/s\"",
        "1e400",
        "-1",
        "99999999999999999999",
        "#",
        "{",
        "}",
        ".",
        "\\u001b",
        "\u{1b}",
        "\u{202e}",
        "\u{2028}",
        "é",
        KEY,
    ];
    let word = prop_oneof![
        8 => proptest::sample::select(words).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// Generates a rule with arbitrary values.
fn any_values() -> impl Strategy<Value = String> {
    let value = || prop_oneof![any::<String>(), "[-+0-9a-z:./\\[\\]*% ]{0,20}"];
    (value(), value(), value(), value(), value()).prop_map(|(name, to, port, hop, rate)| {
        format!(
            "[[allow]]\nname = {}\nprincipals = [\"*\"]\nto = [{}]\nports = [{}]\n\
            next_hops = [{}]\nmax_rate = {}\n",
            Value::from(name),
            Value::from(to),
            Value::from(port),
            Value::from(hop),
            Value::from(rate),
        )
    })
}

proptest! {
    #[test]
    fn any_text_is_a_policy_or_a_one_line_error(
        text in prop_oneof![near_policy(), any_values(), any::<String>()],
        file in any::<String>(),
    ) {
        if let Err(error) = Policy::parse(&text, Path::new(&file)) {
            let line = error.to_string();
            let unfit = |c: char| {
                c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            prop_assert!(!line.contains(unfit), "{:?}", line);
        }
    }
}
