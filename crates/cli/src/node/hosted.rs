//! The agent of a node, in a runtime of its own: its child processes end with the thread that
//! started them, so that thread must last as long as the agent.

use anyhow::{Context, Result};
use tokio::sync::oneshot;

use crate::agent::{AgentCommand, PreparedAgent};
use crate::agent_client::run_in_runtime;
use crate::service::{StartedService, StopReceiver};

/// Starts the agent in a thread.
pub async fn start_agent(agent: AgentCommand, stop: StopReceiver) -> Result<StartedService> {
    let prepared = PreparedAgent::new()?;
    let (send_started, started) = oneshot::channel();
    let (send_ended, ended) = oneshot::channel();
    let run = move || async move {
        let StartedService {
            announcement,
            metrics,
            readiness,
            work,
        } = match agent.start(&prepared, stop).await {
            Ok(service) => service,
            Err(error) => {
                let _ = send_started.send(Err(error));
                return Ok(());
            }
        };
        let _ = send_started.send(Ok((announcement, metrics, readiness)));
        work.await
    };
    std::thread::Builder::new()
        .name("agent".to_owned())
        .spawn(move || drop(send_ended.send(run_in_runtime(run()))))
        .context("cannot start the agent's thread")?;
    let (announcement, metrics, readiness) = match started.await {
        Ok(started) => started?,
        // The runtime did not start.
        Err(_) => {
            ended.await.context("the agent's thread failed")??;
            anyhow::bail!("the agent's thread ended");
        }
    };
    Ok(StartedService {
        announcement,
        metrics,
        readiness,
        work: Box::pin(async move { ended.await.context("the agent's thread failed")? }),
    })
}
