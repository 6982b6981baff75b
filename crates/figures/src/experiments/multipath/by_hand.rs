//! Data shared out over paths by hand, as users did: separate copies at the same time, each with
//! its share of the data and of the streams. The slowest one counts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Cell, Observation, Path, total_mbps};
use crate::copy::{DEPOT_PORT, SERVER_PORT, first_copy, serve_with, start_depot_with};
use crate::experiment::Here;
use crate::watched_copy::WatchedCopy;

/// Maximum time of a copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(200);
/// Bytes of a file, which take a second at 100 Mbit/s.
pub const FILE_BYTES: u64 = 12_500_000;
/// Approximate time of a copy that keeps all of its paths busy.
pub const SECONDS: u64 = 6;
/// Total streams, unless each path has one: as many as in the paper.
const STREAMS: usize = 10;

/// Division of data and streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Division of the data.
    pub how: How,
    /// Number of streams.
    pub streams: Streams,
    /// Congestion control of the server and the depots.
    pub congestion: Congestion,
    /// Rates of the paths.
    #[serde(default, skip_serializing_if = "Scale::is_full")]
    pub scale: Scale,
}

impl Split {
    /// Returns the single copies whose streams pull: every scale, congestion control and number of
    /// streams, in the order of the tables.
    pub fn pulled() -> impl Iterator<Item = Self> {
        Scale::ALL.into_iter().flat_map(|scale| {
            let of = Congestion::ALL.into_iter();
            of.flat_map(move |congestion| {
                Streams::ALL.map(|streams| Self {
                    how: How::Pulled,
                    streams,
                    congestion,
                    scale,
                })
            })
        })
    }
}

/// Rates of the paths, relative to those of the paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// One part in 25, as in the scenario.
    #[default]
    Full,
    /// One part in 50: half the work for the machine that emulates the links.
    Half,
}

impl Scale {
    /// All scales, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Full, Self::Half];

    /// Returns the divisor of the scenario's rates.
    pub const fn divisor(self) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::Half => 2.0,
        }
    }

    const fn is_full(&self) -> bool {
        matches!(self, Self::Full)
    }
}

/// Division of the data among the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// One copy, whose streams pull.
    Pulled,
    /// The same share for each path.
    Even,
    /// 30 % for the slower of two paths, 70 % for the other one.
    ThirtySeventy,
    /// A share for each path in proportion to its links' rate, which users cannot know beforehand.
    /// What this division loses is not lost by the shares.
    InProportion,
}

/// Number of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Streams {
    /// [`STREAMS`] in total.
    Ten,
    /// One for each path.
    OneEach,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    Cubic,
    Reno,
    Bbr,
}

impl Congestion {
    /// All congestion controls, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr];

    /// Returns the kernel's name for it.
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Bbr => "bbr",
        }
    }

    /// Returns its usual name.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cubic => "CUBIC",
            Self::Reno => "Reno",
            Self::Bbr => "BBR",
        }
    }
}

impl Streams {
    /// All numbers of streams, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Ten, Self::OneEach];

    /// Returns the words for a table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Ten => "10 in all",
            Self::OneEach => "1 a path",
        }
    }
}

/// One of the simultaneous copies.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    paths: Vec<Path>,
    /// Numbers of the part's files.
    files: std::ops::Range<u64>,
    streams: usize,
}

/// Returns the total number of files.
pub fn files(paths: &[Path], scale: Scale) -> u64 {
    let mbps = total_mbps(paths) / scale.divisor();
    (SECONDS as f64 * mbps * 1e6 / 8.0 / FILE_BYTES as f64).round() as u64
}

/// Returns the part of each copy.
fn parts(paths: &[Path], split: Split) -> Vec<Part> {
    let files = files(paths, split.scale);
    let shares: Vec<f64> = match split.how {
        How::Pulled => {
            return vec![Part {
                paths: paths.to_vec(),
                files: 0..files,
                streams: match split.streams {
                    Streams::Ten => STREAMS,
                    Streams::OneEach => paths.len(),
                },
            }];
        }
        How::Even => vec![1.0 / paths.len() as f64; paths.len()],
        How::InProportion => {
            let all = total_mbps(paths);
            paths.iter().map(|path| path.mbps() / all).collect()
        }
        How::ThirtySeventy => {
            let slowest = paths
                .iter()
                .map(|path| path.mbps())
                .fold(f64::INFINITY, f64::min);
            let at = paths.iter().position(|path| path.mbps() <= slowest);
            (0..paths.len())
                .map(|place| if Some(place) == at { 0.3 } else { 0.7 })
                .collect()
        }
    };
    let mut sum = 0.0;
    let ends = shares.iter().map(|share| {
        sum += share;
        (sum, *share)
    });
    let ends: Vec<(f64, f64)> = ends.collect();
    let until = |of: usize, total: u64| {
        ends.get(of)
            .map_or(0, |(end, _)| (end * total as f64).round() as u64)
    };
    let places = 0..paths.len();
    places
        .map(|place| {
            let before = |total: u64| place.checked_sub(1).map_or(0, |last| until(last, total));
            Part {
                paths: vec![paths[place]],
                files: before(files)..until(place, files),
                streams: match split.streams {
                    Streams::OneEach => 1,
                    Streams::Ten => {
                        (until(place, STREAMS as u64) - before(STREAMS as u64)) as usize
                    }
                },
            }
        })
        .collect()
}

/// Returns the name of a file, relative to the served folder.
pub fn file_name(file: u64) -> String {
    format!("small-{file}")
}

/// Makes the copies.
///
/// # Errors
/// A program cannot be started, or a copy does not end or verify.
pub fn run(here: &Here<'_, PathBuf>, cell: &Cell, split: Split) -> Result<Observation> {
    let (tools, lab) = (here.tools, here.lab);
    let congestion = split.congestion.kernel_name();
    let _server = serve_with(
        tools,
        lab,
        "server",
        here.setup,
        &["--read"],
        &["--congestion", congestion],
    )?;
    let next = format!("*={congestion}");
    let options = ["--congestion", congestion, "--next-congestion", &next];
    let mut depots = Vec::new();
    for path in &cell.paths {
        depots.push(start_depot_with(tools, lab, path.node(), &options)?);
    }
    let server = lab.address("server")?;
    let mut copies = Vec::new();
    let parts = parts(&cell.paths, split);
    for (number, part) in parts.iter().enumerate() {
        let mut command = first_copy(here, "client")?;
        command.args(["--json", "--streams", &part.streams.to_string()]);
        for path in &part.paths {
            command
                .arg("--route")
                .arg(format!("{}:{DEPOT_PORT}", lab.address(path.node())?));
        }
        command.args(
            part.files
                .clone()
                .map(|file| format!("lh://{server}:{SERVER_PORT}/{}", file_name(file))),
        );
        command.arg(format!(
            "{}/",
            here.folder.join(format!("arrived-{number}")).display()
        ));
        copies.push(command);
    }
    let started: Vec<WatchedCopy> = copies
        .into_iter()
        .map(WatchedCopy::start)
        .collect::<Result<_>>()?;
    let (mut seconds, mut streams, mut took) = (0.0_f64, 0, Vec::new());
    for copy in started {
        let (ended, _) = copy.end(COPY_TIMEOUT)?;
        let report = ended.report.context("longhaul cp printed no report")?;
        if ended.code != Some(0) || report["verification"]["verified"] != true {
            bail!(
                "longhaul cp ended with {:?}: {}",
                ended.code,
                ended.errors.trim()
            );
        }
        let took_s = report["seconds"]
            .as_f64()
            .context("the report has no seconds")?;
        seconds = seconds.max(took_s);
        took.push(took_s);
        streams += report["streams"].as_array().map_or(0, Vec::len);
    }
    drop(depots);
    Ok(Observation {
        seconds,
        goodput_bps: (files(&cell.paths, split.scale) * FILE_BYTES) as f64 * 8.0 / seconds,
        streams: streams as u32,
        took_s: took,
        ..Observation::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_streams_are_shared_out_whole() {
        let of = |paths: &[Path], how, streams| {
            let congestion = Congestion::Reno;
            parts(
                paths,
                Split {
                    how,
                    streams,
                    congestion,
                    scale: Scale::Full,
                },
            )
        };
        let shares = |parts: &[Part]| -> Vec<(u64, usize)> {
            parts
                .iter()
                .map(|part| (part.files.end - part.files.start, part.streams))
                .collect()
        };
        let even = of(&Path::ALL, How::Even, Streams::Ten);
        assert_eq!(shares(&even), [(18, 3), (18, 4), (18, 3)]);
        assert_eq!(
            (even[0].files.clone(), even[2].files.clone()),
            (0..18, 36..54)
        );
        let proportion = of(&Path::ALL, How::InProportion, Streams::Ten);
        assert_eq!(shares(&proportion), [(24, 4), (6, 2), (24, 4)]);
        let thirty = of(&[Path::B, Path::C], How::ThirtySeventy, Streams::Ten);
        assert_eq!(shares(&thirty), [(9, 3), (21, 7)]);
        assert_eq!(
            shares(&of(
                &[Path::A, Path::B],
                How::ThirtySeventy,
                Streams::OneEach
            )),
            [(21, 1), (9, 1)]
        );
        assert_eq!(
            shares(&of(&Path::ALL, How::Pulled, Streams::OneEach)),
            [(54, 3)]
        );
        assert_eq!(
            shares(&of(&[Path::A], How::Pulled, Streams::Ten)),
            [(24, 10)]
        );
    }
}
