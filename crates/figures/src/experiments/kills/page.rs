//! Tables of the cost of each kill, by side and by state.

use super::run::BYTES_PER_SECOND;
use super::state::State;
use super::{Cell, Kill, KillDirection, Observation, Side};
use crate::page::{Figure, Page, Table, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

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

impl KillTotals {
    fn row(&self, first: [String; 2]) -> Vec<String> {
        let mut row = Vec::from(first);
        row.extend([
            self.kills.to_string(),
            self.wrong_bytes.to_string(),
            self.lost_files.to_string(),
            cell(Spread::from_samples(&self.again), 2),
            cell(Spread::from_samples(&self.longer), 1),
            self.leftovers.to_string(),
        ]);
        row
    }
}

/// Returns the page.
pub fn page(runs: &Runs<'_, Cell, Observation>) -> Page {
    let mut table = Table::new([
        "killed",
        "when",
        "kills",
        "wrong bytes",
        "lost files",
        "carried again, s",
        "longer by, s",
        "left over",
    ]);
    for side in Side::ALL {
        for state in State::ALL {
            let sum = sum(runs, |_, kill| kill.side == side && kill.state == state);
            if sum.copies > 0 {
                table.row(sum.row([side.word().to_owned(), state.words().to_owned()]));
            }
        }
    }
    for direction in KillDirection::BOTH {
        let word = direction.word();
        table
            .row(sum(runs, |other, _| other == direction).row([word.to_owned(), "all".to_owned()]));
    }
    table.row(sum(runs, |_, _| true).row(["all".to_owned(), "all".to_owned()]));
    Page::new(HEAD).table(&table).paragraph(FOOT)
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

const HEAD: &str = "A folder of 300 files of 4 KiB, one of 28 MiB and 8 of 1.3 MiB over 20 ms and \
    100 Mbit/s, pushed and pulled by `longhaul cp -r` with nothing set. The client, the server or \
     both are killed with SIGKILL when the client's `--json` events report that the copy has come \
     to a state, or at a moment that the seed draws. A killed server is started again at once, \
     and the same command is typed until it says that everything was copied. Then every file is \
     compared with its source.";

const FOOT: &str = "*Carried again* is what the path delivered in the direction of the files, \
    over all commands, beyond the median of the copies that nobody killed, for each kill, in \
    seconds of the path's rate: what was lost on \
     the way, what had arrived and was sent again, and what setting up another session takes; \
     median, least and greatest. A kill counts where somebody was there to be killed. *Left over* \
     counts the \
     names of unfinished files that are still there when the copy is complete.";

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
        let text = page(&Runs::select_valid(&records)).text;
        assert!(
            text.contains("| all | all | 2 | 0 | 0 | 0.50 (single) | 1.5 (single) | 0 |"),
            "{text}"
        );
    }
}
