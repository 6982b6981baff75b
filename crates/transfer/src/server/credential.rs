//! Tokens of clients: the rights that they add to the grants of a key, and when that ends.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use tokio::sync::watch;
use tokio::time::sleep;

use super::ending::EarlyEnd;
use super::{CopyRefusal, Server};
use crate::account::Account;
use crate::bearer::{BearerToken, TokenAuthority, TokenRefusal, TokenRights};
use crate::error::Error;
use crate::grants::Grants;
use crate::wire::RefusalKind;

/// Interval at which the clock is read while a token is waited for. The clock may be set, and the
/// machine may be suspended.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Bits of an address that identify a source of streams without grants.
const SOURCE_PREFIX_V4: u32 = 24;
const SOURCE_PREFIX_V6: u32 = 48;

/// Memory overhead of a name or path, in bytes.
const NAME_OVERHEAD_BYTES: usize = 200;

/// A verified token, and the rights that it states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credential {
    token: BearerToken,
    pub rights: TokenRights,
}

/// The credential of a copy. A later stream may bring one that is valid for longer.
pub(super) type CurrentCredential = watch::Sender<Option<Arc<Credential>>>;

impl Credential {
    /// Returns the memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let rights = &self.rights;
        let groups = rights
            .groups
            .iter()
            .map(|group| group.len() + NAME_OVERHEAD_BYTES);
        let paths = rights
            .rights
            .iter()
            .map(|(_, path)| path.as_bytes().len() + NAME_OVERHEAD_BYTES);
        (self.token.secret().len() + groups.sum::<usize>() + paths.sum::<usize>()) as u64
    }

    /// Returns true if both tokens have one owner.
    pub(super) fn has_owner_of(&self, other: &Self) -> bool {
        let owner = |credential: &Self| {
            let rights = &credential.rights;
            (rights.issuer.clone(), rights.subject.clone())
        };
        owner(self) == owner(other)
    }
}

/// Puts `next` in force for a copy, unless a stream has brought another credential than `past`.
fn replace(current: &CurrentCredential, past: &Arc<Credential>, next: Option<Arc<Credential>>) {
    current.send_if_modified(|present| {
        let is_past = present
            .as_ref()
            .is_some_and(|present| Arc::ptr_eq(present, past));
        if is_past {
            *present = next;
        }
        is_past
    });
}

/// Waits until a credential expires.
async fn expired(credential: &Credential) {
    loop {
        let left = credential.rights.remaining(SystemTime::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
    }
}

/// Puts `credential` in force for a copy, unless the present one is valid for longer.
pub(super) fn renew(current: &CurrentCredential, credential: Arc<Credential>) {
    current.send_if_modified(|present| {
        let is_later = present
            .as_ref()
            .is_none_or(|present| present.rights.expires < credential.rights.expires);
        if is_later {
            *present = Some(credential);
        }
        is_later
    });
}

impl Server {
    /// Accepts the tokens that `authority` accepts, from now on. The first authority stays.
    pub fn accept_tokens(&self, authority: Arc<dyn TokenAuthority>) {
        // A second call is an error of the program, and the first authority is as good.
        let _ = self.authority.set(authority);
    }

    /// Returns the grants in force, and for `key` the rights of the credential.
    pub(super) fn grants_with(
        &self,
        key: &PublicKey,
        credential: Option<&Credential>,
    ) -> Arc<Grants> {
        let grants = self.grants.current();
        match credential {
            Some(credential) => Arc::new(grants.with_rights(key, &credential.rights.rights)),
            None => grants,
        }
    }

    /// Verifies a token. Returns `None` if this server takes none (LH-COPY-71).
    pub(super) async fn verify_token(
        &self,
        token: &BearerToken,
    ) -> Result<Option<Arc<Credential>>, TokenRefusal> {
        let Some(authority) = self.authority.get() else {
            return Ok(None);
        };
        let rights = authority.verify(token).await?;
        Ok(Some(Arc::new(Credential {
            token: token.clone(),
            rights,
        })))
    }

    /// Waits until a credential is not valid any more (LH-COPY-72). Returns the reason.
    ///
    /// `is_permitted` returns true if another credential, or none, also permits what the present
    /// one is for. It is then put in force instead.
    pub(super) async fn credential_end(
        &self,
        current: &CurrentCredential,
        is_permitted: impl Fn(Option<&Credential>) -> bool,
    ) -> EarlyEnd {
        let Some(authority) = self.authority.get() else {
            return pending().await;
        };
        let mut changes = authority.changes();
        // The keys may have changed since the token was verified.
        changes.mark_changed();
        let mut brought = current.subscribe();
        loop {
            let credential = brought.borrow_and_update().clone();
            let Some(credential) = credential else {
                match brought.changed().await {
                    Ok(()) => continue,
                    Err(_) => return pending().await,
                }
            };
            let next = tokio::select! {
                () = expired(&credential) => None,
                renewed = brought.changed() => match renewed {
                    Ok(()) => continue,
                    Err(_) => return pending().await,
                },
                changed = changes.changed() => match changed {
                    Ok(()) => self.rechecked(&credential),
                    Err(_) => return pending().await,
                },
            };
            if next.as_ref() == Some(&*credential) {
                continue;
            }
            if !is_permitted(next.as_ref()) {
                return match credential.rights.remaining(SystemTime::now()).is_zero() {
                    true => EarlyEnd::TokenExpired,
                    false => EarlyEnd::TokenRevoked,
                };
            }
            replace(current, &credential, next.map(Arc::new));
        }
    }

    /// Judges the token of a credential again. Returns `None` if it gives its owner no rights any
    /// more.
    fn rechecked(&self, credential: &Credential) -> Option<Credential> {
        let rights = self.authority.get()?.recheck(&credential.token).ok()?;
        let rechecked = Credential {
            token: credential.token.clone(),
            rights,
        };
        rechecked.has_owner_of(credential).then_some(rechecked)
    }

    /// Returns the account of a stream before its token is known. Keys without a grant share that
    /// of their network, as anybody can make keys.
    pub(super) fn first_account(&self, key: PublicKey, from: Option<SocketAddr>) -> Arc<Account> {
        let is_granted = self.authority.get().is_none() || self.grants.current().has_key(&key);
        self.account(match is_granted {
            true => key,
            false => holder(&["network", &network_of(from)]),
        })
    }

    /// Returns the account of the credential's owner if `key` has no grant, and `first` otherwise.
    /// A person who has a token can have many keys.
    pub(super) fn account_with(
        &self,
        key: PublicKey,
        credential: Option<&Credential>,
        first: &Arc<Account>,
    ) -> Arc<Account> {
        match credential {
            Some(credential) if !self.grants.current().has_key(&key) => {
                let rights = &credential.rights;
                self.account(holder(&["owner", &rights.issuer, &rights.subject]))
            }
            _ => first.clone(),
        }
    }
}

/// Returns the key that stands for a holder of resources that has none.
fn holder(names: &[&str]) -> PublicKey {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul holder of resources without a key");
    for name in names {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    PublicKey::from_bytes(*hasher.finalize().as_bytes())
}

/// Returns the name of the network that a stream comes from.
fn network_of(from: Option<SocketAddr>) -> String {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    match from.map(|from| from.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) => {
            let mask = u32::MAX << (u32::BITS - SOURCE_PREFIX_V4);
            Ipv4Addr::from_bits(ip.to_bits() & mask).to_string()
        }
        Some(IpAddr::V6(ip)) => {
            let mask = u128::MAX << (u128::BITS - SOURCE_PREFIX_V6);
            Ipv6Addr::from_bits(ip.to_bits() & mask).to_string()
        }
        None => String::new(),
    }
}

/// Returns the error of a copy or session whose token is not valid any more.
pub(super) fn end_error(end: EarlyEnd, credential: Option<&Credential>) -> Error {
    let owner = credential.map_or_else(String::new, |credential| {
        format!(
            " of {}",
            printable(credential.rights.principal_name().as_bytes())
        )
    });
    let what = match end {
        EarlyEnd::TokenExpired => "has expired",
        _ => "is not accepted any more",
    };
    Error::Token(format!("the token{owner} {what}"))
}

impl From<TokenRefusal> for Error {
    fn from(refusal: TokenRefusal) -> Self {
        match refusal {
            TokenRefusal::Invalid(detail) => Self::Token(detail),
            TokenRefusal::Unavailable(detail) => Self::Limit(detail),
        }
    }
}

impl From<TokenRefusal> for CopyRefusal {
    fn from(refusal: TokenRefusal) -> Self {
        let (kind, detail) = match refusal {
            TokenRefusal::Invalid(detail) => (RefusalKind::Token, detail),
            TokenRefusal::Unavailable(detail) => (RefusalKind::Limit, detail),
        };
        Self { kind, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_without_grants_are_charged_to_their_network() {
        let network = |from: &str| network_of(Some(from.parse().unwrap()));
        assert_eq!(network("192.0.2.7:1"), network("192.0.2.200:9"));
        assert_eq!(network("192.0.2.7:1"), network("[::ffff:192.0.2.1]:1"));
        assert_ne!(network("192.0.2.7:1"), network("192.0.3.7:1"));
        assert_eq!(network("[2001:db8:1:2::3]:1"), network("[2001:db8:1::]:1"));
        assert_ne!(network("[2001:db8:1::]:1"), network("[2001:db8:2::]:1"));
    }

    #[test]
    fn copy_keeps_the_credential_that_is_valid_for_longest() {
        let credential = |seconds| {
            Arc::new(Credential {
                token: BearerToken::new("token").unwrap(),
                rights: TokenRights {
                    subject: "alice".into(),
                    issuer: "https://issuer.example".into(),
                    groups: Vec::new(),
                    expires: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
                    rights: Vec::new(),
                },
            })
        };
        let current = CurrentCredential::new(None);
        for (brought, kept) in [(10, 10), (20, 20), (15, 20), (30, 30)] {
            renew(&current, credential(brought));
            let expires = current.borrow().as_ref().unwrap().rights.expires;
            assert_eq!(expires, SystemTime::UNIX_EPOCH + Duration::from_secs(kept));
        }
    }

    #[test]
    fn holders_do_not_collide() {
        assert_ne!(holder(&["owner", "ab", "c"]), holder(&["owner", "a", "bc"]));
        assert_ne!(holder(&["owner", "a"]), holder(&["network", "a"]));
        assert_eq!(holder(&["owner", "a", "b"]), holder(&["owner", "a", "b"]));
    }
}
