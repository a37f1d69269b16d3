//! Any bytes as the file of an overlay: opened, looked up, checked, written to and opened again.

use std::sync::LazyLock;

use hs_overlay::{
    Checking, Identity, Job, Limits, Needed, Opening, Overlay, OverlayError, Refusal, Source, Step,
};
use hs_units::Digest;

const BLOCK: u64 = 4096;

/// A small overlay, so that a change of some bytes of it gets far.
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(small);

/// Whether it is accepted; panics when a promise is broken. The input is a whole file, or, behind a byte 0 or
/// 1, changes of a small one: where (3 bytes) and to what (1 byte). Behind 1 digests are made right again.
pub fn run(data: &[u8]) -> bool {
    match data.split_first() {
        Some((sealed @ (0 | 1), changes)) => {
            let mut file = SMALL.clone();
            for change in changes.chunks_exact(4) {
                let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
                if let Some(byte) = file.get_mut(at) {
                    *byte = change[3];
                }
            }
            if *sealed == 1 {
                hs_overlay::forge::seal(&mut file);
            }
            try_file(file)
        }
        _ => try_file(data.to_vec()),
    }
}

fn try_file(mut file: Vec<u8>) -> bool {
    let Ok(mut overlay) = open(&file) else { return false };
    let blocks = overlay.identity().disk_blocks();
    let mut end = 0;
    let file_bytes = file.len() as u64;
    overlay.lookup(0, blocks, &mut |piece| {
        assert!(piece.start == end && piece.end > end && piece.end <= blocks);
        end = piece.end;
        if let Source::File(offset) = piece.source {
            assert!(offset + (piece.end - piece.start) * BLOCK <= file_bytes);
        }
    });
    assert_eq!(end, blocks);
    let mut checking = Checking::new(&overlay);
    while let Some(range) = checking.poll() {
        checking.handle_bytes(some(&file, range.offset, range.len));
    }
    let _ = checking.finish();
    let start = blocks - 1;
    write(&mut overlay, &mut file, start, &[7; BLOCK as usize]);
    let opened = open(&file).expect("what was written is an overlay");
    opened.lookup(start, blocks, &mut |piece| {
        let Source::File(offset) = piece.source else { panic!("{piece:?}") };
        assert_eq!(some(&file, offset, BLOCK), [7; BLOCK as usize]);
    });
    true
}

fn some(file: &[u8], offset: u64, len: u64) -> &[u8] {
    let end = (offset + len).min(file.len() as u64);
    file.get(offset as usize..end as usize).unwrap_or_default()
}

fn open(file: &[u8]) -> Result<Overlay, OverlayError> {
    let mut opening = Opening::new(None, file.len() as u64, Limits::default());
    while let Needed::Bytes(range) = opening.poll() {
        opening.handle_bytes(some(file, range.offset, range.len))?;
    }
    opening.finish()
}

fn write(overlay: &mut Overlay, file: &mut Vec<u8>, start: u64, bytes: &[u8]) {
    while let Err(refusal) = overlay.handle_write(start, bytes) {
        assert_eq!(refusal, Refusal::NeedsSpace);
        let job = overlay.space_needed(1).expect("space can be taken");
        carry_out(&job, file);
        overlay.handle_done();
    }
    overlay.handle_flush();
    overlay.handle_close();
    while let Some(job) = overlay.poll() {
        carry_out(&job, file);
        overlay.handle_done();
    }
}

fn carry_out(job: &Job, file: &mut Vec<u8>) {
    for step in &job.steps {
        match step {
            Step::Write { offset, bytes } => {
                let end = *offset as usize + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*offset as usize..end].copy_from_slice(bytes);
            }
            Step::Allocate { offset, len } => file.resize(file.len().max((offset + len) as usize), 0),
            Step::Punch { offset, len } => {
                let end = file.len().min((offset + len) as usize);
                if let Some(range) = file.get_mut(*offset as usize..end) {
                    range.fill(0);
                }
            }
            Step::Sync | Step::Quiesce => {}
        }
    }
}

/// An overlay with a map, records behind it, and a snapshot.
fn small() -> Vec<u8> {
    let identity = Identity { id: [3; 16], disk_digest: Digest([5; 32]), disk_bytes: 1000 * BLOCK };
    let (mut overlay, job) = Overlay::create(identity, Limits::default());
    let mut file = Vec::new();
    carry_out(&job, &mut file);
    write(&mut overlay, &mut file, 10, &[1; 5 * BLOCK as usize]);
    overlay.take_snapshot("one", 1).expect("a free name");
    write(&mut overlay, &mut file, 12, &[2; BLOCK as usize]);
    overlay.handle_zero(500, 100, true).expect("there is room");
    overlay.handle_write(20, &[4; BLOCK as usize]).expect("there is room");
    overlay.handle_flush();
    while let Some(job) = overlay.poll() {
        carry_out(&job, &mut file);
        overlay.handle_done();
    }
    file
}
