//! The report as the page's data: columns, and one entry for each disk.

use std::collections::HashMap;

use hs_trace::{BlockSet, FileMap, FileUse};
use hs_units::{BLOCK_BYTES, BlockRange, Digest, Lba};

use crate::column::{Column, Texts};
use crate::model::{Disk, Files, HotRegion, Input, InputKind, Report, RequestKind, Requests, Runs, VERSION};
use crate::read::{ImageInput, Inputs};
use crate::recording::{Recording, Request};
use crate::{stage_files, story};

/// Kinds in the order of their numbers.
const KINDS: [RequestKind; 5] = [
    RequestKind::Demand,
    RequestKind::Prefetch,
    RequestKind::Background,
    RequestKind::Write,
    RequestKind::Warm,
];
/// Blocks that the page can address.
const MOST_BLOCKS: u64 = u32::MAX as u64;

/// The data of the page.
pub(crate) fn report(inputs: Inputs) -> Report {
    let mut report = Report {
        version: VERSION,
        generator: concat!("headstart ", env!("CARGO_PKG_VERSION")).to_owned(),
        disks: Vec::new(),
        inputs: Vec::new(),
        stories: inputs.stories,
        experiments: inputs.experiments,
    };
    let mut by_digest: HashMap<Digest, u32> = HashMap::new();
    for image in &inputs.images {
        by_digest.entry(image.digest).or_insert_with(|| {
            report.disks.push(disk_of_image(image));
            report.disks.len() as u32 - 1
        });
    }
    for recording in inputs.recordings {
        let known = recording.disk_digest.and_then(|digest| by_digest.get(&digest).copied());
        let has_disk = known.is_some() || !recording.requests.is_empty() || recording.disk_bytes > 0;
        let disk = known.or_else(|| {
            has_disk.then(|| {
                report.disks.push(disk_of_recording(&recording));
                let number = report.disks.len() as u32 - 1;
                by_digest.extend(recording.disk_digest.map(|digest| (digest, number)));
                number
            })
        });
        if let Some((story, bar)) = recording.bar {
            report.stories[story].bars[bar].input = Some(report.inputs.len() as u32);
        }
        // A profile names files that the trace of a start from the same disk does not name.
        if let Some(disk) = disk.map(|disk| &mut report.disks[disk as usize])
            && disk.files.is_none()
        {
            disk.files = files(&recording.files);
        }
        report.inputs.push(input(recording, disk));
    }
    if report.stories.is_empty() {
        report.stories.extend(story::of_starts(&report.inputs));
    }
    for image in inputs.images {
        let disk = by_digest[&image.digest];
        // An image is an input of its own only where nothing else is shown of it.
        if report.inputs.iter().all(|input| input.disk != Some(disk)) {
            let alone = Recording::new(&image.name, InputKind::Image);
            report.inputs.push(Input { notes: image.notes, ..input(alone, Some(disk)) });
        } else if let Some(first) = report.inputs.iter_mut().find(|input| input.disk == Some(disk)) {
            first.notes.extend(image.notes);
        }
    }
    report
}

fn input(recording: Recording, disk: Option<u32>) -> Input {
    let stage_files = stage_files::columns(&recording);
    let mut notes = recording.notes;
    let requests = (!recording.requests.is_empty()).then(|| {
        let is_shown = |request: &&Request| request.bytes.end().div_ceil(BLOCK_BYTES) <= MOST_BLOCKS;
        let shown: Vec<&Request> = recording.requests.iter().filter(is_shown).collect();
        let left_out = recording.requests.len() - shown.len();
        if left_out > 0 {
            notes.push(format!("{left_out} requests behind 16 TiB are not shown."));
        }
        let of = |value: fn(&Request) -> u32| shown.iter().map(|it| value(it)).collect::<Vec<_>>();
        let kind = |it: &&Request| KINDS.iter().position(|kind| *kind == it.kind).unwrap_or_default() as u8;
        let span = |value: fn(&Request) -> f64| shown.iter().map(|it| value(it) as f32).collect::<Vec<_>>();
        Requests {
            at_s: Column::f64(&shown.iter().map(|it| it.at.as_secs_f64()).collect::<Vec<_>>()),
            block: Column::u32(&of(|it| it.first_block() as u32)),
            blocks: Column::u32(&of(|it| it.blocks() as u32)),
            wait_s: Column::f32(&span(|it| it.queued.as_secs_f64())),
            service_s: Column::f32(&span(|it| it.service.as_secs_f64())),
            kind: Column::bytes(&shown.iter().map(kind).collect::<Vec<_>>()),
            kinds: KINDS.to_vec(),
            part: Column::bytes(&shown.iter().map(|it| u8::from(it.is_part)).collect::<Vec<_>>()),
            process: Column::u32(&of(|it| it.process)),
            processes: recording.processes,
        }
    });
    Input {
        name: recording.name,
        kind: recording.kind,
        command: recording.command,
        medium: recording.medium,
        disk,
        ready_s: recording.ready_s,
        ended_s: recording.ended_s,
        requests,
        stages: recording.stages,
        stage_files,
        lives: recording.lives,
        cpu: recording.cpu,
        summary: recording.summary,
        notes,
    }
}

fn disk_of_recording(recording: &Recording) -> Disk {
    Disk {
        name: recording.name.clone(),
        blocks: blocks(recording.disk_bytes),
        window_blocks: None,
        hot: None,
        zero: None,
        files: files(&recording.files),
    }
}

fn disk_of_image(image: &ImageInput) -> Disk {
    let (extents, chunks): (Vec<_>, Vec<u32>) = image.hot.iter().copied().unzip();
    let listed = image.files.iter().zip(1..).map(|(file, inode)| FileUse {
        path: file.path.clone(),
        inode,
        runs: file.runs.iter().map(|run| hs_trace::FileRun { page: 0, blocks: *run }).collect(),
    });
    Disk {
        name: image.name.clone(),
        blocks: blocks(image.disk_bytes),
        window_blocks: Some((image.window_bytes / BLOCK_BYTES) as u32),
        hot: Some(HotRegion {
            runs: runs(&extents),
            chunk: Column::u32(&chunks),
            needed_s: Column::f32(&image.needed_s),
        }),
        zero: Some(runs(&image.zero.iter().copied().collect::<BlockSet>().runs().collect::<Vec<_>>())),
        files: files(&listed.collect::<Vec<_>>()),
    }
}

fn blocks(bytes: u64) -> u32 {
    bytes.div_ceil(BLOCK_BYTES).min(MOST_BLOCKS) as u32
}

fn runs(ranges: &[BlockRange]) -> Runs {
    // Images and profiles are of disks that have been checked; what lies behind the last shown block is cut.
    let first: Vec<u32> = ranges.iter().map(|run| run.start.0.min(MOST_BLOCKS) as u32).collect();
    let count: Vec<u32> = ranges.iter().map(|run| run.count.min(MOST_BLOCKS) as u32).collect();
    Runs { first: Column::u32(&first), count: Column::u32(&count) }
}

/// Where each file lies; where two claim a block, the first has it.
fn files(files: &[FileUse]) -> Option<Files> {
    if files.is_empty() {
        return None;
    }
    let number: HashMap<u64, u32> = files.iter().map(|file| file.inode).zip(0..).collect();
    let map = FileMap::new(files);
    let (mut ranges, mut path) = (Vec::new(), Vec::new());
    for piece in map.split(BlockRange::new(Lba(0), MOST_BLOCKS)) {
        if let Some((file, _)) = piece.page_of {
            ranges.push(piece.blocks);
            path.push(number[&file.inode]);
        }
    }
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    Some(Files { paths: Texts::of(&paths), runs: runs(&ranges), path: Column::u32(&path) })
}
