//! Notices to a URL that a job has ended.
//!
//! A notice is written with the job's end, in one transaction, and removed once it was taken: it is
//! sent at least once, whatever ends the agent. Each time it has the same `Idempotency-Key`, by
//! which a receiver knows it again. It is signed with the agent's key (RFC 9421). No redirect is
//! followed.

mod post;

use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Scheme as UriScheme;
use longhaul_api::signatures::message::Scheme;
use longhaul_jobs::RetryPolicy;
use longhaul_proto::SigningKey;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::store::{Store, StoreError};

/// Most bytes of a URL.
const MAX_URL_BYTES: usize = 2048;
/// Notices that are sent at once, and to one receiver.
const MAX_CONCURRENT_NOTICES: usize = 16;
const AT_ONCE_OF_ONE: usize = 4;
/// How long one may take: to resolve, to connect, to send, and to be answered.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// After so long one that is being sent is taken to have been lost with its agent.
const LOST_AFTER: Duration = Duration::from_secs(90);
/// How often a store that others share is looked at for what they have left, and one that did not
/// answer is asked again.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// From five seconds to an hour, for about a day.
pub const POLICY: RetryPolicy = RetryPolicy {
    first_pause: 5_000,
    max_pause: 3_600_000,
    max_in_vain: 33,
};

/// Where a job's end is reported: an `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// With or without TLS.
    scheme: Scheme,
    /// The host, without the brackets of an address.
    host: String,
    port: u16,
    /// As `Host` has it.
    authority: String,
    /// Path and query.
    target: String,
}

impl Receiver {
    /// The one of a URL; none if it is no such URL. One with a user's name or a password is none:
    /// those would stand in the store and in answers.
    #[must_use]
    pub fn of(url: &str) -> Option<Self> {
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

    /// As it stands in the store.
    pub(crate) fn place(&self) -> String {
        format!("{} {}", self.host.to_ascii_lowercase(), self.port)
    }
}

/// One that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What tells it from all others.
    pub id: String,
    /// Of which job.
    pub job: i64,
    /// Where.
    pub url: String,
    /// The job as it was then, in JSON.
    pub body: String,
    /// Times that it was begun to be sent, with this one.
    pub attempts: i64,
}

/// What becomes of a notice that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is sent again, after so many milliseconds.
    Again(i64),
    /// That is enough.
    GiveUp,
}

/// What becomes of a notice that was not taken the last `attempts` times.
#[must_use]
pub fn next(attempts: i64, id: &str) -> Next {
    let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
    let seed = id
        .bytes()
        .fold(0u64, |seed, byte| seed.rotate_left(8) ^ u64::from(byte));
    POLICY
        .pause(attempts, seed)
        .map_or(Next::GiveUp, Next::Again)
}

/// Sends what is due until `stop` is true. `wake`: there may be more.
pub(crate) async fn run(
    store: Store,
    key: SigningKey,
    wake: &Notify,
    mut stop: watch::Receiver<bool>,
) {
    let mut under_way = JoinSet::new();
    let mut has_taken_own = false;
    loop {
        let result = async {
            if !has_taken_own && !store.is_shared() {
                // Nobody else sends what is in there.
                store.notices_lost().await?;
            }
            has_taken_own = true;
            step(&store, &key, &mut under_way).await
        };
        let until = match result.await {
            Ok(until) => until,
            Err(error) => {
                tracing::warn!(%error, "the store did not take what becomes of notices; asking again");
                Some(LOOK_INTERVAL)
            }
        };
        let shared = store.is_shared().then_some(LOOK_INTERVAL);
        let until = until.into_iter().chain(shared).min();
        tokio::select! {
            Some(_) = under_way.join_next() => {}
            () = wake.notified() => {}
            () = sleep(until.unwrap_or_default()), if until.is_some() => {}
            // What is under way is sent again by whoever comes next.
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Begins to send what is due, and says in how long the next one is. Some are sent together, and
/// the next when all of those are over: a receiver that does not answer has its share of each time,
/// and no more.
async fn step(
    store: &Store,
    key: &SigningKey,
    under_way: &mut JoinSet<()>,
) -> Result<Option<Duration>, StoreError> {
    if !under_way.is_empty() {
        return Ok(None);
    }
    let lost_after = i64::try_from(LOST_AFTER.as_millis()).unwrap_or(i64::MAX);
    for notice in store
        .take_notices(MAX_CONCURRENT_NOTICES, AT_ONCE_OF_ONE, lost_after)
        .await?
    {
        let (store, key) = (store.clone(), key.clone());
        under_way.spawn(async move { report_one(&store, &key, &notice).await });
    }
    if !under_way.is_empty() {
        return Ok(None);
    }
    let due = store.next_notice().await?;
    // One that is due, and was not taken, is under way elsewhere in this moment.
    Ok(due.map(|due| Duration::from_millis(due.max(1000).unsigned_abs())))
}

async fn report_one(store: &Store, key: &SigningKey, notice: &Notice) {
    let reported = post::post(key, notice, POST_TIMEOUT).await;
    let job = notice.job;
    let kept = match reported {
        Ok(()) => store.notice_taken(&notice.id).await,
        Err(error) => match next(notice.attempts, &notice.id) {
            Next::Again(pause) => {
                tracing::info!(job, %error, "the job's end was not taken; it is sent again");
                store.notice_later(notice, pause).await
            }
            Next::GiveUp => {
                tracing::warn!(job, %error, "the job's end was not taken, and is not sent any more");
                store.notice_taken(&notice.id).await
            }
        },
    };
    if let Err(error) = kept {
        tracing::warn!(job, %error, "the store did not take what became of a notice; it may be sent again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_a_url_of_the_web() {
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
            let receiver = Receiver::of(url).unwrap();
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
            assert_eq!(Receiver::of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_notice_is_sent_again_for_about_a_day() {
        let mut whole = 0;
        let mut attempts = 1;
        while let Next::Again(pause) = next(attempts, "id") {
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
