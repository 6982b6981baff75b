//! Compares a program's output with the page: the same words, apart from numbers, keys and hashes.
//! Pure.

use drs::Limit;

/// Returns true if `shown` describes `printed`, line by line. A shown line `...` stands for any
/// lines, and `...` within one for any text. With `more`, the program may print additional lines.
pub fn describes(shown: &[String], printed: &[String], more: bool) -> bool {
    let shown: Vec<String> = shown.iter().map(|line| shape(line)).collect();
    let printed: Vec<String> = printed.iter().map(|line| shape(line)).collect();
    lines_match(&shown, &printed, more)
}

fn lines_match(shown: &[String], printed: &[String], more: bool) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (None, Some(_)) => more,
        (Some((first, rest)), _) if first == "..." => {
            (0..=printed.len()).any(|skip| lines_match(rest, &printed[skip..], more))
        }
        (Some(_), None) => false,
        (Some((first, rest)), Some((line, others))) => {
            (line_matches(first, line) && lines_match(rest, others, more))
                || (more && lines_match(shown, others, more))
        }
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    match pattern.split_once("...") {
        None => pattern == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.into_iter().any(|at| line_matches(rest, &line[at..]))
        }),
    }
}

/// Replaces what differs from run to run: numbers, the limit of a flow, unit prefixes, keys, hashes
/// and the width of columns.
fn shape(line: &str) -> String {
    let words = line.split_whitespace().map(word_shape);
    let mut words: Vec<String> = words.collect();
    for at in 1..words.len() {
        if words[at - 1].ends_with('#') {
            words[at] = unit_shape(&words[at]);
        }
    }
    words.join(" ")
}

fn word_shape(word: &str) -> String {
    if word.parse::<Limit>().is_ok() {
        return "LIMIT".to_owned();
    }
    if let Some((before, key)) = word.split_once("lhk1:") {
        let end = key
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .unwrap_or(key.len());
        return format!("{}lhk1:KEY{}", word_shape(before), word_shape(&key[end..]));
    }
    let digits = word.trim_end_matches('.');
    let hash =
        |least: usize| digits.len() >= least && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if hash(32) || (word.ends_with("...") && hash(4)) {
        return "HASH".to_owned();
    }
    // Every address of the machine, of both families if it has IPv6.
    let word = word.replace("[::]", "0.0.0.0");
    let mut shape = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        if !c.is_ascii_digit() {
            shape.push(c);
            continue;
        }
        shape.push('#');
        let mut rest = chars.clone();
        while let Some(next) = rest.next() {
            let decimal = next == '.' && rest.peek().is_some_and(char::is_ascii_digit);
            if !next.is_ascii_digit() && !decimal {
                break;
            }
            chars.next();
        }
    }
    shape
}

/// Removes the prefix of a unit: a rate may be in kbit/s in one run and in Mbit/s in another.
fn unit_shape(word: &str) -> String {
    let larger = ["", "k", "K", "M", "G", "T"];
    let smaller = ["", "m", "u", "n"];
    for (unit, prefixes) in [
        ("bit/s", &larger[..]),
        ("iB", &larger),
        ("B", &larger),
        ("s", &smaller),
    ] {
        if let Some((prefix, rest)) = word.split_once(unit)
            && prefixes.contains(&prefix)
        {
            return format!("{}{rest}", if unit == "iB" { "B" } else { unit });
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_keys_and_hashes_may_differ_and_words_may_not() {
        for (shown, printed, same) in [
            (
                "3 files in 0.25 s, 61.2 Mbit/s",
                "4 files in 1 s, 1.02 Gbit/s",
                true,
            ),
            ("in 1.2 s, all", "in 997.5 ms, all", true),
            ("key lhk1:STORE...", "key lhk1:abc234", true),
            (
                "BLAKE3 9f3c...",
                "BLAKE3 00ff00ff00ff00ff00ff00ff00ff00ff",
                true,
            ),
            ("listening on [::]:7511", "listening on 0.0.0.0:7511", true),
            ("listening on [::]:7511", "listens on [::]:7511", false),
            ("one\n...\nfour", "one\ntwo\nthree\nfour", true),
            ("one\n...", "one", true),
            ("51 ms  loss", "49.9 ms path", true),
            ("one", "one\ntwo", false),
            (
                "cannot reach ...: refused",
                "cannot reach here: refused",
                true,
            ),
            (
                "cannot reach ...: refused",
                "cannot reach here: lost",
                false,
            ),
            ("  12.4 MB  x", "900 KB x", true),
        ] {
            assert_eq!(
                describes(&lines(shown), &lines(printed), false),
                same,
                "{shown} / {printed}"
            );
        }
    }

    #[test]
    fn a_service_may_say_more_and_not_less() {
        assert!(describes(&lines("b\nd"), &lines("a\nb\nc\nd\ne"), true));
        assert!(!describes(&lines("d\nb"), &lines("a\nb\nc\nd\ne"), true));
    }
}
