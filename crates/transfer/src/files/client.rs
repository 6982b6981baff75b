//! Asks a server about its files, over one session, question after question.

use std::io;
use std::sync::Arc;

use longhaul_proto::text::printable;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::FILES_VERSION;
use super::ahead::{Ahead, Channel};
use super::lines::{LineError, Lines, SILENCE_TIMEOUT, write_lines};
use super::message::{FilesAnswer, FilesAsk, FilesHello, MAX_ANSWER_BYTES};
use crate::client::{Connector, close};
use crate::error::Error;

/// Why a server did not answer. What it answers of files that it has not, or that are not granted,
/// is [`FilesAnswer::Failed`].
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// No session came about.
    #[error(transparent)]
    Connect(Error),
    /// The server has nothing to say to this client.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The same, because of who asks.
    #[error("the server refuses: {0}")]
    Unauthorised(String),
    /// The session broke.
    #[error("the session with the server broke off: {0}")]
    Broken(#[from] io::Error),
    /// It fell silent.
    #[error("the server has said nothing for {} s", SILENCE_TIMEOUT.as_secs())]
    Silent,
    /// It answers something else than what it was asked.
    #[error("the server broke the files protocol: {0}; do both sides run the same release?")]
    Protocol(String),
}

/// A session with a server, opened when first needed.
pub struct FilesClient<C: Connector> {
    connector: Arc<C>,
    session: Option<Session<C::Stream>>,
}

struct Session<S> {
    lines: Lines<ReadHalf<S>>,
    writer: WriteHalf<S>,
    /// The client's first line is still to be said.
    hello: Option<FilesHello>,
    /// The server has said its first line.
    is_ready: bool,
    /// Why something could not be said.
    unsaid: Option<io::Error>,
    ahead: Ahead,
}

impl<C: Connector> FilesClient<C> {
    /// Over the first route of `connector` that leads there.
    pub fn new(connector: Arc<C>) -> Self {
        Self {
            connector,
            session: None,
        }
    }

    /// Asks, and receives the answer: never [`FilesAnswer::Ready`], [`FilesAnswer::Working`] or
    /// [`FilesAnswer::Refused`].
    ///
    /// # Errors
    /// [`FilesError`].
    pub async fn ask(&mut self, ask: &FilesAsk) -> Result<FilesAnswer, FilesError> {
        // A server closes sessions in which nothing is asked (LH-FILES-4), as when a pager is left
        // alone. Looking again costs nothing.
        let again = self.session.is_some() && matches!(ask, FilesAsk::Look { .. });
        match self.ask_once(ask).await {
            Err(FilesError::Broken(_) | FilesError::Refused(_)) if again => {
                self.ask_once(ask).await
            }
            answered => answered,
        }
    }

    /// Closes in good order.
    pub async fn end(self) {
        if let Some(session) = self.session {
            close(session.lines.into_inner().unsplit(session.writer)).await;
        }
    }

    async fn ask_once(&mut self, ask: &FilesAsk) -> Result<FilesAnswer, FilesError> {
        // Kept only where the answer has come: whoever does not wait for it leaves no session in
        // which the next answer is another's.
        let mut session = match self.session.take() {
            Some(session) => session,
            None => Session::new(open(&*self.connector).await.map_err(FilesError::Connect)?),
        };
        let mut ahead = std::mem::take(&mut session.ahead);
        let answer = ahead.ask_over(&mut session, ask).await?;
        session.ahead = ahead;
        self.session = Some(session);
        Ok(answer)
    }
}

impl<S: crate::Transport> Channel for Session<S> {
    type Error = FilesError;

    async fn say(&mut self, asks: &[FilesAsk]) -> Result<(), FilesError> {
        // The questions follow the versions at once: no round trip is spent on agreement
        // (LH-FILES-2).
        let said = write_lines(&mut self.writer, self.hello.take().as_ref(), asks).await;
        self.unsaid = self.unsaid.take().or(said.err());
        Ok(())
    }

    async fn receive(&mut self) -> Result<FilesAnswer, FilesError> {
        // What a server says before it closes is received though nothing can be said to it any
        // more.
        match self.answer().await {
            Err(FilesError::Broken(reason)) => Err(self.unsaid.take().unwrap_or(reason).into()),
            answered => answered,
        }
    }
}

impl<S: crate::Transport> Session<S> {
    fn new(stream: S) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            lines: Lines::new(reader, MAX_ANSWER_BYTES),
            writer,
            hello: Some(FilesHello {
                lowest: FILES_VERSION,
                highest: FILES_VERSION,
            }),
            is_ready: false,
            unsaid: None,
            ahead: Ahead::default(),
        }
    }

    async fn answer(&mut self) -> Result<FilesAnswer, FilesError> {
        loop {
            let line = timeout(SILENCE_TIMEOUT, self.lines.next()).await;
            let line = match line.map_err(|_| FilesError::Silent)? {
                Ok(Some(line)) => line,
                Ok(None) | Err(LineError::Cut) => {
                    return Err(
                        io::Error::new(io::ErrorKind::UnexpectedEof, "it ended early").into(),
                    );
                }
                Err(LineError::Io(error)) => return Err(error.into()),
                Err(error) => return Err(FilesError::Protocol(error.to_string())),
            };
            match read_answer(&line)? {
                FilesAnswer::Ready { version } if !self.is_ready && version == FILES_VERSION => {
                    self.is_ready = true
                }
                FilesAnswer::Refused {
                    unauthorised,
                    reason,
                } => {
                    let reason = printable(reason.as_bytes());
                    return Err(match unauthorised {
                        true => FilesError::Unauthorised(reason),
                        false => FilesError::Refused(reason),
                    });
                }
                FilesAnswer::Ready { .. } => {
                    return Err(FilesError::Protocol(
                        "it speaks a version that was not offered".into(),
                    ));
                }
                _ if !self.is_ready => {
                    return Err(FilesError::Protocol(
                        "it answers before it has agreed on a version".into(),
                    ));
                }
                FilesAnswer::Working => {}
                answer => return Ok(answer),
            }
        }
    }
}

/// A line as an answer.
pub(crate) fn read_answer(line: &[u8]) -> Result<FilesAnswer, FilesError> {
    serde_json::from_slice(line).map_err(|error| {
        // It quotes the line.
        let error: String = printable(error.to_string().as_bytes())
            .chars()
            .take(200)
            .collect();
        FilesError::Protocol(error)
    })
}

/// A session over the first route that leads to the server; the error of the last one if none does.
async fn open<C: Connector>(connector: &C) -> Result<C::Stream, Error> {
    let mut failed = Error::Connect("no route is given".into());
    for (number, route) in connector.routes().into_iter().enumerate() {
        match connector.connect(number).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let text = format!("route {route}: {}", error.message);
                failed = error.into_error(text);
            }
        }
    }
    Err(failed)
}
