//! Attacks on what the keys of a controller share: its calendar, its writer, its holds.

use std::sync::Arc;

use longhaul_control_client::unix_ms;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::controller::{Controller, Principal};
use crate::world::{HONEST, World};

const HOUR_MS: u64 = 3_600_000;
/// Recurrences that are requested at once.
const FLOOD: usize = 60;
/// Windows of the largest accepted recurrence.
const EACH_DAY_OF_A_YEAR: u64 = 366;

/// A small request from `dtn1` to `store` that ends this far ahead.
fn request(ahead_ms: u64) -> Value {
    json!({
        "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 1000}},
        "end_ms": unix_ms() + ahead_ms
    })
}

fn reserve(controller: &Controller<'_>, principal: &Principal, request: &Value) -> (u16, Value) {
    controller.ask(principal, "POST", "/reservations", request)
}

fn number_of(granted: &Value) -> u64 {
    granted["reservations"][0]["id"].as_u64().unwrap()
}

#[test]
fn a_key_has_its_share_of_reservations_and_holds() {
    let world = World::new();
    let controller = Controller::new(&world);
    let attacker = controller.principal(&["reserver"], "");
    let honest = controller.principal(&["reserver"], "");
    let mut daily = request(HOUR_MS);
    daily["recurrence"] = json!({"rule": format!("FREQ=DAILY;COUNT={EACH_DAY_OF_A_YEAR}")});
    daily["hold"] = json!(true);
    assert_eq!(reserve(&controller, &attacker, &daily).0, 201);
    let (status, problem) = reserve(&controller, &attacker, &daily);
    assert!(
        status == 403 && problem["detail"].to_string().contains("holds"),
        "{problem}"
    );
    daily["hold"] = json!(false);
    let mut granted = EACH_DAY_OF_A_YEAR;
    let (status, problem) = loop {
        match reserve(&controller, &attacker, &daily) {
            (201, _) => granted += EACH_DAY_OF_A_YEAR,
            refused => break refused,
        }
        assert!(granted <= 2000, "{granted} reservations of one key");
    };
    assert!(
        status == 403 && problem["detail"].to_string().contains("reservations"),
        "{problem}"
    );
    // Nobody reserves beyond the horizon, neither at once nor by recurrence.
    for far in [400 * 24 * HOUR_MS + HOUR_MS, 7900 * 365 * 24 * HOUR_MS] {
        let (status, problem) = reserve(&controller, &honest, &request(far));
        assert_eq!(status, 403, "{problem}");
    }
    assert_eq!(reserve(&controller, &honest, &request(HOUR_MS)).0, 201);
}

#[test]
fn recurrences_of_a_key_do_not_delay_others() {
    let world = World::new();
    let controller = Controller::new(&world);
    // Far more than a key's share may be refused before planning; this key may have everything.
    let role = json!({"rights": [
        {"resource": "reservations", "permission": "create", "constraint": "any",
            "limits": {"reservations": 1_000_000, "holds": 1_000_000}},
        {"resource": "reservations", "permission": "read", "constraint": "own"}]});
    let operator = controller.principal(&["operator"], "");
    let (status, answer) = controller.ask(&operator, "PUT", "/roles/flood", &role);
    assert_eq!(status, 201, "{answer}");
    let attacker = Arc::new(controller.principal(&["flood"], ""));
    let honest = controller.principal(&["reserver"], "");
    let mut daily = request(HOUR_MS);
    daily["recurrence"] = json!({"rule": format!("FREQ=DAILY;COUNT={EACH_DAY_OF_A_YEAR}")});
    world.attackers.block_on(async {
        // Aborted with the test, even if requests still wait.
        let mut flood = JoinSet::new();
        for _ in 0..FLOOD {
            let (attacker, daily) = (Arc::clone(&attacker), daily.clone());
            flood.spawn(async move { attacker.ask("POST", "/reservations", &daily).await });
        }
        // One of them is answered: the others wait by now.
        let (status, answer) = flood.join_next().await.unwrap().unwrap();
        assert_eq!(status, 201, "{answer}");
        for _ in 0..3 {
            let wish = request(HOUR_MS);
            let answered = timeout(HONEST, honest.ask("POST", "/reservations", &wish)).await;
            let (status, answer) = answered.expect("an honest request was not answered in time");
            assert_eq!(status, 201, "{answer}");
        }
        // Earlier requests are not all answered first.
        let mut answered = 1;
        while flood.try_join_next().is_some() {
            answered += 1;
        }
        assert!(answered < FLOOD, "the honest requests were answered last");
    });
}

#[test]
fn only_authorised_keys_settle_a_hold() {
    let world = World::new();
    let controller = Controller::new(&world);
    // It may see everything and reserve, but not decide for others.
    let attacker = controller.principal(&["reserver", "reader"], "");
    let honest = controller.principal(&["reserver"], "");
    let operator = controller.principal(&["operator"], "");
    let mut held = request(HOUR_MS);
    held["hold"] = json!(true);
    let hold = || {
        let (status, granted) = reserve(&controller, &honest, &held);
        assert_eq!(status, 201, "{granted}");
        number_of(&granted)
    };
    let settle = |principal: &Principal, id: u64, word: &str| {
        controller
            .ask(
                principal,
                "POST",
                &format!("/reservations/{id}/{word}"),
                &Value::Null,
            )
            .0
    };
    let id = hold();
    for word in ["commit", "abort"] {
        assert_eq!(settle(&attacker, id, word), 403, "{word}");
    }
    assert_eq!(settle(&honest, id, "commit"), 200);
    assert_eq!(settle(&operator, hold(), "abort"), 200);
}
