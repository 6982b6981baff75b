//! An authority and issuers on loopback, which rotate their keys and fail.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_transfer::Access;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::test_keys::{TestKey, signed};

/// An issuer that answers one request after the other.
struct TestIssuer {
    url: String,
    state: Arc<IssuerState>,
}

#[derive(Default)]
struct IssuerState {
    keys: Mutex<Vec<Value>>,
    metadata: Mutex<Value>,
    requests: AtomicUsize,
    is_down: AtomicBool,
}

impl TestIssuer {
    fn new(keys: &[&TestKey]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(IssuerState::default());
        *state.metadata.lock() = json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") });
        let issuer = Self { url, state };
        issuer.publish(keys);
        let state = issuer.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                state.requests.fetch_add(1, Ordering::Relaxed);
                if !state.is_down.load(Ordering::Relaxed) {
                    state.answer(stream);
                }
            }
        });
        issuer
    }

    fn publish(&self, keys: &[&TestKey]) {
        *self.state.keys.lock() = keys.iter().map(|key| key.jwk.clone()).collect();
    }

    fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    fn token(&self, key: &TestKey) -> BearerToken {
        self.token_with(key, json!({}))
    }

    fn token_with(&self, key: &TestKey, more: Value) -> BearerToken {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let mut claims = json!({
            "iss": self.url, "sub": "alice", "aud": "dtn", "exp": now + 3600,
            "scope": "storage.read:/",
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        BearerToken::new(&signed(key, &claims)).unwrap()
    }

    fn policies(&self, more: &str) -> IssuerPolicies {
        let text = format!(
            "[[issuer]]\nurl = \"{}\"\naudience = \"dtn\"\n{more}",
            self.url
        );
        IssuerPolicies::parse(&text, "issuers.toml").unwrap()
    }

    fn authority(&self) -> Arc<Authority> {
        Authority::new(self.policies("")).unwrap()
    }
}

impl IssuerState {
    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        // Whoever closes without a request is ignored.
        let Some(Ok(first)) = lines.next() else {
            return;
        };
        for line in lines.map_while(Result::ok) {
            if line.is_empty() {
                break;
            }
        }
        let body = match first.split(' ').nth(1).unwrap_or_default() {
            "/.well-known/openid-configuration" => self.metadata.lock().to_string(),
            "/jwks" => json!({ "keys": *self.keys.lock() }).to_string(),
            _ => String::new(),
        };
        let status = match body.is_empty() {
            true => "404 Not Found",
            false => "200 OK",
        };
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
}

fn refusal(result: Result<TokenRights, TokenRefusal>) -> String {
    match result {
        Err(TokenRefusal::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn token_of_a_trusted_issuer_is_verified_and_keys_are_fetched_once() {
    let key = TestKey::ec("one");
    let issuer = TestIssuer::new(&[&key]);
    let authority = issuer.authority();
    assert!(matches!(
        authority.recheck(&issuer.token(&key)),
        Err(TokenRefusal::Unavailable(_))
    ));
    let rights = authority.verify(&issuer.token(&key)).await.unwrap();
    assert_eq!(rights.principal_name(), format!("alice@{}", issuer.url));
    assert_eq!(rights.rights[0].0, Access::Read);
    authority.verify(&issuer.token(&key)).await.unwrap();
    assert_eq!(issuer.requests(), 2, "the metadata and the keys");
    assert!(authority.recheck(&issuer.token(&key)).is_ok());
}

#[tokio::test]
async fn rotated_key_is_fetched_and_the_old_one_is_not_accepted_any_more() {
    let (old, new) = (TestKey::ec("one"), TestKey::ed("two"));
    let issuer = TestIssuer::new(&[&old]);
    let authority = issuer.authority();
    let of_old = issuer.token(&old);
    authority.verify(&of_old).await.unwrap();
    let changes = authority.changes();
    issuer.publish(&[&new]);
    authority.verify(&issuer.token(&new)).await.unwrap();
    assert!(
        changes.has_changed().unwrap(),
        "running copies are checked again"
    );
    assert!(refusal(authority.recheck(&of_old)).contains("does not have the key"));
}

#[tokio::test]
async fn unknown_keys_do_not_flood_the_issuer() {
    let key = TestKey::ec("one");
    let issuer = TestIssuer::new(&[&key]);
    let authority = issuer.authority();
    for number in 0..20 {
        let stranger = TestKey::ed(&format!("unknown {number}"));
        let refused = authority.verify(&issuer.token(&stranger)).await;
        assert!(refusal(refused).contains("does not have the key"));
    }
    assert!(issuer.requests() <= 8, "{} requests", issuer.requests());
}

#[tokio::test]
async fn keys_outlive_an_outage_of_their_issuer() {
    let key = TestKey::ec("one");
    let issuer = TestIssuer::new(&[&key]);
    let authority = issuer.authority();
    authority.verify(&issuer.token(&key)).await.unwrap();
    issuer.state.is_down.store(true, Ordering::Relaxed);
    // A key that is not known makes it ask, in vain.
    let unknown = issuer.token(&TestKey::ed("two"));
    assert!(authority.verify(&unknown).await.is_err());
    authority.verify(&issuer.token(&key)).await.unwrap();
    // Without any key, the client is told to come back.
    let other = issuer.authority();
    let refused = other.verify(&issuer.token(&key)).await;
    assert!(matches!(refused, Err(TokenRefusal::Unavailable(why)) if why.contains("try again")));
    issuer.state.is_down.store(false, Ordering::Relaxed);
    other.verify(&issuer.token(&key)).await.unwrap();
}

#[tokio::test]
async fn issuer_must_name_itself_and_publish_keys() {
    let key = TestKey::ec("one");
    for (name, value) in [
        ("issuer", json!("https://other.example")),
        ("jwks_uri", Value::Null),
        ("jwks_uri", json!("http://192.0.2.1/jwks")),
        ("jwks_uri", json!("http://127.0.0.1:1/")),
    ] {
        let issuer = TestIssuer::new(&[&key]);
        issuer.state.metadata.lock()[name] = value.clone();
        let refused = issuer.authority().verify(&issuer.token(&key)).await;
        assert!(
            matches!(refused, Err(TokenRefusal::Unavailable(_))),
            "{name} {value}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn issuer_that_is_not_trusted_is_never_asked() {
    let key = TestKey::ec("one");
    let (ours, other) = (TestIssuer::new(&[&key]), TestIssuer::new(&[&key]));
    let authority = ours.authority();
    let refused = refusal(authority.verify(&other.token(&key)).await);
    assert!(refused.contains(&format!("does not trust the issuer {}", other.url)));
    assert_eq!((ours.requests(), other.requests()), (0, 0));
    let opaque = BearerToken::new("opaque").unwrap();
    assert!(refusal(authority.verify(&opaque).await).contains("no JSON Web Token"));
}

#[tokio::test]
async fn other_settings_end_tokens_and_keep_keys() {
    let key = TestKey::ec("one");
    let issuer = TestIssuer::new(&[&key]);
    let authority = issuer.authority();
    let token = issuer.token(&key);
    authority.verify(&token).await.unwrap();
    let before = issuer.requests();
    let changes = authority.changes();
    authority
        .replace(issuer.policies("deny_subjects = [\"alice\"]"))
        .unwrap();
    assert!(changes.has_changed().unwrap());
    assert!(refusal(authority.recheck(&token)).contains("refuses its subject"));
    authority.replace(issuer.policies("")).unwrap();
    assert!(authority.recheck(&token).is_ok());
    authority.replace(IssuerPolicies::default()).unwrap();
    assert!(refusal(authority.recheck(&token)).contains("does not trust"));
    assert_eq!(issuer.requests(), before);
}

#[tokio::test]
async fn keys_are_fetched_in_the_background() {
    let key = TestKey::ec("one");
    let issuer = TestIssuer::new(&[&key]);
    let authority = issuer.authority();
    let mut changes = authority.changes();
    let fetching = tokio::spawn(authority.clone().fetch_keys());
    while authority.recheck(&issuer.token(&key)).is_err() {
        changes.changed().await.unwrap();
    }
    fetching.abort();
}
