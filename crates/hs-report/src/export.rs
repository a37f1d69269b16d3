//! Requests for other programs.

mod iolog;
mod parquet;
mod perfetto;
mod table;

use crate::model::RequestKind;

pub(crate) use self::iolog::iolog;
pub(crate) use self::parquet::parquet;
pub(crate) use self::perfetto::perfetto;
pub(crate) use self::table::csv;

/// The name of a kind in tables and traces.
const fn kind_name(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Demand => "demand",
        RequestKind::Prefetch => "prefetch",
        RequestKind::Background => "background",
        RequestKind::Write => "write",
        RequestKind::Warm => "warm",
    }
}
