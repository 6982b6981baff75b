//! Listings of directories at a host.

use std::path::Path;

use futures_util::future::join_all;
use longhaul_transfer::local_end::RemoteListing;
use longhaul_transfer::{Failure, FailureKind};

use crate::entries::Attributes;
use crate::error::RequestError;
use crate::pool::Pool;

/// Requests for names that are under way in one directory.
const MAX_LISTING_REQUESTS: usize = 16;

/// Entries of a directory by name.
pub(crate) type Entries = RemoteListing<Attributes>;

/// Lists a directory. Several requests are under way at once.
pub(crate) async fn list(pool: &Pool, path: &Path) -> Result<Entries, Failure> {
    let listed = again!(pool, 0, |lease| async {
        let handle = lease.open_dir(path).await?;
        let mut entries = Entries::new();
        let mut requests = 2;
        let listed = loop {
            let answers = join_all((0..requests).map(|_| lease.next_names(&handle))).await;
            let answers: Result<Vec<_>, _> = answers.into_iter().collect();
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => break Err(error),
            };
            let is_end = answers.iter().any(Vec::is_empty);
            let names = answers.into_iter().flatten();
            let names = names.filter(|name| !matches!(&name.name[..], b"." | b".."));
            entries.extend(names.map(|name| (name.name, name.attributes)));
            if is_end {
                break Ok(());
            }
            requests = (2 * requests).min(MAX_LISTING_REQUESTS);
        };
        lease.close(&handle).await?;
        listed.map(|()| entries)
    });
    listed.map_err(|error| match error {
        RequestError::Unreadable => {
            let why = "cannot be listed by sftp: a name in it is not UTF-8";
            Failure::with_detail(FailureKind::RefusedPath, why)
        }
        error => error.into(),
    })
}
