//! `drs_flow`: a [`Flow`] bound to a descriptor that the C program keeps.

use std::ffi::c_int;
use std::fmt::Write;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drs::{
    Action, Advice, Applied, Budget, Flow, FlowError, Outcome, SampleError, Step, TcpInfo,
    TcpInfoError, TcpState,
};
use rustix::time::{ClockId, clock_gettime};

use crate::budget::DrsBudget;
use crate::error::Code;
use crate::guard::guarded;
use crate::report::{DrsAction, DrsReport, HAS_ADVICE, HAS_VERDICT, Place, Text};
use crate::words;

/// The target of a `drs_flow` pointer.
pub struct DrsFlow {
    descriptor: RawFd,
    /// Serializes steps of one flow from several threads. A panic poisons it, which ends the flow.
    flow: Mutex<Flow>,
}

/// `drs_flow_new`.
///
/// # Safety
/// `flow` is NULL or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drs_flow_new(
    fd: c_int,
    side: c_int,
    mode: c_int,
    flow: *mut *mut DrsFlow,
) -> c_int {
    // SAFETY: the caller's promise is passed on.
    guarded(|| unsafe { new(fd, side, mode, None, flow) })
}

/// `drs_flow_new_shared`.
///
/// # Safety
/// `flow` is NULL or valid for writing a pointer; `budget` is NULL or came from `drs_budget_new`
/// and is not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drs_flow_new_shared(
    fd: c_int,
    side: c_int,
    mode: c_int,
    budget: *const DrsBudget,
    flow: *mut *mut DrsFlow,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises that it is NULL or alive.
        let budget = unsafe { budget.as_ref() };
        match budget {
            Some(budget) => {
                let budget = Some(Arc::clone(&budget.0));
                // SAFETY: the caller's promise is passed on.
                unsafe { new(fd, side, mode, budget, flow) }
            }
            None => {
                if !flow.is_null() {
                    // SAFETY: not NULL; the caller promises that a pointer may be written there.
                    unsafe { flow.write(ptr::null_mut()) };
                }
                Err(Code::Null)
            }
        }
    })
}

/// # Safety
/// `place` is NULL or valid for writing a pointer.
unsafe fn new(
    fd: c_int,
    side: c_int,
    mode: c_int,
    budget: Option<Arc<Budget>>,
    place: *mut *mut DrsFlow,
) -> Result<(), Code> {
    if place.is_null() {
        return Err(Code::Null);
    }
    // SAFETY: not NULL; the caller promises that a pointer may be written there.
    unsafe { place.write(ptr::null_mut()) };
    let side = words::side(side).ok_or(Code::Invalid)?;
    let mode = words::mode(mode).ok_or(Code::Invalid)?;
    check_tcp(fd)?;
    let flow = match budget {
        Some(budget) => Flow::new(mode, side).with_budget(&budget),
        None => Flow::new(mode, side),
    };
    let made = Box::new(DrsFlow {
        descriptor: fd,
        flow: Mutex::new(flow),
    });
    // SAFETY: as above.
    unsafe { place.write(Box::into_raw(made)) };
    Ok(())
}

/// `drs_flow_step`.
///
/// # Safety
/// `flow` is NULL or came from `drs_flow_new` and is not freed before this returns; `report` is
/// NULL or as large as its size member says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drs_flow_step(
    flow: *mut DrsFlow,
    now: u64,
    report: *mut DrsReport,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises that it is NULL or alive; only shared references to it are
        // ever made.
        let flow = unsafe { flow.as_ref() }.ok_or(Code::Null)?;
        // SAFETY: `Place::new` asks for the caller's promise about the report.
        let place = unsafe { Place::new(report) }?;
        let mut found = DrsReport::empty();
        let outcome = flow.step(now, &mut found);
        if outcome.is_err() {
            found = DrsReport::empty();
        }
        if let Some(place) = place {
            place.fill(found);
        }
        outcome
    })
}

/// `drs_flow_free`.
///
/// # Safety
/// `flow` is NULL or came from `drs_flow_new`, is not freed yet, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drs_flow_free(flow: *mut DrsFlow) {
    guarded(|| {
        if !flow.is_null() {
            // SAFETY: made by `Box::into_raw` in `new`; the caller frees it once.
            drop(unsafe { Box::from_raw(flow) });
        }
        Ok(())
    });
}

impl DrsFlow {
    fn step(&self, now: u64, report: &mut DrsReport) -> Result<(), Code> {
        let mut flow = self.flow.lock().map_err(|_| Code::Internal)?;
        // Read within the lock, so that the clock cannot go back between two steps.
        let now = match now {
            u64::MAX => monotonic(),
            nanoseconds => Duration::from_nanos(nanoseconds),
        };
        let step = flow
            .step(borrow(self.descriptor)?, now)
            .map_err(|error| code_of(&error))?;
        put(&step, report);
        Ok(())
    }
}

fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Borrows the descriptor for one call.
fn borrow<'a>(fd: RawFd) -> Result<BorrowedFd<'a>, Code> {
    if fd < 0 {
        return Err(Code::BadDescriptor);
    }
    // SAFETY: it is not -1. The header asks the caller to keep it open. If the caller does not, the
    // kernel answers EBADF or for another socket, and no memory of this process is at stake.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn code_of(error: &FlowError) -> Code {
    match error {
        FlowError::Sample(
            SampleError::TcpInfo(TcpInfoError::Socket(source)) | SampleError::Call { source, .. },
        ) => Code::of_refusal(source),
        FlowError::Sample(_) => Code::System,
    }
}

fn check_tcp(fd: RawFd) -> Result<(), Code> {
    match TcpInfo::read(borrow(fd)?) {
        // A listening socket has no data of its own.
        Ok(info) if info.state == TcpState::Listen => Err(Code::NotTcp),
        Ok(_) => Ok(()),
        Err(TcpInfoError::Socket(error)) => Err(Code::of_refusal(&error)),
        Err(TcpInfoError::Short(_)) => Err(Code::System),
    }
}

/// Copies the results of a step into a report.
fn put(step: &Step<'_>, report: &mut DrsReport) {
    if let Some(verdict) = &step.verdict {
        report.flags |= HAS_VERDICT;
        report.limit = words::limit(verdict.limit);
        report.put_evidence(&verdict.evidence);
    }
    for (applied, place) in step.actions.iter().zip(&mut report.actions) {
        put_action(applied, place);
        report.action_count += 1;
    }
    if let Some(advice) = &step.advice {
        report.flags |= HAS_ADVICE;
        let (kind, value) = match *advice {
            Advice::Streams { streams, .. } => (1, streams),
            Advice::Depot { .. } => (2, 0),
            Advice::Raise { bytes, .. } => (3, u32::try_from(bytes).unwrap_or(u32::MAX)),
            Advice::LiftPacing { .. } => (4, 0),
        };
        (report.advice, report.advice_value) = (kind, value);
        let _ = write!(Text::new(&mut report.advice_text), "{advice}");
    }
}

fn put_action(applied: &Applied, place: &mut DrsAction) {
    (place.kind, place.asked) = match applied.action {
        Action::UnlockReceive => (1, 0),
        Action::UnlockSend => (2, 0),
        Action::ReceiveBuffer(bytes) => (3, bytes.into()),
        Action::SendBuffer(bytes) => (4, bytes.into()),
        Action::WindowClamp(bytes) => (5, bytes.into()),
        Action::UnsentLimit(bytes) => (6, bytes.into()),
        Action::PacingRate(rate) => (7, rate),
        Action::CongestionControl(_) => (8, 0),
    };
    match applied.outcome {
        Outcome::Set(made) => place.made = made.into(),
        Outcome::Refused(number) => place.failed = number,
    }
    let mut text = Text::new(&mut place.cause);
    let _ = match applied.action {
        Action::CongestionControl(name) => write!(text, "{}: {}", name.as_str(), applied.cause),
        _ => write!(text, "{}", applied.cause),
    };
}
