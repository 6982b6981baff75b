//! Prints the description of the controller's API.

fn main() {
    print!("{}", longhaul_control::http::description());
}
