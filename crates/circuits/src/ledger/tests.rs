//! Holders of a link.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{BandwidthLedger, ReservationId};
use crate::network::LinkId;
use crate::testing::network;
use crate::time::{BitsPerSecond, MomentMs, Window};

const LINK: LinkId = LinkId(0);

proptest! {
    #[test]
    fn holders_are_all_claims_active_at_that_moment(
        claims in prop::collection::vec(
            (0..5_u64, -20..60_i64, 1..40_i64, 1..9_u64, any::<bool>()),
            0..40
        ),
    ) {
        let mut ledger = BandwidthLedger::new(&network(2, &[(0, 1, 1_000)]));
        let mut kept = Vec::new();
        for (id, start, length, rate, stays) in claims {
            let claim = (ReservationId(id), Window::new(start, start + length), rate);
            ledger.claim(claim.0, LINK, claim.1, rate);
            if stays {
                kept.push(claim);
            } else {
                ledger.unclaim(claim.0, LINK, claim.1, rate);
            }
        }
        for at in (-30..110).chain([MomentMs::MIN, MomentMs::MAX]) {
            let mut holders: BTreeMap<ReservationId, BitsPerSecond> = BTreeMap::new();
            for (id, _, rate) in kept.iter().filter(|(_, window, _)| window.contains(at)) {
                *holders.entry(*id).or_default() += rate;
            }
            prop_assert_eq!(ledger.holders(LINK, at), holders);
        }
        let mut anew = BandwidthLedger::new(&network(2, &[(0, 1, 1_000)]));
        for (id, window, rate) in kept {
            anew.claim(id, LINK, window, rate);
        }
        prop_assert_eq!(anew, ledger, "what was given back leaves nothing behind");
    }
}
