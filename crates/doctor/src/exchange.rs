//! Asks another machine for its facts, over any stream that is secured already.
//!
//! Both directions carry messages: a length (u32, little-endian, at most [`MAX_MESSAGE_BYTES`]) and
//! that many bytes of JSON. A question is `"time"` or `"facts"`; an answer is `{"time":µs}`,
//! `{"facts":{...}}` or `{"refused":"why"}`. Nothing larger is read, every wait is limited, and
//! data is parsed into types before it is used.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::fact::PrintableText;
use crate::facts::Facts;
use crate::gather;
use crate::path::Skew;

/// Maximum bytes of a message; facts take some thousand.
pub(crate) const MAX_MESSAGE_BYTES: u32 = 256 * 1024;
/// Maximum questions answered in one session.
const MAX_QUESTIONS: usize = 16;
/// Time limit of each message, including the gathering of facts.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Age at which facts are gathered again, which costs a tenth of a second of a core.
const MAX_FACTS_AGE: Duration = Duration::from_secs(10);
/// Number of readings of the far clock; the quickest answer counts.
const CLOCK_READINGS: usize = 4;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactsQuestion {
    Time,
    Facts,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactsAnswer {
    /// Microseconds since 1970-01-01 UTC.
    Time(u64),
    Facts(Box<Facts>),
    Refused(PrintableText),
}

/// Reasons why another machine's facts are unavailable.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The far machine knows the key and refuses. Ask its operator for a grant to read.
    #[error("the far machine refuses: {0}")]
    Refused(PrintableText),
    /// The session broke.
    #[error("the far machine's answer did not arrive: {0}")]
    Stream(#[from] io::Error),
    /// The far machine stopped answering. It is busy, or large packets from it vanish on the path.
    #[error(
        "the far machine's answer did not arrive in {} s: it is busy, or large packets from there \
         vanish on the way",
        MESSAGE_TIMEOUT.as_secs()
    )]
    Silent,
    /// The far machine sent an unexpected answer. Exit code 6.
    #[error("the far machine's answer is not a report of doctor: does it run the same release?")]
    NotUnderstood,
}

/// Readings of two clocks, in microseconds since 1970-01-01 UTC: when the question left, at the far
/// machine, and when the answer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// This machine's clock before the question.
    pub asked: u64,
    /// The far machine's clock.
    pub far: u64,
    /// This machine's clock after the answer.
    pub answered: u64,
}

impl Clocks {
    /// Returns the difference of the clocks. The far clock is assumed to be read half way between
    /// the two readings of this one, with an error of at most half the time between (RFC 5905, 8).
    pub fn skew(&self) -> Skew {
        let round = self.answered.saturating_sub(self.asked) as f64;
        let middle = self.asked as f64 + round / 2.0;
        Skew {
            seconds: (self.far as f64 - middle) / 1e6,
            uncertainty_seconds: round / 2e6,
        }
    }

    const fn round(&self) -> u64 {
        self.answered.saturating_sub(self.asked)
    }
}

/// Asks for the far machine's facts, reads its clock, and then closes the stream for writing.
///
/// # Errors
/// [`AskError`], one line.
pub async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(Facts, Clocks), AskError> {
    let mut best: Option<Clocks> = None;
    for _ in 0..CLOCK_READINGS {
        let asked = now();
        let FactsAnswer::Time(far) = question(stream, &FactsQuestion::Time).await? else {
            return Err(AskError::NotUnderstood);
        };
        let clocks = Clocks {
            asked,
            far,
            answered: now(),
        };
        if best.is_none_or(|best| clocks.round() < best.round()) {
            best = Some(clocks);
        }
    }
    let FactsAnswer::Facts(facts) = question(stream, &FactsQuestion::Facts).await? else {
        return Err(AskError::NotUnderstood);
    };
    stream.shutdown().await?;
    best.map(|clocks| (*facts, clocks))
        .ok_or(AskError::NotUnderstood)
}

async fn question(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    question: &FactsQuestion,
) -> Result<FactsAnswer, AskError> {
    let exchange = async {
        send(stream, question).await?;
        receive(stream).await
    };
    match timeout(MESSAGE_TIMEOUT, exchange).await {
        Err(_) => Err(AskError::Silent),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(AskError::NotUnderstood)
        }
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(Some(FactsAnswer::Refused(why)))) => Err(AskError::Refused(why)),
        Ok(Ok(Some(answer))) => Ok(answer),
        Ok(Ok(None)) => Err(AskError::NotUnderstood),
    }
}

/// Answers questions about this machine.
#[derive(Debug, Default)]
pub struct FactsServer {
    latest: Mutex<Option<CachedFacts>>,
}

#[derive(Debug)]
struct CachedFacts {
    at: Instant,
    of: Option<IpAddr>,
    facts: Arc<Facts>,
}

impl FactsServer {
    /// Answers the client at `peer` until it closes the stream. `refusal` is the reason why it gets
    /// no facts, if it gets none. Once `withdrawn` completes, the client is refused for the reason
    /// that it returns, without a further question. An answer under way is sent whole before that.
    ///
    /// # Errors
    /// The stream breaks, or the peer falls silent or asks something that is no question.
    pub async fn answer(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        peer: Option<IpAddr>,
        refusal: Option<&str>,
        withdrawn: impl Future<Output = String>,
    ) -> io::Result<()> {
        let mut withdrawn = pin!(withdrawn);
        for _ in 0..MAX_QUESTIONS {
            let answer = tokio::select! {
                answer = self.next_answer(stream, peer, refusal) => answer?,
                why = &mut withdrawn, if refusal.is_none() => {
                    let refused = FactsAnswer::Refused(PrintableText::new(&why));
                    timeout(MESSAGE_TIMEOUT, send(stream, &refused)).await??;
                    break;
                }
            };
            let Some(answer) = answer else {
                break;
            };
            timeout(MESSAGE_TIMEOUT, send(stream, &answer)).await??;
        }
        timeout(MESSAGE_TIMEOUT, stream.shutdown()).await?
    }

    /// Returns the answer to the client's next question; `None` if it asks no more.
    async fn next_answer(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: Option<IpAddr>,
        refusal: Option<&str>,
    ) -> io::Result<Option<FactsAnswer>> {
        let Some(question) = timeout(MESSAGE_TIMEOUT, receive(stream)).await?? else {
            return Ok(None);
        };
        Ok(Some(match (question, refusal) {
            (_, Some(why)) => FactsAnswer::Refused(PrintableText::new(why)),
            (FactsQuestion::Time, None) => FactsAnswer::Time(now()),
            (FactsQuestion::Facts, None) => FactsAnswer::Facts(Box::new(self.facts(peer).await?)),
        }))
    }

    /// Returns facts, gathered once for all clients that ask at the same time.
    async fn facts(&self, peer: Option<IpAddr>) -> io::Result<Facts> {
        let mut latest = self.latest.lock().await;
        if let Some(known) = &*latest
            && known.at.elapsed() < MAX_FACTS_AGE
            && known.of == peer
        {
            return Ok(Facts::clone(&known.facts));
        }
        let options = gather::GatherOptions {
            host: peer,
            disk: None,
        };
        let gathered = tokio::task::spawn_blocking(move || gather::gather(&options)).await;
        let facts = Arc::new(gathered.map_err(io::Error::other)?);
        *latest = Some(CachedFacts {
            at: Instant::now(),
            of: peer,
            facts: facts.clone(),
        });
        Ok(Facts::clone(&facts))
    }
}

pub(crate) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len())
        .ok()
        .filter(|length| *length <= MAX_MESSAGE_BYTES);
    let length = length
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the report is too long"))?;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&json);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Receives the next message; `None` at the end. An invalid message is
/// [`io::ErrorKind::InvalidData`].
pub(crate) async fn receive<T: serde::de::DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "not a message of doctor");
    let mut length = [0; 4];
    let (first, rest) = length.split_at_mut(1);
    if stream.read(first).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(rest).await?;
    let length = u32::from_le_bytes(length);
    if length > MAX_MESSAGE_BYTES {
        return Err(malformed());
    }
    // Grows with the bytes that really arrive.
    let mut json = Vec::new();
    stream.take(length.into()).read_to_end(&mut json).await?;
    serde_json::from_slice(&json)
        .map(Some)
        .map_err(|_| malformed())
}

fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use std::future::pending;

    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    /// Returns the result of `ask` with a far end that sends these bytes to every question.
    fn against(said: &[u8]) -> Result<(Facts, Clocks), AskError> {
        run(async {
            let (mut near, far) = duplex(1 << 20);
            let (mut reader, mut writer) = tokio::io::split(far);
            writer.write_all(said).await.unwrap();
            writer.shutdown().await.unwrap();
            let drained =
                tokio::spawn(
                    async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await },
                );
            let answer = ask(&mut near).await;
            drop((near, writer));
            drained.await.unwrap().unwrap();
            answer
        })
    }

    #[test]
    fn facts_and_clocks_are_transferred() {
        let (facts, clocks) = run(async {
            let (mut near, mut far) = duplex(1 << 16);
            let server = FactsServer::default();
            let answering = server.answer(&mut far, None, None, pending());
            let (asked, answered) = tokio::join!(ask(&mut near), answering);
            answered.unwrap();
            asked.unwrap()
        });
        assert!(facts.tcp.rmem.known().is_some());
        assert!(
            clocks.skew().seconds.abs() <= clocks.skew().uncertainty_seconds + 1e-3,
            "{clocks:?}"
        );
    }

    #[test]
    fn a_refused_client_receives_the_reason() {
        let error = run(async {
            let (mut near, mut far) = duplex(1 << 16);
            let server = FactsServer::default();
            let asking = async {
                let answer = ask(&mut near).await;
                drop(near);
                answer
            };
            let answering = server.answer(&mut far, None, Some("no grant"), pending());
            tokio::join!(asking, answering).0.unwrap_err()
        });
        assert_eq!(error.to_string(), "the far machine refuses: no grant");
    }

    #[test]
    fn withdrawal_follows_a_whole_answer() {
        run(async {
            // Holds a part of the answer only.
            let (mut near, mut far) = duplex(64);
            let server = FactsServer::default();
            let (withdraw, withdrawn) = tokio::sync::oneshot::channel();
            let withdrawn = async { withdrawn.await.unwrap() };
            let client = async {
                send(&mut near, &FactsQuestion::Facts).await.unwrap();
                let mut length = [0; 4];
                near.read_exact(&mut length).await.unwrap();
                withdraw.send("no grant".to_owned()).unwrap();
                let mut facts = vec![0; u32::from_le_bytes(length) as usize];
                near.read_exact(&mut facts).await.unwrap();
                let refused = receive::<FactsAnswer>(&mut near).await.unwrap();
                let end = receive::<FactsAnswer>(&mut near).await.unwrap();
                (serde_json::from_slice(&facts).unwrap(), refused, end)
            };
            let answering = server.answer(&mut far, None, None, withdrawn);
            let ((facts, refused, end), answered) = tokio::join!(client, answering);
            answered.unwrap();
            assert!(matches!(facts, FactsAnswer::Facts(_)), "{facts:?}");
            let why = FactsAnswer::Refused(PrintableText::new("no grant"));
            assert_eq!((refused, end), (Some(why), None));
        });
    }

    #[test]
    fn hostile_answers_end_in_one_line() {
        let message =
            |json: &str| [&(json.len() as u32).to_le_bytes()[..], json.as_bytes()].concat();
        let hostile = [
            vec![],
            b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
            u32::MAX.to_le_bytes().to_vec(),
            message("{\"time\":-1}"),
            message("{\"facts\":{}}"),
            message("[[[[[[[[[["),
            message(&"[".repeat(100_000)),
            message("{\"refused\":\"a\\u001b[2Jb\\nc\"}"),
        ];
        for said in hostile {
            let error = against(&said).unwrap_err().to_string();
            assert!(
                !error.contains(['\n', '\u{1b}']) && error.len() < 300,
                "{error:?}"
            );
        }
    }

    #[test]
    fn skew_is_measured_from_the_middle_of_the_round_trip() {
        let clocks = Clocks {
            asked: 1_000_000,
            far: 3_100_000,
            answered: 1_200_000,
        };
        assert_eq!(clocks.skew().seconds, 2.0);
        assert_eq!(clocks.skew().uncertainty_seconds, 0.1);
    }

    proptest! {
        #[test]
        fn garbage_is_an_error(said in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(against(&said).is_err());
        }
    }
}
