//! Status of a running on-ramp: requested over its socket, and reported in JSON.

use std::io;
use std::path::Path;
use std::time::Duration;

use longhaul_ramp_protocol::{MAX_MESSAGE_BYTES, MAX_STATUS_PART_BYTES, RampReply, RampRequest};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use serde_json::{Value, json};

use crate::engine::Engine;

/// Time limit for the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of reported destinations, and of hosts; the latest ones.
const MAX_REPORTED: usize = 256;
/// Maximum size of an answer, in bytes.
const MAX_STATUS_BYTES: usize = 1024 * 1024;

impl Engine {
    /// Returns the connections by entry and outcome, the table in force, and the knowledge of
    /// destinations.
    pub(crate) fn status(&self) -> Value {
        let connections: Vec<Value> = self
            .metrics
            .connections()
            .into_iter()
            .map(|((entry, outcome), count)| {
                json!({ "entry": entry, "outcome": outcome.word(), "count": count })
            })
            .collect();
        let table = self.table().report();
        let now = self.now();
        let (hosts, destinations) = self.memory().report(now, MAX_REPORTED);
        let hosts: Vec<Value> = hosts
            .into_iter()
            .map(|(address, rtt, met)| {
                json!({
                    "address": address,
                    "round_trip_seconds": rtt.as_secs_f64(),
                    "measured_seconds_ago": met.as_secs(),
                })
            })
            .collect();
        let destinations: Vec<Value> = destinations
            .into_iter()
            .map(|reported| {
                json!({
                    "host": reported.host.to_string(),
                    "port": reported.port,
                    "connections": reported.connections,
                    "usually_below_bytes": reported.usually_below,
                    "largest_bytes": reported.largest,
                    "ended_seconds_ago": reported.met.as_secs(),
                })
            })
            .collect();
        json!({
            "connections": connections,
            "carried": self.metrics.carried.get(),
            "routes": {
                "file": table.file.to_string_lossy(),
                "rules": table.rules,
                "read_seconds_ago": table.age.as_secs(),
                "problem": table.problem,
            },
            "reserved_paths": self.spread.report(),
            "hosts": hosts,
            "destinations": destinations,
        })
    }
}

/// Splits a text into parts that each fit into a reply. None is empty unless the text is.
pub(crate) fn split_parts(mut text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    loop {
        let (part, rest) = text.split_at(text.floor_char_boundary(MAX_STATUS_PART_BYTES));
        parts.push(part);
        text = rest;
        if text.is_empty() {
            return parts;
        }
    }
}

/// Requests the status of the on-ramp at this socket: a JSON object.
///
/// # Errors
/// If nobody answers, or no compatible on-ramp.
pub fn request_status(path: &Path) -> io::Result<String> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, Some(ANSWER_TIMEOUT))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let bytes = RampRequest::Status.encode();
    send(
        &socket,
        bytes.finish().map_err(io::Error::other)?,
        SendFlags::NOSIGNAL,
    )?;
    let mut text = String::new();
    while text.len() <= MAX_STATUS_BYTES {
        let mut packet = [0; MAX_MESSAGE_BYTES];
        let (_, length) = recv(&socket, &mut packet, RecvFlags::TRUNC)?;
        if length == 0 {
            break;
        }
        match RampReply::decode(packet.get(..length).unwrap_or_default())
            .map_err(io::Error::other)?
        {
            RampReply::Status { part, more } => {
                text.push_str(part);
                if !more {
                    return Ok(text);
                }
            }
            _ => break,
        }
    }
    Err(io::Error::other(
        "the on-ramp did not report its status: it runs another release, or is not an on-ramp",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_and_fit() {
        assert_eq!(split_parts(""), [""]);
        let text = "äb".repeat(5000);
        let parts = split_parts(&text);
        assert!(
            parts.len() > 3
                && parts
                    .iter()
                    .all(|part| !part.is_empty() && part.len() <= MAX_STATUS_PART_BYTES)
        );
        assert_eq!(parts.concat(), text);
    }
}
