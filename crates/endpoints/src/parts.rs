//! Parts in which large files travel. It is pure.

use std::ops::Range;

/// Bytes of a part of a download.
const MIN_RANGE_BYTES: u64 = 8 << 20;
const MAX_RANGE_BYTES: u64 = 64 << 20;
/// Parts of a download for each request at a time, so that the last ones end at the same time.
const RANGES_PER_REQUEST: u64 = 4;

/// Size from which a file is uploaded in parts, in bytes.
pub(crate) const MIN_MULTIPART_BYTES: u64 = 16 << 20;
/// Bytes of a part of an upload, unless the file would have too many of them.
const UPLOAD_PART_BYTES: u64 = 16 << 20;
/// Maximum number of parts of an upload to S3.
const MAX_UPLOAD_PARTS: u64 = 10_000;
/// Unit of the size of a part, in bytes.
const PART_UNIT_BYTES: u64 = 1 << 20;

/// Returns the ranges to request of a file of `size` bytes: the `missing` blocks, given by offset
/// and length in ascending order. `requests` is the number of requests at a time.
pub(crate) fn download_ranges(
    missing: &[(u64, u32)],
    size: u64,
    requests: usize,
) -> Vec<Range<u64>> {
    let requests = u64::try_from(requests).unwrap_or(u64::MAX).max(1);
    let wanted = size / requests.saturating_mul(RANGES_PER_REQUEST);
    let limit = wanted.clamp(MIN_RANGE_BYTES, MAX_RANGE_BYTES);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &(offset, len) in missing {
        let end = offset.saturating_add(u64::from(len));
        match ranges.last_mut() {
            Some(last) if last.end == offset && end - last.start <= limit => last.end = end,
            _ => ranges.push(offset..end),
        }
    }
    ranges
}

/// Returns the size of the parts of an upload of `size` bytes. All have it, except the last.
pub(crate) const fn upload_part_bytes(size: u64) -> u64 {
    let needed = size.div_ceil(MAX_UPLOAD_PARTS);
    let needed = needed.div_ceil(PART_UNIT_BYTES) * PART_UNIT_BYTES;
    if needed > UPLOAD_PART_BYTES {
        needed
    } else {
        UPLOAD_PART_BYTES
    }
}

/// Returns the parts of an upload.
pub(crate) fn upload_parts(size: u64, part: u64) -> impl Iterator<Item = Range<u64>> {
    let part = part.max(1);
    (0..size.div_ceil(part)).map(move |index| {
        let start = index * part;
        start..start.saturating_add(part).min(size)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every missing byte is requested once and nothing else is, in ranges of bounded length.
        #[test]
        fn ranges_cover_what_is_missing(
            blocks in 0_u64..400, last in 1_u32..=(1 << 20),
            here in prop::collection::vec(any::<bool>(), 400), requests in 1_usize..64,
        ) {
            let block = 1_u64 << 20;
            let size = (blocks * block + u64::from(last)).max(1);
            let missing: Vec<(u64, u32)> = (0..=blocks)
                .filter(|&index| !here[index as usize % 400])
                .map(|index| (index * block, if index == blocks { last } else { 1 << 20 }))
                .collect();
            let ranges = download_ranges(&missing, size, requests);
            let mut at = 0;
            for range in &ranges {
                prop_assert!(range.start >= at && range.end <= size);
                prop_assert!(range.end - range.start <= MAX_RANGE_BYTES);
                at = range.end;
            }
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            prop_assert_eq!(bytes, missing.iter().map(|(_, len)| u64::from(*len)).sum::<u64>());
            for (offset, _) in missing {
                prop_assert!(ranges.iter().any(|range| range.contains(&offset)));
            }
        }

        #[test]
        fn uploads_have_few_parts_of_equal_size(size in 1_u64..(5 << 40)) {
            let part = upload_part_bytes(size);
            prop_assert!(part >= UPLOAD_PART_BYTES && part.is_multiple_of(PART_UNIT_BYTES));
            prop_assert!(size.div_ceil(part) <= MAX_UPLOAD_PARTS);
        }
    }

    #[test]
    fn parts_of_an_upload_follow_each_other() {
        let parts: Vec<_> = upload_parts(35, 16).collect();
        assert_eq!(parts, [0..16, 16..32, 32..35]);
        assert_eq!(upload_parts(0, 16).count(), 0);
        assert_eq!(upload_parts(32, 16).last(), Some(16..32));
    }

    #[test]
    fn large_files_are_requested_in_large_ranges() {
        let missing = |blocks: u64| -> Vec<(u64, u32)> {
            (0..blocks).map(|index| (index << 20, 1 << 20)).collect()
        };
        let len = |blocks: u64, requests| {
            let ranges = download_ranges(&missing(blocks), blocks << 20, requests);
            ranges
                .first()
                .map_or(0, |range| (range.end - range.start) >> 20)
        };
        assert_eq!((len(4, 16), len(100, 16)), (4, 8));
        assert_eq!((len(2048, 16), len(16_384, 16)), (32, 64));
    }
}
