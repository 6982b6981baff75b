//! Forwarding files: parsing of TOML into entries, with errors that name the line.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_proto::{Hop, Route};
use serde::Deserialize;
use toml::Spanned;

use crate::HostPattern;
use crate::position::{line_of, one_line};

/// Maximum number of depots of an entry.
const MAX_NEXT_HOPS: usize = 4;

/// One pattern of a table.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Pattern of loose hops; unique in the table.
    pub(super) to: HostPattern,
    /// Depots to add, in order of preference; none if the hop is dialled itself.
    pub(super) next_hops: Vec<Hop>,
}

/// Error in a forwarding table.
#[derive(Debug, thiserror::Error)]
pub enum ForwardingError {
    /// The file cannot be read: check the path and its permissions.
    #[error("{}: cannot read the forwarding table: {source}", one_line(file.display()))]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not valid TOML, or has an unknown field: fix the line.
    #[error("{}:{line}: {problem}", one_line(file.display()))]
    Syntax {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Description of the error.
        problem: String,
    },
    /// A field has an invalid value: fix it.
    #[error("{}:{line}: {field}: {problem}", one_line(file.display()))]
    Field {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Name of the field, such as `forward[2].to`.
        field: String,
        /// Description of the error, and what to write.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    #[serde(default)]
    forward: Vec<EntryText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    to: Spanned<Vec<Spanned<String>>>,
    next_hops: Spanned<Vec<Spanned<String>>>,
}

/// Parses the entries of `text`, one for each pattern. `file` is its name in errors.
pub(super) fn parse_entries(text: &str, file: &Path) -> Result<Vec<Entry>, ForwardingError> {
    let parsed: TableText = toml::from_str(text).map_err(|error| ForwardingError::Syntax {
        file: file.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        problem: one_line(error.message()),
    })?;
    let mut entries: Vec<(Entry, usize)> = Vec::new();
    for (number, forward) in (1..).zip(parsed.forward) {
        let failed = |at: usize, field: &str, problem: String| ForwardingError::Field {
            file: file.to_owned(),
            line: line_of(text, at),
            field: format!("forward[{number}].{field}"),
            problem: one_line(problem),
        };
        let (to, hops) = (&forward.to, &forward.next_hops);
        if to.get_ref().is_empty() {
            let problem = "is empty: such an entry never applies; remove it".to_owned();
            return Err(failed(to.span().start, "to", problem));
        }
        let next_hops = parse_next_hops(hops.get_ref()).map_err(|(at, problem)| {
            failed(at.unwrap_or(hops.span().start), "next_hops", problem)
        })?;
        for item in to.get_ref() {
            let at = item.span().start;
            let pattern: HostPattern = item
                .get_ref()
                .parse()
                .map_err(|problem| failed(at, "to", problem))?;
            let same = entries.iter().find(|(entry, _)| entry.to == pattern);
            if let Some((_, other)) = same {
                let problem = format!(
                    "{:?} is in entry {other} already: name each pattern once",
                    item.get_ref()
                );
                return Err(failed(at, "to", problem));
            }
            let next_hops = next_hops.clone();
            entries.push((
                Entry {
                    to: pattern,
                    next_hops,
                },
                number,
            ));
        }
    }
    Ok(entries.into_iter().map(|(entry, _)| entry).collect())
}

/// Parses the depots of an entry. An error has its position, if one item causes it.
fn parse_next_hops(items: &[Spanned<String>]) -> Result<Vec<Hop>, (Option<usize>, String)> {
    if items.is_empty() {
        let problem = "is empty: write [\"direct\"] to add no depot before these hops";
        return Err((None, problem.to_owned()));
    }
    if items.len() > MAX_NEXT_HOPS {
        let problem = format!("has more than {MAX_NEXT_HOPS} depots: leave some out");
        return Err((None, problem));
    }
    if items.iter().any(|item| item.get_ref() == "direct") {
        return match items {
            [_] => Ok(Vec::new()),
            _ => {
                let problem = "has depots beside \"direct\": the hop itself is dialled anyway if \
                    none of them answers; remove \"direct\"";
                Err((None, problem.to_owned()))
            }
        };
    }
    let parse = |item: &Spanned<String>| {
        parse_hop(item.get_ref()).map_err(|problem| (Some(item.span().start), problem))
    };
    items.iter().map(parse).collect()
}

/// Parses a depot as a route writes a strict hop.
fn parse_hop(text: &str) -> Result<Hop, String> {
    let route: Route = text
        .parse()
        .map_err(|error| format!("{text:?} is no depot: {error}"))?;
    match route.hops() {
        [hop] if hop.strict => Ok(hop.clone()),
        _ => Err(format!(
            "{text:?} is not one depot: write HOST, HOST:PORT or KEY@HOST, after tcp: or quic: if \
             the transport matters"
        )),
    }
}
