//! Prints the API's description, as the page keeps a copy of it: `cargo run -p longhaul-agent
//! --example openapi > web/openapi.json`.

#![allow(missing_docs)]

fn main() {
    print!("{}", longhaul_agent::http::description());
}
