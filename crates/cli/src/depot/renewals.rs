//! Renewal of circuit grants in use: the depot asks the controller repeatedly whether they still
//! hold (LH-GRANT-3).
//!
//! The depot decides what follows from an answer. Without an answer, grants lapse at their end, and
//! sessions continue by best effort.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use longhaul_control_api::grants::{
    GrantInUse as Asked, GrantsInUse as Question, MAX_GRANTS_IN_USE, Renewal,
};
use longhaul_control_client::ControllerClient;
use longhaul_control_client::settings::{ControllerSettings, ControllerTrust};
use longhaul_depot::{GrantInUse, GrantsInUse};
use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, InvalidGrant, PublicKey, SigningKey};
use tokio::time::{Instant, sleep, timeout};

/// Interval between questions. Two rounds and the time for their answers are shorter than the ten
/// seconds within which a withdrawal is obeyed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which one of several controllers may not know of a reservation that another has
/// committed.
const FOLLOWER_LAG: Duration = Duration::from_millis(1500);
/// Minimum interval between questions, whatever grants the depot is shown.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_millis(250);

/// The task that asks about grants.
pub struct GrantRenewer {
    controller: ControllerClient,
    /// Issuers whose grants are asked about. `None` if the controller is not known by a key.
    issuers: Option<BTreeSet<PublicKey>>,
    grants: GrantsInUse,
    is_one_of_several: bool,
    /// Grants that one of several controllers does not renew, and the time of its first refusal.
    suspects: HashMap<GrantInUse, Instant>,
    /// The last problem, so that it is logged once.
    problem: Option<String>,
}

impl GrantRenewer {
    /// Creates the task for the controller in `settings`, which authenticates with the depot's key.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn new(
        settings: &ControllerSettings,
        key: &SigningKey,
        grants: GrantsInUse,
    ) -> Result<Self> {
        let keys = settings.sites().map(|site| match &site.known {
            Some(ControllerTrust::Key(key)) => Some(*key),
            _ => None,
        });
        Ok(Self {
            controller: ControllerClient::new(settings, key)?.with_timeout(ANSWER_TIMEOUT),
            issuers: keys.collect(),
            grants,
            is_one_of_several: settings.sites().count() > 1,
            suspects: HashMap::new(),
            problem: None,
        })
    }

    /// Asks while grants are in use, and waits while there are none.
    pub async fn run(mut self) -> Infallible {
        loop {
            let in_use = self.in_use();
            if in_use.is_empty() {
                self.grants.wait_unqueried().await;
                continue;
            }
            self.ask(&in_use).await;
            sleep(MIN_RENEWAL_INTERVAL).await;
            // A second answer is due soon.
            let pause = match self.suspects.is_empty() {
                true => RENEWAL_INTERVAL,
                false => FOLLOWER_LAG,
            };
            let _ = timeout(pause - MIN_RENEWAL_INTERVAL, self.grants.wait_unqueried()).await;
        }
    }

    /// Returns the grants that this controller can be asked about.
    fn in_use(&self) -> Vec<GrantInUse> {
        let mut in_use = self.grants.list();
        if let Some(issuers) = &self.issuers {
            in_use.retain(|grant| issuers.contains(&grant.issuer));
        }
        in_use
    }

    async fn ask(&mut self, in_use: &[GrantInUse]) {
        self.suspects.retain(|grant, _| in_use.contains(grant));
        let mut problem = None;
        for some in in_use.chunks(MAX_GRANTS_IN_USE) {
            let mut asked: HashMap<(String, String), Vec<&GrantInUse>> = HashMap::new();
            for grant in some {
                // Controllers of this release only use circuit names in UTF-8.
                if let Ok(circuit) = std::str::from_utf8(&grant.circuit) {
                    let name = (circuit.to_owned(), grant.holder.to_string());
                    asked.entry(name).or_default().push(grant);
                }
            }
            let items = asked.keys().map(|(circuit, holder)| Asked {
                circuit: circuit.clone(),
                holder: holder.clone(),
            });
            let question = Question {
                items: items.collect(),
            };
            match self.controller.renew_grants(&question).await {
                Ok(answer) => {
                    for item in answer.items {
                        let Renewal {
                            circuit,
                            holder,
                            grant: renewed,
                            ended,
                        } = item;
                        let named = asked.get(&(circuit, holder));
                        for grant in named.into_iter().flatten() {
                            let fault = match &renewed {
                                Some(text) => self.renew(grant, text).err(),
                                None => {
                                    self.withdraw(grant, ended.as_deref());
                                    None
                                }
                            };
                            problem = fault.or(problem);
                        }
                    }
                }
                Err(error) => problem = Some(error.to_string()),
            }
        }
        self.report(problem);
    }

    /// Applies a renewal.
    ///
    /// # Errors
    /// The renewal is invalid, for the reason given.
    fn renew(&mut self, grant: &GrantInUse, text: &str) -> Result<(), String> {
        self.suspects.remove(grant);
        let renewed: CircuitGrant = text.parse().map_err(|no: InvalidGrant| no.to_string())?;
        if renewed.issuer != grant.issuer {
            return Err("another controller renews a grant of this name".to_owned());
        }
        self.grants
            .renew(grant, &renewed)
            .map_err(|fault| fault.to_string())
    }

    /// Obeys a withdrawal. With several controllers, a second answer must confirm it.
    fn withdraw(&mut self, grant: &GrantInUse, why: Option<&str>) {
        if self.is_one_of_several {
            let suspected = self
                .suspects
                .entry(grant.clone())
                .or_insert_with(Instant::now);
            if suspected.elapsed() < FOLLOWER_LAG {
                return;
            }
        }
        let why = why.unwrap_or("the controller gives no reason");
        self.grants.withdraw(grant, why);
    }

    /// Logs a problem once.
    fn report(&mut self, problem: Option<String>) {
        if self.problem == problem {
            return;
        }
        if let Some(problem) = &problem {
            let problem = printable(problem.as_bytes());
            tracing::warn!(problem, "grants of circuits are not renewed: they lapse");
        }
        self.problem = problem;
    }
}
