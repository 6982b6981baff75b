//! `longhaul reserve` with an end in another domain.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use jiff::Zoned;
use longhaul_control_api::domains::{DomainReservationRequest, Shape, TerminationPoint};
use longhaul_control_api::reservations::{ReservationRequest, Wish};
use longhaul_control_client::ControllerClient;

use super::ReserveCommand;
use crate::agent_client::run_in_runtime;
use crate::answer;
use crate::exit::Exit;
use crate::reservations::show;

/// Time limit of an answer. The controller waits for other domains, and tries several paths.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(100);

/// Way in which domains ask each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequestShape {
    /// Each domain asks the next one.
    Chain,
    /// The first domain asks all others.
    Tree,
}

/// Returns true if an end of a request is written as `DOMAIN:END`.
pub fn leads_across(request: &ReservationRequest) -> bool {
    let is_point = |end: &str| {
        let address = end.trim_matches(['[', ']']);
        address.parse::<IpAddr>().is_err() && end.parse::<TerminationPoint>().is_ok()
    };
    is_point(&request.from) || is_point(&request.to)
}

impl ReserveCommand {
    /// Reserves across domains.
    pub(super) fn reserve_across(
        &self,
        request: &ReservationRequest,
        controller: ControllerClient,
        key: &str,
        now: &Zoned,
    ) -> Result<Exit> {
        let request = self.request_across(request)?;
        let controller = controller.with_timeout(ANSWER_TIMEOUT);
        let granted =
            run_in_runtime(async { Ok(controller.reserve_across(&request, key).await?) })?;
        if self.json {
            answer::write_line(serde_json::to_string(&granted)?);
        } else {
            answer::write_lines(show::across(&granted, self.show, now).into_iter());
        }
        Ok(Exit::Success)
    }

    fn request_across(&self, request: &ReservationRequest) -> Result<DomainReservationRequest> {
        let Wish::Rate { rate_bps } = request.wish else {
            return Err(anyhow!(
                "--bytes: other domains reserve a rate: give --rate instead"
            ));
        };
        let (from, to) = (request.from.clone(), request.to.clone());
        let plain = ReservationRequest {
            start_ms: request.start_ms,
            provision: request.provision,
            from_address: request.from_address.clone(),
            to_address: request.to_address.clone(),
            ..ReservationRequest::new(from, to, request.wish, request.end_ms)
        };
        if *request != plain {
            return Err(anyhow!(
                "an end is in another domain: only --rate, --from, --until, --for, --provision, \
                 --shape and the addresses of both ends apply there: leave the others out"
            ));
        }
        Ok(DomainReservationRequest {
            from: request.from.clone(),
            to: request.to.clone(),
            rate_bps,
            start_ms: request.start_ms,
            end_ms: request.end_ms,
            shape: self.shape.map(|shape| match shape {
                RequestShape::Chain => Shape::Chain,
                RequestShape::Tree => Shape::Tree,
            }),
            provision: request.provision,
            from_address: request.from_address.clone(),
            to_address: request.to_address.clone(),
        })
    }
}
