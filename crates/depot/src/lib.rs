//! The session-layer relay: accept, authorise, dial on, splice, drain.
#![allow(dead_code)]

mod conn;
mod metrics;
mod relay;

#[doc(hidden)]
pub async fn raw_relay(listener: tokio::net::TcpListener, to: std::net::SocketAddr, size: usize) {
    let metrics = metrics::Metrics::new();
    let pipes = relay::pipe::PipePool::new(relay::pipe::PipeBounds { size, total: 64 << 20, spare: 64 });
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let up = conn::Conn::new(stream.into_std().unwrap().into()).unwrap();
        let context = relay::RelayContext {
            pipes: pipes.clone(),
            silence: relay::Silence { open: std::time::Duration::from_secs(60), half_closed: std::time::Duration::from_secs(60) },
            traffic: metrics.traffic.clone(),
            forward_limit: None,
            backward_limit: None,
        };
        tokio::spawn(async move {
            let down = conn::Conn::connect(to, |_| Ok(())).await.unwrap();
            let report = relay::Relay::new(up, down, false, context).await;
            eprintln!("{report:?}");
        });
    }
}
