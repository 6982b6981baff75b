//! Names and numbers of users and groups, as this host knows them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use parking_lot::Mutex;

/// Maximum number of names that are remembered of users, and of groups. Others are looked up each
/// time.
const MAX_REMEMBERED: usize = 4096;

/// Names and numbers that were looked up.
#[derive(Debug, Default)]
pub(crate) struct OwnerNames {
    user_names: Remembered<u32, Vec<u8>>,
    group_names: Remembered<u32, Vec<u8>>,
    user_ids: Remembered<Vec<u8>, u32>,
    group_ids: Remembered<Vec<u8>, u32>,
}

/// Answers of one kind. `None` if there is no such name or number.
#[derive(Debug)]
struct Remembered<K, V>(Mutex<HashMap<K, Option<V>>>);

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + std::hash::Hash + Clone, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K, look_up: impl FnOnce() -> Option<V>) -> Option<V> {
        if let Some(known) = self.0.lock().get(key) {
            return known.clone();
        }
        // A look-up may ask the network, so the lock is not held.
        let found = look_up();
        let mut known = self.0.lock();
        if known.len() < MAX_REMEMBERED {
            known.insert(key.clone(), found.clone());
        }
        found
    }
}

impl OwnerNames {
    /// Returns the name of a user.
    pub(crate) fn user_name(&self, id: u32) -> Option<Vec<u8>> {
        self.user_names.get(&id, || {
            uzers::get_user_by_uid(id).map(|user| user.name().as_bytes().to_vec())
        })
    }

    /// Returns the name of a group.
    pub(crate) fn group_name(&self, id: u32) -> Option<Vec<u8>> {
        self.group_names.get(&id, || {
            uzers::get_group_by_gid(id).map(|group| group.name().as_bytes().to_vec())
        })
    }

    /// Returns the number of a user.
    pub(crate) fn user_id(&self, name: &[u8]) -> Option<u32> {
        self.user_ids.get(&name.to_vec(), || {
            uzers::get_user_by_name(OsStr::from_bytes(name)).map(|user| user.uid())
        })
    }

    /// Returns the number of a group.
    pub(crate) fn group_id(&self, name: &[u8]) -> Option<u32> {
        self.group_ids.get(&name.to_vec(), || {
            uzers::get_group_by_name(OsStr::from_bytes(name)).map(|group| group.gid())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_numbers() {
        let names = OwnerNames::default();
        let Some(name) = names.user_name(0) else {
            eprintln!("left out: this host names no user 0");
            return;
        };
        for _ in 0..2 {
            assert_eq!(names.user_id(&name), Some(0));
            assert_eq!(names.user_id(b"no such user"), None);
        }
    }
}
