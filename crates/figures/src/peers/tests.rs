//! Each installed peer copies between two nodes of a small lab. The output names the peers that are
//! not installed.

use super::contents::compare;
use super::iperf3::Iperf3;
use super::one_copy::{Job, PeerDirection, one_copy};
use super::*;
use crate::copy::Source;
use crate::dataset;
use std::fs;
use tempfile::TempDir;
use wanbed::{Lab, Overrides, Scenario};

const SCENARIO: &str = r#"
[nodes]
client = {}
depot = {}
server = {}
[links]
west = { ends = ["client", "depot"], delay = "1 ms", rate = "unlimited" }
east = { ends = ["depot", "server"], delay = "1 ms", rate = "unlimited" }
"#;

/// Two links with a node between, and a file and a folder to copy.
struct Bench {
    lab: Lab,
    scratch: TempDir,
    file: Source,
    tree: Source,
}

impl Bench {
    /// Returns `None` if labs are impossible.
    fn new(test: &str) -> Option<Self> {
        if let Err(reason) = Lab::possible() {
            println!("{test} skipped: {reason}");
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("source");
        dataset::sized_file(&root.join("file.bin"), 2 << 20, 1).unwrap();
        for (name, bytes) in [
            ("one.bin", 1),
            ("inner/two.bin", 70_000),
            ("inner/deep/three.bin", 300_000),
        ] {
            dataset::sized_file(&root.join("tree").join(name), bytes, bytes).unwrap();
        }
        let source = |name: &str| Source {
            root: root.clone(),
            name: name.into(),
        };
        let scenario = Scenario::from_text("two hosts and a relay", SCENARIO);
        Some(Self {
            lab: Lab::up(&scenario, &Overrides::default()).unwrap(),
            file: source("file.bin"),
            tree: source("tree"),
            scratch,
        })
    }

    fn job<'a>(&'a self, source: &'a Source) -> Job<'a> {
        Job {
            lab: &self.lab,
            client: "client",
            server: "server",
            relay: None,
            scratch: self.scratch.path(),
            source,
            direction: PeerDirection::Fetch,
            streams: 1,
        }
    }
}

fn installed<P: Program + ?Sized>(program: &P) -> bool {
    let there = program.installed();
    if let Err(missing) = &there {
        println!("{} skipped: {missing}", program.name());
    }
    there.is_ok()
}

/// All complaints, so that one run reports on all peers.
fn none_failed(failures: &[String]) {
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_peer_copies_a_file_and_a_tree_in_each_direction() {
    copy_in_each_direction("copies with peers", all());
}

#[test]
fn peers_of_plain_servers_copy_in_each_direction() {
    let boxed = |peer| Box::new(peer) as Box<dyn Peer>;
    let peers = table::plain().into_iter().chain(table::saving());
    copy_in_each_direction("copies with plain servers", peers.map(boxed).collect());
}

/// Copies a file and a tree with each of these peers that is installed, as far as it claims.
fn copy_in_each_direction(test: &str, peers: Vec<Box<dyn Peer>>) {
    let Some(bench) = Bench::new(test) else {
        return;
    };
    let mut failures = Vec::new();
    for peer in peers.into_iter().filter(|peer| installed(peer.as_ref())) {
        let able = peer.abilities();
        for (source, files, bytes) in [(&bench.file, 1, 2 << 20), (&bench.tree, 3, 370_001)] {
            for direction in [PeerDirection::Fetch, PeerDirection::Send] {
                for streams in [1, 16] {
                    let job = Job {
                        direction,
                        streams,
                        ..bench.job(source)
                    };
                    let expected = (direction == PeerDirection::Fetch || able.send)
                        && (source.name == "file.bin" || able.trees)
                        && (streams == 1 || able.streams);
                    match one_copy(peer.as_ref(), &job) {
                        Ok(timed) if expected => {
                            assert_eq!(
                                (timed.contents.files, timed.contents.bytes),
                                (files, bytes)
                            );
                            assert!(timed.seconds > 0.0);
                        }
                        Err(_) if !expected => {}
                        Ok(_) => failures.push(format!(
                            "{} {direction:?}: more than it claims",
                            peer.name()
                        )),
                        Err(error) => failures.push(format!(
                            "{} {direction:?} {} with {streams}: {error:#}",
                            peer.name(),
                            source.name
                        )),
                    }
                }
            }
        }
    }
    none_failed(&failures);
}

#[test]
fn peers_go_through_the_relays_that_they_can_use() {
    let Some(bench) = Bench::new("relayed peers") else {
        return;
    };
    let mut failures = Vec::new();
    for relay in relays()
        .into_iter()
        .filter(|relay| installed(relay.as_ref()))
    {
        for peer in all().into_iter().filter(|peer| installed(peer.as_ref())) {
            let able = peer.abilities();
            let passes = match relay.kind() {
                RelayKind::Forward => able.forward,
                RelayKind::Socks => able.socks,
            };
            let job = Job {
                relay: Some((relay.as_ref(), "depot")),
                ..bench.job(&bench.file)
            };
            match one_copy(peer.as_ref(), &job) {
                Ok(_) if passes => {}
                Err(error) if !passes => assert!(error.to_string().contains("cannot go through")),
                Ok(_) => failures.push(format!(
                    "{} through {}: more than it claims",
                    peer.name(),
                    relay.name()
                )),
                Err(error) => failures.push(format!(
                    "{} through {}: {error:#}",
                    peer.name(),
                    relay.name()
                )),
            }
        }
    }
    none_failed(&failures);
}

#[test]
fn iperf3_measures_both_directions() {
    let Some(bench) = Bench::new("iperf3") else {
        return;
    };
    if !installed(&Iperf3) {
        return;
    }
    let place = |node| PeerNode {
        lab: &bench.lab,
        node,
        scratch: bench.scratch.path(),
    };
    let serving = Iperf3.serve(&place("server")).unwrap();
    for direction in [PeerDirection::Fetch, PeerDirection::Send] {
        let rate = Iperf3.goodput_bps(&place("client"), &serving, 2 << 20, direction, 2);
        assert!(rate.unwrap() > 0.0);
    }
}

/// A peer that always reports success.
struct Liar;

impl Program for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }
    fn title(&self) -> &'static str {
        "a program that copies something else"
    }
    fn options(&self) -> &'static str {
        ""
    }
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
}

impl Peer for Liar {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: false,
            trees: false,
            streams: false,
            forward: false,
            socks: false,
        }
    }

    fn serve(&self, place: &PeerNode, _root: &Path) -> Result<Serving> {
        Iperf3.serve(place)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        let mut command = place.client("sh", from)?;
        command
            .args(["-c", "head -c 2097152 /dev/zero >\"$0\""])
            .arg(to.join(&item.name));
        Ok(command)
    }
}

#[test]
fn success_with_other_bytes_is_an_error() {
    let Some(bench) = Bench::new("a peer with other bytes") else {
        return;
    };
    if !installed(&Iperf3) {
        return;
    }
    let error = format!(
        "{:#}",
        one_copy(&Liar, &bench.job(&bench.file)).unwrap_err()
    );
    assert!(error.contains("liar reported success"), "{error}");
    assert!(error.contains("arrived with other bytes"), "{error}");
}

#[test]
fn a_server_ends_with_all_its_processes_when_it_is_dropped() {
    let Some(bench) = Bench::new("the end of a server") else {
        return;
    };
    let scp = find("scp").unwrap();
    if !installed(&scp) {
        return;
    }
    let place = |node| PeerNode {
        lab: &bench.lab,
        node,
        scratch: bench.scratch.path(),
    };
    let serving = scp.serve(&place("server"), &bench.file.root).unwrap();
    let listening = || {
        let mut command = bench.lab.command("server", "cat").unwrap();
        let table = command.arg("/proc/self/net/tcp").output().unwrap().stdout;
        let port = format!(":{:04X}", table::server("sshd").unwrap().port);
        String::from_utf8_lossy(&table).lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            fields[1].ends_with(&port) && fields[3] == "0A"
        })
    };
    assert!(listening());
    drop(serving);
    assert!(
        !listening(),
        "the port is free as soon as the server is dropped"
    );
}

#[test]
fn missing_program_is_named_with_its_package() {
    let need = Need {
        program: "no-such-program",
        package: "its-package",
    };
    assert_eq!(
        need.find().unwrap_err().to_string(),
        "no-such-program is missing: apt-get install its-package"
    );
}

#[test]
fn names_are_unique_and_each_need_has_a_package() {
    let peers = all();
    assert_eq!(
        (peers.len(), table::fetchers().len(), relays().len()),
        (9, 11, 2)
    );
    let names: std::collections::BTreeSet<_> = peers.iter().map(|peer| peer.name()).collect();
    assert_eq!(names.len(), peers.len());
    let fetchers = table::fetchers();
    let fetchers = fetchers.iter().flat_map(Program::needs);
    for need in peers.iter().flat_map(|peer| peer.needs()).chain(fetchers) {
        assert!(!need.program.is_empty() && !need.package.is_empty());
    }
}

#[test]
fn contents_that_differ_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (source, arrived) = (folder.path().join("source"), folder.path().join("arrived"));
    for root in [&source, &arrived] {
        fs::create_dir_all(root.join("inner")).unwrap();
        fs::write(root.join("inner/file"), "what it says").unwrap();
    }
    assert_eq!(compare(&source, &arrived).unwrap().bytes, 12);
    fs::write(arrived.join("more"), "").unwrap();
    let extra = compare(&source, &arrived).unwrap_err().to_string();
    assert!(extra.contains("is not in the source"), "{extra}");
    fs::write(source.join("more"), "").unwrap();
    fs::write(arrived.join("inner/file"), "what it sayS").unwrap();
    let differs = compare(&source, &arrived).unwrap_err().to_string();
    assert!(differs.contains("other bytes"), "{differs}");
    fs::remove_file(arrived.join("inner/file")).unwrap();
    let missing = compare(&source, &arrived).unwrap_err().to_string();
    assert!(missing.contains("did not arrive"), "{missing}");
}
