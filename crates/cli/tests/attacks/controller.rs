//! The controller under attack, and requests by its keys.

use longhaul_control_client::settings::{ControllerEntry, ControllerTrust};
use longhaul_control_client::{ServiceClient, ServiceUrl, unix_ms};
use longhaul_proto::{PublicKey, SigningKey};
use serde_json::{Value, json};

use crate::stage::{Service, errors};
use crate::world::World;

/// A controller with a map: sites `west` and `east` with a link, host `dtn1` at the first and
/// `store` at the second.
pub struct Controller<'a> {
    world: &'a World,
    pub service: Service,
}

/// A key, and its connection to the controller.
pub struct Principal {
    pub key: SigningKey,
    client: ServiceClient,
}

impl<'a> Controller<'a> {
    pub fn new(world: &'a World) -> Self {
        let mut command = world.logged("control");
        command.args(["control", "--listen", "127.0.0.1:0"]);
        let this = Self {
            world,
            service: world.stage.service(command, "https"),
        };
        let map = r#"
            [[site]]
            name = "west"
            [[site]]
            name = "east"
            [[host]]
            name = "dtn1"
            site = "west"
            addresses = ["dtn1.example", "192.0.2.0/24"]
            [[host]]
            name = "store"
            site = "east"
            addresses = ["store.example"]
            [[link]]
            between = ["west", "east"]
            capacity = "10 Gbit/s"
        "#;
        std::fs::write(world.stage.path("map.toml"), map).unwrap();
        this.operate(&["map", "import", "map.toml"]);
        this
    }

    /// Runs the command as the controller's own user.
    pub fn operate(&self, arguments: &[&str]) -> String {
        let output = self
            .world
            .stage
            .longhaul("control")
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            errors(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes a key with these roles, and a name if it is not empty.
    pub fn principal(&self, roles: &[&str], name: &str) -> Principal {
        let key = SigningKey::generate().unwrap();
        for role in roles {
            let text = key.public().to_string();
            let mut arguments = vec!["control", "grant", &text, role];
            if !name.is_empty() {
                arguments.extend(["--name", name]);
            }
            self.operate(&arguments);
        }
        let known: PublicKey = self.service.key.parse().unwrap();
        let site = ControllerEntry {
            url: format!("https://{}", self.service.address)
                .parse::<ServiceUrl>()
                .unwrap(),
            known: Some(ControllerTrust::Key(known)),
        };
        let client = site.client(&key).unwrap();
        Principal { key, client }
    }

    /// Sends a request signed by `principal`, and returns the status and the answer.
    pub fn ask(
        &self,
        principal: &Principal,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        self.world
            .attackers
            .block_on(principal.ask(method, path, body))
    }

    /// Returns the map as the operator sees it.
    pub fn map(&self) -> Value {
        serde_json::from_str(&self.operate(&["map", "--json"])).unwrap()
    }
}

impl Principal {
    /// Sends a request, and returns the status and the answer.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = (!body.is_null()).then_some(body);
        let response = self.client.send(method, path, body, None).await.unwrap();
        let (status, bytes) = self.client.read_body(response).await.unwrap();
        (
            status.as_u16(),
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    /// Returns the path of its registration.
    pub fn depot_path(&self) -> String {
        format!(
            "/depots/{}",
            self.key.public().to_string().replace(':', "%3A")
        )
    }

    /// Builds its registration under a name, valid for this many seconds.
    pub fn registration(&self, name: &str, valid_for: f64) -> Value {
        json!({"key": self.key.public().to_string(), "name": name, "site": "west", "version": "1",
            "addresses": [{"endpoint": "192.0.2.77:7510"}],
            "sent_at": unix_ms() as f64 / 1000.0, "valid_for_seconds": valid_for})
    }
}
