//! Formats measurements for people.

use std::fmt::Display;

use longhaul_perf::{
    MeasuredInterval, MeasurementOutcome, StreamInterval, TestParameters, record::RecordAttempt,
    report::DirectionTotals, wire::FlowDirection,
};

use quantities::{ByteCount, Rate, Time};

use crate::answer;

/// Prints the streams of one interval, and their sum if there are several.
pub(super) fn interval(interval: &MeasuredInterval, header: bool) {
    if header {
        answer::write_line(
            "[  ID] interval           moved        rate             retr  window      rtt         \
             limit",
        );
    }
    for stream in &interval.streams {
        line(interval, &stream.stream, std::slice::from_ref(stream));
    }
    for sends in [true, false] {
        let streams: Vec<_> = interval
            .streams
            .iter()
            .filter(|stream| stream.sends == sends)
            .cloned()
            .collect();
        if streams.len() > 1 {
            line(interval, &"SUM", &streams);
        }
    }
}

fn line(interval: &MeasuredInterval, name: &dyn Display, streams: &[StreamInterval]) {
    let time = Time(interval.end.saturating_sub(interval.start));
    let bytes: u64 = streams.iter().map(|stream| stream.bytes).sum();
    let sends = streams.iter().any(|stream| stream.sends);
    let retransmits: u64 = streams.iter().map(|stream| stream.retransmits).sum();
    let one = match streams {
        [one] => Some(one),
        _ => None,
    };
    let sender = one.filter(|one| one.sends).and_then(|one| one.tcp);
    let window = sender.map(|info| {
        ByteCount(u64::from(info.congestion_window) * u64::from(info.send_mss)).to_string()
    });
    let rtt = sender.map(|info| Time(info.rtt).to_string());
    let limit = one
        .and_then(|one| one.verdict)
        .map(|verdict| verdict.limit.as_str());
    let text = format!(
        "[{name:>4}] {:>7.2}-{:<7.2} s  {:<11}  {:<15}  {:>4}  {:<10}  {:<10}  {}{}",
        interval.start.as_secs_f64(),
        interval.end.as_secs_f64(),
        ByteCount(bytes).to_string(),
        Rate::from_bytes_in(ByteCount(bytes), time).to_string(),
        if sends {
            retransmits.to_string()
        } else {
            String::new()
        },
        window.unwrap_or_default(),
        rtt.unwrap_or_default(),
        limit.unwrap_or_default(),
        if interval.omitted { " (omitted)" } else { "" },
    );
    answer::write_line(text.trim_end());
}

/// Prints both ends' counts.
pub(super) fn end(outcome: &MeasurementOutcome, test: &TestParameters) {
    let directions: &[(bool, &str)] = match test.direction {
        FlowDirection::Forward => &[(true, "")],
        FlowDirection::Reverse => &[(false, "")],
        FlowDirection::Both => &[(true, " to the server"), (false, " from the server")],
    };
    for &(sends, way) in directions {
        let (sent, received) = (
            DirectionTotals::sent(outcome, sends),
            DirectionTotals::received(outcome, sends),
        );
        answer::write_line(format_args!(
            "sent{way}      {}, {} retransmissions",
            moved(&sent),
            sent.retransmits
        ));
        answer::write_line(format_args!("received{way}  {}", moved(&received)));
    }
    answer::write_line(format_args!(
        "processor  here {:.0} %, there {:.0} % of one; congestion control here {}, there {}",
        outcome.local.cpu.total,
        outcome.remote.cpu.total,
        outcome.local.congestion,
        outcome.remote.congestion
    ));
}

/// Prints the result in the contest's unit, and its rules.
pub(super) fn record(attempt: &RecordAttempt) {
    let broken: Vec<_> = attempt.broken.iter().map(ToString::to_string).collect();
    let judgement = match broken.is_empty() {
        true => "valid by the Land Speed Record's rules of size, distance and hops".to_owned(),
        false => format!("not valid for the Land Speed Record: {}", broken.join("; ")),
    };
    let class = match (attempt.class, attempt.unclassified) {
        (Some(class), _) => class.to_string(),
        (None, Some(reason)) => format!("in no class: {reason}"),
        (None, None) => "in no class".to_owned(),
    };
    answer::write_line(format_args!(
        "record     {:.0} terabit-metres per second, {judgement}",
        attempt.terabit_metres_per_second
    ));
    answer::write_line(format_args!("class      {class}"));
}

fn moved(sum: &DirectionTotals) -> String {
    let (bytes, time) = (ByteCount(sum.bytes), Time::from_seconds(sum.seconds));
    format!("{bytes} in {time}, {}", Rate::from_bytes_in(bytes, time))
}
