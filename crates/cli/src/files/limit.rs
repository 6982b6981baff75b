//! How much of a file is printed. Pure.

/// Rest of what may be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentLimit {
    /// Everything.
    Unlimited,
    /// This number of bytes.
    Bytes(u64),
    /// This number of lines. The last line of a file may lack its newline.
    Lines(u64),
}

impl ContentLimit {
    /// Returns true if nothing more may be printed.
    pub const fn is_reached(self) -> bool {
        matches!(self, Self::Bytes(0) | Self::Lines(0))
    }

    /// Returns the number of ranges that hold the rest. `None` if only the content tells.
    pub const fn ranges(self, range_bytes: u64) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.div_ceil(range_bytes)),
            Self::Unlimited | Self::Lines(_) => None,
        }
    }

    /// Returns the beginning of `piece` that may be printed, and subtracts it from the rest.
    pub fn take<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let end = match self {
            Self::Unlimited => piece.len(),
            Self::Bytes(bytes) => {
                let end = usize::try_from(*bytes).map_or(piece.len(), |rest| rest.min(piece.len()));
                *bytes = bytes.saturating_sub(end as u64);
                end
            }
            Self::Lines(0) => 0,
            Self::Lines(lines) => {
                let mut ends = piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
                let mut end = piece.len();
                while *lines > 0 {
                    let Some((newline, _)) = ends.next() else {
                        break;
                    };
                    *lines -= 1;
                    if *lines == 0 {
                        end = newline + 1;
                    }
                }
                end
            }
        };
        piece.get(..end).unwrap_or(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(mut limit: ContentLimit, pieces: &[&[u8]]) -> Vec<u8> {
        let taken = pieces.iter().map(|piece| limit.take(piece).to_vec());
        taken.collect::<Vec<_>>().concat()
    }

    #[test]
    fn lines_end_where_head_ends_them() {
        let text: &[&[u8]] = &[b"a\nb", b"b\n\nc\n", b"d"];
        for (lines, expected) in [
            (0, &b""[..]),
            (1, b"a\n"),
            (2, b"a\nbb\n"),
            (3, b"a\nbb\n\n"),
            (4, b"a\nbb\n\nc\n"),
            (5, b"a\nbb\n\nc\nd"),
        ] {
            assert_eq!(printed(ContentLimit::Lines(lines), text), expected);
        }
    }

    #[test]
    fn only_as_many_ranges_are_needed_as_hold_the_bytes() {
        let ranges = |bytes| ContentLimit::Bytes(bytes).ranges(512);
        assert_eq!(
            (ranges(1), ranges(512), ranges(513)),
            (Some(1), Some(1), Some(2))
        );
        assert_eq!(ContentLimit::Lines(9).ranges(512), None);
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_what_is_printed(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'x')], 0..40),
            cut in 1usize..9,
            most in 0u64..50,
        ) {
            let pieces: Vec<&[u8]> = text.chunks(cut).collect();
            let most_bytes = usize::try_from(most).unwrap().min(text.len());
            prop_assert_eq!(printed(ContentLimit::Bytes(most), &pieces), &text[..most_bytes]);
            let lines = text.split_inclusive(|byte| *byte == b'\n');
            let expected: Vec<u8> = lines.take(usize::try_from(most).unwrap()).flatten().copied()
                .collect();
            prop_assert_eq!(printed(ContentLimit::Lines(most), &pieces), expected);
            prop_assert_eq!(printed(ContentLimit::Unlimited, &pieces), text);
        }
    }
}
