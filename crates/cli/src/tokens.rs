//! Tokens of this user at the command line: which server receives one, `longhaul login` and
//! `longhaul logout`.

mod login;
mod logout;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use jiff::{Timestamp, tz::TimeZone};
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_session::Endpoint;
use longhaul_tokens::HostTokens;
use longhaul_transfer::TokenSource;

pub use self::login::LoginCommand;
pub use self::logout::LogoutCommand;

/// Directory of logins in the directory of keys.
const LOGINS: &str = "logins";

/// Returns the source of the token that `server` is to receive, or `None` if it is to receive none.
/// A login that cannot be used is shown as a notice.
pub async fn source_for(server: &Endpoint) -> Option<Arc<dyn TokenSource>> {
    let tokens = HostTokens::new(server.clone(), logins().ok());
    let mut failed = Vec::new();
    if tokens.find(|error| failed.push(error)).await.is_some() {
        return Some(Arc::new(tokens));
    }
    for error in failed {
        message!(
            "longhaul: goes on without a token: {}",
            printable(error.to_string().as_bytes())
        );
    }
    None
}

/// Returns the directory of logins. It may be missing.
fn logins() -> Result<PathBuf> {
    Ok(longhaul_config::home::config_dir()?.join(LOGINS))
}

/// Formats a time in seconds since 1970, in the time zone of the user.
fn local_time(seconds: u64) -> String {
    match Timestamp::from_second(i64::try_from(seconds).unwrap_or(i64::MAX)) {
        Ok(at) => {
            let at = at.to_zoned(TimeZone::system());
            at.strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
        }
        Err(_) => "a distant time".to_owned(),
    }
}
