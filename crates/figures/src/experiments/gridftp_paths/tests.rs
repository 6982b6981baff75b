use super::plan::{Beside, Hosts, SPREADS, Scale, Shares};
use super::*;
use crate::runs::tests::record;

fn seen(mbps: f64) -> Observation {
    Observation {
        seconds: 1.0,
        goodput_bps: mbps * 1e6,
        connections: [5, 1, 4],
        over_time: vec![(0.0, [0; 3]), (1.0, [500, 100, 400])],
        ..Observation::default()
    }
}

#[test]
fn every_cell_is_there_once() {
    let cells = GridFtpPaths.cells();
    assert_eq!(cells.len(), 2 * (2 * SPREADS.len() + plan::BESIDE.len()));
    let is_once = |one: &Cell| cells.iter().filter(|other| *other == one).count() == 1;
    assert!(cells.iter().all(is_once));
}

#[test]
fn short_scale_takes_at_most_twelve_minutes() {
    let cells = Cell::all().into_iter();
    let short = cells.filter(|cell| cell.scale == Scale::Short);
    let seconds: f64 = short.map(|cell| cell.seconds()).sum();
    assert!(seconds < 12.0 * 60.0, "{seconds}");
}

#[test]
fn reserved_rates_fit_the_links() {
    for cell in Cell::all() {
        for path in Path::ALL {
            assert!(
                cell.reserved_bps(path) <= 0.96 * path.link_bps(),
                "{cell:?}"
            );
        }
    }
    let beside = Cell::beside(Scale::Short, &Path::ALL, Beside::Reserved);
    let all: f64 = Path::ALL.map(|path| beside.reserved_bps(path)).iter().sum();
    assert!((all - plan::RESERVED_BESIDE_BPS).abs() < 1.0);
}

#[test]
fn table_stands_beside_the_papers() {
    let alone = |paths: &[Path], shares, mbps| {
        let cell = Cell::alone(Scale::Short, paths, shares, Hosts::Unlimited);
        record(cell, 1, seen(mbps), true)
    };
    let records = [
        alone(&[Path::A], Shares::Rate, 320.0),
        alone(&[Path::B], Shares::Rate, 80.0),
        alone(&[Path::C], Shares::Rate, 320.0),
        alone(&[Path::B, Path::C], Shares::Even, 160.0),
        alone(&Path::ALL, Shares::Rate, 648.0),
    ];
    let runs = Runs::select_valid(&records);
    let text = GridFtpPaths.page(&runs).unwrap().text;
    for line in [
        "| A | 5 | 654 | - | 1000 (single) | - | 50 | 0+1 |",
        "| B+C | 1 + 4 | 517 | - | 500 (single) | 40.0 (single) | 10 + 40 | 0+1 |",
        "| A+B+C | 5 + 1 + 4 | - | - | 2025 (single) | 90.0 (single) | 50 + 10 + 40 | 0+1 |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let figures = GridFtpPaths.figures(&runs);
    assert_eq!(figures.len(), 2);
    assert_eq!(figures[1].text, "90.0 % (single)");
}

#[test]
fn fairness_and_loads_follow_from_the_rates() {
    let rates = BesideRates {
        links_bps: [400e6, 50e6, 200e6],
        others_bps: [300e6, 100e6],
    };
    assert_eq!(rates.loads(), [1.0, 0.5, 0.5]);
    assert_eq!(rates.transfer_bps(), 250e6);
    assert!((rates.fairness() - 0.8).abs() < 1e-9);
    let cell = Cell::beside(Scale::Short, &[Path::C], Beside::Reserved);
    let observed = Observation {
        beside: Some(rates),
        ..seen(250.0)
    };
    let records = [record(cell, 1, observed, true)];
    let text = GridFtpPaths
        .page(&Runs::select_valid(&records))
        .unwrap()
        .text;
    let line = "| reserved on C | 250 (single) | 100 + 50 + 50 | 300 (single) | 100 (single) | \
        0.80 (single) | 1 |";
    assert!(text.contains(line), "{text}");
}
