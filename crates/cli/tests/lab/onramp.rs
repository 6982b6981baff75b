//! Programs that know nothing of the on-ramp, brought by it through two depots and an off-ramp; and what becomes of them when something dies.
//!
//! pc - laptop - near - far - server: the on-ramp runs on the laptop, which is also the gateway of the pc; depots on near and far, the
//! off-ramp on far, ordinary servers on server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use wanbed::{Lab, Overrides, Scenario};

use crate::path::{new_key, started};

const NETWORK: &str = r#"
title = "a laboratory, its gateway, and a server behind two depots"
[nodes.pc]
[nodes.laptop]
[nodes.near]
[nodes.far]
[nodes.server]
[links.bench]
ends = ["pc", "laptop"]
delay = "0.1 ms"
rate = "1 Gbit/s"
[links.first]
ends = ["laptop", "near"]
delay = "5 ms"
rate = "1 Gbit/s"
[links.middle]
ends = ["near", "far"]
delay = "5 ms"
rate = "1 Gbit/s"
[links.last]
ends = ["far", "server"]
delay = "0.1 ms"
rate = "1 Gbit/s"
"#;

const WEB_PORT: u16 = 8080;
/// Where nobody listens.
const CLOSED_PORT: u16 = 8081;
/// What the off-ramp does not let anybody connect to.
const FORBIDDEN_PORT: u16 = 9000;
const FILE: &str = "file";

struct World {
    lab: Lab,
    dir: tempfile::TempDir,
    data: Vec<u8>,
    /// The depot on near, the depot on far, the off-ramp, the web server.
    servers: Vec<Option<Child>>,
    offramp_key: String,
}

/// An on-ramp that runs. Ends with its value.
struct Onramp {
    child: Child,
    places: serde_json::Value,
    log: BufReader<ChildStderr>,
}

impl World {
    /// `None`, with the reason printed, where this machine allows no lab at all.
    fn up() -> Option<Self> {
        if let Err(reason) = Lab::possible() {
            assert!(matches!(reason, wanbed::Error::NoNamespaces { .. }), "{reason}");
            eprintln!("not tested: {reason}");
            return None;
        }
        let lab = Lab::up(&Scenario::from_text("onramp", NETWORK), &Overrides::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..6_000_000u32)
            .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("www").join(FILE), &data).unwrap();
        let mut world = Self {
            lab,
            data,
            servers: Vec::new(),
            offramp_key: String::new(),
            dir,
        };
        let [client, _, _, offramp] =
            ["laptop", "near", "far", "offramp"].map(|name| new_key(&world.file(name)));
        world.offramp_key = offramp;
        // The off-ramp is on the depot's own machine, which only a rule that names its address allows.
        let far = world.address("far");
        let policy = format!(
            "[[allow]]\nprincipals = [\"{client}\"]\nto = [\"10.77.0.0/16\", \"{far}\"]\nports = [7512]\nnext_hops = [\"direct\", \"10.77.0.0/16\"]\n"
        );
        fs::write(world.file("depot.toml"), policy).unwrap();
        let policy = format!(
            "[[allow]]\nprincipals = [\"{client}\"]\nservers = [\"10.77.0.0/16\"]\nports = [{WEB_PORT}, {CLOSED_PORT}, 22]\n"
        );
        fs::write(world.file("offramp.toml"), policy).unwrap();
        for server in ["near", "far", "offramp", "web"] {
            let server = world.start(server);
            world.servers.push(Some(server));
        }
        Some(world)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn address(&self, node: &str) -> Ipv4Addr {
        self.lab.address(node).unwrap()
    }

    fn start(&self, server: &str) -> Child {
        let policy = |name: &str| self.file(name).to_str().unwrap().to_owned();
        match server {
            "web" => {
                let mut web = self.lab.command("server", "busybox").unwrap();
                web.args(["httpd", "-f", "-p", &WEB_PORT.to_string(), "-h"])
                    .arg(self.file("www"));
                let child = web.spawn().unwrap();
                // It says nothing when it listens.
                while !self.curl(&["-o", "/dev/null"], &self.url()).status.success() {}
                child
            }
            "offramp" => {
                let mut offramp = self.longhaul("far", "offramp");
                offramp.args([
                    "offramp",
                    "--listen",
                    "0.0.0.0:7512",
                    "--policy",
                    &policy("offramp.toml"),
                ]);
                started(offramp)
            }
            node => {
                let mut depot = self.longhaul(node, node);
                depot.args([
                    "depot",
                    "--listen",
                    "0.0.0.0:7510",
                    "--policy",
                    &policy("depot.toml"),
                ]);
                started(depot)
            }
        }
    }

    fn longhaul(&self, node: &str, home: &str) -> Command {
        let mut command = self.lab.command(node, env!("CARGO_BIN_EXE_longhaul")).unwrap();
        command.env("LONGHAUL_HOME", self.file(home)).stdin(Stdio::null());
        command
    }

    fn kill(&mut self, server: usize) {
        let mut child = self.servers[server].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Rules that send everything by both depots and the off-ramp, with these lines too.
    fn rules(&self, more: &str) {
        let (near, far) = (self.address("near"), self.address("far"));
        let rule = format!(
            "[[route]]\nto = [\"10.77.0.0/16\", \"server\"]\nvia = \"{near},{far}\"\nofframp = \"{}@{far}\"\n{more}\n",
            self.offramp_key
        );
        fs::write(self.file("laptop/routes.toml"), rule).unwrap();
    }

    /// An on-ramp with these entries.
    fn onramp(&self, entries: &[&str]) -> Onramp {
        let mut command = self.longhaul("laptop", "laptop");
        command.args(["onramp", "--json"]).args(entries);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let places = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Onramp { child, places, log }
    }

    fn url(&self) -> String {
        format!("http://{}:{WEB_PORT}/{FILE}", self.address("server"))
    }

    /// curl on the laptop.
    fn curl(&self, options: &[&str], url: &str) -> Output {
        self.run(
            "laptop",
            "curl",
            &[&["-sS", "--max-time", "60"], options, &[url]].concat(),
        )
    }

    fn run(&self, node: &str, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.lab.command(node, program).unwrap();
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn is_the_file(&self, output: &Output, how: &str) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{how}: {said}");
        assert!(
            output.stdout == self.data,
            "{how}: {} bytes came, or others",
            output.stdout.len()
        );
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Onramp {
    fn at(&self, entry: &str) -> String {
        self.places[entry][0].as_str().unwrap().to_owned()
    }

    fn port(&self, entry: &str) -> String {
        self.at(entry).rsplit_once(':').unwrap().1.to_owned()
    }

    /// The next line of the log with all of these words.
    fn logged(&mut self, words: &[&str]) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.log.read_line(&mut line).unwrap() > 0,
                "no {words:?} in:\n{seen}"
            );
            eprint!("{line}");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
            seen.push_str(&line);
        }
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }

    /// Waits until it holds no more descriptors than that: what has ended is let go of a moment after that was said.
    fn holds_again(&self, descriptors: usize) {
        while self.descriptors() > descriptors {
            std::thread::yield_now();
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Onramp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn programs_that_were_never_told_go_through_two_depots_and_an_off_ramp() {
    let Some(world) = World::up() else { return };
    world.rules("fall_back = false");
    let server = world.address("server");
    let forward = format!("0={server}:{WEB_PORT},purpose=a test,size=10M");
    let mut onramp = world.onramp(&["--socks=0", "--http=0", "--forward", &forward]);
    let (socks, http) = (onramp.at("socks"), onramp.at("http"));
    let (url, named) = (world.url(), format!("http://server:{WEB_PORT}/{FILE}"));
    let by_forward = format!("http://{}/{FILE}", onramp.at("forwards"));
    let route = format!(
        "way=route {}:7510,{}:7510 off-ramp",
        world.address("near"),
        world.address("far")
    );
    let held = onramp.descriptors();

    let proxy = format!("http://{http}");
    let curls: [(&str, &[&str], &str); 7] = [
        ("socks", &["--socks5", &socks], &url),
        ("socks", &["--socks5-hostname", &socks], &named),
        ("socks", &["--socks4", &socks], &url),
        ("socks", &["--socks4a", &socks], &named),
        ("http", &["-x", &proxy], &url),
        ("http", &["-p", "-x", &proxy], &named),
        ("forward", &[], &by_forward),
    ];
    for (entry, options, url) in curls {
        let output = world.curl(options, url);
        onramp.logged(&["asked for", &format!("entry=\"{entry}\""), &route]);
        onramp.logged(&[&format!("entry=\"{entry}\""), "sent="]);
        world.is_the_file(&output, &format!("curl {options:?} {url}"));
    }
    for (how, proxy) in [("5", &socks), ("4", &socks), ("connect", &http)] {
        let mut nc = world.lab.command("laptop", "nc").unwrap();
        nc.args([
            "-N",
            "-X",
            how,
            "-x",
            proxy,
            &server.to_string(),
            &WEB_PORT.to_string(),
        ]);
        let mut nc = nc.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // nc ends its half when it has no more to say.
        let mut input = nc.stdin.take().unwrap();
        input
            .write_all(format!("GET /{FILE} HTTP/1.0\r\n\r\n").as_bytes())
            .unwrap();
        drop(input);
        let output = nc.wait_with_output().unwrap();
        assert!(
            output.stdout.ends_with(&world.data),
            "nc -X {how}: {} bytes came",
            output.stdout.len()
        );
        onramp.logged(&["asked for", &route]);
    }
    let mut wget = world.lab.command("laptop", "busybox").unwrap();
    wget.env("http_proxy", &proxy)
        .args(["wget", "-q", "-O", "-", &url]);
    world.is_the_file(&wget.output().unwrap(), "busybox wget");

    // A repository, over git's plain HTTP.
    let git = |arguments: &[&str]| {
        let mut git = world.lab.command("laptop", "git").unwrap();
        git.env("HOME", world.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(world.dir.path());
        let output = git.args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    git(&["init", "-q", "-b", "main", "origin"]);
    fs::copy(world.file("www").join(FILE), world.file("origin/file")).unwrap();
    git(&["-C", "origin", "add", "file"]);
    git(&[
        "-C",
        "origin",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-q",
        "-m",
        "a",
    ]);
    git(&["clone", "-q", "--bare", "origin", "www/repository.git"]);
    git(&["-C", "www/repository.git", "update-server-info"]);
    let remote = format!("http://server:{WEB_PORT}/repository.git");
    git(&[
        "-c",
        &format!("http.proxy={proxy}"),
        "clone",
        "-q",
        &remote,
        "copy",
    ]);
    assert!(fs::read(world.file("copy/file")).unwrap() == world.data);
    onramp.holds_again(held);
}

#[test]
fn programs_are_told_why_not_and_nothing_is_left_of_what_failed() {
    let Some(world) = World::up() else { return };
    world.rules("fall_back = false");
    let mut onramp = world.onramp(&["--socks=0", "--http=0"]);
    let (socks, http, server) = (onramp.at("socks"), onramp.at("http"), world.address("server"));
    let held = onramp.descriptors();
    for (port, reply, status, errno) in [
        (CLOSED_PORT, "(5)", "502", "errno=111"),
        (FORBIDDEN_PORT, "(2)", "403", "errno=13"),
    ] {
        let url = format!("http://{server}:{port}/");
        let refused = world.curl(&["--socks5", &socks], &url);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains(reply),
            "{port}: {said}"
        );
        onramp.logged(&["not connected", errno]);
        let refused = world.curl(&["-p", "-x", &format!("http://{http}")], &url);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(status), "{port}: {said}");
    }
    // A server that answers nothing: the program goes while it is connected there.
    nft(
        &world,
        "server",
        "table ip hole { chain c { type filter hook input priority 0; tcp dport 22 drop; }; }\n",
    );
    let mut nc = world.lab.command("laptop", "nc").unwrap();
    nc.args(["-X", "5", "-x", &socks, &server.to_string(), "22"]);
    let mut nc = nc.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    onramp.logged(&["asked for", &format!("{server}:22")]);
    nc.kill().unwrap();
    nc.wait().unwrap();
    onramp.logged(&["the program went while it was connected"]);
    onramp.holds_again(held);
}

/// A download under way, of which the first bytes have come.
struct Download {
    curl: Child,
    first: Vec<u8>,
}

impl Download {
    fn by(world: &World, socks: &str) -> Self {
        let mut curl = world.lab.command("laptop", "curl").unwrap();
        // Slow enough that it is under way when something happens.
        curl.args(["-sS", "--limit-rate", "100k", "--socks5", socks, &world.url()]);
        let mut curl = curl.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut first = vec![0; 1000];
        curl.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        assert!(first == world.data[..1000]);
        Self { curl, first }
    }

    /// It must end, and not as if all had come.
    fn breaks_off(mut self) {
        let mut rest = Vec::new();
        self.curl.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        assert!(
            !self.curl.wait().unwrap().success(),
            "{} bytes came",
            self.first.len() + rest.len()
        );
    }
}

#[test]
fn what_dies_on_the_way_ends_a_connection_and_what_is_gone_is_gone_round() {
    let Some(mut world) = World::up() else { return };
    world.rules("");
    let mut onramp = world.onramp(&["--socks=0"]);
    let socks = onramp.at("socks");
    let held = onramp.descriptors();

    let download = Download::by(&world, &socks);
    world.kill(2);
    onramp.logged(&["the far side died"]);
    download.breaks_off();
    // The off-ramp does not answer, and nothing was sent: the connection is made directly.
    world.is_the_file(
        &world.curl(&["--socks5", &socks], &world.url()),
        "without the off-ramp",
    );
    onramp.logged(&["falls back to a direct connection"]);
    world.servers[2] = Some(world.start("offramp"));

    // The direct connection has been measured: 20 ms are far enough for the route.
    let download = Download::by(&world, &socks);
    onramp.logged(&["asked for", "way=route"]);
    world.kill(0);
    onramp.logged(&["the far side died"]);
    download.breaks_off();
    world.is_the_file(
        &world.curl(&["--socks5", &socks], &world.url()),
        "without the depot",
    );

    // Who wants no direct connection has none.
    world.rules("fall_back = false");
    onramp.signal(rustix::process::Signal::HUP);
    onramp.logged(&["the table of routes has been read again"]);
    let refused = world.curl(&["--socks5", &socks], &world.url());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("(3)"), "{said}");
    fs::write(world.file("laptop/routes.toml"), "[[route]]\nto = 7\n").unwrap();
    onramp.signal(rustix::process::Signal::HUP);
    onramp.logged(&["the table of routes in force stays"]);
    assert!(!world.curl(&["--socks5", &socks], &world.url()).status.success());
    onramp.holds_again(held);
}

#[test]
fn an_on_ramp_that_was_killed_returns_and_one_that_is_told_to_stop_lets_finish() {
    let Some(world) = World::up() else { return };
    world.rules("");
    let mut onramp = world.onramp(&["--socks=0"]);
    let port = onramp.port("socks");
    let download = Download::by(&world, &onramp.at("socks"));
    onramp.child.kill().unwrap();
    download.breaks_off();
    drop(onramp);
    // Its socket's name is still there, and so is its port in the kernel's memory.
    let mut onramp = world.onramp(&["--socks", &port]);
    let socks = onramp.at("socks");
    world.is_the_file(
        &world.curl(&["--socks5", &socks], &world.url()),
        "after its return",
    );

    let mut curl = world.lab.command("laptop", "curl").unwrap();
    curl.args(["-sS", "--limit-rate", "3M", "--socks5", &socks, &world.url()]);
    let mut curl = curl.stdout(Stdio::piped()).spawn().unwrap();
    let mut all = vec![0; 1000];
    curl.stdout.as_mut().unwrap().read_exact(&mut all).unwrap();
    onramp.signal(rustix::process::Signal::TERM);
    onramp.logged(&["lets connections finish"]);
    assert!(
        !world.curl(&["--socks5", &socks], &world.url()).status.success(),
        "there are no new ones"
    );
    curl.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert!(curl.wait().unwrap().success() && all == world.data);
    assert!(onramp.child.wait().unwrap().success());
    assert!(!world.file("laptop/state/onramp/socket").exists());
}

/// nft in a node, with a ruleset.
fn nft(world: &World, node: &str, ruleset: &str) {
    let mut nft = world.lab.command(node, "nft").unwrap();
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(ruleset.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{ruleset}");
}

#[test]
fn a_gateway_brings_a_whole_laboratory() {
    let Some(world) = World::up() else { return };
    world.rules("fall_back = false");
    let mut onramp = world.onramp(&["--redirect=0.0.0.0:0", "--redirect=[::]:0", "--tproxy=0.0.0.0:0"]);
    let held = onramp.descriptors();
    let get = || world.run("pc", "curl", &["-sS", "--max-time", "60", &world.url()]);
    // `redirect` leads to the address of the interface that a packet comes in by, and the lab's interfaces have none.
    let found = world.run(
        "laptop",
        "ip",
        &["-o", "route", "get", &world.address("pc").to_string()],
    );
    let found = String::from_utf8(found.stdout).unwrap();
    let interface = found
        .split_whitespace()
        .skip_while(|word| *word != "dev")
        .nth(1)
        .unwrap();
    assert!(
        world
            .run("laptop", "ip", &["addr", "add", "10.99.0.1/32", "dev", interface])
            .status
            .success()
    );
    let redirect = onramp.port("redirect");
    let ruleset = format!(
        "table ip lab {{ chain c {{ type nat hook prerouting priority dstnat; tcp dport {WEB_PORT} redirect to :{redirect}; }}; }}\n"
    );
    nft(&world, "laptop", &ruleset);
    world.is_the_file(&get(), "redirected");
    onramp.logged(&["asked for", "entry=\"redirect\"", "way=route"]);
    nft(&world, "laptop", "delete table ip lab\n");

    for arguments in [
        &["rule", "add", "priority", "1", "fwmark", "1", "lookup", "100"][..],
        &["route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "100"],
    ] {
        assert!(world.run("laptop", "ip", arguments).status.success());
    }
    let tproxy = onramp.port("tproxy");
    let ruleset = format!(
        "table ip lab {{ chain c {{ type filter hook prerouting priority mangle; iifname != \"lo\" tcp dport {WEB_PORT} tproxy to :{tproxy} meta mark set 1 accept; }}; }}\n"
    );
    nft(&world, "laptop", &ruleset);
    world.is_the_file(&get(), "handed over");
    onramp.logged(&["asked for", "entry=\"tproxy\"", "way=route"]);
    nft(&world, "laptop", "delete table ip lab\n");

    // IPv6, which the lab has switched off: the destination is seen, and the connection is reset.
    let redirect_v6 = onramp.places["redirect"][1]
        .as_str()
        .unwrap()
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    assert!(
        world
            .run("laptop", "sysctl", &["-w", "net.ipv6.conf.lo.disable_ipv6=0"])
            .status
            .success()
    );
    for arguments in [
        &["-6", "addr", "add", "2001:db8::2/128", "dev", "lo"][..],
        &["-6", "route", "add", "2001:db8::/64", "dev", "lo"],
    ] {
        assert!(world.run("laptop", "ip", arguments).status.success());
    }
    let ruleset = format!(
        "table ip6 lab {{ chain c {{ type nat hook output priority -100; ip6 daddr 2001:db8::1 tcp dport 80 redirect to :{redirect_v6}; }}; }}\n"
    );
    nft(&world, "laptop", &ruleset);
    let rule = format!(
        "[[route]]\nto = [\"2001:db8::1\"]\nofframp = \"{}@{}\"\nfall_back = false\n",
        world.offramp_key,
        world.address("far")
    );
    fs::write(world.file("laptop/routes.toml"), rule).unwrap();
    onramp.signal(rustix::process::Signal::HUP);
    onramp.logged(&["the table of routes has been read again"]);
    assert!(!world.curl(&[], "http://[2001:db8::1]/").status.success());
    onramp.logged(&["asked for", "entry=\"redirect\"", "destination=[2001:db8::1]:80"]);

    // Nobody brought this one.
    let own = format!("{}:{redirect}", world.address("laptop"));
    assert!(
        !world
            .run(
                "pc",
                "curl",
                &["-sS", "--max-time", "60", &format!("http://{own}/")]
            )
            .status
            .success()
    );
    onramp.logged(&["no firewall has brought here"]);
    onramp.holds_again(held);
}
