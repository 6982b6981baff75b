//! Tables of shares by hand and of reservations.

use super::by_hand::{FILE_BYTES, How, SECONDS, Scale, Split};
use super::page::name;
use super::reserved::{RATE_BPS, Reserve, ReservedSeen};
use super::{Cell, Observation, Path, together};
use crate::page::{Figure, Table, cell, median, number};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

/// Text about shares by hand.
pub const BY_HAND: &str = "What users did by hand, beside one copy whose streams pull: separate \
    `longhaul cp` at the same time, each over one path, with an even share of files and streams, \
    or 30 % for the slower path \
     and 70 % for the other (of A with C, which carry the same, A has 30 %). All data by the time \
     of the slowest copy. Files of 12.5 MB, as many as the paths carry in 6 s together, pulled; \
     the number of streams is given (`--streams`), so nothing is found by itself here. The sum is \
     that of each path alone with the same \
     streams and congestion control, of server and depots. *Busy* is how much of the processors' \
     time was used while one copy was made: over all three paths two processors, which emulate \
     the links as well, have next to nothing to spare. So the same is made at 1:50, half of each \
     rate. \
     And all three paths are shared out *in proportion* as well, each given the share that its \
     links carry of all, which nobody can know beforehand: what three separate copies fall short \
     of the sum is not lost by sharing out.";

fn median_rate(runs: &Runs<'_, Cell, Observation>, cell: &Cell) -> Option<f64> {
    Some(runs.spread(cell, Observation::mbps)?.median)
}

/// Returns the cells of each path alone.
fn alone(paths: &[Path], split: Split) -> Vec<Cell> {
    paths
        .iter()
        .map(|path| Cell::split(&[*path], split))
        .collect()
}

fn sum_alone(runs: &Runs<'_, Cell, Observation>, paths: &[Path], split: Split) -> Option<f64> {
    alone(paths, split)
        .iter()
        .map(|cell| median_rate(runs, cell))
        .sum()
}

/// Formats a value that is computed from medians of these cells.
fn marked(
    runs: &Runs<'_, Cell, Observation>,
    cells: &[Cell],
    value: Option<f64>,
    digits: usize,
) -> String {
    match value {
        Some(value) => runs.basis(cells).mark(number(Some(value), digits)),
        None => number(None, digits),
    }
}

/// Returns the rows of copies that pull over several paths.
fn pulled() -> impl Iterator<Item = (&'static [Path], Split)> {
    Split::pulled().flat_map(|split| together().map(move |paths| (paths, split)))
}

/// Returns the table of shares: a row for each scale, set of paths, number of streams and
/// congestion control.
pub fn by_hand(runs: &Runs<'_, Cell, Observation>) -> Table {
    let mut table = Table::new([
        "scale",
        "congestion control",
        "streams",
        "paths",
        "sum of each alone, Mbit/s",
        "one copy",
        "of the sum, %",
        "busy, %",
        "even split",
        "of the sum, %",
        "30/70 split",
        "of the sum, %",
        "in proportion",
        "of the sum, %",
    ]);
    for (paths, split) in pulled() {
        let of = |how| Cell::split(paths, Split { how, ..split });
        let sum = sum_alone(runs, paths, split);
        let alone = alone(paths, split);
        if median_rate(runs, &of(How::Pulled)).is_none() {
            continue;
        }
        let mut row = vec![
            format!("1:{}", 25.0 * split.scale.divisor()),
            split.congestion.title().to_owned(),
            split.streams.title().to_owned(),
            name(paths),
            marked(runs, &alone, sum, 1),
        ];
        for how in [
            How::Pulled,
            How::Even,
            How::ThirtySeventy,
            How::InProportion,
        ] {
            let share = median_rate(runs, &of(how)).zip(sum);
            row.push(cell(runs.spread(&of(how), Observation::mbps), 1));
            let cells = [alone.as_slice(), &[of(how)]].concat();
            let share = share.map(|(mbps, sum)| 100.0 * mbps / sum);
            row.push(marked(runs, &cells, share, 1));
            if how == How::Pulled {
                let busy = runs
                    .cell(&of(how))
                    .into_iter()
                    .map(|record| 100.0 * record.gate.busy);
                row.push(median(Spread::from_samples(&busy.collect::<Vec<_>>()), 0));
            }
        }
        table.row(row);
    }
    table
}

/// Returns the text about reserved paths.
pub fn reserved_text() -> String {
    format!(
        "Nine files of 250 MB are sent, with nothing but the options named. A controller knows \
         the map and may promise nine tenths of each link; depots on A, B and C take its grants. \
         What the copy reserves it uses by itself, over the \
         depots with a grant in each OPEN, beside best effort over the shortest path, which is \
         C's. At {} Mbit/s for all, the least is reserved of B. *Carried* is content of the files \
         from the first stream's opening on; the rate of a grant counts the records of TLS as \
         well. \
         Returned is what was given back before its time.",
        RATE_BPS / 1_000_000
    )
}

/// Returns the table of reservations: a row for each option.
pub fn reserved(runs: &Runs<'_, Cell, Observation>) -> Table {
    let mut table = Table::new([
        "",
        "seconds",
        "met",
        "A reserved, Mbit/s",
        "A carried",
        "B reserved",
        "B carried",
        "C reserved",
        "C carried",
        "best effort",
        "first reserved stream after, s",
        "reserved, MB",
        "returned, MB",
        "all returned",
        "runs",
    ]);
    for reserve in Reserve::ALL {
        let one = Cell::reserving(reserve);
        let all = runs.cell(&one);
        let found: Vec<&ReservedSeen> = all
            .iter()
            .filter_map(|record| record.seen.reserved.as_ref())
            .collect();
        if found.is_empty() {
            continue;
        }
        let spread = |value: &dyn Fn(&ReservedSeen) -> f64, digits| {
            let of = |seen: &Observation| seen.reserved.as_ref().map_or(f64::NAN, value);
            cell(runs.spread(&one, of), digits)
        };
        let count =
            |is: &dyn Fn(&ReservedSeen) -> bool| found.iter().filter(|seen| is(seen)).count();
        let met = match found.iter().any(|seen| seen.met.is_some()) {
            true => format!(
                "{} of {}",
                count(&|seen| seen.met == Some(true)),
                found.len()
            ),
            false => "-".to_owned(),
        };
        let mut row = vec![
            reserve.title(),
            cell(runs.spread(&one, |seen| seen.seconds), 1),
            met,
        ];
        for place in 0..3 {
            row.push(spread(&|seen| seen.reserved_bps[place] / 1e6, 0));
            row.push(spread(&|seen| seen.carried_bps[place] / 1e6, 0));
        }
        row.push(spread(&|seen| seen.best_effort_bps / 1e6, 0));
        let joined = found.iter().all(|seen| seen.joined_s.is_some());
        row.push(match joined {
            true => spread(&|seen| seen.joined_s.unwrap_or(f64::NAN), 1),
            false => "-".to_owned(),
        });
        row.push(spread(&|seen| seen.reserved_bytes as f64 / 1e6, 0));
        row.push(spread(&|seen| seen.returned_bytes as f64 / 1e6, 0));
        row.push(format!(
            "{} of {}",
            count(&|seen| seen.returned),
            found.len()
        ));
        row.push(found.len().to_string());
        table.row(row);
    }
    table
}

/// Returns the runs of the cells with shares.
fn basis(runs: &Runs<'_, Cell, Observation>, how: How, scale: Scale) -> Basis {
    let cells: Vec<Cell> = pulled()
        .filter(|(_, split)| split.scale == scale)
        .flat_map(|(paths, split)| {
            let together = Cell::split(paths, Split { how, ..split });
            alone(paths, split).into_iter().chain([together])
        })
        .filter(|cell| !runs.cell(cell).is_empty())
        .collect();
    runs.basis(&cells)
}

/// Returns the least and the greatest share of the sum of the paths, for single copies that pull
/// and for each division by hand.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let shares = |how: How, scale: Scale| -> Vec<f64> {
        let mut shares: Vec<f64> = pulled()
            .filter(|(_, split)| split.scale == scale)
            .filter_map(|(paths, split)| {
                let mbps = median_rate(runs, &Cell::split(paths, Split { how, ..split }))?;
                Some(100.0 * mbps / sum_alone(runs, paths, split)?)
            })
            .collect();
        shares.sort_by(f64::total_cmp);
        shares
    };
    let of = |key: &str, title: &str, how: How, scale: Scale| {
        let shares = shares(how, scale);
        let (least, most) = (shares.first()?, shares.last()?);
        Some(Figure::new(
            key,
            format!(
                "{title}, share of the sum of each path alone, least and greatest of {} cells",
                shares.len()
            ),
            format!("{least:.1} to {most:.1} %"),
            basis(runs, how, scale),
        ))
    };
    let figures = [
        of(
            "pulled",
            "one copy over several paths, streams given",
            How::Pulled,
            Scale::Full,
        ),
        of(
            "pulled-half",
            "the same at half the rates",
            How::Pulled,
            Scale::Half,
        ),
        of("even", "even split by hand", How::Even, Scale::Full),
        of(
            "thirty-seventy",
            "30/70 split by hand",
            How::ThirtySeventy,
            Scale::Full,
        ),
    ];
    figures.into_iter().flatten().collect()
}

const _: () = assert!(FILE_BYTES == 12_500_000 && SECONDS == 6, "as the text says");
