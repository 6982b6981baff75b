//! Processors and limits of the process.

use rustix::process::{Resource, getrlimit};

use super::{cipher, sysctl};
use crate::fact::Fact;
use crate::facts::Processors;

pub(super) fn read() -> Processors {
    Processors {
        cores: std::thread::available_parallelism()
            .map(|n| n.get() as u64)
            .into(),
        aes: aes(),
        governor: governor(),
        ciphers: cipher::measure(),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
fn aes() -> Fact<bool> {
    Fact::Known(std::is_x86_feature_detected!("aes"))
}

#[cfg(target_arch = "aarch64")]
fn aes() -> Fact<bool> {
    Fact::Known(std::arch::is_aarch64_feature_detected!("aes"))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
fn aes() -> Fact<bool> {
    Fact::unknown("not checked on this kind of processor")
}

fn governor() -> Fact<crate::fact::CommandName> {
    let file = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    sysctl::read_file(file)
        .map_err(|_| "the system does not govern the frequency (a guest, most likely)".to_owned())
        .and_then(|text| sysctl::name(&text))
        .into()
}

/// Returns the maximum number of files that a process may have open.
pub(super) fn descriptors() -> Fact<u64> {
    Fact::Known(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX))
}
