//! Files that an attacker made with care: every digest in them is right.

use std::io::Write;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::{read, run, small};
use crate::header::{Header, SectionLengths};
use crate::{FileFault, FileRun, Limit, Profile, ReadFault, Section, Syntax, TraceError, columns, limits};

/// A profile taken apart, to be altered and put together again with fresh digests.
struct Forged {
    header: Header,
    raw: [Vec<u8>; 4],
}

impl Forged {
    fn from(profile: &Profile) -> Self {
        let (header, _) = Header::read_from_prefix(&small().encode().expect("valid")).expect("long enough");
        let mut forged = Self {
            header,
            raw: [
                columns::put_text(profile),
                columns::put_reads(&profile.reads),
                columns::put_digests(&profile.digests),
                columns::put_files(&profile.files),
            ],
        };
        let runs: usize = profile.files.iter().map(|file| file.runs.len()).sum();
        forged.header.read_count = U32::new(profile.reads.len() as u32);
        forged.header.digest_count = U32::new(profile.digests.len() as u32);
        forged.header.file_count = U32::new(profile.files.len() as u32);
        forged.header.run_count = U32::new(runs as u32);
        forged
    }

    fn bytes(&self) -> Vec<u8> {
        let frames = self.raw.each_ref().map(|raw| zstd::bulk::compress(raw, 1).expect("memory"));
        self.bytes_of(frames, |_| {})
    }

    /// With these frames for sections, and with `alter` as the last hand on the header.
    fn bytes_of(&self, frames: [Vec<u8>; 4], alter: impl FnOnce(&mut Header)) -> Vec<u8> {
        let mut header = self.header;
        for (index, frame) in frames.iter().enumerate() {
            header.sections[index] = SectionLengths {
                stored_bytes: U64::new(frame.len() as u64),
                raw_bytes: U64::new(self.raw[index].len() as u64),
            };
        }
        let body = frames.concat();
        header.body_digest = blake3::hash(&body).into();
        alter(&mut header);
        header.seal();
        [header.as_bytes(), &body].concat()
    }

    fn error(&self) -> TraceError {
        Profile::decode(&self.bytes()).expect_err("a forged profile")
    }
}

fn forged(alter: impl FnOnce(&mut Profile)) -> TraceError {
    let mut profile = small();
    alter(&mut profile);
    if let Err(refused) = profile.encode() {
        let found = Forged::from(&profile).error();
        assert_eq!(found, refused, "writer and reader disagree");
        return found;
    }
    panic!("the writer takes it");
}

fn altered_header(alter: impl FnOnce(&mut Header)) -> TraceError {
    let forged = Forged::from(&small());
    let frames = forged.raw.each_ref().map(|raw| zstd::bulk::compress(raw, 1).expect("memory"));
    Profile::decode(&forged.bytes_of(frames, alter)).expect_err("a forged header")
}

fn altered_frame(section: Section, frame: Vec<u8>) -> TraceError {
    let forged = Forged::from(&small());
    let mut frames = forged.raw.each_ref().map(|raw| zstd::bulk::compress(raw, 1).expect("memory"));
    frames[section as usize] = frame;
    Profile::decode(&forged.bytes_of(frames, |_| {})).expect_err("a forged frame")
}

#[test]
fn the_forger_can_make_a_good_profile() {
    assert_eq!(Profile::decode(&Forged::from(&small()).bytes()), Ok(small()));
}

#[test]
fn an_unknown_version_is_named() {
    let error = altered_header(|header| header.version = U32::new(7));
    assert_eq!(error, TraceError::UnknownVersion { found: 7, known: 1 });
}

#[test]
fn header_fields_out_of_order_are_refused() {
    assert_eq!(altered_header(|h| h.flags = U32::new(7)), TraceError::UnknownFlags { flags: 4 });
    assert_eq!(altered_header(|h| h.flags = U32::new(2)), TraceError::NotZero { offset: 56 });
    assert_eq!(altered_header(|h| h.flags = U32::new(1)), TraceError::NotZero { offset: 72 });
    assert_eq!(altered_header(|h| h.zero = U32::new(1)), TraceError::NotZero { offset: 92 });
    assert_eq!(altered_header(|h| h.zero_tail[31] = 1), TraceError::NotZero { offset: 192 });
    let ended = TraceError::ReadyAfterEnd { ready_ns: 90_000_000, ended_ns: 1 };
    assert_eq!(altered_header(|h| h.ended_ns = U64::new(1)), ended);
    let over = |what, limit, found| TraceError::OverLimit { what, limit, found };
    let max = limits::MAX_DISK_BYTES;
    assert_eq!(altered_header(|h| h.disk_bytes = U64::new(max + 1)), over(Limit::DiskBytes, max, max + 1));
}

#[test]
fn counts_that_the_bytes_cannot_hold_are_refused() {
    let all = U32::new(u32::MAX);
    for alter in [
        (|h, n| h.read_count = n) as fn(&mut Header, U32),
        |h, n| h.digest_count = n,
        |h, n| h.file_count = n,
        |h, n| h.run_count = n,
    ] {
        assert!(matches!(
            altered_header(|h| alter(h, all)),
            TraceError::OverLimit { found: 0xffff_ffff, .. }
        ));
        // Within the limits, but far more than there is.
        let error = altered_header(|h| alter(h, U32::new(1 << 20)));
        assert!(matches!(error, TraceError::SectionSyntax { syntax: Syntax::Short, .. }), "{error}");
    }
    // What a few KiB could decompress to: refused by the header.
    let many = |what, limit, found| TraceError::OverLimit { what, limit, found };
    let error = altered_header(|h| h.read_count = U32::new(4 << 20));
    assert_eq!(error, many(Limit::Reads, 1 << 20, 4 << 20));
    let error = altered_header(|h| h.digest_count = U32::new(8 << 20));
    assert_eq!(error, many(Limit::Digests, 4 << 20, 8 << 20));
    let error = altered_header(|h| h.read_count = U32::new(3));
    assert!(matches!(error, TraceError::SectionSyntax { section: Section::Reads, .. }), "{error}");
    let error = altered_header(|h| h.digest_count = U32::new(34));
    assert!(matches!(error, TraceError::SectionSyntax { syntax: Syntax::Long, .. }), "{error}");
}

#[test]
fn section_lengths_that_overflow_or_lie_are_refused() {
    let error = altered_header(|h| h.sections.iter_mut().for_each(|s| s.stored_bytes = U64::new(u64::MAX)));
    assert!(matches!(error, TraceError::Truncated { expected: u64::MAX, .. }));
    let error = altered_header(|h| h.sections.iter_mut().for_each(|s| s.raw_bytes = U64::new(u64::MAX)));
    assert!(matches!(error, TraceError::OverLimit { what: Limit::RawBodyBytes, .. }));
    for lie in [-1_i64, 1, 1 << 26] {
        let error = altered_header(|h| {
            let raw = &mut h.sections[Section::Reads as usize].raw_bytes;
            *raw = U64::new(raw.get().wrapping_add_signed(lie));
        });
        assert!(matches!(error, TraceError::SectionLength { section: Section::Reads, .. }), "{lie}: {error}");
    }
    let error = altered_header(|h| {
        let text = h.sections[0].stored_bytes.get();
        let reads = h.sections[1].stored_bytes.get();
        h.sections[0].stored_bytes = U64::new(text + 1);
        h.sections[1].stored_bytes = U64::new(reads - 1);
    });
    assert_eq!(error, TraceError::Frame { section: Section::Text });
}

#[test]
fn a_section_is_one_frame_that_behaves() {
    let raw = columns::put_reads(&small().reads);
    let frame = zstd::bulk::compress(&raw, 1).expect("memory");
    let (head, tail) = raw.split_at(9);
    let two = [head, tail].map(|part| zstd::bulk::compress(part, 1).expect("memory")).concat();
    assert!(matches!(altered_frame(Section::Reads, two), TraceError::SectionLength { .. }));
    let refused = TraceError::Frame { section: Section::Reads };
    assert_eq!(altered_frame(Section::Reads, [frame.as_slice(), b"x"].concat()), refused);
    assert_eq!(altered_frame(Section::Reads, [frame.as_slice(), &frame].concat()), refused);
    assert_eq!(altered_frame(Section::Reads, frame[..frame.len() - 1].to_vec()), refused);
    assert_eq!(altered_frame(Section::Reads, b"not zstd at all".to_vec()), refused);
    // Nothing, and a skippable frame, both of which come to no bytes, as the header says.
    let mut bare = small();
    bare.files.clear();
    for frame in [b"".as_slice(), b"\x50\x2a\x4d\x18\x01\0\0\0x"] {
        let forged = Forged::from(&bare);
        let mut frames = forged.raw.each_ref().map(|raw| zstd::bulk::compress(raw, 1).expect("memory"));
        frames[Section::Files as usize] = frame.to_vec();
        let found = Profile::decode(&forged.bytes_of(frames, |_| {}));
        assert_eq!(found, Err(TraceError::Frame { section: Section::Files }));
    }
    let mut greedy = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    greedy.window_log(limits::MAX_WINDOW_LOG + 1).expect("a valid window");
    greedy.write_all(&raw).expect("memory");
    assert_eq!(altered_frame(Section::Reads, greedy.finish().expect("memory")), refused);
}

#[test]
fn a_bomb_stops_at_the_length_it_admits() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).expect("memory");
    assert!(matches!(altered_frame(Section::Text, bomb), TraceError::SectionLength { .. }));
}

#[test]
fn reads_that_cannot_be_are_refused() {
    let bad = |index, fault| TraceError::BadRead { index, fault };
    assert_eq!(forged(|p| p.reads[3].blocks = run(999, 2)), bad(3, ReadFault::OutsideDisk));
    assert_eq!(forged(|p| p.reads[3].blocks = run(1 << 61, 1)), bad(3, ReadFault::OutsideDisk));
    let over = TraceError::OverLimit {
        what: Limit::Nanos,
        limit: limits::MAX_NANOS.0,
        found: limits::MAX_NANOS.0 + 1,
    };
    assert_eq!(forged(|p| p.reads[3].at.0 = limits::MAX_NANOS.0 + 1), over);
    assert_eq!(forged(|p| p.reads[0].cost.0 = limits::MAX_NANOS.0 + 1), over);
    assert!(matches!(forged(|p| _ = p.digests.pop()), TraceError::DigestCount { expected: 35, found: 34 }));
    // These two the columns cannot express; only a writer can meet them.
    let refused = |alter: fn(&mut Profile)| {
        let mut profile = small();
        alter(&mut profile);
        profile.encode().expect_err("not a profile")
    };
    assert_eq!(refused(|p| p.reads[2].blocks.count = 0), bad(2, ReadFault::Empty));
    assert_eq!(refused(|p| p.reads[3].at.0 = 5), bad(3, ReadFault::Unsorted));
}

#[test]
fn reads_of_the_whole_disk_cost_a_step_each() {
    let mut profile = small();
    profile.disk_bytes = limits::MAX_DISK_BYTES;
    profile.reads = (0..100_000).map(|at| read(at, run(0, limits::MAX_DISK_BYTES / 4096), 1)).collect();
    let mut forged = Forged::from(&profile);
    forged.header.disk_bytes = U64::new(profile.disk_bytes);
    assert!(matches!(forged.error(), TraceError::OverLimit { what: Limit::Digests, .. }));
}

#[test]
fn sums_that_overflow_in_a_column_are_refused() {
    let most = [[0xff_u8; 9].as_slice(), &[1]].concat();
    let syntax = |section, raw: Vec<u8>, count: fn(&mut Header)| {
        let mut forged = Forged::from(&small());
        forged.raw[section as usize] = raw;
        count(&mut forged.header);
        match forged.error() {
            TraceError::SectionSyntax { section: found, syntax, .. } if found == section => syntax,
            other => panic!("{other}"),
        }
    };
    let two = |h: &mut Header| h.read_count = U32::new(2);
    let one = |h: &mut Header| h.read_count = U32::new(1);
    // Arrivals of 2⁶⁴ - 1 and one more.
    assert_eq!(syntax(Section::Reads, [&most, b"\x01\0\0\0\0\0\0".as_slice()].concat(), two), Syntax::Range);
    // A count of 2⁶⁴; a step in front of block 0; an end behind 2⁶⁴.
    assert_eq!(syntax(Section::Reads, [b"\0\0", most.as_slice(), b"\0"].concat(), one), Syntax::Range);
    assert_eq!(syntax(Section::Reads, b"\0\x01\0\0".to_vec(), one), Syntax::Range);
    let far = [b"\0\x02", [0xfe].as_slice(), &[0xff; 8], &[1], b"\0"].concat();
    assert_eq!(syntax(Section::Reads, far, one), Syntax::Range);
    // Two files with run counts whose sum overflows.
    let files = [b"\x01\x01", most.as_slice(), &most, b"\x01\x01//\0\0\0\0\0\0\0\0\0\0"].concat();
    assert_eq!(syntax(Section::Files, files, |_| {}), Syntax::Range);
    assert_eq!(syntax(Section::Text, [most.as_slice(), b"abc"].concat(), |_| {}), Syntax::Short);
    assert_eq!(syntax(Section::Text, b"\x02\xff\xfe\0".to_vec(), |_| {}), Syntax::Utf8);
    assert_eq!(syntax(Section::Text, b"\0\0\0".to_vec(), |_| {}), Syntax::Long);
    assert_eq!(syntax(Section::Text, b"\x80\0\0".to_vec(), |_| {}), Syntax::Varint);
}

#[test]
fn files_that_cannot_be_are_refused() {
    let bad = |index, fault| TraceError::BadFile { index, fault };
    for path in ["", "usr/bin", "/usr/../etc", "/..", "/a\0b"] {
        assert_eq!(forged(|p| p.files[1].path = path.to_owned()), bad(1, FileFault::Path), "{path:?}");
    }
    assert_eq!(forged(|p| p.files[0].inode = 0), bad(0, FileFault::Inode));
    assert_eq!(forged(|p| p.files[0].runs[1].blocks = run(999, 9)), bad(0, FileFault::OutsideDisk));
    assert_eq!(forged(|p| p.files[0].runs[1].page = limits::MAX_PAGES), bad(0, FileFault::Page));
    let long = "/".repeat(4097);
    let over = TraceError::OverLimit { what: Limit::PathBytes, limit: 4096, found: 4097 };
    assert_eq!(forged(|p| p.files[1].path = long), over);
    let mut profile = small();
    profile.files[1].runs = vec![FileRun { page: 0, blocks: run(5, 0) }];
    assert_eq!(profile.encode(), Err(bad(1, FileFault::EmptyRun)));
}

#[test]
fn texts_over_their_limits_are_refused() {
    let error = forged(|p| p.command = "x".repeat((2 << 20) + 1));
    assert!(matches!(error, TraceError::OverLimit { what: Limit::CommandBytes, .. }));
    let error = forged(|p| p.medium = "x".repeat(4097));
    assert!(matches!(error, TraceError::OverLimit { what: Limit::MediumBytes, .. }));
}

#[test]
fn a_limit_is_told_in_words() {
    let text = forged(|p| p.medium = "x".repeat(4097)).to_string();
    assert!(text.contains("4097") && text.contains("bytes of medium name"), "{text}");
}
