//! The comparison of two trees.

use std::collections::{BTreeMap, BTreeSet};

use crate::renames::Rename;
use crate::tree::{Node, NodeKind, Tree, above};

/// What a copy may change at the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// If true, files that differ are replaced.
    pub overwrite: bool,
    /// If true, files that are newer at the target are left alone.
    pub update: bool,
    /// If true, nothing new is created.
    pub existing: bool,
    /// If true, nothing that exists is changed.
    pub ignore_existing: bool,
    /// If true, files of equal size are compared by their content, whatever their times.
    pub checksum: bool,
    /// If true, what the source does not have is removed.
    pub delete: bool,
}

impl PlanOptions {
    /// Returns true if files may be renamed: the old name would be removed, and the new one gets
    /// all that it has in the source.
    pub fn permits_renames(self) -> bool {
        self.delete && self.overwrite && !self.existing
    }
}

/// Change of one entry of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is created.
    Create,
    /// It is replaced.
    Replace,
    /// Its permissions or its time change.
    Adjust,
    /// Its content is compared, and replaced if it differs.
    Compare,
    /// It differs and stays, as the options do not permit to replace it.
    Refuse,
    /// It is removed, with all it holds.
    Remove,
}

/// Change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Path of the entry.
    pub path: Vec<u8>,
    /// The change.
    pub change: Change,
    /// Kind of the entry: in the source, or of what is removed.
    pub kind: NodeKind,
    /// Bytes of content that are copied or removed.
    pub bytes: u64,
    /// Number of entries: those that a removed directory holds are included.
    pub entries: u64,
}

/// The steps that make a target equal to a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Files that are renamed before the copy. The other steps take this for done.
    pub renames: Vec<Rename>,
    /// What is copied, by path. Directories precede their content.
    pub copies: Vec<Step>,
    /// What is removed before the copy, as something of another kind takes its place.
    pub obstacles: Vec<Step>,
    /// What is removed after the copy.
    pub removals: Vec<Step>,
    /// Number of files and links that are equal.
    pub unchanged: u64,
    /// Number of files and links that the options leave alone.
    pub skipped: u64,
}

impl Plan {
    /// Compares two trees.
    pub fn new(source: &Tree, target: &Tree, options: PlanOptions) -> Self {
        let mut plan = Self::default();
        let protected = protected(target);
        let mut in_the_way = BTreeSet::new();
        for (path, node) in source {
            let existing = target.get(path);
            let Some(mut change) = plan.compare(node, existing, options) else {
                continue;
            };
            if existing.is_some_and(|existing| is_obstacle(node, existing)) {
                match options.delete && !protected.contains(path.as_slice()) {
                    true => drop(in_the_way.insert(path.as_slice())),
                    false => change = Change::Refuse,
                }
            }
            plan.copies.push(copy_step(path, node, change));
        }
        plan.obstacles = remove(target, &protected, |path| in_the_way.contains(path));
        if options.delete {
            plan.removals = remove(target, &protected, |path| {
                !source.contains_key(path) && !above(path).any(|above| in_the_way.contains(above))
            });
        }
        plan
    }

    /// Returns everything that is removed.
    pub fn removed(&self) -> impl Iterator<Item = &Step> {
        self.obstacles.iter().chain(&self.removals)
    }

    /// Returns true if nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.renames.is_empty()
            && self.copies.is_empty()
            && self.obstacles.is_empty()
            && self.removals.is_empty()
    }

    /// Returns the change of one entry. `None` if it stays as it is.
    fn compare(
        &mut self,
        node: &Node,
        existing: Option<&Node>,
        options: PlanOptions,
    ) -> Option<Change> {
        if !node.is_taken || node.kind == NodeKind::Other {
            return None;
        }
        match existing {
            None if options.existing => self.skip(node),
            None => Some(Change::Create),
            Some(there) if there.kind == NodeKind::Directory && node.kind == there.kind => {
                let is_adjusted = options.overwrite && !has_same_metadata(node, there);
                is_adjusted.then_some(Change::Adjust)
            }
            Some(_) if options.ignore_existing => self.skip(node),
            Some(there) => self.compare_existing(node, there, options),
        }
    }

    /// Returns the change of a file or link that exists. `None` if it stays.
    fn compare_existing(
        &mut self,
        node: &Node,
        existing: &Node,
        options: PlanOptions,
    ) -> Option<Change> {
        let is_same_kind = existing.kind == node.kind;
        let has_same_time = node.modified.is_same(existing.modified);
        let is_newer_there = existing.modified.is_later(node.modified);
        if options.update && node.kind == NodeKind::File && is_same_kind && is_newer_there {
            self.skipped += 1;
            return None;
        }
        let has_same_content = is_same_kind
            && match node.kind {
                NodeKind::File => node.bytes == existing.bytes && has_same_time,
                _ => node.target == existing.target,
            };
        let may_be_same = options.checksum
            && is_same_kind
            && node.kind == NodeKind::File
            && node.bytes == existing.bytes;
        if may_be_same {
            return Some(Change::Compare);
        }
        match (has_same_content, options.overwrite) {
            (true, true) if !has_same_metadata(node, existing) => Some(Change::Adjust),
            (true, _) => {
                self.unchanged += 1;
                None
            }
            (false, true) => Some(Change::Replace),
            (false, false) => Some(Change::Refuse),
        }
    }

    fn skip(&mut self, node: &Node) -> Option<Change> {
        self.skipped += u64::from(node.kind != NodeKind::Directory);
        None
    }
}

fn copy_step(path: &[u8], node: &Node, change: Change) -> Step {
    let is_sent = matches!(change, Change::Create | Change::Replace);
    Step {
        path: path.to_vec(),
        change,
        kind: node.kind,
        bytes: if is_sent && node.kind == NodeKind::File {
            node.bytes
        } else {
            0
        },
        entries: 1,
    }
}

/// Returns true if `existing` has to be removed before `node` takes its place.
fn is_obstacle(node: &Node, existing: &Node) -> bool {
    let is_directory = |node: &Node| node.kind == NodeKind::Directory;
    is_directory(node) != is_directory(existing) || existing.kind == NodeKind::Other
}

fn has_same_metadata(node: &Node, existing: &Node) -> bool {
    // Links have no permissions of their own.
    let has_same_mode = node.kind == NodeKind::Symlink || node.mode == existing.mode;
    has_same_mode && node.modified.is_same(existing.modified)
}

/// Returns the directories that are not removed as a whole, as they hold entries that filters leave
/// out.
fn protected(target: &Tree) -> BTreeSet<&[u8]> {
    let holding = target.iter().filter(|(_, node)| node.holds_excluded);
    holding
        .flat_map(|(path, _)| above(path).chain([path.as_slice()]))
        .collect()
}

/// Returns the removal of what is chosen. What a removed directory holds is removed with it.
fn remove(
    target: &Tree,
    protected: &BTreeSet<&[u8]>,
    is_chosen: impl Fn(&[u8]) -> bool,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut whole = BTreeMap::<&[u8], usize>::new();
    for (path, node) in target {
        let removed_above = above(path).find_map(|above| whole.get(above));
        if let Some(step) = removed_above.and_then(|&at| steps.get_mut(at)) {
            step.bytes += node.bytes;
            step.entries += 1;
            continue;
        }
        if path.is_empty() || !is_chosen(path) || protected.contains(path.as_slice()) {
            continue;
        }
        whole.insert(path, steps.len());
        steps.push(Step {
            path: path.clone(),
            change: Change::Remove,
            kind: node.kind,
            bytes: node.bytes,
            entries: 1,
        });
    }
    steps
}
