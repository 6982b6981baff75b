//! Which copies make up the demonstration and the full figures.

use crate::paper::LSL_SIZES;
use crate::setting::{self, Mnemonic, Setting, Way};

/// One cell: a setting and a size, measured both ways with every seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What is measured.
    pub setting: Setting,
    /// Bytes of the file.
    pub bytes: u64,
    /// Seeds, shared by both ways.
    pub seeds: std::ops::RangeInclusive<u64>,
}

/// One copy to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is measured.
    pub setting: Setting,
    /// Bytes of the file.
    pub bytes: u64,
    /// Which way.
    pub way: Way,
    /// Seed of the losses.
    pub seed: u64,
}

const MIB: u64 = 1 << 20;

/// Size of the copies between untuned hosts: the window binds from the first round trips on, so a longer copy
/// says nothing more.
pub const UNTUNED_BYTES: u64 = 16 * MIB;

/// Size of the copies between hosts with large buffers: several loss events in each.
pub const TUNED_BYTES: u64 = 512 * MIB;

/// The same for as long as the MNEMONIC paper's shortest timed transfer: 10 s at 1 Gbit/s. Slow start weighs less in it.
pub const TUNED_BYTES_10S: u64 = 1192 * MIB;

/// The congestion controls that are compared between tuned hosts.
pub const CONGESTION: [&str; 3] = ["reno", "cubic", "bbr"];

/// The two LSL paths between hosts with 8 MB: every size of the paper.
pub fn lsl(seeds: u64) -> Vec<Cell> {
    every_size(&[setting::anl_utk(), setting::ucsd_utk()], seeds)
}

/// LSL path 2 between hosts with 64 KB.
pub fn lsl_64k(seeds: u64) -> Vec<Cell> {
    every_size(&[setting::ucsd_utk_64k()], seeds)
}

fn every_size(settings: &[Setting], seeds: u64) -> Vec<Cell> {
    let cell = |setting: &Setting, bytes| Cell {
        setting: setting.clone(),
        bytes,
        seeds: 1..=seeds,
    };
    settings
        .iter()
        .flat_map(|setting| LSL_SIZES.into_iter().rev().map(move |bytes| cell(setting, bytes)))
        .collect()
}

/// MNEMONIC between untuned hosts.
pub fn untuned(seeds: u64) -> Vec<Cell> {
    [Mnemonic::Short, Mnemonic::Long]
        .map(|path| Cell {
            setting: setting::mnemonic_untuned(path),
            bytes: UNTUNED_BYTES,
            seeds: 1..=seeds,
        })
        .into()
}

/// MNEMONIC between tuned hosts, one stream.
pub fn tuned(seeds: u64) -> Vec<Cell> {
    [Mnemonic::Short, Mnemonic::Long]
        .into_iter()
        .flat_map(|path| {
            CONGESTION.into_iter().flat_map(move |congestion| {
                [TUNED_BYTES, TUNED_BYTES_10S].map(|bytes| Cell {
                    setting: setting::mnemonic_tuned(path, congestion),
                    bytes,
                    seeds: 1..=seeds,
                })
            })
        })
        .collect()
}

/// The null result: a clean path with large buffers.
pub fn clean(seeds: u64) -> Vec<Cell> {
    vec![Cell {
        setting: setting::clean_long(),
        bytes: TUNED_BYTES,
        seeds: 1..=seeds,
    }]
}

/// The copies of some cells, the heavy ones together, so that light ones can run beside each other.
pub fn jobs(cells: &[Cell]) -> Vec<Job> {
    let mut jobs: Vec<Job> = cells
        .iter()
        .flat_map(|cell| {
            cell.seeds.clone().flat_map(move |seed| {
                Way::BOTH.map(|way| Job {
                    setting: cell.setting.clone(),
                    bytes: cell.bytes,
                    way,
                    seed,
                })
            })
        })
        .collect();
    jobs.sort_by(|a, b| a.setting.load(a.way).total_cmp(&b.setting.load(b.way)));
    jobs
}
