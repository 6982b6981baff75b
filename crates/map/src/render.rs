//! A map as tables for people, in 100 columns.

use std::fmt::Write;

use longhaul_proto::text::printable;
use quantities::{Rate, Time};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::Moment;
use crate::model::{
    CapacitySource, Depot, DepotState, Direction, Host, LatencySource, Link, Map, SessionEnd, Site,
    SiteKind,
};

/// Maximum width of a line, in terminal columns.
pub const MAX_COLUMNS: usize = 100;
/// Gap between columns.
const GAP: usize = 2;

/// Formats the map as tables, followed by the notes of its reader. Empty sections are left out.
/// `now` is the time for the states of depots.
#[must_use]
pub fn render_tables(map: &Map, now: Moment) -> String {
    let mut out = String::new();
    table(
        &mut out,
        &count_with_noun(map.sites.len(), "site", "sites"),
        &["", "latitude", "longitude", "label"],
        map.sites.iter().map(site).collect(),
    );
    table(
        &mut out,
        &count_with_noun(map.depots.len(), "depot", "depots"),
        &["", "site", "state", "listens at", "limits", "version"],
        map.depots.iter().map(|of| depot(of, now)).collect(),
    );
    table(
        &mut out,
        &count_with_noun(map.hosts.len(), "host", "hosts"),
        &["", "site", "addresses", "access", "sessions end"],
        map.hosts.iter().map(host).collect(),
    );
    table(
        &mut out,
        &count_with_noun(map.links.len(), "link", "links"),
        &["", "state", "capacity", "reservable", "one way"],
        map.links.iter().map(link).collect(),
    );
    for note in &map.notes {
        for line in wrap(&format!("note: {}", printable(note.as_bytes()))) {
            let _ = writeln!(out, "{line}");
        }
    }
    if map.links.iter().any(is_estimated) {
        out.push_str(
            "~ estimated from coordinates: the great circle at 0.66 of the speed of light\n",
        );
    }
    if map
        .links
        .iter()
        .flat_map(directions)
        .any(|direction| is_vague(&direction))
    {
        out.push_str("~ a capacity that is assumed, or known only as a bound\n");
    }
    if out.is_empty() {
        out.push_str("the map is empty\n");
    }
    out
}

/// Wraps a text.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let word = fit(word, MAX_COLUMNS);
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) if line.width() + 1 + word.width() <= MAX_COLUMNS => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

fn count_with_noun(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn site(site: &Site) -> Vec<String> {
    let degrees = |degrees: Option<f64>| {
        degrees
            .map(|degrees| format!("{degrees:.2}"))
            .unwrap_or_default()
    };
    let label = site.label.clone().unwrap_or_default();
    vec![
        site.name.clone(),
        degrees(site.position.map(|position| position.latitude)),
        degrees(site.position.map(|position| position.longitude)),
        match (site.kind, label.is_empty()) {
            (SiteKind::Junction, true) => "junction".to_owned(),
            (SiteKind::Junction, false) => format!("junction, {label}"),
            _ => label,
        },
    ]
}

fn depot(depot: &Depot, now: Moment) -> Vec<String> {
    let ago = |heard: Moment| Time::from_seconds((now - heard).round());
    let addresses: Vec<String> = depot
        .addresses
        .iter()
        .map(|address| address.endpoint.to_string())
        .collect();
    let sessions = depot
        .limits
        .max_sessions
        .map(|count| count_with_noun(count as usize, "session", "sessions"));
    let limits: Vec<String> = depot
        .limits
        .max_rate
        .map(|rate| rate.to_string())
        .into_iter()
        .chain(sessions)
        .collect();
    vec![
        depot.name.clone(),
        depot.site.clone().unwrap_or_default(),
        match depot.state {
            DepotState::Listed => "listed".to_owned(),
            DepotState::Live { heard, .. } => format!("live, heard {:.2} ago", ago(heard)),
            DepotState::Stale { heard, .. } => format!("stale, heard {:.2} ago", ago(heard)),
        },
        addresses.join(", "),
        limits.join(", "),
        depot.version.clone().unwrap_or_default(),
    ]
}

fn host(host: &Host) -> Vec<String> {
    vec![
        host.name.clone(),
        host.site.clone(),
        host.addresses.join(", "),
        host.access.map(|rate| rate.to_string()).unwrap_or_default(),
        match &host.end {
            SessionEnd::Acceptor => "there".to_owned(),
            SessionEnd::Offramp { endpoint, .. } => format!("at {endpoint}"),
        },
    ]
}

fn link(link: &Link) -> Vec<String> {
    let both = |reported: fn(&Direction) -> String| {
        let forward = reported(&link.current_forward());
        match link.current_backward().as_ref().map(reported) {
            Some(backward) if backward == forward => forward,
            Some(backward) => format!("{forward}, back {backward}"),
            None => format!("{forward}, one way"),
        }
    };
    let latency = link.latency.map(|latency| {
        let mark = if latency.source == LatencySource::Estimated {
            "~"
        } else {
            ""
        };
        format!("{mark}{:.3}", Time::from(latency.one_way))
    });
    let state = link
        .live
        .map_or("", |live| if live.up { "up" } else { "down" });
    vec![
        link.name.clone(),
        state.to_owned(),
        both(|direction| {
            let mark = if is_vague(direction) { "~" } else { "" };
            format!("{mark}{}", shown_rate(direction.rate()))
        }),
        both(|direction| shown_rate(direction.reservable_rate())),
        latency.unwrap_or_else(|| "?".to_owned()),
    ]
}

fn shown_rate(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "?".to_owned(), |rate| rate.to_string())
}

fn directions(link: &Link) -> impl Iterator<Item = Direction> {
    std::iter::once(link.current_forward()).chain(link.current_backward())
}

fn is_estimated(link: &Link) -> bool {
    link.latency
        .is_some_and(|latency| latency.source == LatencySource::Estimated)
}

fn is_vague(direction: &Direction) -> bool {
    direction
        .capacity
        .is_some_and(|capacity| capacity.source != CapacitySource::Stated)
}

/// Writes a table if it has rows. `title` is the heading of the first column. Empty columns are
/// left out.
fn table(out: &mut String, title: &str, heads: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let head = std::iter::once(title)
        .chain(heads.iter().skip(1).copied())
        .map(str::to_owned)
        .collect();
    let mut cells: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    for cell in cells.iter_mut().flatten() {
        *cell = printable(cell.as_bytes());
    }
    let is_used = |column: usize| {
        cells
            .iter()
            .skip(1)
            .any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
    };
    let used: Vec<usize> = (0..heads.len()).filter(|column| is_used(*column)).collect();
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let widest = |column: &usize| {
        cells
            .iter()
            .map(|row| cell(row, *column).width())
            .max()
            .unwrap_or(0)
    };
    let widths = share_widths(&used.iter().map(widest).collect::<Vec<_>>());
    for row in &cells {
        let mut line = String::new();
        for (column, width) in used.iter().zip(&widths) {
            let text = fit(&cell(row, *column), *width);
            let blanks = width.saturating_sub(text.width()) + GAP;
            line.push_str(&text);
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
}

/// Returns the widths of columns in a line: the wanted ones, or, if they do not fit, an equal
/// maximum for all.
fn share_widths(wanted: &[usize]) -> Vec<usize> {
    let gaps = GAP * wanted.len().saturating_sub(1);
    let room = MAX_COLUMNS.saturating_sub(gaps);
    let fits = |most: usize| wanted.iter().map(|width| (*width).min(most)).sum::<usize>() <= room;
    let most = (1..=room).rev().find(|most| fits(*most)).unwrap_or(1);
    wanted.iter().map(|width| (*width).min(most)).collect()
}

/// Fits a text into so many columns. If it is cut off, it ends with an ellipsis.
fn fit(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut width = 0;
    for char in text.chars() {
        let more = char.width().unwrap_or(0);
        if width + more + 1 > columns {
            break;
        }
        cut.push(char);
        width += more;
    }
    cut.push('…');
    cut
}
