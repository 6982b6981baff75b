//! A controller as a source of routes, asked each time.

use std::sync::Arc;
use std::time::Duration;

use crate::{ClientError, ControllerClient};
use longhaul_control_api::routes::{RouteQuestion, RouteTable, TableQuery};

use crate::routes::belief;
use crate::routes::cache::RouteCache;
use crate::routes::held::HeldFile;
use crate::routes::question::{RouteQuery, Urgency};
use crate::routes::source::{NoRoutes, RouteSource, RoutesFuture};

/// Time limit of a controller's answer. Clients do something else meanwhile.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of destinations per page of a table.
const PAGE_SIZE: u32 = 500;
/// Maximum number of pages to request.
const MAX_PAGES: usize = 10;

/// Source of routes that asks a controller for each question.
#[derive(Debug, Clone)]
pub struct ControllerSource {
    controller: Arc<ControllerClient>,
    held: HeldFile,
    now_ms: fn() -> u64,
}

impl ControllerSource {
    /// Creates a source for a controller. Routes that are held back are not accepted from it
    /// either.
    #[must_use]
    pub fn new(controller: ControllerClient, held: HeldFile, now_ms: fn() -> u64) -> Self {
        Self {
            controller: Arc::new(controller.with_timeout(ANSWER_TIMEOUT)),
            held,
            now_ms,
        }
    }

    /// Returns the controller.
    #[must_use]
    pub fn controller(&self) -> &Arc<ControllerClient> {
        &self.controller
    }

    /// Fetches the whole table for fetching if `receives`, else for sending, and stores it.
    ///
    /// # Errors
    /// [`ClientError`] if the controller does not return it. A table that cannot be stored is not
    /// an error.
    pub async fn refresh(&self, receives: bool, cache: &RouteCache) -> Result<(), ClientError> {
        let table = self.table(receives).await?;
        if let Err(error) = cache.store(table) {
            tracing::debug!(
                file = %cache.file(receives).display(),
                %error,
                "cannot store the table of routes"
            );
        }
        Ok(())
    }

    async fn table(&self, receives: bool) -> Result<RouteTable, ClientError> {
        let mut query = TableQuery {
            receives: Some(receives),
            limit: Some(PAGE_SIZE),
            ..TableQuery::default()
        };
        let mut table = self.controller.table(&query).await?;
        for _ in 1..MAX_PAGES {
            let Some(after) = table.next.take() else {
                break;
            };
            query.after = Some(after);
            let page = self.controller.table(&query).await?;
            table.destinations.extend(page.destinations);
            table.next = page.next;
            // The whole table is only as recent as its oldest page.
            table.made_ms = table.made_ms.min(page.made_ms);
            table.valid_until_ms = table.valid_until_ms.min(page.valid_until_ms);
        }
        Ok(table)
    }

    async fn ask(&self, question: &RouteQuery) -> Result<crate::routes::Choice, NoRoutes> {
        let asked = RouteQuestion {
            to: host(question),
            receives: question.receives,
            bytes: question.bytes,
            streams: question.streams,
            congestion: question.congestion.clone(),
            may_explore: question.urgency == Urgency::Usual,
            ..RouteQuestion::default()
        };
        let answer = self.controller.question(&asked).await?;
        let held = self.held.read((self.now_ms)());
        Ok(belief::choice_from_answer(&answer, question, &held)?)
    }
}

/// Returns the destination's host as maps name it.
fn host(question: &RouteQuery) -> String {
    question.destination.host.to_string()
}

impl RouteSource for ControllerSource {
    fn routes<'a>(&'a self, question: &'a RouteQuery) -> RoutesFuture<'a> {
        Box::pin(self.ask(question))
    }
}
