//! Starting a program in a network namespace of its own, whose only interface besides loopback is a
//! TUN device.
#![allow(unsafe_code)] // Making namespaces between fork and exec has no safe face.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change};
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, UnshareFlags};

use tempfile::NamedTempFile;

use crate::error::{IsolateError, SetupStep};
use crate::resolvers::Resolvers;
use crate::{device, hand_over};

/// Path of the system's list of name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Maximum number of bytes of it that are read.
const MAX_RESOLV_CONF: u64 = 64 * 1024;
/// Sockets by which the C library looks up names through a service of the host. They are covered,
/// so that it asks the name servers, whose answers are seen.
const NAME_SERVICES: [&str; 2] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/nscd/socket",
];

/// Source of a program's packets. The network exists as long as this value.
#[derive(Debug)]
pub struct ProgramNetwork {
    pub(crate) device: OwnedFd,
    pub(crate) resolvers: Resolvers,
    /// The program's `/etc/resolv.conf`. It keeps its name, because another one could not be
    /// mounted over a nameless file.
    pub(crate) resolv_conf: NamedTempFile,
}

/// Returns true if a user namespace is needed, because the caller may not create other namespaces
/// without.
#[must_use]
pub fn needs_user_namespace() -> bool {
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    !rustix::thread::capabilities(None).is_ok_and(|own| own.effective.contains(wanted))
}

/// Starts the program. It is killed when this process ends, and keeps user, groups, directory and
/// terminal of the caller. To be called by the main thread, while there is no other.
///
/// # Errors
/// [`IsolateError`]; there is no program then.
pub fn start(mut command: Command) -> Result<(Child, ProgramNetwork), IsolateError> {
    let alone = fs::read_dir("/proc/self/task").map(|tasks| tasks.count() == 1);
    if !alone.unwrap_or(false) {
        return Err(IsolateError::Failed(
            "started by one of many threads",
            io::ErrorKind::Other.into(),
        ));
    }
    let failed = |what| move |error| IsolateError::Failed(what, error);
    let resolvers = Resolvers::read(&resolv_conf(), |name| device::interface_index(name).ok());
    let mut inside = NamedTempFile::with_prefix("longhaul-resolv-")
        .map_err(failed("its resolv.conf: see TMPDIR"))?;
    inside
        .write_all(resolvers.text.as_bytes())
        .and_then(|()| fs::set_permissions(inside.path(), Permissions::from_mode(0o644)))
        .map_err(failed("its resolv.conf: see TMPDIR"))?;
    let (ours, theirs) = hand_over::pair().map_err(failed("a socket"))?;
    let place = ChildSetup {
        user: needs_user_namespace(),
        numbers: (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        ),
        resolv_conf: inside.path().to_owned(),
        parent: theirs,
        caller: std::process::id(),
    };
    // SAFETY: this process has one thread, so its child may do whatever it may.
    unsafe { command.pre_exec(move || place.enter()) };
    let spawned = command.spawn();
    match (spawned, hand_over::take(&ours)) {
        (Ok(child), Some(Ok(device))) => Ok((
            child,
            ProgramNetwork {
                device,
                resolvers,
                resolv_conf: inside,
            },
        )),
        (Ok(mut child), _) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(IsolateError::Failed(
                "its device is lost",
                io::ErrorKind::Other.into(),
            ))
        }
        (Err(_), Some(Err(error))) => Err(error),
        (Err(error), _) => Err(IsolateError::NotStarted(error)),
    }
}

fn resolv_conf() -> String {
    use std::io::Read;
    let mut text = Vec::new();
    if let Ok(file) = fs::File::open(RESOLV_CONF) {
        let _ = file.take(MAX_RESOLV_CONF).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Setup that the child makes before it becomes the program.
struct ChildSetup {
    user: bool,
    resolv_conf: PathBuf,
    /// User and group of the caller.
    numbers: (u32, u32),
    parent: OwnedFd,
    caller: u32,
}

impl ChildSetup {
    fn enter(&self) -> io::Result<()> {
        self.make().map_err(|(step, error)| {
            hand_over::fail(&self.parent, step, &error);
            error
        })
    }

    fn make(&self) -> Result<(), (SetupStep, io::Error)> {
        let at = |step| move |error| (step, error);
        self.namespaces().map_err(at(SetupStep::Namespaces))?;
        if self.user {
            self.keep_user().map_err(at(SetupStep::Users))?;
        }
        self.mounts().map_err(at(SetupStep::Mounts))?;
        let device = device::create().map_err(at(SetupStep::Device))?;
        device::configure().map_err(at(SetupStep::Addresses))?;
        hand_over::give(&self.parent, &device).map_err(at(SetupStep::HandOver))?;
        // Last, because a change of privileges undoes it.
        self.end_with_caller().map_err(at(SetupStep::HandOver))
    }

    fn namespaces(&self) -> io::Result<()> {
        let mut flags = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
        if self.user {
            flags |= UnshareFlags::NEWUSER;
        }
        // SAFETY: one thread; descriptors stay as they are.
        Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
    }

    /// Maps only the caller's own user and group: user_namespaces(7) allows that to everybody.
    fn keep_user(&self) -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        let (uid, gid) = self.numbers;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    fn mounts(&self) -> io::Result<()> {
        // Later mounts of the host are seen here, but not the reverse.
        let changes = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", changes)?;
        // If it is a symbolic link, its target is covered. If it does not exist, nothing can be
        // covered.
        if let Ok(target) = fs::canonicalize(RESOLV_CONF) {
            mount_over(&self.resolv_conf, &target)?;
        }
        for socket in NAME_SERVICES
            .map(Path::new)
            .into_iter()
            .filter(|socket| socket.exists())
        {
            mount_bind("/dev/null", socket)?;
        }
        Ok(())
    }

    fn end_with_caller(&self) -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended just before.
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
        if parent != i32::try_from(self.caller).ok() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    }
}

/// Mounts a file over another one.
fn mount_over(with: &Path, target: &Path) -> io::Result<()> {
    match mount_bind(with, target) {
        // It is already covered by a file without a name: nothing can be mounted over that, but it
        // can be replaced.
        Err(rustix::io::Errno::NOENT) => {
            rustix::mount::unmount(target, UnmountFlags::DETACH)?;
            Ok(mount_bind(with, target)?)
        }
        result => Ok(result?),
    }
}
