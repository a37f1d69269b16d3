//! Long lists as text in JSON: little-endian numbers, deflated (zlib), base64.

use hs_output::report_page::packed;
use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

/// The type of a column's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(TS))]
pub enum Number {
    /// A byte.
    U8,
    /// An unsigned number of 32 bits.
    U32,
    /// A number of 32 bits with a floating point.
    F32,
    /// A number of 64 bits with a floating point.
    F64,
}

/// Numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Column {
    /// What each is.
    #[serde(rename = "type")]
    pub number: Number,
    /// How many.
    pub count: u32,
    /// Their bytes, little-endian, as zlib and base64.
    pub data: String,
}

impl Column {
    /// Bytes.
    #[must_use]
    pub fn bytes(numbers: &[u8]) -> Self {
        Self::of(Number::U8, numbers.len(), numbers)
    }

    /// Unsigned numbers.
    #[must_use]
    pub fn u32(numbers: &[u32]) -> Self {
        Self::of(
            Number::U32,
            numbers.len(),
            &numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    /// Numbers with a floating point.
    #[must_use]
    pub fn f32(numbers: &[f32]) -> Self {
        Self::of(
            Number::F32,
            numbers.len(),
            &numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    /// The same, with 64 bits.
    #[must_use]
    pub fn f64(numbers: &[f64]) -> Self {
        Self::of(
            Number::F64,
            numbers.len(),
            &numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    fn of(number: Number, count: usize, bytes: &[u8]) -> Self {
        Self { number, count: hs_units::to_u32(count as u64), data: packed(bytes) }
    }
}

/// Texts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Texts {
    /// How many.
    pub count: u32,
    /// A JSON array of strings, as zlib and base64.
    pub data: String,
}

impl Texts {
    /// These.
    #[must_use]
    pub fn of(texts: &[impl AsRef<str>]) -> Self {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let json = serde_json::to_vec(&texts).expect("strings are JSON");
        Self { count: hs_units::to_u32(texts.len() as u64), data: packed(&json) }
    }
}
