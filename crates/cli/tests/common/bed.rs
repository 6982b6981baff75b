//! A lab with services on its nodes, and a controller that sets up circuits on its routers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wanbed::{Lab, Overrides, Scenario};

use super::{Service, has_labs, key_of, started};

/// Guards against waiting for ever; long enough for any working machine.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(180);
/// Directory of the controller's key.
pub const CONTROLLER: &str = "control/state/control";
/// Rate that a router may give to circuits on one of its links, in bit/s.
const ROUTER_LINK_BPS: u64 = 900_000_000;

/// A lab, with homes and files in one directory.
pub struct Bed {
    // Dropped in this order: processes in the lab first.
    /// Running services by name.
    pub services: BTreeMap<String, Service>,
    pub lab: Lab,
    pub dir: tempfile::TempDir,
    /// Node on which the controller runs. `None` if it runs beside the lab.
    controller_node: Option<&'static str>,
}

impl Bed {
    /// Starts the lab of a scenario. Prints why and returns `None` if this machine allows no labs.
    pub fn start(network: &str, controller_node: Option<&'static str>) -> Option<Self> {
        if !has_labs() {
            return None;
        }
        let scenario = Scenario::from_text("bed", network);
        Some(Self {
            services: BTreeMap::new(),
            lab: Lab::up(&scenario, &Overrides::default()).unwrap(),
            dir: tempfile::tempdir().unwrap(),
            controller_node,
        })
    }

    /// Runs a service until the end of the bed, or until another of this name.
    pub fn keep(&mut self, name: &str, service: Service) {
        self.services.insert(name.to_owned(), service);
    }

    /// Returns the path of a file, or of a home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the key of a home.
    pub fn key(&self, name: &str) -> String {
        key_of(&self.path(name))
    }

    /// Returns the address of a node.
    pub fn address(&self, node: &str) -> String {
        self.lab.address(node).unwrap().to_string()
    }

    /// Returns a command that will run on a node.
    pub fn command(&self, node: &str, program: &str) -> Command {
        self.lab.command(node, program).unwrap()
    }

    /// Returns `longhaul` on a node, with this home.
    pub fn longhaul(&self, node: &str, home: &str) -> Command {
        self.with_home(self.command(node, env!("CARGO_BIN_EXE_longhaul")), home)
    }

    fn with_home(&self, mut command: Command, home: &str) -> Command {
        command
            .env("LONGHAUL_HOME", self.path(home))
            .env("LONGHAUL_STATE", self.path(home).join("state"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Returns `longhaul` with the controller's home, beside the controller.
    pub fn operator(&self) -> Command {
        match self.controller_node {
            Some(node) => self.longhaul(node, "control"),
            None => self.with_home(Command::new(env!("CARGO_BIN_EXE_longhaul")), "control"),
        }
    }

    /// Runs a command beside the controller, and returns its output.
    pub fn operate(&self, arguments: &[&str]) -> String {
        outcome(self.operator().args(arguments))
            .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
    }

    /// Runs `longhaul` on a node, and returns its output.
    pub fn run(&self, node: &str, home: &str, arguments: &[&str]) -> String {
        outcome(self.longhaul(node, home).args(arguments))
            .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
    }

    /// Starts the agent of a router, which sets up circuits on `links`.
    pub fn start_router(&mut self, node: &str, links: &Value) {
        let config = json!({"owner": "longhaul", "links": links});
        let file = self.path(&format!("{node}.json"));
        fs::write(&file, config.to_string()).unwrap();
        let mut command = self.longhaul(node, node);
        command
            .args(["router", "--config"])
            .arg(&file)
            .arg("--state")
            .arg(self.path(&format!("{node}.state")))
            .arg("--listen")
            .arg(format!("unix:{}", self.socket(node).display()))
            .env("RUST_LOG", "error");
        self.keep(node, started(command));
    }

    /// Returns the settings of the link by which packets leave a router for a node.
    pub fn link_towards(&self, router: &str, node: &str) -> Value {
        let route = self.route(router, node);
        let gateways: Vec<&str> = route["gateway"].as_str().into_iter().collect();
        json!({"interface": route["dev"], "gateways": gateways, "rate": ROUTER_LINK_BPS})
    }

    fn route(&self, node: &str, to: &str) -> Value {
        let mut ip = self.command(node, "ip");
        let output = ip.args(["-j", "route", "get", &self.address(to)]).output();
        let routes: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        routes[0].clone()
    }

    /// Returns the socket of a router's agent.
    pub fn socket(&self, node: &str) -> PathBuf {
        self.path(&format!("{node}.d")).join("agent")
    }

    /// Returns the controller's settings to use the agents of these routers, which are sites of the
    /// same names.
    pub fn agents(&self, routers: &[&str]) -> String {
        let settings = routers.iter().map(|router| {
            let socket = self.socket(router);
            format!(
                "[setup.nodes.{router}]\nagent = \"unix:{}\"\n",
                socket.display()
            )
        });
        settings.collect()
    }

    /// Starts the controller. On a node, it also listens on TCP.
    pub fn start_controller(&mut self, settings: &str) {
        let file = self.path("control.toml");
        fs::write(&file, settings).unwrap();
        let mut command = self.operator();
        command.args(["control", "--config"]).arg(&file);
        if let Some(node) = self.controller_node {
            command.args(["--listen", &format!("{}:7513", self.address(node))]);
        }
        command.env("RUST_LOG", "error");
        self.keep("controller", ready(command));
    }

    /// Returns the URL of a controller on a node.
    pub fn controller_url(&self) -> String {
        let node = self.controller_node.unwrap();
        format!("https://{}:7513", self.address(node))
    }

    /// Gives the controller its map.
    pub fn import(&self, map: &Value) {
        let file = self.path("map.json");
        fs::write(&file, map.to_string()).unwrap();
        self.operate(&["map", "import", file.to_str().unwrap()]);
    }

    /// Gives the key of a home a role at the controller.
    pub fn grant(&self, name: &str, role: &str) {
        self.operate(&["control", "grant", &self.key(name), role, "--name", name]);
    }

    /// Reserves between `client` and `server`. Returns the reservation, or the refusal.
    pub fn reserve(&self, options: &[&str]) -> Result<Value, String> {
        let usual = ["reserve", "client", "server", "--json"];
        let said = outcome(self.operator().args(usual).args(options))?;
        let said: Value = serde_json::from_str(&said).unwrap();
        Ok(said["reservations"][0].clone())
    }

    /// Waits until a reservation has the expected state.
    pub fn becomes(&self, id: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(what, || {
            let now = self.operate(&["reservations", id, "--json"]);
            let now = serde_json::from_str(&now).unwrap();
            if is(&now) { Ok(now) } else { Err(now) }
        })
    }

    /// Returns the traffic classes of the interface by which a node reaches another.
    pub fn classes(&self, node: &str, to: &str) -> String {
        let route = self.route(node, to);
        let mut tc = self.command(node, "tc");
        tc.args(["class", "show", "dev", route["dev"].as_str().unwrap()]);
        String::from_utf8(tc.output().unwrap().stdout).unwrap()
    }
}

/// Waits until `look` finds what is expected. Its error describes what it found instead.
pub fn until<T>(what: &str, look: impl Fn() -> Result<T, Value>) -> T {
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    loop {
        match look() {
            Ok(found) => return found,
            Err(now) => assert!(Instant::now() < deadline, "{what}: {now:#}"),
        }
        std::thread::yield_now();
    }
}

/// Starts a service, and waits for the line that says that it is ready.
pub fn ready(mut command: Command) -> Service {
    let mut service = Service(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let output = service.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert!(line.contains("ready"), "{line}");
    service
}

/// Runs a command. Returns its output, or everything that it said if it failed.
pub fn outcome(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (said, complained) = (text(output.stdout), text(output.stderr));
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{said}{complained}")),
    }
}

/// Returns true if a reservation's circuit is set up.
pub fn is_set_up(reservation: &Value) -> bool {
    reservation["circuit"]["standing"] == "set-up"
}
