//! The geometry of a hard disk.

use crate::surface::Surface;

/// Zones of as many cylinders each, from the outside in, whose tracks hold less and less (Ruemmler
/// and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994: *zoning*). All
/// tracks of a cylinder are read before the head moves on.
///
/// Changing heads and cylinders costs no time of its own here: tracks are as long as the sustained
/// rate makes them, in which data sheets include it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Zones {
    zones: Vec<Zone>,
    heads: f64,
    capacity: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Zone {
    first_byte: u64,
    first_turn: f64,
    bytes_per_turn: f64,
}

/// What a disk's data sheet says of its geometry.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ZoneTable {
    /// How many zones there are.
    pub(crate) zones: u32,
    /// Surfaces with a head.
    pub(crate) heads: u32,
    /// Bytes of the whole disk.
    pub(crate) capacity: u64,
    /// Bytes a track of the outermost zone.
    pub(crate) outer_track_bytes: f64,
    /// Bytes a track of the innermost zone; those between differ by equal steps.
    pub(crate) inner_track_bytes: f64,
}

impl Zones {
    pub(crate) fn new(table: ZoneTable) -> Self {
        let ZoneTable { outer_track_bytes: outer, inner_track_bytes: inner, .. } = table;
        let turns = table.capacity as f64 / ((outer + inner) / 2.0 * f64::from(table.zones));
        let step = (outer - inner) / f64::from(table.zones - 1);
        let mut first_byte = 0.0;
        let zones = (0..table.zones)
            .map(|number| {
                let bytes_per_turn = outer - step * f64::from(number);
                let first_turn = turns * f64::from(number);
                let zone = Zone { first_byte: first_byte as u64, first_turn, bytes_per_turn };
                first_byte += turns * bytes_per_turn;
                zone
            })
            .collect();
        Self { zones, heads: f64::from(table.heads), capacity: table.capacity }
    }

    /// Cylinders of the whole disk.
    pub(crate) fn cylinders(&self) -> f64 {
        self.track(self.capacity)
    }

    fn zone(&self, place: u64) -> &Zone {
        let after = self.zones.partition_point(|zone| zone.first_byte <= place);
        &self.zones[after.saturating_sub(1)]
    }
}

impl Surface for Zones {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn turns(&self, place: u64) -> f64 {
        let zone = self.zone(place);
        zone.first_turn + (place - zone.first_byte) as f64 / zone.bytes_per_turn
    }

    fn place(&self, turns: f64) -> u64 {
        let after = self.zones.partition_point(|zone| zone.first_turn <= turns);
        let zone = &self.zones[after.saturating_sub(1)];
        zone.first_byte + ((turns - zone.first_turn) * zone.bytes_per_turn) as u64
    }

    fn track(&self, place: u64) -> f64 {
        // All heads stand over the same cylinder.
        (self.turns(place) / self.heads).floor()
    }

    fn bytes_per_turn(&self, place: u64) -> f64 {
        self.zone(place).bytes_per_turn
    }
}
