//! Errors of starting a program in a network of its own.

use std::io;

use strum::FromRepr;

/// Step of the setup. Its number goes from the child to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum SetupStep {
    /// Creating the namespaces.
    Namespaces = 1,
    /// Keeping the caller's user and group in the user namespace.
    Users = 2,
    /// Mounting files over those of the host.
    Mounts = 3,
    /// Creating the TUN device.
    Device = 4,
    /// Setting the addresses and routes of the device.
    Addresses = 5,
    /// Handing over the device.
    HandOver = 6,
}

/// Reason why a program could not be started. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The kernel, or one of its policies, does not let this user create namespaces.
    #[error(
        "this user may not create network namespaces ({0}): permit user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns), or run it as root"
    )]
    NoNamespaces(io::Error),
    /// There is no TUN driver, or this user may not use it.
    #[error(
        "this user cannot open /dev/net/tun ({0}): load the module (modprobe tun), pass the \
         device to the container, and let the user read and write it"
    )]
    NoDevice(io::Error),
    /// Another step of the setup failed.
    #[error("the program's own network could not be set up ({0}): {1}")]
    Failed(&'static str, io::Error),
    /// The program itself could not be executed.
    #[error("the program could not be started: {0}")]
    NotStarted(io::Error),
}

impl IsolateError {
    /// Returns the error of a step that failed in the child.
    pub(crate) fn from_step(step: SetupStep, error: io::Error) -> Self {
        match step {
            SetupStep::Namespaces | SetupStep::Users => Self::NoNamespaces(error),
            SetupStep::Mounts if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::NoNamespaces(error)
            }
            SetupStep::Mounts => Self::Failed("its mounts", error),
            SetupStep::Device => Self::NoDevice(error),
            SetupStep::Addresses => Self::Failed("its addresses", error),
            SetupStep::HandOver => Self::Failed("handing over its device", error),
        }
    }
}
