//! Logs of the long-running commands, on standard error.

mod bounded;
mod json;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use longhaul_proto::text::printable_within;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use bounded::{Bounded, MAX_FIELD_BYTES};
use json::JsonLines;

/// Options for the log of a service.
#[derive(Args, Clone)]
pub struct LogOptions {
    /// Format of the log on standard error: text, or json with one object per line.
    #[arg(
        long,
        value_name = "text|json",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        env = "LONGHAUL_LOG_FORMAT",
        hide_env = true
    )]
    log_format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people, with colours on terminals.
    #[default]
    Text,
    /// One JSON object per line, for log collectors.
    Json,
}

impl LogOptions {
    /// Starts logging in the chosen format; see [`start`].
    pub fn start(&self, default: &str) {
        start_as(self.log_format, default);
    }
}

/// Starts logging as text; `RUST_LOG` overrides `default`. Colours are for terminals, and only if
/// `NO_COLOR` is unset or empty (<https://no-color.org>).
pub fn start(default: &str) {
    start_as(LogFormat::Text, default);
}

fn start_as(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Bounded::new(|| longhaul_output::Messages).with_format(format));
    let started = match format {
        LogFormat::Json => log.event_format(JsonLines).try_init(),
        LogFormat::Text => log
            .with_ansi(coloured(
                std::io::stderr().is_terminal(),
                std::env::var_os("NO_COLOR").as_deref(),
            ))
            .fmt_fields(debug_fn(field).delimited(" "))
            .with_target(false)
            .try_init(),
    };
    // Only fails if logging has been started before.
    drop(started);
}

fn coloured(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Writes a field. Text from other parties stays on its line, is shortened, and cannot control a
/// terminal.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let value = printable_within(format!("{value:?}").as_bytes(), MAX_FIELD_BYTES);
    match field.name() {
        "message" => writer.write_str(&value),
        name => write!(writer, "{name}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn colours_need_a_terminal_and_no_no_color() {
        for (terminal, no_color, expected) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("1"), false),
            (false, None, false),
            (false, Some(""), false),
        ] {
            assert_eq!(coloured(terminal, no_color.map(OsStr::new)), expected);
        }
    }

    /// Returns the lines of a log in JSON after `events` have written to it.
    fn logged_as_json(events: impl FnOnce()) -> Vec<serde_json::Value> {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Bounded::new(move || writer.clone()).with_format(LogFormat::Json))
            .event_format(JsonLines)
            .finish();
        tracing::subscriber::with_default(subscriber, events);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| {
                assert!(line.len() < bounded::MAX_LINE_BYTES, "{} bytes", line.len());
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    #[test]
    fn json_lines_have_the_fields_of_the_event() {
        let error = std::io::Error::other("a \"quoted\"\nline \u{202e}");
        let lines = logged_as_json(|| {
            tracing::warn!(
                bytes = 7_u64, seconds = 1.5, ok = true, name = "n", none = None::<u64>, %error,
                "copy of {}", "f"
            );
        });
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["message"], "copy of f");
        assert_eq!(line["bytes"], 7);
        assert_eq!((&line["seconds"], &line["ok"]), (&1.5.into(), &true.into()));
        assert_eq!(line["name"], "n");
        assert_eq!(line["error"], "a \"quoted\"\\u{a}line \\u{202e}");
        assert!(line.get("none").is_none());
    }

    #[test]
    fn json_lines_stay_json_when_they_are_truncated() {
        let words = "\"".repeat(2 << 20);
        let lines = logged_as_json(|| {
            tracing::info!(a = words, b = words, c = words, d = words, "long");
        });
        assert_eq!(lines[0]["truncated"], true);
    }

    /// Returns the content of a log with these bounds after `events` have written to it.
    fn logged(events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .fmt_fields(debug_fn(field).delimited(" "))
            .with_writer(Bounded::new(move || writer.clone()))
            .finish();
        tracing::subscriber::with_default(subscriber, events);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn no_line_is_longer_than_the_bound() {
        let words = "w".repeat(2 << 20);
        let log = logged(|| {
            tracing::info!(
                a = words, b = words, c = ?[&words, &words], d = words, e = words, "{words}"
            );
        });
        assert!(log.len() <= bounded::MAX_LINE_BYTES, "{} bytes", log.len());
        assert_eq!(log.lines().count(), 1);
    }

    #[test]
    fn a_flood_of_one_event_leaves_room_for_others() {
        const EVENTS: usize = 20_000;
        let log = logged(|| {
            for number in 0..EVENTS {
                tracing::info!(number, "flood");
            }
            tracing::info!("another");
        });
        let lines = log.lines().count();
        assert!(lines < EVENTS / 2, "{lines} lines of {EVENTS}");
        assert!(log.ends_with("another\n"));
    }

    #[test]
    fn text_from_peers_stays_in_its_field() {
        let words = "a\u{1b}[2J\n\u{202e}\u{200b}\u{2028}\u{2029}b";
        let error = std::io::Error::other(words);
        let written = logged(|| {
            tracing::info!(number = 7, %error, detail = words, purpose = ?words, "said: {words}");
        });
        let shown = "a\\u{1b}[2J\\u{a}\\u{202e}\\u{200b}\\u{2028}\\u{2029}b";
        assert!(
            written.starts_with(&format!(
                " INFO said: {shown} number=7 error={shown} detail="
            )),
            "{written}"
        );
        let line = written.strip_suffix('\n').unwrap();
        assert!(
            line.chars().all(longhaul_proto::text::is_printable),
            "{written:?}"
        );
    }
}
