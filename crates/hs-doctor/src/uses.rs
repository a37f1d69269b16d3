//! What a user may want to do, and whether this machine can do it.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{Check, CheckState};

/// What makes any start slower.
const SPEED: &[&str] = &["memory", "memory cgroup", "cores"];

/// One thing to do, and the checks that it stands on.
struct Purpose {
    name: &'static str,
    command: &'static str,
    /// True if it needs the main path.
    starts: bool,
    /// Names of the checks that it needs besides.
    needs: &'static [&'static str],
    /// Names of the checks that make it slower.
    speed: &'static [&'static str],
}

const PURPOSES: &[Purpose] = &[
    Purpose { name: "start a program", command: "run", starts: true, needs: &[], speed: SPEED },
    Purpose {
        name: "boot a guest",
        command: "boot",
        starts: false,
        needs: &[crate::guests::CHOICE],
        speed: SPEED,
    },
    Purpose { name: "make a stick", command: "iso", starts: true, needs: &[crate::tools::ISO], speed: &[] },
    Purpose { name: "serve images", command: "serve", starts: false, needs: &[], speed: SPEED },
    Purpose {
        name: "start containers",
        command: "snapshotter",
        starts: true,
        needs: &[crate::tools::CONTAINERD],
        speed: SPEED,
    },
    Purpose {
        name: "start this system",
        command: "accelerate",
        starts: false,
        needs: &[crate::page_cache::RECORDING],
        speed: &[],
    },
    Purpose {
        name: "fill a file",
        command: "attach",
        starts: false,
        needs: &[crate::filling::NAME],
        speed: &[],
    },
    Purpose {
        name: "see a report",
        command: "report",
        starts: false,
        needs: &[crate::tools::PAGE],
        speed: &[],
    },
];

/// What came of one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Use {
    /// What a user may want to do.
    name: &'static str,
    /// The command that does it.
    command: &'static str,
    /// The worst of what it stands on.
    state: CheckState,
    /// The same in words, with what to do.
    says: String,
}

/// All of them, by what was found.
pub(crate) fn of(checks: &[Check]) -> Vec<Use> {
    PURPOSES.iter().map(|purpose| judge(purpose, checks)).collect()
}

fn judge(purpose: &Purpose, checks: &[Check]) -> Use {
    let is_needed =
        |check: &&Check| purpose.starts && check.main_path || purpose.needs.contains(&check.name.as_str());
    let is_slower = |check: &&Check| {
        check.state == CheckState::Degraded
            && (is_needed(check) || purpose.speed.contains(&check.name.as_str()))
    };
    let missing: Vec<&Check> =
        checks.iter().filter(is_needed).filter(|check| check.state == CheckState::Missing).collect();
    let slower: Vec<&Check> = checks.iter().filter(is_slower).collect();
    let (state, says) = match (missing.as_slice(), slower.as_slice()) {
        ([], []) => (CheckState::Ok, "works".to_owned()),
        ([], slower) => (CheckState::Degraded, format!("works slower: {}", advice(slower))),
        (missing, _) => (CheckState::Missing, format!("needs {}", advice(missing))),
    };
    Use { name: purpose.name, command: purpose.command, state, says }
}

/// Names with what to do about each.
fn advice(checks: &[&Check]) -> String {
    let each: Vec<_> = checks.iter().map(|check| format!("{}: {}", check.name, check.advice)).collect();
    each.join("; ")
}

/// One line for each.
pub(crate) fn lines(uses: &[Use]) -> String {
    uses.iter().fold(String::new(), |mut text, one| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<17} {:<11} {}", one.name, one.command, one.says);
        text
    })
}

/// The names of all checks that a use stands on.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PURPOSES.iter().flat_map(|purpose| purpose.needs.iter().chain(purpose.speed)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_stands_on_its_own_checks() {
        let check = |name, state, advice| Check::ok(name, "x", "x").but(state, advice);
        let said = |checks: &[Check], command| {
            let all = of(checks);
            let one = all.into_iter().find(|one| one.command == command).expect("a use");
            (one.state, one.says)
        };
        let fuse = check("/dev/fuse", CheckState::Missing, "modprobe fuse").on_main_path(true);
        let tools = check(crate::tools::ISO, CheckState::Missing, "apt install xorriso");
        let cores = check("cores", CheckState::Degraded, "more cores");
        let all = [fuse, tools, cores];
        let needs = |text: &str| (CheckState::Missing, text.to_owned());
        assert_eq!(said(&all, "run"), needs("needs /dev/fuse: modprobe fuse"));
        assert_eq!(
            said(&all, "iso"),
            needs("needs /dev/fuse: modprobe fuse; tools of iso: apt install xorriso")
        );
        assert_eq!(said(&all, "serve"), (CheckState::Degraded, "works slower: cores: more cores".to_owned()));
        assert_eq!(said(&all, "report"), (CheckState::Ok, "works".to_owned()));
    }
}
