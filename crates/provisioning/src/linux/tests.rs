use std::io;
use std::sync::Arc;

use super::*;
use crate::driver::{list, set_up};
use crate::testing::{name, part};

fn config(text: &str) -> Result<RouterConfig, String> {
    let config: RouterConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

#[test]
fn the_documented_configuration_is_valid() {
    let page = include_str!("../../../../docs/circuits.md");
    let example = page
        .lines()
        .find(|line| line.contains("\"interface\""))
        .unwrap();
    let config = config(example).unwrap();
    assert_eq!(config.links[&name("wan")].rate, 9_900_000_000);
    assert_eq!(config.numbers, KernelNumbers::default());
    let numbers = serde_json::to_value(KernelNumbers::default()).unwrap();
    assert_eq!(
        numbers,
        serde_json::json!({
            "handle": 0x4c48,
            "filters": 12_000,
            "rules": 12_000,
            "tables": 120_000,
            "protocol": 176
        }),
        "docs/circuits.md names these"
    );
    for text in ["12000 to 13999", "120000 to 121999", "`4c48:`"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn router_config_faults_are_reported_in_one_line() {
    let link = |rest: &str| format!(r#"{{"owner":"us","links":{{"wan":{{{rest}}}}}}}"#);
    let numbers = |rest: &str| format!(r#"{{"owner":"us","links":{{}},"numbers":{{{rest}}}}}"#);
    let two = r#"{"owner":"us","links":{"a":{"interface":"eth1","rate":1000000},"b":{"interface":"eth1","rate":1000000}}}"#;
    for (text, why) in [
        (
            link(r#""interface":"-x","rate":1000000"#),
            "is not the name of an interface",
        ),
        (
            link(r#""interface":"eth0 root","rate":1000000"#),
            "is not the name of an interface",
        ),
        (
            link(r#""interface":"eth1.7@eth1","rate":1000000"#),
            "is not the name of an interface",
        ),
        (
            link(r#""interface":"","rate":1000000"#),
            "is not the name of an interface",
        ),
        (link(r#""interface":"eth1","rate":1"#), "64000 to"),
        (
            link(r#""interface":"eth1","rate":1000000,"reservable":1000001"#),
            "more than the whole",
        ),
        (
            link(r#""interface":"eth1","rate":1000000,"gateways":["10.0.0.1","10.0.0.2"]"#),
            "two gateways",
        ),
        (two.to_owned(), "links a and b are both interface eth1"),
        (
            numbers(r#""handle":0"#),
            "the handle from 0: use 1 to 32767",
        ),
        (
            numbers(r#""rules":32000"#),
            "rules from 32000: use 1 to 30766",
        ),
        (numbers(r#""tables":254"#), "tables from 254: use 256"),
        (
            numbers(r#""protocol":2"#),
            "the protocol from 2: use 5 to 255",
        ),
    ] {
        let error = config(&text).unwrap_err();
        assert!(
            error.contains(why) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
}

#[test]
fn numbers_are_found_again() {
    let numbers = KernelNumbers::default();
    for slot in [0, 1, MAX_SLOTS - 1] {
        assert_eq!(
            KernelNumbers::slot_of(numbers.rules.into(), numbers.rule_preference(slot).into()),
            Some(slot)
        );
        assert_eq!(
            KernelNumbers::slot_of(numbers.tables, numbers.table_number(slot)),
            Some(slot)
        );
        let class = room::class_id(&numbers, slot);
        let minor = u16::from_str_radix(class.split_once(':').unwrap().1, 16).unwrap();
        assert_eq!(room::slot_of_class(minor), Some(slot));
    }
    assert_eq!(
        KernelNumbers::slot_of(numbers.tables, numbers.tables + u32::from(MAX_SLOTS)),
        None
    );
    assert_eq!(
        KernelNumbers::slot_of(numbers.tables, numbers.tables - 1),
        None
    );
    assert_eq!(room::slot_of_class(room::REST_CLASS), None);
}

#[test]
fn packets_without_a_circuit_keep_a_share_of_every_link() {
    assert_eq!(room::unreserved_rate(100, 30), 70);
    assert_eq!(room::unreserved_rate(1_000, 999), 10);
    assert_eq!(room::unreserved_rate(1_000, 2_000), 10);
    assert_eq!(room::burst_bytes(1), 64 << 10);
    assert_eq!(room::queue_bytes(1 << 53), 1 << 30);
}

#[test]
fn a_record_survives_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("a/b");
    let [one, other] = ["one", "other"].map(|circuit| part("us", circuit, "a", "ab", 5));
    let mut record = SlotRecord::open(&directory).unwrap();
    record.insert(3, one.clone()).unwrap();
    record.insert(4, other.clone()).unwrap();
    record.remove(4).unwrap();
    record.remove(9).unwrap();
    assert!(matches!(
        SlotRecord::open(&directory),
        Err(RecordError::Taken(_))
    ));
    drop(record);
    let record = SlotRecord::open(&directory).unwrap();
    assert_eq!(record.find_part(&one.id), Some((3, &one)));
    assert_eq!(record.find_part(&other.id), None);
    drop(record);
    for text in ["", "{\"3\":", "{\"2000\":null}", "[]", "{\"99999\":1}"] {
        std::fs::write(directory.join("parts.json"), text).unwrap();
        let error = SlotRecord::open(&directory).unwrap_err();
        assert!(
            matches!(error, RecordError::Unreadable { .. }),
            "{text}: {error}"
        );
    }
}

#[tokio::test]
async fn missing_programs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"owner":"us","links":{"ab":{"interface":"eth1","rate":1000000}}}"#;
    let dead: CommandBuilder = Arc::new(|program, _| match program {
        "tc" => Ok(std::process::Command::new("/no/such/tc")),
        _ => Err(io::Error::other("dead")),
    });
    let router = LinuxRouter::open(config(text).unwrap(), folder.path(), dead).unwrap();
    let error = list(&router, name("us")).await.unwrap_err().to_string();
    assert!(
        error.contains("tc qdisc show dev eth1") && error.contains("iproute2"),
        "{error}"
    );
    let error = set_up(&router, part("us", "c", "a", "ab", 100_000))
        .await
        .unwrap_err();
    assert!(matches!(error, DriverError::Failed { .. }), "{error}");
}
