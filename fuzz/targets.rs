//! Fuzz targets of every crate. The module `fuzzing` of each crate defines the property that its
//! parsers must satisfy.

use longhaul_proto::fuzzing::FuzzTarget;

/// Returns every target.
pub fn all() -> impl Iterator<Item = &'static FuzzTarget> {
    [
        longhaul_proto::fuzzing::TARGETS,
        longhaul_session::fuzzing::TARGETS,
        longhaul_transfer::fuzzing::TARGETS,
        longhaul_perf::fuzzing::TARGETS,
        longhaul_doctor::fuzzing::TARGETS,
        longhaul_identity::fuzzing::TARGETS,
        longhaul_policy::fuzzing::TARGETS,
        longhaul_map::fuzzing::TARGETS,
        longhaul_measurements::fuzzing::TARGETS,
        longhaul_depot::fuzzing::TARGETS,
        longhaul_control_client::routes::fuzzing::TARGETS,
        longhaul_onramp::fuzzing::TARGETS,
    ]
    .into_iter()
    .flatten()
}

/// Checks the property of the target `name` for one input.
///
/// # Panics
///
/// If there is no such target, or the input violates its property.
pub fn check(name: &str, data: &[u8]) {
    let target = all().find(|target| target.name == name);
    (target.expect("a target of that name").property)(data);
}
