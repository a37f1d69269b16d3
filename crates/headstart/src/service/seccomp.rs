//! System calls that no server makes, refused by a filter: seccomp(2).

use std::io;

use libc::{c_long, sock_filter};

/// The filter's words: linux/filter.h, linux/seccomp.h, linux/audit.h.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Numbers from here on are of another way to call (x32), which nothing of this program uses.
const FIRST_OF_ANOTHER_WAY: u32 = 0x4000_0000;

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
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
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
];
const OF_MOUNTS: &[c_long] = &[
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
];
const OF_PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// From now on this thread, and those that it starts, get EPERM for these system calls. The thread must not
/// be able to gain privileges any more.
///
/// # Errors
/// When the kernel has no filters, or none is written for this processor.
pub(super) fn refuse(but_programs: bool, but_mounts: bool) -> io::Result<()> {
    let mut refused = OF_THE_MACHINE.to_vec();
    if !but_mounts {
        refused.extend(OF_MOUNTS);
    }
    if !but_programs {
        refused.extend(OF_PROGRAMS);
    }
    let mut filter = program(ARCHITECTURE.ok_or(io::ErrorKind::Unsupported)?, &refused);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let program: *const libc::sock_fprog = &raw const program;
    // SAFETY: the program and its instructions live until the call returns, which copies and checks them.
    match unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::c_ulong::from(libc::SECCOMP_MODE_FILTER), program)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allows everything but these numbers, and nothing of another architecture.
fn program(architecture: u32, refused: &[c_long]) -> Vec<sock_filter> {
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut steps = vec![
        step(LOAD_WORD, ARCHITECTURE_AT, 0, 0),
        step(JUMP_IF_EQUAL, architecture, 1, 0),
        step(RETURN, refuse, 0, 0),
        step(LOAD_WORD, NUMBER_AT, 0, 0),
        step(JUMP_IF_ABOVE, FIRST_OF_ANOTHER_WAY - 1, refused.len() as u8 + 1, 0),
    ];
    for (at, number) in refused.iter().enumerate() {
        let to_refusal = (refused.len() - at) as u8;
        steps.push(step(JUMP_IF_EQUAL, *number as u32, to_refusal, 0));
    }
    steps.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    steps.push(step(RETURN, refuse, 0, 0));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel does.
    fn verdict(steps: &[sock_filter], architecture: u32, number: u32) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = &steps[at];
            at += 1 + match step.code {
                LOAD_WORD => {
                    word = if step.k == NUMBER_AT { number } else { architecture };
                    0
                }
                JUMP_IF_EQUAL => usize::from(if word == step.k { step.jt } else { step.jf }),
                JUMP_IF_ABOVE => usize::from(if word > step.k { step.jt } else { step.jf }),
                _ => return step.k,
            };
        }
    }

    #[test]
    fn exactly_what_is_listed_is_refused() {
        let refused: Vec<c_long> = [OF_THE_MACHINE, OF_MOUNTS, OF_PROGRAMS].concat();
        let steps = program(7, &refused);
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        for number in 0..1000 {
            let is_refused = refused.contains(&c_long::from(number));
            let expected = if is_refused { refusal } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(verdict(&steps, 7, number), expected, "{number}");
            assert_eq!(verdict(&steps, 8, number), refusal, "another architecture, {number}");
        }
        for number in [FIRST_OF_ANOTHER_WAY, FIRST_OF_ANOTHER_WAY + 1, u32::MAX] {
            assert_eq!(verdict(&steps, 7, number), refusal, "{number}");
        }
        assert_eq!(verdict(&steps, 7, FIRST_OF_ANOTHER_WAY - 1), libc::SECCOMP_RET_ALLOW);
    }
}
