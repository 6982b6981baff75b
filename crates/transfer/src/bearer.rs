//! Bearer tokens: rights that an issuer states, in addition to those that grants give to a key.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::grants::Access;
use crate::path::RelPath;

/// Maximum length of a token, in bytes (LH-COPY-71).
pub const MAX_TOKEN_BYTES: usize = 8 << 10;

/// A bearer token (RFC 6750), as its issuer has encoded it. Who has it has its rights, so it is
/// never logged or shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BearerToken(Arc<str>);

/// Error of a text that cannot be a bearer token. Check the file or variable that holds it: nothing
/// but the token may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a bearer token: it is empty, longer than {MAX_TOKEN_BYTES} bytes, or has a \
     character that tokens do not have"
)]
pub struct NotAToken;

impl BearerToken {
    /// Creates a token from its text, without the white space around it.
    ///
    /// # Errors
    /// [`NotAToken`], by the characters of `b64token` in RFC 6750, section 2.1.
    pub fn new(text: &str) -> Result<Self, NotAToken> {
        let text = text.trim();
        let is_of_tokens = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match !text.is_empty() && text.len() <= MAX_TOKEN_BYTES && text.bytes().all(is_of_tokens) {
            true => Ok(Self(text.into())),
            false => Err(NotAToken),
        }
    }

    /// Returns the text, which is secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BearerToken {
    type Error = NotAToken;

    fn try_from(text: String) -> Result<Self, NotAToken> {
        Self::new(&text)
    }
}

impl From<BearerToken> for String {
    fn from(token: BearerToken) -> Self {
        token.secret().to_owned()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// Rights that a verified token states, translated to the directory of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRights {
    /// Owner of the token, unique at its issuer.
    pub subject: String,
    /// URL of the issuer.
    pub issuer: String,
    /// Groups of the subject, as the issuer names them.
    pub groups: Vec<String>,
    /// Time from which on the token is not valid any more. Leeway for clocks is included.
    pub expires: SystemTime,
    /// Kinds of access, each to a directory beneath the server's root.
    pub rights: Vec<(Access, RelPath)>,
}

impl TokenRights {
    /// Returns the name of the token's owner: `SUBJECT@ISSUER`.
    #[must_use]
    pub fn principal_name(&self) -> String {
        format!("{}@{}", self.subject, self.issuer)
    }

    /// Returns the time for which the token is still valid.
    #[must_use]
    pub fn remaining(&self, now: SystemTime) -> Duration {
        self.expires.duration_since(now).unwrap_or_default()
    }
}

/// Reason why a token gives no rights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The token is not valid here: it has expired, is for another server, or its issuer is not
    /// trusted. The text says which. Get a new one with `longhaul login`.
    #[error("{0}")]
    Invalid(String),
    /// The token cannot be checked now, because its issuer does not answer. Try again later.
    #[error("{0}")]
    Unavailable(String),
}

/// Future of a [`TokenAuthority`] or [`TokenSource`].
pub type TokenFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Judge of tokens at a server.
pub trait TokenAuthority: Send + Sync + 'static {
    /// Verifies a token. It may ask the issuer for its keys, within bounds of time and number.
    fn verify<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> TokenFuture<'a, Result<TokenRights, TokenRefusal>>;

    /// Verifies a token again with the keys and settings that are known now. Does not block.
    ///
    /// # Errors
    /// The reason why the token is not valid any more.
    fn recheck(&self, token: &BearerToken) -> Result<TokenRights, TokenRefusal>;

    /// Returns a channel that reports each change of keys or settings.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Source of a client's token for one server.
pub trait TokenSource: Send + Sync + 'static {
    /// Returns the current token, or `None` if there is none any more.
    fn token(&self) -> TokenFuture<'_, Option<BearerToken>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_never_shown() {
        let token = BearerToken::new(" abc.DEF-1_~+/= \n").unwrap();
        assert_eq!(token.secret(), "abc.DEF-1_~+/=");
        assert_eq!(format!("{token:?}"), "BearerToken(..)");
        assert_eq!(serde_json::to_string(&token).unwrap(), "\"abc.DEF-1_~+/=\"");
    }

    #[test]
    fn text_that_cannot_be_a_token_is_refused() {
        let long = "a".repeat(MAX_TOKEN_BYTES);
        assert!(BearerToken::new(&long).is_ok());
        for text in [
            "",
            " \n",
            "a b",
            "a\nb",
            "a\"",
            "\u{e9}",
            &format!("{long}a"),
        ] {
            assert_eq!(BearerToken::new(text), Err(NotAToken), "{text:?}");
        }
        assert!(serde_json::from_str::<BearerToken>("\"a b\"").is_err());
    }

    #[test]
    fn expired_rights_have_no_time_left() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let rights = |expires| TokenRights {
            subject: "alice".into(),
            issuer: "https://issuer.example".into(),
            groups: Vec::new(),
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(expires),
            rights: Vec::new(),
        };
        assert_eq!(rights(1010).remaining(now), Duration::from_secs(10));
        assert_eq!(rights(1000).remaining(now), Duration::ZERO);
        assert_eq!(rights(5).remaining(now), Duration::ZERO);
        assert_eq!(rights(5).principal_name(), "alice@https://issuer.example");
    }
}
