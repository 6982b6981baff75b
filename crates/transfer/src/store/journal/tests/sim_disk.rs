//! A directory on a disk that keeps, in a power failure, only what was synced, and any part of the
//! rest.
//!
//! Each unsynced write may be there or not: whole, torn, or as zeros, in any order. Of names that
//! were created, changed or removed, any subset may be. This is harsher than any file system that
//! keeps its own order. The numbers of removed files are reused at once.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Random;
use crate::store::journal::{Found, Named, Storage};

#[derive(Clone, Default)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<OsString, u64>,
    durable_names: BTreeMap<OsString, u64>,
    /// Unsynced changes of names. Each is atomic.
    unsynced_names: Vec<Vec<(OsString, Option<u64>)>>,
    /// File that has a lock on each inode.
    locks: HashMap<u64, u64>,
    /// Inode of each open file.
    open: HashMap<u64, u64>,
    counter: u64,
    steps: u32,
    /// Step at which the process ends, or the power fails.
    last_step: Option<u32>,
    pub trouble: Trouble,
}

/// A fault that does not end the process.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    #[default]
    None,
    DiskFull,
    SyncFails,
}

#[derive(Default, Clone)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Size(size) => bytes.resize(*size, 0),
        }
    }
}

/// An open file. Closing it releases its lock, as at the end of a process.
pub(super) struct SimFile {
    disk: SimDisk,
    id: u64,
    inode: u64,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        state.open.remove(&self.id);
        if state.locks.get(&self.inode) == Some(&self.id) {
            state.locks.remove(&self.inode);
        }
    }
}

impl SimDisk {
    /// Ends the process with its `step`-th change from now on. The change may still happen.
    pub(super) fn end_at(&self, step: Option<u32>) {
        let mut state = self.0.lock();
        state.steps = 0;
        state.last_step = step;
    }

    /// Returns the number of changes and syncs since [`Self::end_at`].
    pub(super) fn steps(&self) -> u32 {
        self.0.lock().steps
    }

    pub(super) fn set_trouble(&self, trouble: Trouble) {
        self.0.lock().trouble = trouble;
    }

    /// Loses unsynced data.
    pub(super) fn fail_power(&self, random: &mut Random) {
        let mut state = self.0.lock();
        assert!(state.open.is_empty(), "the processes have ended");
        for inode in state.inodes.values_mut() {
            let mut unsynced = std::mem::take(&mut inode.unsynced);
            random.shuffle(&mut unsynced);
            for mut change in unsynced {
                if let Change::Write(_, data) = &mut change {
                    match random.below(4) {
                        0 => data.truncate(random.below(data.len())),
                        1 => data.fill(0),
                        _ => {}
                    }
                }
                if random.below(2) == 0 {
                    change.apply(&mut inode.durable);
                }
            }
            inode.now = inode.durable.clone();
        }
        let state = &mut *state;
        for changes in std::mem::take(&mut state.unsynced_names) {
            if random.below(2) == 0 {
                change_names(&mut state.durable_names, &changes);
            }
        }
        state.names = state.durable_names.clone();
        let names = &state.names;
        state
            .inodes
            .retain(|number, _| names.values().any(|named| named == number));
    }

    /// Returns the content under a name.
    pub(super) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.0.lock();
        let inode = state.names.get(OsStr::new(name))?;
        Some(state.inodes[inode].now.clone())
    }

    pub(super) fn names(&self) -> Vec<String> {
        let state = self.0.lock();
        state
            .names
            .keys()
            .map(|name| name.to_str().unwrap().to_owned())
            .collect()
    }

    /// Counts a step. Returns false if it is the last, whose caller does not learn of it.
    fn step(state: &mut State) -> Result<bool, Errno> {
        if state.last_step.is_some_and(|last| state.steps >= last) {
            return Err(Errno::IO);
        }
        state.steps += 1;
        Ok(state.last_step != Some(state.steps))
    }

    fn change(&self, file: &SimFile, change: Change) -> Result<(), Errno> {
        let mut state = self.0.lock();
        let goes_on = Self::step(&mut state)?;
        if state.trouble == Trouble::DiskFull {
            return Err(Errno::NOSPC);
        }
        let inode = state.inodes.get_mut(&file.inode).unwrap();
        change.apply(&mut inode.now);
        inode.unsynced.push(change);
        if goes_on { Ok(()) } else { Err(Errno::IO) }
    }

    fn change_names(
        &self,
        changes: Vec<(OsString, Option<u64>)>,
        state: &mut State,
    ) -> Result<(), Errno> {
        let goes_on = Self::step(state)?;
        change_names(&mut state.names, &changes);
        state.unsynced_names.push(changes);
        if goes_on { Ok(()) } else { Err(Errno::IO) }
    }

    fn open(&self, inode: u64, state: &mut State) -> SimFile {
        state.counter += 1;
        let id = state.counter;
        state.open.insert(id, inode);
        SimFile {
            disk: self.clone(),
            id,
            inode,
        }
    }
}

fn change_names(names: &mut BTreeMap<OsString, u64>, changes: &[(OsString, Option<u64>)]) {
    for (name, inode) in changes {
        match inode {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}

impl Storage for SimDisk {
    type File = SimFile;

    fn create_new(&self, name: &OsStr) -> Result<SimFile, Errno> {
        let mut state = self.0.lock();
        if state.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if state.trouble == Trouble::DiskFull {
            return Err(Errno::NOSPC);
        }
        let unsynced = state
            .unsynced_names
            .iter()
            .flatten()
            .filter_map(|(_, inode)| *inode);
        let used: Vec<u64> = state
            .names
            .values()
            .chain(state.durable_names.values())
            .copied()
            .chain(unsynced)
            .collect();
        let is_free = |number: &u64| {
            !used.contains(number) && !state.open.values().any(|open| open == number)
        };
        let number = (1..).find(is_free).unwrap();
        state.inodes.insert(number, Inode::default());
        self.change_names(vec![(name.to_owned(), Some(number))], &mut state)?;
        Ok(self.open(number, &mut state))
    }

    fn open_own(&self, name: &OsStr) -> Result<Found<SimFile>, Errno> {
        let mut state = self.0.lock();
        match state.names.get(name).copied() {
            None => Ok(Found::Missing),
            Some(inode) => Ok(Found::Own(self.open(inode, &mut state))),
        }
    }

    fn lock(&self, file: &SimFile) -> Result<bool, Errno> {
        Ok(*self.0.lock().locks.entry(file.inode).or_insert(file.id) == file.id)
    }

    fn is_named(&self, file: &SimFile, name: &OsStr) -> Result<bool, Errno> {
        Ok(self.0.lock().names.get(name) == Some(&file.inode))
    }

    fn named(&self, name: &OsStr) -> Result<Option<Named>, Errno> {
        let state = self.0.lock();
        Ok(state.names.get(name).map(|inode| Named {
            inode: *inode,
            size: state.inodes[inode].now.len() as u64,
        }))
    }

    fn size(&self, file: &SimFile) -> Result<u64, Errno> {
        Ok(self.0.lock().inodes[&file.inode].now.len() as u64)
    }

    fn set_size(&self, file: &SimFile, size: u64) -> Result<(), Errno> {
        self.change(file, Change::Size(size as usize))
    }

    fn clear(&self, file: &SimFile, start: u64, end: u64) -> Result<(), Errno> {
        self.change(
            file,
            Change::Write(start as usize, vec![0; (end - start) as usize]),
        )
    }

    fn read(&self, file: &SimFile, limit: usize) -> Result<Vec<u8>, Errno> {
        let bytes = &self.0.lock().inodes[&file.inode].now;
        Ok(bytes[..bytes.len().min(limit)].to_vec())
    }

    fn read_back(&self, file: &SimFile, bytes: &mut [u8], offset: u64) -> Result<bool, Errno> {
        let there = &self.0.lock().inodes[&file.inode].now;
        let Some(there) = there.get(offset as usize..offset as usize + bytes.len()) else {
            return Ok(false);
        };
        bytes.copy_from_slice(there);
        Ok(true)
    }

    fn write_at(&self, file: &SimFile, data: &[u8], offset: u64) -> Result<(), Errno> {
        self.change(file, Change::Write(offset as usize, data.to_vec()))
    }

    fn sync_data(&self, file: &SimFile) -> Result<(), Errno> {
        let mut state = self.0.lock();
        if !Self::step(&mut state)? || state.trouble == Trouble::SyncFails {
            return Err(Errno::IO);
        }
        let inode = state.inodes.get_mut(&file.inode).unwrap();
        for change in std::mem::take(&mut inode.unsynced) {
            change.apply(&mut inode.durable);
        }
        Ok(())
    }

    fn sync_all(&self, file: &SimFile) -> Result<(), Errno> {
        self.sync_data(file)
    }

    fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> Result<(), Errno> {
        let mut state = self.0.lock();
        if !replace && state.names.contains_key(to) {
            return Err(Errno::EXIST);
        }
        let inode = *state.names.get(from).ok_or(Errno::NOENT)?;
        self.change_names(
            vec![(from.to_owned(), None), (to.to_owned(), Some(inode))],
            &mut state,
        )
    }

    fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        let mut state = self.0.lock();
        if !state.names.contains_key(name) {
            return Err(Errno::NOENT);
        }
        self.change_names(vec![(name.to_owned(), None)], &mut state)
    }

    fn sync_dir(&self) -> Result<(), Errno> {
        let mut state = self.0.lock();
        if !Self::step(&mut state)? || state.trouble == Trouble::SyncFails {
            return Err(Errno::IO);
        }
        let state = &mut *state;
        for changes in std::mem::take(&mut state.unsynced_names) {
            change_names(&mut state.durable_names, &changes);
        }
        Ok(())
    }

    fn unique(&self) -> Result<[u8; 16], Errno> {
        let mut state = self.0.lock();
        state.counter += 1;
        Ok(u128::from(state.counter).to_be_bytes())
    }
}
