//! `headstart lab`: the commands that serve; the others are in `hs-lab-real`.

pub(crate) mod disk;
