use super::*;
use proptest::prelude::*;

const NUMBERS: KernelNumbers = KernelNumbers {
    handle: 0x4c48,
    filters: 12_000,
    rules: 12_000,
    tables: 120_000,
    protocol: 176,
};

const DISCIPLINES: &str = "\
qdisc htb 4c48: root refcnt 3 r2q 10 default 0x2 direct_packets_stat 0 direct_qlen 1000
qdisc bfifo 8004: parent 4c48:10 limit 400000b
";

const CLASSES: &str = "\
class htb 4c48:10 parent 4c48:1 leaf 8004: prio 0 rate 20Mbit ceil 20Mbit burst 64Kb cburst 64Kb 
 Sent 710 bytes 5 pkt (dropped 3, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0

class htb 4c48:1 root rate 1Gbit ceil 1Gbit burst 65375b cburst 65375b 
 Sent 1312 bytes 10 pkt (dropped 0, overlimits 0 requeues 0) 

class htb 4c48:2 parent 4c48:1 prio 1 rate 990Mbit ceil 1Gbit burst 65340b cburst 65375b 
 Sent 602 bytes 5 pkt (dropped 0, overlimits 0 requeues 0) 
";

const FILTERS: &str = "\
filter protocol ip pref 12000 bpf chain 0 
filter protocol ip pref 12000 bpf chain 0 handle 0x1 flowid 4c48:10 not_in_hw bytecode '2,6 0 0 4294967295,6 0 0 0'
";

fn interface(disciplines: &str, classes: &str, filters: &str) -> Interface {
    let mut interface = Interface::default();
    read_disciplines(disciplines, &NUMBERS, &mut interface);
    read_classes(classes, &NUMBERS, &mut interface);
    read_filters(filters, &NUMBERS, &mut interface);
    interface
}

#[test]
fn the_routers_objects_are_found() {
    let found = interface(DISCIPLINES, CLASSES, FILTERS);
    let slot = BTreeSet::from([0]);
    let right = Interface {
        root: RootDiscipline::Own,
        has_base_classes: true,
        classes: slot.clone(),
        queues: slot.clone(),
        filters: slot,
        has_foreign_objects: false,
    };
    assert_eq!(found, right);
    let counted = Counters {
        bytes: 710,
        packets: 5,
        drops: 3,
    };
    assert_eq!(read_counters(CLASSES, "4c48:10"), Some(counted));
    assert_eq!(read_counters(CLASSES, "4c48:11"), None);
}

#[test]
fn foreign_disciplines_are_distinguished() {
    for (line, root) in [
        (
            "qdisc noqueue 0: root refcnt 2 ",
            RootDiscipline::KernelDefault,
        ),
        (
            "qdisc fq_codel 0: root refcnt 2 limit 10240p flows 1024",
            RootDiscipline::KernelDefault,
        ),
        (
            "qdisc htb 1: root refcnt 2 r2q 10 default 0x2",
            RootDiscipline::Foreign("htb 1:".to_owned()),
        ),
        (
            "qdisc tbf 4c48: root refcnt 2 rate 1Mbit",
            RootDiscipline::Foreign("tbf 4c48:".to_owned()),
        ),
        (
            "qdisc ingress ffff: parent ffff:fff1 ----------------",
            RootDiscipline::KernelDefault,
        ),
    ] {
        assert_eq!(interface(line, "", "").root, root, "{line}");
    }
    let class = CLASSES.replace("4c48:10 ", "4c48:f000 ");
    assert!(interface(DISCIPLINES, &class, FILTERS).has_foreign_objects);
    let filter = FILTERS.replace("12000", "5");
    assert!(interface(DISCIPLINES, CLASSES, &filter).has_foreign_objects);
    let elsewhere = FILTERS.replace("flowid 4c48:10", "flowid 4c48:2");
    assert!(interface(DISCIPLINES, CLASSES, &elsewhere).has_foreign_objects);
    let queue = format!("{DISCIPLINES}qdisc fq_codel 8005: parent 4c48:2 limit 10240p\n");
    assert!(interface(&queue, CLASSES, FILTERS).has_foreign_objects);
}

#[test]
fn rules_and_routes_are_own_only_if_all_numbers_match() {
    let rules = r#"[{"priority":0,"src":"all","table":"255"},
        {"priority":12000,"src":"10.0.0.1","table":"120000","protocol":"176"},
        {"priority":12001,"src":"10.0.0.1","table":"120001","protocol":"3"},
        {"priority":12002,"src":"10.0.0.1","table":"7","protocol":176},
        {"priority":9,"src":"10.0.0.1","table":"120004","protocol":"176"},
        {"priority":32766,"src":"all","table":"254"}]"#;
    let mut snapshot = KernelSnapshot::default();
    read_rules(rules, &NUMBERS, IpFamily::V4, &mut snapshot).unwrap();
    assert_eq!(snapshot.rules, BTreeSet::from([(IpFamily::V4, 0)]));
    assert_eq!(snapshot.foreign_slots, BTreeSet::from([1, 2, 4]));
    let routes = r#"[{"dst":"default","dev":"v0","table":"120003"},{"dst":"default","dev":"v0","table":"7"}]"#;
    read_routes(routes, &NUMBERS, IpFamily::V6, &mut snapshot).unwrap();
    assert_eq!(snapshot.routes, BTreeSet::from([(IpFamily::V6, 3)]));
    assert_eq!(snapshot.slots(), BTreeSet::from([0, 3]));
    assert_eq!(rows(" \n").unwrap(), Vec::<Value>::new());
    assert!(rows("[").is_err());
}

proptest! {
    #[test]
    fn any_text_is_read(text in "((qdisc|class|filter|htb|pref|flowid|parent|root|4c48:|4c48:10|:|12000|[0-9a-f]{1,6}:[0-9a-f]{0,6}|\n| )[ ]?){0,40}") {
        let _ = interface(&text, &text, &text);
        let _ = read_counters(&text, "4c48:10");
    }

    #[test]
    fn any_json_is_read(text in r#"\[(\{"(priority|table|protocol)":("[0-9]{0,12}"|-?[0-9]{1,20}|null)\},?){0,3}\]?"#) {
        let mut snapshot = KernelSnapshot::default();
        let _ = read_rules(&text, &NUMBERS, IpFamily::V4, &mut snapshot);
        let _ = read_routes(&text, &NUMBERS, IpFamily::V4, &mut snapshot);
    }
}
