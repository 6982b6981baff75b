//! Lines of the log about right-sizing.

use std::fmt::Write;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use drs::{Action, ActionOutcome, Advice, Applied, Limit, Side, TcpInfo, Verdict};
use quantities::ByteCount;

use super::account::ConnectionAccount;
use super::ahead::FreedBuffer;
use crate::log::{Escaped, Log, Seconds, now};

impl Log {
    /// Logs a verdict that differs from the one before.
    pub fn verdict(&self, account: &ConnectionAccount, side: Side, verdict: &Verdict) {
        self.line("verdict", |line| {
            let evidence = &verdict.evidence;
            write!(
                line,
                r#","flow":{},"side":"{}","limit":"{}","goodput_bps":{:.0},"rtt_us":{},"congestion_window":{},"in_flight":{},"peer_window":{},"send_buffer":{},"receive_buffer":{}"#,
                account.number,
                side_word(side),
                verdict.limit,
                finite(evidence.goodput_bps),
                evidence.rtt.as_micros(),
                evidence.congestion_window,
                evidence.in_flight,
                evidence.peer_window,
                evidence.send_buffer,
                evidence.receive_buffer,
            )
        });
    }

    /// Logs an action on a connection.
    pub fn action(&self, account: &ConnectionAccount, applied: &Applied) {
        self.line("action", |line| {
            let what = action_name(applied.action);
            write!(line, r#","flow":{},"what":"{what}""#, account.number)?;
            if let Some(asked) = action_value(applied.action) {
                write!(line, r#","asked":{asked}"#)?;
            }
            match applied.outcome {
                ActionOutcome::Set(made) => write!(line, r#","made":{made}"#)?,
                ActionOutcome::Refused(number) => write!(line, r#","refused":{number}"#)?,
            }
            write!(line, r#","cause":"{}""#, Escaped(applied.cause))
        });
    }

    /// Logs an action on a socket before it was connected or listened.
    pub fn unlocked(&self, freed: &FreedBuffer) {
        self.line("action", |line| {
            write!(
                line,
                r#","what":"unlock-receive","cause":"the SYN fixes the window scale, and the program's own buffer of {} would limit it""#,
                ByteCount(u64::from(freed.buffer))
            )
        });
    }

    /// Logs advice that the connection did not get before.
    pub fn advice(&self, account: &ConnectionAccount, advice: &Advice) {
        self.line("advice", |line| {
            write!(
                line,
                r#","flow":{},"advice":"{}""#,
                account.number,
                Escaped(advice)
            )
        });
    }

    /// Logs the last line of a connection: the bytes acknowledged and received until its descriptor
    /// was closed. If the socket is still there, it is sampled once more.
    pub fn end(&self, account: &mut ConnectionAccount, socket: Option<BorrowedFd<'_>>) {
        if let Some((socket, info)) =
            socket.and_then(|socket| Some((socket, TcpInfo::read(socket).ok()?)))
        {
            account.remember(socket, &info);
        }
        let account = &*account;
        self.line("end", |line| {
            let at_us = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
            let lasted = Duration::from_micros(at_us.saturating_sub(account.since_us));
            write!(
                line,
                r#","flow":{},"seconds":{}"#,
                account.number,
                Seconds(lasted)
            )?;
            for (name, address) in [("local", account.local), ("peer", account.peer)] {
                if let Some(address) = address.socket() {
                    write!(line, r#","{name}":"{address}""#)?;
                }
            }
            let [sent, received] = account.moved;
            write!(
                line,
                r#","sent":{sent},"received":{received},"looks":{}"#,
                account.looks
            )?;
            write!(
                line,
                r#","actions":{},"refused":{}"#,
                account.actions, account.refused
            )?;
            if account.unscaled {
                line.write_str(r#","unscaled":true"#)?;
            }
            line.write_str(r#","verdicts":{"#)?;
            let mut comma = "";
            for (side, counts) in [Side::Sending, Side::Receiving]
                .into_iter()
                .zip(&account.verdicts)
            {
                for (limit, count) in Limit::ALL
                    .into_iter()
                    .zip(counts)
                    .filter(|(_, count)| **count > 0)
                {
                    write!(line, r#"{comma}"{} {limit}":{count}"#, side_word(side))?;
                    comma = ",";
                }
            }
            line.write_str("}")
        });
    }
}

/// Returns the log's word for the setting of an action.
fn action_name(action: Action) -> &'static str {
    match action {
        Action::UnlockReceive => "unlock-receive",
        Action::UnlockSend => "unlock-send",
        Action::ReceiveBuffer(_) => "receive-buffer",
        Action::SendBuffer(_) => "send-buffer",
        Action::WindowClamp(_) => "window-clamp",
        Action::UnsentLimit(_) => "unsent-limit",
        Action::PacingRate(_) => "pacing-rate",
        Action::CongestionControl(_) => "congestion-control",
    }
}

/// Returns the number that an action sets.
fn action_value(action: Action) -> Option<u64> {
    match action {
        Action::UnlockReceive | Action::UnlockSend | Action::CongestionControl(_) => None,
        Action::ReceiveBuffer(bytes)
        | Action::SendBuffer(bytes)
        | Action::WindowClamp(bytes)
        | Action::UnsentLimit(bytes) => Some(bytes.into()),
        Action::PacingRate(rate) => Some(rate),
    }
}

fn side_word(side: Side) -> &'static str {
    match side {
        Side::Sending => "sending",
        Side::Receiving => "receiving",
    }
}

/// Replaces numbers that JSON cannot express.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::lines;

    #[test]
    fn every_line_is_json() {
        let mut account = ConnectionAccount {
            number: 3,
            ..ConnectionAccount::default()
        };
        account.count(1, Limit::ReceiveWindow);
        account.count(1, Limit::ReceiveWindow);
        account.count(0, Limit::Path);
        let lines = lines(|log| {
            log.end(&mut account, None);
            log.unlocked(&FreedBuffer { buffer: 4096 });
        });
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["verdicts"]["receiving receive-window"], 2);
        assert_eq!(lines[0]["verdicts"]["sending path"], 1);
        assert_eq!(lines[0]["flow"], 3);
        assert!(lines[1]["cause"].as_str().unwrap().contains("4 KiB"));
    }
}
