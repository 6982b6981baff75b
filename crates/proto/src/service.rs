//! What an acceptor is asked for (LH-OPEN-13).

use std::{borrow::Cow, fmt, str::FromStr};

/// Longest name, in bytes.
const MAX_SERVICE: usize = 32;

/// A service by its name: 1 to 32 lower-case letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Service(Cow<'static, str>);

impl Service {
    /// Files and trees, read and written.
    pub const COPY: Self = Self(Cow::Borrowed("copy"));
    /// Measurements of the path.
    pub const PERF: Self = Self(Cow::Borrowed("perf"));
    /// Looking at files, and changing names.
    pub const FILES: Self = Self(Cow::Borrowed("files"));
    /// An ordinary TCP server behind an off-ramp, which the OPEN names (LH-OPEN-14).
    pub const TCP: Self = Self(Cow::Borrowed("tcp"));
    /// A byte stream to a program that listens.
    pub const STREAM: Self = Self(Cow::Borrowed("stream"));
    /// Small measurements of the path to a depot, which ends the session itself (LH-PROBE-1).
    pub const PROBE: Self = Self(Cow::Borrowed("probe"));
    /// Facts about the machine.
    pub const DOCTOR: Self = Self(Cow::Borrowed("doctor"));

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=MAX_SERVICE).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(Cow::Owned(text.to_owned())))
        } else {
            Err(ServiceError)
        }
    }
}

/// The text names no service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a service: write 1 to 32 lower-case letters, digits and '-'")]
pub struct ServiceError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for known in [
            Service::COPY,
            Service::FILES,
            Service::PERF,
            Service::DOCTOR,
            Service::PROBE,
            Service::TCP,
            Service::STREAM,
        ] {
            assert_eq!(known.as_str().parse(), Ok(known.clone()));
        }
        let long = "a".repeat(33);
        for text in ["", "Copy", "co py", "c\u{f6}py", "copy\n", &long] {
            assert_eq!(text.parse::<Service>(), Err(ServiceError), "{text}");
        }
    }
}
