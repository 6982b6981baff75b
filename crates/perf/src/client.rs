//! The client of a measurement: opens the sessions, starts the clock, and combines both ends'
//! counts.

use std::time::Duration;

use longhaul_session::{ConnectOptions, Session, connect};
use rustix::net::sockopt;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    Error, MeasuredInterval, StreamTotal,
    carry::{EndCounts, MeasuredStream, carry},
    pump::{DRAIN_TIMEOUT, SILENCE_TIMEOUT},
    wire::{
        Attach, EndReport, FlowDirection, Hello, Length, MeasurementToken, Message, Protection,
        StreamReport, VERSION,
    },
};

/// Parameters of a measurement.
#[derive(Debug, Clone)]
pub struct TestParameters {
    /// Number of streams in each measured direction; at least 1.
    pub streams: u16,
    /// Direction of the data.
    pub direction: FlowDirection,
    /// Length of the measurement.
    pub length: Length,
    /// Time at the beginning that is not counted, in addition to the length.
    pub omit: Duration,
    /// Protection of the measured bytes.
    pub protection: Protection,
    /// True if the sending ends fit their rate to the path.
    pub right_size: bool,
    /// Length of the intervals.
    pub interval: Duration,
}

/// Result of a measurement.
#[derive(Debug, Clone)]
pub struct MeasurementOutcome {
    /// Results of the streams, by number.
    pub streams: Vec<StreamOutcome>,
    /// Counts of this end.
    pub local: EndCounts,
    /// Counts of the server.
    pub remote: EndReport,
}

/// Result of one stream, with both ends' counts.
#[derive(Debug, Clone)]
pub struct StreamOutcome {
    /// Counts of this end.
    pub local: StreamTotal,
    /// Counts of the server.
    pub remote: StreamReport,
}

impl StreamOutcome {
    /// Returns the counted payload that was sent, in bytes, and the time in seconds.
    #[must_use]
    pub fn sent(&self) -> (u64, f64) {
        match self.local.sends {
            true => (self.local.bytes, self.local.seconds()),
            false => (self.remote.bytes, self.remote.seconds),
        }
    }

    /// Returns the counted payload that was received, in bytes, and the time in seconds.
    #[must_use]
    pub fn received(&self) -> (u64, f64) {
        match self.local.sends {
            true => (self.remote.bytes, self.remote.seconds),
            false => (self.local.bytes, self.local.seconds()),
        }
    }

    /// Returns the number of segments retransmitted on the sender's first hop while it counted.
    #[must_use]
    pub fn retransmits(&self) -> u64 {
        match self.local.sends {
            true => self.local.retransmits,
            false => self.remote.retransmits.unwrap_or(0),
        }
    }
}

/// Facts about a stream's connection when the clock starts.
#[derive(Debug, Clone)]
pub struct StreamConnection {
    /// Number of the stream.
    pub stream: u16,
    /// This end's address, and the address at the other end of the first hop.
    pub addresses: Option<(std::net::SocketAddr, std::net::SocketAddr)>,
    /// True if the first hop is a TCP connection.
    pub is_tcp: bool,
    /// Payload of a segment at the start, in bytes.
    pub mss: u32,
    /// Send and receive buffer at the start, in bytes as the kernel accounts them.
    pub buffers: (usize, usize),
}

/// Measures to the server that `options` name. `started` receives the connections, `reported` every
/// interval.
///
/// # Errors
/// [`Error`]: the reason why the measurement did not complete.
pub async fn measure(
    options: &ConnectOptions,
    test: &TestParameters,
    started: impl FnOnce(&[StreamConnection]),
    reported: &mut (dyn FnMut(&MeasuredInterval) + Send),
) -> Result<MeasurementOutcome, Error> {
    let hello = Hello {
        versions: [VERSION, VERSION],
        token: MeasurementToken::random().map_err(|source| Error::Socket {
            doing: "get randomness",
            source,
        })?,
        streams: test.streams,
        direction: test.direction,
        length: test.length,
        omit_ms: u64::try_from(test.omit.as_millis()).unwrap_or(u64::MAX),
        protection: test.protection,
        right_size: test.right_size,
    };
    let mut control = connect(options).await?;
    Message::Hello(hello.clone()).write(&mut control).await?;
    expect_message(&mut control, &Message::Ready, options.setup_timeout).await?;
    let streams = open(options, &hello).await?;
    let connections: Vec<_> = streams.iter().map(StreamConnection::from_stream).collect();
    started(&connections);
    Message::Start.write(&mut control).await?;
    let (local, remote) = run(&mut control, streams, &hello, test.interval, reported).await?;
    // The report has arrived, so nothing depends on a clean end.
    let _ = control.close().await;
    combine_counts(local, remote)
}

/// Runs the measurement from START to both ends' counts.
async fn run(
    control: &mut Session,
    streams: Vec<MeasuredStream>,
    hello: &Hello,
    every: Duration,
    reported: &mut (dyn FnMut(&MeasuredInterval) + Send),
) -> Result<(EndCounts, EndReport), Error> {
    let mut remote = std::pin::pin!(async {
        match Message::read(control).await? {
            Message::Report(report) => Ok(report),
            Message::Refused { reason } => Err(Error::Refused(reason)),
            _ => Err(Error::Protocol(
                "another message than the report".to_owned(),
            )),
        }
    });
    let mut carrying = std::pin::pin!(carry(streams, hello, every, reported));
    let mut early = None;
    let local = loop {
        tokio::select! {
            carried = &mut carrying => break carried,
            // The server may finish a little sooner than this end.
            report = &mut remote, if early.is_none() => early = Some(report?),
        }
    };
    match (local, early) {
        (Ok(local), Some(report)) => Ok((local, report)),
        (Ok(local), None) => {
            let after = SILENCE_TIMEOUT + DRAIN_TIMEOUT;
            let silent = Error::Silent {
                doing: "waiting for the server's report",
                after,
            };
            Ok((local, timeout(after, remote).await.unwrap_or(Err(silent))?))
        }
        (Err(error), Some(_)) => Err(error),
        // The server's own message is closer to the cause than a stream that was reset.
        (Err(error), None) => match timeout(Duration::from_secs(1), remote).await {
            Ok(Err(refused @ Error::Refused(_))) => Err(refused),
            _ => Err(error),
        },
    }
}

/// Opens the sessions that carry bytes, all concurrently.
async fn open(options: &ConnectOptions, hello: &Hello) -> Result<Vec<MeasuredStream>, Error> {
    let mut opening = JoinSet::new();
    for number in 0..hello.sessions() {
        let (options, hello) = (options.clone(), hello.clone());
        opening.spawn(async move {
            let mut session = connect(&options).await?;
            let attach = Attach {
                token: hello.token.clone(),
                stream: number,
            };
            Message::Attach(attach).write(&mut session).await?;
            expect_message(&mut session, &Message::Attached, options.setup_timeout).await?;
            Ok::<_, Error>(MeasuredStream {
                number,
                sends: hello.client_sends(number),
                session,
            })
        });
    }
    let mut streams = Vec::new();
    while let Some(opened) = opening.join_next().await {
        streams.push(opened.map_err(|panic| Error::Protocol(panic.to_string()))??);
    }
    streams.sort_by_key(|stream| stream.number);
    Ok(streams)
}

async fn expect_message(
    session: &mut Session,
    wanted: &Message,
    after: Duration,
) -> Result<(), Error> {
    let silent = Error::Silent {
        doing: "waiting for the server's answer",
        after,
    };
    match timeout(after, Message::read(session))
        .await
        .unwrap_or(Err(silent))?
    {
        Message::Refused { reason } => Err(Error::Refused(reason)),
        message if message == *wanted => Ok(()),
        _ => Err(Error::Protocol(
            "another message than it was to send".to_owned(),
        )),
    }
}

/// Pairs the two ends' counts, and checks their consistency: no more arrived than was sent.
fn combine_counts(local: EndCounts, remote: EndReport) -> Result<MeasurementOutcome, Error> {
    let mut streams = Vec::new();
    for total in &local.streams {
        let mut counted = remote
            .streams
            .iter()
            .filter(|report| report.stream == total.stream);
        let (Some(report), None) = (counted.next(), counted.next()) else {
            return Err(Error::Protocol(format!(
                "the report does not count stream {} once",
                total.stream
            )));
        };
        let (here, there) = (total.bytes + total.omitted, report.bytes + report.omitted);
        let (sent, received) = if total.sends {
            (here, there)
        } else {
            (there, here)
        };
        if received > sent {
            return Err(Error::Disagreement { sent, received });
        }
        streams.push(StreamOutcome {
            local: total.clone(),
            remote: report.clone(),
        });
    }
    Ok(MeasurementOutcome {
        streams,
        local,
        remote,
    })
}

impl StreamConnection {
    fn from_stream(stream: &MeasuredStream) -> Self {
        let addresses = || {
            Some((
                stream.session.local_address()?,
                stream.session.info().first_hop?,
            ))
        };
        let tcp = stream.session.tcp();
        Self {
            stream: stream.number,
            addresses: addresses(),
            is_tcp: tcp.is_some(),
            mss: tcp
                .and_then(|tcp| tcp.info().ok())
                .map_or(0, |info| info.send_mss),
            buffers: tcp.map_or((0, 0), |tcp| {
                (
                    sockopt::socket_send_buffer_size(tcp).unwrap_or(0),
                    sockopt::socket_recv_buffer_size(tcp).unwrap_or(0),
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(bytes: u64, omitted: u64) -> EndCounts {
        let total = StreamTotal {
            stream: 0,
            sends: true,
            bytes,
            omitted,
            from: Duration::from_secs(1),
            until: Duration::from_secs(3),
            retransmits: 5,
            rtt: None,
            max_congestion_window: 0,
            max_send_window: 0,
        };
        EndCounts {
            streams: vec![total],
            cpu: Default::default(),
            congestion: "reno".to_owned(),
        }
    }

    fn report(stream: u16, bytes: u64) -> EndReport {
        let stream = StreamReport {
            stream,
            bytes,
            seconds: 2.5,
            ..StreamReport::default()
        };
        EndReport {
            streams: vec![stream],
            ..EndReport::default()
        }
    }

    #[test]
    fn each_ends_count_is_distinguished() {
        let outcome = combine_counts(carried(1000, 200), report(0, 1100)).unwrap();
        let stream = &outcome.streams[0];
        assert_eq!(
            (stream.sent(), stream.received()),
            ((1000, 2.0), (1100, 2.5))
        );
        assert_eq!(stream.retransmits(), 5);
    }

    #[test]
    fn contradicting_counts_are_an_error() {
        assert!(matches!(
            combine_counts(carried(1000, 0), report(0, 1001)),
            Err(Error::Disagreement {
                sent: 1000,
                received: 1001
            })
        ));
        assert!(matches!(
            combine_counts(carried(1000, 0), report(1, 1000)),
            Err(Error::Protocol(_))
        ));
        let mut twice = report(0, 1);
        twice.streams.push(twice.streams[0].clone());
        assert!(combine_counts(carried(1000, 0), twice).is_err());
    }
}
