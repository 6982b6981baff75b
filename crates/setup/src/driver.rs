//! Who can be asked to set up parts of circuits.

use std::pin::Pin;

use crate::ask::{Counters, DriverError, Found, Reply, Request};
use crate::circuit::{Name, Part, PartId};

/// An answer that is on its way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, DriverError>> + Send + 'a>>;

/// Sets up parts of circuits, tears them down, and reports what is there.
///
/// Requests are asked one after the other by one owner, and each can be asked again: what is so
/// already stays so.
pub trait Driver: Send + Sync {
    /// Does what is asked, and answers within a bounded time. An error is not answered as a
    /// [`Reply`].
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

/// Sees to it that a part is there as it is described.
///
/// # Errors
/// What the driver says, and [`DriverError::Nonsense`] for an answer to another question.
pub async fn set_up(driver: &dyn Driver, part: Part) -> Result<(), DriverError> {
    done(driver, &Request::SetUp { part }).await
}

/// Sees to it that a part is not there.
///
/// # Errors
/// As [`set_up`].
pub async fn tear_down(driver: &dyn Driver, owner: Name, id: PartId) -> Result<(), DriverError> {
    done(driver, &Request::TearDown { owner, id }).await
}

async fn done(driver: &dyn Driver, request: &Request) -> Result<(), DriverError> {
    match driver.ask(request).await? {
        Reply::Done => Ok(()),
        other => Err(unfit(&other)),
    }
}

/// What is there, of this owner and perhaps of others.
///
/// # Errors
/// As [`set_up`].
pub async fn list(driver: &dyn Driver, owner: Name) -> Result<Vec<Found>, DriverError> {
    match driver.ask(&Request::List { owner }).await? {
        Reply::Parts { parts } => Ok(parts),
        other => Err(unfit(&other)),
    }
}

/// What went through a part.
///
/// # Errors
/// As [`set_up`]; [`DriverError::Missing`] where there is no such part.
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
