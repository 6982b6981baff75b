//! The lists of docs/bounds.md: every listener, log, registry and outgoing connection of the
//! sources is on its list, and has the gate, logger, bound or address rule that the list says.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_reference::sources::files;

use crate::pages::{root, text};

const PAGE: &str = "docs/bounds.md";
/// Crates for tests, measurements and the book, which are no services.
const LEFT_OUT: [&str; 4] = ["hostile", "circuit-trials", "figures", "reference"];
/// Code that listens, or that accepts connections.
const LISTENS: [&str; 16] = [
    "Listener::bind(",
    "Listener::bind_beside(",
    "Server::builder()",
    "Listener::bind_prepared(",
    "listener.accept(",
    "acceptfrom_with(",
    "libc::accept",
    "real::accept",
    ".incoming()",
    "StatusListener::open",
    "open_listeners(",
    "listen::loopback(",
    "listen::any_address(",
    "listen::unix(",
    "agent::bind(",
    "net::listen(",
];
/// Code that connects, sends datagrams, or looks names up.
const CONNECTS: [&str; 17] = [
    "Client::builder()",
    "TcpStream::connect(",
    "UnixStream::connect(",
    "UnixSeqpacket::connect(",
    "net::connect(",
    "libc::connect(",
    " dial(&",
    "hop::dial(",
    "socket.connect(",
    "connect(&socket",
    "connect_timeout(",
    "= connect(options)",
    " connect(&options)",
    " connect(&probe)",
    "connect_over(",
    ".lookup_ip(",
    "UdpSocket::bind(",
];
/// Code that writes a line into the default log.
const LOGS: [&str; 3] = ["tracing::info!", "tracing::warn!", "tracing::error!"];
/// Code that makes a registry of metrics.
const REGISTERS: &str = "Registry::with_prefix(";
/// Precedes a line that the bounded log admits, within a few lines above it.
const BOUNDED_LOG: &str = ".log(";
const LINES_ABOVE: usize = 6;
/// Code that sets up a program's log.
const SETS_LOG_UP: &str = "tracing_subscriber::fmt()";
const LOGGING: &str = "cli/src/logging.rs";
/// Code that the same file must contain: the bounds of every line.
const BOUNDS_LOG: &str = ".with_writer(Bounded::new(";

/// Words of a list, and the code that a source must contain for each to be true.
type Words = [(&'static str, &'static [&'static str])];

const GATES: &Words = &[
    ("gate", &["gate.admit("]),
    ("owner", &["0o077"]),
    ("callers", &[]),
    ("lab", &[]),
    ("program", &["::accept"]),
];
const ADDRESS_RULES: &Words = &[
    ("policy", &["way.addresses", "longhaul_policy"]),
    ("guests", &["destination_filter"]),
    ("probes", &["may_reach("]),
    ("callers", &[]),
    ("user", &[]),
    ("machine", &[]),
    ("lab", &[]),
];

/// Returns the code of a source, without its tests and comments.
fn code(source: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let begins = |at: &usize| {
        let next = lines.get(at + 1).copied().unwrap_or_default();
        lines[*at] == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{')
    };
    let tests = (0..lines.len()).find(begins).unwrap_or(lines.len());
    let code = lines[..tests].iter();
    let code = code.filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| format!("{line}\n")).collect()
}

/// Returns the code of every source of the programs, by its path below `crates/`.
fn sources() -> BTreeMap<String, String> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let served = crates.filter(|name| !LEFT_OUT.contains(&name.as_str()));
    served
        .flat_map(|name| files(&root().join("crates").join(name).join("src")).unwrap())
        .map(|file| {
            let path = file.strip_prefix(root().join("crates")).unwrap();
            let path = path.to_str().unwrap().to_owned();
            let code = code(&text(&format!("crates/{path}")));
            (path, code)
        })
        .collect()
}

/// Returns true if the code logs a line that no bounded log admits.
fn logs_by_itself(code: &str) -> bool {
    let lines: Vec<&str> = code.lines().collect();
    (0..lines.len()).any(|at| {
        let above = &lines[at.saturating_sub(LINES_ABOVE)..=at];
        LOGS.iter().any(|log| lines[at].contains(log))
            && !above.iter().any(|line| line.contains(BOUNDED_LOG))
    })
}

/// Returns the texts between backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Returns the rows of the table after a heading, as cells. The first cell has sources.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let behind = page
        .split(&format!("\n## {heading}\n"))
        .nth(1)
        .unwrap_or_default();
    let section = behind.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

/// Returns the errors in the list after `heading`. It must contain exactly the sources that
/// `belongs` accepts, and the word in column `column` must be true for each.
fn faults(
    page: &str,
    heading: &str,
    sources: &BTreeMap<String, String>,
    belongs: impl Fn(&str) -> bool,
    words: Option<(usize, &Words)>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut listed = BTreeSet::new();
    for row in table(page, heading) {
        for source in quoted(&row[0]) {
            if let Some((column, words)) = words {
                let cell = row.get(column).map_or("", String::as_str);
                faults.extend(
                    untrue(&source, cell, words, sources).map(|why| format!("{heading}: {why}")),
                );
            }
            if row.iter().skip(1).any(String::is_empty) || row.len() < 2 {
                faults.push(format!("{heading}: {source} has an empty cell"));
            }
            listed.insert(source);
        }
    }
    let found = sources.iter().filter(|(_, code)| belongs(code));
    let found: BTreeSet<String> = found.map(|(path, _)| path.clone()).collect();
    faults.extend(
        found
            .difference(&listed)
            .map(|path| format!("{heading}: {path} is not on the list")),
    );
    faults.extend(
        listed
            .difference(&found)
            .map(|path| format!("{heading}: {path} has none")),
    );
    faults
}

/// Returns the reason why `cell`, a word or `WORD of FILE`, is not true of `source`, if it is not.
fn untrue(
    source: &str,
    cell: &str,
    words: &Words,
    sources: &BTreeMap<String, String>,
) -> Option<String> {
    let (word, place) = match cell.split_once(" of `") {
        Some((word, file)) => (word, file.trim_end_matches('`')),
        None => (cell, source),
    };
    let Some((_, evidence)) = words.iter().find(|(known, _)| *known == word) else {
        return Some(format!("{source}: {cell:?} is no word of this list"));
    };
    let Some(code) = sources.get(place) else {
        return Some(format!("{source}: there is no {place}"));
    };
    let missing = evidence.iter().find(|text| !code.contains(**text))?;
    Some(format!("{source}: {place} has no {missing}"))
}

#[test]
fn every_listener_log_registry_and_connection_is_bounded() {
    let (page, sources) = (text(PAGE), sources());
    let has = |patterns: &'static [&'static str]| {
        move |code: &str| patterns.iter().any(|pattern| code.contains(pattern))
    };
    let mut found = faults(
        &page,
        "Listeners",
        &sources,
        has(&LISTENS),
        Some((2, GATES)),
    );
    found.extend(faults(&page, "Logs", &sources, logs_by_itself, None));
    let registers = |code: &str| code.contains(REGISTERS);
    found.extend(faults(&page, "Registries", &sources, registers, None));
    let outgoing = "Outgoing connections";
    found.extend(faults(
        &page,
        outgoing,
        &sources,
        has(&CONNECTS),
        Some((2, ADDRESS_RULES)),
    ));
    for (path, code) in &sources {
        if code.contains(SETS_LOG_UP) && (path != LOGGING || !code.contains(BOUNDS_LOG)) {
            found.push(format!("{path}: a log without {BOUNDS_LOG}"));
        }
    }
    assert!(sources[LOGGING].contains(SETS_LOG_UP));
    assert!(found.is_empty(), "{PAGE}:\n{}", found.join("\n"));
}

#[test]
fn wrong_lists_of_sources_are_found() {
    let page = "\n## Listeners\n| source | who | gate |\n|---|---|---|\n\
        | `a.rs`, `b.rs` | all | gate |\n| `c.rs` | all | gate of `a.rs` |\n\
        | `gone.rs` | all | hope |\n\n## Next\n| `e.rs` | x | gate |\n";
    let source = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    let sources = BTreeMap::from([
        source("a.rs", "listener.accept(); gate.admit(ip)"),
        source("b.rs", "listener.accept()"),
        source("c.rs", "listener.accept()"),
        source("d.rs", "listener.accept()"),
    ]);
    let belongs = |code: &str| code.contains("listener.accept(");
    assert_eq!(
        faults(page, "Listeners", &sources, belongs, Some((2, GATES))),
        [
            "Listeners: b.rs: b.rs has no gate.admit(",
            "Listeners: gone.rs: \"hope\" is no word of this list",
            "Listeners: d.rs is not on the list",
            "Listeners: gone.rs has none",
        ]
    );
}

#[test]
fn lines_of_the_bounded_log_are_recognized() {
    let bounded = "events.log(None, |left_out| {\n    tracing::warn!(left_out, \"a\");\n});\n";
    assert!(!logs_by_itself(bounded));
    assert!(logs_by_itself("tracing::warn!(\"a\");\n"));
    assert!(logs_by_itself(&format!(
        "{bounded}{}tracing::info!(\"b\");\n",
        "\n".repeat(LINES_ABOVE)
    )));
    let tests = "fn f() {}\n// tracing::info!\n#[cfg(test)]\nmod tests {\n tracing::info!(); }";
    assert_eq!(code(tests), "fn f() {}\n");
}
