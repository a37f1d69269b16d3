//! What a snapshot says of itself: the last block of its disk.
//!
//! ```text
//! 0       8            12
//! ├ magic ┼ length LE ─┼─ JSON of that length ─┼─ zeros
//! ```
//!
//! Its digest is the image's, as for every other block: a snapshot that was changed does not get this far.

use hs_format::limits::MAX_DISK_BYTES;
use hs_start::boot::STATE_BYTES;
use hs_units::{BLOCK_BYTES, ByteRange, ByteSize};
use serde::{Deserialize, Serialize};

use crate::ResumeError;

/// What the block begins with.
const MAGIC: &[u8; 8] = b"HSRESUME";
/// Where the JSON begins.
const HEADER_BYTES: usize = 12;
/// The version that is written. Guests of version 1 have no balloon and no port for an agent, those of
/// version 2 no network card; machines of version 3 have no place for a second processor.
const FORMAT: u32 = 4;
/// The versions that are read.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=FORMAT;

/// A part of the snapshot's disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Part {
    fn range(self) -> Option<ByteRange> {
        self.offset.checked_add(self.bytes).map(|_| ByteRange::new(self.offset, self.bytes))
    }
}

/// A snapshot of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of this format.
    pub format: u32,
    /// The digest of the disk that the guest was booted from.
    pub disk_digest: String,
    /// The bytes of that disk.
    pub disk_bytes: u64,
    /// The file name of its image, to find it again.
    pub disk_name: String,
    /// The version of QEMU.
    pub qemu: String,
    /// The full name of the machine.
    pub machine: String,
    /// The model of the processor.
    pub cpu: String,
    /// What executed it: `kvm` or `tcg`.
    pub accelerator: String,
    /// The guest's memory, which begins at byte 0.
    pub memory_bytes: u64,
    /// The state of its devices.
    pub state: Part,
    /// A qcow2 file with what it wrote to its disk.
    pub overlay: Part,
    /// Whether it has a network card.
    #[serde(default)]
    pub has_network: bool,
}

impl Description {
    /// The version of the format that is written.
    pub const FORMAT: u32 = FORMAT;

    /// Whether the guest has a balloon, and a port for an agent.
    #[must_use]
    pub const fn has_agent(&self) -> bool {
        self.format > 1
    }

    /// Whether the translator's machine has a place for a second processor.
    #[must_use]
    pub const fn has_second_place(&self) -> bool {
        self.format > 3
    }

    /// As a block.
    ///
    /// # Errors
    /// When it does not fit into one.
    pub fn encode(&self) -> anyhow::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let room = BLOCK_BYTES as usize - HEADER_BYTES;
        anyhow::ensure!(json.len() <= room, "a description of {} bytes has no room in a block", json.len());
        let mut block = MAGIC.to_vec();
        block.extend((json.len() as u32).to_le_bytes());
        block.extend(json);
        block.resize(BLOCK_BYTES as usize, 0);
        Ok(block)
    }

    /// Reads the last block of a disk of `disk_bytes` in the image called `snapshot`.
    ///
    /// # Errors
    /// When it is none, its parts do not lie in the disk, or a size is larger than that of any guest.
    pub fn decode(block: &[u8], disk_bytes: u64, snapshot: &str) -> Result<Self, ResumeError> {
        let json = block
            .strip_prefix(MAGIC)
            .and_then(|rest| rest.split_first_chunk::<4>())
            .and_then(|(len, rest)| rest.get(..u32::from_le_bytes(*len) as usize))
            .ok_or_else(|| ResumeError::NoSnapshot { snapshot: snapshot.to_owned() })?;
        let unusable = |why: String| ResumeError::Description { snapshot: snapshot.to_owned(), why };
        let format: Format = serde_json::from_slice(json).map_err(|error| unusable(error.to_string()))?;
        if !FORMATS.contains(&format.format) {
            return Err(unusable(format!(
                "it has format {}, and formats to {FORMAT} are known",
                format.format
            )));
        }
        let found: Self = serde_json::from_slice(json).map_err(|error| unusable(error.to_string()))?;
        let memory = Part { offset: 0, bytes: found.memory_bytes };
        let mut end = 0;
        for (name, part) in [("memory", memory), ("state", found.state), ("overlay", found.overlay)] {
            let range = part.range().filter(|range| range.len > 0 && range.offset >= end);
            let range = range.filter(|range| range.end() <= disk_bytes);
            end = range.ok_or_else(|| unusable(format!("its {name} does not lie in it")))?.end();
        }
        if !found.memory_bytes.is_multiple_of(1 << 20) {
            return Err(unusable(format!("no guest has {} bytes of memory", found.memory_bytes)));
        }
        if found.memory_bytes != found.state.offset {
            return Err(unusable("its memory does not end where the state of its devices begins".to_owned()));
        }
        // All of the state is read at once, and the overlay of a new guest has a table over its disk.
        for (name, bytes, most) in [
            ("the state of its devices has", found.state.bytes, STATE_BYTES),
            ("its disk has", found.disk_bytes, MAX_DISK_BYTES),
        ] {
            if bytes > most {
                let (bytes, most) = (ByteSize(bytes), ByteSize(most));
                return Err(unusable(format!("{name} {bytes}, and {most} is the most")));
            }
        }
        // These become words of QEMU's command line, where a comma would begin another setting.
        let is_name = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let is_cpu = |text: &str| text.split(',').all(|word| is_name(word.strip_prefix('+').unwrap_or(word)));
        if !is_name(&found.machine) || !is_cpu(&found.cpu) {
            return Err(unusable(format!("it names machine '{}' and CPU '{}'", found.machine, found.cpu)));
        }
        Ok(found)
    }
}

/// What every version says.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = (4 << 20) + 5 * BLOCK_BYTES;

    fn description() -> Description {
        let part = |first: u64, blocks| Part { offset: (4 << 20) + first * BLOCK_BYTES, bytes: blocks };
        Description {
            format: FORMAT,
            disk_digest: "b3-00".to_owned(),
            disk_bytes: 1 << 20,
            disk_name: "debian.hsi".to_owned(),
            qemu: "7.2.22".to_owned(),
            machine: "pc-i440fx-7.2".to_owned(),
            cpu: "qemu64,+rdrand".to_owned(),
            accelerator: "tcg".to_owned(),
            memory_bytes: 4 << 20,
            state: part(0, 5000),
            overlay: part(2, 8192),
            has_network: true,
        }
    }

    fn refusal(changed: &Description) -> String {
        Description::decode(&changed.encode().unwrap(), DISK_BYTES, "s.hsi").unwrap_err().to_string()
    }

    #[test]
    fn it_survives() {
        let block = description().encode().unwrap();
        assert_eq!(block.len() as u64, BLOCK_BYTES);
        assert_eq!(Description::decode(&block, DISK_BYTES, "s.hsi").unwrap(), description());
    }

    #[test]
    fn guests_of_the_first_format_have_no_agent() {
        let old = Description { format: 1, ..description() };
        let block = old.encode().unwrap();
        assert!(!Description::decode(&block, DISK_BYTES, "s.hsi").unwrap().has_agent());
        assert!(description().has_agent());
    }

    #[test]
    fn machines_of_the_third_format_have_one_place_for_a_processor() {
        let block = Description { format: 3, ..description() }.encode().unwrap();
        assert!(!Description::decode(&block, DISK_BYTES, "s.hsi").unwrap().has_second_place());
        assert!(description().has_second_place());
    }

    #[test]
    fn guests_of_the_second_format_have_no_network() {
        let block = Description { format: 2, has_network: false, ..description() }.encode().unwrap();
        let length = u32::from_le_bytes(block[8..12].try_into().unwrap()) as usize;
        let json = std::str::from_utf8(&block[12..12 + length]).unwrap();
        let json = json.replace(",\"has_network\":false", "");
        assert!(json.len() < length);
        let mut old = [&MAGIC[..], &(json.len() as u32).to_le_bytes(), json.as_bytes()].concat();
        old.resize(BLOCK_BYTES as usize, 0);
        let found = Description::decode(&old, DISK_BYTES, "s.hsi").unwrap();
        assert!(found.has_agent() && !found.has_network);
    }

    #[test]
    fn what_is_none_is_refused() {
        let block = description().encode().unwrap();
        for wrong in [vec![], vec![0; 4096], block[..8].to_vec(), block[..200].to_vec(), {
            let mut long = block.clone();
            long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
            long
        }] {
            let refused = Description::decode(&wrong, DISK_BYTES, "s.hsi").unwrap_err().to_string();
            assert!(refused.contains("no snapshot") && refused.contains("--snapshot-out"), "{refused}");
        }
        let mut spoiled = block;
        spoiled[20] = b'{';
        let refused = Description::decode(&spoiled, DISK_BYTES, "s.hsi").unwrap_err().to_string();
        assert!(refused.contains("cannot be used"), "{refused}");
    }

    /// What is claimed costs nothing where the snapshot is zero.
    #[test]
    fn sizes_that_no_guest_has_are_refused() {
        let huge = |state_bytes, disk_bytes| {
            let state = Part { offset: 4 << 20, bytes: state_bytes };
            let overlay = Part { offset: (4 << 20) + state_bytes.next_multiple_of(BLOCK_BYTES), bytes: 8192 };
            let block = Description { state, overlay, disk_bytes, ..description() }.encode().unwrap();
            Description::decode(&block, MAX_DISK_BYTES, "s.hsi").map_err(|error| error.to_string())
        };
        assert!(huge(STATE_BYTES, MAX_DISK_BYTES).is_ok());
        for bytes in [STATE_BYTES + 1, 4 << 30, 15 << 40] {
            let refused = huge(bytes, 1 << 20).unwrap_err();
            assert!(refused.contains("state of its devices") && refused.contains("64 MiB"), "{refused}");
        }
        for bytes in [MAX_DISK_BYTES + 1, 1 << 55, 1 << 63, u64::MAX] {
            let refused = huge(5000, bytes).unwrap_err();
            assert!(refused.contains("its disk has") && refused.contains("16 TiB"), "{refused}");
        }
    }

    #[test]
    fn parts_lie_in_the_disk_and_words_are_words() {
        let outside = Part { offset: DISK_BYTES - 1, bytes: 2 };
        assert!(refusal(&Description { overlay: outside, ..description() }).contains("overlay"));
        let endless = Part { offset: u64::MAX, bytes: 2 };
        assert!(refusal(&Description { state: endless, ..description() }).contains("state"));
        let in_memory = Part { offset: 0, bytes: 4096 };
        assert!(refusal(&Description { state: in_memory, ..description() }).contains("state"));
        assert!(refusal(&Description { memory_bytes: 0, ..description() }).contains("memory"));
        assert!(refusal(&Description { memory_bytes: 4097, ..description() }).contains("4097"));
        assert!(refusal(&Description { format: 7, ..description() }).contains("format 7"));
        let longer = Part { offset: (4 << 20) + BLOCK_BYTES, bytes: 4096 };
        assert!(refusal(&Description { state: longer, ..description() }).contains("does not end where"));
        for word in ["pc,kernel=/etc/shadow", "", "pc dumpdtb"] {
            assert!(refusal(&Description { machine: word.to_owned(), ..description() }).contains("machine"));
        }
        for word in ["qemu64,x=/y", "qemu64,,", ""] {
            assert!(refusal(&Description { cpu: word.to_owned(), ..description() }).contains("CPU"));
        }
    }
}
