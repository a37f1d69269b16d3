//! Parquet: the columns of the CSV, typed. Times are nanoseconds.

use std::sync::Arc;

use anyhow::Context;
use hs_units::Lba;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::kind_name;
use crate::recording::{Recording, Request};

const SCHEMA: &str = "message requests {
    required binary input (STRING);
    required int64 at_ns;
    required binary process (STRING);
    optional int64 pid;
    required binary kind (STRING);
    required int64 offset;
    required int64 bytes;
    required int64 queued_ns;
    required int64 service_ns;
    required int64 request;
    optional binary file (STRING);
    optional binary stage (STRING);
}";

type Rows<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// All requests: a row group for each recording.
pub(crate) fn parquet(recordings: &[Recording]) -> anyhow::Result<Vec<u8>> {
    let schema = parse_message_type(SCHEMA).context("the schema of the table")?;

    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    for recording in recordings.iter().filter(|recording| !recording.requests.is_empty()) {
        let mut rows = file.next_row_group()?;
        write(&mut rows, recording)?;
        rows.close()?;
    }
    file.into_inner().context("write the table")
}

fn write(rows: &mut Rows<'_>, recording: &Recording) -> anyhow::Result<()> {
    let requests = &recording.requests;
    let files = recording.file_map();
    let process = |request: &Request| &recording.processes[request.process as usize];
    let known = |name: &str| Some(text(name)).filter(|_| !name.is_empty());
    let file = |request: &Request| {
        let found = || files.locate(Lba(request.first_block()));
        known(&request.of(recording).file).or_else(|| found().map(|(file, _)| text(&file.path)))
    };
    let numbers = |value: fn(&Request) -> u64| requests.iter().map(move |it| Some(value(it) as i64));
    column::<ByteArrayType>(rows, requests.iter().map(|_| Some(text(&recording.name))))?;
    column::<Int64Type>(rows, numbers(|it| it.at.0))?;
    column::<ByteArrayType>(rows, requests.iter().map(|it| Some(text(&process(it).name))))?;
    optional::<Int64Type>(rows, requests.iter().map(|it| process(it).pid.map(i64::from)))?;
    column::<ByteArrayType>(rows, requests.iter().map(|it| Some(text(kind_name(it.kind)))))?;
    column::<Int64Type>(rows, numbers(|it| it.bytes.offset))?;
    column::<Int64Type>(rows, numbers(|it| it.bytes.len))?;
    column::<Int64Type>(rows, numbers(|it| it.queued.0))?;
    column::<Int64Type>(rows, numbers(|it| it.service.0))?;
    let mut request = 0;
    column::<Int64Type>(
        rows,
        requests.iter().map(|it| {
            request += i64::from(!it.is_part);
            Some(request)
        }),
    )?;
    optional::<ByteArrayType>(rows, requests.iter().map(file))?;
    optional::<ByteArrayType>(rows, requests.iter().map(|it| known(&it.of(recording).stage)))
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}

/// A column without levels: each row has a value.
fn column<T: DataType>(
    rows: &mut Rows<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> anyhow::Result<()> {
    let values: Vec<T::T> = values.flatten().collect();
    put::<T>(rows, &values, None)
}

fn optional<T: DataType>(
    rows: &mut Rows<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> anyhow::Result<()> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    put::<T>(rows, &values, Some(&levels))
}

fn put<T: DataType>(rows: &mut Rows<'_>, values: &[T::T], levels: Option<&[i16]>) -> anyhow::Result<()> {
    let mut column = rows.next_column()?.context("the schema has fewer columns")?;
    column.typed::<T>().write_batch(values, levels, None)?;
    Ok(column.close()?)
}
