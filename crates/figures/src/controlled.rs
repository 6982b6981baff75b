//! A controller in a lab, shared by the experiments with reservations. It has keys of its own, and
//! so has the client: the homes of other runs must not learn of it.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use wanbed::Lab;

use crate::children::{Server, succeed_within};
use crate::copy::{DEPOT_PORT, in_node};
use crate::experiment::Here;
use crate::identities::new_key;

/// Maximum duration of a command of the setup.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const CONTROLLER_PORT: u16 = 7513;
/// Maximum time for setting up a circuit.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(30);
const SET_UP_POLL: Duration = Duration::from_millis(200);

/// A client, depots and a controller that know each other, in the folder of a run.
pub struct Controlled<'a, 'h, S> {
    here: &'a Here<'h, S>,
    /// Key of the client.
    pub client_key: String,
    /// Key of the controller.
    pub controller_key: String,
    depots: Vec<Server>,
    services: Vec<Server>,
}

impl<'a, 'h, S> Controlled<'a, 'h, S> {
    /// Creates the keys; nothing runs yet.
    ///
    /// # Errors
    /// A key cannot be created.
    pub fn new(here: &'a Here<'h, S>) -> Result<Self> {
        let key = |name: &str| new_key(&here.tools.longhaul, &here.folder.join(name));
        Ok(Self {
            here,
            client_key: key("client")?,
            // The folder in which the controller looks for its own key.
            controller_key: key("controller/state/control")?,
            depots: Vec::new(),
            services: Vec::new(),
        })
    }

    /// Returns a `longhaul` command in a node, with the keys and the state of `home`.
    ///
    /// # Errors
    /// The lab has no such node.
    pub fn longhaul(&self, node: &str, home: &str) -> Result<Command> {
        let home = self.here.folder.join(home);
        let mut command = in_node(self.here.tools, self.here.lab, node, &home)?;
        command
            .env("LONGHAUL_STATE", home.join("state"))
            .env("TZ", "UTC");
        Ok(command)
    }

    /// Returns the address of a node as text.
    ///
    /// # Errors
    /// The lab has no such node.
    pub fn address(&self, node: &str) -> Result<String> {
        Ok(self.here.lab.address(node)?.to_string())
    }

    /// Runs a command of the client or the controller. Returns its output.
    ///
    /// # Errors
    /// It fails.
    pub fn ask(&self, node: &str, home: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.longhaul(node, home)?;
        command.args(arguments);
        succeed_within(
            command,
            arguments.first().unwrap_or(&"longhaul"),
            COMMAND_TIMEOUT,
        )
    }

    /// Starts a depot in a node. It lets the client through, and takes the grants of the controller
    /// that will run in another node. Returns its entry for the map.
    ///
    /// # Errors
    /// It does not start.
    pub fn depot(&mut self, node: &str, controller: &str) -> Result<Value> {
        let policy = self.path("policy.toml");
        let rule = format!(
            "controllers = [\"{}\"]\n[[allow]]\nprincipals = [\"{}\"]\nto = [\"10.77.0.0/16\"]\n\
             next_hops = [\"direct\", \"10.77.0.0/16\"]\n",
            self.controller_key, self.client_key
        );
        std::fs::write(&policy, rule).context("cannot write the depots' policy")?;
        let home = format!("depot-{node}");
        let key = new_key(&self.here.tools.longhaul, &self.path(&home))?;
        let mut command = self.longhaul(node, &home)?;
        command.args([
            "depot",
            "--listen",
            &format!("0.0.0.0:{DEPOT_PORT}"),
            "--policy",
        ]);
        let controller = format!("https://{}:{CONTROLLER_PORT}", self.address(controller)?);
        command.arg(&policy).args(["--controller", &controller]);
        command.args(["--controller-key", &self.controller_key]);
        self.depots
            .push(Server::start(command, "longhaul depot", "listening")?);
        let address = format!("{}:{DEPOT_PORT}", self.address(node)?);
        Ok(serde_json::json!({"name": node, "key": key, "site": node,
                "addresses": [{"endpoint": address}]}))
    }

    /// Returns the process of the depot that was started at this position.
    pub fn depot_process(&self, place: usize) -> Option<u32> {
        self.depots.get(place).map(Server::process)
    }

    /// Keeps a server running as long as this value lives.
    pub fn keep(&mut self, server: Server) {
        self.services.push(server);
    }

    /// Starts the agent of a Linux router in a node, for the link on which packets leave it for
    /// another node. Returns its entry for the controller's configuration.
    ///
    /// # Errors
    /// It does not start.
    pub fn router(
        &mut self,
        node: &str,
        to: &str,
        link: &str,
        rate_bps: f64,
        share: f64,
    ) -> Result<String> {
        let (interface, gateways) = leaves(self.here.lab, node, to)?;
        let links = serde_json::json!({link: {
            "interface": interface, "gateways": gateways, "rate": rate_bps as u64,
            "reservable": (share * 1e6) as u64}});
        self.router_of(node, &links)
    }

    /// Starts the agent of a Linux router in a node, with these links in the format of its
    /// configuration. Returns its entry for the controller's configuration.
    ///
    /// # Errors
    /// It does not start.
    pub fn router_of(&mut self, node: &str, links: &Value) -> Result<String> {
        let config = serde_json::json!({"owner": "longhaul", "links": links});
        let file = self.path(&format!("router-{node}.json"));
        std::fs::write(&file, config.to_string())
            .context("cannot write the router's configuration")?;
        let agent = self
            .path(&format!("router-{node}/agent"))
            .display()
            .to_string();
        let mut router = self.longhaul(node, &format!("router-{node}-home"))?;
        router.args(["router", "--config"]).arg(&file);
        router
            .arg("--state")
            .arg(self.path(&format!("router-{node}-state")));
        router.arg("--listen").arg(format!("unix:{agent}"));
        self.services
            .push(Server::start(router, "longhaul router", "listening")?);
        Ok(format!("[setup.nodes.{node}]\nagent = \"unix:{agent}\"\n"))
    }

    /// Starts the controller in a node, with this map and configuration, and lets the client of
    /// that node reserve.
    ///
    /// # Errors
    /// It does not start, or refuses the map.
    pub fn controller(&mut self, node: &str, client: &str, map: &Value, setup: &str) -> Result<()> {
        let [map_file, setup_file] = ["map.json", "control.toml"].map(|name| self.path(name));
        std::fs::write(&map_file, map.to_string()).context("cannot write the map")?;
        std::fs::write(&setup_file, setup)
            .context("cannot write the controller's configuration")?;
        let listen = format!("{}:{CONTROLLER_PORT}", self.address(node)?);
        let mut control = self.longhaul(node, "controller")?;
        control
            .args(["control", "--listen", &listen, "--config"])
            .arg(&setup_file);
        self.services
            .push(Server::start(control, "longhaul control", "is ready")?);
        self.ask(
            node,
            "controller",
            &["map", "import", &map_file.to_string_lossy()],
        )?;
        for role in ["client", "reserver"] {
            let grant = ["control", "grant", &self.client_key, role, "--name", client];
            self.ask(node, "controller", &grant)?;
        }
        let depots = map.get("depots").and_then(Value::as_array);
        let keys = depots
            .into_iter()
            .flatten()
            .filter_map(|depot| depot.get("key"));
        for key in keys.filter_map(Value::as_str) {
            // The controller renews grants.
            self.ask(node, "controller", &["control", "grant", key, "depot"])?;
        }
        let url = format!("https://{listen}");
        self.ask(
            client,
            "client",
            &["controller", "use", &url, "--accept-new"],
        )?;
        Ok(())
    }

    /// Waits until the circuit of a reservation of the client is set up.
    ///
    /// # Errors
    /// It is not set up within [`SET_UP_TIMEOUT`].
    pub fn wait_set_up(&self, client: &str, id: &str) -> Result<()> {
        let deadline = Instant::now() + SET_UP_TIMEOUT;
        loop {
            let said = self.ask(client, "client", &["reservations", id, "--json"])?;
            let reservation: Value =
                serde_json::from_str(&said).context("longhaul reservations")?;
            if reservation["circuit"]["standing"] == "set-up" {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("the circuit is not set up: {}", reservation["circuit"]);
            }
            std::thread::sleep(SET_UP_POLL);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.folder.join(name)
    }
}

/// Returns the interface and the next router for packets from a node to another.
///
/// # Errors
/// `ip` does not tell.
fn leaves(lab: &Lab, node: &str, to: &str) -> Result<(String, Vec<String>)> {
    let mut ip = lab.command(node, "ip")?;
    ip.args(["-j", "route", "get", &lab.address(to)?.to_string()]);
    let routes: Value = serde_json::from_str(&succeed_within(ip, "ip route", COMMAND_TIMEOUT)?)
        .context("ip route")?;
    let text = |field: &str| routes[0][field].as_str().map(str::to_owned);
    let interface = text("dev").context("ip route names no interface")?;
    Ok((interface, text("gateway").into_iter().collect()))
}
