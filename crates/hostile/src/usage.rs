//! Resources of a process, as /proc reports them.

use std::fs;
use std::io;

/// Resources of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Open descriptors.
    pub descriptors: u64,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Maximum resident memory so far, in bytes.
    pub most_resident: u64,
    /// Processor time used so far, in seconds, by the program and by the kernel on its behalf.
    pub processor_seconds: f64,
}

impl Usage {
    /// Reads the resources of the process with this number.
    ///
    /// # Errors
    /// The process is gone, or belongs to another user.
    pub fn of(process: u32) -> io::Result<Self> {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"))?.count();
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or_default() * 1024
        };
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // After the name, which may contain anything, the 12th and 13th fields are user and system
        // time in ticks (proc(5)).
        let fields = stat
            .rsplit_once(')')
            .map(|(_, fields)| fields)
            .unwrap_or_default();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(Self {
            descriptors: descriptors as u64,
            resident: bytes("VmRSS:"),
            most_resident: bytes("VmHWM:"),
            processor_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_read() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.descriptors >= 3, "{usage:?}");
        assert!(
            usage.most_resident >= usage.resident && usage.resident > 1 << 20,
            "{usage:?}"
        );
        assert!(Usage::of(u32::MAX).is_err());
    }
}
