//! Remote processes that a finished copy leaves to be ended.

use std::sync::Arc;

use longhaul_remote::{FarSide, LoginConnector};

/// Remote processes of a finished copy, to be ended in good order.
pub enum FarSides {
    /// There are none.
    None,
    /// The far side of a copy from or to this machine.
    One(Arc<LoginConnector>),
    /// Both far sides of a copy between two hosts.
    Two(Box<[FarSide; 2]>),
}

impl FarSides {
    /// Ends the remote processes.
    pub async fn end(self) {
        match self {
            Self::None => {}
            Self::One(connector) => {
                if let Some(connector) = Arc::into_inner(connector) {
                    connector.end().await;
                }
            }
            Self::Two(two) => {
                let [source, destination] = *two;
                tokio::join!(source.end(), destination.end());
            }
        }
    }
}
