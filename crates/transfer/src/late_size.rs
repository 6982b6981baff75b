//! Files whose size the sender knows only at their end, such as standard input (LH-COPY-79 to
//! LH-COPY-81).

/// Size in FILE of a file whose size LATE_END tells. No file has as many bytes.
pub(crate) const LATE_SIZE: u64 = 1 << 62;
/// Binary logarithm of the block size of such files. Smaller blocks travel sooner if the input is
/// slow; with larger ones, fewer are in flight to keep a long path busy.
pub(crate) const LATE_BLOCK_LOG2: u32 = 18;
/// Bytes that a sender assumes to follow while it does not know the end: enough to be worth several
/// streams.
pub(crate) const EXPECTED_BYTES: u64 = 1 << 30;

/// Returns true if the size is told at the end of the file.
pub(crate) const fn is_late(size: u64) -> bool {
    size == LATE_SIZE
}
