use super::*;

fn config(nodes: serde_json::Value) -> Result<SetupConfig, String> {
    let value = serde_json::json!({ "nodes": nodes });
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[test]
fn nodes_with_the_same_access_share_a_driver() {
    let nodes = serde_json::json!({
        "a": {"agent": "unix:/run/one"},
        "b": {"agent": "unix:/run/one"},
        "c": {"agent": "unix:/run/two"},
        "d": {"command": ["ssh", "router"]}, "e": {"program": ["/bin/true"], "time_s": 5},
    });
    let config = config(nodes).unwrap();
    assert_eq!(config.owner().as_str(), "longhaul");
    let (nodes, drivers) = config.drivers().unwrap();
    let of = |node: &str| {
        nodes[&node.parse::<EntityName>().unwrap()]
            .as_str()
            .to_owned()
    };
    assert_eq!(["a", "b", "c", "d", "e"].map(of), ["a", "a", "c", "d", "e"]);
    assert_eq!(drivers.len(), 4);
}

#[test]
fn node_config_faults_are_reported_in_one_line() {
    for (node, why) in [
        (
            serde_json::json!({}),
            "name one of agent, command and program",
        ),
        (
            serde_json::json!({"agent": "unix:/a", "program": ["b"]}),
            "name one of",
        ),
        (serde_json::json!({"agent": "/a"}), "write unix:/PATH"),
        (serde_json::json!({"command": []}), "the command is empty"),
        (
            serde_json::json!({"agent": "unix:/a", "time_s": 0}),
            "time_s must be 1 to 100",
        ),
    ] {
        let error = config(serde_json::json!({ "west": node }))
            .unwrap()
            .drivers();
        let error = error.err().unwrap().to_string();
        assert!(
            error.starts_with("setup.nodes.west: ") && error.contains(why),
            "{error}"
        );
    }
    assert!(config(serde_json::json!({"west": {"agnet": "unix:/a"}})).is_err());
}
