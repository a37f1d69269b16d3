//! Guests: whether User-mode Linux and QEMU run any here, found out by running one of a few instructions,
//! and which of them `boot` will use.

use hs_guest::qemu::{self, Accelerator};
use hs_guest::{uml, xstate};

use crate::namespaces::User;
use crate::{Check, CheckState};
use hs_start::boot;

const UML_USE: &str = "boot, demo: runs guests without virtualisation";
const QEMU_USE: &str = "boot --vmm qemu; boot where User-mode Linux runs no guest";
const KVM_USE: &str = "boot by QEMU: at the speed of this processor";
pub(crate) const CHOICE: &str = "User-mode Linux or QEMU";
const CHOICE_USE: &str = "boot, demo: what --vmm auto uses";

/// What one of them came to: what was found, or why it cannot be used.
type Tried = Result<String, String>;

/// As root, guests are really run, in mounts of their own, which go with the thread that makes them.
pub(crate) fn checks(user: User) -> Vec<Check> {
    if !user.is_root() {
        let check = Check::ok(CHOICE, "not tried", CHOICE_USE);
        return vec![check.but(CheckState::Missing, "run as root (`sudo headstart doctor` tries it)")];
    }
    let tried = std::thread::scope(|scope| {
        let tries = scope.spawn(|| {
            hs_linux::rootenv::enter_private_mounts().map_err(|error| error.to_string())?;
            Ok::<_, String>((try_uml(), try_qemu()))
        });
        tries.join().unwrap_or_else(|_| Err("the trial of guests failed".to_owned()))
    });
    let (uml, (tcg, kvm)) = tried.unwrap_or_else(|why| {
        let failed = || Err(why.clone());
        (failed(), (failed(), failed()))
    });
    judge(&uml, &tcg, &kvm)
}

fn judge(uml: &Tried, tcg: &Tried, kvm: &Tried) -> Vec<Check> {
    let check = |name: &str, tried: &Tried, needed_for, state, advice: &str| match tried {
        Ok(found) => Check::ok(name, found, needed_for),
        Err(why) => Check::ok(name, why, needed_for).but(state, advice),
    };
    let uml_advice = "apt install user-mode-linux if it is not installed; else see docs/GUESTS.md: until then, \
                      QEMU boots guests";
    let kvm_advice = "only QEMU needs it: without it, its guests run some ten times slower";
    let qemu_advice = "apt install qemu-system-x86, for systems with a kernel of their own";
    vec![
        check(uml::PROGRAM, uml, UML_USE, CheckState::Missing, uml_advice),
        check(qemu::PROGRAM, tcg, QEMU_USE, CheckState::Missing, qemu_advice),
        check("KVM", kvm, KVM_USE, CheckState::Degraded, kvm_advice),
        choice(uml, tcg, kvm),
    ]
}

/// What `--vmm auto` comes to, and why.
fn choice(uml: &Tried, tcg: &Tried, kvm: &Tried) -> Check {
    let instead = || uml.as_ref().err().map(|why| format!("User-mode Linux cannot ({why})"));
    let slower = "what it boots must have a kernel, in the disk or by --kernel";
    match (instead(), tcg, kvm) {
        (None, ..) => Check::ok(CHOICE, "User-mode Linux: a guest ran on it", CHOICE_USE),
        (Some(why), Ok(_), Ok(_)) => {
            Check::ok(CHOICE, format!("QEMU with KVM, if the guest's kernel runs so: {why}"), CHOICE_USE)
                .but(CheckState::Degraded, slower)
        }
        (Some(why), Ok(_), Err(_)) => Check::ok(
            CHOICE,
            format!("QEMU's translator, some ten times slower: {why}, and KVM does not run"),
            CHOICE_USE,
        )
        .but(CheckState::Degraded, slower),
        (Some(why), Err(_), _) => Check::ok(CHOICE, format!("none: {why}, nor can QEMU"), CHOICE_USE)
            .but(CheckState::Missing, "apt install user-mode-linux, or qemu-system-x86"),
    }
}

fn try_uml() -> Tried {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let kernel = uml::find_kernel(None, &path).map_err(|_| "not found".to_owned())?;
    boot::try_uml(&kernel).map_err(|error| format!("{error:#}"))?;
    let helped = xstate::area().ok().filter(|area| area.is_too_large);
    let helped = helped.map(|area| format!(", helped by us: {}", area.describe())).unwrap_or_default();
    Ok(format!("{}: a guest ran{helped}", super::tools::version(&kernel, "--version")))
}

/// With the translator, and with KVM.
fn try_qemu() -> (Tried, Tried) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Ok(program) = qemu::find_program(&path) else {
        return (Err("not found".to_owned()), Err("there is no QEMU to try it with".to_owned()));
    };
    let tried = |accelerator| boot::try_qemu(&program, accelerator).map_err(|error| format!("{error:#}"));
    let version = super::tools::version(&program, "--version");
    (
        tried(Accelerator::Tcg).map(|()| format!("{version}: its translator runs")),
        tried(Accelerator::Kvm)
            .map(|()| "runs instructions; each boot tries it with the guest's kernel".to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_told_with_the_reason() {
        let (ok, no) = (|| Ok("9.9".to_owned()), || Err("the reason".to_owned()));
        let choice = |uml: &Tried, tcg: &Tried, kvm: &Tried| {
            let checks = judge(uml, tcg, kvm);
            for check in &checks {
                assert_eq!(check.state == CheckState::Ok, check.advice.is_empty(), "{check:?}");
            }
            let last = checks.last().unwrap();
            (last.state, last.found.clone())
        };
        let (state, found) = choice(&ok(), &no(), &no());
        assert!(state == CheckState::Ok && found.starts_with("User-mode Linux"), "{found}");
        let (state, found) = choice(&no(), &ok(), &ok());
        assert!(state == CheckState::Degraded && found.starts_with("QEMU with KVM"), "{found}");
        assert!(found.contains("the reason"), "{found}");
        let (_, found) = choice(&no(), &ok(), &no());
        assert!(found.starts_with("QEMU's translator") && found.contains("the reason"), "{found}");
        let (state, found) = choice(&no(), &no(), &no());
        assert!(state == CheckState::Missing && found.starts_with("none"), "{found}");
    }
}
