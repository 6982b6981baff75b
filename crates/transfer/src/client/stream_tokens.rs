//! Tokens that the streams of a copy bring.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::bearer::{BearerToken, TokenSource};
use crate::error::Error;

/// Remark on the refusal of a key by a server that was to receive a token.
const TOKEN_UNUSED: &str = "it did not use your token: it takes none (longhaul serve --issuers), \
                            or is of an earlier release";

/// Source of the tokens, and the one that was sent last.
#[derive(Clone, Default)]
pub(super) struct StreamTokens {
    source: Option<Arc<dyn TokenSource>>,
    sent: Arc<Mutex<Option<BearerToken>>>,
}

impl StreamTokens {
    pub(super) fn new(source: Option<Arc<dyn TokenSource>>) -> Self {
        Self {
            source,
            sent: Arc::default(),
        }
    }

    /// Returns the token for a stream that is about to be opened.
    pub(super) async fn for_stream(&self) -> Option<BearerToken> {
        let token = self.source.as_ref()?.token().await;
        (*self.sent.lock()).clone_from(&token);
        token
    }

    /// Returns true if there is another token than the one that was sent last.
    pub(super) async fn is_renewed(&self) -> bool {
        let Some(source) = &self.source else {
            return false;
        };
        let token = source.token().await;
        token.is_some() && token != *self.sent.lock()
    }

    /// Adds to the refusal of a key that the server did not look at the token.
    pub(super) fn explain(&self, message: String) -> String {
        match self.sent.lock().is_some() {
            true => format!("{message}; {TOKEN_UNUSED}"),
            false => message,
        }
    }

    /// Adds to an error about the key that the server did not look at the token.
    pub(super) fn explain_error(&self, error: Error) -> Error {
        match error {
            Error::Unauthorised(message) => Error::Unauthorised(self.explain(message)),
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bearer::TokenFuture;

    struct Tokens(Mutex<Vec<&'static str>>);

    impl TokenSource for Tokens {
        fn token(&self) -> TokenFuture<'_, Option<BearerToken>> {
            let text = self.0.lock().pop();
            Box::pin(async move { BearerToken::new(text?).ok() })
        }
    }

    #[tokio::test]
    async fn renewed_token_is_one_that_was_not_sent() {
        let source = Tokens(Mutex::new(vec!["second", "first", "first"]));
        let tokens = StreamTokens::new(Some(Arc::new(source)));
        let unused = |tokens: &StreamTokens| tokens.explain("no".into()) != "no";
        assert!(!unused(&tokens));
        assert_eq!(tokens.for_stream().await.unwrap().secret(), "first");
        assert!(unused(&tokens));
        assert!(!tokens.is_renewed().await);
        assert!(tokens.is_renewed().await);
        assert!(!tokens.is_renewed().await, "there is none any more");
        assert!(!StreamTokens::default().is_renewed().await);
    }
}
