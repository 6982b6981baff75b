use super::cells::{Congestion, CopyWay, FASP_PATHS, GatewayCase, Loss, PerfWay, Windows};
use super::*;
use crate::ip::IpVersion;
use crate::noise::Noise;
use crate::record::Record;
use crate::runner::Extent;
use crate::runs::tests::record;

fn run(cell: Cell, seed: u64, mbps: f64) -> Record<Cell, Observation> {
    let seen = Observation {
        seconds: 8.0,
        goodput_bps: mbps * 1e6,
    };
    record(cell, seed, seen, true)
}

/// Returns the runs of a plan with these words.
fn planned(only: &[&str]) -> Vec<(Cell, u64)> {
    let extent = Extent {
        seeds: None,
        first_seed: 1,
        resume: false,
        until: None,
        retries: 0,
        noises: vec![Noise::None],
        ip: IpVersion::Ipv4,
        only: only.iter().map(|word| (*word).to_owned()).collect(),
    };
    let keys = extent.keys(&Transports);
    keys.into_iter()
        .map(|key| (key.factors, key.seed))
        .collect()
}

#[test]
fn every_cell_is_there_once() {
    let cells = Transports.cells();
    assert_eq!(cells.len(), 5 + 5 + 3 * 2 * 3 * 4);
    let is_once = |one: &Cell| cells.iter().filter(|other| *other == one).count() == 1;
    assert!(cells.iter().all(is_once));
}

#[test]
fn a_word_picks_each_part() {
    assert_eq!(planned(&["random-loss"]).len(), 5 * 3);
    assert_eq!(planned(&["fasp"]).len(), 5);
    assert_eq!(planned(&["gateways"]).len(), 24 * (1 + 3 + 1));
    let tenth = planned(&["lan_loss\":\"0.1%"]);
    assert_eq!(tenth.len(), 24 * 3);
    let is_tenth = |cell: &Cell| {
        matches!(
            cell,
            Cell::Gateways {
                lan_loss: Loss::Tenth,
                ..
            }
        )
    };
    assert!(tenth.iter().all(|(cell, _)| is_tenth(cell)));
    assert_eq!(planned(&[]).len(), 15 + 5 + 120);
}

#[test]
fn records_are_read_as_they_were_written() {
    for cell in Transports.cells() {
        let text = serde_json::to_string(&run(cell, 2001, 1.0)).unwrap();
        let read: Record<Cell, Observation> = serde_json::from_str(&text).unwrap();
        assert_eq!(read.cell.factors, cell, "{text}");
    }
}

#[test]
fn named_transports_are_options_of_the_client() {
    let depots = ["a:1", "b:2"].map(str::to_owned);
    let options = |way: CopyWay| way.options(&depots).join(" ");
    assert_eq!(options(CopyWay::Cp), "");
    assert_eq!(options(CopyWay::Tcp), "--transport tcp");
    assert_eq!(options(CopyWay::Depots), "--route a:1,b:2");
    let quic = "--route quic:a:1,quic:b:2 --transport quic";
    assert_eq!(options(CopyWay::DepotsQuic), quic);
    assert_eq!(PerfWay::Quic.options(&depots).join(" "), quic);
    assert_eq!(PerfWay::Paced.options(&depots).join(" "), "--route a:1,b:2");
}

/// A sample of each part renders its table; a part without runs has no section.
#[test]
fn page_has_the_measured_parts() {
    let case = GatewayCase {
        lan_loss: Loss::Tenth,
        windows: Windows::Small,
        congestion: Congestion::Reno,
    };
    let quic = Cell::RandomLoss { way: CopyWay::Quic };
    let mut records = vec![
        run(quic, 2001, 820.0),
        run(quic, 2002, 868.0),
        run(quic, 2003, 900.0),
        run(FASP_PATHS[4].cell(), 2001, 117.6),
    ];
    let page = |records: &[Record<Cell, Observation>]| {
        let runs = Runs::select_valid(records);
        (
            Transports.page(&runs).unwrap().text,
            Transports.figures(&runs),
        )
    };
    let (text, figures) = page(&records);
    for line in [
        "| `--transport quic` | 868 (820..900) | 1.00 | 3 |",
        "| 550 ms, 5 % | 118 (single) | 147 | 0.80 (single) | 1 |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains("The goal is 868 Mbit/s"), "{text}");
    assert!(!text.contains("## Gateways"), "{text}");
    let quoted: Vec<(&str, &str)> = figures
        .iter()
        .map(|figure| (figure.key.as_str(), figure.text.as_str()))
        .collect();
    assert_eq!(
        quoted,
        [("loss-quic", "868"), ("fasp-550", "0.80 (single)")]
    );

    records.push(run(case.cell(PerfWay::Direct), 2001, 7.0));
    records.extend([2001, 2002, 2003].map(|seed| run(case.cell(PerfWay::Quic), seed, 70.0)));
    let (text, figures) = page(&records);
    let line = "| 0.1 %, 64 KB, reno | 7 (single) | - | 70 | - |";
    assert!(text.contains(line), "{text}");
    let gain = figures.last().unwrap();
    assert_eq!(gain.key, "gateways-small-reno");
    assert_eq!(gain.text, "10.0 (70 by 7 Mbit/s; single)");
}
