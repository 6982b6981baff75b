//! `longhaul run --isolate`: programs for which no object can be preloaded.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::onramp::{OnRamp, routed_sources};
use crate::path::{Bed, served};
use crate::support::{refused, reported};
use crate::{REPORTED_WISHES, WISHES, compiled, run};

/// Returns `longhaul run --isolate` up to the program. Prints why and returns `None` if this
/// machine has no such networks.
fn isolated(onramp: &OnRamp, options: &[&str]) -> Option<Command> {
    let mut possible = run(onramp, &["--isolate"]);
    let tried = possible.arg("true").output().unwrap();
    if !tried.status.success() {
        let said = reported(&tried);
        assert!(
            said.contains("network namespace") || said.contains("/dev/net/tun"),
            "{said}"
        );
        eprintln!("not tested: {said}");
        return None;
    }
    Some(run(onramp, &[&["--isolate"], options].concat()))
}

/// Builds the program of the preload object's tests, statically linked if there is a C library for
/// that.
fn static_program(folder: &Path) -> PathBuf {
    compiled(folder, &routed_sources(), &["-static"]).unwrap_or_else(|| {
        eprintln!("it is dynamically linked: no static C library here");
        compiled(folder, &routed_sources(), &[]).unwrap()
    })
}

#[test]
fn a_static_program_uses_routes_with_its_purpose() {
    let onramp = OnRamp::start();
    let folder = tempfile::tempdir().unwrap();
    for way in ["blocking", "nonblocking"] {
        let Some(mut command) = isolated(&onramp, &WISHES) else {
            return;
        };
        let output = command
            .arg(static_program(folder.path()))
            .arg(way)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
        let seen = String::from_utf8(output.stdout).unwrap();
        assert!(
            seen.contains("peer: 192.0.2.5 80") || seen.contains("peer: 192.0.2.1 80"),
            "{seen}"
        );
        assert!(seen.contains("echo: there and back"), "{seen}");
    }
    assert_eq!(
        onramp.wishes().last().map(String::as_str),
        Some(REPORTED_WISHES)
    );
    assert!(onramp.asked().iter().all(|asked| asked.ends_with(" true")));
}

/// Prints the result of `connect` for each address.
const CONNECT: &str = r#"
import socket, sys, errno
for host in sys.argv[1:]:
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    e = s.connect_ex((host, 80))
    print(host, errno.errorcode.get(e, e))
"#;

#[test]
fn failures_look_as_in_a_real_network() {
    let onramp = OnRamp::start();
    let Some(mut command) = isolated(&onramp, &[]) else {
        return;
    };
    let output = command
        .args([
            "python3",
            "-c",
            CONNECT,
            "192.0.2.2",
            "192.0.2.3",
            "2001:db8::2",
            "2001:db8::3",
        ])
        .args(["127.0.0.1", "192.0.0.3", "192.0.2.1"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "192.0.2.2 ECONNREFUSED\n192.0.2.3 EHOSTUNREACH\n2001:db8::2 ECONNREFUSED\n\
         2001:db8::3 EHOSTUNREACH\n127.0.0.1 ECONNREFUSED\n192.0.0.3 ECONNREFUSED\n192.0.2.1 0\n",
        "{}",
        reported(&output)
    );
    assert_eq!(onramp.asked().len(), 5, "what is near is not asked for");
    // An address that does not answer.
    let Some(mut command) = isolated(&onramp, &["--closed"]) else {
        return;
    };
    let gone = onramp.socket.clone();
    let script = format!(
        "rm {} && exec python3 -c '{CONNECT}' 192.0.2.1 2001:db8::1",
        gone.display()
    );
    let output = command.args(["sh", "-c", &script]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "192.0.2.1 ENETUNREACH\n2001:db8::1 ENETUNREACH\n",
        "{}",
        reported(&output)
    );
}

#[test]
fn codes_signals_arguments_and_user_are_the_programs() {
    let onramp = OnRamp::start();
    if isolated(&onramp, &[]).is_none() {
        return;
    }
    let sh = |script: &str| {
        let mut command = isolated(&onramp, &[]).unwrap();
        command
            .args(["sh", "-c", script, "name", "argument"])
            .output()
            .unwrap()
    };
    assert_eq!(sh("exit 42").status.code(), Some(42));
    assert_eq!(sh("kill -9 $$").status.code(), Some(128 + 9));
    assert_eq!(sh("echo \"$0 $1\"").stdout, b"name argument\n");
    let script = "ulimit -Sn; id -u; id -g; pwd; tty; ps -o pgid= -p $$ | tr -d ' ' | sed \
        \"s/^$PPID\\$/the caller's/\"; echo $LD_PRELOAD";
    let plain = Command::new("sh")
        .args(["-c", "ulimit -Sn; id -u; id -g; pwd; tty"])
        .output()
        .unwrap();
    let inside = sh(script);
    assert!(
        inside.stdout.starts_with(&plain.stdout),
        "{}\n{}",
        reported(&inside),
        reported(&plain)
    );
    refused(
        isolated(&onramp, &[]).unwrap().arg("no-such-program"),
        127,
        &["no-such-program"],
    );
    refused(
        isolated(&onramp, &[]).unwrap().arg("/etc/passwd"),
        126,
        &["/etc/passwd"],
    );
}

#[test]
fn the_program_ends_with_the_command() {
    let onramp = OnRamp::start();
    let Some(mut command) = isolated(&onramp, &[]) else {
        return;
    };
    let mut running = command
        .args(["sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.trim().parse::<u32>().is_ok(), "{line}");
    running.kill().unwrap();
    assert_eq!(running.wait().unwrap().signal(), Some(9));
    // It held the other end.
    line.clear();
    assert_eq!(output.read_line(&mut line).unwrap(), 0);
}

#[test]
fn an_unprivileged_user_gets_a_user_namespace_or_an_error() {
    let onramp = OnRamp::start();
    if !rustix::process::geteuid().is_root() || isolated(&onramp, &[]).is_none() {
        return;
    }
    // Root without the right to make namespaces needs a user namespace, and stays root in it.
    let options = [
        "--bounding-set",
        "-sys_admin,-net_admin",
        "--inh-caps",
        "-sys_admin,-net_admin",
    ];
    let mut command = Command::new("setpriv");
    let longhaul = isolated(&onramp, &[]).unwrap();
    command
        .args(options)
        .arg(longhaul.get_program())
        .args(longhaul.get_args());
    command.env("LONGHAUL_ONRAMP", &onramp.socket);
    command.args([
        "python3",
        "-c",
        "import os\nprint(os.getuid(), os.getgid(), open('/proc/self/uid_map').read().split())",
    ]);
    let output = command.output().unwrap();
    if output.status.success() {
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "0 0 ['0', '0', '1']\n"
        );
    } else {
        assert_eq!(output.status.code(), Some(125), "{}", reported(&output));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr).lines().count(),
            1,
            "{}",
            reported(&output)
        );
    }
    // Another user, who may not open the device here, or who makes a namespace.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command
        .arg(longhaul.get_program())
        .args(longhaul.get_args());
    command.env("LONGHAUL_ONRAMP", &onramp.socket).arg("true");
    let output = command.output().unwrap();
    let said = reported(&output);
    assert!(
        output.status.success()
            || output.status.code() == Some(125)
                && (said.contains("/dev/net/tun") || said.contains("user namespaces"))
            || said.contains("Permission denied"),
        "{said}"
    );
}

/// A server that handles a connection according to its first byte.
const SERVER: &str = r#"
import socket, struct, sys, threading
noted = []
def serve(c):
    kind = c.recv(1)
    if kind == b"h":  # reads to the end, and then answers
        n = 0
        while (got := c.recv(65536)):
            n += len(got)
        c.sendall(b"%d" % n)
    elif kind == b"e":  # echo
        while (got := c.recv(65536)):
            c.sendall(got)
    elif kind == b"r":  # resets
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif kind == b"c":  # is told how it ends
        c.sendall(b"!")
        try:
            noted.append(c.recv(1) and "bytes" or "end")
        except OSError as e:
            noted.append(e.strerror)
    elif kind == b"f":  # sends first, ends, and reads on
        c.sendall(b"x" * 3000000)
        c.shutdown(socket.SHUT_WR)
        n = 0
        while (got := c.recv(65536)):
            n += len(got)
        noted.append(str(n))
    elif kind == b"n":
        c.sendall((" ".join(noted) or "-").encode())
    c.close()
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 5100))
s.listen(128)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;

/// A client, which fails if anything is not as expected.
const CLIENT: &str = r#"
import socket, struct, sys, threading
host = sys.argv[1]
def connected(kind):
    s = socket.create_connection((host, 5100))
    s.sendall(kind)
    return s
def all_of(s):
    data = b""
    while (got := s.recv(1 << 20)):
        data += got
    return data
s = connected(b"h")
assert s.getpeername() == (host, 5100), s.getpeername()
s.sendall(b"y" * 5000000)
s.shutdown(socket.SHUT_WR)
assert all_of(s) == b"5000000"
s = connected(b"f")
assert len(all_of(s)) == 3000000
s.sendall(b"z" * 3000000)
s.close()
s = connected(b"r")
try:
    got = s.recv(1)
    raise SystemExit("no reset: %r" % got)
except ConnectionResetError:
    pass
s = connected(b"c")
assert s.recv(1) == b"!"
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()
wrong = []
def echo(number):
    try:
        s = connected(b"e")
        data = bytes([number]) * 200000
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        if all_of(s) != data:
            wrong.append(number)
        sender.join()
    except OSError as e:
        wrong.append((number, e))
threads = [threading.Thread(target=echo, args=(number,)) for number in range(64)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
while True:
    noted = all_of(connected(b"n")).decode()
    if "Connection reset by peer" in noted and "3000000" in noted:
        break
print("all is well")
"#;

#[test]
fn connections_end_as_they_would_in_a_network() {
    let Some(bed) = Bed::up() else { return };
    let (server, client) = (bed.path("server.py"), bed.path("client.py"));
    fs::write(&server, SERVER).unwrap();
    fs::write(&client, CLIENT).unwrap();
    for node in ["inside", "gateway"] {
        let _server = bed.service(node, "python3", &[server.to_str().unwrap()], 5100);
        let address = bed.lab.address(node).unwrap().to_string();
        let closed = if node == "inside" {
            &["--isolate", "--closed"][..]
        } else {
            &["--isolate"]
        };
        // Over the route to the internal network, directly to the gateway.
        let output = bed.run(closed, &["python3", client.to_str().unwrap(), &address]);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "all is well\n",
            "{}",
            reported(&output)
        );
    }
}

#[test]
fn curl_uses_the_route_and_sees_refusals() {
    let Some(bed) = Bed::up() else { return };
    let inside = bed.lab.address("inside").unwrap();
    let url = format!("http://{inside}:5080/file");
    let copy = bed.path("copy");
    let program = [
        "curl",
        "--silent",
        "--show-error",
        "--write-out",
        "%{remote_ip} %{remote_port}",
        "--output",
        copy.to_str().unwrap(),
        &url,
    ];
    let output = bed.run(&["--isolate", "--closed", "--purpose", "a test"], &program);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{inside} 5080"),
        "{}",
        reported(&output)
    );
    assert!(fs::read(&copy).unwrap() == served());
    assert!(bed.ended(1)[0].contains("a test"));
    let nothing = format!("http://{inside}:5081/");
    let refused = bed.run(&["--isolate"], &["curl", "--silent", &nothing]);
    assert_eq!(refused.status.code(), Some(7), "{}", reported(&refused));
    // No rule leads there.
    let gateway = bed.lab.address("gateway").unwrap();
    let program = ["python3", "-c", CONNECT, &gateway.to_string()];
    let output = bed.run(&["--isolate", "--closed"], &program);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{gateway} ENETUNREACH\n")
    );
}

/// A name server that knows one name, with the address that it is given.
const NAME_SERVER: &str = r#"
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
t = socket.socket()
t.bind(("127.0.0.1", 5300))
t.listen()
while True:
    q, who = s.recvfrom(4096)
    end = q.index(b"\0", 12) + 5
    a = q[end - 4:end - 2] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(sys.argv[1])
    s.sendto(q[:2] + b"\x85\x80\0\1" + (b"\0\1" if a else b"\0\0") + b"\0\0\0\0" + q[12:end] + (record if a else b""), who)
"#;

#[test]
fn names_use_the_hosts_resolver_and_match_rules() {
    let Some(bed) = Bed::up() else { return };
    let script = bed.path("names.py");
    fs::write(&script, NAME_SERVER).unwrap();
    let [inside, gateway] = ["inside", "gateway"].map(|node| bed.lab.address(node).unwrap());
    let _names = bed.service(
        "client",
        "python3",
        &[script.to_str().unwrap(), &inside.to_string()],
        5300,
    );
    let routes = fs::read_to_string(bed.path("client/routes.toml")).unwrap();
    let named = routes.replace(
        &format!("to = [\"{inside}\"]"),
        "to = [\"*.archive.example\"]",
    );
    assert_ne!(routes, named);
    fs::write(bed.path("client/routes.toml"), named).unwrap();
    let copy = bed.path("copy");
    let program = [
        "curl",
        "--silent",
        "--show-error",
        "--output",
        copy.to_str().unwrap(),
        "http://data.archive.example:5080/file",
    ];
    let output = bed.run(&["--isolate", "--closed"], &program);
    assert!(output.status.success(), "{} {gateway}", reported(&output));
    assert!(fs::read(&copy).unwrap() == served());
}

#[test]
fn the_onramp_measures_direct_destinations() {
    let Some(bed) = Bed::up() else { return };
    let onramp = OnRamp::start();
    let inside = bed.lab.address("inside").unwrap();
    let longhaul = run(&onramp, &["--isolate"]);
    let mut command = bed.lab.command("client", longhaul.get_program()).unwrap();
    command
        .args(longhaul.get_args())
        .env("LONGHAUL_ONRAMP", &onramp.socket);
    // It answers that all ports except 80 are direct.
    let url = format!("http://{inside}:5080/file");
    let output = command
        .args(["curl", "--silent", "--output", "/dev/null", &url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", reported(&output));
    assert_eq!(onramp.measured(1), [std::net::IpAddr::from(inside)]);
}
