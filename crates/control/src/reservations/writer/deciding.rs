//! Decisions of one turn, in memory and in order.

use std::collections::BTreeMap;

use longhaul_circuits::time::Moment;
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::Reserved;

use super::AskError;
use crate::reservations::Asker;
use crate::reservations::desk::{Command, Denied, Desk, DeskError, Open, Record};
use crate::store::{Once, StoreError};

/// Result of one turn.
pub(super) struct Decided {
    pub desk: Desk,
    pub records: Vec<Record>,
    /// Answers to the requests, in order.
    pub answers: Vec<Answer>,
    /// Answers to remember, of requests with idempotency keys.
    pub remembered: Vec<(Once, String)>,
    /// If true, more is due immediately.
    pub is_more: bool,
}

/// Answer to a request; for a refusal, with a search for counter-offers if they are computed later.
pub(super) type Answer = Result<Reserved, (AskError, Option<Box<Open>>)>;

/// Request to decide.
pub(super) type Asked = (Asker, Command, Option<Once>);

/// Earlier answers by principal and idempotency key: the hash of the request, and the answer.
pub(super) type Before = BTreeMap<(String, String), (String, String)>;

/// Decides all requests in order, after a change of the map and what is due.
pub(super) fn decide(
    mut desk: Desk,
    asked: &[Asked],
    map: Option<&Map>,
    mut before: Before,
    now: Moment,
) -> Result<Decided, DeskError> {
    let mut records = Vec::new();
    if let Some(map) = map {
        match desk.take_map(map, &mut records) {
            Ok(false) => {}
            Ok(true) => tracing::info!("reservations go by the map that was changed"),
            Err(error) => {
                tracing::error!(%error, "reservations go by the map before: this one is too large")
            }
        }
    }
    let is_more = desk.pass(now, &mut records)?;
    let (mut answers, mut remembered) = (Vec::with_capacity(asked.len()), Vec::new());
    for (asker, command, once) in asked {
        let key = once
            .as_ref()
            .map(|once| (once.principal.clone(), once.key.clone()));
        if let (Some(once), Some((hash, answer))) =
            (once, key.as_ref().and_then(|key| before.get(key)))
        {
            answers.push(answer_again(once, hash, answer).map_err(|error| (error, None)));
            continue;
        }
        let answer = match desk.act_open(asker, command, now, &mut records) {
            Err(Denied {
                error: error @ DeskError::Fault(_),
                ..
            }) => return Err(error),
            answer => answer,
        };
        if let (Some(once), Some(key), Ok(answer)) = (once, key, &answer) {
            let text = serde_json::to_string(answer).unwrap_or_default();
            before.insert(key, (once.hash.clone(), text.clone()));
            remembered.push((once.clone(), text));
        }
        answers.push(answer.map_err(|Denied { error, open }| (error.into(), open)));
    }
    Ok(Decided {
        desk,
        records,
        answers,
        remembered,
        is_more,
    })
}

fn answer_again(once: &Once, hash: &str, answer: &str) -> Result<Reserved, AskError> {
    if hash != once.hash {
        return Err(StoreError::KeyReused(once.key.clone()).into());
    }
    serde_json::from_str(answer).map_err(|error| {
        let unreadable = StoreError::Unreadable {
            what: "answer",
            why: error.to_string(),
        };
        unreadable.into()
    })
}
