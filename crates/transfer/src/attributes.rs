//! Properties of an entry besides permissions and time: owners, special mode bits, ACLs, extended
//! attributes, and the kind of a special file.

use strum::FromRepr;

/// Maximum size of the attributes of one entry on the wire, in bytes (LH-COPY-66).
pub(crate) const MAX_ATTRIBUTE_BYTES: usize = 65_535;
/// Maximum number of extended attributes of one entry (LH-COPY-66).
pub(crate) const MAX_EXTENDED_ATTRIBUTES: usize = 1024;
/// Maximum length of the name of an extended attribute (xattr(7)), a user or a group, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Set-user-ID, set-group-ID and sticky bit.
pub(crate) const SPECIAL_BITS: u32 = 0o7000;

/// Memory of attributes besides their names and values, in bytes.
const ATTRIBUTES_BYTES: u64 = 160;
/// Memory of an extended attribute besides its name and value, in bytes.
const EXTENDED_ATTRIBUTE_BYTES: u64 = 64;

/// Names of the extended attributes that hold POSIX ACLs (acl(5)).
const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Prefix of the names that copies use themselves.
const OWN_PREFIX: &[u8] = b"user.longhaul.";
/// Prefixes of names that the system itself gives to every file.
const SYSTEM_LABELS: [&[u8]; 3] = [b"security.selinux", b"security.ima", b"security.evm"];
/// Prefixes of names that only administrators may set.
const PRIVILEGED_PREFIXES: [&[u8]; 2] = [b"security.", b"trusted."];

/// Properties of an entry besides permissions and time. What is `None` is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Set-user-ID, set-group-ID and sticky bit, among [`SPECIAL_BITS`].
    pub(crate) special_bits: Option<u32>,
    pub(crate) user: Option<Owner>,
    pub(crate) group: Option<Owner>,
    /// Extended attributes that hold ACLs, by name. The entry has no others.
    pub(crate) acls: Option<Vec<ExtendedAttribute>>,
    /// Other extended attributes, by name. The entry has no others.
    pub(crate) xattrs: Option<Vec<ExtendedAttribute>>,
}

/// User or group to which an entry belongs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Owner {
    /// Number, if known. It counts if the receiving end does not know the name.
    pub id: Option<u32>,
    /// Name, or empty.
    pub name: Vec<u8>,
    /// If true, the user named it, so the entry fails if it cannot have this owner.
    pub is_required: bool,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtendedAttribute {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

impl Attributes {
    /// Returns the memory that they use, in bytes. It exceeds their size on the wire.
    pub(crate) fn bytes(&self) -> u64 {
        let owners = [&self.user, &self.group].into_iter().flatten();
        let names: usize = owners.map(|owner| owner.name.len()).sum();
        let lists = [&self.acls, &self.xattrs].into_iter().flatten().flatten();
        let each = lists
            .map(|one| EXTENDED_ATTRIBUTE_BYTES + one.name.len() as u64 + one.value.len() as u64);
        ATTRIBUTES_BYTES + names as u64 + each.sum::<u64>()
    }
}

/// Class of an extended attribute, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeClass {
    /// An ACL.
    Acl,
    /// An attribute of users or administrators.
    Other,
}

impl AttributeClass {
    /// Returns the class of the attribute `name`. `None` if no copy keeps it: labels of the system,
    /// records of copies, and attributes of unknown classes.
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        let begins_with = |prefixes: &[&[u8]]| prefixes.iter().any(|one| name.starts_with(one));
        if ACL_NAMES.contains(&name) {
            return Some(Self::Acl);
        }
        if name.starts_with(OWN_PREFIX) || begins_with(&SYSTEM_LABELS) {
            return None;
        }
        let is_known = name.starts_with(b"user.") || is_privileged_name(name);
        is_known.then_some(Self::Other)
    }
}

/// Returns true if only administrators may set an extended attribute of this name.
pub(crate) fn is_privileged_name(name: &[u8]) -> bool {
    PRIVILEGED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Kind of a special file. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum SpecialKind {
    /// A FIFO.
    Fifo = 1,
    /// A socket.
    Socket = 2,
    /// A character device.
    CharacterDevice = 3,
    /// A block device.
    BlockDevice = 4,
}

/// A file that is neither a regular one, nor a directory, nor a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpecialFile {
    pub kind: SpecialKind,
    /// Major and minor number of a device, otherwise zeros.
    pub device: (u32, u32),
}

impl SpecialFile {
    /// Returns true if it is a device.
    pub(crate) fn is_device(self) -> bool {
        matches!(
            self.kind,
            SpecialKind::CharacterDevice | SpecialKind::BlockDevice
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_have_a_class() {
        for (name, class) in [
            (&b"user.a"[..], Some(AttributeClass::Other)),
            (b"security.capability", Some(AttributeClass::Other)),
            (b"trusted.overlay", Some(AttributeClass::Other)),
            (b"system.posix_acl_access", Some(AttributeClass::Acl)),
            (b"system.posix_acl_default", Some(AttributeClass::Acl)),
            (b"system.nfs4_acl", None),
            (b"security.selinux", None),
            (b"user.longhaul.directory", None),
            (b"other", None),
        ] {
            assert_eq!(AttributeClass::of_name(name), class, "{name:?}");
        }
        assert!(is_privileged_name(b"trusted.x") && !is_privileged_name(b"user.x"));
    }
}
