//! A controller as a source: asked each time.

use std::sync::Arc;
use std::time::Duration;

use longhaul_control_api::routes::{RouteQuestion, RouteTable, TableQuery};
use longhaul_control_client::{ClientError, Controller};

use crate::belief;
use crate::cache::Cache;
use crate::held::HeldFile;
use crate::question::{Question, Urgency};
use crate::source::{Answer, NoRoutes, RouteSource};

/// How long a controller may take to answer before it counts as away. Nobody waits for it who could
/// do something meanwhile.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Destinations that a page of a table has.
const PAGE: u32 = 500;
/// Most pages that are asked for.
const MAX_PAGES: usize = 10;

/// See the module.
#[derive(Debug, Clone)]
pub struct ControllerSource {
    controller: Arc<Controller>,
    held: HeldFile,
    now_ms: fn() -> u64,
}

impl ControllerSource {
    /// Asks this one; routes that are held are not taken from it either.
    #[must_use]
    pub fn new(controller: Controller, held: HeldFile, now_ms: fn() -> u64) -> Self {
        Self {
            controller: Arc::new(controller.within(ANSWER_TIMEOUT)),
            held,
            now_ms,
        }
    }

    /// Who is asked.
    #[must_use]
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// Fetches the whole table for what is sent, or fetched, and keeps it.
    ///
    /// # Errors
    /// [`ClientError`]: the controller does not give it. A table that cannot be written is none.
    pub async fn refresh(&self, receives: bool, cache: &Cache) -> Result<(), ClientError> {
        let table = self.table(receives).await?;
        if let Err(error) = cache.keep(table) {
            tracing::debug!(file = %cache.file(receives).display(), %error, "the table of routes is not kept");
        }
        Ok(())
    }

    async fn table(&self, receives: bool) -> Result<RouteTable, ClientError> {
        let mut query = TableQuery {
            receives: Some(receives),
            limit: Some(PAGE),
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
            // All of it is worth no more than what of it is oldest.
            table.made_ms = table.made_ms.min(page.made_ms);
            table.valid_until_ms = table.valid_until_ms.min(page.valid_until_ms);
        }
        Ok(table)
    }

    async fn ask(&self, question: &Question) -> Result<crate::Choice, NoRoutes> {
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
        Ok(belief::of_answer(&answer, question, &held)?)
    }
}

/// The destination's host, as a map has it.
fn host(question: &Question) -> String {
    question.destination.host.to_string()
}

impl RouteSource for ControllerSource {
    fn routes<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Box::pin(self.ask(question))
    }
}
