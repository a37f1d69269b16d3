//! System calls that a command which is confined cannot make: those by which it would reach what no namespace
//! is of.
//!
//! Much shorter than a container engine's list: most of what that holds needs capabilities which a confined
//! command does not have. A filter is a program for the kernel's packet filter (seccomp(2), section
//! "Filters"); this one is made of blocks, one for each kind of system calls that the processor knows.

use rustix::io::Errno;

/// The numbers of the calls for one kind of programs.
struct Calls {
    /// As `seccomp_data` tells the kind: `AUDIT_ARCH_…` of linux/audit.h.
    kind: u32,
    /// Refused.
    refused: [u32; 9],
    /// Take flags first, among them that for a user namespace, in which a process has every capability again.
    takes_flags: [u32; 2],
    /// Does the same with flags that a filter cannot see. C libraries do without it.
    clone3: u32,
    /// Asks for huge pages, among other things.
    madvise: u32,
    /// Among its requests are two that type into the terminal, for the shell that reads from it afterwards.
    ioctl: u32,
}

/// Keys (of the user, whatever the namespace), programs and events of the kernel, pages' faults, and a second
/// way to make calls.
#[cfg(target_arch = "x86_64")]
const KINDS: [Calls; 2] = [
    Calls {
        kind: 0xc000_003e,
        refused: [
            libc::SYS_add_key as u32,
            libc::SYS_request_key as u32,
            libc::SYS_keyctl as u32,
            libc::SYS_bpf as u32,
            libc::SYS_perf_event_open as u32,
            libc::SYS_userfaultfd as u32,
            libc::SYS_io_uring_setup as u32,
            libc::SYS_io_uring_enter as u32,
            libc::SYS_io_uring_register as u32,
        ],
        takes_flags: [libc::SYS_clone as u32, libc::SYS_unshare as u32],
        clone3: libc::SYS_clone3 as u32,
        madvise: libc::SYS_madvise as u32,
        ioctl: libc::SYS_ioctl as u32,
    },
    // Of programs for 32 bits, by asm/unistd_32.h.
    Calls {
        kind: 0x4000_0003,
        refused: [286, 287, 288, 357, 336, 374, 425, 426, 427],
        takes_flags: [120, 310],
        clone3: 435,
        madvise: 219,
        ioctl: 54,
    },
];
#[cfg(not(target_arch = "x86_64"))]
const KINDS: [Calls; 0] = [];

/// Calls of the x32 kind have this bit in their numbers, and would pass by all others.
const X32_BIT: u32 = 0x4000_0000;

/// Where `seccomp_data` has the call's number, the kind, and the low halves of the first three arguments.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const REFUSE: u32 = ERRNO | libc::EPERM as u32;
/// As a kernel without huge pages answers.
const IS_INVALID: u32 = ERRNO | libc::EINVAL as u32;
const IS_MISSING: u32 = ERRNO | libc::ENOSYS as u32;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;

/// Puts it on the calling thread, and everything that it starts from now on; with `small_pages`, no memory is
/// to be in huge ones.
pub(super) fn install(small_pages: bool) -> Result<(), Errno> {
    let mut program = program(small_pages);
    if program.is_empty() {
        return Ok(());
    }
    let len = program.len() as libc::c_ushort;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // Older kernels would make all of its memory accesses slower besides, for programs that guess at their
    // own.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the program lives until the call returns, which copies it.
    match unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

fn program(small_pages: bool) -> Vec<libc::sock_filter> {
    let mut program = Vec::new();
    if !KINDS.is_empty() {
        program.push(step(LOAD, KIND));
        for calls in &KINDS {
            let block = block(calls, small_pages);
            program.push(jump(IF_EQUAL, calls.kind, 0, block.len() as u8));
            program.extend(block);
        }
        program.push(step(ANSWER, IS_MISSING));
    }
    program
}

/// Answers each call of one kind.
fn block(calls: &Calls, small_pages: bool) -> Vec<libc::sock_filter> {
    let mut block = vec![step(LOAD, NUMBER), jump(IF_AT_LEAST, X32_BIT, 0, 1), step(ANSWER, IS_MISSING)];
    for &number in &calls.refused {
        block.extend([jump(IF_EQUAL, number, 0, 1), step(ANSWER, REFUSE)]);
    }
    block.extend([jump(IF_EQUAL, calls.clone3, 0, 1), step(ANSWER, IS_MISSING)]);
    for &number in &calls.takes_flags {
        block.extend([
            jump(IF_EQUAL, number, 0, 4),
            step(LOAD, FIRST_ARGUMENT),
            jump(IF_ANY_BIT, libc::CLONE_NEWUSER as u32, 0, 1),
            step(ANSWER, REFUSE),
            step(ANSWER, ALLOW),
        ]);
    }
    if small_pages {
        block.extend([
            jump(IF_EQUAL, calls.madvise, 0, 4),
            step(LOAD, THIRD_ARGUMENT),
            jump(IF_EQUAL, libc::MADV_HUGEPAGE as u32, 0, 1),
            step(ANSWER, IS_INVALID),
            step(ANSWER, ALLOW),
        ]);
    }
    block.extend([
        jump(IF_EQUAL, calls.ioctl, 0, 4),
        step(LOAD, SECOND_ARGUMENT),
        jump(IF_EQUAL, libc::TIOCSTI as u32, 1, 0),
        jump(IF_EQUAL, libc::TIOCLINUX as u32, 0, 1),
        step(ANSWER, REFUSE),
        step(ANSWER, ALLOW),
    ]);
    block
}

const fn step(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

/// `jt` and `jf`: how many steps to leave out when it is so, and when not.
const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel does.
    fn answer(kind: u32, number: u32, arguments: [u32; 2]) -> u32 {
        answer_with(false, kind, number, [arguments[0], arguments[1], 0])
    }

    fn answer_with(small_pages: bool, kind: u32, number: u32, arguments: [u32; 3]) -> u32 {
        let program = program(small_pages);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            let go = |is: bool| at + 1 + usize::from(if is { jt } else { jf });
            at = match u32::from(code) {
                LOAD => {
                    loaded = match k {
                        NUMBER => number,
                        KIND => kind,
                        FIRST_ARGUMENT => arguments[0],
                        SECOND_ARGUMENT => arguments[1],
                        THIRD_ARGUMENT => arguments[2],
                        _ => panic!("no field at {k}"),
                    };
                    at + 1
                }
                IF_EQUAL => go(loaded == k),
                IF_AT_LEAST => go(loaded >= k),
                IF_ANY_BIT => go(loaded & k != 0),
                ANSWER => return k,
                _ => panic!("no code {code}"),
            };
        }
    }

    #[test]
    fn calls_are_refused_by_kind_number_and_argument() {
        for calls in &KINDS {
            let answer = |number, arguments| answer(calls.kind, number, arguments);
            for number in calls.refused {
                assert_eq!(answer(number, [0, 0]), REFUSE);
            }
            for number in calls.takes_flags {
                assert_eq!(answer(number, [libc::SIGCHLD as u32, u32::MAX]), ALLOW);
                assert_eq!(answer(number, [libc::CLONE_NEWUSER as u32 | 1, 0]), REFUSE);
            }
            for request in [libc::TIOCSTI, libc::TIOCLINUX] {
                assert_eq!(answer(calls.ioctl, [0, request as u32]), REFUSE);
            }
            assert_eq!(answer(calls.ioctl, [libc::TIOCSTI as u32, libc::TCGETS as u32]), ALLOW);
            for (small_pages, advice, expected) in [
                (true, libc::MADV_HUGEPAGE, IS_INVALID),
                (false, libc::MADV_HUGEPAGE, ALLOW),
                (true, libc::MADV_DONTNEED, ALLOW),
            ] {
                let arguments = [0, 0, advice as u32];
                assert_eq!(answer_with(small_pages, calls.kind, calls.madvise, arguments), expected);
                let arguments = [0, libc::TIOCSTI as u32, 0];
                assert_eq!(answer_with(small_pages, calls.kind, calls.ioctl, arguments), REFUSE);
            }
            assert_eq!(answer(calls.clone3, [0, 0]), IS_MISSING);
            assert_eq!(answer(1, [u32::MAX, u32::MAX]), ALLOW);
            assert_eq!(answer(X32_BIT | 1, [0, 0]), IS_MISSING);
        }
        if !KINDS.is_empty() {
            assert_eq!(answer(0xc000_00b7, 1, [0, 0]), IS_MISSING);
        }
    }
}
