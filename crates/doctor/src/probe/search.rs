//! Finds the largest size that arrives with few probes, as it takes a second to be sure that a
//! packet vanished.

/// Common path MTUs: Ethernet, jumbo frames, PPPoE, tunnels of many kinds.
const USUAL_SIZES: [u32; 24] = [
    576, 1006, 1200, 1280, 1300, 1340, 1360, 1380, 1392, 1400, 1412, 1420, 1428, 1436, 1440, 1450,
    1454, 1460, 1472, 1476, 1480, 1492, 1500, 4352,
];

/// Returns the largest size from `least` to below `most` that arrives, where `most` does not, or
/// `None` if not even `least` does. Common sizes are found exactly. Between two of them the lower
/// is returned, which arrives as well.
pub(super) fn largest(least: u32, most: u32, arrives: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
    if !arrives(least) {
        return None;
    }
    let candidates: Vec<u32> = USUAL_SIZES
        .into_iter()
        .chain((5000..most).step_by(1000))
        .filter(|size| (least + 1..most).contains(size))
        .collect();
    // `good` arrives; from `end` on, nothing does.
    let (mut good, mut start, mut end) = (least, 0, candidates.len());
    while start < end {
        let middle = start + (end - start) / 2;
        let size = candidates.get(middle).copied().unwrap_or(least);
        if arrives(size) {
            (good, start) = (size, middle + 1);
        } else {
            end = middle;
        }
    }
    Some(good)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_sizes_are_found_with_few_questions() {
        for mtu in USUAL_SIZES {
            let mut questions = 0;
            let found = largest(576, 9000, &mut |size| {
                questions += 1;
                size <= mtu
            });
            assert_eq!(found, Some(mtu));
            assert!(questions <= 7, "{questions}");
        }
        assert_eq!(largest(576, 1500, &mut |_| false), None);
    }

    proptest! {
        #[test]
        fn the_found_size_arrives(mtu in 576u32..70_000, most in 577u32..70_000) {
            let found = largest(576, most, &mut |size| size <= mtu).unwrap();
            prop_assert!(found <= mtu && found >= 576 && found < most);
        }
    }
}
