//! Makes and changes trees.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use proptest::sample::Index;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};

use super::abilities::{ACCESS_ACL, Abilities, acl, remove_attribute, set_attribute};
use super::case::{Change, Content, Data, Entry, FileContent, Properties, REGION_BYTES, REGIONS};
use crate::common::noise;

/// Extended attribute of a directory, whose new entries get these permissions of further users.
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// A tree that is made and changed.
pub struct Source<'a> {
    pub root: &'a Path,
    pub abilities: Abilities,
}

impl Source<'_> {
    /// Makes the tree.
    pub fn make(&self, entries: &[Entry]) {
        fs::create_dir(self.root).unwrap();
        let made: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some((self.add(entry)?, entry)))
            .collect();
        // From the leaves up, as new names change the times of directories.
        for (path, entry) in made.iter().rev() {
            self.set(path, &entry.properties);
        }
    }

    /// Returns the paths of all entries, or of those that are of a kind.
    fn paths(&self, is_wanted: impl Fn(&fs::FileType) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut ahead = vec![self.root.to_owned()];
        while let Some(directory) = ahead.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    ahead.push(entry.path());
                }
                if is_wanted(&kind) {
                    found.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }

    fn directory(&self, index: Index) -> PathBuf {
        let mut all = self.paths(fs::FileType::is_dir);
        all.push(self.root.to_owned());
        index.get(&all).clone()
    }

    fn choose(&self, index: Index, is_wanted: impl Fn(&fs::FileType) -> bool) -> Option<PathBuf> {
        let all = self.paths(is_wanted);
        (!all.is_empty()).then(|| index.get(&all).clone())
    }

    /// Makes an entry, unless its name is taken. Returns its path.
    fn add(&self, entry: &Entry) -> Option<PathBuf> {
        let directory = self.directory(entry.parent);
        let path = directory.join(OsStr::from_bytes(&entry.name));
        if path.symlink_metadata().is_ok() {
            return None;
        }
        match &entry.content {
            Content::Directory => fs::create_dir(&path).unwrap(),
            Content::File(content) => content.write(&path),
            Content::Link(to) => symlink(OsStr::from_bytes(to), &path).unwrap(),
            Content::HardLink(to) => {
                let first = self.choose(*to, fs::FileType::is_file)?;
                fs::hard_link(first, &path).unwrap();
                return None;
            }
            Content::Fifo => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
            }
        }
        Some(path)
    }

    /// Changes it, if there is what the change needs.
    pub fn change(&self, change: &Change) {
        let any = |_: &fs::FileType| true;
        match change {
            Change::Add(entry) => {
                if let Some(path) = self.add(entry) {
                    self.set(&path, &entry.properties);
                }
            }
            Change::Remove(path) => match self.choose(*path, any) {
                Some(path) if path.is_dir() && !path.is_symlink() => {
                    fs::remove_dir_all(path).unwrap();
                }
                Some(path) => fs::remove_file(path).unwrap(),
                None => {}
            },
            Change::Rename(from, parent, name) => {
                let Some(from) = self.choose(*from, any) else {
                    return;
                };
                let to = self.directory(*parent).join(OsStr::from_bytes(name));
                if !to.starts_with(&from) && to.symlink_metadata().is_err() {
                    fs::rename(from, to).unwrap();
                }
            }
            Change::Rewrite {
                file,
                content,
                keeps_inode,
            } => {
                if let Some(path) = self.choose(*file, fs::FileType::is_file) {
                    if !keeps_inode {
                        fs::remove_file(&path).unwrap();
                    }
                    content.write(&path);
                }
            }
            Change::Set {
                path,
                properties,
                keeps_time,
            } => {
                let Some(path) = self.choose(*path, any) else {
                    return;
                };
                let meta = fs::symlink_metadata(&path).unwrap();
                let mtime = match keeps_time {
                    true => (meta.mtime(), meta.mtime_nsec()),
                    false => properties.mtime,
                };
                let properties = Properties {
                    mtime,
                    ..properties.clone()
                };
                self.set(&path, &properties);
            }
        }
    }

    /// Sets the properties of an entry as far as its kind has them.
    fn set(&self, path: &Path, properties: &Properties) {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        if self.abilities.has_owners {
            let (user, group) = properties.owner;
            lchown(path, Some(user), Some(group)).unwrap();
        }
        if !kind.is_symlink() {
            let has_attributes = self.abilities.has_attributes;
            if has_attributes {
                remove_attribute(path, ACCESS_ACL);
            }
            let special_bits = match self.abilities.has_owners && !kind.is_fifo() {
                true => properties.special_bits,
                false => 0,
            };
            let search = if kind.is_dir() { 0o700 } else { 0 };
            let mode = properties.mode | special_bits | search;
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            if has_attributes && !kind.is_fifo() {
                self.set_attributes(path, properties, kind.is_dir());
            }
        }
        let (tv_sec, tv_nsec) = properties.mtime;
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn set_attributes(&self, path: &Path, properties: &Properties, is_directory: bool) {
        let user = self.abilities.further_user();
        let acl = properties.acl.map(|bits| acl(properties.mode, user, bits));
        let default_acl = acl.clone().filter(|_| properties.has_default_acl);
        let attributes = [
            ("user.note", &properties.attribute),
            (ACCESS_ACL, &acl),
            (DEFAULT_ACL, &default_acl),
        ];
        for (name, value) in attributes {
            match value {
                _ if name == DEFAULT_ACL && !is_directory => {}
                Some(value) => set_attribute(path, name, value).unwrap(),
                None => remove_attribute(path, name),
            }
        }
    }
}

impl FileContent {
    fn write(&self, path: &Path) {
        match self.data {
            Data::Bytes(len) => fs::write(path, noise(len, self.seed)).unwrap(),
            Data::Regions(regions) => {
                let file = File::create(path).unwrap();
                file.set_len((REGIONS * REGION_BYTES) as u64).unwrap();
                let data = noise(REGION_BYTES, self.seed);
                for region in (0..REGIONS).filter(|region| regions >> region & 1 == 1) {
                    let offset = (region * REGION_BYTES) as u64;
                    file.write_all_at(&data, offset).unwrap();
                }
            }
        }
    }
}
