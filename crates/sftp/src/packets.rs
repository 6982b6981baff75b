//! Bounds of what a server sends, and the queue of what it is sent.
//!
//! The library trusts lengths and counts in a packet's head. They are checked here before it sees
//! them, so that no server can have it allocate without a bound.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use openssh_sftp_client_lowlevel::Queue;
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};
use tokio::sync::Notify;

/// Maximum length of a packet, in bytes. OpenSSH sends at most 256 KiB.
const MAX_PACKET_BYTES: u32 = 1 << 20;
/// Bytes of a packet's head: length, type, number of the request, and a length or count.
const HEAD_BYTES: usize = 13;
/// Minimum bytes of an entry in a list of names: two texts and the flags of its attributes.
const MIN_NAME_BYTES: u32 = 12;
/// Types of packets (draft-ietf-secsh-filexfer-02, section 3).
const VERSION: u8 = 2;
const DATA: u8 = 103;
const NAME: u8 = 104;

/// Numbers of the requests of packets that were read and not decoded yet, in order.
#[derive(Debug, Default)]
pub(crate) struct AnsweredRequests(Mutex<VecDeque<u32>>);

impl AnsweredRequests {
    /// Takes the number of the next packet.
    pub(crate) fn take(&self) -> Option<u32> {
        self.0.lock().pop_front()
    }
}

/// Reader of a server's packets that ends with an error at the first one that is malformed.
pub(crate) struct BoundedPackets<R> {
    inner: R,
    current: Packet,
}

/// The packet that is being read.
struct Packet {
    head: [u8; HEAD_BYTES],
    /// Bytes of the current packet that have passed, including its length.
    passed: u64,
    /// Bytes of the current packet, including its length, once it is known.
    length: u64,
    answered: Arc<AnsweredRequests>,
}

impl<R> BoundedPackets<R> {
    /// Creates a reader. `answered` receives the number of the request of each packet.
    pub(crate) fn new(inner: R, answered: Arc<AnsweredRequests>) -> Self {
        Self {
            inner,
            current: Packet {
                head: [0; HEAD_BYTES],
                passed: 0,
                length: u64::MAX,
                answered,
            },
        }
    }
}

impl Packet {
    /// Checks bytes of a packet that end within its head, or follow it.
    fn pass(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for (at, byte) in (self.passed..HEAD_BYTES as u64).zip(bytes) {
            if let Some(head) = usize::try_from(at)
                .ok()
                .and_then(|at| self.head.get_mut(at))
            {
                *head = *byte;
            }
        }
        let before = self.passed;
        self.passed += bytes.len() as u64;
        let reached = |at: u64| before < at && self.passed >= at;
        let [l0, l1, l2, l3, kind, i0, i1, i2, i3, c0, c1, c2, c3] = self.head;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        if reached(4) {
            if !(5..=MAX_PACKET_BYTES).contains(&length) {
                return Err("a packet has an impossible length");
            }
            self.length = u64::from(length) + 4;
        }
        if kind == VERSION {
            return Ok(());
        }
        if reached(9) {
            let id = u32::from_be_bytes([i0, i1, i2, i3]);
            self.answered.0.lock().push_back(id);
        }
        let behind_id = length.saturating_sub(5);
        let count = u32::from_be_bytes([c0, c1, c2, c3]);
        let is_short = behind_id < 4 && reached(9);
        match kind {
            DATA | NAME if is_short => Err("a packet is too short"),
            DATA if reached(13) && count != behind_id.saturating_sub(4) => {
                Err("a packet has data of another length than it says")
            }
            NAME if reached(13) && count > behind_id.saturating_sub(4) / MIN_NAME_BYTES => {
                Err("a packet has fewer names than it says")
            }
            _ => Ok(()),
        }
    }
}

impl<R: AsyncBufRead + Unpin> AsyncRead for BoundedPackets<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let packet = &mut this.current;
        if packet.passed == packet.length {
            (packet.passed, packet.length) = (0, u64::MAX);
        }
        // The parts of a head are checked one by one.
        let end = [4, 9, HEAD_BYTES as u64, u64::MAX]
            .into_iter()
            .find(|end| packet.passed < *end)
            .unwrap_or(u64::MAX);
        let limit = usize::try_from(end.min(packet.length) - packet.passed).unwrap_or(usize::MAX);
        let mut inner = Pin::new(&mut this.inner);
        let received = ready!(inner.as_mut().poll_fill_buf(context))?;
        let len = received.len().min(limit).min(buffer.remaining());
        let part = received.get(..len).unwrap_or_default();
        let passed = packet.pass(part);
        buffer.put_slice(part);
        inner.consume(len);
        Poll::Ready(passed.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

/// Requests that wait to be written to a server.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    state: Mutex<QueueState>,
    added: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Vec<Bytes>,
    /// Number of the last request.
    last: u32,
}

impl QueueState {
    fn push(&mut self, packet: Bytes) {
        if let Some([a, b, c, d]) = packet.get(5..9) {
            self.last = u32::from_be_bytes([*a, *b, *c, *d]);
        }
        self.waiting.push(packet);
    }
}

impl RequestQueue {
    /// Waits for requests, and takes all.
    pub(crate) async fn take(&self) -> Vec<Bytes> {
        loop {
            let added = self.added.notified();
            let waiting = std::mem::take(&mut self.state.lock().waiting);
            if !waiting.is_empty() {
                return waiting;
            }
            added.await;
        }
    }

    /// Returns the number of the last request.
    pub(crate) fn last(&self) -> u32 {
        self.state.lock().last
    }
}

impl Queue for RequestQueue {
    fn push(&self, packet: Bytes) {
        self.state.lock().push(packet);
        self.added.notify_one();
    }

    fn extend(&self, head: Bytes, body: &[&[Bytes]]) {
        let mut state = self.state.lock();
        state.push(head);
        let body = body.iter().copied().flatten();
        state
            .waiting
            .extend(body.filter(|part| !part.is_empty()).cloned());
        drop(state);
        self.added.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn packet(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
        let length = 5 + rest.len() as u32;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(id.to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    fn names(count: u32, bytes: usize) -> Vec<u8> {
        let mut rest = count.to_be_bytes().to_vec();
        rest.resize(4 + bytes, 0);
        packet(NAME, 7, &rest)
    }

    /// Returns what passes, and the error.
    fn read(bytes: &[u8], step: usize) -> (Vec<u8>, Option<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let answered = Arc::default();
            let mut reader = BoundedPackets::new(bytes, answered);
            let (mut passed, mut part) = (Vec::new(), vec![0; step]);
            loop {
                match reader.read(&mut part).await {
                    Ok(0) => return (passed, None),
                    Ok(read) => passed.extend(&part[..read]),
                    Err(error) => return (passed, Some(error.to_string())),
                }
            }
        })
    }

    #[test]
    fn impossible_heads_are_refused() {
        for bad in [
            0_u32.to_be_bytes().to_vec(),
            u32::MAX.to_be_bytes().to_vec(),
            b"Welcome to this host".to_vec(),
            names(u32::MAX, 24),
            names(3, 24),
            packet(DATA, 1, &[0, 0, 0, 9, 1]),
            packet(DATA, 1, &[0, 0]),
            packet(NAME, 1, &[]),
        ] {
            let good = packet(101, 1, &[0; 8]);
            let both = [good.as_slice(), &bad].concat();
            for step in [1, 5, 4096] {
                let (passed, error) = read(&both, step);
                assert!(error.is_some(), "{bad:?}");
                assert!(passed.len() < good.len() + HEAD_BYTES);
            }
        }
    }

    proptest! {
        #[test]
        fn well_formed_packets_pass_unchanged(
            packets in prop::collection::vec((100_u8..106, any::<u32>(), 0_usize..64), 0..20),
            step in 1_usize..100,
        ) {
            let bytes: Vec<u8> = packets
                .into_iter()
                .flat_map(|(kind, id, len)| {
                    let data: Vec<u8> = (0..len as u8).collect();
                    let count = match kind {
                        NAME => len as u32 / MIN_NAME_BYTES,
                        _ => len as u32,
                    };
                    packet(kind, id, &[&count.to_be_bytes()[..], &data].concat())
                })
                .collect();
            let (passed, error) = read(&bytes, step);
            prop_assert_eq!(error, None);
            prop_assert_eq!(passed, bytes);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, step in 1_usize..40) {
            read(&bytes, step);
        }
    }
}
