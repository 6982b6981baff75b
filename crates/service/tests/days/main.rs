//! The gate and the memory against replay over 24 days of virtual time, among honest clients,
//! crowds, greedy keys, squatters and replays.
//!
//! The bounds that must hold:
//!
//! - Registries stay within the limits after every event, and the memory holds exactly the OPENs of
//!   the last 120 s. So nothing grows over the days.
//! - A listed key that holds fewer sessions than its part of the reserved room is never refused for
//!   lack of room, whatever sources and up to two other keys do.
//! - A client that tries again every second is admitted within [`world::MAX_LOCKOUT_MS`], even
//!   while a flood fills the room several times a second.
//! - No OPEN is admitted twice.
//!
//! `LONGHAUL_GATE_CASES` sets the number of simulations.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod actors;
mod world;

use proptest::prelude::*;
use proptest::test_runner::Config;

use actors::Attack;
use world::{DAY_MS, Plan, World};

/// Simulations of an ordinary run.
const DEFAULT_CASES: u32 = 3;

fn cases() -> u32 {
    let asked = std::env::var("LONGHAUL_GATE_CASES").ok();
    asked.map_or(DEFAULT_CASES, |number| number.parse().unwrap())
}

fn plans() -> impl Strategy<Value = Plan> {
    let attack = prop::sample::select(Attack::ALL.to_vec());
    let attacks = prop::collection::vec((0..24 * DAY_MS, attack), 16..32);
    (any::<u64>(), attacks, 2_usize..7, 64_usize..129).prop_map(
        |(seed, attacks, honest, pending)| Plan {
            seed,
            attacks,
            honest,
            pending,
            ..Plan::default()
        },
    )
}

proptest! {
    #![proptest_config(Config { cases: cases(), max_shrink_iters: 16, ..Config::default() })]

    #[test]
    fn bounds_hold_for_24_days(plan in plans()) {
        World::new(plan).run();
    }
}

/// All kinds of attack at once: the fullest that the room gets.
#[test]
fn bounds_hold_under_all_attacks_at_once() {
    let attacks = Attack::ALL.map(|attack| (DAY_MS / 24, attack));
    let plan = Plan {
        attacks: attacks.to_vec(),
        days: 1,
        ..Plan::default()
    };
    let summary = World::new(plan).run();
    assert!(summary.evicted > 0, "no crowd filled the room: {summary:?}");
    assert!(summary.replays > 0, "nothing was replayed: {summary:?}");
    assert!(summary.over_quota > 0, "nobody was greedy: {summary:?}");
    assert!(summary.admitted > 100, "{summary:?}");
}
