//! Validation of records.

use std::time::Duration;

use longhaul_proto::text::is_printable;

use crate::EpochMs;
use crate::record::{Distribution, MeasurementKind, MeasurementRecord};

/// Maximum length of an end's name, in bytes.
const MAX_END_BYTES: usize = 253;
/// Maximum length of a congestion control's name, in bytes (`TCP_CA_NAME_MAX` is 16).
const MAX_CONTROL_BYTES: usize = 32;
/// Maximum length of a program's name, and of a router's error, in bytes.
const MAX_WORD_BYTES: usize = 64;
/// Maximum number of streams.
const MAX_STREAMS: u32 = 10_000;
/// Maximum number of intervals, and of bins of a histogram.
pub(crate) const MAX_INTERVALS: usize = 10_000;
/// Maximum number of routers on the path: the greatest time to live of a packet.
pub(crate) const MAX_TRACE_HOPS: usize = 255;
/// Relative rounding error that is tolerated in the order of numbers.
const ROUNDING: f64 = 1e-9;

/// Limits for records of others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordBounds {
    /// Maximum time by which the reporter's clock may be ahead.
    pub max_clock_ahead: Duration,
    /// Maximum age of a measurement.
    pub max_age: Duration,
    /// Maximum duration of a measurement.
    pub max_duration: Duration,
    /// Maximum rate, in bit/s.
    pub max_rate_bps: f64,
    /// Maximum round trip or delay.
    pub max_time: Duration,
}

impl Default for RecordBounds {
    /// Returns the default bounds: half a minute ahead, a week old, a week long, 10 Tbit/s, a
    /// minute.
    fn default() -> Self {
        Self {
            max_clock_ahead: Duration::from_secs(30),
            max_age: Duration::from_secs(7 * 86_400),
            max_duration: Duration::from_secs(7 * 86_400),
            max_rate_bps: 1e13,
            max_time: Duration::from_secs(60),
        }
    }
}

/// Fault of a record.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecordFault {
    /// An end is malformed: write 1 to 253 printable characters without blanks.
    #[error("{field}: the name of an end has 1 to 253 printable characters and no spaces")]
    End {
        /// `from` or `to`.
        field: &'static str,
    },
    /// Both ends are the same, which is not a path.
    #[error("from and to are the same: name two different ends")]
    NoPath,
    /// The measurement is in the future: set the reporter's clock.
    #[error("the measurement is from {ahead_s:.0} s in the future: set the reporter's clock")]
    Future {
        /// Time by which it is ahead, in seconds.
        ahead_s: f64,
    },
    /// The measurement is too old. Measurements of up to a year are accepted.
    #[error("the measurement is {age_s:.0} s old: that is too old to be stored")]
    Old {
        /// Age in seconds.
        age_s: f64,
    },
    /// A number is out of range: check its unit. Rates are in bits per second, times in seconds,
    /// losses from 0 to 1.
    #[error("{field}: {value} is not within {least} to {most}: check its unit")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// The number.
        value: f64,
        /// Minimum.
        least: f64,
        /// Maximum.
        most: f64,
    },
    /// The minimum, median, mean, 95th percentile and maximum are not in order.
    #[error(
        "{field}: the minimum, the median, the mean, the 95th percentile and the maximum are not \
         in order"
    )]
    Order {
        /// Name of the field.
        field: &'static str,
    },
    /// A value that the record's kind requires is missing.
    #[error("a measurement of this kind needs {field}")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A list is too long.
    #[error("{field}: at most {most}")]
    TooMany {
        /// Name of the field.
        field: &'static str,
        /// Maximum number of elements.
        most: usize,
    },
    /// A text is too long, or has unprintable characters: shorten it, or remove them.
    #[error("{field}: write at most {most} printable characters")]
    Text {
        /// Name of the field.
        field: &'static str,
        /// Maximum number of characters.
        most: usize,
    },
}

impl MeasurementRecord {
    /// Checks the record as of `now_ms`.
    ///
    /// # Errors
    /// [`RecordFault`] names the first fault.
    pub fn check(&self, now_ms: EpochMs, bounds: &RecordBounds) -> Result<(), RecordFault> {
        for (field, end) in [("from", &self.from), ("to", &self.to)] {
            let fits = (1..=MAX_END_BYTES).contains(&end.len())
                && end.chars().all(|c| is_printable(c) && !c.is_whitespace());
            if !fits {
                return Err(RecordFault::End { field });
            }
        }
        if self.from == self.to {
            return Err(RecordFault::NoPath);
        }
        check_range(
            "duration_s",
            self.duration_s,
            0.0,
            bounds.max_duration.as_secs_f64(),
        )?;
        self.check_time(now_ms, bounds)?;
        self.check_conditions()?;
        self.check_values(bounds)?;
        let (there, field) = match self.kind {
            MeasurementKind::Throughput => (self.values.rate_bps.is_some(), "values.rate_bps"),
            MeasurementKind::Rtt => (self.values.rtt.is_some(), "values.rtt"),
            MeasurementKind::Latency => (self.values.delay.is_some(), "values.delay"),
            MeasurementKind::Loss => (self.values.loss.is_some(), "values.loss"),
            MeasurementKind::Trace => (!self.values.hops.is_empty(), "values.hops"),
        };
        if there {
            Ok(())
        } else {
            Err(RecordFault::Missing { field })
        }
    }

    fn check_time(&self, now_ms: EpochMs, bounds: &RecordBounds) -> Result<(), RecordFault> {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        // A measurement is reported when it is over.
        let end_ms = self
            .start_ms
            .saturating_add((self.duration_s * 1000.0) as u64);
        let ahead_s = seconds(end_ms.saturating_sub(now_ms));
        if ahead_s > bounds.max_clock_ahead.as_secs_f64() {
            return Err(RecordFault::Future { ahead_s });
        }
        let age_s = seconds(now_ms.saturating_sub(end_ms));
        if age_s > bounds.max_age.as_secs_f64() {
            return Err(RecordFault::Old { age_s });
        }
        Ok(())
    }

    fn check_conditions(&self) -> Result<(), RecordFault> {
        let conditions = &self.conditions;
        if let Some(streams) = conditions.streams {
            check_range(
                "conditions.streams",
                streams.into(),
                1.0,
                MAX_STREAMS.into(),
            )?;
        }
        if let Some(error) = conditions.clock_error_s {
            check_range("conditions.clock_error_s", error, 0.0, f64::MAX)?;
        }
        check_text(
            "conditions.congestion_control",
            conditions.congestion_control.as_deref(),
            MAX_CONTROL_BYTES,
        )?;
        check_text(
            "conditions.tool",
            conditions.tool.as_deref(),
            MAX_WORD_BYTES,
        )
    }

    fn check_values(&self, bounds: &RecordBounds) -> Result<(), RecordFault> {
        let values = &self.values;
        let most_time = bounds.max_time.as_secs_f64();
        let rate = |field, rate| check_range(field, rate, 0.0, bounds.max_rate_bps);
        values
            .rate_bps
            .map_or(Ok(()), |value| rate("values.rate_bps", value))?;
        values
            .loss
            .map_or(Ok(()), |loss| check_range("values.loss", loss, 0.0, 1.0))?;
        values.jitter_s.map_or(Ok(()), |jitter| {
            check_range("values.jitter_s", jitter, 0.0, most_time)
        })?;
        values.rtt.map_or(Ok(()), |rtt| {
            check_distribution("values.rtt", &rtt, 0.0, most_time)
        })?;
        // The clocks of two ends differ, so a one-way delay may seem negative.
        values.delay.map_or(Ok(()), |delay| {
            check_distribution("values.delay", &delay, -most_time, most_time)
        })?;
        for (field, count, most) in [
            ("values.intervals", values.intervals.len(), MAX_INTERVALS),
            ("values.histogram", values.histogram.len(), MAX_INTERVALS),
            ("values.hops", values.hops.len(), MAX_TRACE_HOPS),
        ] {
            if count > most {
                return Err(RecordFault::TooMany { field, most });
            }
        }
        let longest = bounds.max_duration.as_secs_f64();
        for interval in &values.intervals {
            rate("values.intervals.rate_bps", interval.rate_bps)?;
            check_range("values.intervals.start_s", interval.start_s, 0.0, longest)?;
            check_range(
                "values.intervals.end_s",
                interval.end_s,
                interval.start_s,
                longest,
            )?;
        }
        for bin in &values.histogram {
            check_range(
                "values.histogram.delay_s",
                bin.delay_s,
                -most_time,
                most_time,
            )?;
        }
        for hop in &values.hops {
            check_text(
                "values.hops.hostname",
                hop.hostname.as_deref(),
                MAX_END_BYTES,
            )?;
            check_text("values.hops.error", hop.error.as_deref(), MAX_WORD_BYTES)?;
            hop.rtt_s.map_or(Ok(()), |rtt| {
                check_range("values.hops.rtt_s", rtt, 0.0, most_time)
            })?;
        }
        Ok(())
    }
}

fn check_range(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), RecordFault> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(RecordFault::Value {
        field,
        value,
        least,
        most,
    })
}

fn check_text(field: &'static str, text: Option<&str>, most: usize) -> Result<(), RecordFault> {
    match text {
        Some(text) if text.len() > most || !text.chars().all(is_printable) => {
            Err(RecordFault::Text { field, most })
        }
        _ => Ok(()),
    }
}

fn check_distribution(
    field: &'static str,
    times: &Distribution,
    least: f64,
    most: f64,
) -> Result<(), RecordFault> {
    let middle = [
        times.mean_s,
        times.p50_s.unwrap_or(times.mean_s),
        times.p95_s.unwrap_or(times.max_s),
    ];
    for time in [times.min_s, times.max_s].into_iter().chain(middle) {
        check_range(field, time, least, most)?;
    }
    check_range(field, times.stddev_s.unwrap_or(0.0), 0.0, most - least)?;
    let in_order = |least: f64, most: f64| least <= most + ROUNDING * most.abs();
    let between = middle
        .iter()
        .all(|time| in_order(times.min_s, *time) && in_order(*time, times.max_s));
    let quantiles = match (times.p50_s, times.p95_s) {
        (Some(p50), Some(p95)) => in_order(p50, p95),
        _ => true,
    };
    if between && quantiles {
        Ok(())
    } else {
        Err(RecordFault::Order { field })
    }
}
