//! Tests of pScheduler's measurements, in and out.

use serde_json::json;

use crate::bench::Bench;

/// Returns a run as pScheduler's HTTP archiver sends it.
fn run(rate: f64) -> String {
    json!({
        "id": "00000000-0000-0000-0000-000000000001",
        "schedule": {"start": "2026-11-20T10:00:00Z", "duration": "PT10S"},
        "test": {
            "type": "throughput",
            "spec": {
                "schema": 1,
                "source": "dtn-a.example",
                "dest": "store.example",
                "duration": "PT10S"
            }
        },
        "tool": {"name": "iperf3", "version": "1.0"},
        "participants": [
            {"host": "dtn-a.example", "result": null},
            {"host": "store.example", "result": null}
        ],
        "result": {
            "schema": 1,
            "succeeded": true,
            "intervals": [],
            "summary": {
                "summary": {
                    "start": 0,
                    "end": 10,
                    "throughput-bits": rate,
                    "throughput-bytes": rate / 8.0 * 10.0
                },
                "streams": []
            }
        }
    })
    .to_string()
}

#[tokio::test]
async fn pscheduler_runs_survive_a_round_trip() {
    let bench = Bench::new().await;
    let map = json!({
        "sites": [{"name": "east"}],
        "hosts": [{"name": "store", "site": "east", "addresses": ["store.example"]}]
    });
    assert_eq!(
        bench.local("PUT", "/api/v1/map", &map.to_string()).await.0,
        200
    );
    let (status, answer) = bench.local("POST", "/api/v1/pscheduler", &run(1e9)).await;
    assert_eq!(
        (status, answer["kept"].as_u64()),
        (200, Some(1)),
        "{answer}"
    );
    // PUT does the same, and the same run counts once.
    let (_, answer) = bench.local("PUT", "/api/v1/pscheduler", &run(1e9)).await;
    assert_eq!(
        (answer["kept"].as_u64(), answer["duplicates"].as_u64()),
        (Some(0), Some(1))
    );
    // Its end is the host of the map with that name.
    let (_, page) = bench.local("GET", "/api/v1/measurements", "").await;
    let kept = &page["items"][0];
    assert_eq!(
        (&kept["from"], &kept["to"], &kept["value"]),
        (&json!("dtn-a.example"), &json!("store"), &json!(1e9))
    );
    assert_eq!(kept["source"], "archive");
    let (_, reported) = bench.local("GET", "/api/v1/pscheduler", "").await;
    let reported = &reported["items"][0];
    assert_eq!(
        (&reported["test"]["type"], &reported["test"]["spec"]["dest"]),
        (&json!("throughput"), &json!("store.example"))
    );
    assert_eq!(
        reported["result"]["summary"]["summary"]["throughput-bits"],
        1e9
    );
    // The reported run is accepted again, as a duplicate.
    let (status, answer) = bench
        .local("POST", "/api/v1/pscheduler", &reported.to_string())
        .await;
    assert_eq!(
        (status, answer["duplicates"].as_u64()),
        (200, Some(1)),
        "{answer}"
    );
    assert_eq!(bench.local("POST", "/api/v1/pscheduler", "{}").await.0, 400);
    let client = bench.principal("client", "c").await;
    assert_eq!(
        bench
            .ask(&client, "POST", "/api/v1/pscheduler", &run(2e9))
            .await
            .0,
        403
    );
}
