//! Services that an initiator can request from an acceptor (LH-OPEN-13).

use std::{borrow::Cow, fmt, str::FromStr};

/// Maximum length of a service name, in bytes.
const MAX_SERVICE_BYTES: usize = 32;

/// A service name: 1 to 32 lower-case letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceName(Cow<'static, str>);

impl ServiceName {
    /// Copying of files and trees, in both directions.
    pub const COPY: Self = Self(Cow::Borrowed("copy"));
    /// Fetching of files from another server, in the principal's name (LH-FETCH-1).
    pub const FETCH: Self = Self(Cow::Borrowed("fetch"));
    /// Measurements of the path.
    pub const PERF: Self = Self(Cow::Borrowed("perf"));
    /// A stream of a copy that another member of a striped server has (LH-COPY-77).
    pub const STRIPE: Self = Self(Cow::Borrowed("stripe"));
    /// Listing and renaming of files.
    pub const FILES: Self = Self(Cow::Borrowed("files"));
    /// An ordinary TCP server behind an off-ramp, named in the OPEN (LH-OPEN-14).
    pub const TCP: Self = Self(Cow::Borrowed("tcp"));
    /// A byte stream to a listening program.
    pub const STREAM: Self = Self(Cow::Borrowed("stream"));
    /// Small measurements of the path to a depot, which itself ends the session (LH-PROBE-1).
    pub const PROBE: Self = Self(Cow::Borrowed("probe"));
    /// Continuation of a session over another connection (LH-RESUME-4).
    pub const RESUME: Self = Self(Cow::Borrowed("resume"));
    /// Registration of a voucher for which OPENs have no room (LH-VOUCHER-8).
    pub const VOUCHER: Self = Self(Cow::Borrowed("voucher"));
    /// Diagnostic facts about the machine.
    pub const DOCTOR: Self = Self(Cow::Borrowed("doctor"));

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServiceName {
    type Err = ServiceNameError;

    fn from_str(text: &str) -> Result<Self, ServiceNameError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=MAX_SERVICE_BYTES).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(Cow::Owned(text.to_owned())))
        } else {
            Err(ServiceNameError)
        }
    }
}

/// Error for a text that is not a service name. Only programs that use the library can cause it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a service: write 1 to 32 lower-case letters, digits and '-'")]
pub struct ServiceNameError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_are_plain() {
        for known in [
            ServiceName::COPY,
            ServiceName::FILES,
            ServiceName::FETCH,
            ServiceName::STRIPE,
            ServiceName::PERF,
            ServiceName::DOCTOR,
            ServiceName::PROBE,
            ServiceName::TCP,
            ServiceName::RESUME,
            ServiceName::STREAM,
            ServiceName::VOUCHER,
        ] {
            assert_eq!(known.as_str().parse(), Ok(known.clone()));
        }
        let long = "a".repeat(33);
        for text in ["", "Copy", "co py", "c\u{f6}py", "copy\n", &long] {
            assert_eq!(text.parse::<ServiceName>(), Err(ServiceNameError), "{text}");
        }
    }
}
