//! Libraries that many programs of a tree need: a first command reads them whatever it is, so they lie behind
//! the tables of the file system (docs/decisions/075-trees-and-disks.md).
//!
//! What a program needs is in its ELF headers: the interpreter (`PT_INTERP`) and names of libraries
//! (`DT_NEEDED`). They are looked up by the last part of their paths. What that misses costs time, no more.

use std::collections::HashMap;
use std::io;

use hs_ext4::{NodeId, Plan};
use hs_units::to_usize;

use super::file_data::Content;

/// How such a file begins.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// A library is common if one in so many programs needs it.
const COMMON_SHARE: u64 = 3;
/// Bytes of common libraries: half a second of a medium with 10 MB/s, compressed less.
const MOST_COMMON_BYTES: u64 = 4 << 20;
/// The most steps from a file to one that it needs: a stranger's tree may be made of such files.
const MOST_STEPS: usize = 1 << 24;
/// Symbolic links behind one another.
const MOST_LINKS: usize = 8;

const MOST_PROGRAM_HEADERS: u64 = 256;
const MOST_DYNAMIC_BYTES: u64 = 64 << 10;
const MOST_NAME_BYTES: u64 = 256;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// What a file needs, by names without folders.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Needs {
    /// Programs have one.
    interpreter: Option<Vec<u8>>,
    libraries: Vec<Vec<u8>>,
}

/// Programs and libraries of a tree.
#[derive(Default)]
pub(super) struct Libraries {
    files: Vec<(NodeId, Needs)>,
    /// The place in `files`, by name.
    by_name: HashMap<Vec<u8>, usize>,
    /// Targets of symbolic links, by name.
    links: HashMap<Vec<u8>, Vec<u8>>,
}

impl Libraries {
    /// Takes up a file that begins with [`MAGIC`]. What cannot be read as one is no program.
    pub(super) fn add(&mut self, node: NodeId, name: &[u8], content: &dyn Content, bytes: u64) {
        if let Some(needs) = Needs::read(content, bytes) {
            self.by_name.entry(name.to_vec()).or_insert(self.files.len());
            self.files.push((node, needs));
        }
    }

    /// Takes up a symbolic link, which may be a name of a library.
    pub(super) fn add_link(&mut self, name: &[u8], target: &[u8]) {
        if name.windows(3).any(|part| part == b".so") {
            self.links.entry(name.to_vec()).or_insert_with(|| last_part(target).to_vec());
        }
    }

    /// Libraries that at least one in [`COMMON_SHARE`] programs needs, those that most need first.
    pub(super) fn common(&self, plan: &Plan) -> Vec<NodeId> {
        let needed: Vec<Vec<usize>> = self.files.iter().map(|(_, needs)| self.found(needs)).collect();
        let mut counts = vec![0_u64; self.files.len()];
        let (mut programs, mut steps) = (0, 0);
        let mut seen = vec![usize::MAX; self.files.len()];
        for (program, _) in
            self.files.iter().enumerate().filter(|(_, (_, needs))| needs.interpreter.is_some())
        {
            programs += 1;
            let mut pending = vec![program];
            while let Some(file) = pending.pop() {
                for &library in &needed[file] {
                    steps += 1;
                    if std::mem::replace(&mut seen[library], program) != program {
                        counts[library] += 1;
                        pending.push(library);
                    }
                }
            }
            if steps > MOST_STEPS {
                return Vec::new();
            }
        }
        let mut common: Vec<usize> = (0..counts.len())
            .filter(|&file| counts[file] > 0 && counts[file] * COMMON_SHARE >= programs)
            .collect();
        common.sort_by_key(|&file| std::cmp::Reverse(counts[file]));
        let mut bytes = 0;
        let nodes = common.into_iter().map(|file| self.files[file].0);
        let fits = |node: &NodeId| {
            bytes += plan.bytes(*node);
            bytes <= MOST_COMMON_BYTES
        };
        nodes.take_while(fits).collect()
    }

    /// The files that have these names.
    fn found(&self, needs: &Needs) -> Vec<usize> {
        let names = needs.interpreter.iter().chain(&needs.libraries);
        names.filter_map(|name| self.find(name)).collect()
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let mut name = name;
        for _ in 0..MOST_LINKS {
            match self.by_name.get(name) {
                Some(&file) => return Some(file),
                None => name = self.links.get(name)?,
            }
        }
        None
    }
}

/// What a file in memory needs, its interpreter first. For the fuzz target.
#[doc(hidden)]
#[must_use]
pub fn needs_in_memory(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let needs = Needs::read(&file, file.len() as u64)?;
    Some(needs.interpreter.into_iter().chain(needs.libraries).collect())
}

/// A file in memory.
impl Content for &[u8] {
    fn next_data(&self, position: u64, file_bytes: u64) -> Option<(u64, u64)> {
        (position < file_bytes).then_some((position, file_bytes))
    }

    fn read_part(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let part = self.get(start..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Sizes and places of fields, which depend on the size of addresses.
struct Class {
    header_bytes: usize,
    /// In the header: where the table of segments is, and how many there are.
    segments_at: usize,
    count_at: usize,
    segment_bytes: usize,
    /// In a segment: its offset, address and size in the file.
    segment_fields: [usize; 3],
    word: usize,
}

const CLASS_32: Class = Class {
    header_bytes: 52,
    segments_at: 28,
    count_at: 44,
    segment_bytes: 32,
    segment_fields: [4, 8, 16],
    word: 4,
};
const CLASS_64: Class = Class {
    header_bytes: 64,
    segments_at: 32,
    count_at: 56,
    segment_bytes: 56,
    segment_fields: [8, 16, 32],
    word: 8,
};

/// A part of the file, and its address in memory.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Needs {
    /// Reads the headers of a file with little-endian numbers; nothing where they make no sense. Fields are
    /// those of the System V ABI, chapters 4 and 5.
    fn read(content: &dyn Content, file_bytes: u64) -> Option<Self> {
        let read = |offset: u64, bytes: u64| {
            offset.checked_add(bytes).filter(|end| *end <= file_bytes)?;
            let mut part = vec![0; to_usize(bytes)];
            content.read_part(&mut part, offset).ok()?;
            Some(part)
        };
        let start = read(0, CLASS_32.header_bytes as u64)?;
        let class = match (start[4], start[5]) {
            (1, 1) => CLASS_32,
            (2, 1) => CLASS_64,
            _ => return None,
        };
        let header = read(0, class.header_bytes as u64)?;
        let count = number(&header[class.count_at..][..2]);
        if count > MOST_PROGRAM_HEADERS {
            return None;
        }
        let table = read(class.word_at(&header, class.segments_at), count * class.segment_bytes as u64)?;
        let segments: Vec<Segment> =
            table.chunks_exact(class.segment_bytes).map(|bytes| class.segment(bytes)).collect();
        let of_kind = |kind| segments.iter().find(|segment| segment.kind == kind);
        let name_at = |offset: u64, most: u64| {
            let name = read(offset, most.min(MOST_NAME_BYTES).min(file_bytes.checked_sub(offset)?))?;
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            Some(last_part(&name[..end]).to_vec()).filter(|name| !name.is_empty())
        };
        let interpreter = of_kind(PT_INTERP).and_then(|segment| name_at(segment.offset, segment.bytes));
        let mut needs = Self { interpreter, libraries: Vec::new() };
        let Some(dynamic) = of_kind(PT_DYNAMIC) else { return Some(needs) };
        let entries = read(dynamic.offset, dynamic.bytes.min(MOST_DYNAMIC_BYTES))?;
        let pairs = entries
            .chunks_exact(2 * class.word)
            .map(|pair| (class.word_at(pair, 0), class.word_at(pair, class.word)));
        let pairs: Vec<(u64, u64)> = pairs.take_while(|(tag, _)| *tag != 0).collect();
        let Some((_, strings)) = pairs.iter().find(|(tag, _)| *tag == DT_STRTAB) else { return Some(needs) };
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD
                && strings.checked_sub(segment.address).is_some_and(|at| at < segment.bytes)
        };
        let Some(segment) = segments.iter().find(holds) else { return Some(needs) };
        let strings_at = segment.offset.checked_add(strings - segment.address)?;
        for (_, name) in pairs.iter().filter(|(tag, _)| *tag == DT_NEEDED) {
            needs.libraries.extend(strings_at.checked_add(*name).and_then(|at| name_at(at, MOST_NAME_BYTES)));
        }
        Some(needs)
    }
}

impl Class {
    fn word_at(&self, bytes: &[u8], at: usize) -> u64 {
        number(&bytes[at..at + self.word])
    }

    fn segment(&self, bytes: &[u8]) -> Segment {
        let [offset, address, size] = self.segment_fields.map(|at| self.word_at(bytes, at));
        Segment { kind: number(&bytes[..4]), offset, address, bytes: size }
    }
}

/// A little-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// What follows the last slash.
fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use hs_ext4::{Kind, Meta};
    use hs_units::Prng;

    use super::*;

    /// What this test itself needs, as any program for Linux.
    fn own_program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").expect("the own program")
    }

    fn needs(content: &[u8]) -> Option<Needs> {
        Needs::read(&content, content.len() as u64)
    }

    #[test]
    fn a_program_needs_its_interpreter_and_the_c_library() {
        let needs = needs(&own_program()).expect("a program");
        let interpreter = needs.interpreter.expect("it is linked dynamically");
        assert!(interpreter.starts_with(b"ld"), "{}", String::from_utf8_lossy(&interpreter));
        assert!(needs.libraries.iter().any(|name| name.starts_with(b"libc.so")));
    }

    #[test]
    fn damaged_headers_are_no_reason_to_stop() {
        let mut program = own_program();
        program.truncate(8192);
        let mut random = Prng::new(1);
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let at = random.below(1024) as usize;
            let before = std::mem::replace(&mut program[at], random.below(256) as u8);
            match needs(&program) {
                Some(_) => taken += 1,
                None => refused += 1,
            }
            if random.below(8) > 0 {
                program[at] = before;
            }
        }
        assert!(taken + refused == 20_000 && refused > 100, "{taken} {refused}");
        assert_eq!(needs(MAGIC), None);
    }

    #[test]
    fn what_a_third_of_the_programs_need_is_common_and_the_most_needed_is_first() {
        let meta = Meta::default();
        let mut plan = Plan::new(&meta).expect("a root");
        let mut libraries = Libraries::default();
        let mut add = |name: &str, bytes: u64, is_program: bool, needed: &[&str]| {
            let kind = Kind::File { bytes, runs: &[] };
            let node = plan.add(NodeId::ROOT, name.as_bytes(), &kind, &meta).expect("a file");
            let needs = Needs {
                interpreter: is_program.then(|| b"ld.so".to_vec()),
                libraries: needed.iter().map(|name| name.as_bytes().to_vec()).collect(),
            };
            libraries.by_name.insert(name.as_bytes().to_vec(), libraries.files.len());
            libraries.files.push((node, needs));
            node
        };
        let loader = add("ld.so", 100, false, &[]);
        let c = add("libc-2.36.so", 1000, false, &["ld.so"]);
        let regex = add("libpcre.so", 1000, false, &["libc.so.6"]);
        let select = add("libselinux.so", 1000, false, &["libpcre.so", "libc.so.6"]);
        add("librare.so", 1000, false, &[]);
        add("a", 1, true, &["libselinux.so"]);
        add("b", 1, true, &["libc.so.6", "libselinux.so", "gone.so"]);
        add("c", 1, true, &["libc.so.6"]);
        add("d", 1, true, &["libc.so.6", "librare.so"]);
        let large = add("liblarge.so", MOST_COMMON_BYTES, false, &[]);
        libraries.add_link(b"libc.so.6", b"/lib/libc-2.36.so");
        libraries.add_link(b"round.so", b"round.so");
        assert_eq!(libraries.find(b"round.so"), None);
        assert_eq!(libraries.common(&plan), [loader, c, regex, select]);
        // A library that is larger than all may be is none of them, nor is what fewer need than it.
        for (_, needs) in &mut libraries.files {
            if needs.interpreter.is_some() {
                needs.libraries.push(b"liblarge.so".to_vec());
            }
        }
        assert!(!libraries.common(&plan).contains(&large));
    }
}
