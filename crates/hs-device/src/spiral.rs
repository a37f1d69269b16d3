//! The geometry of a compact disc.

use crate::surface::Surface;

/// A spiral of constant pitch and constant linear density, from the inside out (ECMA-130, *Data
/// interchange on read-only 120 mm optical data disks (CD-ROM)*, clauses 10 and 11).
///
/// The area between two turns is proportional to the length of the spiral between them, so byte `p`
/// of `n` lies at the radius `√(inner² + (outer² − inner²)·p/n)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spiral {
    /// Radius of the first byte, in metres.
    pub(crate) inner: f64,
    /// Radius after the last byte, in metres.
    pub(crate) outer: f64,
    /// Distance of one turn from the next, in metres.
    pub(crate) pitch: f64,
    /// Bytes between the two.
    pub(crate) capacity: u64,
}

impl Spiral {
    /// Radius of byte `place`, in metres.
    pub(crate) fn radius(&self, place: u64) -> f64 {
        (self.inner * self.inner + self.area() * (place as f64 / self.capacity as f64)).sqrt()
    }

    /// The byte at `radius` metres.
    pub(crate) fn place_at(&self, radius: f64) -> u64 {
        let share = (radius * radius - self.inner * self.inner) / self.area();
        (share * self.capacity as f64) as u64
    }

    /// Of the ring, over π.
    fn area(&self) -> f64 {
        self.outer * self.outer - self.inner * self.inner
    }
}

impl Surface for Spiral {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn turns(&self, place: u64) -> f64 {
        (self.radius(place) - self.inner) / self.pitch
    }

    fn place(&self, turns: f64) -> u64 {
        self.place_at(self.inner + turns * self.pitch)
    }

    fn track(&self, place: u64) -> f64 {
        self.turns(place)
    }

    fn bytes_per_turn(&self, place: u64) -> f64 {
        // The derivative of `place` by turns.
        2.0 * self.radius(place) * self.pitch / self.area() * self.capacity as f64
    }
}
