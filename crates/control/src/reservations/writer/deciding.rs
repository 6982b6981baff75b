//! Decisions of one turn, in memory and in order.

use std::collections::BTreeMap;

use longhaul_circuits::time::MomentMs;
use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::Reserved;

use super::AskError;
use crate::reservations::ReservationCaller;
use crate::reservations::desk::{ReservationCommand, ReservationError, ReservationStore};
use crate::reservations::record::Record;
use crate::store::{IdempotencyKey, StoreError};

/// Result of one turn.
pub(super) struct TurnResult {
    pub reservations: ReservationStore,
    pub records: Vec<Record>,
    /// Answers to the requests, in order.
    pub answers: Vec<Result<Reserved, AskError>>,
    /// Answers to remember, of requests with idempotency keys.
    pub remembered: Vec<(IdempotencyKey, String)>,
    /// If true, more is due immediately.
    pub is_more: bool,
}

/// Request to decide.
pub(super) type DecidableRequest = (
    ReservationCaller,
    ReservationCommand,
    Option<IdempotencyKey>,
);

/// Earlier answers by principal and idempotency key: the hash of the request, and the answer.
pub(super) type EarlierAnswers = BTreeMap<(String, String), (String, String)>;

/// Decides all requests in order, after a change of the map and what is due.
pub(super) fn decide(
    mut reservations: ReservationStore,
    asked: &[DecidableRequest],
    map: Option<&Map>,
    mut before: EarlierAnswers,
    now: MomentMs,
) -> Result<TurnResult, ReservationError> {
    let mut records = Vec::new();
    if let Some(map) = map {
        match reservations.take_map(map, &mut records) {
            Ok(false) => {}
            Ok(true) => tracing::info!("reservations use the changed map"),
            Err(error) => {
                tracing::error!(
                    %error,
                    "reservations keep using the previous map: the new one is too large"
                )
            }
        }
    }
    let is_more = reservations.advance_time(now, &mut records)?;
    let (mut answers, mut remembered) = (Vec::with_capacity(asked.len()), Vec::new());
    for (asker, command, once) in asked {
        let key = once
            .as_ref()
            .map(|once| (once.principal.clone(), once.key.clone()));
        if let (Some(once), Some((hash, answer))) =
            (once, key.as_ref().and_then(|key| before.get(key)))
        {
            answers.push(repeat_answer(once, hash, answer));
            continue;
        }
        let answer = match reservations.execute(asker, command, now, &mut records) {
            Err(error @ ReservationError::Fault(_)) => return Err(error),
            answer => answer,
        };
        if let (Some(once), Some(key), Ok(answer)) = (once, key, &answer) {
            let text = serde_json::to_string(answer).unwrap_or_default();
            before.insert(key, (once.hash.clone(), text.clone()));
            remembered.push((once.clone(), text));
        }
        answers.push(answer.map_err(AskError::from));
    }
    Ok(TurnResult {
        reservations,
        records,
        answers,
        remembered,
        is_more,
    })
}

fn repeat_answer(once: &IdempotencyKey, hash: &str, answer: &str) -> Result<Reserved, AskError> {
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
