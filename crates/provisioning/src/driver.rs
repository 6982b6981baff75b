//! Interface to the drivers that set up parts of circuits.

use std::pin::Pin;

use crate::ask::{Counters, DriverError, DriverReply, DriverRequest, ListedPart};
use crate::circuit::{CircuitPart, EntityName, PartId};

/// Future of a driver's answer.
pub type DriverFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, DriverError>> + Send + 'a>>;

/// A driver: it sets up parts of circuits, tears them down, and lists them.
///
/// An owner sends one request after the other. Each may be repeated: it changes nothing that is
/// already as requested.
pub trait Driver: Send + Sync {
    /// Carries out a request, and answers within a bounded time. Errors are returned as `Err`,
    /// never as a [`DriverReply`].
    fn ask<'a>(&'a self, request: &'a DriverRequest) -> DriverFuture<'a, DriverReply>;
}

fn unexpected_reply(reply: &DriverReply) -> DriverError {
    let what = match reply {
        DriverReply::Done => "\"done\"",
        DriverReply::Parts { .. } => "parts",
        DriverReply::Counters(_) => "counters",
        DriverReply::Error(error) => return error.clone(),
    };
    DriverError::nonsense(format!("{what} does not answer the request"))
}

/// Ensures that a part is set up as described.
///
/// # Errors
/// The driver's error, or [`DriverError::Nonsense`] if the answer does not fit the request.
pub async fn set_up(driver: &dyn Driver, part: CircuitPart) -> Result<(), DriverError> {
    expect_done(driver, &DriverRequest::SetUp { part }).await
}

/// Ensures that a part is not set up.
///
/// # Errors
/// As for [`set_up`].
pub async fn tear_down(
    driver: &dyn Driver,
    owner: EntityName,
    id: PartId,
) -> Result<(), DriverError> {
    expect_done(driver, &DriverRequest::TearDown { owner, id }).await
}

async fn expect_done(driver: &dyn Driver, request: &DriverRequest) -> Result<(), DriverError> {
    match driver.ask(request).await? {
        DriverReply::Done => Ok(()),
        other => Err(unexpected_reply(&other)),
    }
}

/// Lists the parts of this owner, and possibly those of others.
///
/// # Errors
/// As for [`set_up`].
pub async fn list(driver: &dyn Driver, owner: EntityName) -> Result<Vec<ListedPart>, DriverError> {
    match driver.ask(&DriverRequest::List { owner }).await? {
        DriverReply::Parts { parts } => Ok(parts),
        other => Err(unexpected_reply(&other)),
    }
}

/// Reads the traffic counters of a part.
///
/// # Errors
/// As for [`set_up`]; [`DriverError::Missing`] if the part does not exist.
pub async fn counters(
    driver: &dyn Driver,
    owner: EntityName,
    id: PartId,
) -> Result<Counters, DriverError> {
    match driver.ask(&DriverRequest::Counters { owner, id }).await? {
        DriverReply::Counters(counters) => Ok(counters),
        other => Err(unexpected_reply(&other)),
    }
}
