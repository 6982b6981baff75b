//! Controllers that are killed at each step, and restarted from their stores or not.

use crate::world::{LINK_BPS, World};

const RATE: u64 = LINK_BPS / 5;
/// Largest number of stored changes of a domain while a reservation is made.
const STEPS: u64 = 8;

/// Kills a domain once its agent has stored so many changes while a reservation is made. Returns
/// false if it does not store as many.
fn kill_at(world: &mut World, victim: usize, step: u64, to: usize, shape: &str) -> bool {
    let before = world.domains[victim].changes();
    let reserving = world.begin_reserving(to, RATE, shape);
    let reached = loop {
        if world.domains[victim].changes() >= before + step {
            break true;
        }
        if reserving.is_finished() {
            break false;
        }
        std::thread::yield_now();
    };
    world.domains[victim].kill();
    // The request of a killed controller ends with it; others get an answer.
    if victim == 0 {
        world.domains[0].start();
    }
    let _ = reserving.join();
    reached
}

/// Waits until everything is reserved, or nothing. Returns true for everything.
fn wait_for_all_or_nothing(world: &World) -> bool {
    let all = vec![vec![RATE]; world.domains.len()];
    let is_settled = |world: &World| {
        let states = world.domains.iter().flat_map(crate::world::Domain::states);
        let states: Vec<String> = states.collect();
        let reserved = world.reserved();
        let is_complete = reserved == all
            && states.iter().filter(|state| *state == "reserved").count() == all.len();
        let is_nothing =
            reserved.iter().all(Vec::is_empty) && states.iter().all(|state| state == "terminated");
        is_complete || is_nothing
    };
    world.wait_until("all or nothing", is_settled);
    world.reserved() == all
}

fn cancel_all(world: &World) {
    let list = world.domains[0]
        .ask("GET", "/domain/reservations", None)
        .unwrap();
    for item in list["items"].as_array().unwrap() {
        let path = format!("/domain/reservations/{}", item["id"].as_str().unwrap());
        let _ = world.domains[0].ask("DELETE", &path, None);
    }
    world.wait_until("nothing is left", |world| {
        world.reserved().iter().all(Vec::is_empty)
    });
}

/// Returns the steps at which domains are killed: from `first` on, or all if
/// `LONGHAUL_EVERY_STEP` is set. A kill takes seconds.
fn steps_from(first: u64) -> std::iter::StepBy<std::ops::RangeInclusive<u64>> {
    match std::env::var_os("LONGHAUL_EVERY_STEP") {
        Some(_) => (1..=STEPS).step_by(1),
        None => (first..=STEPS).step_by(4),
    }
}

/// Kills each domain at some steps, one after the other.
fn kill_everywhere(count: usize, shape: &str, steps: impl Iterator<Item = u64> + Clone) {
    let mut world = World::start(count, shape == "tree");
    for victim in 0..count {
        for step in steps.clone() {
            let reached = kill_at(&mut world, victim, step, count - 1, shape);
            if !world.domains[victim].is_up() {
                world.domains[victim].start();
            }
            let complete = wait_for_all_or_nothing(&world);
            println!("{shape} of {count}: d{victim} killed at {step}: complete {complete}");
            cancel_all(&world);
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn two_domains_survive_kills_at_each_step() {
    kill_everywhere(2, "chain", steps_from(2));
}

#[test]
fn four_domains_survive_kills_at_each_step_of_a_chain() {
    kill_everywhere(4, "chain", steps_from(1));
}

#[test]
fn four_domains_survive_kills_at_each_step_of_a_tree() {
    kill_everywhere(4, "tree", steps_from(3));
}

#[test]
fn dead_domain_holds_nothing_at_others_after_its_lease() {
    for victim in [0, 2] {
        let mut world = World::start(3, false);
        let granted = world.reserve(0, 2, RATE, "chain").unwrap();
        assert_eq!(granted["state"], "reserved");
        world.domains[victim].kill();
        world.wait_until("the others have returned it", |world| {
            let others = world.domains.iter().filter(|domain| domain.is_up());
            others
                .into_iter()
                .all(|domain| domain.reserved().is_empty())
        });
        // When it comes back, it returns its own segment, too.
        world.domains[victim].start();
        world.wait_until("nothing is left", |world| {
            world.reserved().iter().all(Vec::is_empty)
        });
    }
}
