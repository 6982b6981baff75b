//! Hops of a traced session, from the answers of the set-up. Pure.

use std::time::Duration;

use longhaul_proto::{Endpoint, Hop, HopDetails, PublicKey, Route, Status, StatusCode};
use quantities::Time;
use serde_json::{Value, json};

/// Heads of the table's columns.
const HEADS: [&str; 9] = [
    "hop",
    "endpoint",
    "set-up",
    "rtt",
    "transport",
    "congestion",
    "verdict",
    "chosen by",
    "key",
];
/// Text for what is not known.
const UNKNOWN: &str = "-";

/// Steps of a session's set-up.
#[derive(Debug, Default)]
pub struct SetupRecord {
    /// Details of the first hop's connection, once established.
    pub first_hop: Option<HopDetails>,
    /// Answers of the hops, in their order.
    pub answers: Vec<Answer>,
    /// Key that the server proved in the handshake.
    pub server_key: Option<PublicKey>,
}

/// Answer of a hop.
#[derive(Debug)]
pub struct Answer {
    /// Time from the start until the answer arrived.
    pub at: Duration,
    /// The answer.
    pub status: Status,
    /// Key that signed it, if one did.
    pub signer: Option<PublicKey>,
}

/// Party that chose a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chooser {
    /// The command line.
    User,
    /// A rule of `routes.toml`.
    File,
    /// The controller, or the last table that it sent.
    Controller,
    /// Nobody: the server itself is dialled where no route is known.
    Default,
    /// The depot before it, which claims this key, if any.
    Depot(Option<PublicKey>),
}

/// One hop of a traced session.
#[derive(Debug, PartialEq)]
pub struct TracedHop {
    /// Position along the chain, from 1.
    number: usize,
    /// Endpoint, if it is certain.
    endpoint: Option<Endpoint>,
    /// Key that the hop claims.
    key: Option<PublicKey>,
    /// If true, the hop proved its key by a signature or a handshake.
    is_key_proven: bool,
    /// Time since the answer of the hop before, or since the start.
    set_up: Duration,
    /// Connection to the hop, if the one before tells.
    connection: Option<HopDetails>,
    /// Answer of the hop.
    verdict: StatusCode,
    /// Explanation of the answer; empty if there is none.
    detail: String,
    /// Party that chose the hop, if it is certain.
    chooser: Option<Chooser>,
}

/// Returns the hops that answered, for a session along `route`, which `chooser` chose.
pub fn trace_hops(
    route: &Route,
    destination: &Endpoint,
    chooser: Chooser,
    record: &SetupRecord,
) -> Vec<TracedHop> {
    let mut places = Places {
        route,
        destination,
        dialled: 0,
    };
    let mut hops = Vec::with_capacity(record.answers.len());
    let mut before: Option<&Answer> = None;
    for (number, answer) in (1..).zip(&record.answers) {
        let (endpoint, by) = match before {
            // This end dials the first place.
            None => places.take(),
            Some(before) => places.dial(before.status.at.as_ref(), answer),
        };
        let status = &answer.status;
        let server_key = record.server_key.filter(|_| status.acceptor);
        let signer = server_key.or(answer.signer);
        let since = before.map_or(Duration::ZERO, |before| before.at);
        hops.push(TracedHop {
            number,
            endpoint,
            key: signer.or(status.reporter),
            is_key_proven: signer.is_some(),
            set_up: answer.at.saturating_sub(since),
            connection: match before {
                None => record.first_hop.clone(),
                Some(before) => before.status.dialled.clone(),
            },
            verdict: status.code,
            detail: status.detail.clone(),
            chooser: by.map(|by| match by {
                ChosenBy::Route => chooser,
                ChosenBy::DepotBefore => {
                    Chooser::Depot(before.and_then(|before| before.status.reporter))
                }
            }),
        });
        before = Some(answer);
    }
    hops
}

/// The places of a route as a session passes them.
struct Places<'a> {
    route: &'a Route,
    destination: &'a Endpoint,
    /// Number of places that have been dialled.
    dialled: usize,
}

/// Reason for a hop.
#[derive(Clone, Copy)]
enum ChosenBy {
    Route,
    DepotBefore,
}

impl Places<'_> {
    /// Passes the next place of the route.
    fn take(&mut self) -> (Option<Endpoint>, Option<ChosenBy>) {
        let endpoint = self.endpoint().clone();
        self.dialled = self.dialled.saturating_add(1);
        (Some(endpoint), Some(ChosenBy::Route))
    }

    /// Passes the hop that a depot dialled `at` an endpoint, and that answered with `answer`.
    fn dial(
        &mut self,
        at: Option<&Endpoint>,
        answer: &Answer,
    ) -> (Option<Endpoint>, Option<ChosenBy>) {
        let listed = self.listed();
        let is_listed = match (at, listed) {
            (Some(at), _) => at == self.endpoint(),
            (None, Some(hop)) => hop.strict || (hop.key.is_some() && hop.key == answer.signer),
            (None, None) => true,
        };
        match at {
            _ if is_listed => self.take(),
            Some(at) => (Some(at.clone()), Some(ChosenBy::DepotBefore)),
            None => (None, None),
        }
    }

    /// Returns the next hop of the route; `None` if the destination is next.
    fn listed(&self) -> Option<&Hop> {
        self.route.hops().get(self.dialled)
    }

    fn endpoint(&self) -> &Endpoint {
        self.listed().map_or(self.destination, |hop| &hop.endpoint)
    }
}

impl Chooser {
    fn text(self) -> String {
        match self {
            Self::User => "you".to_owned(),
            Self::File => "routes.toml".to_owned(),
            Self::Controller => "controller".to_owned(),
            Self::Default => "default".to_owned(),
            Self::Depot(Some(key)) => format!("forwarding table of {key}"),
            Self::Depot(None) => "forwarding table of the depot before".to_owned(),
        }
    }
}

impl TracedHop {
    fn round_trip(&self) -> Option<Duration> {
        self.connection.as_ref()?.round_trip
    }

    fn congestion(&self) -> Option<&str> {
        self.connection.as_ref()?.congestion.as_deref()
    }

    fn transport(&self) -> Option<&'static str> {
        Some(self.connection.as_ref()?.transport.as_str())
    }

    fn verdict(&self) -> &'static str {
        match self.verdict {
            StatusCode::Ok => "allowed",
            code => code.word(),
        }
    }

    /// Returns the cells of its line.
    fn cells(&self) -> [String; HEADS.len()] {
        let shown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        let key = self.key.map(|key| match self.is_key_proven {
            true => key.to_string(),
            false => format!("{key} (not proven)"),
        });
        [
            self.number.to_string(),
            shown(self.endpoint.as_ref().map(Endpoint::to_string)),
            Time(self.set_up).to_string(),
            shown(self.round_trip().map(|time| Time(time).to_string())),
            shown(self.transport().map(str::to_owned)),
            shown(self.congestion().map(str::to_owned)),
            self.verdict().to_owned(),
            shown(self.chooser.map(Chooser::text)),
            shown(key),
        ]
    }

    /// Returns it as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "hop": self.number,
            "endpoint": self.endpoint.as_ref().map(Endpoint::to_string),
            "key": self.key.map(|key| key.to_string()),
            "key_proven": self.is_key_proven,
            "set_up_seconds": self.set_up.as_secs_f64(),
            "rtt_seconds": self.round_trip().map(|time| time.as_secs_f64()),
            "transport": self.transport(),
            "congestion": self.congestion(),
            "verdict": self.verdict(),
            "detail": (!self.detail.is_empty()).then_some(&self.detail),
            "chosen_by": self.chooser.map(Chooser::text),
        })
    }
}

/// Formats the hops as a table, one line for each.
pub fn table(hops: &[TracedHop]) -> Vec<String> {
    let heads = HEADS.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heads)
        .chain(hops.iter().map(TracedHop::cells))
        .collect();
    let mut widths = [0; HEADS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; HEADS.len()]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_proto::Transport;

    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    fn answer(at_ms: u64, number: u8, at: Option<&str>) -> Answer {
        let mut status = Status::new(StatusCode::Ok, number);
        status.reporter = Some(key(number));
        status.at = at.map(|at| at.parse().unwrap());
        status.dialled = at.map(|_| HopDetails {
            transport: Transport::Quic,
            round_trip: Some(Duration::from_millis(u64::from(number))),
            congestion: None,
        });
        Answer {
            at: Duration::from_millis(at_ms),
            status,
            signer: Some(key(number)),
        }
    }

    fn acceptor(at_ms: u64, number: u8) -> Answer {
        let mut answer = answer(at_ms, number, None);
        answer.status.acceptor = true;
        answer.status.reporter = None;
        answer.signer = None;
        answer
    }

    fn traced(route: &str, answers: Vec<Answer>) -> Vec<TracedHop> {
        let record = SetupRecord {
            first_hop: None,
            answers,
            server_key: Some(key(99)),
        };
        let destination = "store:7511".parse().unwrap();
        trace_hops(
            &route.parse().unwrap(),
            &destination,
            Chooser::User,
            &record,
        )
    }

    #[test]
    fn each_hop_has_its_endpoint_times_and_chooser() {
        let hops = traced(
            "near,~far",
            vec![
                answer(10, 1, Some("added:7510")),
                answer(15, 2, Some("far:7510")),
                answer(30, 3, Some("store:7511")),
                acceptor(31, 4),
            ],
        );
        let lines: Vec<_> = hops
            .iter()
            .map(|hop| {
                let [_, endpoint, set_up, rtt, transport, ..] = hop.cells();
                (endpoint, set_up, rtt, transport)
            })
            .collect();
        let line = |cells: [&str; 4]| {
            let [endpoint, set_up, rtt, transport] = cells.map(str::to_owned);
            (endpoint, set_up, rtt, transport)
        };
        assert_eq!(
            lines,
            [
                line(["near:7510", "10 ms", "-", "-"]),
                line(["added:7510", "5 ms", "1 ms", "quic"]),
                line(["far:7510", "15 ms", "2 ms", "quic"]),
                line(["store:7511", "1 ms", "3 ms", "quic"]),
            ]
        );
        let choosers: Vec<_> = hops.iter().map(|hop| hop.chooser).collect();
        let user = Some(Chooser::User);
        let depot = Some(Chooser::Depot(Some(key(1))));
        assert_eq!(choosers, [user, depot, user, user]);
        let keys: Vec<_> = hops.iter().map(|hop| hop.key).collect();
        assert_eq!(keys, [1, 2, 3, 99].map(|number| Some(key(number))));
    }

    #[test]
    fn what_a_depot_does_not_tell_is_not_guessed() {
        let hops = traced(
            "near,~far,last",
            vec![
                answer(1, 1, None),
                answer(2, 2, None),
                answer(3, 3, Some("last:7510")),
                answer(4, 4, None),
                acceptor(5, 5),
            ],
        );
        let endpoints: Vec<_> = hops
            .iter()
            .map(|hop| hop.endpoint.as_ref().map(Endpoint::to_string))
            .collect();
        assert_eq!(endpoints[0].as_deref(), Some("near:7510"));
        // It may be the loose hop, or a depot before it.
        assert_eq!((&endpoints[1], hops[1].chooser), (&None, None));
        assert_eq!(hops[1].cells()[3..6], ["-", "-", "-"]);
        assert_eq!(hops[1].to_json()["rtt_seconds"], Value::Null);
        let named = traced(
            &format!("near,~{}@far", key(2)),
            vec![answer(1, 1, None), answer(2, 2, None), acceptor(3, 3)],
        );
        assert_eq!(named[1].cells()[1], "far:7510");
        assert_eq!(named[2].cells()[1], "store:7511");
    }

    #[test]
    fn an_unsigned_key_is_marked() {
        let mut unsigned = answer(1, 1, None);
        unsigned.signer = None;
        let hops = traced("near", vec![unsigned]);
        assert!(hops[0].cells()[8].ends_with(" (not proven)"));
        assert_eq!(hops[0].to_json()["key_proven"], false);
    }

    #[test]
    fn a_refusal_is_the_verdict() {
        let mut refused = answer(1, 1, Some("store:7511"));
        refused.status.code = StatusCode::Refused;
        refused.status.detail = "no rule allows store:7511 for this key".to_owned();
        let hops = traced("near", vec![refused]);
        assert_eq!(hops[0].cells()[6], "refused by policy");
        let detail = &hops[0].to_json()["detail"];
        assert_eq!(detail, "no rule allows store:7511 for this key");
    }

    #[test]
    fn columns_are_aligned() {
        let lines = table(&traced("near", vec![answer(1, 1, None)]));
        let at = |line: &str, text: &str| line.find(text).unwrap();
        assert_eq!(at(&lines[0], "endpoint"), at(&lines[1], "near:7510"));
        assert_eq!(at(&lines[0], "chosen by"), at(&lines[1], "you"));
        assert_eq!(lines.len(), 2);
    }
}
