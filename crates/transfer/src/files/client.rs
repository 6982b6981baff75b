//! Sends file requests to a server, over one session, one after the other.

use std::io;
use std::sync::Arc;

use longhaul_proto::text::printable;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::FILES_VERSION;
use super::ahead::{FilesChannel, PagePrefetch};
use super::lines::{LineError, LineReader, SILENCE_TIMEOUT, write_lines};
use super::message::{FilesHello, FilesRequest, FilesResponse, MAX_RESPONSE_BYTES};
use crate::bearer::{BearerToken, TokenSource};
use crate::client::{Connector, close};
use crate::error::Error;

/// Reason why a server did not respond. Missing or forbidden files are
/// [`FilesResponse::Failed`] instead.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The session could not be opened.
    #[error(transparent)]
    Connect(Error),
    /// The server refuses this client.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server refuses this client because of its key.
    #[error("the server refuses: {0}")]
    Unauthorised(String),
    /// The session broke. What was done stays; check with `longhaul ls`.
    #[error("the session with the server broke off: {0}")]
    Broken(#[from] io::Error),
    /// The server was silent for too long. It is very busy, or the network is down.
    #[error("the server sent nothing for {} s", SILENCE_TIMEOUT.as_secs())]
    Silent,
    /// The response does not match the request. Use the same release at both ends.
    #[error("the server violated the files protocol: {0}; do both sides run the same release?")]
    Protocol(String),
}

/// A session with a server, opened when first needed.
pub struct FilesClient<C: Connector> {
    connector: Arc<C>,
    session: Option<FilesSession<C::Stream>>,
    tokens: Option<Arc<dyn TokenSource>>,
}

struct FilesSession<S> {
    lines: LineReader<ReadHalf<S>>,
    writer: WriteHalf<S>,
    /// First line of the client, until it has been sent.
    hello: Option<FilesHello>,
    /// True once the first line of the server has arrived.
    is_ready: bool,
    /// Error of an earlier attempt to send.
    unsaid: Option<io::Error>,
    ahead: PagePrefetch,
}

impl<C: Connector> FilesClient<C> {
    /// Creates a client that uses the first route of `connector` that opens.
    pub fn new(connector: Arc<C>) -> Self {
        Self {
            connector,
            session: None,
            tokens: None,
        }
    }

    /// Brings a token of this source to each session, from the next one on.
    #[must_use]
    pub fn with_tokens(self, tokens: Option<Arc<dyn TokenSource>>) -> Self {
        Self { tokens, ..self }
    }

    /// Sends a request and receives the response. It is never [`FilesResponse::Ready`],
    /// [`FilesResponse::Working`] or [`FilesResponse::Refused`].
    ///
    /// # Errors
    /// [`FilesError`].
    pub async fn request(&mut self, ask: &FilesRequest) -> Result<FilesResponse, FilesError> {
        // A server closes idle sessions (LH-FILES-4), for example while a pager is open. Repeating
        // a read-only request is harmless.
        let again = self.session.is_some() && matches!(ask, FilesRequest::Look { .. });
        match self.request_once(ask).await {
            Err(FilesError::Broken(_) | FilesError::Refused(_)) if again => {
                self.request_once(ask).await
            }
            // There may be a newer token.
            Err(FilesError::Unauthorised(_)) if again && self.tokens.is_some() => {
                self.request_once(ask).await
            }
            answered => answered,
        }
    }

    /// Sends several requests without waiting in between, and receives their responses in order.
    /// The requests must be few and short enough for the buffers of a connection.
    ///
    /// # Errors
    /// [`FilesError`].
    pub async fn request_all(
        &mut self,
        asks: &[FilesRequest],
    ) -> Result<Vec<FilesResponse>, FilesError> {
        let mut session = self.take_session().await?;
        let mut ahead = std::mem::take(&mut session.ahead);
        let answers = ahead.ask_all_over(&mut session, asks).await?;
        session.ahead = ahead;
        self.session = Some(session);
        Ok(answers)
    }

    /// Closes the session in an orderly manner.
    pub async fn end(self) {
        if let Some(session) = self.session {
            close(session.lines.into_inner().unsplit(session.writer)).await;
        }
    }

    async fn take_session(&mut self) -> Result<FilesSession<C::Stream>, FilesError> {
        Ok(match self.session.take() {
            Some(session) => session,
            None => {
                let token = match &self.tokens {
                    Some(tokens) => tokens.token().await,
                    None => None,
                };
                let stream = open(&*self.connector).await.map_err(FilesError::Connect)?;
                FilesSession::new(stream, token)
            }
        })
    }

    async fn request_once(&mut self, ask: &FilesRequest) -> Result<FilesResponse, FilesError> {
        // The session is kept only after the response has arrived. If the caller stops waiting, a
        // later request must not receive the earlier response.
        let mut session = self.take_session().await?;
        let mut ahead = std::mem::take(&mut session.ahead);
        let answer = ahead.ask_over(&mut session, ask).await?;
        session.ahead = ahead;
        self.session = Some(session);
        Ok(answer)
    }
}

impl<S: crate::Transport> FilesChannel for FilesSession<S> {
    type Error = FilesError;

    async fn send(&mut self, asks: &[FilesRequest]) -> Result<(), FilesError> {
        // The requests follow the versions at once, so agreement costs no round trip (LH-FILES-2).
        let said = write_lines(&mut self.writer, self.hello.take().as_ref(), asks).await;
        self.unsaid = self.unsaid.take().or(said.err());
        Ok(())
    }

    async fn receive(&mut self) -> Result<FilesResponse, FilesError> {
        // Lines that a server sent before it closed are received even if nothing can be sent any
        // more.
        match self.answer().await {
            Err(FilesError::Broken(reason)) => Err(self.unsaid.take().unwrap_or(reason).into()),
            answered => answered,
        }
    }
}

impl<S: crate::Transport> FilesSession<S> {
    fn new(stream: S, token: Option<BearerToken>) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            lines: LineReader::new(reader, MAX_RESPONSE_BYTES),
            writer,
            hello: Some(FilesHello {
                lowest: FILES_VERSION,
                highest: FILES_VERSION,
                token,
            }),
            is_ready: false,
            unsaid: None,
            ahead: PagePrefetch::default(),
        }
    }

    async fn answer(&mut self) -> Result<FilesResponse, FilesError> {
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
                FilesResponse::Ready { version } if !self.is_ready && version == FILES_VERSION => {
                    self.is_ready = true
                }
                FilesResponse::Refused {
                    unauthorised,
                    reason,
                } => {
                    let reason = printable(reason.as_bytes());
                    return Err(match unauthorised {
                        true => FilesError::Unauthorised(reason),
                        false => FilesError::Refused(reason),
                    });
                }
                FilesResponse::Ready { .. } => {
                    return Err(FilesError::Protocol(
                        "it speaks a version that was not offered".into(),
                    ));
                }
                _ if !self.is_ready => {
                    return Err(FilesError::Protocol(
                        "it answers before it has agreed on a version".into(),
                    ));
                }
                FilesResponse::Working => {}
                answer => return Ok(answer),
            }
        }
    }
}

/// Parses a line as a response.
pub(crate) fn read_answer(line: &[u8]) -> Result<FilesResponse, FilesError> {
    serde_json::from_slice(line).map_err(|error| {
        // The error quotes the line.
        let error: String = printable(error.to_string().as_bytes())
            .chars()
            .take(200)
            .collect();
        FilesError::Protocol(error)
    })
}

/// Opens a session over the first route that leads to the server.
///
/// # Errors
/// The error of the last route, if none leads there.
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
