//! Start of a login: finds the far side's first messages in the login's output.
//!
//! A login's startup files may print anything, with or without a newline at its end. A message is
//! found by its marker anywhere in a line, and both output and time are bounded. Time only counts
//! once ssh has authenticated, as a person may be typing a password before that.

use std::time::Duration;

use longhaul_proto::text::printable_within;
use tokio::time::Instant;

use crate::bootstrap::{AUTHENTICATED, BEGUN, DAMAGED, NEEDS, UNFIT};
use crate::message::{FarAnswer, Ready};

/// Maximum bytes that a login may print before the far side's first message.
const MAX_NOISE_BYTES: usize = 1 << 20;
/// Maximum silence of a login once ssh has authenticated.
const MAX_SILENCE: Duration = Duration::from_secs(20);
/// Maximum time from the authentication to the far side's first message.
const GREETING_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum bytes shown of a line.
const MAX_SHOWN_BYTES: usize = 256;
/// Beginning of [`FarAnswer::Ready`] as every release writes it.
const READY: &[u8] = b"{\"answer\":\"ready\"";

/// A message of the far side's host before any question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Greeting {
    /// There is no usable longhaul. Holds the output of `uname -sm`.
    Needs(String),
    /// The program that was copied there does not run.
    Unfit,
    /// The program arrived damaged, or could not be stored.
    Damaged,
    /// The far side runs.
    Ready(Box<Ready>),
}

/// Reason why a login is abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    /// It was silent for [`MAX_SILENCE`].
    Silent,
    /// It took longer than [`GREETING_TIMEOUT`].
    Slow,
    /// It printed more than [`MAX_NOISE_BYTES`].
    Noisy,
}

impl std::fmt::Display for Overrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent => write!(f, "it said nothing for {} s", MAX_SILENCE.as_secs()),
            Self::Slow => write!(f, "it took longer than {} s", GREETING_TIMEOUT.as_secs()),
            Self::Noisy => write!(f, "it printed more than {} KiB", MAX_NOISE_BYTES >> 10),
        }
    }
}

/// Parser of a login's output, without I/O.
#[derive(Debug, Default)]
pub(crate) struct Greeter {
    heard_bytes: usize,
    /// Time of the authentication, and of the latest output.
    timed: Option<(Instant, Instant)>,
    /// Maximum silence until the login runs the script, if it is not [`MAX_SILENCE`].
    max_silence: Option<Duration>,
    /// If true, the time is not limited, as a program is being sent.
    untimed: bool,
    has_begun: bool,
    /// Last non-empty line of other output.
    last_line: Option<String>,
}

impl Greeter {
    /// Creates a parser that allows this silence until the login runs the script, or
    /// [`MAX_SILENCE`].
    pub(crate) fn new(max_silence: Option<Duration>) -> Self {
        Self {
            max_silence,
            ..Self::default()
        }
    }

    /// Records output of the login, before its lines are [read](Self::read).
    ///
    /// # Errors
    /// [`Overrun::Noisy`].
    pub(crate) fn record_output(&mut self, bytes: usize, now: Instant) -> Result<(), Overrun> {
        let begun = self.timed.map_or(now, |(begun, _)| begun);
        self.timed = Some((begun, now));
        self.heard_bytes = self.heard_bytes.saturating_add(bytes);
        match self.heard_bytes > MAX_NOISE_BYTES {
            true => Err(Overrun::Noisy),
            false => Ok(()),
        }
    }

    /// Parses a complete line. Returns `None` for other output.
    pub(crate) fn read(&mut self, line: &[u8]) -> Option<Greeting> {
        if has(line, AUTHENTICATED) {
            return None;
        }
        if has(line, BEGUN) {
            self.has_begun = true;
            return None;
        }
        if let Some(ready) = find_ready(line) {
            return Some(Greeting::Ready(Box::new(ready)));
        }
        if let Some(machine) = behind(line, NEEDS.as_bytes()) {
            return Some(Greeting::Needs(shown(machine)));
        }
        if has(line, UNFIT) {
            return Some(Greeting::Unfit);
        }
        if has(line, DAMAGED) {
            return Some(Greeting::Damaged);
        }
        self.keep(line);
        None
    }

    /// Lifts the time limit, as a program is being sent, which takes as long as the path needs.
    pub(crate) fn lift_time_limit(&mut self) {
        self.untimed = true;
    }

    /// Returns the moment from which the login is silent, or slow, for too long.
    pub(crate) fn deadline(&self) -> Option<(Instant, Overrun)> {
        let (begun, last) = self.timed.filter(|_| !self.untimed)?;
        let max_silence = self.max_silence.filter(|_| !self.has_begun);
        let silent = (last + max_silence.unwrap_or(MAX_SILENCE), Overrun::Silent);
        let slow = (begun + GREETING_TIMEOUT, Overrun::Slow);
        Some(if silent.0 <= slow.0 { silent } else { slow })
    }

    /// Returns true if the login ran the script.
    pub(crate) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the last line of other output. `rest` is the output after the last newline.
    pub(crate) fn last_line(mut self, rest: &[u8]) -> Option<String> {
        self.keep(rest);
        self.last_line
    }

    fn keep(&mut self, line: &[u8]) {
        let text = shown(line);
        if !text.is_empty() {
            self.last_line = Some(text);
        }
    }
}

/// Returns the far side's first answer, regardless of other text in the line.
fn find_ready(line: &[u8]) -> Option<Ready> {
    let mut rest = line;
    while let Some(at) = position(rest, READY) {
        rest = rest.get(at..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<FarAnswer>();
        if let Some(Ok(FarAnswer::Ready(ready))) = values.next() {
            return Some(ready);
        }
        rest = rest.get(READY.len()..)?;
    }
    None
}

fn has(line: &[u8], marker: &str) -> bool {
    position(line, marker.as_bytes()).is_some()
}

fn behind<'a>(line: &'a [u8], marker: &[u8]) -> Option<&'a [u8]> {
    line.get(position(line, marker)? + marker.len()..)
}

fn position(bytes: &[u8], marker: &[u8]) -> Option<usize> {
    bytes
        .windows(marker.len())
        .position(|window| window == marker)
}

fn shown(line: &[u8]) -> String {
    printable_within(line.trim_ascii(), MAX_SHOWN_BYTES)
}

#[cfg(test)]
mod tests {
    use longhaul_proto::PublicKey;
    use proptest::prelude::*;

    use super::*;

    fn ready() -> (Ready, Vec<u8>) {
        let ready = Ready {
            version: 2,
            copy_version: 1,
            release: "1.2.3".into(),
            key: PublicKey::from_bytes([7; 32]),
            client: None,
            server: None,
            addresses: vec![],
            unix_ms: None,
        };
        let line = serde_json::to_vec(&FarAnswer::Ready(ready.clone())).unwrap();
        (ready, line)
    }

    #[test]
    fn markers_are_found_anywhere_in_a_line() {
        let (ready, line) = ready();
        let around = |before: &str, marker: &[u8], after: &str| {
            [before.as_bytes(), marker, after.as_bytes()].concat()
        };
        for (before, after) in [
            ("", ""),
            ("\x1b]0;host\x07", ""),
            ("x", " y"),
            ("{\"answer\":\"ready\"", "{"),
        ] {
            let mut greeter = Greeter::default();
            assert_eq!(greeter.read(&around(before, BEGUN.as_bytes(), after)), None);
            assert!(greeter.has_begun());
            assert_eq!(
                greeter.read(&around(before, &line, after)),
                Some(Greeting::Ready(Box::new(ready.clone())))
            );
            let needs = format!("{NEEDS}Linux x86_64");
            assert_eq!(
                greeter.read(&around(before, needs.as_bytes(), "\r")),
                Some(Greeting::Needs("Linux x86_64".into()))
            );
            let unfit = around(before, UNFIT.as_bytes(), after);
            assert_eq!(greeter.read(&unfit), Some(Greeting::Unfit));
            let damaged = around(before, DAMAGED.as_bytes(), after);
            assert_eq!(greeter.read(&damaged), Some(Greeting::Damaged));
        }
    }

    #[test]
    fn time_counts_only_after_authentication() {
        let mut greeter = Greeter::default();
        assert_eq!(greeter.deadline(), None);
        let now = Instant::now();
        greeter.record_output(1, now).unwrap();
        assert_eq!(
            greeter.deadline(),
            Some((now + MAX_SILENCE, Overrun::Silent))
        );
        greeter.lift_time_limit();
        assert_eq!(greeter.deadline(), None);
    }

    #[test]
    fn output_prolongs_a_login_up_to_a_bound() {
        let (mut greeter, begun) = (Greeter::default(), Instant::now());
        let mut now = begun;
        greeter.record_output(1, now).unwrap();
        while let Some((deadline, Overrun::Silent)) = greeter.deadline() {
            assert!(deadline <= begun + GREETING_TIMEOUT);
            now = deadline - Duration::from_millis(1);
            greeter.record_output(1, now).unwrap();
        }
        assert_eq!(
            greeter.deadline(),
            Some((begun + GREETING_TIMEOUT, Overrun::Slow))
        );
    }

    #[test]
    fn noise_is_bounded_and_its_last_line_is_known() {
        let (mut greeter, now) = (Greeter::default(), Instant::now());
        // As much as 3,000 lines of a startup file.
        for number in 0..3000 {
            let line = format!("a long line of motd number {number}");
            greeter.record_output(line.len() + 1, now).unwrap();
            assert_eq!(greeter.read(line.as_bytes()), None);
        }
        assert_eq!(
            greeter.record_output(MAX_NOISE_BYTES, now),
            Err(Overrun::Noisy)
        );
        greeter.read(b" \r");
        assert_eq!(
            greeter.last_line(b"").as_deref(),
            Some("a long line of motd number 2999")
        );
        assert_eq!(
            Greeter::default().last_line(b"$ \x1b").as_deref(),
            Some("$ \\u{1b}")
        );
        assert_eq!(Greeter::default().last_line(b""), None);
    }

    proptest! {
        #[test]
        fn any_noise_is_read_without_a_panic(line: Vec<u8>, marker in 0..6_usize) {
            let (_, ready) = ready();
            let markers = [
                &b""[..], ready.as_slice(), NEEDS.as_bytes(), UNFIT.as_bytes(), DAMAGED.as_bytes(),
                READY
            ];
            let mut greeter = Greeter::default();
            let line = [line.as_slice(), markers[marker]].concat();
            let greeting = greeter.read(&line);
            prop_assert_eq!(greeting.is_some(), (1..5).contains(&marker));
        }
    }
}
