//! `longhaul onramp status`: the state of the running on-ramp.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_proto::text::printable;
use quantities::{ByteCount, Rate, Time};
use serde_json::Value;

use super::configured_socket;
use crate::exit::Exit;
use crate::{answer, home};

/// Options of `longhaul onramp status`.
#[derive(Args)]
pub struct StatusCommand {
    /// The on-ramp's socket [default: that of LONGHAUL_ONRAMP, else onramp/socket in the state
    /// directory].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    /// Asks the on-ramp, and prints the answer.
    pub fn run(&self) -> Result<Exit> {
        let path = match &self.socket {
            Some(path) => path.clone(),
            None => configured_socket()?,
        };
        let text = longhaul_onramp::request_status(&path)
            .with_context(|| format!("no on-ramp answers at {}", home::display_path(&path)))?;
        if self.json {
            answer::write_line(text);
            return Ok(Exit::Success);
        }
        let status: Value = serde_json::from_str(&text).context(
            "the on-ramp did not report its status: it runs another release, or is not \
                an on-ramp",
        )?;
        answer::write_lines(lines(&status).into_iter());
        Ok(Exit::Success)
    }
}

fn lines(status: &Value) -> Vec<String> {
    let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let routes = &status["routes"];
    let mut lines = vec![format!(
        "{} rules of {}, read {} ago",
        routes["rules"],
        shown(&routes["file"]),
        seconds(&routes["read_seconds_ago"]),
    )];
    if let Some(problem) = routes["problem"].as_str() {
        lines.push(format!(
            "the file has an error, so these rules stay in use: {}",
            printable(problem.as_bytes())
        ));
    }
    lines.push(format!("{} connections carried now", status["carried"]));
    let mut table = vec![[
        "ENTRY".to_owned(),
        "OUTCOME".to_owned(),
        "CONNECTIONS".to_owned(),
    ]];
    table.extend(list("connections").iter().map(|one| {
        [
            shown(&one["entry"]),
            shown(&one["outcome"]),
            one["count"].to_string(),
        ]
    }));
    lines.extend(aligned(&table));
    lines.extend(aligned(&reserved_paths(&list("reserved_paths"))));
    let mut table = vec![[
        "HOST".to_owned(),
        "ROUND TRIP".to_owned(),
        "MEASURED".to_owned(),
    ]];
    table.extend(list("hosts").iter().map(|one| {
        let rtt = Time::from_seconds(one["round_trip_seconds"].as_f64().unwrap_or_default());
        let ago = seconds(&one["measured_seconds_ago"]);
        [
            shown(&one["address"]),
            rtt.to_string(),
            format!("{ago} ago"),
        ]
    }));
    lines.extend(aligned(&table));
    let mut table = vec![[
        "DESTINATION".to_owned(),
        "CONNECTIONS".to_owned(),
        "USUALLY BELOW".to_owned(),
        "LARGEST".to_owned(),
    ]];
    table.extend(list("destinations").iter().map(|one| {
        let size = |name: &str| {
            let bytes = one[name].as_u64();
            bytes.map_or_else(|| "-".to_owned(), |bytes| ByteCount(bytes).to_string())
        };
        let at = format!("{}:{}", shown(&one["host"]), one["port"]);
        [
            at,
            one["connections"].to_string(),
            size("usually_below_bytes"),
            size("largest_bytes"),
        ]
    }));
    lines.extend(aligned(&table));
    lines
}

/// Returns the table of reserved paths.
fn reserved_paths(paths: &[Value]) -> Vec<[String; 6]> {
    let header = [
        "RESERVATION",
        "PATH",
        "PORTS",
        "RESERVED",
        "MEASURED",
        "CONNECTIONS",
    ];
    let rate = |value: &Value| {
        let bps = value.as_f64();
        bps.map_or_else(|| "-".to_owned(), |bps| Rate::nearest(bps).to_string())
    };
    let rows = paths.iter().map(|path| {
        [
            path["reservation"].to_string(),
            path["path"].to_string(),
            format!("{}-{}", path["first_port"], path["last_port"]),
            rate(&path["reserved_bps"]),
            rate(&path["measured_bps"]),
            path["connections"].to_string(),
        ]
    });
    std::iter::once(header.map(str::to_owned))
        .chain(rows)
        .collect()
}

fn shown(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default().as_bytes())
}

fn seconds(value: &Value) -> Time {
    Time(Duration::from_secs(value.as_u64().unwrap_or_default()))
}

/// Formats a table with aligned columns. Returns nothing if it only has a header.
fn aligned<const N: usize>(table: &[[String; N]]) -> Vec<String> {
    if table.len() < 2 {
        return Vec::new();
    }
    let widths: [usize; N] = std::array::from_fn(|column| {
        let lengths = table.iter().filter_map(|row| row.get(column));
        lengths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let text: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        text.trim_end().to_owned()
    };
    table.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_shown_in_lines() {
        let status = json!({
            "connections": [{ "entry": "socks", "outcome": "route", "count": 12 }],
            "carried": 2,
            "routes": {
                "file": "/r", "rules": 3, "read_seconds_ago": 7, "problem": "/r:1: \u{1b}"
            },
            "reserved_paths": [{
                "reservation": 12, "path": 1, "first_port": 10240, "last_port": 10303,
                "reserved_bps": 4e8, "measured_bps": null, "connections": 8
            }],
            "hosts": [{
                "address": "192.0.2.1", "round_trip_seconds": 0.08, "measured_seconds_ago": 5
            }],
            "destinations": [
                {
                    "host": "h.example", "port": 80, "connections": 4, "usually_below_bytes": 1024,
                    "largest_bytes": 4096
                },
                {
                    "host": "h.example", "port": 81, "connections": 1, "usually_below_bytes": null,
                    "largest_bytes": 7
                },
            ],
        });
        let shown = lines(&status).join("\n");
        assert_eq!(
            shown,
            "3 rules of /r, read 7 s ago\n\
             the file has an error, so these rules stay in use: /r:1: \\u{1b}\n\
             2 connections carried now\n\
             ENTRY  OUTCOME  CONNECTIONS\n\
             socks  route    12\n\
             RESERVATION  PATH  PORTS        RESERVED    MEASURED  CONNECTIONS\n\
             12           1     10240-10303  400 Mbit/s  -         8\n\
             HOST       ROUND TRIP  MEASURED\n\
             192.0.2.1  80 ms       5 s ago\n\
             DESTINATION   CONNECTIONS  USUALLY BELOW  LARGEST\n\
             h.example:80  4            1 KiB          4 KiB\n\
             h.example:81  1            -              7 B"
        );
        assert_eq!(lines(&json!({})).len(), 2, "nothing is known");
    }
}
