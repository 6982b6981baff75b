//! Every interleaving within bounds, with every message lost, repeated or late, and every domain
//! killed at every step and restarted from its store, soon, late or never.

use std::collections::HashSet;

use longhaul_control_api::domains::Shape;
use proptest::prelude::*;

use super::world::{Outcomes, Refusals, World};

/// Faults that an exploration may still inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    lost: u8,
    repeated: u8,
    /// Advances of the time while messages are under way.
    late: u8,
    crashes: u8,
}

/// Result of an exploration.
#[derive(Debug, Default)]
struct Explored {
    states: usize,
    complete: usize,
    nothing: usize,
}

impl Explored {
    /// Counts a state. If only the time can go on, checks how it ends without faults.
    fn record(&mut self, world: &World) {
        self.states += 1;
        if !world.is_idle() {
            return;
        }
        match world.clone().check_outcome() {
            Outcomes::Complete => self.complete += 1,
            Outcomes::Nothing => self.nothing += 1,
        }
    }
}

/// Explores all states that can be reached with so many faults, and checks the outcome of each.
fn explore(start: &World, budget: Budget, horizon: i64) -> Explored {
    let mut seen = HashSet::new();
    let mut explored = Explored::default();
    let mut open = vec![(start.clone(), budget)];
    while let Some((world, budget)) = open.pop() {
        if !seen.insert((world.hash(), budget)) {
            continue;
        }
        explored.record(&world);
        if world.now > horizon {
            continue;
        }
        successors(&world, budget, &mut open);
    }
    explored
}

fn successors(world: &World, budget: Budget, open: &mut Vec<(World, Budget)>) {
    let mut push = |change: &dyn Fn(&mut World), left: Budget| {
        let mut next = world.clone();
        change(&mut next);
        open.push((next, left));
    };
    let nodes = 0..world.nodes.len();
    for node in nodes.clone().filter(|node| world.has_command(*node)) {
        push(&|next| next.run_command(node, false), budget);
        if budget.crashes > 0 {
            let left = Budget {
                crashes: budget.crashes - 1,
                ..budget
            };
            push(&|next| next.run_command(node, true), left);
        }
    }
    for place in 0..world.network.len() {
        push(&|next| next.deliver(place, false), budget);
        if budget.crashes > 0 {
            let left = Budget {
                crashes: budget.crashes - 1,
                ..budget
            };
            push(&|next| next.deliver(place, true), left);
        }
        if budget.lost > 0 {
            let left = Budget {
                lost: budget.lost - 1,
                ..budget
            };
            push(&|next| drop(next.network.remove(place)), left);
        }
        if budget.repeated > 0 {
            let left = Budget {
                repeated: budget.repeated - 1,
                ..budget
            };
            let again = |next: &mut World| {
                let message = next.network[place].clone();
                next.network.push(message);
            };
            push(&again, left);
        }
    }
    for node in nodes.clone().filter(|node| world.nodes[*node].is_up) {
        if budget.crashes > 0 {
            let left = Budget {
                crashes: budget.crashes - 1,
                ..budget
            };
            push(&|next| next.crash(node), left);
        }
    }
    if world.is_idle() {
        for node in nodes.filter(|node| !world.nodes[*node].is_up) {
            push(&|next| next.restart(node), budget);
        }
        push(&|next| _ = next.tick(), budget);
    } else if budget.late > 0 {
        push(
            &|next| _ = next.tick(),
            Budget {
                late: budget.late - 1,
                ..budget
            },
        );
    }
}

const NO_FAULTS: Budget = Budget {
    lost: 0,
    repeated: 0,
    late: 0,
    crashes: 0,
};

fn both_shapes() -> [Shape; 2] {
    [Shape::Chain, Shape::Tree]
}

#[test]
fn reservations_without_faults_are_complete() {
    for shape in both_shapes() {
        for domains in 1..=3 {
            let explored = explore(&World::new(domains, shape, &[]), NO_FAULTS, 10);
            assert_eq!(explored.nothing, 0, "{shape:?} of {domains}: {explored:?}");
        }
    }
}

#[test]
fn refusal_at_any_step_leaves_nothing() {
    for shape in both_shapes() {
        for domains in [2, 4] {
            for at in 0..domains {
                for refusals in [
                    Refusals {
                        reserve: true,
                        commit: false,
                    },
                    Refusals {
                        reserve: false,
                        commit: true,
                    },
                ] {
                    let world = World::new(domains, shape, &[(at, refusals)]);
                    assert_eq!(world.check_outcome(), Outcomes::Nothing);
                }
            }
        }
    }
}

#[test]
fn two_domains_survive_any_two_faults() {
    let budgets = [
        Budget {
            lost: 1,
            repeated: 1,
            ..NO_FAULTS
        },
        Budget {
            lost: 2,
            ..NO_FAULTS
        },
        Budget {
            crashes: 1,
            lost: 1,
            ..NO_FAULTS
        },
        Budget {
            crashes: 1,
            repeated: 1,
            ..NO_FAULTS
        },
        Budget {
            crashes: 1,
            late: 1,
            ..NO_FAULTS
        },
        Budget {
            late: 1,
            repeated: 1,
            ..NO_FAULTS
        },
        Budget {
            crashes: 2,
            ..NO_FAULTS
        },
    ];
    for budget in budgets {
        let explored = explore(&World::new(2, Shape::Chain, &[]), budget, 30);
        println!("{budget:?}: {explored:?}");
        assert!(explored.complete > 0, "{budget:?}: {explored:?}");
    }
}

#[test]
fn four_domains_survive_a_fault_at_any_step() {
    for shape in both_shapes() {
        for domains in [3, 4] {
            let explored = explore_in_order(&World::new(domains, shape, &[]), 1, 30);
            println!("{shape:?} of {domains}: {explored:?}");
            assert!(explored.complete > 0 && explored.nothing > 0);
        }
    }
}

/// Like [`explore`], with messages in order except for faults: each is lost, repeated or delivered
/// late, or its receiver dies.
fn explore_in_order(start: &World, faults: u8, horizon: i64) -> Explored {
    let mut seen = HashSet::new();
    let mut explored = Explored::default();
    let mut open = vec![(start.clone(), faults)];
    while let Some((world, faults)) = open.pop() {
        if !seen.insert((world.hash(), faults)) {
            continue;
        }
        explored.record(&world);
        if world.now > horizon {
            continue;
        }
        let budget = Budget {
            lost: faults,
            repeated: faults,
            late: faults,
            crashes: faults,
        };
        let mut next = Vec::new();
        successors(&world, budget, &mut next);
        let mut in_order = world.clone();
        in_order.step();
        open.push((in_order, faults));
        let with_fault = next.into_iter().filter(|(_, left)| *left != budget);
        open.extend(with_fault.map(|(world, _)| (world, faults - 1)));
        let down = (0..world.nodes.len()).filter(|node| !world.nodes[*node].is_up);
        for node in down.filter(|_| world.is_idle()) {
            let mut restarted = world.clone();
            restarted.restart(node);
            open.push((restarted, faults));
        }
    }
    explored
}

/// Step of a random run.
#[derive(Debug, Clone, Copy)]
enum Step {
    Run(usize),
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    Crash(usize),
    Restart(usize),
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = 0..16_usize;
    let step = prop_oneof![
        12 => place.clone().prop_map(Step::Run),
        12 => place.clone().prop_map(Step::Deliver),
        2 => place.clone().prop_map(Step::Lose),
        2 => place.clone().prop_map(Step::Repeat),
        1 => place.clone().prop_map(Step::Crash),
        3 => place.prop_map(Step::Restart),
        2 => Just(Step::Tick),
    ];
    prop::collection::vec(step, 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_number_of_faults_leaves_all_or_nothing(
        domains in 2..=4_usize,
        is_tree in any::<bool>(),
        steps in steps(),
        stays_dead in prop::option::of(0..4_usize),
    ) {
        let shape = if is_tree { Shape::Tree } else { Shape::Chain };
        let mut world = World::new(domains, shape, &[]);
        for step in steps {
            let pick = |place: usize, count: usize| (count > 0).then(|| place % count);
            match step {
                Step::Run(place) if world.has_command(place % domains) => {
                    world.run_command(place % domains, place % 7 == 6);
                }
                Step::Deliver(place) => {
                    if let Some(place) = pick(place, world.network.len()) {
                        world.deliver(place, place % 7 == 6);
                    }
                }
                Step::Lose(place) => {
                    if let Some(place) = pick(place, world.network.len()) {
                        world.network.remove(place);
                    }
                }
                Step::Repeat(place) => {
                    if let Some(place) = pick(place, world.network.len()) {
                        let message = world.network[place].clone();
                        world.network.push(message);
                    }
                }
                Step::Crash(place) => world.crash(place % domains),
                Step::Restart(place) if !world.nodes[place % domains].is_up => {
                    world.restart(place % domains);
                }
                Step::Tick => _ = world.tick(),
                _ => {}
            }
        }
        for node in 0..domains {
            if !world.nodes[node].is_up && stays_dead != Some(node) {
                world.restart(node);
            }
        }
        world.check_outcome();
    }
}
