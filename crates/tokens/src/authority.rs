//! The judge of tokens at a server: all issuers that it trusts.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Header;
use jsonwebtoken::dangerous::insecure_decode;
use longhaul_proto::text::printable_within;
use longhaul_transfer::{BearerToken, TokenAuthority, TokenFuture, TokenRefusal, TokenRights};
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::claims::UnverifiedIssuer;
use crate::error::{FetchError, IssuersError};
use crate::issuer::{Issuer, KnownKeys};
use crate::keys::{HeaderError, read_header};
use crate::policy::IssuerPolicies;

/// Shortest interval between two rounds of fetching.
const MIN_ROUND: Duration = Duration::from_secs(1);
/// Longest interval between two rounds.
const MAX_ROUND: Duration = Duration::from_secs(600);
/// Maximum length of a quoted issuer, in bytes.
const MAX_QUOTED_BYTES: usize = 120;

/// Verifies the tokens of clients with the keys of their issuers.
pub struct Authority {
    issuers: RwLock<Vec<Arc<Issuer>>>,
    changes: watch::Sender<u64>,
    /// Notified when there are other issuers.
    replaced: Notify,
}

impl Authority {
    /// Creates an authority. Fetches nothing: [`Self::fetch_keys`] does.
    ///
    /// # Errors
    /// [`IssuersError::Client`].
    pub fn new(policies: IssuerPolicies) -> Result<Arc<Self>, IssuersError> {
        let authority = Self {
            issuers: RwLock::default(),
            changes: watch::Sender::new(0),
            replaced: Notify::new(),
        };
        authority.replace(policies)?;
        Ok(Arc::new(authority))
    }

    /// Trusts these issuers from now on, and no others. Keys of issuers that stay are kept.
    ///
    /// # Errors
    /// [`IssuersError::Client`]; nothing is changed then.
    pub fn replace(&self, policies: IssuerPolicies) -> Result<(), IssuersError> {
        let present = self.issuers.read().clone();
        let (mut issuers, mut kept) = (Vec::new(), Vec::new());
        for policy in policies.into_vec() {
            match present
                .iter()
                .find(|issuer| issuer.policy().url == policy.url)
            {
                Some(issuer) => {
                    issuers.push(issuer.clone());
                    kept.push((issuer.clone(), policy));
                }
                None => issuers.push(Arc::new(Issuer::new(policy)?)),
            }
        }
        for (issuer, policy) in kept {
            issuer.set_policy(policy);
        }
        *self.issuers.write() = issuers;
        self.report_change();
        self.replaced.notify_one();
        Ok(())
    }

    /// Fetches the keys of all issuers, when they are due, until this is dropped.
    pub async fn fetch_keys(self: Arc<Self>) -> Infallible {
        loop {
            let issuers = self.issuers.read().clone();
            let now = Instant::now();
            let mut rounds = JoinSet::new();
            for issuer in issuers.iter().filter(|issuer| issuer.due(now) <= now) {
                let (authority, issuer) = (self.clone(), issuer.clone());
                rounds.spawn(async move {
                    let fetched = authority.fetch_keys_of(&issuer).await;
                    if let Err(error) = fetched {
                        // One line for each issuer and attempt, once a minute.
                        tracing::warn!(%error, "the keys of an issuer were not fetched");
                    }
                });
            }
            while rounds.join_next().await.is_some() {}
            let now = Instant::now();
            let next = issuers.iter().map(|issuer| issuer.due(now)).min();
            let next = next.unwrap_or(now + MAX_ROUND);
            let next = next.clamp(now + MIN_ROUND, now + MAX_ROUND);
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.replaced.notified() => {}
            }
            // Keys may have become too old.
            self.report_change();
        }
    }

    async fn fetch_keys_of(&self, issuer: &Issuer) -> Result<(), FetchError> {
        if issuer.fetch_keys().await? {
            self.report_change();
        }
        Ok(())
    }

    fn report_change(&self) {
        self.changes
            .send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Returns the issuer of a token, which has not been verified, and the token's header.
    fn issuer_of(&self, token: &BearerToken) -> Result<(Arc<Issuer>, Header), TokenRefusal> {
        let invalid = |why: String| TokenRefusal::Invalid(why);
        let header = read_header(token.secret()).map_err(|error| {
            invalid(match error {
                HeaderError::NoJwt => "it is no JSON Web Token".into(),
                HeaderError::Algorithm => "it is not signed with RS256, ES256 or EdDSA".into(),
                HeaderError::Critical => "it needs an extension that is not known here".into(),
            })
        })?;
        let claims = insecure_decode::<UnverifiedIssuer>(token.secret())
            .map_err(|_| invalid("it names no issuer".into()))?;
        let url = claims.claims.iss;
        let issuers = self.issuers.read();
        let issuer = issuers
            .iter()
            .find(|issuer| issuer.policy().url.as_str() == url);
        match issuer {
            Some(issuer) => Ok((issuer.clone(), header)),
            None => Err(invalid(format!(
                "this server does not trust the issuer {}",
                printable_within(url.as_bytes(), MAX_QUOTED_BYTES)
            ))),
        }
    }

    async fn verify_token(&self, token: &BearerToken) -> Result<TokenRights, TokenRefusal> {
        let (issuer, header) = self.issuer_of(token)?;
        let known = match issuer.verify(token.secret(), &header) {
            KnownKeys::Judged(judged) => return judged,
            known => known,
        };
        // The issuer may have new keys, or this server has just been started.
        let failed = match issuer.take_refetch() {
            true => self.fetch_keys_of(&issuer).await.err(),
            false => None,
        };
        match (issuer.verify(token.secret(), &header), known) {
            (KnownKeys::Judged(judged), _) => judged,
            (KnownKeys::LackKey, _) | (_, KnownKeys::LackKey) => Err(lacks_key()),
            _ => {
                let failed = failed.map_or_else(
                    || format!("the keys of {} are not known", issuer.policy().url),
                    |failed| failed.to_string(),
                );
                Err(TokenRefusal::Unavailable(format!(
                    "the token cannot be verified now: {failed}; try again later"
                )))
            }
        }
    }
}

impl TokenAuthority for Authority {
    fn verify<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> TokenFuture<'a, Result<TokenRights, TokenRefusal>> {
        Box::pin(self.verify_token(token))
    }

    fn recheck(&self, token: &BearerToken) -> Result<TokenRights, TokenRefusal> {
        let (issuer, header) = self.issuer_of(token)?;
        match issuer.verify(token.secret(), &header) {
            KnownKeys::Judged(judged) => judged,
            KnownKeys::LackKey => Err(lacks_key()),
            KnownKeys::AreUnknown => Err(TokenRefusal::Unavailable(format!(
                "the keys of {} are not known",
                issuer.policy().url
            ))),
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

fn lacks_key() -> TokenRefusal {
    TokenRefusal::Invalid("its issuer does not have the key that signed it".into())
}

#[cfg(test)]
mod tests;
