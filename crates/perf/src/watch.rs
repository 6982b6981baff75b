//! Observes the streams of one end while bytes move: the intervals that are printed, and the totals
//! of the sockets.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use drs::{FlowWatch, Side, TcpInfo, Verdict, WatchSettings};

/// Interval between checks for the end of an interval.
pub(crate) const INTERVAL_CHECK_PERIOD: Duration = Duration::from_millis(10);

/// One stream to observe.
pub(crate) struct WatchedStream {
    /// Number of the stream.
    pub(crate) stream: u16,
    /// True if this end sends on it.
    pub(crate) sends: bool,
    /// Duplicate descriptor, so that the counters can still be read when the session is closed;
    /// `None` for transports without a socket of their own.
    pub(crate) socket: Option<OwnedFd>,
    /// Payload moved so far, in bytes.
    pub(crate) count: Arc<AtomicU64>,
    /// True if the sending rate is fitted to the path.
    pub(crate) right_size: bool,
}

impl WatchedStream {
    fn tcp_info(&self) -> Option<TcpInfo> {
        TcpInfo::read(self.socket.as_ref()?).ok()
    }
}

/// Counts between two moments of a measurement.
#[derive(Debug, Clone)]
pub struct MeasuredInterval {
    /// Start, since START.
    pub start: Duration,
    /// End, since START.
    pub end: Duration,
    /// True if it lies before counting began.
    pub omitted: bool,
    /// Streams of this end.
    pub streams: Vec<StreamInterval>,
}

/// One stream's part of an interval.
#[derive(Debug, Clone)]
pub struct StreamInterval {
    /// Number of the stream.
    pub stream: u16,
    /// True if this end sends on it.
    pub sends: bool,
    /// Payload moved, in bytes.
    pub bytes: u64,
    /// Segments retransmitted on this end's hop.
    pub retransmits: u64,
    /// TCP_INFO of this end's hop at the interval's end; `None` if the kernel no longer reports it.
    pub tcp: Option<TcpInfo>,
    /// Limit of the flow, once it is known.
    pub verdict: Option<Verdict>,
}

/// Observations of one stream over the whole measurement.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamObservations {
    /// Payload moved before counting began, in bytes.
    pub(crate) omitted: u64,
    /// Segments retransmitted since START.
    pub(crate) retransmits: u64,
    /// Segments retransmitted before counting began.
    pub(crate) omitted_retransmits: u64,
    /// Round-trip times at the ends of intervals: minimum, maximum, sum, number.
    pub(crate) rtt: Option<(Duration, Duration, Duration, u32)>,
    /// Maximum congestion window, in bytes.
    pub(crate) max_congestion_window: u64,
    /// Maximum window that the peer offered, in bytes.
    pub(crate) max_send_window: u64,
}

struct StreamWatch {
    watched: WatchedStream,
    /// Retransmissions during the set-up, which do not count.
    before: u64,
    last_bytes: u64,
    last_retransmits: u64,
    verdict: Option<Verdict>,
    flow: FlowWatch,
    seen: StreamObservations,
}

/// Observer of all streams of one end.
pub(crate) struct EndWatch {
    watches: Vec<StreamWatch>,
    interval: Duration,
    omit: Duration,
    last: Duration,
    /// Time at which counting began, once it has.
    counted_from: Option<Duration>,
}

impl EndWatch {
    /// Starts to observe `streams`; intervals are `interval` long.
    pub(crate) fn new(streams: Vec<WatchedStream>, interval: Duration, omit: Duration) -> Self {
        Self {
            watches: streams.into_iter().map(StreamWatch::new).collect(),
            interval,
            omit,
            last: Duration::ZERO,
            counted_from: omit.is_zero().then_some(Duration::ZERO),
        }
    }

    /// Takes samples at `now` since START. Returns the interval that ended with it, if one did.
    pub(crate) fn sample(&mut self, now: Duration) -> Option<MeasuredInterval> {
        for watch in &mut self.watches {
            watch.sample();
        }
        if self.counted_from.is_none() && now >= self.omit {
            let interval = self.close(now, true);
            self.counted_from = Some(now);
            for watch in &mut self.watches {
                watch.seen.omitted = watch.last_bytes;
                watch.seen.omitted_retransmits = watch.last_retransmits;
            }
            return Some(interval);
        }
        (now >= self.last + self.interval).then(|| self.close(now, self.counted_from.is_none()))
    }

    /// Takes the last samples when all streams are over. The remainder becomes an interval if it is
    /// the only one, or longer than a tenth of an interval.
    pub(crate) fn finish(&mut self, now: Duration) -> Option<MeasuredInterval> {
        let rest = now.saturating_sub(self.last);
        let last = self.close(now, self.counted_from.is_none());
        let moved = last.streams.iter().any(|stream| stream.bytes > 0);
        (moved && (last.start.is_zero() || rest >= self.interval / 10)).then_some(last)
    }

    /// Returns the time at which counting began, since START.
    pub(crate) fn counted_from(&self) -> Duration {
        self.counted_from.unwrap_or_default()
    }

    /// Returns the observations of each stream.
    pub(crate) fn observations(self) -> Vec<(u16, StreamObservations)> {
        self.watches
            .into_iter()
            .map(|watch| (watch.watched.stream, watch.seen))
            .collect()
    }

    fn close(&mut self, now: Duration, omitted: bool) -> MeasuredInterval {
        let streams = self.watches.iter_mut().map(StreamWatch::close).collect();
        let start = std::mem::replace(&mut self.last, now);
        MeasuredInterval {
            start,
            end: now,
            omitted,
            streams,
        }
    }
}

impl StreamWatch {
    /// Starts to observe a stream, and to fit its rate if that is wanted.
    fn new(watched: WatchedStream) -> Self {
        let side = match watched.sends {
            true => Side::Sending,
            false => Side::Receiving,
        };
        let flow = FlowWatch::new(WatchSettings::observe_only(), side);
        if watched.right_size {
            flow.fit_rate();
        }
        let mut watch = Self {
            before: watched.tcp_info().map_or(0, |info| info.retransmits.into()),
            watched,
            last_bytes: 0,
            last_retransmits: 0,
            verdict: None,
            flow,
            seen: StreamObservations::default(),
        };
        watch.sample();
        watch
    }

    /// Takes a sample of the flow, if one is due.
    fn sample(&mut self) {
        let socket = self.watched.socket.as_ref();
        let Some(news) = socket.and_then(|socket| self.flow.sample(socket, 0)) else {
            return;
        };
        let stream = self.watched.stream;
        self.verdict = news.verdict.or(self.verdict);
        match news.fitting {
            Some(Ok(state)) => tracing::debug!(stream, ?state, "sending rate"),
            Some(Err(error)) => tracing::warn!(
                stream,
                %error,
                "cannot control the sending rate; leaving it to TCP"
            ),
            None => {}
        }
    }

    fn close(&mut self) -> StreamInterval {
        let tcp = self.watched.tcp_info();
        if let Some(info) = &tcp {
            self.seen.record(info, self.before);
        }
        let bytes = self.watched.count.load(Ordering::Relaxed);
        let interval = StreamInterval {
            stream: self.watched.stream,
            sends: self.watched.sends,
            bytes: bytes.saturating_sub(self.last_bytes),
            retransmits: self.seen.retransmits.saturating_sub(self.last_retransmits),
            tcp,
            verdict: self.verdict.take(),
        };
        self.last_bytes = bytes;
        self.last_retransmits = self.seen.retransmits;
        interval
    }
}

impl StreamObservations {
    fn record(&mut self, info: &TcpInfo, before: u64) {
        self.retransmits = u64::from(info.retransmits).saturating_sub(before);
        let window = u64::from(info.congestion_window) * u64::from(info.send_mss);
        self.max_congestion_window = self.max_congestion_window.max(window);
        self.max_send_window = self
            .max_send_window
            .max(info.send_window.unwrap_or(0).into());
        let (least, most, sum, number) =
            self.rtt.unwrap_or((info.rtt, info.rtt, Duration::ZERO, 0));
        self.rtt = Some((
            least.min(info.rtt),
            most.max(info.rtt),
            sum + info.rtt,
            number + 1,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(count: &Arc<AtomicU64>) -> (WatchedStream, impl Sized) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let watched = WatchedStream {
            stream: 0,
            sends: true,
            socket: Some(stream.into()),
            count: count.clone(),
            right_size: false,
        };
        (watched, listener)
    }

    #[test]
    fn intervals_are_contiguous_and_omit_the_beginning() {
        let count = Arc::new(AtomicU64::new(0));
        let (stream, _listener) = watched(&count);
        let second = Duration::from_secs(1);
        let mut watch = EndWatch::new(vec![stream], second, 2 * second);
        count.store(100, Ordering::Relaxed);
        assert!(watch.sample(second / 2).is_none());
        let first = watch.sample(second).unwrap();
        assert!((first.start, first.end, first.omitted) == (Duration::ZERO, second, true));
        assert_eq!(first.streams[0].bytes, 100);
        count.store(150, Ordering::Relaxed);
        assert!(watch.sample(2 * second).unwrap().omitted);
        count.store(350, Ordering::Relaxed);
        let third = watch.sample(3 * second).unwrap();
        assert!(!third.omitted && third.streams[0].bytes == 200);
        assert!(
            watch.finish(3 * second + second / 100).is_none(),
            "a sliver"
        );
        assert_eq!(watch.counted_from(), 2 * second);
        assert_eq!(watch.observations()[0].1.omitted, 150);
    }
}
