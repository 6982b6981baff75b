//! The built `longhaul` on emulated long paths.

mod path;
mod round_trips;
