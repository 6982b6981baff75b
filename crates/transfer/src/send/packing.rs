//! Decides what is compressed, from the speeds that one stream has measured. Pure.
//!
//! Blocks, and packs of other frames, are decided apart: small files take longer to read. A thread
//! reads, hashes and perhaps compresses a buffer while the one before it is written to the network,
//! so a stream is as fast as the slower of the two. Compression pays if it shortens the slower one.
//! If more streams than processors send, each stream compresses only with its share of these.

use std::time::Duration;

use crate::compression::Compression;

/// Share of the time per byte that compression must save before it is used. It covers the error of
/// the measurements.
const MIN_SAVING: f64 = 0.05;
/// Data between two samples at first, in bytes. It doubles while compression does not pay.
const FIRST_SAMPLE_PAUSE: u64 = 4 << 20;
const MAX_SAMPLE_PAUSE: u64 = 256 << 20;
/// Minimum ratio of the time between two samples that do not pay to the time that one takes.
const SAMPLE_TIMES: f64 = 100.0;
/// Weight of the latest measurement in each average.
const WEIGHT: f64 = 0.25;
/// Number of buffers whose writing is not measured: they fill the buffers of the sockets.
const UNMEASURED_BUFFERS: u32 = 2;

/// Treatment of one block or pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackingPlan {
    /// It is sent as it is.
    Plain,
    /// It is sent as it is, and a part of it is compressed to measure that. A pack is compressed as
    /// a whole, and sent so if that is shorter.
    Sample,
    /// It is sent compressed.
    Pack,
}

/// Times of one block or pack, and its lengths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BlockTimes {
    /// Length of its data, in bytes, and the time to read and hash it.
    pub data: u64,
    pub reading: Duration,
    /// Length of what was compressed, in bytes, its length after that, and the time for it.
    pub packed_from: u64,
    pub packed_to: u64,
    pub packing: Duration,
}

/// Average of a quotient. `None` before the first measurement.
#[derive(Debug, Default, Clone, Copy)]
struct Average(Option<f64>);

impl Average {
    fn add(&mut self, amount: f64, bytes: u64) {
        if bytes > 0 {
            let value = amount / bytes as f64;
            self.0 = Some(match self.0 {
                Some(average) => average + WEIGHT * (value - average),
                None => value,
            });
        }
    }
}

/// Decides what is compressed on one stream.
#[derive(Debug)]
pub(crate) struct StreamPlanner {
    pub blocks: PackingPlanner,
    pub packs: PackingPlanner,
}

impl StreamPlanner {
    pub(crate) fn new(method: Compression) -> Self {
        Self {
            blocks: PackingPlanner::new(method),
            packs: PackingPlanner::new(method),
        }
    }

    /// Notes how many streams send, and on how many processors.
    pub(crate) fn share_processors(&mut self, streams: usize, processors: usize) {
        let sharing = (streams as f64 / processors.max(1) as f64).max(1.0);
        self.blocks.sharing = sharing;
        self.packs.sharing = sharing;
    }

    /// Takes the time in which a buffer of `bytes` was written to the network.
    pub(crate) fn buffer_written(&mut self, bytes: u64, time: Duration) {
        self.blocks.buffer_written(bytes, time);
        self.packs.buffer_written(bytes, time);
    }
}

/// Decides which blocks, or which packs, of one stream are compressed.
#[derive(Debug)]
pub(crate) struct PackingPlanner {
    method: Compression,
    /// Number of streams for each processor, at least one.
    sharing: f64,
    /// Seconds for a byte of data to be read, and to be compressed by one of few streams.
    reading: Average,
    packing: Average,
    /// Seconds for a byte to be written to the network.
    writing: Average,
    /// Length of compressed data, as a share of the original.
    ratio: Average,
    /// Data until the next sample, and between the samples, in bytes.
    until_sample: u64,
    sample_pause: u64,
    written_buffers: u32,
}

impl PackingPlanner {
    fn new(method: Compression) -> Self {
        Self {
            method,
            sharing: 1.0,
            reading: Average::default(),
            packing: Average::default(),
            writing: Average::default(),
            ratio: Average::default(),
            until_sample: 0,
            sample_pause: FIRST_SAMPLE_PAUSE,
            written_buffers: 0,
        }
    }

    /// Returns the treatment of the next block or pack.
    pub(crate) fn plan(&self) -> PackingPlan {
        match self.method {
            Compression::None => PackingPlan::Plain,
            Compression::Zstd(_) => PackingPlan::Pack,
            Compression::Auto if self.pays() => PackingPlan::Pack,
            Compression::Auto if self.until_sample == 0 && self.waits_for_network() => {
                PackingPlan::Sample
            }
            Compression::Auto => PackingPlan::Plain,
        }
    }

    /// Takes the measurements of a block or pack.
    pub(crate) fn block_read(&mut self, times: &BlockTimes) {
        self.reading.add(times.reading.as_secs_f64(), times.data);
        if times.packed_from > 0 {
            let from = times.packed_from;
            self.packing.add(times.packing.as_secs_f64(), from);
            self.ratio.add(times.packed_to as f64, from);
            self.until_sample = match (self.pays(), self.plain_time()) {
                (false, Some(plain)) => {
                    self.sample_pause = (2 * self.sample_pause).min(MAX_SAMPLE_PAUSE);
                    let affordable = SAMPLE_TIMES * times.packing.as_secs_f64() / plain;
                    self.sample_pause.max(affordable as u64)
                }
                _ => {
                    self.sample_pause = FIRST_SAMPLE_PAUSE;
                    self.sample_pause
                }
            };
        }
        self.until_sample = self.until_sample.saturating_sub(times.data);
    }

    /// Takes the time in which a buffer of `bytes` was written to the network.
    fn buffer_written(&mut self, bytes: u64, time: Duration) {
        self.written_buffers = self.written_buffers.saturating_add(1);
        if self.written_buffers > UNMEASURED_BUFFERS {
            self.writing.add(time.as_secs_f64(), bytes);
        }
    }

    /// Returns the seconds that a byte takes without compression.
    fn plain_time(&self) -> Option<f64> {
        Some(self.reading.0?.max(self.writing.0?))
    }

    /// Returns true if the network is slower than reading.
    fn waits_for_network(&self) -> bool {
        let times = self.reading.0.zip(self.writing.0);
        times.is_some_and(|(reading, writing)| writing > reading)
    }

    /// Returns true if compressed data arrives sooner.
    fn pays(&self) -> bool {
        let packed_time = || {
            let computing = self.reading.0? + self.sharing * self.packing.0?;
            Some(computing.max(self.writing.0? * self.ratio.0?))
        };
        matches!(
            (self.plain_time(), packed_time()),
            (Some(plain), Some(packed)) if packed < (1.0 - MIN_SAVING) * plain
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Speeds of a stream, in MB/s, and the ratio of its data.
    #[derive(Clone, Copy, Debug)]
    struct Speeds {
        reading: f64,
        packing: f64,
        network: f64,
        ratio: f64,
    }

    /// Sends blocks of 1 MiB. Returns the seconds that this takes, and the number of compressed
    /// blocks.
    fn send(planner: &mut PackingPlanner, blocks: u32, speeds: Speeds) -> (f64, u32) {
        let seconds = |bytes: f64, speed: f64| bytes / (speed * 1e6);
        let (mut total, mut packed) = (0.0, 0);
        for _ in 0..blocks {
            let plan = planner.plan();
            let mib = MIB as f64;
            let (from, on_wire) = match plan {
                PackingPlan::Plain => (0.0, mib),
                PackingPlan::Sample => (mib / 8.0, mib),
                PackingPlan::Pack => (mib, mib * speeds.ratio),
            };
            packed += u32::from(plan == PackingPlan::Pack);
            let reading = seconds(mib, speeds.reading);
            let packing = seconds(from, speeds.packing);
            let writing = seconds(on_wire, speeds.network);
            planner.block_read(&BlockTimes {
                data: MIB,
                reading: Duration::from_secs_f64(reading),
                packed_from: from as u64,
                packed_to: (from * speeds.ratio) as u64,
                packing: Duration::from_secs_f64(packing),
            });
            planner.buffer_written(on_wire as u64, Duration::from_secs_f64(writing));
            total += (reading + packing).max(writing);
        }
        (total, packed)
    }

    const SLOW: Speeds = Speeds {
        reading: 1000.0,
        packing: 400.0,
        network: 20.0,
        ratio: 0.5,
    };

    #[test]
    fn text_is_compressed_on_slow_path() {
        let mut planner = PackingPlanner::new(Compression::Auto);
        let (_, packed) = send(&mut planner, 1000, SLOW);
        assert!(packed > 990, "{packed}");
    }

    #[test]
    fn noise_and_fast_paths_are_left_alone() {
        for speeds in [
            Speeds { ratio: 1.0, ..SLOW },
            Speeds {
                ratio: 0.97,
                ..SLOW
            },
            Speeds {
                network: 900.0,
                ..SLOW
            },
            Speeds {
                network: 2000.0,
                ..SLOW
            },
        ] {
            let mut planner = PackingPlanner::new(Compression::Auto);
            let (_, packed) = send(&mut planner, 1000, speeds);
            assert_eq!(packed, 0, "{speeds:?}");
        }
    }

    #[test]
    fn streams_share_processors() {
        let local = Speeds {
            network: 120.0,
            ..SLOW
        };
        for (streams, expected) in [(1, 200), (2, 200), (8, 0)] {
            let mut planner = StreamPlanner::new(Compression::Auto);
            planner.share_processors(streams, 2);
            let (_, packed) = send(&mut planner.blocks, 200, local);
            assert!(packed.abs_diff(expected) < 10, "{streams}: {packed}");
        }
    }

    #[test]
    fn planner_follows_data_and_path() {
        let mut planner = PackingPlanner::new(Compression::Auto);
        let noise = Speeds { ratio: 1.0, ..SLOW };
        assert_eq!(send(&mut planner, 300, noise).1, 0);
        let (_, packed) = send(&mut planner, 1000, SLOW);
        assert!(packed > 500, "{packed}");
        let (_, packed) = send(&mut planner, 1000, noise);
        assert!(packed < 20, "{packed}");
    }

    #[test]
    fn named_methods_are_obeyed() {
        let fast = Speeds {
            network: 5000.0,
            ..SLOW
        };
        for (method, expected) in [(Compression::None, 0), (Compression::Zstd(9), 50)] {
            let mut planner = PackingPlanner::new(method);
            assert_eq!(send(&mut planner, 50, fast).1, expected);
        }
    }

    proptest! {
        /// However fast its parts are, a stream loses at most 3 % of its time.
        #[test]
        fn auto_costs_at_most_three_percent(
            reading in 50.0..4000.0,
            packing in 20.0..2000.0,
            network in 1.0..4000.0,
            ratio in 0.01..1.01,
        ) {
            let speeds = Speeds { reading, packing, network, ratio };
            let plain = send(&mut PackingPlanner::new(Compression::None), 1000, speeds).0;
            let auto = send(&mut PackingPlanner::new(Compression::Auto), 1000, speeds).0;
            prop_assert!(auto < 1.03 * plain, "{} {}", auto, plain);
        }
    }
}
