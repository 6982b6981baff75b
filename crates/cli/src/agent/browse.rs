//! Reaches places for the agent with the command line's own transports. A reached place stays open
//! for a while, so the next question needs no login.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use data_encoding::BASE64;
use longhaul_agent::places::{
    Browse, FileEntry, FileKind, FilePage, PlaceAnswer, PlaceChange, PlaceError, PlaceErrorKind,
};
use longhaul_proto::text::printable;
use longhaul_transfer::files::MAX_ENTRIES_PER_PAGE;
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, ListingEntry, PathBytes,
};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use crate::failure;
use crate::place::{Location, Place, PlaceOptions, PlacePath};

/// Time for which a place stays open after its last use.
const IDLE_CLOSE_DELAY: Duration = Duration::from_secs(60);
/// Maximum number of places open at once.
const MAX_OPEN_PLACES: usize = 16;
/// Time limit for one answer of a place, even after the asker has stopped waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for which pages of a place are gathered into one answer. A long directory that arrives
/// slowly is thus shown in parts.
const GATHER_TIME: Duration = Duration::from_millis(500);
/// Maximum bytes of names and link targets in one answer. The last page may exceed it.
const MAX_GATHERED_BYTES: usize = 4 << 20;

/// Places that the agent has reached and keeps open.
#[derive(Default)]
pub struct PlaceBrowser {
    open: Mutex<HashMap<String, OpenPlace>>,
}

/// Exclusive access to a place while it answers one question.
type PlaceGuard = OwnedMutexGuard<Option<Place>>;

struct OpenPlace {
    place: Arc<Mutex<Option<Place>>>,
    used: Instant,
}

impl std::fmt::Debug for PlaceBrowser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Places")
    }
}

impl Browse for PlaceBrowser {
    fn list<'a>(
        &'a self,
        at: &'a str,
        after: Option<&'a str>,
        limit: u32,
    ) -> PlaceAnswer<'a, FilePage> {
        Box::pin(async move {
            let spot = spot(at)?;
            let mut after = after.map(parse_cursor).transpose()?;
            let (mut entries, mut bytes) = (Vec::new(), 0);
            let until = Instant::now() + GATHER_TIME;
            // Held from page to page: another question in between would make the place discard the
            // listing under way.
            let mut open = self.place_slot(&spot).await.lock_owned().await;
            loop {
                let ask = FilesRequest::Look {
                    path: spot.path.clone(),
                    list: true,
                    after,
                    limit: Some(limit),
                };
                let answer;
                (open, answer) = ask_to_completion(open, spot.location.clone(), ask).await?;
                let (page, next) = match answer {
                    FilesResponse::Entries { entries, next } => (entries, next),
                    other => return Err(failed(&spot.location, other)),
                };
                bytes += page.iter().map(entry_bytes).sum::<usize>();
                entries.extend(page.iter().map(entry));
                after = next;
                // A listing under way is fetched in whole pages: a shortened page would have to be
                // fetched again.
                let is_full = entries.len() + MAX_ENTRIES_PER_PAGE > limit as usize
                    || bytes >= MAX_GATHERED_BYTES;
                if after.is_none() || is_full || Instant::now() >= until {
                    let next = after.as_ref().map(format_cursor);
                    return Ok(FilePage { entries, next });
                }
            }
        })
    }

    fn change<'a>(&'a self, change: &'a PlaceChange) -> PlaceAnswer<'a, ()> {
        Box::pin(async move {
            let (spot, ask) = question(change)?;
            let place = self.place_slot(&spot).await;
            match ask_place(&mut *place.lock().await, &spot.location, ask).await? {
                FilesResponse::Changed => Ok(()),
                other => Err(failed(&spot.location, other)),
            }
        })
    }
}

/// Lists a directory. It completes even if nobody waits any more, for example because the browser
/// left the page, so the next question finds the place open.
async fn ask_to_completion(
    mut open: PlaceGuard,
    location: Location,
    ask: FilesRequest,
) -> Result<(PlaceGuard, FilesResponse), PlaceError> {
    let looking = async move {
        let answer = timeout(ANSWER_TIMEOUT, ask_place(&mut open, &location, ask)).await;
        Ok((open, answer.map_err(|late| unreachable(&late.into()))??))
    };
    let looked = tokio::spawn(looking).await;
    looked.unwrap_or_else(|error| Err(unreachable(&error.into())))
}

/// Sends a question to a place, and opens the place first if it is not open.
async fn ask_place(
    place: &mut Option<Place>,
    location: &Location,
    ask: FilesRequest,
) -> Result<FilesResponse, PlaceError> {
    let was_open = place.is_some();
    let mut open = match place.take() {
        Some(open) => open,
        None => opened(location).await?,
    };
    match open.ask(ask.clone()).await {
        Ok(answer) => {
            *place = Some(open);
            Ok(answer)
        }
        // The place may have gone since the last question. Listing twice does no harm, but a change
        // that may have been made is not repeated.
        Err(_) if was_open && matches!(ask, FilesRequest::Look { .. }) => {
            let mut open = opened(location).await?;
            let answer = open.ask(ask).await.map_err(|error| unreachable(&error))?;
            *place = Some(open);
            Ok(answer)
        }
        Err(error) => Err(unreachable(&error)),
    }
}

impl PlaceBrowser {
    /// Returns the place of this spot, open or not. It answers one question at a time. Places not
    /// used for a while are closed.
    async fn place_slot(&self, spot: &PlacePath) -> Arc<Mutex<Option<Place>>> {
        let key = &spot.location.shown(&PathBytes::default());
        let mut open = self.open.lock().await;
        let now = Instant::now();
        open.retain(|other, open| other == key || now.duration_since(open.used) < IDLE_CLOSE_DELAY);
        if open.len() >= MAX_OPEN_PLACES && !open.contains_key(key) {
            let oldest = open
                .iter()
                .min_by_key(|(_, open)| open.used)
                .map(|(key, _)| key.clone());
            oldest.map(|oldest| open.remove(&oldest));
        }
        let entry = open.entry(key.to_owned()).or_insert_with(|| OpenPlace {
            place: Arc::default(),
            used: now,
        });
        entry.used = now;
        entry.place.clone()
    }
}

async fn opened(location: &Location) -> Result<Place, PlaceError> {
    // Nobody can type a password.
    let command = PlaceOptions::augment_args(Command::new("place").no_binary_name(true));
    let matches = command.try_get_matches_from(["-B"]);
    let options = matches.and_then(|matches| PlaceOptions::from_arg_matches(&matches));
    let options = options.map_err(|error| unreachable(&error.into()))?;
    Place::open(location, &options)
        .await
        .map_err(|error| unreachable(&error))
}

fn unreachable(error: &anyhow::Error) -> PlaceError {
    PlaceError {
        kind: PlaceErrorKind::Unreachable,
        detail: printable(failure::format_line(error).as_bytes()),
    }
}

/// Returns the spot of a location. Local locations lie beneath the root of this machine, and those
/// at a server beneath the server's root.
fn spot(at: &str) -> Result<PlacePath, PlaceError> {
    let invalid = |detail: String| PlaceError {
        kind: PlaceErrorKind::Invalid,
        detail,
    };
    let spot =
        PlacePath::parse(OsStr::new(at)).map_err(|error| invalid(failure::format_line(&error)))?;
    let Location::Here(path) = &spot.location else {
        return Ok(spot);
    };
    let Some(beneath) = path.to_str().and_then(|path| path.strip_prefix('/')) else {
        return Err(invalid(format!(
            "{}: not an absolute path, user@host:path or lh://host/path",
            printable(at.as_bytes())
        )));
    };
    let beneath = beneath.trim_matches('/');
    Ok(PlacePath {
        location: Location::Here(PathBuf::from("/")),
        path: PathBytes(beneath.as_bytes().to_vec()),
    })
}

fn question(change: &PlaceChange) -> Result<(PlacePath, FilesRequest), PlaceError> {
    Ok(match change {
        PlaceChange::MakeDirectory { at } => {
            let spot = spot(at)?;
            let path = spot.path.clone();
            (
                spot,
                FilesRequest::MakeDirectory {
                    path,
                    parents: false,
                },
            )
        }
        PlaceChange::Rename {
            from,
            to,
            overwrite,
        } => {
            let (from, to) = (spot(from)?, spot(to)?);
            if from.location != to.location {
                return Err(PlaceError {
                    kind: PlaceErrorKind::Invalid,
                    detail: format!("{to} is on another host than {from}: copy it there"),
                });
            }
            let ask = FilesRequest::Rename {
                from: from.path.clone(),
                to: to.path,
                overwrite: *overwrite,
                keep_time: false,
            };
            (from, ask)
        }
        PlaceChange::Remove { at, recursive } => {
            let spot = spot(at)?;
            let ask = FilesRequest::Remove {
                path: spot.path.clone(),
                recursive: *recursive,
                keep_time: false,
            };
            (spot, ask)
        }
    })
}

fn entry(entry: &ListingEntry) -> FileEntry {
    let name = std::str::from_utf8(&entry.name.0);
    FileEntry {
        name: name.map_or_else(|_| printable(&entry.name.0), str::to_owned),
        addressable: name.is_ok(),
        kind: match entry.kind {
            EntryKind::File => FileKind::File,
            EntryKind::Directory => FileKind::Directory,
            EntryKind::Symlink => FileKind::Symlink,
            EntryKind::Other => FileKind::Other,
        },
        bytes: entry.size,
        mode: format!("{:04o}", entry.mode),
        modified: jiff::Timestamp::from_second(entry.modified)
            .ok()
            .map(|time| time.to_string()),
        target: entry.target.as_ref().map(|target| printable(&target.0)),
    }
}

/// Formats the name after which the next page begins, as it stood in the previous answer. A name
/// that is not UTF-8 is written in Base64 after a slash, which no name contains.
fn format_cursor(name: &PathBytes) -> String {
    match std::str::from_utf8(&name.0) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("/{}", BASE64.encode(&name.0)),
    }
}

/// Parses the output of [`format_cursor`].
fn parse_cursor(text: &str) -> Result<PathBytes, PlaceError> {
    let name = match text.strip_prefix('/') {
        None => Ok(text.as_bytes().to_vec()),
        Some(encoded) => BASE64.decode(encoded.as_bytes()),
    };
    name.map(PathBytes).map_err(|_| PlaceError {
        kind: PlaceErrorKind::Invalid,
        detail: format!(
            "after: {} is not a name: give the `next` of the previous answer",
            printable(text.as_bytes())
        ),
    })
}

/// Returns the bytes that an entry counts towards [`MAX_GATHERED_BYTES`].
fn entry_bytes(entry: &ListingEntry) -> usize {
    entry.name.0.len() + entry.target.as_ref().map_or(0, |target| target.0.len())
}

fn failed(location: &Location, answer: FilesResponse) -> PlaceError {
    let FilesResponse::Failed(failure) = answer else {
        return PlaceError {
            kind: PlaceErrorKind::Unreachable,
            detail: "the answer does not match the request: do both sides run the same release?"
                .to_owned(),
        };
    };
    PlaceError {
        kind: kind(&failure),
        detail: printable(location.failed(&failure).as_bytes()),
    }
}

fn kind(failure: &FilesFailure) -> PlaceErrorKind {
    use FilesFailureKind::*;
    match failure.kind {
        NotFound => PlaceErrorKind::NotFound,
        PermissionDenied | NotGranted | RefusedPath | ReservedName => PlaceErrorKind::Denied,
        NotUnderstood => PlaceErrorKind::Invalid,
        Exists | NotADirectory | IsDirectory | NotEmpty | OtherFileSystem | IntoItself
        | DiskFull | Limit | Io => PlaceErrorKind::Conflict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn local_directories_are_listed_in_pages_and_changed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let places = PlaceBrowser::default();
        let at = format!("{}/", dir.path().display());
        let first = places.list(&at, None, 2).await.unwrap();
        let names: Vec<&str> = first
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!((names, first.next.as_deref()), (vec!["a", "b"], Some("b")));
        let rest = places.list(&at, first.next.as_deref(), 2).await.unwrap();
        assert_eq!((rest.entries.len(), rest.next), (1, None));
        let change =
            async |change: PlaceChange| places.change(&change).await.map_err(|error| error.kind);
        let made = PlaceChange::MakeDirectory {
            at: format!("{at}d"),
        };
        assert_eq!(change(made.clone()).await, Ok(()));
        assert_eq!(change(made).await, Err(PlaceErrorKind::Conflict));
        let moved = |from: &str, to: &str| PlaceChange::Rename {
            from: format!("{at}{from}"),
            to: format!("{at}{to}"),
            overwrite: false,
        };
        assert_eq!(change(moved("a", "d/a")).await, Ok(()));
        assert_eq!(change(moved("b", "c")).await, Err(PlaceErrorKind::Conflict));
        let removed = |what: &str, recursive| PlaceChange::Remove {
            at: format!("{at}{what}"),
            recursive,
        };
        assert_eq!(
            change(removed("d", false)).await,
            Err(PlaceErrorKind::Conflict)
        );
        assert_eq!(change(removed("d", true)).await, Ok(()));
        assert_eq!(
            change(removed("d", true)).await,
            Err(PlaceErrorKind::NotFound)
        );
        for nowhere in ["relative", "", "lh://", "/missing/at/all"] {
            assert!(places.list(nowhere, None, 1).await.is_err(), "{nowhere}");
        }
    }

    #[tokio::test]
    async fn pages_can_be_gathered_and_end_at_any_entry() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        for n in 0..6000 {
            std::fs::write(dir.path().join(format!("{n:04}")), "").unwrap();
        }
        for odd in [&b"z\xff"[..], b"z\xffa", b"z\xffb"] {
            std::fs::write(dir.path().join(OsStr::from_bytes(odd)), "").unwrap();
        }
        let places = PlaceBrowser::default();
        let at = dir.path().display().to_string();
        let all = places.list(&at, None, 20_000).await.unwrap();
        assert_eq!((all.entries.len(), all.next), (6003, None));
        let first = places.list(&at, Some("5998"), 2).await.unwrap();
        assert_eq!(
            (first.entries.len(), first.next.as_deref()),
            (2, Some("/ev8="))
        );
        let next = places.list(&at, first.next.as_deref(), 1).await.unwrap();
        let names: Vec<&str> = next
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!(
            (names, next.entries[0].addressable),
            (vec!["z\\xffa"], false)
        );
        let last = places.list(&at, next.next.as_deref(), 1).await.unwrap();
        assert_eq!((last.entries.len(), last.next), (1, None));
        let error = places.list(&at, Some("/="), 1).await.unwrap_err();
        assert_eq!(error.kind, PlaceErrorKind::Invalid, "{error}");
    }

    #[tokio::test]
    async fn links_cannot_escape_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        let places = PlaceBrowser::default();
        let at = format!("{}/link/hostname", dir.path().display());
        let error = places
            .change(&PlaceChange::Remove {
                at,
                recursive: true,
            })
            .await
            .unwrap_err();
        assert_eq!(error.kind, PlaceErrorKind::Denied, "{error}");
    }
}
