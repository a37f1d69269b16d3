//! A codec and its level, as `zstd:19`.

use hs_build::DEFAULT_LEVEL;
use hs_image::Codec;

/// A codec and its level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodecLevel {
    /// The codec.
    pub codec: Codec,
    /// Its level.
    pub level: i32,
}

/// What a disk is stored with when nothing else is asked for.
pub(super) const DEFAULT_CODEC: &str = "zstd:9";

/// `NAME` or `NAME:LEVEL`.
pub(super) fn parse_codec(text: &str) -> Result<CodecLevel, String> {
    let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    let (codec, usual, levels) = match name {
        "store" if level.is_none() => (Codec::Store, 0, 0..=0),
        "zstd" => (Codec::Zstd, DEFAULT_LEVEL, 1..=22),
        // 0 is LZ4's fast compressor, 9 the usual level of its high one.
        "lz4" => (Codec::Lz4, 9, 0..=12),
        "zlib" => (Codec::Zlib, 9, 1..=9),
        _ => {
            return Err(format!("'{text}' is not a codec: use zstd:LEVEL, lz4:LEVEL, zlib:LEVEL or store"));
        }
    };
    let level = match level {
        None => usual,
        Some(level) => match level.parse() {
            Ok(level) if levels.contains(&level) => level,
            _ => {
                let (low, high) = levels.into_inner();
                return Err(format!("'{level}' is not a {name} level: use {low} to {high}"));
            }
        },
    };
    Ok(CodecLevel { codec, level })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_parse() {
        let usual = parse_codec(DEFAULT_CODEC).map(|codec| codec.level);
        assert_eq!(
            (usual, parse_codec("zstd").map(|codec| codec.level)),
            (Ok(DEFAULT_LEVEL), Ok(DEFAULT_LEVEL))
        );
        assert!(matches!(parse_codec("zstd:3"), Ok(CodecLevel { codec: Codec::Zstd, level: 3 })));
        assert!(parse_codec("store").is_ok() && parse_codec("zstd").is_ok());
        assert!(matches!(parse_codec("lz4"), Ok(CodecLevel { codec: Codec::Lz4, level: 9 })));
        assert!(matches!(parse_codec("lz4:0"), Ok(CodecLevel { codec: Codec::Lz4, level: 0 })));
        assert!(matches!(parse_codec("zlib:9"), Ok(CodecLevel { codec: Codec::Zlib, level: 9 })));
        for wrong in
            ["zstd:0", "zstd:23", "store:1", "lzma", "", "lz4:13", "lz4:-1", "zlib:0", "zlib:10", "zlib:"]
        {
            assert!(parse_codec(wrong).is_err(), "{wrong}");
        }
    }
}
