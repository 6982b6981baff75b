//! Logins of a user: tokens that this program gets from issuers by device codes, and keeps.

mod device;
mod store;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_transfer::BearerToken;
use oauth2::RefreshToken;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::binding::audience_host;
pub use crate::binding::{TokenHost, TokenHostError};
use crate::claims::OwnClaims;
pub use device::{LoginRequest, PendingLogin};
pub(crate) use device::{refresh, revoke};
pub use store::LoginStore;
#[cfg(test)]
pub(crate) use store::tests::login as login_for_tests;

/// A login: where its token is from, and which hosts receive it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Login {
    /// Hosts that the user named. If there are none, those that the audience of the token names.
    pub hosts: Vec<TokenHost>,
    /// Source of the token.
    pub source: LoginSource,
}

/// Source of a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginSource {
    /// An issuer at which the user has logged in.
    Issuer(Box<IssuerLogin>),
    /// A file that another program keeps up to date.
    File(PathBuf),
}

/// A login at an issuer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IssuerLogin {
    /// URL of the issuer.
    pub issuer: String,
    /// Name of this program at the issuer.
    pub client_id: String,
    /// Scopes that were asked for, separated by spaces.
    pub scope: String,
    /// Audience that was asked for.
    pub audience: Option<String>,
    /// Place that gives new tokens.
    pub(crate) token_endpoint: Url,
    /// The token.
    pub(crate) access_token: BearerToken,
    /// Time at which it was obtained, in seconds since 1970.
    pub(crate) obtained: u64,
    /// Time at which it expires, in seconds since 1970, if that is known.
    pub(crate) expires: Option<u64>,
    /// Secret by which a new token is obtained without the user.
    pub(crate) refresh_token: Option<RefreshToken>,
    /// Time of the last attempt to renew the token, in seconds since 1970, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) renewal_failed: Option<u64>,
}

impl PartialEq for IssuerLogin {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.access_token == other.access_token
    }
}

/// Shortest time between two attempts to renew a token, if the first one failed.
pub(crate) const RENEWAL_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// State of a token's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Nothing is to be done.
    Fresh,
    /// It is valid, and a new one should be obtained.
    Aging,
    /// It is not valid any more.
    Expired,
}

impl Login {
    /// Returns what distinguishes this login from others.
    pub(crate) fn identity(&self) -> Vec<String> {
        match &self.source {
            LoginSource::Issuer(login) => login.identity(),
            LoginSource::File(file) => vec![file.to_string_lossy().into_owned()],
        }
    }
}

impl IssuerLogin {
    fn identity(&self) -> Vec<String> {
        vec![
            self.issuer.clone(),
            self.client_id.clone(),
            self.scope.clone(),
            self.audience.clone().unwrap_or_default(),
        ]
    }

    /// Returns the time of expiry, in seconds since 1970, if it is known.
    #[must_use]
    pub const fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Returns true if new tokens can be obtained without the user.
    #[must_use]
    pub const fn is_renewable(&self) -> bool {
        self.refresh_token.is_some()
    }

    /// Returns the hosts that the audience of the token names.
    #[must_use]
    pub fn audience_hosts(&self) -> Vec<String> {
        let claims = own_claims(&self.access_token);
        let audience = claims.map_or_else(Vec::new, |claims| claims.aud.values().to_vec());
        let hosts = audience
            .iter()
            .filter_map(|audience| audience_host(audience));
        hosts.collect()
    }

    /// Returns true if a token that is still valid should not be renewed yet, as that has failed a
    /// moment ago.
    pub(crate) fn waits_for_issuer(&self, now: u64) -> bool {
        let failed = self.renewal_failed.filter(|failed| *failed <= now);
        failed.is_some_and(|failed| now - failed < RENEWAL_RETRY_INTERVAL.as_secs())
    }

    /// Returns how fresh the token is. One that can be renewed is when half of its time has passed.
    pub(crate) fn freshness(&self, now: u64) -> Freshness {
        let Some(expires) = self.expires else {
            return Freshness::Fresh;
        };
        let lifetime = expires.saturating_sub(self.obtained);
        if expires <= now {
            Freshness::Expired
        } else if self.is_renewable() && expires.saturating_sub(now) < lifetime / 2 {
            Freshness::Aging
        } else {
            Freshness::Fresh
        }
    }
}

/// Reads the claims of one's own token, which is not verified.
pub(crate) fn own_claims(token: &BearerToken) -> Option<OwnClaims> {
    let read = jsonwebtoken::dangerous::insecure_decode::<OwnClaims>(token.secret());
    Some(read.ok()?.claims)
}

/// Returns the time in seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.as_ref().map_or(0, Duration::as_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_renewed_when_half_of_its_time_has_passed() {
        let login = |expires, refresh_token: Option<&str>| IssuerLogin {
            expires,
            refresh_token: refresh_token.map(|text| RefreshToken::new(text.into())),
            ..store::tests::login("https://a.example/", "x")
        };
        let renewable = login(Some(1100), Some("r"));
        for (now, freshness) in [
            (1000, Freshness::Fresh),
            (1050, Freshness::Fresh),
            (1051, Freshness::Aging),
            (1099, Freshness::Aging),
            (1100, Freshness::Expired),
        ] {
            assert_eq!(renewable.freshness(now), freshness, "{now}");
        }
        assert_eq!(login(Some(1100), None).freshness(1099), Freshness::Fresh);
        assert_eq!(login(Some(1100), None).freshness(1100), Freshness::Expired);
        assert_eq!(login(None, Some("r")).freshness(5000), Freshness::Fresh);
    }

    #[test]
    fn failed_renewal_is_repeated_after_a_minute() {
        let login = IssuerLogin {
            renewal_failed: Some(1000),
            ..store::tests::login("https://a.example/", "x")
        };
        // The clock may be set back.
        for (now, waits) in [(999, false), (1000, true), (1059, true), (1060, false)] {
            assert_eq!(login.waits_for_issuer(now), waits, "{now}");
        }
    }
}
