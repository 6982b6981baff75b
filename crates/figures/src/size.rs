//! Sizes in the papers' units.

/// Formats a size in the papers' units: `16K`, `4M`.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_in_the_papers() {
        assert_eq!([size(16384), size(4 << 20), size(10)], ["16K", "4M", "10"]);
    }
}
