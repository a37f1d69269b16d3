//! Blocks of real, mounted file systems are laid anew.

mod cycles;
mod kills;
mod mounted;
mod moves;
mod refusals;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().is_some_and(|word| word == kills::WORD) {
        kills::relocate_and_tell(words);
        return ExitCode::SUCCESS;
    }
    hs_testing::run_in_order(&[moves::TESTS, refusals::TESTS, kills::TESTS, cycles::TESTS], mounted::machine)
}
