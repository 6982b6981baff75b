//! Interface to the drivers that set up parts of circuits.

use std::pin::Pin;

use crate::ask::{Counters, DriverError, Found, Reply, Request};
use crate::circuit::{Name, Part, PartId};

/// Future of a driver's answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, DriverError>> + Send + 'a>>;

/// A driver: it sets up parts of circuits, tears them down, and lists them.
///
/// An owner sends one request after the other. Each may be repeated: it changes nothing that is
/// already as requested.
pub trait Driver: Send + Sync {
    /// Carries out a request, and answers within a bounded time. Errors are returned as `Err`,
    /// never as a [`Reply`].
    fn ask<'a>(&'a self, request: &'a Request) -> Answer<'a, Reply>;
}

fn unfit(reply: &Reply) -> DriverError {
    let what = match reply {
        Reply::Done => "\"done\"",
        Reply::Parts { .. } => "parts",
        Reply::Counters(_) => "counters",
        Reply::Error(error) => return error.clone(),
    };
    DriverError::nonsense(format!("{what} is no answer to what was asked"))
}

/// Ensures that a part is set up as described.
///
/// # Errors
/// The driver's error, or [`DriverError::Nonsense`] if the answer does not fit the request.
pub async fn set_up(driver: &dyn Driver, part: Part) -> Result<(), DriverError> {
    done(driver, &Request::SetUp { part }).await
}

/// Ensures that a part is not set up.
///
/// # Errors
/// As for [`set_up`].
pub async fn tear_down(driver: &dyn Driver, owner: Name, id: PartId) -> Result<(), DriverError> {
    done(driver, &Request::TearDown { owner, id }).await
}

async fn done(driver: &dyn Driver, request: &Request) -> Result<(), DriverError> {
    match driver.ask(request).await? {
        Reply::Done => Ok(()),
        other => Err(unfit(&other)),
    }
}

/// Lists the parts of this owner, and possibly those of others.
///
/// # Errors
/// As for [`set_up`].
pub async fn list(driver: &dyn Driver, owner: Name) -> Result<Vec<Found>, DriverError> {
    match driver.ask(&Request::List { owner }).await? {
        Reply::Parts { parts } => Ok(parts),
        other => Err(unfit(&other)),
    }
}

/// Reads the traffic counters of a part.
///
/// # Errors
/// As for [`set_up`]; [`DriverError::Missing`] if the part does not exist.
pub async fn counters(
    driver: &dyn Driver,
    owner: Name,
    id: PartId,
) -> Result<Counters, DriverError> {
    match driver.ask(&Request::Counters { owner, id }).await? {
        Reply::Counters(counters) => Ok(counters),
        other => Err(unfit(&other)),
    }
}
