//! Session set-ups per second over loopback (TCP, OPEN, TLS handshake), with both ends in one
//! process.
//!
//! ```sh
//! cargo bench -p longhaul-session --bench setups -- [SESSIONS]
//! ```

#![allow(clippy::expect_used, clippy::unwrap_used)] // a benchmark that cannot run panics

use std::{sync::Arc, time::Instant};

use longhaul_session::{
    ConnectOptions, Identity, ListenOptions, Listener, Route, ServerTrust, Service, connect,
};

/// Number of concurrent initiators.
const AT_ONCE: usize = 8;

fn main() {
    let sessions: usize = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(4000);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (server, client) = (
            Arc::new(Identity::generate().unwrap()),
            Arc::new(Identity::generate().unwrap()),
        );
        let trust = ServerTrust::Pinned(server.public());
        let address = "127.0.0.1:0".parse().unwrap();
        let listen = ListenOptions::new(address, server, Arc::new(|_| true), vec![Service::COPY]);
        let listener = Listener::bind(listen).await.unwrap();
        let to = listener.local_addr().into();
        let options = Arc::new(ConnectOptions::new(
            Service::COPY,
            Route::direct(),
            to,
            client,
            trust,
        ));
        tokio::spawn(async move {
            while let Ok(session) = listener.accept().await {
                drop(session);
            }
        });
        let start = Instant::now();
        let each = sessions / AT_ONCE;
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let options = Arc::clone(&options);
                tokio::spawn(async move {
                    for _ in 0..each {
                        drop(connect(&options).await.expect("a session"));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let count = (each * AT_ONCE) as f64;
        println!(
            "{:.0} sessions a second",
            count / start.elapsed().as_secs_f64()
        );
    });
}
