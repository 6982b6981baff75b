//! Tests with the RFC's example, with another implementation, and with modified requests.

use data_encoding::BASE64;
use http::Request;
use http::request::Parts;
use httpsig::prelude::message_component::HttpMessageComponentId;
use httpsig::prelude::{HttpSignatureBase, HttpSignatureHeaders, PublicKey as OtherKey};
use longhaul_proto::{PublicKey, SigningKey};
use proptest::prelude::*;
use sfv::{InnerList, ListEntry, Parser};

use super::digest::CONTENT_DIGEST;
use super::message::Scheme;
use super::presented::parameters;
use super::sign::random_nonce;
use super::*;

const NOW: u64 = 1_800_000_000;

fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn signed(parts: &mut Parts, body: &[u8]) -> SigningKey {
    let key = SigningKey::generate().unwrap();
    let nonce = random_nonce().unwrap();
    sign(parts, Scheme::Https, body, &key, Purpose::Api, NOW, &nonce).unwrap();
    key
}

fn verified(parts: &Parts) -> Result<Presented, SignatureError> {
    let message = Message::from_parts(parts, Scheme::Https)?;
    let presented = Presented::read(&message, Purpose::Api)?;
    presented.verify(&message)?;
    Ok(presented)
}

/// RFC 9421, appendix B.2.6. Ed25519 is deterministic, so signing and verifying can both be
/// compared.
#[test]
fn rfc_example_is_signed_and_verified() {
    let public = BASE64
        .decode(b"JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=")
        .unwrap();
    let public = PublicKey::from_bytes(public.try_into().unwrap());
    let private = BASE64
        .decode(b"MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF")
        .unwrap();
    let private = SigningKey::from_pkcs8(&private).unwrap();
    assert_eq!(private.public(), public);
    let parts = request(
        "POST",
        "/foo?param=Value&Pet=dog",
        &[
            ("host", "example.com"),
            ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
            ("content-type", "application/json"),
            ("content-length", "18"),
        ],
    );
    let input = r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#;
    let list: Vec<ListEntry> = Parser::new(input).parse().unwrap();
    let ListEntry::InnerList(list) = list.into_iter().next().unwrap() else {
        panic!("a list")
    };
    assert_eq!(parameters(&list).unwrap(), input);
    let components: Vec<String> = InnerList::clone(&list)
        .items
        .iter()
        .map(|item| item.bare_item.as_string().unwrap().as_str().to_owned())
        .collect();
    let message = Message::from_parts(&parts, Scheme::Https).unwrap();
    let base = message.signature_base(&components, input).unwrap();
    let signature =
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==";
    assert_eq!(
        BASE64.encode(&private.sign(base.as_bytes()).unwrap()),
        signature
    );
    let signature = BASE64
        .decode(signature.as_bytes())
        .unwrap()
        .try_into()
        .unwrap();
    assert!(public.verify(base.as_bytes(), &signature));
}

/// RFC 9421, sections 2.2.1 to 2.2.7, and 2.1.
#[test]
fn components_are_derived_as_in_the_rfc() {
    let parts = request(
        "POST",
        "/path?param=value&foo=bar",
        &[
            ("host", "WWW.Example.com:443"),
            ("x-list", " a "),
            ("x-list", "b\t"),
        ],
    );
    let message = Message::from_parts(&parts, Scheme::Https).unwrap();
    let reported = |name: &str| {
        let base = message.signature_base(&[name.to_owned()], "p");
        base.map(|base| base.lines().next().unwrap().to_owned())
    };
    for (name, value) in [
        ("@method", "POST"),
        ("@authority", "www.example.com"),
        ("@scheme", "https"),
        (
            "@target-uri",
            "https://www.example.com/path?param=value&foo=bar",
        ),
        ("@request-target", "/path?param=value&foo=bar"),
        ("@path", "/path"),
        ("@query", "?param=value&foo=bar"),
        ("x-list", "a, b"),
    ] {
        assert_eq!(reported(name), Ok(format!("\"{name}\": {value}")));
    }
    for name in ["@status", "@query-param", "X-List", "x list", ""] {
        assert_eq!(
            reported(name),
            Err(SignatureError::Component(name.into())),
            "{name}"
        );
    }
    assert_eq!(
        reported("x-none"),
        Err(SignatureError::Absent("x-none".into()))
    );
    let bare = request("GET", "https://h:1", &[("host", "h:1")]);
    let message = Message::from_parts(&bare, Scheme::Https).unwrap();
    let all = ["@path".to_owned(), "@query".to_owned()];
    assert_eq!(
        message.signature_base(&all, "p").unwrap(),
        "\"@path\": /\n\"@query\": ?\n\"@signature-params\": p"
    );
    for hosts in [&[][..], &[("host", "")], &[("host", "a"), ("host", "a")]] {
        assert!(Message::from_parts(&request("GET", "/", hosts), Scheme::Https).is_err());
    }
    let two = request("GET", "https://a/", &[("host", "b")]);
    assert!(Message::from_parts(&two, Scheme::Https).is_err());
}

#[test]
fn any_modification_invalidates_the_signature() {
    let body = br#"{"hello": "world"}"#;
    let whole = || {
        request(
            "POST",
            "/api/v1/jobs?a=1",
            &[("host", "dtn:7512"), ("idempotency-key", "k")],
        )
    };
    let mut parts = whole();
    let key = signed(&mut parts, body);
    let presented = verified(&parts).unwrap();
    assert_eq!((presented.key, presented.created), (key.public(), NOW));
    assert!(presented.covers("content-digest") && presented.covers("idempotency-key"));
    assert_eq!(
        parts.headers[CONTENT_DIGEST],
        "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
    );
    assert_eq!(digest::check(&parts.headers, body), Ok(()));
    assert_eq!(
        digest::check(&parts.headers, b"other"),
        Err(SignatureError::Digest)
    );
    let wrong = |change: &dyn Fn(&mut Parts)| {
        let mut changed = parts.clone();
        change(&mut changed);
        verified(&changed).unwrap_err()
    };
    let is_wrong = |error: SignatureError| matches!(error, SignatureError::Wrong(_));
    assert!(is_wrong(wrong(
        &|parts| parts.method = "PUT".parse().unwrap()
    )));
    assert!(is_wrong(wrong(
        &|parts| parts.uri = "/api/v1/jobs?a=2".parse().unwrap()
    )));
    assert!(is_wrong(wrong(
        &|parts| parts.uri = "/api/v1/job?a=1".parse().unwrap()
    )));
    for (name, value) in [
        ("host", "dtn:7513"),
        ("idempotency-key", "l"),
        ("content-digest", "sha-256=:AAAA:"),
    ] {
        assert!(is_wrong(wrong(&|parts| {
            parts.headers.insert(name, value.parse().unwrap());
        })));
    }
    let gone = wrong(&|parts| _ = parts.headers.remove("idempotency-key"));
    assert_eq!(gone, SignatureError::Absent("idempotency-key".into()));
    let unsigned = wrong(&|parts| _ = parts.headers.remove("signature-input"));
    assert_eq!(unsigned, SignatureError::Missing("longhaul-api"));
    // Signed for another purpose.
    let mut notice = whole();
    sign(
        &mut notice,
        Scheme::Https,
        body,
        &key,
        Purpose::Notice,
        NOW,
        "n",
    )
    .unwrap();
    assert_eq!(
        verified(&notice),
        Err(SignatureError::Missing("longhaul-api"))
    );
}

/// Another implementation verifies what is signed here.
#[test]
fn another_implementation_verifies_signatures() {
    let mut parts = request(
        "POST",
        "/api/v1/jobs?state=failed",
        &[("host", "dtn:7512"), ("idempotency-key", "k")],
    );
    let key = signed(&mut parts, b"{}");
    let field = |name: &str| parts.headers[name].to_str().unwrap().to_owned();
    let read =
        HttpSignatureHeaders::try_parse(&field("signature"), &field("signature-input")).unwrap();
    let (_, headers) = read.into_iter().next().unwrap();
    let lines: Vec<String> = headers
        .signature_params()
        .covered_components
        .iter()
        .map(|id: &HttpMessageComponentId| {
            let name = id.to_string();
            let value = match name.trim_matches('"') {
                "@method" => "POST".to_owned(),
                "@authority" => "dtn:7512".to_owned(),
                "@path" => "/api/v1/jobs".to_owned(),
                "@query" => "?state=failed".to_owned(),
                field_name => field(field_name),
            };
            format!("{name}: {value}")
        })
        .collect();
    let lines: Vec<_> = lines
        .iter()
        .map(|line| line.as_str().try_into().unwrap())
        .collect();
    let base = HttpSignatureBase::try_new(&lines, headers.signature_params()).unwrap();
    let other = |key: &PublicKey| {
        OtherKey::from_bytes(&httpsig::prelude::AlgorithmName::Ed25519, key.as_bytes()).unwrap()
    };
    base.verify_signature_headers(&other(&key.public()), &headers)
        .unwrap();
    let stranger = SigningKey::generate().unwrap().public();
    assert!(
        base.verify_signature_headers(&other(&stranger), &headers)
            .is_err()
    );
}

#[test]
fn malformed_signatures_are_refused() {
    let good = "a=(\"@method\");created=1;expires=2;nonce=\"n\";keyid=\"KEY\";tag=\"longhaul-api\"";
    let key = SigningKey::generate().unwrap().public().to_string();
    let good = good.replace("KEY", &key);
    let bytes = format!("a=:{}:", BASE64.encode(&[7; 64]));
    let read = |input: &str, signature: &str| {
        let fields = [
            ("host", "h"),
            ("signature-input", input),
            ("signature", signature),
        ];
        let parts = request("GET", "/", &fields);
        let message = Message::from_parts(&parts, Scheme::Https).unwrap();
        Presented::read(&message, Purpose::Api)
    };
    assert!(read(&good, &bytes).is_ok());
    for (from, to) in [
        ("created=1;", ""),
        ("created=1;", "created=-1;"),
        ("expires=2;", "expires=\"2\";"),
        ("nonce=\"n\";", ""),
        ("nonce=\"n\";", "nonce=\"\";"),
        ("lhk1:", ""),
        ("tag=", "alg=\"rsa-pss-sha512\";tag="),
        ("(\"@method\")", "(\"@method\" \"@method\")"),
        ("(\"@method\")", "(\"x\";sf)"),
        ("(\"@method\")", "(1)"),
        ("(", ""),
        ("tag=\"longhaul-api\"", "tag=longhaul-api"),
    ] {
        assert!(
            read(&good.replace(from, to), &bytes).is_err(),
            "{from} {to}"
        );
    }
    let twice = format!("{good}, b{}", &good[1..]);
    assert_eq!(
        read(&twice, &bytes),
        Err(SignatureError::Several("longhaul-api"))
    );
    for signature in ["", "b=:AAAA:", "a=:AAAA:", "a=1", "a"] {
        assert!(read(&good, signature).is_err(), "{signature}");
    }
    assert!(read(&format!("{good};x=\"{}\"", "y".repeat(5000)), &bytes).is_err());
}

proptest! {
    /// No content of a field causes a panic, and unsigned requests are refused.
    #[test]
    fn no_field_causes_a_panic(
        input in "[ -~]{0,80}",
        signature in "[ -~]{0,40}",
        digest in "[ -~]{0,40}",
    ) {
        let fields = [
            ("host", "h"),
            ("signature-input", &input),
            ("signature", &signature),
            ("content-digest", &digest)
        ];
        let parts = request("GET", "/", &fields);
        prop_assert!(verified(&parts).is_err());
        prop_assert!(digest::check(&parts.headers, b"x").is_err());
    }

    #[test]
    fn signed_requests_verify(
        path in "/[a-zA-Z0-9%._~/-]{0,30}",
        query in prop::option::of("[a-z0-9=&%+]{0,20}"),
        host in "[a-zA-Z0-9.-]{1,20}(:[1-9][0-9]{0,3})?",
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let target = query.map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut parts = request("POST", &target, &[("host", &host)]);
        signed(&mut parts, &body);
        let presented = verified(&parts).unwrap();
        prop_assert_eq!(presented.covers("content-digest"), !body.is_empty());
    }
}
