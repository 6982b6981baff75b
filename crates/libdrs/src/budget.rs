//! `drs_budget`: buffer memory that several flows share.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use drs::Budget;

use crate::error::Code;
use crate::guard::guarded;

/// The target of a `drs_budget` pointer.
pub struct DrsBudget(pub(crate) Arc<Budget>);

/// `drs_budget_new`.
///
/// # Safety
/// `budget` is NULL or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drs_budget_new(bytes: u64, budget: *mut *mut DrsBudget) -> c_int {
    guarded(|| {
        if budget.is_null() {
            return Err(Code::Null);
        }
        // SAFETY: not NULL; the caller promises that a pointer may be written there.
        unsafe { budget.write(ptr::null_mut()) };
        if bytes == 0 {
            return Err(Code::Invalid);
        }
        let made = Box::new(DrsBudget(Budget::new(bytes)));
        // SAFETY: as above.
        unsafe { budget.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// `drs_budget_free`.
///
/// # Safety
/// `budget` is NULL or came from [`drs_budget_new`] and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drs_budget_free(budget: *mut DrsBudget) {
    guarded(|| {
        if !budget.is_null() {
            // SAFETY: made by `Box::into_raw` in `drs_budget_new`; the caller frees it once.
            drop(unsafe { Box::from_raw(budget) });
        }
        Ok(())
    });
}
