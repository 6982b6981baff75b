//! Size of the blocks of a file.

/// Block sizes: files up to this many bytes have blocks of `1 << log2` bytes. Several streams thus
/// share a file and its end. A slow stream also loses little with a block that was incomplete when
/// the copy broke off.
const BLOCKS_BY_SIZE: [(u64, u32); 2] = [(64 << 20, 16), (64 << 30, 18)];
/// Block size of larger files, as a binary logarithm. Large blocks need fewer answers.
const LARGE_BLOCK_LOG2: u32 = 20;

/// Returns the binary logarithm of the block size for a file of `size` bytes. It depends on nothing
/// else, as a server that restarts during a pull must describe the file as before (LH-COPY-13).
pub(crate) fn block_log2(size: u64) -> u32 {
    let fits = BLOCKS_BY_SIZE.into_iter().find(|(most, _)| size <= *most);
    fits.map_or(LARGE_BLOCK_LOG2, |(_, log2)| log2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_size_grows_with_the_file_and_fits_a_frame() {
        for (mib, log2) in [
            (1, 16),
            (64, 16),
            (65, 18),
            (1 << 16, 18),
            ((1 << 16) + 1, 20),
            (1 << 30, 20),
        ] {
            assert_eq!(block_log2(mib << 20), log2, "{mib} MiB");
        }
    }
}
