//! File systems for tests, mounted by FUSE from images and directories of the stage.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{program, write_program};
use crate::stage::Stage;

/// A mounted file system, unmounted on drop.
pub struct Mount {
    at: PathBuf,
}

/// A kind of file system that some kernels support only through FUSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Without `RENAME_NOREPLACE` and hard links; case-insensitive, times in seconds.
    Exfat,
    /// Without `RENAME_NOREPLACE`; times in steps of 100 ns, names that Windows permits.
    Ntfs,
    /// The same, case-insensitive.
    LowNtfs,
    /// Another view of a directory.
    Bindfs,
    /// A directory through SFTP: times in seconds.
    Sshfs,
}

impl Kind {
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Exfat => &["mkfs.exfat", "mount.exfat-fuse", "losetup"],
            Self::Ntfs => &["mkfs.ntfs", "ntfs-3g", "losetup"],
            Self::LowNtfs => &["mkfs.ntfs", "lowntfs-3g", "losetup"],
            Self::Bindfs => &["bindfs"],
            Self::Sshfs => &["sshfs"],
        }
    }
}

/// The program of the package openssh-sftp-server, which speaks SFTP on its standard input.
const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

impl Mount {
    /// Mounts a new file system of this kind at `at`. Prints why and returns `None` if this machine
    /// cannot.
    pub fn new(stage: &Stage, kind: Kind, at: &str) -> Option<Self> {
        if let Some(reason) = missing(kind) {
            eprintln!("not tested on {kind:?}: {reason}");
            return None;
        }
        let below = stage.path(&format!("below-{at}"));
        let at = stage.path(at);
        std::fs::create_dir_all(&at).unwrap();
        let program = |name: &str| Command::new(program(name).unwrap());
        match kind {
            Kind::Exfat | Kind::Ntfs | Kind::LowNtfs => {
                let image = std::fs::File::create(&below).unwrap();
                image.set_len(200 << 20).unwrap();
                let [make, mount, _] = kind.programs() else {
                    unreachable!("one makes, the other mounts");
                };
                let quick: &[&str] = if kind == Kind::Exfat {
                    &[]
                } else {
                    &["-Q", "-F"]
                };
                run(program(make).args(quick).arg(&below));
                let options: &[&str] = match kind {
                    Kind::Ntfs => &["-o", "windows_names"],
                    Kind::LowNtfs => &["-o", "ignore_case"],
                    _ => &[],
                };
                let device = LoopDevice::new(&below);
                run(program(mount)
                    .args(options)
                    .args([Path::new(&device.0), &at]));
            }
            Kind::Bindfs => {
                std::fs::create_dir(&below).unwrap();
                run(program("bindfs").args([&below, &at]));
            }
            Kind::Sshfs => {
                std::fs::create_dir(&below).unwrap();
                // A replacement for ssh: SFTP on standard input and output, for any arguments.
                let ssh = stage.path("sftp");
                write_program(&ssh, &format!("#!/bin/sh\nexec {SFTP_SERVER}\n"));
                let mut remote = std::ffi::OsString::from("here:");
                remote.push(&below);
                let command = format!("ssh_command={}", ssh.display());
                run(program("sshfs").arg("-o").arg(command).arg(remote).arg(&at));
            }
        }
        Some(Self { at })
    }

    /// Returns true if the driver has ended by itself.
    pub fn has_ended(&self) -> bool {
        let there = std::fs::read_dir(&self.at);
        there.is_err_and(|error| error.kind() == std::io::ErrorKind::NotConnected)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |options: &[&str]| {
            let status = Command::new("umount").args(options).arg(&self.at).status();
            status.is_ok_and(|status| status.success())
        };
        // A process that is ending may still use it.
        let _ = unmount(&[]) || unmount(&["--lazy"]);
    }
}

/// A block device with the content of a file. Detached when its file system is unmounted, or on
/// drop without one.
struct LoopDevice(String);

impl LoopDevice {
    fn new(image: &Path) -> Self {
        let mut losetup = Command::new(program("losetup").unwrap());
        let output = losetup
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(Command::new(program("losetup").unwrap()).args(["--detach", &self.0]));
    }
}

/// Returns the reason why file systems of this kind cannot be mounted here.
fn missing(kind: Kind) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount".into());
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse".into());
    }
    let is_on_disk = !matches!(kind, Kind::Bindfs | Kind::Sshfs);
    if is_on_disk && !Path::new("/dev/loop-control").exists() {
        return Some("there is no /dev/loop-control".into());
    }
    if kind == Kind::Sshfs && !Path::new(SFTP_SERVER).exists() {
        return Some(format!("there is no {SFTP_SERVER}"));
    }
    let program = kind
        .programs()
        .iter()
        .find(|name| program(name).is_none())?;
    Some(format!("there is no {program} (`make deps` installs it)"))
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
}
