//! Writes a profile whose reads come in another order, to see what a start costs that was recorded otherwise:
//! `shuffle IN.hsp OUT.hsp REACH SEED` moves each read by up to REACH reads.

use std::error::Error;

use hs_trace::Profile;
use hs_units::Prng;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, reach, seed] = &words[..] else { return Err("usage: shuffle IN OUT REACH SEED".into()) };
    let (reach, seed): (u64, u64) = (reach.parse()?, seed.parse()?);
    let mut profile = Profile::decode(&std::fs::read(from)?)?;
    let digests: std::collections::HashMap<_, _> =
        profile.first_access().into_iter().zip(profile.digests.iter().copied()).collect();
    let mut random = Prng::new(seed);
    let times: Vec<_> = profile.reads.iter().map(|read| read.at).collect();
    let mut order: Vec<(u64, _)> =
        (0_u64..).zip(&profile.reads).map(|(place, read)| (place + random.below(reach + 1), *read)).collect();
    order.sort_by_key(|(place, _)| *place);
    profile.reads =
        order.into_iter().zip(times).map(|((_, read), at)| hs_trace::Read { at, ..read }).collect();
    profile.digests = profile.first_access().iter().map(|lba| digests[lba]).collect();
    std::fs::write(to, profile.encode()?)?;
    Ok(())
}
