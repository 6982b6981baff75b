//! Why a program could not be started in a network of its own.

use std::io;

/// What was being done. The number goes from the child to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Making the namespaces.
    Namespaces = 1,
    /// Keeping the caller's numbers in the user namespace.
    Users = 2,
    /// Covering files of the host with others.
    Mounts = 3,
    /// Making the TUN device.
    Device = 4,
    /// Giving it addresses and routes.
    Addresses = 5,
    /// Handing it over.
    HandOver = 6,
}

impl Step {
    const ALL: [Self; 6] = [
        Self::Namespaces,
        Self::Users,
        Self::Mounts,
        Self::Device,
        Self::Addresses,
        Self::HandOver,
    ];

    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.number() == number)
    }
}

/// Why a program could not be started. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The kernel, or a policy of its, lets this user make none.
    #[error(
        "this system lets this user make no network namespace ({0}): allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or run it as root"
    )]
    NoNamespaces(io::Error),
    /// There is no TUN driver, or this user may not use it.
    #[error(
        "this system has no TUN device for this user (/dev/net/tun: {0}): load it (modprobe tun), give the container the device, and let the user read and write it"
    )]
    NoDevice(io::Error),
    /// The rest.
    #[error("the program's own network could not be set up ({0}): {1}")]
    Failed(&'static str, io::Error),
    /// The program itself could not be executed.
    #[error("the program could not be started: {0}")]
    NotStarted(io::Error),
}

impl IsolateError {
    /// Of a step that the child did not manage.
    pub(crate) fn at(step: Step, error: io::Error) -> Self {
        match step {
            Step::Namespaces | Step::Users => Self::NoNamespaces(error),
            Step::Mounts if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::NoNamespaces(error)
            }
            Step::Mounts => Self::Failed("its mounts", error),
            Step::Device => Self::NoDevice(error),
            Step::Addresses => Self::Failed("its addresses", error),
            Step::HandOver => Self::Failed("handing over its device", error),
        }
    }
}
