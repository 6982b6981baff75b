//! The errno that a program's connect returns, and the reason that is reported.

use longhaul_proto::{FailureKind, StatusCode};
use longhaul_session::Error;
use rustix::io::Errno;

use crate::bed::*;

#[test]
fn each_failure_maps_to_the_kernels_errno() {
    on_the_path(
        "refusals::each_failure_maps_to_the_kernels_errno",
        2.0,
        |bed, initiator| {
            initiator.finish();
            // The answer may arrive before the line is written.
            bed.logged("gateway", "dial refused");
            bed.logged("gateway", "refused by policy");
        },
        async |me| {
            let inside = me.inside;
            for (server, code, errno) in [
                (
                    "127.0.0.1:5999".to_owned(),
                    StatusCode::DialRefused,
                    Errno::CONNREFUSED,
                ),
                (
                    format!("{inside}:5999"),
                    StatusCode::DialRefused,
                    Errno::CONNREFUSED,
                ),
                // The rule permits it, but the gateway has no route.
                (
                    "192.0.2.1:5999".to_owned(),
                    StatusCode::DialUnreachable,
                    Errno::HOSTUNREACH,
                ),
                (
                    "127.0.0.1:22".to_owned(),
                    StatusCode::Refused,
                    Errno::ACCESS,
                ),
                (
                    "127.0.0.2:5999".to_owned(),
                    StatusCode::Refused,
                    Errno::ACCESS,
                ),
                (
                    format!("{}:5999", me.gateway),
                    StatusCode::Refused,
                    Errno::ACCESS,
                ),
                (
                    "169.254.169.254:5999".to_owned(),
                    StatusCode::Refused,
                    Errno::ACCESS,
                ),
            ] {
                let error = me.connect(&server).await.unwrap_err();
                assert!(
                    matches!(
                        &error, Error::Hop(failure) if failure.kind == FailureKind::Acceptor(code)
                    ),
                    "{server}: {error}"
                );
                assert_eq!(error.errno(), errno.raw_os_error(), "{server}: {error}");
            }
        },
    );
}
