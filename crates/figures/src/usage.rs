//! Resources of a process and of the processes that it has started.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Resources of a process and its descendants at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeUsage {
    /// Memory in bytes. A page that several processes share is divided among them (`Pss`).
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Processor time used so far, in seconds, by the programs and by the kernel on their behalf.
    /// Includes descendants that have ended.
    pub cpu_seconds: f64,
}

impl TreeUsage {
    /// Reads the resources of `process` and its descendants. A descendant that ends meanwhile
    /// counts as far as it was read.
    ///
    /// # Errors
    /// `process` is gone, or belongs to another user.
    pub fn read(process: u32) -> Result<Self> {
        let context = || format!("the process {process} has ended");
        let mut all = Self::of_one(process).with_context(context)?;
        let mut waiting = children(process);
        while let Some(next) = waiting.pop() {
            waiting.extend(children(next));
            if let Ok(one) = Self::of_one(next) {
                all.memory += one.memory;
                all.descriptors += one.descriptors;
                all.cpu_seconds += one.cpu_seconds;
            }
        }
        Ok(all)
    }

    /// Reads only the processor time, which takes less time.
    ///
    /// # Errors
    /// As [`TreeUsage::read`].
    pub fn read_cpu_seconds(process: u32) -> Result<f64> {
        let context = || format!("the process {process} has ended");
        let mut sum = cpu_seconds(process).with_context(context)?;
        let mut waiting = children(process);
        while let Some(next) = waiting.pop() {
            waiting.extend(children(next));
            sum += cpu_seconds(next).unwrap_or(0.0);
        }
        Ok(sum)
    }

    fn of_one(process: u32) -> Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(Self {
            memory: kib.context("the kernel does not state the memory of processes")? * 1024,
            descriptors: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
            cpu_seconds: cpu_seconds(process)?,
        })
    }
}

/// Returns the processor time of a process and of its ended children, in seconds.
fn cpu_seconds(process: u32) -> Result<f64> {
    Ok(seconds(cpu_ticks(&process.to_string())?.iter().sum()))
}

/// Returns user and system time of a process, and those of its ended children, in ticks.
fn cpu_ticks(process: &str) -> Result<[u64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // After the name, which may contain anything, they are the 12th to 15th fields
    // (proc_pid_stat(5)).
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let fields = fields.unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    ticks.try_into().ok().context("it has no times")
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the processor time of the ended children of this process, in seconds. Includes their own
/// ended children.
///
/// # Errors
/// The kernel does not state it.
pub fn ended_children_cpu_seconds() -> Result<f64> {
    let ticks = cpu_ticks("self").context("cannot read the processor time of children")?;
    Ok(seconds(ticks[2..].iter().sum()))
}

/// Returns the running children of all threads of a process.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter();
    let lists = threads.flatten().flatten().map(|thread| thread.path());
    let read = |thread: PathBuf| fs::read_to_string(thread.join("children")).unwrap_or_default();
    lists
        .map(read)
        .flat_map(|list| {
            let numbers = list.split_ascii_whitespace().map(str::parse::<u32>);
            numbers.flatten().collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_count_towards_a_process() {
        let own = std::process::id();
        let alone = TreeUsage::read(own).unwrap();
        assert!(
            alone.memory > 1 << 20 && alone.descriptors >= 3,
            "{alone:?}"
        );
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(children(own).contains(&child.id()));
        let of_child = TreeUsage::read(child.id()).unwrap();
        assert!(of_child.descriptors >= 3, "{of_child:?}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(TreeUsage::read(u32::MAX).is_err());
    }

    #[test]
    fn ended_children_have_used_their_time() {
        let before = ended_children_cpu_seconds().unwrap();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = Command::new("sh").args(["-c", busy]).status().unwrap();
        assert!(status.success());
        assert!(ended_children_cpu_seconds().unwrap() > before);
    }
}
