//! The client's side: asks, renews the delegation, and shows what the server reports.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::AsyncWrite;
use tokio::time::{Instant, interval_at, timeout};

use super::message::{FetchAsk, FetchMessage, FetchReport, MAX_REPORT_BYTES};
use super::{RENEWAL_CHECKS, RENEWAL_INTERVAL};
use crate::client::{Transport, close};
use crate::error::Error;
use crate::files::{LineError, LineReader, SILENCE_TIMEOUT, write_line};
use crate::progress::{Observer, TransferProgress};
use crate::route_info::RouteInfo;
use crate::tree_hash::Hash;

/// Result of a copy between two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchOutcome {
    /// BLAKE3 over the record of every entry.
    pub manifest: Hash,
    /// Number of events that the server did not report.
    pub left_out: u64,
}

/// Where the reports of a copy go.
pub struct FetchView<'a> {
    /// Name of the server that fetches, for messages.
    pub server: &'a str,
    /// Counters of the copy.
    pub progress: &'a TransferProgress,
    /// Receiver of events.
    pub observer: &'a Arc<dyn Observer>,
}

/// Has the server at the other end of `stream` make a copy, and waits for its end. `renew` returns
/// a further delegation (LH-FETCH-4).
///
/// # Errors
/// The copy ended early: [`Error::StreamsLost`] if the session broke off.
pub async fn fetch(
    stream: impl Transport,
    ask: &FetchAsk,
    renew: impl Fn() -> Result<String, Error>,
    view: FetchView<'_>,
) -> Result<FetchOutcome, Error> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = LineReader::new(reader, MAX_REPORT_BYTES);
    // What the server said before it closed is read even if it took nothing.
    let mut unsaid = write_line(&mut writer, ask).await.err();
    // The clock of the delegations counts, as timers may stop while a machine sleeps.
    let mut signed = SystemTime::now();
    let mut renewals = interval_at(Instant::now() + RENEWAL_CHECKS, RENEWAL_CHECKS);
    let mut left_out = 0;
    let ended = loop {
        let line = tokio::select! {
            line = timeout(SILENCE_TIMEOUT, lines.next()) => line,
            _ = renewals.tick() => {
                if signed.elapsed().is_ok_and(|passed| passed < RENEWAL_INTERVAL) {
                    continue;
                }
                signed = SystemTime::now();
                let said = say_renewal(&mut writer, renew()?).await;
                unsaid = unsaid.or(said.err());
                continue;
            }
        };
        let line = match line {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None) | Err(LineError::Cut)) => {
                let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "it ended early");
                return Err(broken(view.server, unsaid.unwrap_or(cut)));
            }
            Ok(Err(LineError::Io(error))) => {
                return Err(broken(view.server, unsaid.unwrap_or(error)));
            }
            Ok(Err(error)) => return Err(Error::Protocol(error.to_string())),
            // LH-FETCH-5.
            Err(_) => return Err(broken(view.server, io::ErrorKind::TimedOut.into())),
        };
        let report = serde_json::from_slice(&line)
            .map_err(|_| Error::Protocol("a report that is not understood".into()))?;
        match report {
            FetchReport::Event(event) => {
                let route = RouteInfo::without_depots("between the servers");
                view.observer.event(event.into_event(route, view.progress));
            }
            FetchReport::Progress(counts) => counts.apply(view.progress),
            FetchReport::LeftOut { events } => left_out = events,
            FetchReport::Ended(end) => break end.into_result(view.server),
        }
    };
    close(lines.into_inner().unsplit(writer)).await;
    ended.map(|manifest| FetchOutcome { manifest, left_out })
}

async fn say_renewal(writer: &mut (impl AsyncWrite + Unpin), delegation: String) -> io::Result<()> {
    write_line(writer, &FetchMessage::Renew { delegation }).await
}

fn broken(server: &str, error: io::Error) -> Error {
    Error::StreamsLost(format!("the session with {server}: {error}"))
}
