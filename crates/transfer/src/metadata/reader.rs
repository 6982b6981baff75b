//! Reads the metadata of sources, as far as the copy keeps it.

use std::sync::{Arc, OnceLock};

use longhaul_platform::fs::{FileType, Stat, file_type};
use parking_lot::Mutex;

use super::changes::MetadataChanges;
use super::meta_of;
use super::node::Node;
use super::owners::OwnerNames;
use crate::attributes::{
    AttributeClass, Attributes, ExtendedAttribute, MAX_ATTRIBUTE_BYTES, MAX_EXTENDED_ATTRIBUTES,
    MAX_NAME_BYTES, Owner, SPECIAL_BITS,
};
use crate::preservation::Preservation;
use crate::progress::TransferProgress;
use crate::wire::{ChangedKind, Meta};

/// Maximum size of everything but extended attributes, in bytes.
const MAX_OTHER_BYTES: usize = 1024;
/// Size of an extended attribute on the wire besides its name and value, in bytes.
const EXTENDED_ATTRIBUTE_BYTES: usize = 4;

/// Reader of the metadata of sources.
#[derive(Debug, Default)]
pub(crate) struct MetadataReader {
    keep: Preservation,
    changes: MetadataChanges,
    /// Set once it is known whether the receiving end understands attributes.
    is_understood: Mutex<Option<bool>>,
    names: OwnerNames,
    /// Attributes of the last entry. Most entries of a tree have the same.
    last: Mutex<Option<Arc<Attributes>>>,
    /// Counters of what could not be read.
    progress: OnceLock<Arc<TransferProgress>>,
}

impl MetadataReader {
    /// Creates a reader of what `keep` selects, changed as the user asks for.
    pub(crate) fn new(keep: Preservation, changes: MetadataChanges) -> Self {
        Self {
            keep,
            changes,
            ..Self::default()
        }
    }

    /// Counts what cannot be read in `progress`.
    pub(crate) fn report_to(&self, progress: Arc<TransferProgress>) {
        let _ = self.progress.set(progress);
    }

    /// Notes whether the receiving end understands attributes. Only the first report counts.
    pub(crate) fn set_understood(&self, is_understood: bool) {
        self.is_understood.lock().get_or_insert(is_understood);
    }

    /// Returns true if the walk may begin: nothing is kept, or it is known whether the receiving
    /// end understands it.
    pub(crate) fn is_settled(&self) -> bool {
        self.keep.for_receiver().is_empty() || self.is_understood.lock().is_some()
    }

    /// Returns true if the user asks for changes that need attributes.
    pub(crate) fn needs_attributes(&self) -> bool {
        self.changes.need_attributes()
    }

    /// Returns what is kept.
    pub(crate) fn kept(&self) -> Preservation {
        match *self.is_understood.lock() {
            Some(true) => self.keep,
            Some(false) | None => Preservation {
                copy_links: self.keep.copy_links,
                safe_links: self.keep.safe_links,
                ..Preservation::default()
            },
        }
    }

    /// Returns true if symbolic links are followed.
    pub(crate) fn follows_links(&self) -> bool {
        self.keep.copy_links
    }

    /// Returns true if links that lead out of their source are left out.
    pub(crate) fn leaves_out_links(&self) -> bool {
        self.keep.safe_links
    }

    /// Returns true if entries have more than permissions and time, or others than their own.
    pub(crate) fn changes_meta(&self) -> bool {
        !self.changes.is_empty() || self.kept().has_attributes()
    }

    /// Returns true if entries must be opened to read their metadata.
    pub(crate) fn reads_nodes(&self) -> bool {
        let kept = self.kept();
        kept.acls || kept.xattrs
    }

    /// Returns the metadata of an entry. Its `node` is needed if [`Self::reads_nodes`].
    pub(crate) fn meta(&self, stat: &Stat, node: Option<&Node<'_>>) -> Meta {
        let mut meta = meta_of(stat);
        let kept = self.kept();
        let kind = match file_type(stat.st_mode) {
            FileType::Directory => ChangedKind::Directory,
            FileType::Symlink => ChangedKind::Symlink,
            _ => ChangedKind::File,
        };
        if kept.has_attributes() {
            meta.attributes = Some(Arc::new(self.attributes(kept, stat, node, kind)));
        }
        self.changes.apply(&mut meta, kind);
        meta.attributes = meta.attributes.map(|attributes| self.shared(attributes));
        meta
    }

    /// Returns equal attributes that are in memory already, if those of the last entry are equal.
    fn shared(&self, attributes: Arc<Attributes>) -> Arc<Attributes> {
        let mut last = self.last.lock();
        match &*last {
            Some(last) if *last == attributes => last.clone(),
            _ => last.insert(attributes).clone(),
        }
    }

    fn attributes(
        &self,
        kept: Preservation,
        stat: &Stat,
        node: Option<&Node<'_>>,
        kind: ChangedKind,
    ) -> Attributes {
        // Number 0 is the administrator everywhere.
        let is_named = |id: u32| id != 0 && !kept.numeric_ids;
        let owner = |id: u32, name: Option<Vec<u8>>| Owner {
            id: Some(id),
            name: name
                .filter(|name| name.len() <= MAX_NAME_BYTES)
                .unwrap_or_default(),
            is_required: false,
        };
        let user = |id: u32| {
            let name = is_named(id).then(|| self.names.user_name(id));
            owner(id, name.flatten())
        };
        let group = |id: u32| {
            let name = is_named(id).then(|| self.names.group_name(id));
            owner(id, name.flatten())
        };
        let special_bits = match kind {
            ChangedKind::Symlink => 0,
            ChangedKind::File | ChangedKind::Directory => stat.st_mode & SPECIAL_BITS,
        };
        let mut attributes = Attributes {
            special_bits: kept.special_bits.then_some(special_bits),
            user: kept.owner.then(|| user(stat.st_uid)),
            group: kept.group.then(|| group(stat.st_gid)),
            acls: None,
            xattrs: None,
        };
        if kept.acls || kept.xattrs {
            match node.and_then(read_lists) {
                Some((acls, xattrs)) => {
                    // A link has no ACL.
                    let has_acls = kept.acls && kind != ChangedKind::Symlink;
                    attributes.acls = has_acls.then_some(acls);
                    attributes.xattrs = kept.xattrs.then_some(xattrs);
                }
                None => self.note_unread(kept.acls, kept.xattrs),
            }
        }
        self.fit(&mut attributes);
        attributes
    }

    /// Leaves out lists that are too large to be sent.
    fn fit(&self, attributes: &mut Attributes) {
        let fits = |lists: &[&Option<Vec<ExtendedAttribute>>]| {
            let all = || lists.iter().copied().flatten().flatten();
            let size = |one: &ExtendedAttribute| {
                EXTENDED_ATTRIBUTE_BYTES + one.name.len() + one.value.len()
            };
            let bytes = all().map(size).sum::<usize>();
            bytes <= MAX_ATTRIBUTE_BYTES - MAX_OTHER_BYTES
                && all().count() <= MAX_EXTENDED_ATTRIBUTES
        };
        if !fits(&[&attributes.acls, &attributes.xattrs]) {
            attributes.xattrs = None;
            self.note_unread(false, true);
        }
        if !fits(&[&attributes.acls]) {
            attributes.acls = None;
            self.note_unread(true, false);
        }
    }

    fn note_unread(&self, acls: bool, xattrs: bool) {
        if let Some(progress) = self.progress.get() {
            progress.not_kept.note_unread(acls, xattrs);
        }
    }
}

/// Reads ACLs and other extended attributes, each sorted by name. `None` if they cannot be read.
fn read_lists(node: &Node<'_>) -> Option<(Vec<ExtendedAttribute>, Vec<ExtendedAttribute>)> {
    use rustix::io::Errno;
    let names = match node.attribute_names() {
        Ok(names) => names,
        // The file system has none.
        Err(Errno::OPNOTSUPP) => Vec::new(),
        Err(_) => return None,
    };
    let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    names.sort_unstable();
    names.dedup();
    let (mut acls, mut xattrs) = (Vec::new(), Vec::new());
    for name in names {
        let list = match AttributeClass::of_name(name) {
            Some(AttributeClass::Acl) => &mut acls,
            Some(AttributeClass::Other) => &mut xattrs,
            None => continue,
        };
        match node.attribute(name) {
            Ok(value) => list.push(ExtendedAttribute {
                name: name.to_vec(),
                value,
            }),
            // It was removed meanwhile, or this user may not know its value.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(_) => return None,
        }
    }
    Some((acls, xattrs))
}

/// Compares the extended attributes of a node with lists that it must have.
///
/// Returns `None` if they cannot be read.
pub(crate) fn has_lists(node: &Node<'_>, attributes: &Attributes) -> Option<bool> {
    let (acls, xattrs) = read_lists(node)?;
    let is_equal = |wanted: &Option<Vec<ExtendedAttribute>>, found: &[ExtendedAttribute]| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    Some(is_equal(&attributes.acls, &acls) && is_equal(&attributes.xattrs, &xattrs))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn everything() -> Preservation {
        Preservation {
            owner: true,
            group: true,
            acls: true,
            xattrs: true,
            special_bits: true,
            ..Preservation::default()
        }
    }

    #[test]
    fn nothing_is_read_before_the_other_end_understands_it() {
        let file = tempfile::tempfile().unwrap();
        let (node, stat) = (
            Node::open(file.as_fd()),
            longhaul_platform::fs::fstat(&file).unwrap(),
        );
        for (is_understood, has_attributes) in
            [(None, false), (Some(false), false), (Some(true), true)]
        {
            let reader = MetadataReader::new(everything(), MetadataChanges::default());
            if let Some(is_understood) = is_understood {
                reader.set_understood(is_understood);
            }
            assert_eq!(reader.is_settled(), is_understood.is_some());
            let meta = reader.meta(&stat, Some(&node));
            assert_eq!(meta.attributes.is_some(), has_attributes);
        }
        assert!(MetadataReader::default().is_settled());
    }

    #[test]
    fn equal_attributes_share_their_memory() {
        let file = tempfile::tempfile().unwrap();
        let stat = longhaul_platform::fs::fstat(&file).unwrap();
        let reader = MetadataReader::new(everything(), MetadataChanges::default());
        reader.set_understood(true);
        let node = Node::open(file.as_fd());
        let attributes = || reader.meta(&stat, Some(&node)).attributes.unwrap();
        assert!(Arc::ptr_eq(&attributes(), &attributes()));
        assert_eq!(attributes().user.as_ref().unwrap().id, Some(stat.st_uid));
    }

    #[test]
    fn oversized_attributes_are_left_out_and_counted() {
        let reader = MetadataReader::new(everything(), MetadataChanges::default());
        let progress = Arc::<TransferProgress>::default();
        reader.report_to(progress.clone());
        let value = |len: usize| ExtendedAttribute {
            name: b"user.large".to_vec(),
            value: vec![7; len],
        };
        let mut attributes = Attributes {
            acls: Some(vec![value(40_000)]),
            xattrs: Some(vec![value(40_000)]),
            ..Attributes::default()
        };
        reader.fit(&mut attributes);
        assert!(attributes.acls.is_some() && attributes.xattrs.is_none());
        assert_eq!(progress.not_kept.counts().extended_attributes, 1);
    }
}
