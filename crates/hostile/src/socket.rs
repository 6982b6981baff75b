//! Connections to and from given addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Connects to `target`, from `source` if one is given.
///
/// # Errors
/// The address cannot be bound, or the connection fails.
pub(crate) async fn connect(target: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if target.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    socket.connect(target).await
}

/// Accepts connections at `address` until the returned value is dropped. Each one is handled by
/// `take`, in parallel with the others.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn listen<F>(
    address: SocketAddr,
    take: impl Fn(TcpStream) -> F + Send + 'static,
) -> io::Result<(SocketAddr, JoinSet<()>)>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take(stream));
        }
    });
    Ok((address, task))
}
