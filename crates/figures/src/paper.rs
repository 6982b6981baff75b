//! Measurements printed in the papers, for comparison.

/// A column pair of the LSL paper: one path, average rates in Mbit/s by size.
#[derive(Debug)]
pub struct PaperCurve {
    /// Transfer size in bytes, direct rate, rate through the depot.
    pub points: &'static [(u64, f64, f64)],
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The seven sizes of the LSL paper's figures, in bytes.
pub const LSL_SIZES: [u64; 7] = [
    16 * KIB,
    64 * KIB,
    256 * KIB,
    MIB,
    4 * MIB,
    16 * MIB,
    32 * MIB,
];

/// LSL path 1 (ANL to UTK, depot at ORNL), 8 MB buffers.
pub const ANL_UTK: PaperCurve = PaperCurve {
    points: &[
        (16 * KIB, 0.378, 0.325),
        (64 * KIB, 0.764, 0.778),
        (256 * KIB, 1.552, 2.261),
        (MIB, 2.999, 6.183),
        (4 * MIB, 4.456, 12.318),
        (16 * MIB, 4.324, 11.363),
        (32 * MIB, 4.712, 11.448),
    ],
};

/// LSL path 2 (UCSD to UTK, depot at Houston), 8 MB buffers.
pub const UCSD_UTK: PaperCurve = PaperCurve {
    points: &[
        (16 * KIB, 0.332, 0.207),
        (64 * KIB, 0.667, 0.588),
        (256 * KIB, 1.643, 1.742),
        (MIB, 2.578, 4.173),
        (4 * MIB, 3.742, 4.623),
        (16 * MIB, 4.155, 6.343),
        (32 * MIB, 4.032, 6.395),
    ],
};

/// LSL path 2 with hosts held to 64 KB.
pub const UCSD_UTK_64K: PaperCurve = PaperCurve {
    points: &[
        (16 * KIB, 0.316, 0.215),
        (64 * KIB, 0.656, 0.563),
        (256 * KIB, 1.478, 1.692),
        (MIB, 2.558, 3.258),
        (4 * MIB, 3.075, 4.043),
        (16 * MIB, 3.118, 4.472),
        (32 * MIB, 3.171, 4.555),
    ],
};
