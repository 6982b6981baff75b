//! Starts a worker as a user, with no other rights.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::Mode;
use rustix::process::{Gid, Uid, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
};

use super::user::LocalUser;

/// This program, also when another one was installed at its path meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Variables that the worker keeps. They concern its log.
const KEPT_VARIABLES: [&str; 2] = ["RUST_LOG", "LONGHAUL_LOG_FORMAT"];
/// First descriptor besides standard input, output and error.
const FIRST_OTHER_DESCRIPTOR: libc::c_uint = 3;
/// Permission bits that files of the worker do not get until it knows the account's umask.
const FIRST_UMASK: u32 = 0o077;

/// Starts a worker as `user`. Its standard input is `control`, which leads to the server.
pub(super) fn start(user: &LocalUser, control: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new(OWN_PROGRAM);
    command
        .args(["serve", "--worker"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null());
    for name in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    become_user(&mut command, user);
    command.spawn()
}

/// Has a child become `user` before it executes the program.
#[allow(
    unsafe_code,
    reason = "nothing else runs in the child before it is another program"
)]
fn become_user(command: &mut Command, user: &LocalUser) {
    let groups: Vec<Gid> = user
        .groups
        .iter()
        .map(|&group| Gid::from_raw(group))
        .collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    // SAFETY: system calls are all that is done between fork and exec. They take no lock and
    // allocate nothing; the groups were allocated before.
    unsafe {
        command.pre_exec(move || leave_root(uid, gid, &groups));
    }
}

/// Gives up root for good, and everything that this process has open.
fn leave_root(uid: Uid, gid: Gid, groups: &[Gid]) -> io::Result<()> {
    set_thread_groups(groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_no_new_privs(true)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    umask(Mode::from_raw_mode(FIRST_UMASK));
    close_others()?;
    // No capability is left, and the way back to root is closed.
    match capabilities(None)? == none && set_thread_uid(Uid::ROOT).is_err() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Has all descriptors except the first three closed by exec. Most are anyway; those that this
/// process inherited might not be.
#[allow(unsafe_code, reason = "rustix does not have this system call")]
fn close_others() -> io::Result<()> {
    // SAFETY: it sets a flag of descriptors, and no memory is passed.
    let closed = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_OTHER_DESCRIPTOR,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match closed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
