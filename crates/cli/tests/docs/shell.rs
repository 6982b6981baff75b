//! Splits a shell's command line into words, as far as the pages need it. Pure.

/// Returns the simple commands of a line, each as its words: without quotes, comments, redirections
/// and the words before a program's name (`sudo`, `NAME=value`).
pub fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut depth = 0_u32;
    for c in line.chars() {
        let boundary = quote.is_none() && depth == 0;
        match c {
            _ if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            '#' if boundary && word.is_none() => break,
            '(' if quote.is_none() => depth += 1,
            ')' if quote.is_none() => depth = depth.saturating_sub(1),
            '|' | '&' | ';' if boundary => {
                end_word(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            c if boundary && c.is_whitespace() => end_word(&mut commands, &mut word),
            c => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut commands, &mut word);
    commands.into_iter().filter_map(program).collect()
}

fn end_word(commands: &mut [Vec<String>], word: &mut Option<String>) {
    if let (Some(command), Some(word)) = (commands.last_mut(), word.take()) {
        command.push(word);
    }
}

/// Returns the words from the program's name up to a redirection.
fn program(words: Vec<String>) -> Option<Vec<String>> {
    let words: Vec<String> = words
        .into_iter()
        .skip_while(|word| {
            word == "sudo"
                || word
                    .split_once('=')
                    .is_some_and(|(name, _)| is_variable(name))
        })
        .take_while(|word| !word.starts_with(['>', '<']) && !word.starts_with("2>"))
        .collect();
    (!words.is_empty()).then_some(words)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_comments_and_pipes() {
        for (line, expected) in [
            (
                "longhaul cp 'a b' c   # there",
                vec![vec!["longhaul", "cp", "a b", "c"]],
            ),
            (
                "a | b && c; d &",
                vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"]],
            ),
            ("sudo X=1 a > file", vec![vec!["a"]]),
            (
                "sh -c 'a | b' \"c;d\"",
                vec![vec!["sh", "-c", "a | b", "c;d"]],
            ),
            (
                "cc $(pkg --libs x | y) z",
                vec![vec!["cc", "$pkg --libs x | y", "z"]],
            ),
            ("# nothing", vec![]),
            ("x ''", vec![vec!["x", ""]]),
        ] {
            assert_eq!(simple_commands(line), expected, "{line}");
        }
    }
}
