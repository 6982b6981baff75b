//! Tests of mode *routes*, with programs that print everything they see of it, and with an on-ramp
//! of the tests.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod filters;
#[allow(dead_code, reason = "shared with the tests of the command")]
mod onramp;
#[allow(dead_code, reason = "shared with the tests of the commands")]
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use onramp::{OnRamp, routed_sources};
use support::{OBJECT, reported, succeeded};

struct Programs {
    folder: tempfile::TempDir,
}

static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
    let programs = Programs {
        folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    };
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(programs.path("routed"))
        .args(routed_sources());
    succeeded(&mut cc);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(programs.path("resolves.so"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/routes/resolves.c"));
    succeeded(&mut cc);
    programs
});

impl Programs {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Returns a command of the program that is killed if it hangs.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--signal", "KILL", "120"])
        .arg(PROGRAMS.path("routed"))
        .args(words);
    command
}

/// Returns a command of the program on routes.
fn routed(onramp: &OnRamp, mode: &str, words: &[&str]) -> Command {
    let mut command = command(words);
    command
        .env("LD_PRELOAD", &*OBJECT)
        .env("LONGHAUL_ROUTES", mode)
        .env("LONGHAUL_ONRAMP", &onramp.socket)
        .env("LONGHAUL_PURPOSE", "a test");
    command
}

/// Returns the output of the program on routes.
#[track_caller]
fn seen(onramp: &OnRamp, words: &[&str]) -> String {
    let output = routed(onramp, "open", words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_blocking_connect_waits_for_the_route_and_has_its_error() {
    let onramp = OnRamp::start();
    let one = |address: &str, bytes: u32| {
        format!(
            "connect: 0 \npeer: {address} 80, {bytes} bytes\n\
             local: as it would be, its port, {bytes} bytes\nerror: none\necho: there and back\n\
             connect again: -1 EISCONN\n\
             end: 0 \nclose: 0 \n"
        )
    };
    let expected = "no route: -1 EHOSTUNREACH\n".to_owned()
        + &one("192.0.2.1", 16)
        + &one("2001:db8::1", 28)
        + &one("::ffff:192.0.2.1", 28)
        + "refused: -1 ECONNREFUSED\nerror: none\npeer: -1 ENOTCONN\nsend: -1 EPIPE\n\
            connect after it: 0 \necho: there and back\n\
           no route: -1 EHOSTUNREACH\ndescriptors left: 0 \n";
    assert_eq!(seen(&onramp, &["blocking"]), expected);
    let asked = onramp.asked();
    assert_eq!(asked[1], r#"192.0.2.1:80 - Some("a test") false"#);
    assert!(asked[2].starts_with("[2001:db8::1]:80 ") && asked[3].starts_with("192.0.2.1:80 "));
}

#[test]
fn nonblocking_socket_is_writable_when_route_stands() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["nonblocking"]),
        "connect: -1 EINPROGRESS\npoll: 0\nerror: none\npeer: -1 ENOTCONN\n\
         local: as it would be, its port, 16 bytes\n\
         connect again: -1 EALREADY\nsend: -1 EAGAIN\n\
         recv: -1 EAGAIN\npoll later: 1 OUT\nerror: none\npeer: 192.0.2.5 80, 16 bytes\n\
         connect once more: 0 \n\
         and again: -1 EISCONN\necho: there and back\nthe send buffer is the kernel's again\n\
         connect: -1 EINPROGRESS\npoll: 0\npoll later: 1 ERR\nerror: ECONNREFUSED\n\
         error again: none\npeer: -1 ENOTCONN\n\
         connect: -1 EINPROGRESS\npoll later: 1 ERR\nconnect tells: -1 ECONNREFUSED\n\
         connect after it: -1 EINPROGRESS\n\
         poll: 1 OUT\nerror: none\ndescriptors left: 0 \n"
    );
}

#[test]
fn epoll_reports_a_route_by_an_edge() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["edges"]),
        "connect: -1 EINPROGRESS\nevents: 0 \nevents later: 1 \nwritable\nerror: none\n\
         no more events: 0 \n"
    );
}

#[test]
fn signal_interrupts_connect_and_attempt_continues() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["signals"]),
        "interrupted: -1 EINTR\npoll: 0\npoll later: 1 OUT\nerror: none\necho: there and back\n\
         out of time: -1 EINPROGRESS\npoll: 0\npoll later: 1 OUT\nerror: none\n\
         interrupted: -1 EINTR\nconnect again waits: 0 \necho: there and back\n"
    );
    assert_eq!(
        seen(&onramp, &["restarted"]),
        "connect: 0 \necho: there and back\n"
    );
}

#[test]
fn a_thread_that_waits_for_a_route_can_be_cancelled() {
    let onramp = OnRamp::start();
    assert_eq!(seen(&onramp, &["cancelled"]), "cancelled\nclose: 0 \n");
}

#[test]
fn names_that_led_to_addresses_are_reported() {
    let onramp = OnRamp::start();
    let output = routed(&onramp, "open", &["names"])
        .env(
            "LD_PRELOAD",
            format!(
                "{}:{}",
                OBJECT.display(),
                PROGRAMS.path("resolves.so").display()
            ),
        )
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "by getaddrinfo: 0 \necho: there and back\nby gethostbyname: 0 \necho: there and back\n",
        "{}",
        reported(&output)
    );
    let asked = onramp.asked();
    assert!(
        asked[0].starts_with("192.0.2.1:80 one.example "),
        "{asked:?}"
    );
    assert!(
        asked[1].starts_with("192.0.2.1:80 two.example "),
        "{asked:?}"
    );
}

#[test]
fn other_ways_to_open_a_connection_are_routed() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["others"]),
        "peer on loopback is not asked for: -1 ENOTCONN\n\
         on loopback: as it would be, its port, 16 bytes\n\
         sendto opens: 1 \nrecv: 1 \npeer: 192.0.2.1 80, 16 bytes\n\
         sendmsg opens: 1 \nrecv: 1 \nsendto begins: -1 EINPROGRESS\npoll: 1 ERR\n\
         error: ECONNREFUSED\n"
    );
    assert_eq!(onramp.asked().len(), 3, "{:?}", onramp.asked());
}

#[test]
fn children_and_executed_programs_see_the_destination() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["processes"]),
        "connect: -1 EINPROGRESS\nthe child polls: 1 OUT\nthe child's error: none\n\
         the child's peer: 192.0.2.5 80, 16 bytes\n\
         poll: 1 OUT\nerror: none\ninherited: as it would be, its port, 16 bytes\n\
         inherited: 192.0.2.5 80, 16 bytes\nnot a socket any more: -1 ENOTSOCK\n"
    );
}

#[test]
fn a_program_that_closes_what_it_does_not_know_keeps_its_route() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["closers"]),
        "connect: -1 EINPROGRESS\nclose_range: 0 \nlowest: 0 \npoll: 1 OUT\nerror: none\n\
         peer: 192.0.2.5 80, 16 bytes\n"
    );
}

#[test]
fn a_process_asks_over_one_connection_which_is_its_own() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["questions"]),
        "descriptors more: 0 \nlowest: 3 \nkept\nopened again\n"
    );
    // The process, its child, the executed program; again after it was closed behind the library's
    // back, and after the on-ramp had gone.
    assert_eq!(onramp.conversations(), 5);
}

#[test]
fn remembered_answers_are_asked_once_until_forgotten() {
    let onramp = OnRamp::start();
    assert_eq!(seen(&onramp, &["remembers"]), "done\n");
    let asked = onramp.asked();
    let asked: Vec<&str> = asked
        .iter()
        .filter_map(|words| words.split(' ').next())
        .collect();
    // After each one that changes something; once by the child.
    let all = ["10", "11", "10", "12", "10", "10", "9", "10"];
    assert_eq!(asked, all.map(|octet| format!("192.0.2.{octet}:80")));
    assert_eq!(onramp.remembered(6), 6);
}

#[test]
fn handlers_threads_and_children_get_their_answers() {
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["interruptions"]),
        "unanswered: 0 \nall were answered\n"
    );
}

#[test]
fn the_onramp_learns_how_far_direct_destinations_are() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing.
    if socket.connect("198.51.100.1:9").is_err() {
        println!("left out: this machine has no address but loopback");
        return;
    }
    let address = socket.local_addr().unwrap().ip();
    let listener = std::net::TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let onramp = OnRamp::start();
    assert_eq!(
        seen(&onramp, &["distances", &address.to_string(), &port]),
        "error: none\n"
    );
    assert_eq!(onramp.measured(3), [address; 3]);
    assert_eq!(onramp.conversations(), 1);
}

#[test]
fn many_threads_connect_at_once() {
    let onramp = OnRamp::start();
    assert_eq!(seen(&onramp, &["threads"]), "all came back\n");
    assert_eq!(onramp.asked().len(), 400);
}

#[test]
fn without_an_onramp_connections_are_direct_or_there_are_none() {
    let onramp = OnRamp::start();
    // Nothing answers at the first one; the on-ramp ends in the middle of the second one.
    for (destination, socket) in [("192.0.2.1", "/no/such/socket"), ("192.0.2.8", "")] {
        let words = ["connect", destination];
        let run = |mode: &str| {
            let mut command = routed(&onramp, mode, &words);
            if !socket.is_empty() {
                command.env("LONGHAUL_ONRAMP", socket);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let plain = String::from_utf8(command(&words).output().unwrap().stdout).unwrap();
        if !socket.is_empty() {
            assert_eq!(run("open"), plain, "{destination}");
            assert_eq!(run("closed"), "connect: -1 ENETUNREACH\n", "{destination}");
        }
    }
    // The on-ramp says that there is nothing to gain.
    let plain = command(&["connect", "192.0.2.4"]).output().unwrap();
    let direct = routed(&onramp, "open", &["connect", "192.0.2.4"])
        .output()
        .unwrap();
    assert_eq!(reported(&direct), reported(&plain));
    assert_eq!(
        onramp.asked().last().map(String::as_str),
        Some(r#"192.0.2.4:80 - Some("a test") false"#)
    );
}
