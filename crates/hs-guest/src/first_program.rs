//! A first program for guests of User-mode Linux. It sets the read-ahead of the guest's kernel, mounts the
//! disk as the root, and executes the usual first program.
//!
//! Linux has no kernel parameter for the read-ahead of a block device, and the user's disk has no program in
//! it that would set it before anything is read. So the guest gets an initramfs that contains only this
//! program: a static ELF file of a few hundred bytes, assembled with this crate.
//!
//! The kernel starts it as `/init`. As arguments and environment it gets every word of the kernel's command
//! line that is not one of the kernel's own (Documentation/admin-guide/kernel-parameters.rst), and passes all
//! of that on. Otherwise it does what the kernel does without an initramfs (`prepare_namespace` in
//! init/do_mounts.c, `kernel_init` in init/main.c).

use crate::initramfs;

/// Where the file is loaded, the usual address of linkers.
const LOAD_ADDRESS: u64 = 0x40_0000;
const ELF_HEADER_BYTES: u16 = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
/// The longest name of a file system that we pass to `mount(2)`.
const FILE_SYSTEM_BYTES: usize = 16;
/// The programs that the kernel tries when its command line names none.
const USUAL: [&str; 4] = ["/sbin/init", "/etc/init", "/bin/init", "/bin/sh"];

/// The message when there is no disk whose read-ahead it could set. It appears from a process of the guest,
/// so the guest has run.
pub(crate) const NO_DISK: &str = "headstart: the read-ahead of /dev/ubda cannot be set";

/// Settings of the guest's first program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstProgram {
    /// How far the guest's kernel reads ahead on its disk.
    pub read_ahead_kib: u32,
    /// The file system in the disk, as `mount(2)` calls it.
    pub file_system: &'static str,
    /// The program that it executes, when that is not the usual one.
    pub init: Option<String>,
}

impl FirstProgram {
    /// An initramfs (uncompressed) with it.
    ///
    /// # Panics
    /// When the file system's name is too long.
    #[must_use]
    pub fn initramfs(&self) -> Vec<u8> {
        initramfs::archive(&[
            initramfs::Entry::Folder("dev"),
            initramfs::Entry::Folder("root"),
            initramfs::Entry::Program("init", &self.elf()),
        ])
    }

    /// The program: ELF-64, with one segment, which contains headers, code and the code's data.
    fn elf(&self) -> Vec<u8> {
        let body = [code(), &self.told()].concat();
        let headers = u64::from(ELF_HEADER_BYTES + PROGRAM_HEADER_BYTES);
        let size = headers + body.len() as u64;
        // System V ABI, "ELF header": class 64, little-endian, version 1.
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let (executable, x86_64, version) = (2_u16, 62_u16, 1_u32);
        file.extend(executable.to_le_bytes());
        file.extend(x86_64.to_le_bytes());
        file.extend(version.to_le_bytes());
        for word in [LOAD_ADDRESS + headers, u64::from(ELF_HEADER_BYTES), 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for half in [ELF_HEADER_BYTES, PROGRAM_HEADER_BYTES, 1, 0, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        let (loaded, read_and_execute) = (1_u32, 5_u32);
        file.extend(loaded.to_le_bytes());
        file.extend(read_and_execute.to_le_bytes());
        for word in [0, LOAD_ADDRESS, LOAD_ADDRESS, size, size, 4096] {
            file.extend(word.to_le_bytes());
        }
        file.extend(body);
        file
    }

    /// The data behind the code: sectors of read-ahead, the file system's name, the programs to try, each
    /// ended by a NUL and all of them by another, and the message when none can be started.
    fn told(&self) -> Vec<u8> {
        assert!(self.file_system.len() < FILE_SYSTEM_BYTES, "{}", self.file_system);
        let sectors = u64::from(self.read_ahead_kib) * 2;
        let mut told = sectors.to_le_bytes().to_vec();
        told.extend(self.file_system.as_bytes());
        told.resize(8 + FILE_SYSTEM_BYTES, 0);
        let programs: Vec<&str> = self.init.as_deref().map_or_else(|| USUAL.to_vec(), |init| vec![init]);
        for program in &programs {
            told.extend(program.as_bytes());
            told.push(0);
        }
        told.push(0);
        told.extend(format!("headstart: cannot start {}\n\0", programs.join(" or ")).bytes());
        told
    }
}

/// Whether there is code for this machine, on which User-mode Linux would run it.
#[must_use]
pub fn is_possible() -> bool {
    !code().is_empty()
}

#[cfg(not(target_arch = "x86_64"))]
fn code() -> &'static [u8] {
    &[]
}

#[cfg(target_arch = "x86_64")]
fn code() -> &'static [u8] {
    unsafe extern "C" {
        static hs_guest_init_begin: u8;
        static hs_guest_init_end: u8;
    }
    let (begin, end) = (&raw const hs_guest_init_begin, &raw const hs_guest_init_end);
    // SAFETY: both are labels of the one block of code below, the second at its end; it is never written to.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

// Position-independent, and never written to. Its data lies at its end. Numbers of system calls are those of
// x86-64: 1 write, 3 close, 2 open, 16 ioctl, 59 execve, 60 exit, 80 chdir, 161 chroot, 165 mount.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .rodata.hs_guest_init, \"a\", @progbits",
    ".global hs_guest_init_begin",
    ".global hs_guest_init_end",
    "hs_guest_init_begin:",
    "mov rbx, rsp", // the count of arguments, the arguments, a null, the environment
    // mount(\"devtmpfs\", \"/dev\", \"devtmpfs\", 0, null)
    "lea rdi, [rip + 20f]",
    "lea rsi, [rip + 21f]",
    "lea rdx, [rip + 20f]",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "mov eax, 165",
    "syscall",
    // open(\"/dev/ubda\", O_RDONLY), ioctl(it, BLKRASET, sectors), close(it)
    "lea rdi, [rip + 22f]",
    "xor esi, esi",
    "mov eax, 2",
    "syscall",
    "mov edi, eax",
    "mov esi, 0x1262",
    "mov rdx, [rip + hs_guest_init_end]",
    "mov eax, 16",
    "syscall",
    "lea r14, [rip + 27f]",
    "test rax, rax",
    "js 9f",
    "mov eax, 3",
    "syscall",
    // mount(\"/dev/ubda\", \"/root\", file system, MS_SILENT, null)
    "lea rdi, [rip + 22f]",
    "lea rsi, [rip + 23f]",
    "lea rdx, [rip + hs_guest_init_end + 8]",
    "mov r10d, 0x8000",
    "xor r8d, r8d",
    "mov eax, 165",
    "syscall",
    "lea r14, [rip + 28f]",
    "test rax, rax",
    "jnz 9f",
    // mount(\"/dev\", \"/root/dev\", null, MS_MOVE, null); a root without /dev has none
    "lea rdi, [rip + 21f]",
    "lea rsi, [rip + 24f]",
    "xor edx, edx",
    "mov r10d, 0x2000",
    "mov eax, 165",
    "syscall",
    // chdir(\"/root\"), mount(\".\", \"/\", null, MS_MOVE, null), chroot(\".\"), chdir(\"/\")
    "lea rdi, [rip + 23f]",
    "mov eax, 80",
    "syscall",
    "lea rdi, [rip + 25f]",
    "lea rsi, [rip + 26f]",
    "xor edx, edx",
    "mov r10d, 0x2000",
    "mov eax, 165",
    "syscall",
    "lea rdi, [rip + 25f]",
    "mov eax, 161",
    "syscall",
    "lea rdi, [rip + 26f]",
    "mov eax, 80",
    "syscall",
    // environment = behind the arguments and their null
    "mov rax, [rbx]",
    "lea r13, [rbx + rax * 8 + 16]",
    "lea rbx, [rbx + 8]",
    "lea r12, [rip + hs_guest_init_end + 24]",
    // execve(program, arguments, environment), with the program's name as the first argument, one program
    // after the other
    "5:",
    "lea r14, [r12 + 1]",
    "cmp byte ptr [r12], 0",
    "je 9f",
    "mov [rbx], r12",
    "mov rdi, r12",
    "mov rsi, rbx",
    "mov rdx, r13",
    "mov eax, 59",
    "syscall",
    "6:",
    "inc r12",
    "cmp byte ptr [r12 - 1], 0",
    "jne 6b",
    "jmp 5b",
    // write(1, r14, up to its NUL), exit(1): then the kernel gives up
    "9:",
    "mov rsi, r14",
    "xor edx, edx",
    "7:",
    "cmp byte ptr [rsi + rdx], 0",
    "je 8f",
    "inc edx",
    "jmp 7b",
    "8:",
    "mov edi, 1",
    "mov eax, 1",
    "syscall",
    "mov edi, 1",
    "mov eax, 60",
    "syscall",
    "20: .asciz \"devtmpfs\"",
    "21: .asciz \"/dev\"",
    "22: .asciz \"/dev/ubda\"",
    "23: .asciz \"/root\"",
    "24: .asciz \"/root/dev\"",
    "25: .asciz \".\"",
    "26: .asciz \"/\"",
    "27: .asciz \"headstart: the read-ahead of /dev/ubda cannot be set\\n\"",
    "28: .asciz \"headstart: /dev/ubda cannot be mounted as the root\\n\"",
    "hs_guest_init_end:",
    ".popsection",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_lies_at_its_places() {
        let program =
            FirstProgram { read_ahead_kib: 32, file_system: "ext4", init: Some("/bin/x".to_owned()) };
        let told = program.told();
        assert_eq!(told[..8], 64_u64.to_le_bytes());
        assert_eq!(told[8..13], *b"ext4\0");
        assert_eq!(told[24..], *b"/bin/x\0\0headstart: cannot start /bin/x\n\0");
        let usual = FirstProgram { init: None, ..program }.told();
        let code = String::from_utf8_lossy(code()).into_owned();
        assert!(!is_possible() || code.contains(NO_DISK));
        assert!(usual[24..].starts_with(b"/sbin/init\0/etc/init\0/bin/init\0/bin/sh\0\0headstart"));
    }

    #[test]
    fn the_file_is_as_long_as_its_header_says() {
        let elf = FirstProgram { read_ahead_kib: 0, file_system: "ext4", init: None }.elf();
        assert_eq!(elf[..4], *b"\x7fELF");
        let size_in_file = u64::from_le_bytes(elf[96..104].try_into().unwrap());
        assert_eq!(size_in_file, elf.len() as u64);
    }
}
