//! A node's namespaces. A thread of its own creates them and stays in them, so that they live
//! exactly as long as the lab's process. Nothing is named in the file system, and nothing is left
//! after the process ends, however it ends.
#![allow(unsafe_code)] // Entering namespaces between fork and exec has no safe face.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use crate::error::{Error, Result, WhileDoing};

type NodeJob = Box<dyn FnOnce() + Send>;

/// The thread that holds a node's network and mount namespaces, and runs jobs inside them.
#[derive(Debug)]
pub(crate) struct NodeThread {
    jobs: Sender<NodeJob>,
    thread_id: i32,
}

impl NodeThread {
    /// Creates new namespaces, with `hosts` as their `/etc/hosts`. `scratch` is an empty directory
    /// for temporary mounts.
    pub(crate) fn start(node: &str, hosts: String, scratch: &Path) -> Result<Self> {
        let (jobs, inbox): (Sender<NodeJob>, Receiver<NodeJob>) = channel();
        let (ready, started) = channel();
        let scratch = scratch.to_owned();
        let body = move || {
            let made = leave_namespaces(&hosts, &scratch)
                .map(|()| rustix::thread::gettid().as_raw_nonzero().get());
            let good = made.is_ok();
            let _ = ready.send(made);
            if good {
                inbox.into_iter().for_each(|job| job());
            }
        };
        // A kernel thread name has at most 15 bytes; std truncates longer ones.
        thread::Builder::new()
            .name(format!("node {node}"))
            .spawn(body)
            .while_doing(|| format!("node {node}: starting its thread"))?;
        let thread_id = started.recv().map_err(|_| Error::System {
            doing: format!("node {node}: making its namespaces"),
            source: io::Error::other("its thread died"),
        })??;
        Ok(NodeThread { jobs, thread_id })
    }

    /// Runs `job` inside the namespaces and waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = channel();
        let gone = || Error::System {
            doing: "running inside a node".to_owned(),
            source: io::Error::other("its thread died"),
        };
        self.jobs
            .send(Box::new(move || {
                let _ = answer.send(job());
            }))
            .map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }

    /// Returns the kernel's id of the thread: `/proc/PID/task/ID/ns` has the namespaces.
    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id
    }
}

/// Leaves the process's namespaces, for this thread only.
fn leave_namespaces(hosts: &str, scratch: &Path) -> Result<()> {
    // SAFETY: a new network and mount namespace (with a file-system context of the thread's own)
    // leaves every file descriptor as it is; nothing else in the process relies on this thread's.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }
        .map_err(|error| Error::NoNamespaces(io::Error::from(error).to_string()))?;
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .while_doing(|| "making a node's mounts private".to_owned())?;
    private_names(hosts, scratch).while_doing(|| "giving a node its own /etc/hosts".to_owned())
}

/// Mounts a private file over `/etc/hosts`, and an empty one over `/etc/resolv.conf`. An unknown
/// name then fails at once, instead of waiting for a name server that the lab cannot reach.
fn private_names(hosts: &str, scratch: &Path) -> io::Result<()> {
    let no_data: Option<&CStr> = None;
    rustix::mount::mount(
        "wanbed",
        scratch,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        no_data,
    )?;
    for (file, content) in [("/etc/hosts", hosts), ("/etc/resolv.conf", "")] {
        // If it is a symbolic link (systemd-resolved), its target is covered. If it does not exist,
        // nothing is needed.
        if let Ok(target) = std::fs::canonicalize(file) {
            let own = scratch.join("file");
            std::fs::write(&own, content)?;
            rustix::mount::mount_bind(&own, &target)?;
            std::fs::remove_file(&own)?; // the mount keeps it
        }
    }
    rustix::mount::unmount(scratch, UnmountFlags::DETACH)?;
    Ok(())
}

/// Returns lines for `/etc/hosts` that name every node.
pub(crate) fn hosts_file<'a>(nodes: impl Iterator<Item = (IpAddr, &'a str)>) -> String {
    let lines = nodes.map(|(address, name)| format!("{address} {name}\n"));
    std::iter::once("127.0.0.1 localhost\n".to_owned())
        .chain(lines)
        .collect()
}

/// Enters a new user namespace in which the user is root, for users who are not root. Only possible
/// while the process has one thread.
pub(crate) fn become_root_of_own_namespace() -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let refused =
        |error: io::Error| Error::NoNamespaces(format!("making a user namespace: {error}"));
    // SAFETY: called before any other thread is started; file descriptors stay as they are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
        .map_err(|error| refused(error.into()))?;
    std::fs::write("/proc/self/setgroups", "deny").map_err(refused)?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", uid.as_raw())).map_err(refused)?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", gid.as_raw())).map_err(refused)
}

/// Open namespaces of a node of another process, ready to be entered.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// User namespace; `None` if the lab runs in the caller's own.
    user: Option<OwnedFd>,
    network: OwnedFd,
    mount: OwnedFd,
}

impl Entrance {
    /// Opens the namespaces of thread `thread` of process `process`.
    pub(crate) fn open(process: u32, thread: i32) -> io::Result<Self> {
        let open = |kind: &str| File::open(format!("/proc/{process}/task/{thread}/ns/{kind}"));
        let user = open("user")?;
        let own = std::fs::metadata("/proc/self/ns/user")?;
        let same = user.metadata()?.ino() == own.ino();
        Ok(Entrance {
            user: (!same).then(|| user.into()),
            network: open("net")?.into(),
            mount: open("mnt")?.into(),
        })
    }

    /// Makes `command` start in the namespaces, in the working directory of the caller.
    pub(crate) fn start_inside(self, command: &mut Command) {
        let enter = move || {
            let mut directory = [0_u8; 4096];
            // SAFETY: the kernel writes at most the buffer's length, including the NUL.
            let known =
                unsafe { !libc::getcwd(directory.as_mut_ptr().cast(), directory.len()).is_null() };
            for namespace in self.user.iter().chain([&self.network, &self.mount]) {
                // SAFETY: an open namespace file; the process has one thread, as `setns` into a
                // user namespace requires.
                if unsafe { libc::setns(namespace.as_fd().as_raw_fd(), 0) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // Entering a mount namespace leads to its root directory.
            // SAFETY: a string that `getcwd` closed with a zero.
            if known && unsafe { libc::chdir(directory.as_ptr().cast()) } < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { command.pre_exec(enter) };
    }
}

/// Makes `command` end with the thread that starts it, even if that is killed. Only for the main
/// thread of a program: the kernel watches the thread, not the process.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let tie = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        // The parent may have ended just before.
        let orphaned = rustix::process::getppid()
            .is_none_or(|found| found.as_raw_nonzero().get().cast_unsigned() != parent);
        if orphaned {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        } else {
            Ok(())
        }
    };
    // SAFETY: two system calls; nothing is allocated or locked.
    unsafe { command.pre_exec(tie) };
}
