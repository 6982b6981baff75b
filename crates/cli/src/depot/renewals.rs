//! Grants of circuits that a depot has in use: the controller is asked, again and again, whether
//! they still hold (LH-GRANT-3).
//!
//! The depot decides what follows from an answer. While none comes, grants lapse at their end, and
//! sessions go on by best effort.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use longhaul_control_api::grants::{
    GrantInUse as Asked, GrantsInUse as Question, MAX_GRANTS_IN_USE, Renewal,
};
use longhaul_control_client::Controller;
use longhaul_control_client::settings::{KnownBy, Settings};
use longhaul_depot::{GrantInUse, GrantsInUse};
use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, NoGrant, PublicKey, SigningKey};
use tokio::time::{Instant, sleep, timeout};

/// How often the controller is asked. Two rounds and the time for their answers are less than the
/// ten seconds within which a withdrawal is obeyed.
const INTERVAL: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one of several controllers may not know of a reservation that another has committed.
const FOLLOWING_LAG: Duration = Duration::from_millis(1500);
/// How often the controller is asked at most, whatever is shown to the depot.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// The task that asks about grants.
pub struct Renewals {
    controller: Controller,
    /// Issuers whose grants are asked about. `None` if the controller is not known by a key.
    issuers: Option<BTreeSet<PublicKey>>,
    grants: GrantsInUse,
    is_one_of_several: bool,
    /// Grants that one of several controllers does not renew, and since when.
    suspects: HashMap<GrantInUse, Instant>,
    /// What was wrong last, so that it is said once.
    problem: Option<String>,
}

impl Renewals {
    /// Of the controller that `settings` name, asked with the depot's key.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn new(settings: &Settings, key: &SigningKey, grants: GrantsInUse) -> Result<Self> {
        let keys = settings.sites().map(|site| match &site.known {
            Some(KnownBy::Key(key)) => Some(*key),
            _ => None,
        });
        Ok(Self {
            controller: Controller::new(settings, key)?.within(ANSWER_TIMEOUT),
            issuers: keys.collect(),
            grants,
            is_one_of_several: settings.sites().count() > 1,
            suspects: HashMap::new(),
            problem: None,
        })
    }

    /// Asks as long as grants are in use, and waits for one where none is.
    pub async fn run(mut self) -> Infallible {
        loop {
            let in_use = self.in_use();
            if in_use.is_empty() {
                self.grants.unasked().await;
                continue;
            }
            self.ask(&in_use).await;
            sleep(MIN_INTERVAL).await;
            // A second answer is due soon.
            let pause = match self.suspects.is_empty() {
                true => INTERVAL,
                false => FOLLOWING_LAG,
            };
            let _ = timeout(pause - MIN_INTERVAL, self.grants.unasked()).await;
        }
    }

    /// The grants that this controller can be asked about.
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
                // What is no text was named by no controller of this release.
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

    /// Takes a renewal.
    ///
    /// # Errors
    /// What is wrong with it.
    fn renew(&mut self, grant: &GrantInUse, text: &str) -> Result<(), String> {
        self.suspects.remove(grant);
        let renewed: CircuitGrant = text.parse().map_err(|no: NoGrant| no.to_string())?;
        if renewed.issuer != grant.issuer {
            return Err("another controller renews a grant of this name".to_owned());
        }
        self.grants
            .renew(grant, &renewed)
            .map_err(|fault| fault.to_string())
    }

    /// Obeys a withdrawal; one of several controllers only if another answer confirms it.
    fn withdraw(&mut self, grant: &GrantInUse, why: Option<&str>) {
        if self.is_one_of_several {
            let suspected = self
                .suspects
                .entry(grant.clone())
                .or_insert_with(Instant::now);
            if suspected.elapsed() < FOLLOWING_LAG {
                return;
            }
        }
        let why = why.unwrap_or("the controller does not say why");
        self.grants.withdraw(grant, why);
    }

    /// Says in the log what is wrong, once.
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
