//! Every rule of the copy protocol is cited by the code that keeps it and by a test, and nothing else is.

use std::collections::BTreeSet;
use std::path::Path;

/// The rules that a text cites, as `LH-COPY-5` or, in the name of a test, `lh_copy_5_`.
fn cited(text: &str) -> BTreeSet<u32> {
    let text = text.to_lowercase().replace('_', "-");
    let rules = text.split("lh-copy-").skip(1);
    let digits = |rest: &str| -> String { rest.chars().take_while(char::is_ascii_digit).collect() };
    rules.filter_map(|rest| digits(rest).parse().ok()).collect()
}

/// What the files beneath `dir` cite: the code, and the tests.
fn read(dir: &Path, is_test: bool, code: &mut BTreeSet<u32>, tests: &mut BTreeSet<u32>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy();
        let is_test = is_test || name.ends_with("tests") || name == "fuzzing";
        if path.is_dir() {
            read(&path, is_test, code, tests);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (kept, tested) = match is_test {
                true => ("", text.as_str()),
                false => text.split_once("mod tests {").unwrap_or((&text, "")),
            };
            code.extend(cited(kept));
            tests.extend(cited(tested));
        }
    }
}

#[test]
fn every_rule_is_kept_somewhere_and_tested_somewhere() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../../docs/copy-protocol.md")).unwrap();
    let rules: Vec<u32> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| LH-COPY-")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(rules, (1..=rules.len() as u32).collect::<Vec<_>>());
    let rules = BTreeSet::from_iter(rules);
    let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
    read(&here.join("src"), false, &mut code, &mut tests);
    read(&here.join("tests"), true, &mut code, &mut tests);
    assert_eq!(&rules - &code, BTreeSet::new(), "rules that no code cites");
    assert_eq!(&rules - &tests, BTreeSet::new(), "rules that no test cites");
    let all = &(&code | &tests) | &cited(&page);
    assert_eq!(&all - &rules, BTreeSet::new(), "citations of no rule");
}
