//! The targets of every crate. What must hold of each parser stands in the crate that has it, in
//! its module `fuzzing`.

use longhaul_proto::fuzzing::Target;

/// Every target.
pub fn all() -> impl Iterator<Item = &'static Target> {
    [
        longhaul_proto::fuzzing::TARGETS,
        longhaul_session::fuzzing::TARGETS,
        longhaul_transfer::fuzzing::TARGETS,
        longhaul_perf::fuzzing::TARGETS,
        longhaul_doctor::fuzzing::TARGETS,
        longhaul_policy::fuzzing::TARGETS,
        longhaul_map::fuzzing::TARGETS,
        longhaul_measurements::fuzzing::TARGETS,
        longhaul_depot::fuzzing::TARGETS,
        longhaul_route_source::fuzzing::TARGETS,
        longhaul_onramp::fuzzing::TARGETS,
    ]
    .into_iter()
    .flatten()
}

/// Checks what must hold of the target called `name` for one input.
pub fn check(name: &str, data: &[u8]) {
    let target = all().find(|target| target.name == name);
    (target.expect("a target of that name").property)(data);
}
