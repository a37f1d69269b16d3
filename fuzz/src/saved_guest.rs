//! Any bytes as the description of a saved guest, with the beginning of its overlay behind it.

use hs_format::limits::MAX_DISK_BYTES;
use hs_resume::description::Description;
use hs_resume::overlay;
use hs_units::BLOCK_BYTES;

/// More than any state of devices that is read.
const MOST_STATE_BYTES: u64 = 1 << 30;

/// Whether both are accepted; panics when an accepted description has a size that nothing bounds, or changes
/// by being written and read.
pub fn run(data: &[u8]) -> bool {
    let (block, head) = data.split_at(data.len().min(BLOCK_BYTES as usize));
    // A whole block is the end of a snapshot that is as large as an image can be.
    let Ok(found) = Description::decode(block, MAX_DISK_BYTES, "input") else {
        assert!(overlay::check(data, 0).is_err(), "no guest has a disk of no bytes");
        return false;
    };
    let [memory, state, overlay] = [
        (0, found.memory_bytes),
        (found.state.offset, found.state.bytes),
        (found.overlay.offset, found.overlay.bytes),
    ];
    assert!(memory.1 <= state.0 && state.0 + state.1 <= overlay.0 && overlay.0 + overlay.1 <= MAX_DISK_BYTES);
    assert!(state.1 <= MOST_STATE_BYTES && found.disk_bytes <= MAX_DISK_BYTES, "{found:?}");
    assert!(!found.machine.contains(',') && !found.machine.contains('/') && !found.cpu.contains('/'));
    // What older versions leave out makes it longer, and a block may be too small for it then.
    if let Ok(written) = found.encode() {
        let read = Description::decode(&written, MAX_DISK_BYTES, "written");
        assert_eq!(read.expect("as it was"), found);
    }
    overlay::check(head, found.disk_bytes).is_ok()
}
