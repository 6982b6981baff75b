//! Cost of a series: time per sample and per forecast, and memory.
//!
//! `cargo run --release -p longhaul-routing --example forecast_cost`

use std::hint::black_box;
use std::time::Instant;

use longhaul_routing::forecast::{
    ForecastQuantity, MomentMicros, Series, SeriesDetail, SeriesSample,
};

/// Number of series: as in a large installation, and more than fit into a processor's cache.
const SERIES: usize = 2_000;
/// Samples per series: enough to fill all windows.
const SAMPLES: usize = 500;

fn main() {
    println!("detail   bytes a series   100,000 series   ns a sample   ns a forecast");
    for detail in [SeriesDetail::Compact, SeriesDetail::Full] {
        let mut all: Vec<Series> = (0..SERIES)
            .map(|_| Series::new(ForecastQuantity::Rate, detail))
            .collect();
        let start = Instant::now();
        for step in 0..SAMPLES {
            for (index, series) in all.iter_mut().enumerate() {
                // Between 64 and 192 Mbit/s, by the finaliser of SplitMix64.
                let mixed = (step * SERIES + index) as u64;
                let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let value = 64e6 + 128e6 * ((mixed >> 40) as f64 / f64::from(1 << 24));
                let at = step as MomentMicros * 1_000_000;
                if let Err(rejected) = series.observe(SeriesSample::exact(at, value)) {
                    eprintln!("a sample was refused: {rejected}");
                    return;
                }
            }
        }
        let sample = start.elapsed().as_nanos() as f64 / (SAMPLES * SERIES) as f64;
        let start = Instant::now();
        for _ in 0..20 {
            for series in &all {
                black_box(series.forecast());
            }
        }
        let forecast = start.elapsed().as_nanos() as f64 / (20 * SERIES) as f64;
        let bytes: usize = all.iter().map(Series::state_bytes).sum::<usize>() / SERIES;
        println!(
            "{:<8} {bytes:>14} {:>13.0} MB {sample:>13.0} {forecast:>15.0}",
            format!("{detail:?}").to_lowercase(),
            bytes as f64 / 10.0,
        );
    }
}
