//! System calls that no server makes, refused by a filter: seccomp(2).

use std::io;

use libc::{c_long, sock_filter};

/// The filter's words: linux/filter.h, linux/seccomp.h, linux/audit.h.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const JUMP_IF_ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// The lower half of the first argument, on processors that keep it first.
const FIRST_ARGUMENT_AT: u32 = 16;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Numbers from here on are of another way to call (x32), which nothing of this program uses.
const FIRST_OF_ANOTHER_WAY: u32 = 0x4000_0000;

/// Flags of clone(2) with which what is started has a namespace of its own: in one of users it is root, and
/// the kernel's code for root alone is open to it.
const NAMESPACES: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u32;

/// What looks into or takes over other processes, the kernel or the machine.
const OF_THE_MACHINE: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    // Its requests are made by the kernel, past this filter.
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];
/// Ports of the machine, which only this processor has.
#[cfg(target_arch = "x86_64")]
const OF_PORTS: &[c_long] = &[libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const OF_PORTS: &[c_long] = &[];
const OF_MOUNTS: &[c_long] = &[
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    // Not a mount, but only servers of mounts warm pages by it; with CAP_DAC_READ_SEARCH it opens any file.
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
];
const OF_RINGS: &[c_long] = &[libc::SYS_io_uring_enter];
const OF_PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];
/// Whose files are, what may be done with them, and who this process is. Landlock covers none of it.
const OF_OWNERS: &[c_long] = &[
    libc::SYS_capset,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_mknodat,
    libc::SYS_removexattr,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
    libc::SYS_setxattr,
];
/// The same, as only this processor calls it.
#[cfg(target_arch = "x86_64")]
const OF_OWNERS_HERE: &[c_long] = &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_mknod];
#[cfg(not(target_arch = "x86_64"))]
const OF_OWNERS_HERE: &[c_long] = &[];
/// Not every libc names it yet: asm-generic/unistd.h.
const FCHMODAT2: c_long = 452;

/// When a system call is answered with an error.
#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    /// Its first argument has one of these bits.
    AnyBit(u32),
    /// Its first argument is this.
    Equals(u32),
}

/// A system call that is not made.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    number: c_long,
    when: When,
    error: i32,
}

impl Refusal {
    const fn of(number: c_long) -> Self {
        Self { number, when: When::Always, error: libc::EPERM }
    }
}

/// From now on this thread, and those that it starts, get EPERM for these system calls. The thread must not
/// be able to gain privileges any more.
///
/// # Errors
/// When the kernel has no filters, or none is written for this processor.
pub(super) fn refuse(but_programs: bool, but_mounts: bool, but_rings: bool) -> io::Result<()> {
    enforce(&first(but_programs, but_mounts, but_rings))
}

/// From now on no thread of this process makes system calls that only the beginning of a server takes.
///
/// # Errors
/// As [`refuse`].
pub(super) fn refuse_beginnings(but_unix_sockets: bool) -> io::Result<()> {
    enforce(&beginnings(but_unix_sockets))
}

fn first(but_programs: bool, but_mounts: bool, but_rings: bool) -> Vec<Refusal> {
    let mut refused = [OF_THE_MACHINE, OF_PORTS].concat();
    if !but_mounts {
        refused.extend(OF_MOUNTS);
    }
    if !but_programs {
        refused.extend(OF_PROGRAMS);
    }
    if !but_rings {
        refused.extend(OF_RINGS);
    }
    let mut refusals: Vec<Refusal> = refused.into_iter().map(Refusal::of).collect();
    let namespaces = When::AnyBit(NAMESPACES);
    refusals.push(Refusal { when: namespaces, ..Refusal::of(libc::SYS_clone) });
    // Its flags lie in memory, where a filter cannot look. Libraries use clone(2) where there is no
    // clone3(2).
    refusals.push(Refusal { error: libc::ENOSYS, ..Refusal::of(libc::SYS_clone3) });
    refusals
}

fn beginnings(but_unix_sockets: bool) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> =
        OF_OWNERS.iter().chain(OF_OWNERS_HERE).copied().map(Refusal::of).collect();
    if !but_unix_sockets {
        let unix = When::Equals(libc::AF_UNIX as u32);
        refusals.push(Refusal { when: unix, ..Refusal::of(libc::SYS_socket) });
    }
    refusals
}

/// For all threads of this process.
fn enforce(refusals: &[Refusal]) -> io::Result<()> {
    let mut filter = program(ARCHITECTURE.ok_or(io::ErrorKind::Unsupported)?, refusals);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program and its instructions live until the call returns, which copies and checks them.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0 => Ok(()),
        error if error < 0 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

/// Allows everything but these system calls, and nothing of another architecture.
fn program(architecture: u32, refusals: &[Refusal]) -> Vec<sock_filter> {
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let answer = |error: i32| step(RETURN, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0);
    let allow = step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let mut steps = vec![
        step(LOAD_WORD, ARCHITECTURE_AT, 0, 0),
        step(JUMP_IF_EQUAL, architecture, 1, 0),
        answer(libc::EPERM),
        step(LOAD_WORD, NUMBER_AT, 0, 0),
        step(JUMP_IF_ABOVE, FIRST_OF_ANOTHER_WAY - 1, 0, 1),
        answer(libc::EPERM),
    ];
    for refusal in refusals {
        let is_it = |otherwise| step(JUMP_IF_EQUAL, refusal.number as u32, 0, otherwise);
        let load = step(LOAD_WORD, FIRST_ARGUMENT_AT, 0, 0);
        match refusal.when {
            When::Always => steps.extend([is_it(1), answer(refusal.error)]),
            When::AnyBit(bits) => {
                let test = step(JUMP_IF_ANY_BIT, bits, 0, 1);
                steps.extend([is_it(4), load, test, answer(refusal.error), allow]);
            }
            When::Equals(value) => {
                let test = step(JUMP_IF_EQUAL, value, 0, 1);
                steps.extend([is_it(4), load, test, answer(refusal.error), allow]);
            }
        }
    }
    steps.push(allow);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

    /// Runs the filter as the kernel does.
    fn verdict(steps: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = &steps[at];
            let jump = |is_so: bool| usize::from(if is_so { step.jt } else { step.jf });
            at += 1 + match step.code {
                LOAD_WORD => {
                    word = match step.k {
                        NUMBER_AT => number,
                        ARCHITECTURE_AT => architecture,
                        _ => argument,
                    };
                    0
                }
                JUMP_IF_EQUAL => jump(word == step.k),
                JUMP_IF_ABOVE => jump(word > step.k),
                JUMP_IF_ANY_BIT => jump(word & step.k != 0),
                _ => return step.k,
            };
        }
    }

    #[test]
    fn exactly_what_is_listed_is_refused() {
        let refused: Vec<c_long> = [OF_THE_MACHINE, OF_PORTS, OF_MOUNTS, OF_PROGRAMS, OF_RINGS].concat();
        let steps = program(7, &first(false, false, false));
        for number in 0..1000 {
            let expected = match c_long::from(number) {
                libc::SYS_clone3 => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
                number if refused.contains(&number) => REFUSAL,
                _ => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(verdict(&steps, 7, number, 0), expected, "{number}");
            assert_eq!(verdict(&steps, 8, number, 0), REFUSAL, "another architecture, {number}");
        }
        for number in [FIRST_OF_ANOTHER_WAY, FIRST_OF_ANOTHER_WAY + 1, u32::MAX] {
            assert_eq!(verdict(&steps, 7, number, 0), REFUSAL, "{number}");
        }
        assert_eq!(verdict(&steps, 7, FIRST_OF_ANOTHER_WAY - 1, 0), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn rings_that_are_there_are_used_and_no_others_made() {
        let steps = program(7, &first(false, false, true));
        let verdict = |number: c_long| verdict(&steps, 7, number as u32, 0);
        assert_eq!(verdict(libc::SYS_io_uring_enter), libc::SECCOMP_RET_ALLOW);
        assert_eq!(verdict(libc::SYS_io_uring_setup), REFUSAL);
        assert_eq!(verdict(libc::SYS_io_uring_register), REFUSAL);
    }

    #[test]
    fn namespaces_and_sockets_of_the_file_system_are_told_by_the_argument() {
        let clone = |flags: libc::c_int| {
            verdict(&program(7, &first(true, true, true)), 7, libc::SYS_clone as u32, flags as u32)
        };
        assert_eq!(clone(libc::CLONE_VM | libc::CLONE_THREAD), libc::SECCOMP_RET_ALLOW);
        assert_eq!(clone(libc::CLONE_NEWUSER), REFUSAL);
        assert_eq!(clone(libc::CLONE_VM | libc::CLONE_NEWNET), REFUSAL);
        let socket = |but_unix, domain: libc::c_int| {
            verdict(&program(7, &beginnings(but_unix)), 7, libc::SYS_socket as u32, domain as u32)
        };
        assert_eq!(socket(false, libc::AF_UNIX), REFUSAL);
        assert_eq!(socket(false, libc::AF_INET), libc::SECCOMP_RET_ALLOW);
        assert_eq!(socket(true, libc::AF_UNIX), libc::SECCOMP_RET_ALLOW);
    }
}
