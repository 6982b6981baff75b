//! One issuer at a server: fetches its keys, and verifies tokens with them.

use std::sync::Arc;
use std::time::SystemTime;

use jsonwebtoken::Header;
use longhaul_transfer::{TokenRefusal, TokenRights};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::cache::KeyCache;
use crate::error::FetchError;
use crate::https::IssuerClient;
use crate::judge::judge;
use crate::keys::{KeySet, Verification};
use crate::policy::IssuerPolicy;

/// An issuer whose tokens are accepted.
pub(crate) struct Issuer {
    policy: RwLock<Arc<IssuerPolicy>>,
    client: IssuerClient,
    cache: Mutex<KeyCache>,
    /// Held while keys are fetched, so that one answer serves all who wait.
    fetching: tokio::sync::Mutex<()>,
}

/// Outcome of the verification with the keys that are known.
pub(crate) enum KnownKeys {
    /// The token was judged.
    Judged(Result<TokenRights, TokenRefusal>),
    /// Its key is not among them.
    LackKey,
    /// None are known, or they are too old.
    AreUnknown,
}

impl Issuer {
    pub(crate) fn new(policy: IssuerPolicy) -> Result<Self, FetchError> {
        Ok(Self {
            client: IssuerClient::new(&policy.url)?,
            policy: RwLock::new(Arc::new(policy)),
            cache: Mutex::new(KeyCache::new(Instant::now())),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the policy in force.
    pub(crate) fn policy(&self) -> Arc<IssuerPolicy> {
        self.policy.read().clone()
    }

    /// Puts another policy in force. The keys stay.
    pub(crate) fn set_policy(&self, policy: IssuerPolicy) {
        *self.policy.write() = Arc::new(policy);
    }

    /// Verifies a token with the keys that are known now.
    pub(crate) fn verify(&self, token: &str, header: &Header) -> KnownKeys {
        // Cloned, as a signature takes longer than a lock should be held.
        let keys = self.cache.lock().keys(Instant::now()).cloned();
        let Some(keys) = keys else {
            return KnownKeys::AreUnknown;
        };
        let invalid = |why: &str| KnownKeys::Judged(Err(TokenRefusal::Invalid(why.to_owned())));
        match keys.verify(token, header) {
            Verification::Valid(claims) => {
                KnownKeys::Judged(judge(&claims, &self.policy(), SystemTime::now()))
            }
            Verification::UnknownKey => KnownKeys::LackKey,
            Verification::Forged => invalid("its signature is not that of its issuer"),
            Verification::Malformed => invalid("it lacks the claims of an access token"),
        }
    }

    /// Returns true if keys may be fetched because of a token.
    pub(crate) fn take_refetch(&self) -> bool {
        self.cache.lock().take_refetch(Instant::now())
    }

    /// Returns the time at which something is to be done in the background.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        let cache = self.cache.lock();
        // Copies end when keys become too old.
        match cache.stale_at().filter(|stale| *stale > now) {
            Some(stale) => cache.due(now).min(stale),
            None => cache.due(now),
        }
    }

    /// Fetches the keys. Returns true if tokens may be judged otherwise from now on. Who waits for
    /// another fetch gets its result.
    pub(crate) async fn fetch_keys(&self) -> Result<bool, FetchError> {
        let asked = Instant::now();
        let _fetching = self.fetching.lock().await;
        if self.cache.lock().last_attempt() > Some(asked) {
            return Ok(false);
        }
        let fetched = self.published_keys().await;
        let (keys, error) = match fetched {
            Ok(keys) => (Some(keys), None),
            Err(error) => (None, Some(error)),
        };
        let is_change = self.cache.lock().record(keys, Instant::now());
        error.map_or(Ok(is_change), Err)
    }

    async fn published_keys(&self) -> Result<KeySet, FetchError> {
        let metadata = self.client.metadata().await?;
        let wrong = |detail: &str| FetchError::Answer {
            url: self.policy().url.to_string(),
            detail: detail.to_owned(),
        };
        let url = metadata
            .jwks_uri
            .ok_or_else(|| wrong("it names no place of its keys"))?;
        let keys = KeySet::parse(&self.client.fetch(&url).await?);
        let keys = keys.ok_or_else(|| wrong("its keys are not a JSON Web Key Set"))?;
        match keys.len() {
            0 => Err(wrong("it publishes no key for RS256, ES256 or EdDSA")),
            _ => Ok(keys),
        }
    }
}
