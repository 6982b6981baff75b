//! The datagram of a firefly, version 1: a header as in syslog (RFC 5424), and a JSON object
//! (SciTags Technical Specification, section "UDP Firefly"). Pure.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde::Serialize;

use crate::tag::FlowTag;

/// Facility local0, severity informational, syslog version 1.
const HEADER: &str = "<134>1";
/// Name of the program, as syslog and the context have it.
const PROGRAM: &str = "longhaul";
const APPLICATION: &str = concat!("longhaul v", env!("CARGO_PKG_VERSION"));
/// Form of times: UTC with microseconds.
const TIME_FORM: &str = "%Y-%m-%dT%H:%M:%S%.6f+00:00";

/// A flow: its two ends and its protocol. The supplier of the data comes first, if it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
}

/// Protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP, which QUIC uses.
    Udp,
}

/// Bytes that the end which reports a flow has received and sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FlowUsage {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// State of a flow when a firefly is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FlowState {
    Start,
    Ongoing,
    End,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Firefly {
    version: u8,
    flow_lifecycle: Lifecycle,
    flow_id: FlowId,
    usage: FlowUsage,
    context: Context,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Lifecycle {
    state: FlowState,
    current_time: String,
    start_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct FlowId {
    afi: &'static str,
    src_ip: String,
    dst_ip: String,
    protocol: Protocol,
    src_port: u16,
    dst_port: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Context {
    experiment_id: u16,
    activity_id: u16,
    application: &'static str,
}

/// Times of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowTimes {
    pub started: Timestamp,
    pub now: Timestamp,
}

/// Returns the datagram about `flow`, sent by the machine `host`.
pub(crate) fn datagram(
    tag: FlowTag,
    flow: &Flow,
    state: FlowState,
    times: FlowTimes,
    usage: FlowUsage,
    host: &str,
) -> Vec<u8> {
    let now = time(times.now);
    let (source, destination) = (flow.source.ip().to_canonical(), flow.destination.ip());
    let firefly = Firefly {
        version: 1,
        flow_lifecycle: Lifecycle {
            state,
            current_time: now.clone(),
            start_time: time(times.started),
            end_time: (state == FlowState::End).then(|| now.clone()),
        },
        flow_id: FlowId {
            afi: match source.is_ipv4() {
                true => "ipv4",
                false => "ipv6",
            },
            src_ip: source.to_string(),
            dst_ip: destination.to_canonical().to_string(),
            protocol: flow.protocol,
            src_port: flow.source.port(),
            dst_port: flow.destination.port(),
        },
        usage,
        context: Context {
            experiment_id: tag.experiment,
            activity_id: tag.activity,
            application: APPLICATION,
        },
    };
    let mut datagram = format!("{HEADER} {now} {host} {PROGRAM} - firefly-json - ").into_bytes();
    // Only maps with keys other than texts fail, and there are none.
    datagram.extend(serde_json::to_vec(&firefly).unwrap_or_default());
    datagram
}

fn time(moment: Timestamp) -> String {
    moment.strftime(TIME_FORM).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the header and the object of a datagram.
    fn parts(flow: &Flow, state: FlowState) -> (String, Value) {
        let times = FlowTimes {
            started: "2026-11-30T03:38:57.120921Z".parse().unwrap(),
            now: "2026-11-30T03:39:57Z".parse().unwrap(),
        };
        let usage = FlowUsage {
            received: 7,
            sent: 9,
        };
        let tag = "16:2".parse().unwrap();
        let datagram = datagram(tag, flow, state, times, usage, "store");
        assert!(datagram.len() < 1400, "{} bytes", datagram.len());
        let text = String::from_utf8(datagram).unwrap();
        let (header, object) = text.split_at(text.find('{').unwrap());
        (header.to_owned(), serde_json::from_str(object).unwrap())
    }

    #[test]
    fn fireflies_have_the_form_of_the_specification() {
        let flow = Flow {
            source: "192.0.2.10:7511".parse().unwrap(),
            destination: "192.0.2.30:57400".parse().unwrap(),
            protocol: Protocol::Tcp,
        };
        let (header, object) = parts(&flow, FlowState::End);
        assert_eq!(
            header,
            "<134>1 2026-11-30T03:39:57.000000+00:00 store longhaul - firefly-json - "
        );
        let expected = json!({
            "version": 1,
            "flow-lifecycle": {
                "state": "end",
                "current-time": "2026-11-30T03:39:57.000000+00:00",
                "start-time": "2026-11-30T03:38:57.120921+00:00",
                "end-time": "2026-11-30T03:39:57.000000+00:00",
            },
            "flow-id": {
                "afi": "ipv4", "src-ip": "192.0.2.10", "dst-ip": "192.0.2.30",
                "protocol": "tcp", "src-port": 7511, "dst-port": 57400,
            },
            "usage": {"received": 7, "sent": 9},
            "context": {
                "experiment-id": 16, "activity-id": 2, "application": APPLICATION,
            },
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn only_the_last_firefly_has_an_end() {
        let flow = Flow {
            source: "[2001:db8::1]:7511".parse().unwrap(),
            destination: "[2001:db8::2]:57400".parse().unwrap(),
            protocol: Protocol::Udp,
        };
        for state in [FlowState::Start, FlowState::Ongoing] {
            let (_, object) = parts(&flow, state);
            assert!(object["flow-lifecycle"].get("end-time").is_none());
            assert_eq!(object["flow-id"]["afi"], "ipv6");
            assert_eq!(object["flow-id"]["protocol"], "udp");
        }
        // Addresses of IPv4 on a socket of both families.
        let flow = Flow {
            source: "[::ffff:192.0.2.10]:7511".parse().unwrap(),
            destination: "[::ffff:192.0.2.30]:57400".parse().unwrap(),
            protocol: Protocol::Tcp,
        };
        let (_, object) = parts(&flow, FlowState::Start);
        assert_eq!(object["flow-id"]["afi"], "ipv4");
        assert_eq!(object["flow-id"]["dst-ip"], "192.0.2.30");
    }
}
