//! Once failures end, exactly the wanted parts are set up, and those of other owners are unchanged.

use proptest::prelude::*;
use proptest::sample::Index;

use super::network::SimulatedFault;
use super::*;

/// Event between two stretches of time.
#[derive(Debug, Clone)]
enum Event {
    /// Circuits become wanted, each with its number and rate.
    Want(Vec<(u8, u64)>),
    /// A driver loses a part of any owner.
    Lose(Index),
    /// A part becomes incomplete.
    Break(Index),
    /// The reconciler restarts without any knowledge.
    Crash,
    /// The clock is set back.
    Back(MomentMs),
    /// Time passes. Each request has one of these faults.
    Pass(MomentMs, Vec<Option<SimulatedFault>>),
}

fn any_wrong() -> impl Strategy<Value = Option<SimulatedFault>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(SimulatedFault::Unreported)),
        1 => Just(Some(SimulatedFault::Half)),
        1 => Just(Some(SimulatedFault::Nonsense)),
        1 => Just(Some(SimulatedFault::Says(DriverError::failed("it failed")))),
        1 => Just(Some(SimulatedFault::Says(DriverError::refused("never")))),
        1 => Just(Some(SimulatedFault::Says(DriverError::NoRoom { why: "not now".to_owned() }))),
        1 => Just(Some(SimulatedFault::Says(DriverError::Missing { why: "what?".to_owned() }))),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let wanted = proptest::collection::vec((0..5_u8, 1..9_u64), 0..5);
    prop_oneof![
        2 => wanted.prop_map(Event::Want),
        1 => any::<Index>().prop_map(Event::Lose),
        1 => any::<Index>().prop_map(Event::Break),
        1 => Just(Event::Crash),
        1 => (0..500_000_i64).prop_map(Event::Back),
        4 => (0..200_000_i64, proptest::collection::vec(any_wrong(), 0..30))
            .prop_map(|(time, wrong)| Event::Pass(time, wrong)),
    ]
}

/// Returns one of five circuits, which overlap, touch, or lie apart.
fn numbered(number: u8, rate: u64) -> CircuitSpec {
    let start = MomentMs::from(number) * 150_000;
    let mut all = circuit(&format!("c{number}"), rate, start, start + 300_000);
    if number % 2 == 1 {
        let mut more = all.pieces[0].clone();
        more.window = Window::new(start + 300_000, start + 400_000);
        more.routes[0].rate += 1;
        all.pieces.push(more);
    }
    all
}

/// Returns the parts of an owner, each with whether it is complete.
fn there(network: &Network, owner: &str) -> BTreeMap<(EntityName, PartId), (CircuitPart, bool)> {
    let all = network.drivers.iter().flat_map(|(driver, has)| {
        has.iter()
            .map(move |((of, id), what)| (of, driver, id, what))
    });
    all.filter(|(of, ..)| of.as_str() == owner)
        .map(|(_, driver, id, what)| ((driver.clone(), id.clone()), what.clone()))
        .collect()
}

fn pick(network: &mut Network, index: Index) -> Option<(EntityName, (EntityName, PartId))> {
    let all: Vec<_> = network
        .drivers
        .iter()
        .flat_map(|(driver, has)| has.keys().map(move |key| (driver.clone(), key.clone())))
        .filter(|(_, (owner, _))| owner.as_str() == "us")
        .collect();
    (!all.is_empty()).then(|| index.get(&all).clone())
}

/// Carries out an event, and returns the time after it.
fn happen(
    event: Event,
    reconciler: &mut Reconciler,
    network: &mut Network,
    wanted: &mut Vec<CircuitSpec>,
    now: MomentMs,
) -> MomentMs {
    match event {
        Event::Want(numbers) => {
            let circuits: BTreeMap<u8, u64> = numbers.into_iter().collect();
            *wanted = circuits
                .into_iter()
                .map(|(number, rate)| numbered(number, rate))
                .collect();
            reconciler.set_wanted(wanted.clone());
        }
        Event::Lose(index) => {
            if let Some((driver, key)) = pick(network, index) {
                network.drivers.get_mut(&driver).unwrap().remove(&key);
            }
        }
        Event::Break(index) => {
            if let Some((driver, key)) = pick(network, index) {
                network
                    .drivers
                    .get_mut(&driver)
                    .unwrap()
                    .get_mut(&key)
                    .unwrap()
                    .1 = false;
            }
        }
        Event::Crash => {
            *reconciler = super::reconciler();
            reconciler.set_wanted(wanted.clone());
        }
        Event::Back(time) => return now - time,
        Event::Pass(time, wrong) => {
            let mut wrong = wrong.into_iter();
            let mut answers = Answers::wrong(|_, _| wrong.next().flatten());
            network.run(reconciler, now, now + time, &mut answers);
            return now + time;
        }
    }
    now
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn once_failures_end_exactly_the_wanted_parts_are_set_up(
        events in proptest::collection::vec(any_event(), 1..25),
    ) {
        let (mut reconciler, mut network) = (reconciler(), Network::default());
        for circuit in ["c0", "c1", "other"] {
            network.put("driver of a", part("others", circuit, "a", "ab", 3));
        }
        let others = there(&network, "others");
        let (mut now, mut wanted) = (0, Vec::new());
        for event in events {
            now = happen(event, &mut reconciler, &mut network, &mut wanted, now);
        }
        // Long enough for every backoff, and for a list that reveals lost parts.
        let quiet = now + 2 * (LIST_INTERVAL_MS + MAX_BACKOFF_MS) as MomentMs;
        network.run(&mut reconciler, now, quiet, &mut Answers::good());

        let mut right = BTreeMap::new();
        for circuit in &wanted {
            let standing = reconciler.status(&circuit.id, quiet).unwrap();
            let parts = circuit.parts_at(&name("us"), quiet, SETUP_LEAD_MS);
            match standing {
                CircuitStatus::Failed { left, .. } | CircuitStatus::Over { left } => {
                    prop_assert_eq!(left, 0)
                }
                CircuitStatus::Provisioned => prop_assert!(!parts.is_empty()),
                CircuitStatus::Waiting => prop_assert!(parts.is_empty()),
                CircuitStatus::SettingUp => {
                    prop_assert!(false, "{} is still being set up", circuit.id)
                }
            }
            if !matches!(standing, CircuitStatus::Failed { .. }) {
                let driver = |part: &CircuitPart| name(&format!("driver of {}", part.node));
                right.extend(
                    parts
                        .into_values()
                        .map(|part| ((driver(&part), part.id.clone()), (part, true)))
                );
            }
        }
        prop_assert_eq!(there(&network, "us"), right);
        prop_assert_eq!(there(&network, "others"), others);
    }

    /// Circuits fail only by errors of drivers, or by time.
    #[test]
    fn without_failures_circuits_are_up_throughout_their_windows(
        numbers in proptest::collection::btree_map(0..5_u8, 1..9_u64, 1..5),
        pauses in proptest::collection::vec(1..100_000_i64, 1..20),
    ) {
        let (mut reconciler, mut network) = (reconciler(), Network::default());
        let wanted: Vec<CircuitSpec> = numbers
            .into_iter()
            .map(|(number, rate)| numbered(number, rate))
            .collect();
        reconciler.set_wanted(wanted.clone());
        let mut now = 0;
        for pause in pauses {
            network.run(&mut reconciler, now, now + pause, &mut Answers::good());
            now += pause;
            for circuit in &wanted {
                let standing = reconciler.status(&circuit.id, now).unwrap();
                if circuit.window().contains(now) {
                    prop_assert_eq!(standing, CircuitStatus::Provisioned);
                } else if now >= circuit.window().end {
                    prop_assert_eq!(standing, CircuitStatus::Over { left: 0 });
                }
            }
        }
    }
}
