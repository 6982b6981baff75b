//! Tests of parsed and refused tables.

use super::*;

fn table(text: &str) -> Result<RouteTable, String> {
    RouteTable::parse(text, Path::new("r.toml")).map_err(|error| error.to_string())
}

#[test]
fn the_first_rule_that_fits_decides() {
    let table = table(
        r#"
[[route]]
to = ["quick.example", "10.1.0.0/16"]

[[route]]
to = ["*.example", "10.0.0.0/8"]
ports = [2811, "50000-51000"]
via = "campus.example,~backbone.example:99"
offramp = "gateway.example"
always = true
fall_back = false

[[route]]
to = ["*"]
acceptor = true
"#,
    )
    .unwrap();
    let line = |address: Option<&str>, name, port| {
        let address = address.map(|address| address.parse().unwrap());
        table.rule(address, name, port).map(|rule| rule.line)
    };
    assert_eq!(line(None, Some("quick.example"), 2811), Some(2));
    assert_eq!(line(Some("10.1.2.3"), Some("slow.example"), 2811), Some(2));
    assert_eq!(line(Some("::ffff:10.2.2.3"), None, 50_500), Some(5));
    assert_eq!(line(Some("10.2.2.3"), None, 80), None);
    assert_eq!(line(None, Some("slow.Example"), 80), Some(13));
    let rule = table.rule(None, Some("slow.example"), 2811).unwrap();
    assert_eq!(
        rule.via.to_string(),
        "campus.example:7510,~backbone.example:99"
    );
    assert!(rule.always && !rule.fall_back);
    let SessionEnd::Offramp { at, key } = &rule.end else {
        panic!("{rule:?}")
    };
    assert_eq!(
        (at.to_string().as_str(), *key),
        ("gateway.example:7512", None)
    );
}

#[test]
fn alternatives_are_routes_to_the_same_offramp() {
    let rules = table(
        "[[route]]\nto = [\"h\"]\nvia = \"a\"\nofframp = \"exit\"\n\
         alternatives = [\"b,c\", \"direct\"]",
    )
    .unwrap();
    let alternatives = rules.rules().first().unwrap().alternatives.iter();
    let names: Vec<String> = alternatives.map(ToString::to_string).collect();
    assert_eq!(names, ["b:7510,c:7510", "direct"]);
}

#[test]
fn invalid_rules_are_refused_with_their_line() {
    for (text, error) in [
        ("to = []", "r.toml:2: to: is empty"),
        ("to = [\"a b\"]", "r.toml:2: to: "),
        ("to = [\"h\"]\nports = [\"9-8\"]", "r.toml:3: ports: "),
        ("to = [\"h\"]\nports = [0]", "r.toml:3: ports: "),
        ("to = [\"h\"]\nports = [70000]", "r.toml:3: "),
        (
            "to = [\"h\"]\nvia = \"a b\"\nacceptor = true",
            "r.toml:3: via: ",
        ),
        (
            "to = [\"h\"]\nvia = \"depot\"",
            "r.toml:3: via: name where the session ends",
        ),
        ("to = [\"h\"]\nofframp = \"x@h\"", "r.toml:3: offramp: "),
        (
            "to = [\"h\"]\nofframp = \"h:0\"",
            "r.toml:3: offramp: \"h:0\" has",
        ),
        (
            "to = [\"h\"]\nofframp = \"h\"\nacceptor = true",
            "r.toml:3: offramp: ",
        ),
        (
            "to = [\"h\"]\nofframp = \"h\"\nalternatives = [\"b\", \"a b\"]",
            "r.toml:4: alternatives: ",
        ),
        (
            "to = [\"h\"]\nacceptor = true\nalternatives = [\"b\"]",
            "r.toml:4: alternatives: only sessions with an off-ramp continue",
        ),
        ("to = [\"h\"]\nwhat = 1", "r.toml:3: "),
        ("", "r.toml:1: "),
    ] {
        let said = table(&format!("[[route]]\n{text}")).unwrap_err();
        assert!(
            said.starts_with(error) && !said.contains('\n'),
            "{text}: {said}"
        );
    }
    assert!(table("").unwrap().rules().is_empty());
}

#[test]
fn a_file_that_is_not_there_has_no_rules() {
    let directory = tempfile::tempdir().unwrap();
    assert!(
        RouteTable::load(&directory.path().join("routes.toml"))
            .unwrap()
            .rules()
            .is_empty()
    );
    assert!(RouteTable::load(directory.path()).is_err());
}
