//! Changes of metadata that the user asks for: `--chmod` and `--chown`.

use std::sync::Arc;

use super::mode_changes::ModeChanges;
use crate::attributes::{Attributes, MAX_NAME_BYTES, Owner, SPECIAL_BITS};
use crate::wire::{ChangedKind, Meta};

/// Changes of the metadata of every entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataChanges {
    mode: ModeChanges,
    owner: OwnerChange,
    /// If true, entries keep the special bits of their sources.
    keeps_special_bits: bool,
}

/// User and group that every entry gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerChange {
    user: Option<Owner>,
    group: Option<Owner>,
}

/// Error of an owner that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--chown {0}: not an owner; write USER, USER:GROUP or :GROUP, by name or number")]
pub struct OwnerChangeError(String);

impl OwnerChange {
    /// Parses `USER`, `USER:GROUP` or `:GROUP`, each a name or a number.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self, OwnerChangeError> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let wrong = || OwnerChangeError(longhaul_proto::text::printable(text.as_bytes()));
        let change = Self {
            user: required_owner(user).ok_or_else(wrong)?,
            group: required_owner(group).ok_or_else(wrong)?,
        };
        match change.user.is_none() && change.group.is_none() {
            true => Err(wrong()),
            false => Ok(change),
        }
    }

    /// Returns true if entries get another user.
    #[must_use]
    pub fn sets_user(&self) -> bool {
        self.user.is_some()
    }

    /// Returns true if entries get another group.
    #[must_use]
    pub fn sets_group(&self) -> bool {
        self.group.is_some()
    }
}

/// Returns the owner that a text names, or `None` for an empty one. The outer `None` is an error.
#[allow(clippy::option_option, reason = "an absent owner is not a wrong one")]
fn required_owner(text: &str) -> Option<Option<Owner>> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = text.len() <= MAX_NAME_BYTES && !text.contains([':', '\0', '/']);
    let owner = |id, name: &str| {
        Some(Some(Owner {
            id,
            name: name.as_bytes().to_vec(),
            is_required: true,
        }))
    };
    match text {
        "" => Some(None),
        _ if !is_valid => None,
        // The largest number stands for no owner (chown(2)).
        number if is_number => match number.parse() {
            Ok(u32::MAX) | Err(_) => None,
            Ok(id) => owner(Some(id), ""),
        },
        name => owner(None, name),
    }
}

impl MetadataChanges {
    /// Creates changes of permissions and owners. Set-ID and sticky bits of the sources count only
    /// if the copy keeps them.
    #[must_use]
    pub fn new(mode: ModeChanges, owner: OwnerChange, keeps_special_bits: bool) -> Self {
        Self {
            mode,
            owner,
            keeps_special_bits,
        }
    }

    /// Returns true if nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mode.is_empty() && self.owner == OwnerChange::default()
    }

    /// Returns true if changed entries need attributes to be sent.
    pub(crate) fn need_attributes(&self) -> bool {
        self.owner.sets_user() || self.owner.sets_group() || self.mode.set_special_bits()
    }

    /// Changes the metadata of an entry.
    pub(crate) fn apply(&self, meta: &mut Meta, kind: ChangedKind) {
        if !self.mode.is_empty() && kind != ChangedKind::Symlink {
            let sent = meta.attributes.as_ref().and_then(|some| some.special_bits);
            let special = sent.filter(|_| self.keeps_special_bits);
            let before = meta.mode | special.unwrap_or(0);
            let after = self.mode.apply(before, kind == ChangedKind::Directory);
            meta.mode = after & 0o777;
            let has_bits = special.is_some() || after & SPECIAL_BITS != 0;
            if has_bits || sent.is_some() {
                attributes_mut(meta).special_bits = has_bits.then_some(after & SPECIAL_BITS);
            }
        }
        if let Some(user) = &self.owner.user {
            attributes_mut(meta).user = Some(user.clone());
        }
        if let Some(group) = &self.owner.group {
            attributes_mut(meta).group = Some(group.clone());
        }
    }
}

fn attributes_mut(meta: &mut Meta) -> &mut Attributes {
    Arc::make_mut(meta.attributes.get_or_insert_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let parse = |text: &str| OwnerChange::parse(text).unwrap();
        let both = parse("ana:staff");
        assert_eq!(both.user.unwrap().name, b"ana");
        assert_eq!(both.group.unwrap().name, b"staff");
        assert_eq!(parse("1000").user.unwrap().id, Some(1000));
        assert!(!parse(":7").sets_user() && parse(":7").sets_group());
        assert!(parse("ana:").sets_user() && !parse("ana:").sets_group());
        for wrong in ["", ":", "a:b:c", "4294967295", "99999999999", "a/b"] {
            let error = OwnerChange::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn changes_apply_to_permissions_and_owners() {
        let mode = ModeChanges::parse("D2755,F600", 0).unwrap();
        let changes = MetadataChanges::new(mode, OwnerChange::parse("7").unwrap(), false);
        let changed = |kind| {
            let mut meta = Meta::new(0o644, (1, 2));
            changes.apply(&mut meta, kind);
            let attributes = meta.attributes.unwrap();
            assert_eq!(attributes.user.as_ref().unwrap().id, Some(7));
            (meta.mode, attributes.special_bits)
        };
        assert_eq!(changed(ChangedKind::File), (0o600, None));
        assert_eq!(changed(ChangedKind::Directory), (0o755, Some(0o2000)));
        assert_eq!(changed(ChangedKind::Symlink), (0o644, None));
    }

    #[test]
    fn special_bits_of_the_source_count_if_they_are_kept() {
        for (keeps, bits) in [(true, Some(0o6000)), (false, Some(0o2000))] {
            let mode = ModeChanges::parse("g+s", 0).unwrap();
            let changes = MetadataChanges::new(mode, OwnerChange::default(), keeps);
            let mut meta = Meta::new(0o755, (1, 2));
            attributes_mut(&mut meta).special_bits = Some(0o4000);
            changes.apply(&mut meta, ChangedKind::File);
            assert_eq!(meta.attributes.unwrap().special_bits, bits);
        }
    }
}
