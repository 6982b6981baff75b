//! A lab as a program uses it: start one, run commands in its nodes, read its counters, drop it.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use wanbed::{Lab, Overrides, Scenario};
//!
//! let scenario = Scenario::read("scenarios/clean-long.toml")?;
//! let lab = Lab::up(&scenario, &Overrides::default().seed(3).set("nodes.*.congestion", "cubic"))?;
//! let server = lab.address("server")?;
//! let status = lab.command("client", "ping")?.args(["-c", "3", &server.to_string()]).status()?;
//! let report = lab.down()?;
//! assert!(report.valid, "{:?}", report.reasons);
//! # Ok(())
//! # }
//! ```

use std::ffi::OsStr;
use std::io::{self, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::check::LinkCheck;
use crate::control::{
    self, LabDescription, LabRequest, LabResponse, LaunchRequest, NodeDescription,
};
use crate::error::{Error, Result, WhileDoing};
use crate::namespace::Entrance;
use crate::place;
use crate::report::Report;
use crate::scenario::{Overrides, Scenario};

/// A running emulated network, in a process of its own.
///
/// A lab from [`Lab::up`] ends when it is dropped, and when the program that holds it is killed.
/// Processes that still run in a node are then ended, too.
#[derive(Debug)]
pub struct Lab {
    description: LabDescription,
    directory: PathBuf,
    /// The lab's process and its lifeline, if this program started it.
    owned: Option<(Child, Option<ChildStdin>)>,
}

impl Lab {
    /// Builds the scenario's network and waits until it is up. Without a name in `overrides` it
    /// gets a unique one, so that labs of several tests can run side by side.
    ///
    /// # Errors
    /// [`Error::Scenario`] and [`Error::Read`] for an invalid scenario; [`Error::NoProgram`] if the
    /// `wanbed` program is not built; [`Error::NameTaken`]; and [`Error::Refused`] with the reason
    /// if the machine does not allow it ([`Lab::possible`] checks that beforehand).
    pub fn up(scenario: &Scenario, overrides: &Overrides) -> Result<Lab> {
        let (mut child, description, directory) = launch(scenario, overrides, true)?;
        let lifeline = child.stdin.take();
        Ok(Lab {
            description,
            directory,
            owned: Some((child, lifeline)),
        })
    }

    /// Like [`Lab::up`], but the lab stays up until [`Lab::down`] or `wanbed down`, even after this
    /// program ends.
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub fn up_detached(scenario: &Scenario, overrides: &Overrides) -> Result<Lab> {
        let (_child, description, directory) = launch(scenario, overrides, false)?;
        Ok(Lab {
            description,
            directory,
            owned: None,
        })
    }

    /// Returns a running lab by its name. Dropping it does not end the lab.
    ///
    /// # Errors
    /// [`Error::NoLab`] names those that are up.
    pub fn attach(name: &str) -> Result<Lab> {
        place::check_name(name)?;
        let base = place::base()?;
        let directory = base.join(name);
        match control::request(&place::socket(&directory), LabRequest::Describe) {
            Ok(LabResponse::Ok(description)) => Ok(Lab {
                description,
                directory,
                owned: None,
            }),
            Ok(LabResponse::Error(problem)) => Err(problem.into()),
            Err(_) => {
                let up = place::labs(&base)?;
                let others = if up.is_empty() {
                    String::new()
                } else {
                    format!(" (up: {})", up.join(", "))
                };
                Err(Error::NoLab {
                    name: name.to_owned(),
                    others,
                })
            }
        }
    }

    /// Returns the names of this user's running labs.
    ///
    /// # Errors
    /// [`Error::System`] if the directory of labs cannot be read.
    pub fn list() -> Result<Vec<String>> {
        place::labs(&place::base()?)
    }

    /// Checks that this user can have labs on this machine, by making the smallest one. For tests
    /// that skip with the reason if not even user namespaces exist.
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub fn possible() -> Result<()> {
        let least = Scenario::from_text(
            "the smallest lab",
            "nodes = { a = {}, b = {} }\n[links]\n\
             l = { ends = [\"a\", \"b\"], delay = \"1 ms\", rate = \"unlimited\" }\n",
        );
        Lab::up(&least, &Overrides::default()).map(drop)
    }

    /// Returns the lab's name.
    pub fn name(&self) -> &str {
        &self.description.lab
    }

    /// Returns the scenario's title.
    pub fn title(&self) -> &str {
        &self.description.title
    }

    /// Returns the seed in force.
    pub fn seed(&self) -> u64 {
        self.description.seed
    }

    /// Returns the kind of link devices: `tun` or `packet`.
    pub fn backend(&self) -> &str {
        &self.description.backend
    }

    /// Returns the nodes' names and IPv4 addresses, in the order of the scenario.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, Ipv4Addr)> {
        self.description
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.address))
    }

    /// Returns a node's IPv4 address. Inside the lab, its name works as well.
    ///
    /// # Errors
    /// [`Error::NoNode`] names the existing ones.
    pub fn address(&self, node: &str) -> Result<Ipv4Addr> {
        Ok(self.node(node)?.address)
    }

    /// Returns a node's IPv6 address.
    ///
    /// # Errors
    /// [`Error::NoNode`]; [`Error::NoIpv6`] if the scenario has no IPv6.
    pub fn ipv6_address(&self, node: &str) -> Result<Ipv6Addr> {
        let address = self.node(node)?.ipv6;
        address.ok_or_else(|| Error::NoIpv6(self.name().to_owned()))
    }

    /// Returns the address and port at which a program in a node is reached: IPv6 if the scenario
    /// has it, else IPv4.
    ///
    /// # Errors
    /// [`Error::NoNode`].
    pub fn endpoint(&self, node: &str, port: u16) -> Result<SocketAddr> {
        let node = self.node(node)?;
        let address = node.ipv6.map_or(IpAddr::V4(node.address), IpAddr::V6);
        Ok(SocketAddr::new(address, port))
    }

    /// Returns a command that will run in a node, in this program's working directory. The caller
    /// sets arguments, environment and output, and waits for it.
    ///
    /// # Errors
    /// [`Error::NoNode`]; [`Error::Daemon`] if the lab is gone.
    pub fn command(&self, node: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let node = self.node(node)?;
        let entrance = Entrance::open(self.description.process, node.thread).map_err(|error| {
            self.gone(format!("node {} cannot be entered ({error})", node.name))
        })?;
        let mut command = Command::new(program);
        command
            .env("WANBED_LAB", self.name())
            .env("WANBED_NODE", &node.name);
        entrance.start_inside(&mut command);
        Ok(command)
    }

    /// Returns the links' counters since the lab came up, and if measurements can be trusted.
    ///
    /// # Errors
    /// [`Error::Daemon`] if the lab is gone; [`Error::Refused`] if a link has ended by itself.
    pub fn links(&self) -> Result<Report> {
        self.ask(LabRequest::Links)
    }

    /// Measures one direction of a link with probes of the lab, and compares it with the scenario.
    /// This takes some seconds, in which the link should carry nothing else.
    ///
    /// # Errors
    /// As [`Lab::links`].
    pub fn check(&self, link: usize, forward: bool) -> Result<LinkCheck> {
        self.ask(LabRequest::Check { link, forward })
    }

    /// Returns the links' names and their two ends, in the order of the scenario.
    pub fn link_ends(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.description
            .links
            .iter()
            .map(|(name, a, b)| (name.as_str(), a.as_str(), b.as_str()))
    }

    /// Returns environment variables for scripts: `WANBED_LAB`, so that `wanbed exec` needs no
    /// name, and for each node `WANBED_ADDRESS_NODE` with its IPv4 address and `WANBED_IPV6_NODE`
    /// with its IPv6 address, if it has one (in capitals, `-` becomes `_`).
    pub fn environment(&self) -> Vec<(String, String)> {
        let variable = |kind: &str, name: &str| {
            let name = name.to_ascii_uppercase().replace('-', "_");
            format!("WANBED_{kind}_{name}")
        };
        let addresses = self.description.nodes.iter().flat_map(|node| {
            let ipv4 = (variable("ADDRESS", &node.name), node.address.to_string());
            let ipv6 = node
                .ipv6
                .map(|address| (variable("IPV6", &node.name), address.to_string()));
            std::iter::once(ipv4).chain(ipv6)
        });
        std::iter::once(("WANBED_LAB".to_owned(), self.name().to_owned()))
            .chain(addresses)
            .collect()
    }

    /// Returns the number of the lab's process, which holds its namespaces and links.
    pub fn process(&self) -> u32 {
        self.description.process
    }

    /// Waits until something else ends the lab: `wanbed down`, or the end of its process or of the
    /// program that started it.
    pub fn wait_until_gone(self) {
        place::wait_until_free(&self.directory);
    }

    /// Takes the lab down and returns its last report. Afterwards nothing of the lab is left.
    ///
    /// # Errors
    /// [`Error::Daemon`] if the lab was already gone.
    pub fn down(mut self) -> Result<Report> {
        let report = self.ask(LabRequest::Down);
        self.end();
        report
    }

    fn node(&self, name: &str) -> Result<&NodeDescription> {
        self.description
            .nodes
            .iter()
            .find(|node| node.name == name)
            .ok_or_else(|| Error::NoNode {
                lab: self.name().to_owned(),
                node: name.to_owned(),
                nodes: self
                    .nodes()
                    .map(|(name, _)| name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, question: LabRequest) -> Result<T> {
        match control::request(&place::socket(&self.directory), question) {
            Ok(LabResponse::Ok(value)) => Ok(value),
            Ok(LabResponse::Error(problem)) => Err(problem.into()),
            Err(problem) => Err(self.gone(problem)),
        }
    }

    fn gone(&self, problem: String) -> Error {
        Error::Daemon {
            lab: self.name().to_owned(),
            problem,
        }
    }

    /// Drops the lifeline, if there is one, and waits until processes, namespaces and directory are
    /// gone.
    fn end(&mut self) {
        if let Some((mut child, lifeline)) = self.owned.take() {
            drop(lifeline);
            let _ = child.wait();
        }
        place::wait_until_free(&self.directory);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.owned.is_some() {
            self.end();
        }
    }
}

/// Starts a lab's process and waits until it reports that it is up.
fn launch(
    scenario: &Scenario,
    overrides: &Overrides,
    attached: bool,
) -> Result<(Child, LabDescription, PathBuf)> {
    // Mistakes in the scenario are returned as typed errors, before any process is started.
    scenario.resolve(overrides)?;
    let name = overrides.name.clone().unwrap_or_else(own_name);
    place::check_name(&name)?;
    let base = place::base()?;
    let directory = base.join(&name);
    let program = program()?;
    let mut command = Command::new(&program);
    command
        .arg0("wanbed")
        .arg("daemon")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .current_dir("/");
    command.stderr(if attached {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    command.process_group(0); // a Ctrl-C is for whoever uses the lab, who then takes it down
    let mut child = command
        .spawn()
        .while_doing(|| format!("starting {}", program.display()))?;
    let request = LaunchRequest {
        scenario: scenario.clone(),
        overrides: overrides.clone(),
        name: name.clone(),
        base,
        attached,
    };
    let answer = match (child.stdin.as_mut(), child.stdout.take()) {
        // A process that ends at once breaks the pipe. Its output, or lack of it, says more than
        // that.
        (Some(input), Some(output)) => {
            let _ = control::write_line(input, &request);
            control::read_line::<LabResponse<LabDescription>>(&mut BufReader::new(output))
        }
        _ => Err("its pipes are missing".to_owned()),
    };
    let refused = match answer {
        Ok(LabResponse::Ok(description)) => return Ok((child, description, directory)),
        Ok(LabResponse::Error(problem)) => problem.into(),
        Err(problem) => Error::Daemon { lab: name, problem },
    };
    drop(child.stdin.take());
    let _ = child.wait();
    Err(refused)
}

/// Returns a name that differs from all others in use: this process's number and a counter.
fn own_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    format!(
        "lab-{}-{}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    )
}

/// Returns the `wanbed` program: the one in WANBED_BIN, this program itself, one next to it (as
/// `cargo` builds them), or in PATH.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("WANBED_BIN").map(PathBuf::from) {
        return if is_program(&named) {
            Ok(named)
        } else {
            Err(Error::NoProgram(format!(
                "at {} (WANBED_BIN)",
                named.display()
            )))
        };
    }
    let this = std::env::current_exe().while_doing(|| "finding this program".to_owned())?;
    if this.file_name() == Some(OsStr::new("wanbed")) {
        // Works even if the file was replaced by a new build meanwhile.
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    let beside = this
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("wanbed"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|directory| directory.join("wanbed"))
        .collect();
    beside
        .chain(in_path)
        .find(|candidate| is_program(candidate))
        .ok_or_else(|| Error::NoProgram(format!("near {}", this.display())))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

/// Returns the exit code of a finished command as a shell would: 128 plus the signal's number if it
/// was killed.
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Replaces this program by a command in a node.
///
/// # Errors
/// Returns only if the command cannot be started.
pub fn become_command(mut command: Command) -> io::Error {
    command.exec()
}
