//! Logs of the long-running commands, on standard error.

mod bounded;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::IsTerminal;

use longhaul_proto::text::printable_within;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use bounded::{Bounded, MAX_FIELD_BYTES};

/// Starts logging; `RUST_LOG` overrides `default`. Colours are for terminals, and only if
/// `NO_COLOR` is unset or empty (<https://no-color.org>).
pub fn start(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(coloured(
            std::io::stderr().is_terminal(),
            std::env::var_os("NO_COLOR").as_deref(),
        ))
        .fmt_fields(debug_fn(field).delimited(" "))
        .with_writer(Bounded::new(|| longhaul_output::Messages))
        .with_target(false)
        .try_init();
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
