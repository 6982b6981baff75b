//! Sets owners, special mode bits, ACLs and extended attributes of what a copy writes.
//!
//! What cannot be set is counted and reported, as most users may not give files away. Only an owner
//! that the user named is an error.

use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_platform::fs::{FileType, Stat, file_type};
use rustix::io::Errno;

use crate::attributes::{
    AttributeClass, Attributes, ExtendedAttribute, Owner, SPECIAL_BITS, is_privileged_name,
};
use crate::error::{Failure, FailureKind};
use crate::metadata::changes::MetadataChanges;
use crate::metadata::node::Node;
use crate::metadata::owners::OwnerNames;
use crate::metadata::reader::has_lists;
use crate::preservation::Preservation;
use crate::progress::NotKeptCounts;
use crate::wire::{ChangedKind, Meta};

/// Set-user-ID and set-group-ID bit.
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Permission of the owner to write.
const OWNER_WRITE: u32 = 0o200;

/// Treatment of metadata at the writing end.
#[derive(Debug, Clone, Default)]
pub struct AttributeSettings {
    /// Selection of what is kept. Nothing else is set, whatever the other end sends.
    pub keep: Preservation,
    /// Changes that the user asks for, if the other end does not make them.
    pub changes: MetadataChanges,
    /// If true, owners, devices, set-ID bits and the attributes of administrators may be set.
    pub is_privileged: bool,
    /// If true, the attributes, permissions and times of what exists are corrected, also by a copy
    /// that replaces nothing.
    pub corrects_existing: bool,
}

/// Sets the attributes of entries.
#[derive(Debug, Default)]
pub(super) struct AttributeWriter {
    settings: AttributeSettings,
    names: OwnerNames,
    lost: LostCounters,
}

/// Number of entries that have lost something.
#[derive(Debug, Default)]
struct LostCounters {
    owners: AtomicU64,
    set_id_bits: AtomicU64,
    acls: AtomicU64,
    xattrs: AtomicU64,
}

/// Result of setting the attributes of one entry.
#[derive(Debug, Default)]
pub(super) struct AppliedAttributes {
    /// Special mode bits that the entry gets, if they are kept. The caller sets them with the
    /// permissions.
    pub special_bits: Option<u32>,
    /// Failure to give the entry the owner that the user named.
    pub failure: Option<Failure>,
}

/// Properties that one entry could not get.
#[derive(Debug, Default)]
struct LostProperties {
    user: bool,
    group: bool,
    set_id_bits: bool,
    acls: bool,
    xattrs: bool,
}

/// A user or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerKind {
    User,
    Group,
}

impl AttributeWriter {
    pub(super) fn new(settings: AttributeSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Returns its settings.
    pub(super) fn settings(&self) -> &AttributeSettings {
        &self.settings
    }

    /// Changes the metadata of an entry as the user asks for.
    pub(super) fn change(&self, meta: &mut Meta, kind: ChangedKind) {
        self.settings.changes.apply(meta, kind);
    }

    /// Returns the number of entries that could not get what the copy keeps.
    pub(super) fn lost(&self) -> NotKeptCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NotKeptCounts {
            owners: count(&self.lost.owners),
            set_id_bits: count(&self.lost.set_id_bits),
            acls: count(&self.lost.acls),
            extended_attributes: count(&self.lost.xattrs),
        }
    }

    /// Returns the attributes of `meta` that this copy keeps.
    fn kept(&self, meta: &Meta) -> Option<Attributes> {
        let (keep, attributes) = (self.settings.keep, meta.attributes.as_deref()?);
        Some(Attributes {
            special_bits: attributes.special_bits.filter(|_| keep.special_bits),
            user: attributes.user.clone().filter(|_| keep.owner),
            group: attributes.group.clone().filter(|_| keep.group),
            acls: attributes.acls.clone().filter(|_| keep.acls),
            xattrs: attributes.xattrs.clone().filter(|_| keep.xattrs),
        })
    }

    /// Returns true if a node lacks attributes that `meta` gives it. What cannot be read counts as
    /// lacking.
    pub(super) fn differs(&self, node: &Node<'_>, stat: &Stat, meta: &Meta) -> bool {
        let Some(wanted) = self.kept(meta) else {
            return false;
        };
        let has_owner = |owner: &Option<Owner>, kind, id: u32| {
            let wanted = owner.as_ref().map(|owner| self.number(owner, kind));
            wanted.is_none_or(|wanted| wanted == Some(id))
        };
        let has_bits = wanted
            .special_bits
            .is_none_or(|bits| bits == stat.st_mode & SPECIAL_BITS);
        let has_lists = || {
            (wanted.acls.is_none() && wanted.xattrs.is_none())
                || has_lists(node, &wanted) == Some(true)
        };
        !has_owner(&wanted.user, OwnerKind::User, stat.st_uid)
            || !has_owner(&wanted.group, OwnerKind::Group, stat.st_gid)
            || !(has_bits || is_link(stat))
            || !has_lists()
    }

    /// Sets the attributes that `meta` gives a node. The caller sets permissions and times
    /// afterwards, as both are needed to set attributes, or change with them.
    pub(super) fn apply(&self, node: &Node<'_>, stat: &Stat, meta: &Meta) -> AppliedAttributes {
        let Some(wanted) = self.kept(meta) else {
            return AppliedAttributes::default();
        };
        let mut lost = LostProperties::default();
        let failure = self.set_owners(node, stat, &wanted, &mut lost);
        for (class, list) in [
            (AttributeClass::Acl, &wanted.acls),
            (AttributeClass::Other, &wanted.xattrs),
        ] {
            if let Some(list) = list {
                self.set_list(node, stat, (class, list), &mut lost);
            }
        }
        let special_bits = wanted.special_bits.map(|bits| {
            let allowed = self.allowed_bits(bits, &lost);
            lost.set_id_bits = allowed != bits;
            allowed
        });
        self.count(&lost, failure.is_some());
        AppliedAttributes {
            special_bits,
            failure,
        }
    }

    /// Returns the special bits that an entry may get. It must not lend the rights of a user or
    /// group that it does not belong to.
    fn allowed_bits(&self, bits: u32, lost: &LostProperties) -> u32 {
        let mut allowed = bits;
        if !self.settings.is_privileged || lost.user {
            allowed &= !SET_USER_ID;
        }
        if !self.settings.is_privileged || lost.group {
            allowed &= !SET_GROUP_ID;
        }
        allowed
    }

    /// Returns the number of an owner at this end. `None` if it has none.
    fn number(&self, owner: &Owner, kind: OwnerKind) -> Option<u32> {
        let named = match (owner.name.is_empty(), kind) {
            (true, _) => None,
            (false, OwnerKind::User) => self.names.user_id(&owner.name),
            (false, OwnerKind::Group) => self.names.group_id(&owner.name),
        };
        named.or(owner.id)
    }

    /// Sets user and group. Returns the failure to set one that the user named.
    fn set_owners(
        &self,
        node: &Node<'_>,
        stat: &Stat,
        wanted: &Attributes,
        lost: &mut LostProperties,
    ) -> Option<Failure> {
        let user = self.set_owner(node, OwnerKind::User, wanted.user.as_ref(), stat.st_uid);
        let group = self.set_owner(node, OwnerKind::Group, wanted.group.as_ref(), stat.st_gid);
        lost.user = user.is_err();
        lost.group = group.is_err();
        let is_required = |owner: &Option<Owner>| owner.as_ref().is_some_and(|one| one.is_required);
        let user = user.err().filter(|_| is_required(&wanted.user));
        let group = group.err().filter(|_| is_required(&wanted.group));
        user.or(group)
    }

    fn set_owner(
        &self,
        node: &Node<'_>,
        kind: OwnerKind,
        owner: Option<&Owner>,
        present: u32,
    ) -> Result<(), Failure> {
        let Some(owner) = owner else {
            return Ok(());
        };
        let failed = |why: String| Err(Failure::with_detail(FailureKind::Metadata, why));
        let Some(id) = self.number(owner, kind) else {
            let name = longhaul_proto::text::printable(&owner.name);
            return failed(format!("there is no user or group {name}"));
        };
        if id == present {
            return Ok(());
        }
        if !self.settings.is_privileged {
            return failed("the server sets no owners (longhaul serve --allow-owners)".to_owned());
        }
        let set = match kind {
            OwnerKind::User => node.set_owner(Some(id), None),
            OwnerKind::Group => node.set_owner(None, Some(id)),
        };
        match set {
            Ok(()) => Ok(()),
            Err(errno) => failed(format!(
                "owner {id} could not be set: {}",
                std::io::Error::from(errno)
            )),
        }
    }

    /// Gives a node exactly these extended attributes of one class.
    fn set_list(
        &self,
        node: &Node<'_>,
        stat: &Stat,
        (class, list): (AttributeClass, &[ExtendedAttribute]),
        lost: &mut LostProperties,
    ) {
        let lost = match class {
            AttributeClass::Acl => &mut lost.acls,
            AttributeClass::Other => &mut lost.xattrs,
        };
        let names = match node.attribute_names() {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => Vec::new(),
            Err(_) => {
                *lost = true;
                return;
            }
        };
        let present = names.split(|byte| *byte == 0);
        let surplus = present
            .filter(|name| AttributeClass::of_name(name) == Some(class))
            .filter(|name| list.iter().all(|one| one.name != *name));
        for name in surplus {
            *lost |=
                !self.may_set(name) || retry(node, stat, || node.remove_attribute(name)).is_err();
        }
        for ExtendedAttribute { name, value } in list {
            let is_set = node.attribute(name).is_ok_and(|there| there == *value);
            if !is_set {
                *lost |= !self.may_set(name)
                    || retry(node, stat, || node.set_attribute(name, value)).is_err();
            }
        }
    }

    fn may_set(&self, name: &[u8]) -> bool {
        self.settings.is_privileged || !is_privileged_name(name)
    }

    /// Counts what an entry has lost. An owner whose loss fails the entry is not counted.
    fn count(&self, lost: &LostProperties, fails: bool) {
        for (counter, is_lost) in [
            (&self.lost.owners, (lost.user || lost.group) && !fails),
            (&self.lost.set_id_bits, lost.set_id_bits),
            (&self.lost.acls, lost.acls),
            (&self.lost.xattrs, lost.xattrs),
        ] {
            counter.fetch_add(u64::from(is_lost), Ordering::Relaxed);
        }
    }
}

/// Changes an attribute. A file that its owner may not write gets that permission first, as
/// attributes of users need it. The caller sets the permissions afterwards.
fn retry(
    node: &Node<'_>,
    stat: &Stat,
    change: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match change() {
        Err(Errno::ACCESS) if stat.st_mode & OWNER_WRITE == 0 && !is_link(stat) => {
            node.set_mode(stat.st_mode & 0o7777 | OWNER_WRITE)?;
            change()
        }
        changed => changed,
    }
}

fn is_link(stat: &Stat) -> bool {
    file_type(stat.st_mode) == FileType::Symlink
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;

    fn everything() -> Preservation {
        Preservation {
            owner: true,
            group: true,
            acls: true,
            xattrs: true,
            special_bits: true,
            special_files: true,
            ..Preservation::default()
        }
    }

    fn writer(is_privileged: bool) -> AttributeWriter {
        AttributeWriter::new(AttributeSettings {
            keep: everything(),
            is_privileged,
            ..AttributeSettings::default()
        })
    }

    fn meta(attributes: Attributes) -> Meta {
        Meta {
            attributes: Some(Arc::new(attributes)),
            ..Meta::new(0o644, (1, 0))
        }
    }

    fn owner(id: u32, is_required: bool) -> Option<Owner> {
        Some(Owner {
            id: Some(id),
            name: Vec::new(),
            is_required,
        })
    }

    #[test]
    fn lh_copy_69_server_without_permission_sets_no_owner() {
        let file = tempfile::tempfile().unwrap();
        let (node, stat) = (
            Node::open(file.as_fd()),
            longhaul_platform::fs::fstat(&file).unwrap(),
        );
        let writer = writer(false);
        let wanted = meta(Attributes {
            special_bits: Some(0o7000),
            user: owner(stat.st_uid + 1, false),
            group: owner(stat.st_gid + 1, false),
            xattrs: Some(vec![ExtendedAttribute {
                name: b"trusted.x".to_vec(),
                value: b"1".to_vec(),
            }]),
            ..Attributes::default()
        });
        assert!(writer.differs(&node, &stat, &wanted));
        let applied = writer.apply(&node, &stat, &wanted);
        assert_eq!(applied.special_bits, Some(0o1000));
        assert_eq!(applied.failure, None);
        let after = node.stat().unwrap();
        assert_eq!((after.st_uid, after.st_gid), (stat.st_uid, stat.st_gid));
        assert_eq!(node.attribute(b"trusted.x").ok(), None);
        let lost = writer.lost();
        assert_eq!((lost.owners, lost.set_id_bits), (1, 1));
        assert_eq!((lost.acls, lost.extended_attributes), (0, 1));
    }

    #[test]
    fn owner_that_the_user_named_is_an_error_if_it_cannot_be_set() {
        let file = tempfile::tempfile().unwrap();
        let (node, stat) = (
            Node::open(file.as_fd()),
            longhaul_platform::fs::fstat(&file).unwrap(),
        );
        let wanted = meta(Attributes {
            user: owner(stat.st_uid + 1, true),
            ..Attributes::default()
        });
        let failure = writer(false).apply(&node, &stat, &wanted).failure.unwrap();
        assert_eq!(failure.kind, FailureKind::Metadata);
        let unknown = meta(Attributes {
            user: Some(Owner {
                id: None,
                name: b"no such user".to_vec(),
                is_required: true,
            }),
            ..Attributes::default()
        });
        let failure = writer(true).apply(&node, &stat, &unknown).failure.unwrap();
        assert!(failure.detail.contains("no such user"), "{failure}");
    }

    #[test]
    fn set_id_bits_are_not_lent_to_another_owner() {
        let writer = writer(true);
        for (user, group, bits) in [
            (false, false, 0o7000),
            (true, false, 0o3000),
            (false, true, 0o5000),
        ] {
            let lost = LostProperties {
                user,
                group,
                ..LostProperties::default()
            };
            assert_eq!(writer.allowed_bits(0o7000, &lost), bits);
        }
    }

    #[test]
    fn attributes_become_exactly_those_of_the_source() {
        let file = tempfile::tempfile().unwrap();
        let (node, stat) = (
            Node::open(file.as_fd()),
            longhaul_platform::fs::fstat(&file).unwrap(),
        );
        if node.set_attribute(b"user.old", b"x").is_err() {
            eprintln!("left out: no extended attributes here");
            return;
        }
        node.set_attribute(b"user.longhaul.directory", b"own")
            .unwrap();
        let wanted = meta(Attributes {
            xattrs: Some(vec![ExtendedAttribute {
                name: b"user.new".to_vec(),
                value: b"y".to_vec(),
            }]),
            ..Attributes::default()
        });
        let writer = writer(false);
        assert!(writer.differs(&node, &stat, &wanted));
        assert_eq!(writer.apply(&node, &stat, &wanted).failure, None);
        assert!(!writer.differs(&node, &stat, &wanted));
        assert_eq!(node.attribute(b"user.old"), Err(Errno::NODATA));
        assert_eq!(node.attribute(b"user.longhaul.directory").unwrap(), b"own");
        assert_eq!(writer.lost(), NotKeptCounts::default());
        // Nothing is set that this copy does not keep.
        let plain = AttributeWriter::new(AttributeSettings::default());
        assert!(!plain.differs(
            &node,
            &stat,
            &meta(Attributes {
                xattrs: Some(vec![]),
                ..Attributes::default()
            })
        ));
    }
}
