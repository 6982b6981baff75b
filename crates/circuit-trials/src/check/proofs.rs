//! Checks of proofs.

use std::collections::BTreeSet;

use super::{Checker, brute};
use longhaul_circuits::admit::CutLink;
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::proof::Proof;
use longhaul_circuits::request::{CircuitRequest, Demand};
use longhaul_circuits::time::{BitsPerSecond, MomentMs, Volume};

impl Checker<'_> {
    /// Checks that a proof holds.
    pub(super) fn check_proof(
        &self,
        request: &CircuitRequest,
        proof: &Proof<CutLink>,
    ) -> Result<(), String> {
        match (proof, request.wish) {
            (Proof::Cut { links, rate, until }, Demand::Rate(asked)) => {
                self.check_cut(request, links)?;
                let rooms = self.available_rates(request, request.window);
                let mut left: Vec<BitsPerSecond> = links
                    .iter()
                    .map(|full| rooms.room(full.link.0 as usize))
                    .collect();
                left.sort_unstable_by(|one, other| other.cmp(one));
                let passes: BitsPerSecond = left.iter().take(request.paths).sum();
                if passes != *rate || passes >= asked {
                    return Err(format!(
                        "the cut lets {passes} bit/s through, is said to let {rate}, and {asked} \
                        are asked for"
                    ));
                }
                self.check_until(request, links, asked, *until)
            }
            (Proof::Volume { links, volume }, Demand::Volume { bytes, most, .. }) => {
                self.check_cut(request, links)?;
                let ids: Vec<usize> = links.iter().map(|full| full.link.0 as usize).collect();
                let passes = brute::passing_volume(self.network, &self.taken, &ids, request.window);
                let fastest = most.map_or(u128::MAX, |most| {
                    u128::from(most) * u128::from(request.window.length())
                });
                if passes.min(fastest) > volume.0 || *volume >= Volume::from_bytes(bytes) {
                    return Err(format!(
                        "the cut lets {passes} through, and is said to let {volume:?}"
                    ));
                }
                Ok(())
            }
            (Proof::Stretches { volume }, Demand::Volume { bytes, .. })
                if *volume < Volume::from_bytes(bytes) =>
            {
                Ok(())
            }
            (Proof::Constrained { found, .. }, Demand::Rate(asked))
                if *found < asked && !request.bounds.is_empty() =>
            {
                Ok(())
            }
            (Proof::Searched { .. }, Demand::Rate(_)) | (Proof::Unknown, _) => Ok(()),
            _ => Err(format!("a proof of something else: {proof:?}")),
        }
    }

    /// Checks that links form a cut, and that their rates and holders are as stated.
    fn check_cut(&self, request: &CircuitRequest, links: &[CutLink]) -> Result<(), String> {
        let rooms = self.available_rates(request, request.window);
        let cut: Vec<usize> = links.iter().map(|full| full.link.0 as usize).collect();
        if rooms.joined_without(&cut) {
            return Err(format!(
                "the ends are joined without the links of the cut: {cut:?}"
            ));
        }
        for full in links {
            let taken = &self.taken[full.link.0 as usize];
            let by: BTreeSet<ReservationId> = taken
                .iter()
                .filter(|(window, ..)| window.contains(full.at))
                .map(|(_, _, id)| *id)
                .collect();
            let least = rooms.room(full.link.0 as usize);
            let then = self.network.links()[full.link.0 as usize].reservable()
                - brute::promised_at(taken, full.at);
            if full.left != least
                || then != least
                || !by.iter().eq(full.by.iter())
                || !request.window.contains(full.at)
            {
                return Err(format!(
                    "{full:?}, but {least} are left, {then} then, and {by:?} have it"
                ));
            }
        }
        Ok(())
    }

    /// Checks that a cut stays too full until the stated moment.
    fn check_until(
        &self,
        request: &CircuitRequest,
        links: &[CutLink],
        asked: BitsPerSecond,
        until: Option<MomentMs>,
    ) -> Result<(), String> {
        let taken = links
            .iter()
            .flat_map(|full| &self.taken[full.link.0 as usize]);
        let ends = taken
            .map(|(window, ..)| window.end)
            .filter(|end| *end > request.window.start);
        for start in ends.filter(|end| until.is_none_or(|until| *end < until)) {
            let window = request.window.starting_at(start);
            let left = |link: usize| {
                self.network.links()[link]
                    .reservable()
                    .saturating_sub(brute::promised_peak(&self.taken[link], window))
            };
            let mut left: Vec<BitsPerSecond> = links
                .iter()
                .map(|full| left(full.link.0 as usize))
                .collect();
            left.sort_unstable_by(|one, other| other.cmp(one));
            if left.iter().take(request.paths).sum::<BitsPerSecond>() >= asked {
                return Err(format!(
                    "the cut is free from {start}, and said to be full until {until:?}"
                ));
            }
        }
        Ok(())
    }
}
