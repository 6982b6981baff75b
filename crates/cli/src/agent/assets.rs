//! The files of the web page as they were built; empty if they were not built.

use longhaul_agent::http::Asset;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));
