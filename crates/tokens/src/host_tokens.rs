//! The token that one server receives from this user.

use std::path::PathBuf;

use longhaul_proto::Endpoint;
use longhaul_transfer::{BearerToken, TokenFuture, TokenSource};
use tokio::task::spawn_blocking;

use crate::binding::audience_names;
use crate::discovery::{Discovery, read_token};
use crate::error::LoginError;
use crate::login::{
    Freshness, Login, LoginSource, LoginStore, own_claims, refresh, revoke, unix_now,
};

/// Tokens of this user for one server, as they are now.
pub struct HostTokens {
    server: Endpoint,
    store: Option<LoginStore>,
    discovery: Discovery,
}

impl HostTokens {
    /// Looks for tokens for `server` in the environment, and among the logins in a directory.
    #[must_use]
    pub fn new(server: Endpoint, logins: Option<PathBuf>) -> Self {
        Self {
            server,
            store: logins.map(LoginStore::new),
            discovery: Discovery::from_environment(),
        }
    }

    /// Returns the token that the server is to receive, if there is one. A token in the environment
    /// precedes logins, and a later login precedes earlier ones. `failed` is called for each token
    /// that cannot be used.
    pub async fn find(&self, mut failed: impl FnMut(LoginError)) -> Option<BearerToken> {
        let (server, discovery) = (self.server.clone(), self.discovery.clone());
        match blocking(move || discovery.find()).await {
            Some(Ok(Some(token))) if names(&token, &server) => return Some(token),
            Some(Err(error)) => failed(error),
            _ => {}
        }
        let store = self.store.clone()?;
        let listed = {
            let store = store.clone();
            blocking(move || store.list()).await?
        };
        let logins = match listed {
            Ok(logins) => logins,
            Err(error) => {
                failed(error);
                return None;
            }
        };
        for login in logins.into_iter().filter(|login| self.is_for(login)) {
            match current_token(&store, login).await {
                Ok(token) => return Some(token),
                Err(error) => failed(error),
            }
        }
        None
    }

    /// Returns true if the server receives the token of this login.
    fn is_for(&self, login: &Login) -> bool {
        let is_named = login.hosts.iter().any(|host| host.is(&self.server));
        match &login.source {
            LoginSource::Issuer(issuer) if login.hosts.is_empty() => {
                names(&issuer.access_token, &self.server)
            }
            _ => is_named,
        }
    }
}

impl TokenSource for HostTokens {
    fn token(&self) -> TokenFuture<'_, Option<BearerToken>> {
        // The server says what is wrong with an old token.
        Box::pin(self.find(|error| tracing::debug!(%error, "a token cannot be used")))
    }
}

impl LoginStore {
    /// Tells the issuer that the tokens of a removed login are not used any more.
    ///
    /// # Errors
    /// The issuer cannot be asked, or refuses.
    pub async fn revoke(login: &Login) -> Result<(), LoginError> {
        match &login.source {
            LoginSource::Issuer(login) => revoke(login).await,
            LoginSource::File(_) => Ok(()),
        }
    }
}

/// Returns true if the audience of a token names this server.
fn names(token: &BearerToken, server: &Endpoint) -> bool {
    own_claims(token).is_some_and(|claims| {
        let mut audience = claims.aud.values().iter();
        audience.any(|audience| audience_names(audience, server))
    })
}

/// Returns the token of a login, and renews it if needed.
async fn current_token(store: &LoginStore, login: Login) -> Result<BearerToken, LoginError> {
    let issuer = match &login.source {
        LoginSource::File(file) => {
            let file = file.clone();
            let read = {
                let file = file.clone();
                blocking(move || read_token(&file, false)).await
            };
            return read.unwrap_or_else(|| Err(interrupted(file)));
        }
        LoginSource::Issuer(issuer) => issuer,
    };
    if issuer.freshness(unix_now()) == Freshness::Fresh {
        return Ok(issuer.access_token.clone());
    }
    // Other processes may renew it at the same time.
    let locked = {
        let (store, login) = (store.clone(), login.clone());
        blocking(move || {
            let lock = store.lock()?;
            let login = store.reload(&login)?.unwrap_or(login);
            Ok::<_, LoginError>((lock, login))
        })
        .await
    };
    let (_lock, login) = locked.unwrap_or_else(|| Err(interrupted(PathBuf::new())))?;
    let LoginSource::Issuer(issuer) = &login.source else {
        return Err(interrupted(PathBuf::new()));
    };
    let freshness = issuer.freshness(unix_now());
    if freshness == Freshness::Fresh {
        return Ok(issuer.access_token.clone());
    }
    match refresh(issuer).await {
        Ok(renewed) => {
            let token = renewed.access_token.clone();
            let login = Login {
                hosts: login.hosts,
                source: LoginSource::Issuer(Box::new(renewed)),
            };
            store.save(&login)?;
            Ok(token)
        }
        // It is still valid for a while.
        Err(_) if freshness == Freshness::Aging => Ok(issuer.access_token.clone()),
        Err(error) => Err(error),
    }
}

/// Runs blocking work. Returns `None` if the process is ending.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    spawn_blocking(work).await.ok()
}

fn interrupted(file: PathBuf) -> LoginError {
    LoginError::file(file, std::io::ErrorKind::Interrupted.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_keys::{TestKey, signed};

    fn token(audience: &str) -> String {
        signed(&TestKey::ed("one"), &json!({ "aud": audience, "exp": 5 }))
    }

    fn tokens(server: &str, environment: Option<String>, store: &LoginStore) -> HostTokens {
        HostTokens {
            server: server.parse().unwrap(),
            store: Some(store.clone()),
            discovery: Discovery {
                token: environment.map(Into::into),
                ..Discovery::default()
            },
        }
    }

    #[tokio::test]
    async fn token_goes_to_the_hosts_that_it_names_and_no_other() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        let found = async |server: &str, environment: Option<&String>| {
            let tokens = tokens(server, environment.cloned(), &store);
            let token = tokens.find(|error| panic!("{error}")).await;
            token.map(|token| token.secret().to_owned())
        };
        let named = token("https://dtn.example");
        let any = token("https://wlcg.cern.ch/jwt/v1/any");
        assert_eq!(
            found("dtn.example:7511", Some(&named)).await,
            Some(named.clone())
        );
        assert_eq!(found("other.example:7511", Some(&named)).await, None);
        assert_eq!(found("dtn.example:7511", Some(&any)).await, None);
        let file = tmp.path().join("token");
        std::fs::write(&file, "opaque\n").unwrap();
        let login = Login {
            hosts: vec!["dtn.example:7511".parse().unwrap()],
            source: LoginSource::File(file.clone()),
        };
        store.add(login).unwrap();
        assert_eq!(
            found("dtn.example:7511", None).await.as_deref(),
            Some("opaque")
        );
        assert_eq!(found("dtn.example:7512", None).await, None);
        assert_eq!(found("dtn.example:7511", Some(&named)).await, Some(named));
        // The file is read each time, as its program renews the token.
        std::fs::write(&file, "renewed\n").unwrap();
        assert_eq!(
            found("dtn.example:7511", None).await.as_deref(),
            Some("renewed")
        );
    }

    #[tokio::test]
    async fn unusable_token_is_reported_and_the_next_one_is_used() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        let missing = Login {
            hosts: vec!["dtn.example".parse().unwrap()],
            source: LoginSource::File(tmp.path().join("missing")),
        };
        store.add(missing).unwrap();
        let mut failed = Vec::new();
        let tokens = tokens("dtn.example:1", Some("not a token".into()), &store);
        let found = tokens.find(|error| failed.push(error.to_string())).await;
        assert_eq!(found, None);
        assert_eq!(failed.len(), 2, "{failed:?}");
    }
}
