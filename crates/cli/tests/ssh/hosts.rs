//! A client, two hosts with sshd, and a hub between them that forwards packets and can block ports.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use wanbed::{Lab, Overrides, Scenario};

use crate::common::trees::unprivileged;
use crate::common::{self, Service, has_labs, program};

/// Nodes begin no connection at a port of [`PORTS`], so that a block drops no answers.
const STAR: &str = r#"
title = "a client, two hosts, and a hub"
[nodes.client]
sysctl = { ip_local_port_range = "32768 49999" }
[nodes.hub]
sysctl = { ip_local_port_range = "32768 49999" }
[nodes.alpha]
sysctl = { ip_local_port_range = "32768 49999" }
[nodes.beta]
sysctl = { ip_local_port_range = "32768 49999" }
[links.a]
ends = ["client", "hub"]
delay = "2 ms"
rate = "unlimited"
[links.b]
ends = ["hub", "alpha"]
delay = "2 ms"
rate = "unlimited"
[links.c]
ends = ["hub", "beta"]
delay = "2 ms"
rate = "50 Mbit/s"
"#;

/// Port of each sshd.
const SSH_PORT: u16 = 2222;
/// Ports for data in tests that block them.
pub const PORTS: &str = "50000-50010";
/// The login at each host.
const USER: &str = "ana";
/// Programs that these tests need in addition to those of every test.
const PROGRAMS: [&str; 3] = ["sshd", "ssh", "ssh-keygen"];

/// Runs before sshd, as root of its namespaces, with the folder of settings and the home. Then sshd
/// runs as an ordinary user, the one who runs the lab.
const PREPARE_NAMESPACES: &str = "set -eu
settings=$1 home=$2; shift 2
mount --bind \"$settings/passwd\" /etc/passwd
mount --bind \"$settings/group\" /etc/group
mkdir \"$settings/run\"
mount -t tmpfs -o mode=755 ssh \"$settings/run\"
mkdir \"$settings/run/ana\" \"$settings/run/small\"
mount -t tmpfs -o mode=755,size=1m small \"$settings/run/small\"
mount --bind \"$home\" \"$settings/run/ana\"
mount --rbind \"$settings/run\" /run
cd /run
export HOME=/run/ana
exec unshare --user --map-user=1000 --map-group=1000 -- \"$@\"";

/// The lab, ended on drop.
pub struct Hosts {
    // Dropped in this order: processes in the lab first.
    daemons: Vec<Service>,
    pub lab: Lab,
    dir: tempfile::TempDir,
    /// Further lines of each sshd's settings.
    settings: String,
}

/// Lines of sshd's settings that offer SFTP, and that allow nothing else.
pub const OFFERS_SFTP: &str = "Subsystem sftp /usr/lib/openssh/sftp-server\n";
pub const FORCES_SFTP: &str = "Subsystem sftp internal-sftp\nForceCommand internal-sftp\n";

impl Hosts {
    /// Starts it, with longhaul in the login's PATH at the hosts in `with_longhaul`. Prints why and
    /// returns `None` if this machine can't.
    pub fn up(with_longhaul: &[&str]) -> Option<Self> {
        Self::up_with(with_longhaul, "")
    }

    /// Starts it like [`Self::up`], with further lines in each sshd's settings.
    pub fn up_with(with_longhaul: &[&str], settings: &str) -> Option<Self> {
        Self::up_on(&Overrides::default(), with_longhaul, settings)
    }

    /// Starts it like [`Self::up_with`], with another network.
    pub fn up_on(network: &Overrides, with_longhaul: &[&str], settings: &str) -> Option<Self> {
        if let Some(missing) = PROGRAMS.iter().find(|name| program(name).is_none()) {
            eprintln!(
                "not tested: no {missing} here (apt-get install openssh-server openssh-client)"
            );
            return None;
        }
        if !has_labs() {
            return None;
        }
        let lab = Lab::up(&Scenario::from_text("ssh", STAR), network).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut hosts = Self {
            lab,
            dir,
            daemons: vec![],
            settings: settings.to_owned(),
        };
        fs::create_dir(hosts.path("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_longhaul"), hosts.path("bin/longhaul"))
            .unwrap();
        hosts.key("user");
        let mut config = String::new();
        for host in ["hub", "alpha", "beta"] {
            hosts.start(host, with_longhaul.contains(&host));
            let address = hosts.lab.address(host).unwrap();
            config += &format!("Host {host}\nHostName {address}\n");
        }
        let at = hosts.dir.path().display().to_string();
        config += &format!(
            "Host *\nPort {SSH_PORT}\nUser {USER}\nIdentityFile {at}/user\nIdentitiesOnly yes\n\
             UserKnownHostsFile {at}/known_hosts\n\
             GlobalKnownHostsFile none\nStrictHostKeyChecking yes\nBatchMode yes\n"
        );
        fs::write(hosts.path("config"), config).unwrap();
        fs::create_dir(hosts.path("here")).unwrap();
        Some(hosts)
    }

    fn key(&self, name: &str) -> String {
        let file = self.path(name);
        let mut keygen = Command::new(program("ssh-keygen").unwrap());
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
            .arg(&file);
        assert!(keygen.status().unwrap().success());
        fs::read_to_string(file.with_extension("pub"))
            .unwrap()
            .trim()
            .to_owned()
    }

    fn start(&mut self, host: &str, with_longhaul: bool) {
        let (home, settings) = (self.home(host), self.path(&format!("{host}-settings")));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&settings).unwrap();
        let key = self.key(&format!("{host}-settings/host"));
        let known = self.path("known_hosts");
        let before = fs::read_to_string(&known).unwrap_or_default();
        let address = self.lab.address(host).unwrap();
        let lines = format!("[{address}]:{SSH_PORT} {key}\n[::1]:{SSH_PORT} {key}\n");
        fs::write(&known, before + &lines).unwrap();
        // A lab's nodes have no IPv6 by default; here it is for loopback alone.
        self.run(
            host,
            "sh",
            &[
                "-c",
                "for n in all lo; do echo 0 > /proc/sys/net/ipv6/conf/$n/disable_ipv6 || :; done",
            ],
        );
        let passwd =
            format!("root:x:0:0:root:/run:/bin/sh\n{USER}:x:1000:1000:{USER}:/run/ana:/bin/sh\n");
        fs::write(settings.join("passwd"), passwd).unwrap();
        fs::write(
            settings.join("group"),
            format!("root:x:0:\n{USER}:x:1000:\n"),
        )
        .unwrap();
        let (at, bin) = (settings.display(), self.path("bin"));
        let path = match with_longhaul {
            true => format!("{}:/usr/bin:/bin", bin.display()),
            false => "/usr/bin:/bin".to_owned(),
        };
        let authorized = self.path("user.pub");
        let config = format!(
            "Port {SSH_PORT}\nListenAddress 0.0.0.0\nListenAddress ::\nHostKey {at}/host\n\
             AuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nUseDNS no\n\
             PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PrintMotd no\nSetEnv PATH={path}\n{}",
            authorized.display(),
            self.settings
        );
        fs::write(settings.join("sshd_config"), config).unwrap();
        let mut command = self.lab.command(host, program("unshare").unwrap()).unwrap();
        command
            .args(["--mount", "--uts", "--pid", "--fork", "--kill-child", "--"])
            .args(["sh", "-c", PREPARE_NAMESPACES, "sh"])
            .arg(&settings)
            .arg(&home)
            .arg(program("sshd").unwrap())
            .args(["-D", "-e", "-f"])
            .arg(settings.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut daemon = command.spawn().unwrap();
        let mut log = BufReader::new(daemon.stderr.take().unwrap());
        self.daemons.push(Service(daemon));
        let mut said = String::new();
        while !said.contains("Server listening on") {
            assert!(
                log.read_line(&mut said).unwrap() > 0,
                "sshd of {host}: {said}"
            );
        }
        // Read to the end, so that it does not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    }

    /// Gives `host` another name, for ssh at the client.
    pub fn alias(&self, name: &str, host: &str) {
        let address = self.lab.address(host).unwrap();
        let config = fs::read_to_string(self.path("config")).unwrap();
        let alias = format!("Host {name}\nHostName {address}\n");
        fs::write(self.path("config"), alias + &config).unwrap();
    }

    /// Makes a script at the client that is a program.
    pub fn program(&self, name: &str, script: &str) {
        common::write_program(&self.path("bin").join(name), script);
    }

    /// Returns a path of the client.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the home directory at a host.
    pub fn home(&self, host: &str) -> PathBuf {
        self.path(&format!("{host}-home"))
    }

    /// Returns `longhaul` at the client.
    pub fn longhaul(&self) -> Command {
        self.longhaul_at("client")
    }

    /// Returns `longhaul` at the client, for a user without root's rights.
    pub fn unprivileged(&self) -> Command {
        let run = unprivileged(env!("CARGO_BIN_EXE_longhaul"));
        let mut command = self.lab.command("client", run.get_program()).unwrap();
        command
            .args(run.get_args())
            .env("LONGHAUL_HOME", self.path("client-settings"))
            .env("HOME", self.path("client-home"))
            .current_dir(self.dir.path());
        command
    }

    fn longhaul_at(&self, node: &str) -> Command {
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command
            .env("LONGHAUL_HOME", self.path("client-settings"))
            .env("HOME", self.path("client-home"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Copies from or to the client, and returns the result.
    pub fn cp(&self, arguments: &[&str]) -> Copied {
        self.cp_at("client", arguments)
    }

    /// Runs another command of `longhaul` at the client. Returns its exit code, output and errors.
    pub fn files(&self, command: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut longhaul = self.longhaul();
        let output = longhaul
            .args([command, "-F", "config"])
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    /// Copies at another node.
    pub fn cp_at(&self, node: &str, arguments: &[&str]) -> Copied {
        let mut command = self.longhaul_at(node);
        command
            .args(["cp", "-F", "config", "--json"])
            .args(arguments);
        Copied::from_output(command.output().unwrap())
    }

    /// Returns the command lines of the far sides that run in this lab, and of the processes
    /// between them and this side.
    pub fn command_lines(&self) -> Vec<String> {
        let folder = self.dir.path().to_string_lossy().into_owned();
        let processes = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path()));
        let read = |process: &Path, name| {
            fs::read(process.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let of_this_lab = |process: &PathBuf| {
            let environment = read(process, "environ").unwrap_or_default();
            let line = read(process, "cmdline").ok()?;
            (environment.contains(&folder) && line.contains("--over-stdio")).then_some(line)
        };
        processes
            .filter_map(|process| of_this_lab(&process))
            .collect()
    }

    /// Sends a signal to every far side that runs in this lab.
    pub fn signal_far_sides(&self, name: &str) {
        let folder = self.dir.path().to_string_lossy().into_owned();
        let read = |process: &Path, file| {
            fs::read(process.join(file)).map_or(String::new(), |bytes| {
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        for process in fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path()))
        {
            let is_far_side = read(&process, "comm").trim() == "longhaul"
                && read(&process, "cmdline").contains("--over-stdio")
                && read(&process, "environ").contains(&folder);
            if is_far_side && let Some(number) = process.file_name() {
                // It may have ended by itself.
                let _ = Command::new("kill")
                    .arg(format!("-{name}"))
                    .arg(number)
                    .status();
            }
        }
    }

    /// Kills the client's connections by SFTP, all but the first `spared`. Returns their number.
    pub fn kill_sftp(&self, spared: usize) -> usize {
        let folder = self.dir.path().to_string_lossy().into_owned();
        let read = |process: &Path, file| {
            fs::read(process.join(file)).map_or(String::new(), |bytes| {
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let processes = fs::read_dir("/proc").unwrap();
        let mut connections: Vec<u32> = processes
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|process| {
                read(process, "comm").trim() == "ssh"
                    && read(process, "cmdline").ends_with("\0sftp\0")
                    && read(process, "environ").contains(&folder)
            })
            .filter_map(|process| process.file_name()?.to_str()?.parse().ok())
            .collect();
        connections.sort_unstable();
        let killed = connections.iter().skip(spared);
        killed
            .filter(|number| {
                let mut kill = Command::new("kill");
                kill.arg("-KILL").arg(number.to_string());
                kill.status().is_ok_and(|status| status.success())
            })
            .count()
    }

    /// Has the hub drop TCP connections to the data ports of `node`.
    pub fn block_data_ports_of(&self, node: &str) {
        self.change_rule_of("add", node);
    }

    /// Has the hub forward them again.
    pub fn allow_data_ports_of(&self, node: &str) {
        self.change_rule_of("delete", node);
    }

    fn change_rule_of(&self, action: &str, node: &str) {
        let address = self.lab.address(node).unwrap().to_string();
        self.run(
            "hub",
            "ip",
            &[
                "rule",
                action,
                "pref",
                "10",
                "to",
                &address,
                "ipproto",
                "tcp",
                "dport",
                PORTS,
                "blackhole",
            ],
        );
    }

    /// Runs a program at a node, and returns its output.
    pub fn run(&self, node: &str, name: &str, arguments: &[&str]) -> String {
        let mut command = self.lab.command(node, program(name).unwrap()).unwrap();
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the bytes of payload and headers that the links of `node` have carried.
    pub fn carried(&self, node: &str) -> u64 {
        let text = self.run(node, "cat", &["/proc/net/dev"]);
        let lines = text.lines().filter(|line| !line.contains("lo:"));
        lines
            .filter_map(|line| {
                line.split_once(':')?
                    .1
                    .split_whitespace()
                    .next()?
                    .parse::<u64>()
                    .ok()
            })
            .sum()
    }
}

/// Result of a copy.
pub struct Copied {
    pub code: Option<i32>,
    pub report: Value,
    pub notices: Vec<String>,
    pub routes: Vec<String>,
    pub errors: String,
}

impl Copied {
    /// Reads the output of a copy with `--json`.
    pub fn from_output(output: Output) -> Self {
        let said = String::from_utf8_lossy(&output.stdout);
        let events: Vec<Value> = said
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let texts = |event: &str, field: &str| -> Vec<String> {
            let wanted = events.iter().filter(|one| one["event"] == event);
            wanted
                .filter_map(|one| Some(one[field].as_str()?.to_owned()))
                .collect()
        };
        Self {
            code: output.status.code(),
            report: events.last().cloned().unwrap_or_default(),
            notices: texts("notice", "message"),
            routes: texts("stream_opened", "route"),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts that everything was copied.
    #[track_caller]
    pub fn assert_done(&self) {
        assert_eq!(
            self.code,
            Some(0),
            "{} {} {:?}",
            self.report,
            self.errors,
            self.notices
        );
    }

    /// Returns the error.
    pub fn error(&self) -> String {
        self.report["error"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns true if two trees have the same content.
pub fn same(one: &Path, other: &Path) -> bool {
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([one, other])
        .status();
    diff.unwrap().success()
}

/// Writes a file of random bytes.
pub fn noise(file: &Path, len: usize) {
    fs::write(file, common::noise(len, len as u64)).unwrap();
}
