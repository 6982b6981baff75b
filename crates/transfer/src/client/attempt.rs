//! One stream of a client, from its opening to its end.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stream_tokens::StreamTokens;
use super::{ConnectError, Connector, Transport};
use crate::error::Error;
use crate::frame_io::{FrameReader, IncomingFrame};
use crate::half::Half;
use crate::listening::NotingStream;
use crate::progress::{Observer, StreamCounters, TransferEvent, TransferProgress};
use crate::receive::{AfterDone, StreamEnd, receive_stream, refused};
use crate::route_info::RouteInfo;
use crate::send::{DataSetting, WorkQueue, send_stream};
use crate::wire::{Frame, Hello};

/// Time limit for closing a stream that is over.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of a slot's stream.
pub(super) struct AttemptEnd {
    pub slot: usize,
    /// Number of the attempt within its slot.
    pub attempt: u64,
    pub result: Result<StreamEnd, AttemptError>,
    /// Number of the stream, if it was opened.
    pub opened: Option<u32>,
    /// True if the server had accepted the stream.
    pub accepted: bool,
    /// The orderly close of the stream, if it needs one.
    pub closing: Option<ClosingStream>,
}

impl AttemptEnd {
    /// Takes the closing stream if it saw the end of the copy. Any other stream closes in the
    /// background, and counts as `leaving` until the server has closed it.
    pub(super) fn take_finished(&mut self, leaving: &watch::Sender<u32>) -> Option<ClosingStream> {
        let closing = self.closing.take()?;
        if matches!(self.result, Ok(StreamEnd::Finished)) {
            return Some(closing);
        }
        let leaves = OpenStreamGuard::new(leaving.clone());
        tokio::spawn(async move {
            closing.wait_closed().await;
            drop(leaves);
        });
        None
    }
}

/// A stream that is over. It closes in the background until this is dropped.
pub(super) struct ClosingStream {
    said: oneshot::Receiver<()>,
    closes: JoinSet<()>,
}

impl ClosingStream {
    fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (say, said) = oneshot::channel();
        let mut closes = JoinSet::new();
        closes.spawn(close_and_report(stream, || {
            // The receiver may be gone.
            let _ = say.send(());
        }));
        Self { said, closes }
    }

    /// Waits until the last message has been sent. It may still be lost with the connection.
    pub(super) async fn wait_sent(self) {
        // An error means that the connection is gone.
        let _ = self.said.await;
    }

    /// Waits until the peer has closed too, which confirms that it has the last message.
    pub(super) async fn wait_closed(mut self) {
        while self.closes.join_next().await.is_some() {}
    }
}

pub(super) enum AttemptError {
    Connect(ConnectError),
    Stream(Error),
}

/// One stream from its opening to its end.
pub(super) struct StreamAttempt<C> {
    pub connector: Arc<C>,
    pub route: usize,
    pub route_info: RouteInfo,
    pub half: Half,
    pub hello: Hello,
    pub progress: Arc<TransferProgress>,
    pub observer: Arc<dyn Observer>,
    /// Counters of the slot, set once a stream has been opened there. Later streams continue them.
    pub counters: Arc<OnceLock<Arc<StreamCounters>>>,
    /// Number of open streams.
    pub open: watch::Sender<u32>,
    /// Number of this attempt within its slot.
    pub number: u64,
    /// Tokens that the streams bring.
    pub tokens: StreamTokens,
}

/// Counts a stream while it exists.
struct OpenStreamGuard(watch::Sender<u32>);

impl OpenStreamGuard {
    fn new(open: watch::Sender<u32>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open)
    }
}

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl<C: Connector> StreamAttempt<C> {
    pub(super) async fn run(self, slot: usize) -> AttemptEnd {
        let bearer = self.tokens.for_stream().await;
        let mut stream = match self.connector.connect(self.route).await {
            Ok(stream) => stream,
            Err(mut error) => {
                if error.is_unknown_key {
                    error.message = self.tokens.explain(error.message);
                }
                return AttemptEnd {
                    slot,
                    attempt: self.number,
                    result: Err(AttemptError::Connect(error)),
                    opened: None,
                    accepted: false,
                    closing: None,
                };
            }
        };
        let flow = stream.watch(self.half.side());
        // LH-COPY-48.
        if let (Half::Sending(_), true, Some(flow)) = (&self.half, self.hello.single, &flow) {
            flow.fit_rate();
        }
        let takes_a_place = self.counters.get().is_some();
        let counters = match self.counters.get() {
            Some(counters) => {
                counters.reopen(flow);
                counters.clone()
            }
            None => {
                let counters = self.progress.add_stream(&self.route_info, flow, false);
                self.counters.get_or_init(|| counters).clone()
            }
        };
        counters.set_addresses(stream.addresses());
        let counted = OpenStreamGuard::new(self.open.clone());
        self.observer.event(TransferEvent::StreamOpened {
            stream: counters.number,
            route: self.route_info.clone(),
        });
        let mut greeting = Vec::new();
        let hello = Hello {
            bearer,
            ..self.hello.clone()
        };
        Frame::Hello(hello).encode(&mut greeting);
        let clear = stream.plaintext().filter(|_| self.hello.clear);
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = FrameReader::new(NotingStream::new(reader, counters.clone()));
        let result = match &self.half {
            Half::Sending(queue) => {
                let setting = DataSetting {
                    wanted: clear.is_some(),
                    stream: clear,
                    // Before ACCEPT, it is unknown whether the server allows it.
                    agreed: AtomicBool::new(false),
                    compression: self.hello.compression,
                    unpacks: AtomicBool::new(false),
                    unpacks_frames: AtomicBool::new(false),
                };
                let greeted = match takes_a_place {
                    true => {
                        greet(
                            queue,
                            &counters,
                            &mut reader,
                            &mut writer,
                            &greeting,
                            &setting,
                        )
                        .await
                    }
                    false => Ok(greeting),
                };
                match greeted {
                    Ok(greeting) => {
                        let (stream, reader, writer) = (counters.number, &mut reader, &mut writer);
                        send_stream(queue, stream, &counters, reader, writer, greeting, &setting)
                            .await
                    }
                    Err(error) => Err(error),
                }
            }
            Half::Receiving(receiver) => {
                if let Some(clear) = clear {
                    reader.allow_plaintext(clear);
                }
                receive_stream(
                    receiver,
                    &counters,
                    &mut reader,
                    &mut writer,
                    &greeting,
                    AfterDone::Leave,
                )
                .await
            }
        };
        let stream = reader.into_inner().into_inner().unsplit(writer);
        counters.record_closed(stream.retransmits());
        let accepted = counters.is_accepted();
        drop(counted);
        let closing = result.is_ok().then(|| ClosingStream::begin(stream));
        AttemptEnd {
            slot,
            attempt: self.number,
            result: result.map_err(|error| AttemptError::Stream(self.tokens.explain_error(error))),
            opened: Some(counters.number),
            accepted,
            closing,
        }
    }
}

/// Sends the greeting on a stream that replaces a lost one, and waits until the server has reported
/// which copy it belongs to. A restarted server has none of the copy, so anything sent before that
/// would be wasted. Returns the rest of the greeting, which is empty.
async fn greet<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    queue: &WorkQueue,
    counters: &StreamCounters,
    reader: &mut FrameReader<R>,
    writer: &mut W,
    greeting: &[u8],
    setting: &DataSetting,
) -> Result<Vec<u8>, Error> {
    writer.write_all(greeting).await?;
    writer.flush().await?;
    loop {
        match reader.next().await? {
            Some(IncomingFrame::Frame(Frame::Accept(accepted))) => {
                setting.accept(&accepted);
                counters.record_accepted(accepted.max_streams, accepted.member);
                queue.accepted(&accepted)?;
                return Ok(Vec::new());
            }
            Some(IncomingFrame::Frame(Frame::Refuse { kind, detail })) => {
                return Err(refused(kind, detail));
            }
            Some(IncomingFrame::Frame(Frame::KeepAlive | Frame::Flow(_))) => {}
            Some(_) => return Err(Error::Protocol("it answers before it accepts".into())),
            None => return Err(Error::StreamsLost("the server closed the stream".into())),
        }
    }
}

/// Closes a stream in an orderly manner: sends the end, and receives the peer's, so that no reset
/// overtakes the last message.
pub(crate) async fn close(stream: impl AsyncRead + AsyncWrite + Unpin) {
    close_and_report(stream, || ()).await;
}

/// Like [`close`], but calls `said` when this side has sent its end.
async fn close_and_report(mut stream: impl AsyncRead + AsyncWrite + Unpin, said: impl FnOnce()) {
    let closing = async {
        stream.shutdown().await?;
        said();
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}
