//! Names of hosts in an ssh configuration.

/// Returns the host names in the text of an ssh configuration (ssh_config(5)): arguments of `Host`
/// without patterns.
pub fn parse(text: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for line in text.lines() {
        let mut words = line
            .split(|letter: char| letter.is_whitespace() || letter == '=')
            .filter(|word| !word.is_empty());
        if !words
            .next()
            .is_some_and(|key| key.eq_ignore_ascii_case("host"))
        {
            continue;
        }
        let names = words.map(|word| word.trim_matches('"'));
        hosts.extend(names.filter(|name| is_plain(name)).map(str::to_owned));
    }
    hosts
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['*', '?', '!', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_patterns_are_hosts() {
        let text = "# Host old\nHost dtn store.example *.lab !bad\n  HostName 192.0.2.1\n\
                    host=\"quoted\"\nMatch host x\n";
        assert_eq!(parse(text), ["dtn", "store.example", "quoted"]);
    }
}
