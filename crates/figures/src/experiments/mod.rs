//! Every experiment.

pub mod admission;
pub mod attacks;
pub mod beside;
pub mod circuit;
pub mod classify;
pub mod copies;
pub mod copy;
pub mod deadlines;
pub mod depots;
pub mod drs_run;
pub mod first_byte;
pub mod forecast;
pub mod gridftp;
pub mod gridftp_paths;
pub mod jobs;
pub mod kills;
pub mod load;
pub mod lsr;
pub mod mesh;
pub mod multipath;
pub mod peers;
pub mod plain;
pub mod programs;
pub mod rate_fit;
pub mod right_sizing;
pub mod savings;
pub mod scale;
pub mod split;
pub mod streams;
pub mod transports;

use crate::listed::Listed;

/// Returns all experiments, in the order of the index.
pub fn all() -> Vec<Box<dyn Listed>> {
    vec![
        Box::new(depots::Depots),
        Box::new(streams::Streams),
        Box::new(first_byte::FIRST_BYTE),
        Box::new(peers::Peers),
        Box::new(copy::COPY),
        Box::new(plain::Plain),
        Box::new(savings::Savings),
        Box::new(multipath::Multipath),
        Box::new(beside::SharedBottleneck),
        Box::new(transports::Transports),
        Box::new(kills::Kills),
        Box::new(jobs::Jobs),
        Box::new(programs::Programs),
        Box::new(gridftp::GRIDFTP),
        Box::new(gridftp_paths::GridFtpPaths),
        Box::new(split::Split),
        Box::new(mesh::MESH),
        Box::new(mesh::paired::Paired),
        Box::new(scale::Scale),
        Box::new(load::Load),
        Box::new(lsr::Lsr {
            seconds: lsr::SECONDS,
        }),
        Box::new(rate_fit::RateFit),
        Box::new(classify::Classify),
        Box::new(right_sizing::figure4::Figure4),
        Box::new(right_sizing::fairness::Fairness),
        Box::new(right_sizing::friendly::Friendly),
        Box::new(drs_run::DrsRun),
        Box::new(attacks::Attacks),
        Box::new(forecast::Forecast),
        Box::new(admission::Admission),
        Box::new(deadlines::DEADLINES),
        Box::new(circuit::Circuit),
    ]
}
