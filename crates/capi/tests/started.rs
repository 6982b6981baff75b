//! Tests that the library starts an on-ramp if none is running.

// a test that can't go on has failed; who listens at a socket is asked of the kernel
#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Installed, World, program};

/// The on-ramp that listens at a socket. It is nobody's child, and ends with the test.
struct Started(PathBuf);

impl Started {
    fn process(&self) -> Option<i32> {
        // SAFETY: a socket, an address and a buffer with the given lengths.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            let socket = std::os::fd::FromRawFd::from_raw_fd(socket);
            let socket: std::os::fd::OwnedFd = socket;
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (place, byte) in address
                .sun_path
                .iter_mut()
                .zip(self.0.as_os_str().as_encoded_bytes())
            {
                *place = byte.cast_signed();
            }
            let length = size_of::<libc::sockaddr_un>() as u32;
            if libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) != 0 {
                return None;
            }
            let mut peer: libc::ucred = std::mem::zeroed();
            let mut length = size_of::<libc::ucred>() as u32;
            let place = (&raw mut peer).cast();
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                place,
                &raw mut length,
            );
            Some(peer.pid)
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(process) = self.process().filter(|process| *process > 1) {
            // SAFETY: takes no pointer; the process answered at a path of this test.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    }
}

#[test]
fn the_library_starts_an_onramp_at_both_ends() {
    let Some(world) = World::new() else { return };
    let installed = Installed::get();
    let home = world.home();
    let [near, far] = ["near", "far"].map(|end| Started(home.join(end).join("onramp/socket")));
    let command = |machine: &str, name: &str, state: &str| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.c"));
        let flags = installed.flags(&["--cflags", "--libs"]);
        let example = installed.compile(name, &["-std=gnu99"], &[source], &flags);
        let mut command: Command = world.command(machine, &example);
        command
            .env_remove("LONGHAUL_ONRAMP")
            .env("LONGHAUL_HOME", &home)
            .env("LONGHAUL_STATE", home.join(state))
            .env("LONGHAUL_PROGRAM", program())
            .env("LD_LIBRARY_PATH", installed.path("lib"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    };
    let mut receiver = command(World::FAR, "receive", "far").spawn().unwrap();
    let mut reported = BufReader::new(receiver.stdout.take().unwrap());
    let mut line = String::new();
    reported.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(' ').next().unwrap().to_owned();
    let mut sender = command(World::NEAR, "send", "near")
        .args([&world.address(World::FAR), &port])
        .spawn()
        .unwrap();
    sender
        .stdin
        .take()
        .unwrap()
        .write_all(b"from one end to the other")
        .unwrap();
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"25 bytes, thank you\n");
    line.clear();
    reported.read_to_string(&mut line).unwrap();
    assert!(line.starts_with("25 bytes from lhk1:"), "{line}");
    assert!(receiver.wait().unwrap().success());
    // They outlive the programs that started them.
    assert!(near.process().is_some() && far.process().is_some());
}
