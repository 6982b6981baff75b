//! The attacker, a process of its own in its node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use longhaul_hostile::client::{self, AttackTarget, RawStream};
use longhaul_hostile::{Crowd, CrowdPlan, Flood, SilentNames, StrangerBehaviour, frames, opens};
use longhaul_proto::{Endpoint, Host, PublicKey, SigningKey};
use longhaul_session::Identity;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Attack;

/// Line that the attacker prints once the attack is at its height.
pub const READY: &str = "attacking";
/// Maximum time until the attack is at its height.
const READY_WITHIN: Duration = Duration::from_secs(40);
/// Port of a name server.
const NAMES: u16 = 53;
/// Name of the file that readers hold.
pub const HELD_FILE: &str = "held";

/// Attacks until it is ended.
#[derive(clap::Args)]
pub struct Attacker {
    /// The attack.
    #[arg(long, value_enum)]
    attack: Attack,
    /// Address to attack.
    #[arg(long)]
    target: SocketAddr,
    /// The target's key.
    #[arg(long)]
    key: PublicKey,
    /// An honest peer's key, which is listed.
    #[arg(long)]
    listed: PublicKey,
    /// The folder with the attacker's key, which is listed too.
    #[arg(long)]
    home: PathBuf,
    /// This node's address.
    #[arg(long)]
    own: Ipv4Addr,
    /// The first of its other addresses; all that begin with the same two bytes are its own.
    #[arg(long)]
    others: Ipv4Addr,
    /// Seconds after which the attack ends by itself.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
}

/// Attack that continues until it is dropped.
enum Under {
    Crowd(#[allow(dead_code)] Crowd),
    Flood(
        #[allow(dead_code)] Flood,
        #[allow(dead_code)] Option<SilentNames>,
    ),
    Streams(#[allow(dead_code)] Vec<RawStream>),
    Pushes(#[allow(dead_code)] JoinSet<()>),
}

impl Attacker {
    /// Attacks, and prints a line once the attack is at its height.
    ///
    /// # Errors
    /// The attack cannot be begun.
    pub fn run(&self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            let _under_way = self.begin().await?;
            println!("{READY}");
            sleep(Duration::from_secs(self.seconds)).await;
            Ok(())
        })
    }

    async fn begin(&self) -> Result<Under> {
        Ok(match self.attack {
            Attack::IdleAtServe | Attack::IdleAtDepot => {
                self.crowd(1400, 4, 1500, StrangerBehaviour::Idle).await
            }
            Attack::HalfOpensAtServe => {
                self.crowd(1400, 4, 1500, StrangerBehaviour::HalfOpen).await
            }
            Attack::IdleFromManyAtDepot => {
                self.crowd(2000, 500, 1500, StrangerBehaviour::Idle).await
            }
            Attack::GarbageAtServe | Attack::GarbageAtDepot => {
                self.crowd(400, 4, 2000, StrangerBehaviour::Garbage).await
            }
            Attack::RefusedOpens => self.refused_opens().await?,
            Attack::ForgedOpens => self.forged_opens().await?,
            Attack::SlowNames => self.slow_names().await?,
            Attack::HeldCopies => {
                let hello =
                    |_| frames::pull_hello(frames::fresh_token(), false, &[HELD_FILE.as_bytes()]);
                self.held(64, hello).await?
            }
            Attack::HeldStreams => {
                let tokens: Vec<u64> = (0..9).map(|_| frames::fresh_token()).collect();
                let hello = move |n: usize| {
                    frames::pull_hello(tokens[n % 9], false, &[HELD_FILE.as_bytes()])
                };
                self.held(520, hello).await?
            }
            Attack::OpenFiles => self.open_files().await?,
            Attack::Failures => {
                self.pushes(3, || Box::new(client::failures(1 << 19)))
                    .await?
            }
            Attack::Holes => self.pushes(3, || Box::new(client::holes(1 << 19))).await?,
            Attack::Scattered => {
                self.pushes(12, || Box::new(client::scattered(64, 60_000)))
                    .await?
            }
        })
    }

    /// Returns this many of the other addresses.
    fn sources(&self, count: u32) -> Vec<IpAddr> {
        let first = u32::from(self.others);
        (0..count)
            .map(|n| IpAddr::V4(Ipv4Addr::from(first + 1 + n)))
            .collect()
    }

    fn identity(&self) -> Result<Identity> {
        Ok(Identity::load(&self.home.join("identity"))?)
    }

    async fn crowd(
        &self,
        connections: usize,
        sources: u32,
        per_second: u32,
        manner: StrangerBehaviour,
    ) -> Under {
        let crowd = Crowd::start(&CrowdPlan {
            target: self.target,
            sources: self.sources(sources),
            connections,
            per_second,
            manner,
        });
        crowd
            .has_made(connections as u64, Duration::from_secs(3))
            .await;
        Under::Crowd(crowd)
    }

    /// Sends more OPENs than the ids that a depot of the first version remembered, and then a few
    /// per second.
    async fn refused_opens(&self) -> Result<Under> {
        let (identity, target) = (Arc::new(self.identity()?), self.target);
        // The documentation network (RFC 5737): no policy here allows it.
        let elsewhere: Endpoint = SocketAddr::from(([192, 0, 2, 1], 7511)).into();
        let make = move || {
            let open = opens::to_depot(identity.signing_key(), target, elsewhere.clone());
            open.and_then(|open| opens::bytes(&open)).ok()
        };
        let left = AtomicU64::new(66_000);
        let again = make.clone();
        let mut all = Flood::start(target, &self.sources(8), 96, 50_000, move || {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .ok()?;
            again()
        });
        all.finish(READY_WITHIN).await;
        eprintln!("{:?}", all.tally());
        Ok(Under::Flood(
            Flood::start(target, &self.sources(8), 16, 200, make),
            None,
        ))
    }

    async fn forged_opens(&self) -> Result<Under> {
        let (listed, target) = (self.listed, self.target);
        let own = SigningKey::generate()?;
        let destination: Endpoint = SocketAddr::new(IpAddr::V4(self.own), 7511).into();
        let flood = Flood::start(target, &self.sources(4), 96, 2000, move || {
            let open = opens::forged_by(&own, listed, target, destination.clone());
            open.and_then(|open| opens::bytes(&open)).ok()
        });
        sent(&flood, 500).await;
        Ok(Under::Flood(flood, None))
    }

    async fn slow_names(&self) -> Result<Under> {
        let silent = SilentNames::bind(SocketAddr::new(IpAddr::V4(self.own), NAMES))
            .await
            .context("cannot listen as a name server")?;
        let (identity, target) = (self.identity()?, self.target);
        let number = AtomicU64::new(0);
        let flood = Flood::start(target, &self.sources(4), 96, 400, move || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let host = Host::parse(&format!("slow{number}.example.net")).ok()?;
            let open = opens::to_depot(identity.signing_key(), target, Endpoint::new(host, 7511));
            open.and_then(|open| opens::bytes(&open)).ok()
        });
        sent(&flood, 96).await;
        sleep(Duration::from_millis(500)).await;
        Ok(Under::Flood(flood, Some(silent)))
    }

    fn target(&self) -> Result<AttackTarget> {
        Ok(AttackTarget::load(self.target, self.key, &self.home)?)
    }

    /// Opens sessions that send what `hello` returns, and receive only the first answer.
    async fn held(&self, count: usize, hello: impl Fn(usize) -> Vec<u8>) -> Result<Under> {
        let hellos = (0..count).map(hello);
        let streams =
            client::open_held_sessions(&self.target()?, hellos, Duration::from_secs(5)).await;
        if streams.is_empty() {
            bail!("no session was to be had");
        }
        Ok(Under::Streams(streams))
    }

    async fn open_files(&self) -> Result<Under> {
        let streams =
            client::open_held_files(&self.target()?, 7, 4000, Duration::from_secs(8)).await;
        Ok(Under::Streams(streams))
    }

    /// Opens four streams that repeatedly push what `pieces` returns, each time as a new copy. They
    /// are at their height after the given seconds.
    async fn pushes(
        &self,
        height_s: u64,
        pieces: fn() -> Box<dyn Iterator<Item = Vec<u8>> + Send>,
    ) -> Result<Under> {
        let target = self.target()?;
        let begun = Arc::new(AtomicU64::new(0));
        let mut set = JoinSet::new();
        for stream in 0..4 {
            let (target, begun) = (target.clone(), Arc::clone(&begun));
            set.spawn(async move {
                loop {
                    let Ok(mut session) = target.connect().await else {
                        sleep(Duration::from_millis(100)).await;
                        continue;
                    };
                    begun.fetch_add(1, Ordering::Relaxed);
                    let hello = frames::push_hello(format!("p{stream}").as_bytes(), &[b"s"]);
                    let said = std::iter::once(hello).chain(pieces());
                    session
                        .exchange(said, Duration::from_secs(60), |_| false)
                        .await;
                }
            });
        }
        sleep(Duration::from_secs(height_s)).await;
        if begun.load(Ordering::Relaxed) == 0 {
            return Err(anyhow!("no session was to be had"));
        }
        Ok(Under::Pushes(set))
    }
}

async fn sent(flood: &Flood, opens: u64) {
    let begun = async {
        while flood.sent() < opens {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(3), begun).await;
}
