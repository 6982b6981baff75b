//! Measurements and copies between nodes that meet at IPv6 addresses.

use wanbed::Overrides;

use crate::path::LongPath;

fn with_ipv6() -> Option<LongPath> {
    LongPath::with(&Overrides::default().set("ipv6", "true"))
}

#[test]
fn copies_pass_servers_and_depots_over_ipv6() {
    let Some(path) = with_ipv6() else { return };
    std::fs::write(path.root().join("file"), vec![7; 1 << 20]).unwrap();
    for depots in [&[][..], &["near"], &["near", "far"]] {
        let route = path.route(depots);
        assert!(
            depots.is_empty() || route.starts_with("[fd77::2]:7510"),
            "{route}"
        );
        let report = path.fetched("file", &["--route", &route]);
        assert_eq!(report["verification"]["verified"], true, "{report}");
    }
}

#[test]
fn measurement_over_ipv6_names_its_class() {
    let Some(path) = with_ipv6() else { return };
    let course = ["--bytes", "1M", "--distance", "10037", "--hops", "2"];
    let class = |more: &[&str]| {
        let json = path.measure(&[&course[..], more].concat());
        let connected = &json["start"]["connected"][0];
        (
            connected["remote_host"].as_str().unwrap().to_owned(),
            json["longhaul"]["land_speed_record"].clone(),
        )
    };
    let (host, record) = class(&[]);
    assert_eq!(host, "fd77::4");
    let expected = serde_json::json!({ "ip": "ipv6", "streams": "single" });
    assert_eq!(record["class"], expected);
    let (_, record) = class(&["--parallel", "2"]);
    assert_eq!(record["class"]["streams"], "multiple");
    // Through a depot no TCP stream reaches from end to end.
    let (host, record) = class(&["--route", &path.route(&["near"])]);
    assert_eq!(host, "fd77::2");
    assert_eq!(record["class"], serde_json::Value::Null);
    assert_eq!(record["unclassified"], "relayed");
}
