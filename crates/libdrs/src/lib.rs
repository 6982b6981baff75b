//! The C library that `include/drs.h` declares, on top of the crate `drs`.
//!
//! The header documents the functions. Every function passes through [`guard::guarded`], so that no
//! panic crosses into C and `errno` is preserved.

#![allow(unsafe_code)] // pointers and descriptors come from C; each use says why it holds

mod budget;
mod error;
mod flow;
mod guard;
mod report;
mod words;

pub use budget::{DrsBudget, drs_budget_free, drs_budget_new};
pub use error::{Code, drs_strerror, drs_version};
pub use flow::{DrsFlow, drs_flow_free, drs_flow_new, drs_flow_new_shared, drs_flow_step};
pub use report::{DrsAction, DrsReport};
pub use words::{drs_action_word, drs_advice_word, drs_limit_word, drs_mode_word, drs_side_word};
