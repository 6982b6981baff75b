//! A measurement as JSON, with the field names of `iperf3 --json` where the meaning is the same.
//!
//! Fields of iperf3 that are omitted: `cookie` and `time` in `start`, and options that do not exist
//! here (`tos`, `target_bitrate`, `sock_bufsize`, `blocks`). Additions are under `longhaul`, and in
//! the field `limit` of a stream's interval. `rtt`, `snd_cwnd` and `retransmits` are those of the
//! sender's first hop, which on a route is the one to its first depot.

use std::time::{Duration, SystemTime};

use quantities::{ByteCount, Rate};
use serde_json::{Map, Value, json};

use crate::{
    Interval, Outcome, StreamInterval, StreamOutcome, Test,
    client::Connection,
    pump::BLOCK,
    record::Attempt,
    wire::{Direction, Length, Protection},
};

/// Context of a measurement that the command knows.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Server, as named on the command line.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Route, as text.
    pub route: String,
    /// Start time.
    pub began: SystemTime,
    /// Parameters of the measurement.
    pub test: Test,
    /// Connections that carried it.
    pub connections: Vec<Connection>,
}

/// Totals of the streams in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// Payload in bytes.
    pub bytes: u64,
    /// Time of the longest stream, in seconds.
    pub seconds: f64,
    /// Segments retransmitted on the senders' first hops.
    pub retransmits: u64,
}

impl Sum {
    /// Returns the rate in bit/s; 0 if no bytes moved.
    #[must_use]
    pub fn bits_per_second(&self) -> f64 {
        bits_per_second(self.bytes, self.seconds)
    }

    /// Returns the totals at the receiver of the direction in which this end sends (`sends`), or of
    /// the other direction.
    #[must_use]
    pub fn received(outcome: &Outcome, sends: bool) -> Self {
        Self::over(outcome, sends, StreamOutcome::received)
    }

    /// Returns the totals at the sender of the direction in which this end sends (`sends`), or of
    /// the other direction.
    #[must_use]
    pub fn sent(outcome: &Outcome, sends: bool) -> Self {
        Self::over(outcome, sends, StreamOutcome::sent)
    }

    fn over(outcome: &Outcome, sends: bool, count: impl Fn(&StreamOutcome) -> (u64, f64)) -> Self {
        let streams = outcome
            .streams
            .iter()
            .filter(|stream| stream.local.sends == sends);
        streams.fold(Self::default(), |sum, stream| {
            let (bytes, seconds) = count(stream);
            Self {
                bytes: sum.bytes + bytes,
                seconds: sum.seconds.max(seconds),
                retransmits: sum.retransmits + stream.retransmits(),
            }
        })
    }

    /// Returns the bytes and the rate for the contest's rules.
    #[must_use]
    pub fn for_record(&self) -> (ByteCount, Rate) {
        (ByteCount(self.bytes), Rate::nearest(self.bits_per_second()))
    }
}

/// Returns the facts known when the clock starts: iperf3's `start`.
#[must_use]
pub fn start(setting: &Setting) -> Value {
    let connected = |connection: &Connection| {
        let mut object = Map::new();
        object.insert("socket".into(), connection.stream.into());
        if let Some((local, remote)) = connection.addresses {
            object.insert("local_host".into(), local.ip().to_string().into());
            object.insert("local_port".into(), local.port().into());
            object.insert("remote_host".into(), remote.ip().to_string().into());
            object.insert("remote_port".into(), remote.port().into());
        }
        Value::Object(object)
    };
    let test = &setting.test;
    let since = setting
        .began
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (duration, bytes) = match test.length {
        Length::Milliseconds(ms) => (ms as f64 / 1e3, 0),
        Length::Bytes(bytes) => (0.0, bytes),
    };
    let first = setting.connections.first();
    json!({
        "tcp_mss_default": first.map_or(0, |first| first.mss),
        "sndbuf_actual": first.map_or(0, |first| first.buffers.0),
        "rcvbuf_actual": first.map_or(0, |first| first.buffers.1),
        "connected": setting.connections.iter().map(connected).collect::<Vec<_>>(),
        "version": concat!("longhaul ", env!("CARGO_PKG_VERSION")),
        "system_info": system_info(),
        "timestamp": { "timesecs": since.as_secs() },
        "connecting_to": { "host": setting.host, "port": setting.port },
        "test_start": {
            "protocol": "TCP",
            "num_streams": test.streams,
            "blksize": BLOCK,
            "omit": test.omit.as_secs_f64(),
            "duration": duration,
            "bytes": bytes,
            "reverse": u8::from(test.direction == Direction::Reverse),
            "bidir": u8::from(test.direction == Direction::Both),
        },
    })
}

/// Returns one of iperf3's `intervals`.
#[must_use]
pub fn interval(interval: &Interval) -> Value {
    let streams: Vec<_> = interval
        .streams
        .iter()
        .map(|stream| stream_interval(interval, stream))
        .collect();
    let mut object = Map::new();
    object.insert("streams".into(), streams.into());
    let sends = |sends: bool| interval.streams.iter().any(|stream| stream.sends == sends);
    // As in iperf3, the direction away from this end comes first. The other has a field name of its
    // own if both are measured.
    match (sends(true), sends(false)) {
        (true, true) => {
            object.insert("sum".into(), interval_sum(interval, true));
            object.insert("sum_bidir_reverse".into(), interval_sum(interval, false));
        }
        (forward, _) => {
            object.insert("sum".into(), interval_sum(interval, forward));
        }
    }
    Value::Object(object)
}

/// Returns both ends' counts: iperf3's `end`.
#[must_use]
pub fn end(setting: &Setting, outcome: &Outcome) -> Value {
    let streams: Vec<_> = outcome.streams.iter().map(stream_end).collect();
    let forward = setting.test.direction != Direction::Reverse;
    let (local, remote) = (&outcome.local, &outcome.remote);
    let (sender, receiver) = match forward {
        true => (&local.congestion, &remote.congestion),
        false => (&remote.congestion, &local.congestion),
    };
    let mut end = json!({
        "streams": streams,
        "sum_sent": sum(&Sum::sent(outcome, forward), forward, true),
        "sum_received": sum(&Sum::received(outcome, forward), forward, false),
        "cpu_utilization_percent": {
            "host_total": local.cpu.total,
            "host_user": local.cpu.user,
            "host_system": local.cpu.system,
            "remote_total": remote.cpu.total,
            "remote_user": remote.cpu.user,
            "remote_system": remote.cpu.system,
        },
        "sender_tcp_congestion": sender,
        "receiver_tcp_congestion": receiver,
    });
    if let (Direction::Both, Value::Object(end)) = (setting.test.direction, &mut end) {
        let sent = sum(&Sum::sent(outcome, false), false, true);
        let received = sum(&Sum::received(outcome, false), false, false);
        end.insert("sum_sent_bidir_reverse".into(), sent);
        end.insert("sum_received_bidir_reverse".into(), received);
    }
    end
}

/// Returns the results for which iperf3 has no field.
#[must_use]
pub fn longhaul(setting: &Setting, attempt: Option<&Attempt>) -> Value {
    let protection = match setting.test.protection {
        Protection::Tls => "tls",
        Protection::None => "none",
    };
    let mut object = Map::new();
    object.insert("route".into(), setting.route.clone().into());
    object.insert("protection".into(), protection.into());
    object.insert("right_size".into(), setting.test.right_size.into());
    if let Some(attempt) = attempt {
        object.insert("land_speed_record".into(), json!(attempt));
    }
    Value::Object(object)
}

fn stream_interval(interval: &Interval, stream: &StreamInterval) -> Value {
    let mut object = span(interval, stream.bytes);
    object.insert("socket".into(), stream.stream.into());
    object.insert("sender".into(), stream.sends.into());
    if stream.sends {
        object.insert("retransmits".into(), stream.retransmits.into());
        if let Some(info) = &stream.tcp {
            let window = u64::from(info.congestion_window) * u64::from(info.send_mss);
            object.insert("snd_cwnd".into(), window.into());
            object.insert("snd_wnd".into(), info.send_window.into());
            object.insert("rtt".into(), micros(info.rtt));
            object.insert("rttvar".into(), micros(info.rttvar));
            object.insert("pmtu".into(), info.path_mtu.into());
        }
    }
    if let Some(verdict) = &stream.verdict {
        object.insert("limit".into(), verdict.limit.word().into());
    }
    Value::Object(object)
}

fn interval_sum(interval: &Interval, sends: bool) -> Value {
    let streams = || {
        interval
            .streams
            .iter()
            .filter(|stream| stream.sends == sends)
    };
    let mut object = span(interval, streams().map(|stream| stream.bytes).sum());
    object.insert("sender".into(), sends.into());
    if sends {
        let retransmits: u64 = streams().map(|stream| stream.retransmits).sum();
        object.insert("retransmits".into(), retransmits.into());
    }
    Value::Object(object)
}

fn span(interval: &Interval, bytes: u64) -> Map<String, Value> {
    let seconds = interval.end.saturating_sub(interval.start).as_secs_f64();
    let mut object = Map::new();
    object.insert("start".into(), interval.start.as_secs_f64().into());
    object.insert("end".into(), interval.end.as_secs_f64().into());
    object.insert("seconds".into(), seconds.into());
    object.insert("bytes".into(), bytes.into());
    object.insert(
        "bits_per_second".into(),
        bits_per_second(bytes, seconds).into(),
    );
    object.insert("omitted".into(), interval.omitted.into());
    object
}

fn stream_end(stream: &StreamOutcome) -> Value {
    let side = |(bytes, seconds): (u64, f64)| {
        json!({
            "socket": stream.local.stream,
            "start": 0,
            "end": seconds,
            "seconds": seconds,
            "bytes": bytes,
            "bits_per_second": bits_per_second(bytes, seconds),
            "sender": stream.local.sends,
        })
    };
    let mut sender = side(stream.sent());
    if let Value::Object(sender) = &mut sender {
        let local = &stream.local;
        sender.insert("retransmits".into(), stream.retransmits().into());
        // The other end's socket is not visible here; iperf3 reports 0 then.
        let seen = |value: u64| Value::from(if local.sends { value } else { 0 });
        sender.insert("max_snd_cwnd".into(), seen(local.max_congestion_window));
        sender.insert("max_snd_wnd".into(), seen(local.max_send_window));
        let [least, most, mean] = local.rtt.unwrap_or_default();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        sender.insert("max_rtt".into(), seen(micros(most)));
        sender.insert("min_rtt".into(), seen(micros(least)));
        sender.insert("mean_rtt".into(), seen(micros(mean)));
    }
    json!({ "sender": sender, "receiver": side(stream.received()) })
}

fn sum(sum: &Sum, sends: bool, sent: bool) -> Value {
    let mut object = json!({
        "start": 0,
        "end": sum.seconds,
        "seconds": sum.seconds,
        "bytes": sum.bytes,
        "bits_per_second": sum.bits_per_second(),
        "sender": sends,
    });
    if let (true, Value::Object(object)) = (sent, &mut object) {
        object.insert("retransmits".into(), sum.retransmits.into());
    }
    object
}

fn bits_per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn micros(time: Duration) -> Value {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).into()
}

fn system_info() -> String {
    let name = rustix::system::uname();
    let parts = [
        name.sysname(),
        name.nodename(),
        name.release(),
        name.version(),
        name.machine(),
    ];
    parts.map(|part| part.to_string_lossy()).join(" ")
}
