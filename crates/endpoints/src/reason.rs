//! Classification of the errors of a store. It is pure.

use std::error::Error as StdError;

use longhaul_proto::text::printable;
use longhaul_transfer::{Failure, FailureKind};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// Maximum length of a store's own words, in characters.
const MAX_REASON_CHARS: usize = 240;

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no such object, or no such bucket.
    NotFound,
    /// The object exists already.
    Exists,
    /// The object is not the one of which a part was read.
    Changed,
    /// An object has this name, and others lie below it as if it were a directory.
    Ambiguous(String),
    /// The store does not know the operation.
    Unsupported,
    /// The store refuses the credentials.
    Denied(String),
    /// No answer, although the request was repeated.
    Unreachable(String),
    /// The store has no room.
    Full,
    /// The store does not take files of this size.
    TooLarge,
    /// Anything else.
    Other(String),
}

impl Reason {
    /// Returns the reason of an error.
    pub(crate) fn new(error: &Error) -> Self {
        let words = || words(error);
        match error {
            Error::NotFound { .. } => Self::NotFound,
            Error::AlreadyExists { .. } => Self::Exists,
            Error::Precondition { .. } | Error::NotModified { .. } => Self::Changed,
            Error::NotSupported { .. } | Error::NotImplemented { .. } => Self::Unsupported,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Self::Denied(words()),
            other if is_transport_error(other) => Self::Unreachable(words()),
            other => match status(&innermost(other).to_string()) {
                Some(401 | 403) => Self::Denied(words()),
                Some(404) => Self::NotFound,
                Some(413) => Self::TooLarge,
                Some(507) => Self::Full,
                _ => Self::Other(incomplete_listing(other).unwrap_or_else(words)),
            },
        }
    }

    /// Returns the failure of an entry.
    pub(crate) fn failure(self) -> Failure {
        let (kind, detail) = match self {
            Self::NotFound => (FailureKind::NotFound, String::new()),
            Self::Exists => (FailureKind::Exists, String::new()),
            Self::Changed => (FailureKind::Changed, String::new()),
            Self::Ambiguous(name) => {
                let why = "is an object and a directory, which no directory can hold: move one of \
                           them with a tool of the store";
                let name = printable(name.as_bytes());
                (FailureKind::Io, format!("{name} {why}"))
            }
            Self::Full => (FailureKind::DiskFull, String::new()),
            Self::TooLarge => {
                let why = "the server does not take files of this size: raise its limit, or split \
                           the file";
                (FailureKind::Io, why.to_owned())
            }
            Self::Unsupported => (
                FailureKind::Io,
                "the server does not support this operation".to_owned(),
            ),
            Self::Denied(words) => (FailureKind::PermissionDenied, words),
            Self::Unreachable(words) | Self::Other(words) => (FailureKind::Io, words),
        };
        Failure::with_detail(kind, detail)
    }
}

/// Returns what to do about a listing that the library cannot read, because a property is missing.
fn incomplete_listing(error: &Error) -> Option<String> {
    let text = innermost(error).to_string();
    let property = text.strip_prefix("missing field `")?.strip_suffix('`')?;
    Some(format!(
        "the server's listings lack {property}, so trees cannot be copied: name single files by \
         https://"
    ))
}

/// Returns the status in the text of an error. The library tells it of some requests only, and its
/// type for others is private.
fn status(text: &str) -> Option<u16> {
    let rest = text.strip_prefix("Server returned non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn is_transport_error(error: &Error) -> bool {
    let mut source: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return matches!(
                error.kind(),
                HttpErrorKind::Connect
                    | HttpErrorKind::Request
                    | HttpErrorKind::Timeout
                    | HttpErrorKind::Interrupted
            );
        }
        source = error.source();
    }
    false
}

/// Returns the words of the innermost error in one line. S3 and others answer in XML, of which the
/// message and its code matter.
fn words(error: &Error) -> String {
    shorten(&innermost(error).to_string())
}

fn innermost(error: &Error) -> &dyn StdError {
    let mut innermost: &dyn StdError = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

/// Returns a store's answer in one short line.
pub(crate) fn shorten(answer: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>"))?;
        let (text, _) = rest.split_once("</")?;
        Some(text.trim().to_owned())
    };
    let text = match (element("Message"), element("Code")) {
        (Some(message), Some(code)) => format!("{message} ({code})"),
        (Some(message), None) => message,
        (None, Some(code)) => code,
        // A page for people says nothing more than its status.
        (None, None) => answer.split('<').next().unwrap_or_default().to_owned(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches([':', '.']);
    let short: String = line.chars().take(MAX_REASON_CHARS).collect();
    printable(short.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_one_line() {
        let xml = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n\
                   <Error><Code>InvalidAccessKeyId</Code>\n<Message>The key does not\n exist.\
                   </Message></Error>";
        assert_eq!(shorten(xml), "The key does not exist. (InvalidAccessKeyId)");
        let page = "Server returned non-2xx status code: 502 Bad Gateway: <html>\n<p>x</p>";
        assert_eq!(
            shorten(page),
            "Server returned non-2xx status code: 502 Bad Gateway"
        );
        assert_eq!(shorten(&"x".repeat(1000)).len(), MAX_REASON_CHARS);
    }

    #[test]
    fn reasons_are_told_apart() {
        let source = || "x".into();
        let path = || "k".to_owned();
        let reason = |error| Reason::new(&error);
        assert_eq!(
            reason(Error::NotFound {
                path: path(),
                source: source()
            }),
            Reason::NotFound
        );
        assert_eq!(
            reason(Error::Precondition {
                path: path(),
                source: source()
            }),
            Reason::Changed
        );
        let denied = reason(Error::PermissionDenied {
            path: path(),
            source: source(),
        });
        assert_eq!(denied, Reason::Denied("x".to_owned()));
        assert_eq!(denied.failure().kind, FailureKind::PermissionDenied);
        let listing = |status: &str| {
            let text = format!("Server returned non-2xx status code: {status}: <Code>X</Code>");
            reason(Error::Generic {
                store: "S3",
                source: text.into(),
            })
        };
        assert_eq!(listing("404 Not Found"), Reason::NotFound);
        assert_eq!(listing("403 Forbidden"), Reason::Denied("X".to_owned()));
        assert_eq!(listing("413 Payload Too Large"), Reason::TooLarge);
        assert_eq!(listing("507 Insufficient Storage"), Reason::Full);
        assert_eq!(listing("500 Broken"), Reason::Other("X".to_owned()));
        let other = reason(Error::Generic {
            store: "S3",
            source: source(),
        });
        assert_eq!(other, Reason::Other("x".to_owned()));
    }
}
