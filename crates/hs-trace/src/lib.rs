//! Profiles: the record of one start's reads.
