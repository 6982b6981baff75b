use http_body_util::Full;
use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;

use super::lingering::{LingeringStream, MAX_DISCARDED_BYTES};
use super::*;

const LIMITS: HttpLimits = HttpLimits {
    gate: GateLimits {
        newcomers: 4,
        verified: 0,
        reserves_for_keys: false,
        header: Duration::from_secs(5),
        least_header: Duration::from_secs(2),
    },
    max_head_bytes: 8 << 10,
    single_request: false,
};

/// Handler that reads no body.
struct RefusingHandler;

impl RequestHandler for RefusingHandler {
    type Body = Full<Bytes>;

    async fn answer(
        &self,
        _request: Request<Incoming>,
        _peer: PeerIdentity,
        _permit: &SharedPermit,
    ) -> Result<Response<Self::Body>, Infallible> {
        let mut response = Response::new(Full::new(Bytes::from_static(b"too large\n")));
        *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        Ok(response)
    }
}

#[tokio::test]
async fn answer_survives_a_body_that_is_not_read() {
    // More than the buffers of both sockets hold, so the client still sends when it is answered.
    let body = vec![0; 12 << 20];
    for single_request in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        let limits = HttpLimits {
            single_request,
            ..LIMITS
        };
        tokio::spawn(serve(listener, RefusingHandler, limits, stopped));
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&body).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("\r\n\r\ntoo large\n"),
            "{answer}"
        );
    }
}

/// Returns a stream whose peer has `LIMITS.gate.header` to end, and the peer.
fn lingering(stop: &watch::Sender<bool>) -> (LingeringStream<DuplexStream>, DuplexStream) {
    let (near, far) = duplex(1 << 10);
    let stream = LingeringStream::new(near, LIMITS.gate.header, stop.subscribe());
    (stream, far)
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_waited_for_in_limited_time() {
    let stop = watch::Sender::new(false);
    let (mut stream, mut far) = lingering(&stop);
    let began = Instant::now();
    stream.shutdown().await.unwrap();
    assert_eq!(began.elapsed(), LIMITS.gate.header);
    // Its own direction ended at once.
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);

    stop.send_replace(true);
    let (mut stream, _far) = lingering(&stop);
    let began = Instant::now();
    stream.shutdown().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "the service stops");
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_wait_for_the_peer() {
    let stop = watch::Sender::new(false);
    let (mut stream, _far) = lingering(&stop);
    let began = Instant::now();
    let mut closing = std::pin::pin!(stream.shutdown());
    assert!(timeout(Duration::ZERO, &mut closing).await.is_err());
    stop.send_replace(true);
    closing.await.unwrap();
    assert!(began.elapsed() < LIMITS.gate.header);
}

#[tokio::test(start_paused = true)]
async fn peer_that_sends_on_is_cut_off() {
    let stop = watch::Sender::new(false);
    let (mut stream, mut far) = lingering(&stop);
    let sending = async {
        let chunk = [0; 1 << 10];
        let mut sent = 0;
        while far.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        sent
    };
    let closing = async {
        let began = Instant::now();
        stream.shutdown().await.unwrap();
        drop(stream);
        began.elapsed()
    };
    let (sent, elapsed) = tokio::join!(sending, closing);
    assert!(elapsed < LIMITS.gate.header, "{elapsed:?}");
    let buffered = 2 << 10;
    assert!(
        (MAX_DISCARDED_BYTES..=MAX_DISCARDED_BYTES + buffered).contains(&sent),
        "{sent}"
    );
}

#[tokio::test(start_paused = true)]
async fn peer_that_has_ended_is_not_waited_for() {
    let stop = watch::Sender::new(false);
    let (mut stream, mut far) = lingering(&stop);
    far.write_all(b"rest of a body").await.unwrap();
    drop(far);
    let began = Instant::now();
    stream.shutdown().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}
