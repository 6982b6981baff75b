//! The token that one server receives from this user.

use std::collections::HashMap;
use std::path::PathBuf;

use longhaul_proto::Endpoint;
use longhaul_proto::text::printable;
use longhaul_transfer::{BearerToken, TokenFuture, TokenSource};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::binding::audience_names;
use crate::discovery::{Discovery, read_token};
use crate::error::LoginError;
use crate::login::{
    Freshness, IssuerLogin, Login, LoginSource, LoginStore, RENEWAL_RETRY_INTERVAL, own_claims,
    refresh, revoke, unix_now,
};

/// Tokens of this user for one server, as they are now.
pub struct HostTokens {
    server: Endpoint,
    store: Option<LoginStore>,
    discovery: Discovery,
    /// Renewals of expired tokens that have failed, by login. Locked while a token is renewed.
    failed: Mutex<HashMap<Vec<String>, (Instant, String)>>,
}

/// Who else may be waited for before a token is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Everybody who changes the logins.
    ForOthers,
    /// Nobody, as the token is still valid.
    ForNobody,
}

impl HostTokens {
    /// Looks for tokens for `server` in the environment, and among the logins in a directory.
    #[must_use]
    pub fn new(server: Endpoint, logins: Option<PathBuf>) -> Self {
        Self {
            server,
            store: logins.map(LoginStore::new),
            discovery: Discovery::from_environment(),
            failed: Mutex::default(),
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
            match self.current_token(&store, login).await {
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

    /// Returns the token of a login, and renews it if needed.
    async fn current_token(
        &self,
        store: &LoginStore,
        login: Login,
    ) -> Result<BearerToken, LoginError> {
        let issuer = match &login.source {
            LoginSource::File(file) => return token_of_file(file.clone()).await,
            LoginSource::Issuer(issuer) => issuer,
        };
        let token = issuer.access_token.clone();
        let now = unix_now();
        match issuer.freshness(now) {
            Freshness::Fresh => Ok(token),
            // It is valid, so one stream renews it, and others do not wait.
            Freshness::Aging => {
                if issuer.waits_for_issuer(now) {
                    return Ok(token);
                }
                let Ok(_renewing) = self.failed.try_lock() else {
                    return Ok(token);
                };
                match renew(store.clone(), login, Waiting::ForNobody).await {
                    Err(ended @ LoginError::Ended { .. }) => Err(ended),
                    renewed => Ok(renewed.unwrap_or(token)),
                }
            }
            Freshness::Expired => {
                let mut failed = self.failed.lock().await;
                let (name, issuer) = (login.identity(), issuer.issuer.clone());
                if let Some((at, detail)) = failed.get(&name)
                    && at.elapsed() < RENEWAL_RETRY_INTERVAL
                {
                    let (issuer, detail) = (printable(issuer.as_bytes()), detail.clone());
                    return Err(LoginError::NotRenewed { issuer, detail });
                }
                let renewed = renew(store.clone(), login, Waiting::ForOthers).await;
                match &renewed {
                    Ok(_) => failed.remove(&name),
                    Err(error) => failed.insert(name, (Instant::now(), error.to_string())),
                };
                renewed
            }
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

async fn token_of_file(file: PathBuf) -> Result<BearerToken, LoginError> {
    let read = {
        let file = file.clone();
        blocking(move || read_token(&file, false)).await
    };
    read.unwrap_or_else(|| Err(interrupted(file)))
}

/// Renews the token of a login, also if the caller is cancelled: many issuers accept a refresh
/// token once.
async fn renew(
    store: LoginStore,
    login: Login,
    waiting: Waiting,
) -> Result<BearerToken, LoginError> {
    let renewed = tokio::spawn(renew_stored(store, login, waiting)).await;
    renewed.unwrap_or_else(|_| Err(interrupted(PathBuf::new())))
}

async fn renew_stored(
    store: LoginStore,
    login: Login,
    waiting: Waiting,
) -> Result<BearerToken, LoginError> {
    let interrupted = || interrupted(PathBuf::new());
    let locked = {
        let store = store.clone();
        blocking(move || {
            let lock = match waiting {
                Waiting::ForOthers => store.lock()?,
                Waiting::ForNobody => store.try_lock()?,
            };
            Ok::<_, LoginError>((lock, store.reload(&login)?, login))
        })
        .await
    };
    let (_lock, stored, login) = locked.unwrap_or_else(|| Err(interrupted()))?;
    let Some(stored) = stored else {
        return Err(LoginError::Ended {
            issuer: login.identity().remove(0),
            detail: "longhaul logout has removed it".into(),
        });
    };
    let hosts = stored.hosts;
    let LoginSource::Issuer(issuer) = stored.source else {
        return Err(interrupted());
    };
    // Another stream or process may have renewed it, or have tried to.
    let now = unix_now();
    let freshness = issuer.freshness(now);
    let is_enough = match freshness {
        Freshness::Fresh => true,
        Freshness::Aging => issuer.waits_for_issuer(now),
        Freshness::Expired => false,
    };
    if is_enough {
        return Ok(issuer.access_token);
    }
    let (result, issuer) = match refresh(&issuer).await {
        Ok(renewed) => (Ok(renewed.access_token.clone()), renewed),
        Err(error) => {
            let result = match freshness {
                Freshness::Expired => Err(error),
                _ => Ok(issuer.access_token.clone()),
            };
            let failed = IssuerLogin {
                renewal_failed: Some(unix_now()),
                ..*issuer
            };
            (result, failed)
        }
    };
    let login = Login {
        hosts,
        source: LoginSource::Issuer(Box::new(issuer)),
    };
    blocking(move || store.replace(&login))
        .await
        .unwrap_or_else(|| Err(interrupted()))?;
    result
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
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use oauth2::RefreshToken;
    use serde_json::json;
    use tokio::task::JoinSet;

    use super::*;
    use crate::login::login_for_tests;
    use crate::test_keys::{TestKey, signed};

    /// The place of an issuer that gives new tokens.
    struct TokenEndpoint {
        url: String,
        requests: Arc<AtomicUsize>,
    }

    impl TokenEndpoint {
        /// Answers each request with this status and text.
        fn new(status: &'static str, body: &'static str) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let requests = Arc::<AtomicUsize>::default();
            let counted = requests.clone();
            std::thread::spawn(move || {
                for mut stream in listener.incoming().map_while(Result::ok) {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut length = 0;
                    for line in reader.by_ref().lines().map_while(Result::ok) {
                        if line.is_empty() {
                            break;
                        }
                        let line = line.to_ascii_lowercase();
                        if let Some(bytes) = line.strip_prefix("content-length: ") {
                            length = bytes.parse().unwrap();
                        }
                    }
                    let _ = reader.read_exact(&mut vec![0; length]);
                    let _ = write!(
                        stream,
                        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\
                         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    );
                }
            });
            Self { url, requests }
        }

        /// Returns a login that was made and expires so many seconds before or after now.
        fn login(&self, made: u64, expires: i64) -> Login {
            let login = IssuerLogin {
                token_endpoint: self.url.parse().unwrap(),
                obtained: unix_now() - made,
                expires: unix_now().checked_add_signed(expires),
                refresh_token: Some(RefreshToken::new("secret".into())),
                ..login_for_tests(&self.url, "old")
            };
            Login {
                hosts: vec!["dtn.example".parse().unwrap()],
                source: LoginSource::Issuer(Box::new(login)),
            }
        }

        fn requests(&self) -> usize {
            self.requests.load(Ordering::Relaxed)
        }
    }

    const NEW_TOKEN: &str =
        r#"{"access_token": "new", "token_type": "Bearer", "expires_in": 3600}"#;

    /// Returns the tokens that many streams find at the same time.
    async fn found_by_streams(store: &LoginStore) -> Vec<Option<String>> {
        let tokens = Arc::new(tokens("dtn.example:7511", None, store));
        let mut streams = JoinSet::new();
        for _ in 0..16 {
            let tokens = tokens.clone();
            streams.spawn(async move {
                let token = tokens.token().await;
                token.map(|token| token.secret().to_owned())
            });
        }
        streams.join_all().await
    }

    #[tokio::test]
    async fn expired_token_is_renewed_once_for_all_streams() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        let issuer = TokenEndpoint::new("200 OK", NEW_TOKEN);
        store.add(issuer.login(3600, -1)).unwrap();
        let found = found_by_streams(&store).await;
        assert!(found.iter().all(|token| token.as_deref() == Some("new")));
        assert_eq!(issuer.requests(), 1);
    }

    #[tokio::test]
    async fn valid_token_is_used_while_its_issuer_fails() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        let issuer = TokenEndpoint::new("503 Service Unavailable", "");
        store.add(issuer.login(36_000, 3600)).unwrap();
        // Twice, as by two commands.
        for _ in 0..2 {
            let found = found_by_streams(&store).await;
            assert!(found.iter().all(|token| token.as_deref() == Some("old")));
        }
        assert_eq!(issuer.requests(), 1, "and again after a minute");
    }

    #[tokio::test]
    async fn failed_renewal_of_an_expired_token_is_not_repeated_at_once() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        let issuer = TokenEndpoint::new("503 Service Unavailable", "");
        store.add(issuer.login(3600, -1)).unwrap();
        let found = found_by_streams(&store).await;
        assert!(found.iter().all(Option::is_none));
        assert_eq!(issuer.requests(), 1);
    }

    #[tokio::test]
    async fn renewal_does_not_undo_a_logout() {
        let tmp = tempfile::tempdir().unwrap();
        let store = LoginStore::new(tmp.path().join("logins"));
        let issuer = TokenEndpoint::new("200 OK", NEW_TOKEN);
        let login = issuer.login(3600, -1);
        store.add(login.clone()).unwrap();
        store.remove(|_| true).unwrap();
        let renewed = renew(store.clone(), login, Waiting::ForOthers).await;
        assert!(
            matches!(renewed, Err(LoginError::Ended { .. })),
            "{renewed:?}"
        );
        assert!(store.list().unwrap().is_empty());
        assert_eq!(issuer.requests(), 0);
    }

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
            failed: Mutex::default(),
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
