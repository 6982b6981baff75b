//! One stream of a client, from its opening to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{CLOSING, ConnectError, Connector, Side, Transport};
use crate::error::Error;
use crate::frame_io::FrameReader;
use crate::progress::{Event, Observer, Progress};
use crate::receive::{AfterDone, StreamEnd, receive_stream};
use crate::send::send_stream;
use crate::wire::{Frame, Hello};

/// How a slot's stream ended.
pub(super) struct Ended {
    pub slot: usize,
    pub result: Result<StreamEnd, Lost>,
    /// It had been open.
    pub opened: Option<u32>,
    /// To be closed in good order.
    pub closing: Option<JoinSet<()>>,
}

pub(super) enum Lost {
    Connect(ConnectError),
    Stream(Error),
}

/// One stream from its opening to its end.
pub(super) struct Attempt<C> {
    pub connector: Arc<C>,
    pub route: usize,
    pub route_name: String,
    pub side: Side,
    pub hello: Hello,
    pub progress: Arc<Progress>,
    pub observer: Arc<dyn Observer>,
    pub open: Arc<AtomicU32>,
}

/// Counts an open stream for as long as it lives.
struct CountOpen(Arc<AtomicU32>);

impl Drop for CountOpen {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C: Connector> Attempt<C> {
    pub(super) async fn run(self, slot: usize) -> Ended {
        let mut stream = match self.connector.connect(self.route).await {
            Ok(stream) => stream,
            Err(error) => {
                return Ended {
                    slot,
                    result: Err(Lost::Connect(error)),
                    opened: None,
                    closing: None,
                };
            }
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        let counted = CountOpen(self.open.clone());
        let watch = stream.watch(match self.side {
            Side::Push(..) => drs::Side::Sending,
            Side::Pull(_) => drs::Side::Receiving,
        });
        let counters = self.progress.add_stream(&self.route_name, watch, false);
        self.observer.event(Event::StreamOpened {
            stream: counters.number,
            route: self.route_name.clone(),
        });
        let mut greeting = Vec::new();
        Frame::Hello(self.hello.clone()).encode(&mut greeting);
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = FrameReader::new(reader);
        let result = match &self.side {
            Side::Push(queue) => {
                send_stream(
                    queue,
                    counters.number,
                    &counters,
                    &mut reader,
                    &mut writer,
                    greeting,
                )
                .await
            }
            Side::Pull(receiver) => {
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
        let stream = reader.into_inner().unsplit(writer);
        if let Some(retransmits) = stream.retransmits() {
            counters.retransmits.store(retransmits, Ordering::Relaxed);
            counters.retransmits_known.store(true, Ordering::Relaxed);
        }
        counters.open.store(false, Ordering::Relaxed);
        drop(counted);
        let mut closing = JoinSet::new();
        if matches!(result, Ok(StreamEnd::Finished)) {
            closing.spawn(close(stream));
        }
        Ended {
            slot,
            result: result.map_err(Lost::Stream),
            opened: Some(counters.number),
            closing: Some(closing),
        }
    }
}

/// Closes in good order: says so, and hears the other side say so, lest a reset overtakes the last words.
pub(crate) async fn close(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let closing = async {
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(CLOSING, closing).await;
}
