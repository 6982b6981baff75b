//! Every rule of the protocols of copies, files and fetching is cited by the code that implements
//! it and by a test. No other rule is cited.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the rules of a family that a text cites, as `LH-COPY-5` or, in the name of a test,
/// `lh_copy_5_`.
fn cited(family: &str, text: &str) -> BTreeSet<u32> {
    let text = text.to_lowercase().replace('_', "-");
    let family = family.to_lowercase();
    let rules = text.split(&family).skip(1);
    let digits = |rest: &str| -> String { rest.chars().take_while(char::is_ascii_digit).collect() };
    rules.filter_map(|rest| digits(rest).parse().ok()).collect()
}

/// Returns the rules cited beneath `dir`: by the code, and by the tests.
fn read(
    family: &str,
    dir: &Path,
    is_test: bool,
    code: &mut BTreeSet<u32>,
    tests: &mut BTreeSet<u32>,
) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy();
        let is_test = is_test || name.ends_with("tests") || name == "fuzzing";
        if path.is_dir() {
            read(family, &path, is_test, code, tests);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (kept, tested) = match is_test {
                true => ("", text.as_str()),
                false => text.split_once("mod tests {").unwrap_or((&text, "")),
            };
            code.extend(cited(family, kept));
            tests.extend(cited(family, tested));
        }
    }
}

#[test]
fn every_rule_is_implemented_and_tested() {
    check("LH-COPY-", "docs/copy-protocol.md");
    check("LH-FILES-", "docs/files-protocol.md");
    check("LH-FETCH-", "docs/fetch-protocol.md");
}

fn check(family: &str, page: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../..").join(page)).unwrap();
    let number = |line: &str| {
        let rule = line.strip_prefix("| ")?.strip_prefix(family)?;
        rule.split(' ').next()?.parse().ok()
    };
    let rules: Vec<u32> = page.lines().filter_map(number).collect();
    assert_eq!(rules, (1..=rules.len() as u32).collect::<Vec<_>>());
    let rules = BTreeSet::from_iter(rules);
    let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
    read(family, &here.join("src"), false, &mut code, &mut tests);
    read(family, &here.join("tests"), true, &mut code, &mut tests);
    assert_eq!(&rules - &code, BTreeSet::new(), "rules that no code cites");
    assert_eq!(&rules - &tests, BTreeSet::new(), "rules that no test cites");
    let all = &(&code | &tests) | &cited(family, &page);
    assert_eq!(&all - &rules, BTreeSet::new(), "citations of no rule");
}
