//! The flag that says how fast prefetch is.

use hs_engine::PrefetchRate;
use hs_units::ByteSize;

/// A rate by its name, or in bytes a second.
pub(super) fn parse(text: &str) -> Result<PrefetchRate, String> {
    match text {
        "full" => Ok(PrefetchRate::Full),
        "auto" => Ok(PrefetchRate::ByDeadline),
        _ => match text.parse::<ByteSize>() {
            Ok(ByteSize(0)) => {
                Err("prefetch of no bytes a second never ends; --prefetch off is without".to_owned())
            }
            Ok(ByteSize(rate)) => Ok(PrefetchRate::BytesPerS(rate)),
            Err(error) => Err(format!("{error}, or full, or auto")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_are_rates() {
        assert_eq!(parse("full"), Ok(PrefetchRate::Full));
        assert_eq!(parse("auto"), Ok(PrefetchRate::ByDeadline));
        assert_eq!(parse("2M"), Ok(PrefetchRate::BytesPerS(2 << 20)));
        assert!(parse("0").is_err() && parse("soon").is_err_and(|error| error.ends_with("full, or auto")));
    }
}
