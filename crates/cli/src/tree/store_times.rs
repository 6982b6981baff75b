//! Times of entries in stores, as copies compare them. Listings of stores only have the times at
//! which objects were stored.

use anyhow::Result;
use longhaul_sync::{Modified, NodeKind, Tree};
use longhaul_transfer::files::message::{FilesRequest, FilesResponse, PathBytes};

use crate::place::Place;
use crate::tree::path_below;

/// Gives the entries of a store the metadata of those that a copy would take for the same: of equal
/// size, and stored no earlier than the source was modified. Stores keep no permissions.
pub fn adopt_source(source: &Tree, there: &mut Tree) {
    for (path, node) in there {
        let Some(new) = source.get(path).filter(|new| new.kind == node.kind) else {
            continue;
        };
        node.mode = new.mode;
        let is_as_new = !new.modified.is_later(node.modified);
        if node.kind == NodeKind::Directory || (node.bytes == new.bytes && is_as_new) {
            node.modified = new.modified;
        }
    }
}

/// Gives the files of a store below `root` that the target has in equal size the modification times
/// that a copy gives them, and directories those of the target.
///
/// # Errors
/// The store is gone.
pub async fn read_times(
    store: &mut Place,
    root: &PathBytes,
    listing: &mut Tree,
    target: &Tree,
) -> Result<()> {
    let (mut paths, mut looks) = (Vec::new(), Vec::new());
    for (path, node) in listing.iter_mut() {
        let Some(there) = target.get(path).filter(|there| there.kind == node.kind) else {
            continue;
        };
        match node.kind {
            NodeKind::Directory => (node.mode, node.modified) = (there.mode, there.modified),
            _ if there.bytes == node.bytes => {
                paths.push(path.clone());
                looks.push(FilesRequest::Look {
                    path: path_below(root, path),
                    list: false,
                    after: None,
                    limit: None,
                });
            }
            _ => {}
        }
    }
    let answers = store.ask_all(&looks).await?;
    for (path, answer) in paths.iter().zip(answers) {
        if let FilesResponse::Entries { entries, .. } = answer
            && let (Some(node), Some(entry)) = (listing.get_mut(path), entries.first())
        {
            node.modified = Modified {
                seconds: entry.modified,
                nanoseconds: entry.nanoseconds,
            };
        }
    }
    Ok(())
}
