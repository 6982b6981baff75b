//! Directories that hold each other, which no copy may read and write.

use std::path::PathBuf;

use anyhow::{Result, bail};
use longhaul_sftp::SftpPath;
use longhaul_transfer::files::message::PathBytes;

use crate::place::{Location, Place, PlaceOptions, PlacePath};

/// Refuses two directories in one store or at one SFTP server, if one is or holds the other. The
/// server resolves links and home directories. Other names of a host are not known as such.
///
/// # Errors
/// One holds the other, or the server does not answer.
pub async fn refuse(one: &PlacePath, other: &PlacePath, options: &PlaceOptions) -> Result<()> {
    if overlap(one, other) || overlap_at_host(one, other, options).await? {
        bail!(
            "{one} and {other}: one holds the other, so the copy would change what it reads: name \
             directories beside each other"
        );
    }
    Ok(())
}

/// Refuses to copy a directory at an SFTP server into itself, as far as names tell.
///
/// # Errors
/// The destination lies in a source.
pub fn refuse_into_itself_by_name(sources: &[SftpPath], destination: &SftpPath) -> Result<()> {
    let holder = sources.iter().find(|source| source.holds(destination));
    refuse_holder(holder, destination)
}

/// Refuses to copy a directory at an SFTP server into itself, which would never end.
///
/// # Errors
/// The destination lies in a source, or the server does not answer.
pub async fn refuse_into_itself(
    sources: &[SftpPath],
    destination: &SftpPath,
    options: &PlaceOptions,
) -> Result<()> {
    let is_same_host = |source: &SftpPath| source.is_on_host_of(destination);
    if !sources.iter().any(is_same_host) {
        return Ok(());
    }
    let all = [std::slice::from_ref(destination), sources].concat();
    let real = real_paths(&all, options).await?;
    let Some((Some(there), real)) = real.split_first() else {
        return Ok(());
    };
    let holds = |real: &Option<PathBuf>| real.as_ref().is_some_and(|real| there.starts_with(real));
    let holder = sources.iter().zip(real).find(|(_, real)| holds(real));
    refuse_holder(holder.map(|(source, _)| source), destination)
}

fn refuse_holder(source: Option<&SftpPath>, destination: &SftpPath) -> Result<()> {
    match source {
        Some(source) => bail!("{source}: cannot be copied into itself, {destination}"),
        None => Ok(()),
    }
}

/// Returns true if both are in one store or at one SFTP server, and one is or holds the other by
/// its name.
fn overlap(one: &PlacePath, other: &PlacePath) -> bool {
    match (&one.location, &other.location) {
        (Location::Sftp(host), Location::Sftp(other_host)) => {
            let one = host.with_path(&one.path.0);
            let other = other_host.with_path(&other.path.0);
            one.holds(&other) || other.holds(&one)
        }
        (Location::Store(store), Location::Store(other_store)) if store == other_store => {
            let holds = |above: &[u8], key: &[u8]| {
                let rest = key.strip_prefix(above);
                rest.is_some_and(|rest| above.is_empty() || matches!(rest, [] | [b'/', ..]))
            };
            let (one, other) = (&one.path.0, &other.path.0);
            holds(one, other) || holds(other, one)
        }
        _ => false,
    }
}

async fn overlap_at_host(
    one: &PlacePath,
    other: &PlacePath,
    options: &PlaceOptions,
) -> Result<bool> {
    let (Location::Sftp(host), Location::Sftp(other_host)) = (&one.location, &other.location)
    else {
        return Ok(false);
    };
    if !host.is_on_host_of(other_host) {
        return Ok(false);
    }
    let both = [
        host.with_path(&one.path.0),
        other_host.with_path(&other.path.0),
    ];
    Ok(match &real_paths(&both, options).await?[..] {
        [Some(one), Some(other)] => one.starts_with(other) || other.starts_with(one),
        _ => false,
    })
}

/// Returns the absolute paths without links. Neighbours at one login are resolved over one
/// connection.
async fn real_paths(paths: &[SftpPath], options: &PlaceOptions) -> Result<Vec<Option<PathBuf>>> {
    let mut real = Vec::new();
    for paths in paths.chunk_by(|one, other| one.root() == other.root()) {
        let Some(first) = paths.first() else {
            continue;
        };
        let place = Place::open(&Location::Sftp(first.root()), options).await?;
        if let Place::Sftp(files) = &place {
            for path in paths {
                let path = PathBytes(path.path().to_vec());
                real.push(files.real_path(&path).await?);
            }
        }
        place.end().await;
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn paths_in_one_store_overlap() {
        let parse = |text: &str| tree::parse_listed(text.as_ref()).unwrap();
        for (one, other, expected) in [
            ("s3://b/x", "s3://b/x/y", true),
            ("s3://b/x/", "s3://b/x", true),
            ("s3://b", "s3://b/x", true),
            ("s3://b/x", "s3://b/xy", false),
            ("s3://b/x", "s3://c/x", false),
            ("s3://b/x", "gs://b/x", false),
            ("sftp://h/a/b", "sftp://h/a", true),
            ("sftp://h/a", "sftp://g/a", false),
        ] {
            let (one, other) = (parse(one), parse(other));
            assert_eq!(overlap(&one, &other), expected, "{one} {other}");
            assert_eq!(overlap(&other, &one), expected, "{one} {other}");
        }
    }
}
