//! Options of `longhaul serve` for several servers that act as one.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use longhaul_session::Identity;
use longhaul_transfer::StripeMembers;

/// Options of a member of a striped server.
#[derive(Args)]
pub struct StripeOptions {
    /// Act as one server with those of --stripe-member, which have the same key, root and grants:
    /// the streams of a copy then spread over all of them, and one may fail. ADDRESS is where the
    /// others reach this one.
    #[arg(long, value_name = "ADDRESS", requires = "stripe_member")]
    stripe: Option<SocketAddr>,
    /// The address of another member of the striped server. Repeatable. This one's own address may
    /// be among them.
    #[arg(long, value_name = "ADDRESS", requires = "stripe")]
    stripe_member: Vec<SocketAddr>,
}

impl StripeOptions {
    /// Returns the members, if this is one of them.
    ///
    /// # Errors
    /// The key of the members cannot sign.
    pub fn members(
        &self,
        identity: &Arc<Identity>,
        congestion: Option<&str>,
    ) -> Result<Option<Arc<StripeMembers>>, longhaul_session::Error> {
        let Some(own) = self.stripe else {
            return Ok(None);
        };
        let members = StripeMembers::new(
            own,
            &self.stripe_member,
            identity.clone(),
            congestion.map(str::to_owned),
        )?;
        Ok(Some(Arc::new(members)))
    }

    /// Returns the maximum number of descriptors of sessions with other members, for this number of
    /// streams. A relayed stream has one in addition to its own.
    pub fn descriptors(&self, streams: usize) -> usize {
        self.stripe.map_or(0, |_| streams)
    }
}
