//! Units of data that are powers of 1000, which docs/GLOSSARY.md keeps out of what programs print.

/// The units that are not printed for sizes.
const DECIMAL: [&str; 6] = ["kB", "KB", "MB", "GB", "TB", "PB"];

/// Decimal units of data in a text, such as `MB` or `25 MB/s`: those of a rate end in `/s`.
#[must_use]
pub fn decimal_units(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '/');
    let units = words.map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()));
    units.filter(|unit| DECIMAL.contains(&unit.strip_suffix("/s").unwrap_or(unit))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_units_are_found_and_no_others() {
        assert_eq!(decimal_units("read (MB), 3 KB/s; 25MB, \"1.5 GB\""), ["MB", "KB/s", "MB", "GB"]);
        let others = "MiB, 8 KiB/s, 100 Mbit/s, flat-10ms-25mbs, MBR, M, B, GBs";
        assert_eq!(decimal_units(others), [""; 0]);
    }
}
