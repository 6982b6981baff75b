//! Sockets that are open before the program: by socket activation (sd_listen_fds(3)).

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use crate::stage::{Service, Stage, errors};

/// Starts a server on an open socket, as systemd does.
fn serve_on(stage: &Stage, socket: &TcpListener, more: &[&str]) -> Service {
    let key = stage.key("me");
    let address = socket.local_addr().unwrap().to_string();
    let program = stage.longhaul("server");
    // Systemd passes descriptor 3 on; here it is the shell's standard input.
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&0",
            "sh",
        ])
        .arg(program.get_program())
        .envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(stage.tmp.path())
        .stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap())))
        .args([
            "serve", "--root", "root", "--listen", &address, "--write", &key,
        ])
        .args(more);
    stage.service(command, "address")
}

#[test]
fn a_server_takes_over_the_socket_of_systemd() {
    let stage = Stage::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = serve_on(&stage, &socket, &["--no-quic"]);
    assert_eq!(server.address, socket.local_addr().unwrap().to_string());
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let copied = stage.cp(&server, &["here/f", &format!("lh://{}/f", server.address)]);
    assert!(copied.status.success(), "{}", errors(&copied));
}

/// A copy that begins while the server restarts waits in the socket, and one that is under way
/// continues.
#[test]
fn no_copy_ends_when_the_server_restarts() {
    let stage = Stage::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = serve_on(&stage, &socket, &["--no-quic"]);
    let data = stage.noise("here/data", 32 << 20);
    let depot = stage.depot("slow", Some("8 Mbit/s"));
    let target = format!("lh://{}/data", server.address);
    let arguments = ["--route", &depot.address, "here/data", &target];
    let mut copy = stage.start_patient_cp(&server, &arguments);
    copy.until_mid_copy();
    let (address, key) = (server.address.clone(), server.key.clone());
    assert_eq!(server.terminate(), Some(0));
    // Nobody accepts now. The connection waits.
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let mut waiting = stage.longhaul("me");
    waiting.args([
        "cp",
        "--host-key",
        &key,
        "here/f",
        &format!("lh://{address}/f"),
    ]);
    let waiting = waiting.spawn().unwrap();
    let server = serve_on(&stage, &socket, &["--no-quic"]);
    let waited = waiting.wait_with_output().unwrap();
    assert!(waited.status.success());
    stage.set_depot_rate("slow", &depot, None);
    let (report, code, said) = copy.report();
    assert_eq!(code, Some(0), "{report} {said}");
    assert_eq!(std::fs::read(stage.path("root/data")).unwrap(), data);
    drop(server);
}
