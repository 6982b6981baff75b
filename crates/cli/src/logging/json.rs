//! Log lines as JSON objects: time, level, message, and the fields of the event.

use std::fmt::{self, Debug, Write};

use longhaul_proto::text::printable_within;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::bounded::{MAX_FIELD_BYTES, MAX_LINE_BYTES};

/// Bytes at the end of a line for marks of what was left out.
const RESERVED_BYTES: usize = 128;
/// Mark of a line without all of its fields.
const TRUNCATION_MARK: &str = ",\"truncated\":true";

/// Format of log lines as JSON objects.
pub struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = JsonLine::begin(&time, *event.metadata().level());
        event.record(&mut line);
        writer.write_str(&line.end())
    }
}

/// A line under construction. It never exceeds [`MAX_LINE_BYTES`].
struct JsonLine {
    text: String,
    is_truncated: bool,
}

impl JsonLine {
    fn begin(time: &str, level: Level) -> Self {
        Self {
            text: format!("{{\"time\":\"{time}\",\"level\":\"{level}\""),
            is_truncated: false,
        }
    }

    fn add(&mut self, field: &Field, value: Value) {
        let name = Value::from(field.name());
        let added = format!(",{name}:{value}");
        match self.text.len() + added.len() + RESERVED_BYTES <= MAX_LINE_BYTES {
            true => self.text.push_str(&added),
            false => self.is_truncated = true,
        }
    }

    /// Adds text that may come from other parties.
    fn add_text(&mut self, field: &Field, text: &str) {
        let text = printable_within(text.as_bytes(), MAX_FIELD_BYTES);
        self.add(field, text.into());
    }

    fn end(mut self) -> String {
        if self.is_truncated {
            self.text.push_str(TRUNCATION_MARK);
        }
        self.text.push_str("}\n");
        self.text
    }
}

impl Visit for JsonLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a String does not fail unless the value's own implementation does.
        let _ = write!(text, "{value:?}");
        self.add_text(field, &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}
