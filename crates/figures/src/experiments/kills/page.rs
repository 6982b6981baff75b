//! Tables of the cost of each kill, by side and by state.

use anyhow::Result;

use super::run::BYTES_PER_SECOND;
use super::state::State;
use super::{Cell, Kill, KillDirection, Observation, Side};
use crate::columns::Columns;
use crate::page::{Figure, Page};
use crate::record::name;
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;

/// Combined results of several copies.
#[derive(Default)]
struct KillTotals {
    copies: usize,
    kills: u32,
    wrong_bytes: u64,
    lost_files: u64,
    leftovers: u64,
    /// Data that each kill made the path carry again, in seconds at the path's rate.
    again: Vec<f64>,
    /// Additional time of each copy per kill, in seconds.
    longer: Vec<f64>,
}

/// Sums up the runs whose kill satisfies `wanted`.
fn sum(
    runs: &Runs<'_, Cell, Observation>,
    wanted: impl Fn(KillDirection, &Kill) -> bool,
) -> KillTotals {
    let mut sum = KillTotals::default();
    for direction in KillDirection::BOTH {
        let alone = Cell {
            direction,
            kill: None,
        };
        let (Some(carried), Some(seconds)) = (
            runs.spread(&alone, |seen| seen.carried as f64),
            runs.spread(&alone, |seen| seen.seconds),
        ) else {
            continue;
        };
        let picked = runs.pick(|cell| {
            let kill = cell.kill.as_ref();
            cell.direction == direction && kill.is_some_and(|kill| wanted(direction, kill))
        });
        for seen in picked.iter().map(|record| &record.seen) {
            sum.copies += 1;
            sum.kills += seen.kills;
            sum.wrong_bytes += seen.wrong_bytes;
            sum.lost_files += seen.lost_files;
            sum.leftovers += seen.leftovers;
            let per_kill = |more: f64| more.max(0.0) / f64::from(seen.kills);
            if seen.kills > 0 {
                let again = (seen.carried as f64 - carried.median) / BYTES_PER_SECOND;
                sum.again.push(per_kill(again));
                sum.longer.push(per_kill(seen.seconds - seconds.median));
            }
        }
    }
    sum
}

/// Returns the page.
///
/// # Errors
/// Its template is wrong.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let mut rows = Vec::new();
    for side in Side::ALL {
        for state in State::ALL {
            let sum = sum(runs, |_, kill| kill.side == side && kill.state == state);
            if sum.copies > 0 {
                rows.push((name(side), state.words(), sum));
            }
        }
    }
    for direction in KillDirection::BOTH {
        rows.push((
            name(direction),
            "all",
            sum(runs, |other, _| other == direction),
        ));
    }
    rows.push(("all".to_owned(), "all", sum(runs, |_, _| true)));
    let table = Columns::of(rows)
        .text("killed", |row| row.0.clone())
        .text("when", |row| row.1)
        .text("kills", |row| row.2.kills)
        .text("wrong bytes", |row| row.2.wrong_bytes)
        .text("lost files", |row| row.2.lost_files)
        .spread("carried again, s", 2, |row| {
            Spread::from_samples(&row.2.again)
        })
        .spread("longer by, s", 1, |row| Spread::from_samples(&row.2.longer))
        .text("left over", |row| row.2.leftovers)
        .table();
    page!("kills", table)
}

/// Returns the figures that documents quote.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let all = sum(runs, |_, _| true);
    let Some(again) = Spread::from_samples(&all.again) else {
        return vec![];
    };
    vec![
        Figure::new(
            "kills",
            "kills, and what they left wrong",
            format!(
                "{} kills left {} bytes wrong and lost {} files",
                all.kills, all.wrong_bytes, all.lost_files
            ),
            Basis::Counted,
        ),
        Figure::new(
            "again",
            "what a kill makes the path carry again, in seconds of its rate",
            format!("{:.2} (at most {:.2})", again.median, again.max),
            Basis::Runs(again.count),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn carried_again_is_relative_to_an_undisturbed_copy() {
        let seen = |kills, carried: f64, seconds| Observation {
            kills,
            commands: kills + 1,
            carried: carried as u64,
            seconds,
            wrong_bytes: 0,
            lost_files: 0,
            leftovers: 0,
        };
        let cell = |kill| Cell {
            direction: KillDirection::Pull,
            kill,
        };
        let kill = Kill {
            side: Side::Client,
            state: State::GoingOn,
        };
        let records = [
            record(cell(None), 1, seen(0, 40e6, 3.0), true),
            record(
                cell(Some(kill)),
                1,
                seen(2, 40e6 + BYTES_PER_SECOND, 6.0),
                true,
            ),
        ];
        let figures = figures(&Runs::select_valid(&records));
        let texts: Vec<&str> = figures.iter().map(|figure| figure.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "2 kills left 0 bytes wrong and lost 0 files",
                "0.50 (at most 0.50; single)"
            ]
        );
        let text = page(&Runs::select_valid(&records)).unwrap().text;
        assert!(
            text.contains("| all | all | 2 | 0 | 0 | 0.50 (single) | 1.5 (single) | 0 |"),
            "{text}"
        );
    }
}
