//! The format from outside: whole images in memory, round trips, damage, hostile tables, golden bytes.

mod composed;
mod damage;
mod golden;
mod hostile;
mod hostile_superblock;
mod reader;
mod round_trip;
mod sample;
