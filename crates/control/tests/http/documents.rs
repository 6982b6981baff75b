//! Tests of reservations requested by signed documents.

use data_encoding::BASE64URL_NOPAD;
use hyper::Request;
use hyper::body::Bytes;
use jsonwebtoken::jwk::{
    AlgorithmParameters, CommonParameters, EllipticCurve, Jwk, OctetKeyPairParameters,
    OctetKeyPairType,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use crate::bench::{Bench, now_ms};
use crate::secured::{now, signed_at};

const HOUR_MS: u64 = 3_600_000;
const PATH: &str = "/api/v1/reservations";

async fn bench() -> Bench {
    let bench = Bench::new().await;
    let both = json!({"capacity": {"rate_bps": 1e10}});
    let map = json!({
        "sites": [{"name": "west"}, {"name": "east"}],
        "links": [{"name": "w-e", "from": "west", "to": "east", "forward": both, "backward": both}]
    });
    assert_eq!(
        bench.local("PUT", "/api/v1/map", &map.to_string()).await.0,
        200
    );
    bench
}

fn claims(bench: &Bench, bps: u64) -> Value {
    let wish = json!({"rate": {"rate_bps": bps}});
    json!({"aud": bench.controller.settings().key.to_string(),
        "iat": now(), "exp": now() + 600, "jti": "a",
        "reservation": {"from": "west", "to": "east", "wish": wish, "end_ms": now_ms() + HOUR_MS}})
}

/// Signs a document with another library.
fn sign(key: &SigningKey, claims: &Value) -> String {
    let jwk = Jwk {
        common: CommonParameters::default(),
        algorithm: AlgorithmParameters::OctetKeyPair(OctetKeyPairParameters {
            key_type: OctetKeyPairType::OctetKeyPair,
            curve: EllipticCurve::Ed25519,
            x: BASE64URL_NOPAD.encode(key.public().as_bytes()),
        }),
    };
    let header = Header {
        jwk: Some(jwk),
        ..Header::new(Algorithm::EdDSA)
    };
    encode(
        &header,
        claims,
        &EncodingKey::from_ed_der(&key.to_pkcs8().unwrap()),
    )
    .unwrap()
}

async fn bring(bench: &Bench, key: &SigningKey, kind: &str, text: &str) -> (u16, Value) {
    let mut request: Request<Bytes> = bench.service.request("POST", PATH, text);
    request
        .headers_mut()
        .insert("content-type", kind.parse().unwrap());
    bench.send(signed_at(key, request, now(), |_| {})).await
}

#[tokio::test]
async fn signer_reserves_once_and_document_is_kept() {
    let bench = bench().await;
    let (ana, ben) = (
        bench.principal("reserver", "ana").await,
        bench.principal("reader", "ben").await,
    );
    let text = sign(&ana, &claims(&bench, 1_000_000_000));
    // The sender of the document may not reserve.
    let (status, answer) = bring(&bench, &ben, "application/jose", &text).await;
    assert_eq!(status, 201, "{answer}");
    let one = &answer["reservations"][0];
    assert_eq!((&one["id"], &one["owner_name"]), (&json!(1), &json!("ana")));
    assert_eq!(one["owner"], ana.public().to_string());
    // Sent again by another caller and in the other form, it is the same request.
    let parts: Vec<&str> = text.split('.').collect();
    let flattened =
        json!({"protected": parts[0], "payload": parts[1], "signature": parts[2]}).to_string();
    for (kind, text) in [
        ("application/jose; charset=utf-8", &text),
        ("application/jose+json", &flattened),
    ] {
        assert_eq!(bring(&bench, &ana, kind, text).await, (201, answer.clone()));
    }
    // The same ID with other content is refused.
    let other = sign(&ana, &claims(&bench, 2_000_000_000));
    assert_eq!(bring(&bench, &ana, "application/jose", &other).await.0, 422);
    let (_, list) = bench.ask(&ana, "GET", PATH, "").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    // After a restart, callers that may see the reservation also get the document.
    let bench = bench.again().await;
    let path = format!("{PATH}/1/document");
    assert_eq!(bench.ask(&ana, "GET", &path, "").await, (200, json!(text)));
    assert_eq!(bench.ask(&ben, "GET", &path, "").await, (200, json!(text)));
    let plain = json!({
        "from": "west",
        "to": "east",
        "wish": {"rate": {"rate_bps": 1}},
        "end_ms": now_ms() + HOUR_MS
    });
    assert_eq!(
        bench.ask(&ana, "POST", PATH, &plain.to_string()).await.0,
        201
    );
    assert_eq!(
        bench
            .ask(&ana, "GET", &format!("{PATH}/2/document"), "")
            .await
            .0,
        404
    );
    assert_eq!(
        bench
            .ask(&ana, "GET", &format!("{PATH}/3/document"), "")
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn invalid_documents_reserve_nothing() {
    let bench = bench().await;
    let (ana, ben) = (
        bench.principal("reserver", "ana").await,
        bench.principal("reader", "ben").await,
    );
    let good = claims(&bench, 1_000_000_000);
    let but = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        sign(&ana, &claims)
    };
    let stranger = SigningKey::generate().unwrap();
    let altered = {
        let parts: Vec<String> = sign(&ana, &good).split('.').map(str::to_owned).collect();
        let mut claims = good.clone();
        claims["reservation"]["wish"] = json!({"rate": {"rate_bps": 2}});
        let payload = BASE64URL_NOPAD.encode(claims.to_string().as_bytes());
        format!("{}.{payload}.{}", parts[0], parts[2])
    };
    for (text, status, says) in [
        (altered, 400, "the document's signature is invalid"),
        (but("exp", json!(now() - 1)), 400, "the document expired"),
        (
            but("aud", json!("lhk1:another")),
            400,
            "not addressed to this controller",
        ),
        (
            but("exp", json!(now() + 100_000)),
            400,
            "the document is valid for",
        ),
        (sign(&ben, &good), 403, "may create reservations"),
        (sign(&stranger, &good), 403, "may create reservations"),
        ("x".to_owned(), 400, "not a JWS"),
    ] {
        let (found, problem) = bring(&bench, &ana, "application/jose", &text).await;
        assert_eq!(found, status, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{problem}"
        );
    }
    let (_, list) = bench.ask(&ana, "GET", PATH, "").await;
    assert_eq!(list["items"], json!([]));
}
