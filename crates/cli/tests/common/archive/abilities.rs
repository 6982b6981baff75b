//! Owners, ACLs and extended attributes, as far as this user and file system have them.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::Path;

use rustix::fs::XattrFlags;

/// Extended attribute that holds the permissions of further users.
pub const ACCESS_ACL: &str = "system.posix_acl_access";

/// Abilities of this user and file system to keep metadata.
#[derive(Clone, Copy)]
pub struct Abilities {
    pub has_owners: bool,
    pub has_attributes: bool,
}

impl Abilities {
    /// Finds out what can be tested, and prints what cannot.
    pub fn probe(directory: &Path) -> Self {
        let probe = directory.join("probe");
        fs::write(&probe, "").unwrap();
        let has_owners = can_give_files_away();
        let acl = acl(0o600, further_user(has_owners), 4);
        let has_attributes = set_attribute(&probe, "user.note", b"").is_ok()
            && set_attribute(&probe, ACCESS_ACL, &acl).is_ok();
        fs::remove_file(probe).unwrap();
        if !has_owners {
            eprintln!("left out: only root can give files away");
        }
        if !has_attributes {
            eprintln!("left out: the file system has no ACLs or no extended attributes");
        }
        Self {
            has_owners,
            has_attributes,
        }
    }

    /// Returns a user that an ACL can name.
    pub fn further_user(self) -> u32 {
        further_user(self.has_owners)
    }
}

fn further_user(has_owners: bool) -> u32 {
    match has_owners {
        true => 1234,
        false => rustix::process::geteuid().as_raw(),
    }
}

/// Returns true if this user may give files to others.
pub fn can_give_files_away() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    lchown(file.path(), Some(54_321), Some(1002)).is_ok()
}

/// Returns an ACL that has these permissions for a user, as the kernel stores it (acl(5),
/// `linux/posix_acl_xattr.h`). Its mask is wider than the permissions of the group: rsync 3.2 loses
/// those of a directory with special bits if both are equal.
pub fn acl(mode: u32, user: u32, bits: u16) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    const ALL: u16 = 7;
    let class = |shift: u32| (mode >> shift & 7) as u16;
    let (owner, group, others) = (class(6), class(3), class(0));
    let entries = [
        (0x01, owner, NONE),
        (0x02, bits, user),
        (0x04, group, NONE),
        (0x10, ALL, NONE),
        (0x20, others, NONE),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        acl.extend(u16::to_le_bytes(tag));
        acl.extend(bits.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Sets an extended attribute.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
}

/// Removes an extended attribute.
pub fn remove_attribute(path: &Path, name: &str) {
    // It may have none.
    let _ = rustix::fs::lremovexattr(path, name);
}
