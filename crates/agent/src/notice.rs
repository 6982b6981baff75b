//! Notices of ended jobs to a URL.
//!
//! A notice is stored in the transaction of the job's end, and removed once the receiver has
//! accepted it. So it is sent at least once, even if the agent crashes. Each attempt has the same
//! `Idempotency-Key`, by which the receiver recognises repetitions. It is signed with the agent's
//! key (RFC 9421). Redirects are not followed.

mod post;

use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Scheme as UriScheme;
use longhaul_api::signatures::message::Scheme;
use longhaul_proto::SigningKey;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::jobs::RetryPolicy;
use crate::store::{JobStore, StoreError};

/// Maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 2048;
/// Maximum number of notices sent concurrently, in total and to one receiver.
const MAX_CONCURRENT_NOTICES: usize = 16;
const MAX_CONCURRENT_PER_RECEIVER: usize = 4;
/// Maximum duration of an attempt: resolution, connection, request and answer.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a notice in flight is considered lost with its agent.
const LOST_AFTER: Duration = Duration::from_secs(90);
/// Interval between checks of a shared store for lost notices, and before a store that did not
/// answer is asked again.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Pauses from five seconds to an hour, for about a day.
pub const POLICY: RetryPolicy = RetryPolicy {
    first_pause: 5_000,
    max_pause: 3_600_000,
    max_in_vain: 33,
};

/// Receiver of notices: an `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// Scheme of the URL.
    scheme: Scheme,
    /// Host, without the brackets of an address.
    host: String,
    port: u16,
    /// Host and port, as in `Host`.
    authority: String,
    /// Path and query.
    target: String,
}

impl Receiver {
    /// Parses a URL; returns `None` if it is invalid. A URL with a user name or a password is
    /// refused, as these would appear in the store and in answers.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok().filter(|_| url.len() <= MAX_URL_BYTES)?;
        let (scheme, default_port) = match uri.scheme() {
            Some(scheme) if *scheme == UriScheme::HTTPS => (Scheme::Https, 443),
            Some(scheme) if *scheme == UriScheme::HTTP => (Scheme::Http, 80),
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || authority.host().is_empty() || url.contains('#') {
            return None;
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => default_port,
            None => return None,
        };
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Some(Self {
            scheme,
            host: bare.unwrap_or(host).to_owned(),
            port,
            authority: authority.as_str().to_ascii_lowercase(),
            target: target.to_owned(),
        })
    }

    /// Returns the receiver's key in the store.
    pub(crate) fn authority_key(&self) -> String {
        format!("{} {}", self.host.to_ascii_lowercase(), self.port)
    }
}

/// Notice to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Unique ID.
    pub id: String,
    /// Number of the job.
    pub job: i64,
    /// URL of the receiver.
    pub url: String,
    /// The job at its end, in JSON.
    pub body: String,
    /// Number of attempts, including this one.
    pub attempts: i64,
}

/// Next step for a notice that was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeRetry {
    /// Retry after this many milliseconds.
    Again(i64),
    /// Give up.
    GiveUp,
}

/// Returns the next step for a notice that was not accepted in `attempts` attempts.
#[must_use]
pub fn next_attempt(attempts: i64, id: &str) -> NoticeRetry {
    let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
    let seed = id
        .bytes()
        .fold(0u64, |seed, byte| seed.rotate_left(8) ^ u64::from(byte));
    POLICY
        .pause(attempts, seed)
        .map_or(NoticeRetry::GiveUp, NoticeRetry::Again)
}

/// Sends notices that are due until `stop` is true. `wake` signals new ones.
pub(crate) async fn run(
    store: JobStore,
    key: SigningKey,
    wake: &Notify,
    mut stop: watch::Receiver<bool>,
) {
    let mut under_way = JoinSet::new();
    let mut has_taken_own = false;
    loop {
        let result = async {
            if !has_taken_own && !store.is_shared() {
                // No other agent sends notices of this store.
                store.requeue_notices().await?;
            }
            has_taken_own = true;
            step(&store, &key, &mut under_way).await
        };
        let until = match result.await {
            Ok(until) => until,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "cannot record in the store what became of notices; retrying"
                );
                Some(LOOK_INTERVAL)
            }
        };
        let shared = store.is_shared().then_some(LOOK_INTERVAL);
        let until = until.into_iter().chain(shared).min();
        tokio::select! {
            Some(_) = under_way.join_next() => {}
            () = wake.notified() => {}
            () = sleep(until.unwrap_or_default()), if until.is_some() => {}
            // Notices in flight are retried by the next sender.
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Starts to send notices that are due, and returns the time until the next one. The next batch
/// starts once the current one is finished, so a receiver that does not answer takes only its share
/// of each.
async fn step(
    store: &JobStore,
    key: &SigningKey,
    under_way: &mut JoinSet<()>,
) -> Result<Option<Duration>, StoreError> {
    if !under_way.is_empty() {
        return Ok(None);
    }
    let lost_after = i64::try_from(LOST_AFTER.as_millis()).unwrap_or(i64::MAX);
    for notice in store
        .take_notices(
            MAX_CONCURRENT_NOTICES,
            MAX_CONCURRENT_PER_RECEIVER,
            lost_after,
        )
        .await?
    {
        let (store, key) = (store.clone(), key.clone());
        under_way.spawn(async move { report_one(&store, &key, &notice).await });
    }
    if !under_way.is_empty() {
        return Ok(None);
    }
    let due = store.next_notice().await?;
    // A notice that is due but was not taken is being sent elsewhere.
    Ok(due.map(|due| Duration::from_millis(due.max(1000).unsigned_abs())))
}

async fn report_one(store: &JobStore, key: &SigningKey, notice: &Notice) {
    let reported = post::post(key, notice, POST_TIMEOUT).await;
    let job = notice.job;
    let kept = match reported {
        Ok(()) => store.remove_notice(&notice.id).await,
        Err(error) => match next_attempt(notice.attempts, &notice.id) {
            NoticeRetry::Again(pause) => {
                tracing::info!(
                    job,
                    %error,
                    "the receiver did not accept the notice of the job's end; retrying"
                );
                store.retry_notice(notice, pause).await
            }
            NoticeRetry::GiveUp => {
                tracing::warn!(
                    job,
                    %error,
                    "the receiver did not accept the notice of the job's end; giving up"
                );
                store.remove_notice(&notice.id).await
            }
        },
    };
    if let Err(error) = kept {
        tracing::warn!(
            job,
            %error,
            "cannot record in the store what became of a notice; it may be sent twice"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_http_or_https_urls() {
        for (url, host, port, target) in [
            (
                "https://example.org/hook?a=1",
                "example.org",
                443,
                "/hook?a=1",
            ),
            ("http://[::1]:8080", "::1", 8080, "/"),
            ("HTTPS://Example.org:443/", "Example.org", 443, "/"),
        ] {
            let receiver = Receiver::parse(url).unwrap();
            assert_eq!(
                (&*receiver.host, receiver.port, &*receiver.target),
                (host, port, target)
            );
        }
        let long = format!("https://a/{}", "x".repeat(3000));
        for bad in [
            "",
            "/hook",
            "example.org/hook",
            "ftp://a/",
            "file:///etc/passwd",
            "https://",
            "https://u:p@a/",
            "https://a/#b",
            "https://a:99999/",
            "https://a:/",
            "https://a b/",
            &long,
        ] {
            assert_eq!(Receiver::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn notice_is_retried_for_about_a_day() {
        let mut whole = 0;
        let mut attempts = 1;
        while let NoticeRetry::Again(pause) = next_attempt(attempts, "id") {
            assert!((3_750..=3_600_000).contains(&pause));
            whole += pause;
            attempts += 1;
        }
        let hours = whole / 3_600_000;
        assert!(
            (18..=26).contains(&hours),
            "{hours} hours, {attempts} attempts"
        );
    }
}
