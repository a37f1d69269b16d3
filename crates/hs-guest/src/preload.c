/* Completes what User-mode Linux writes of a process's registers; loaded into linux.uml by LD_PRELOAD.
 *
 * Linux takes a process's extended registers (XSAVE, NT_X86_XSTATE) only as a whole: PTRACE_SETREGSET of
 * fewer bytes than the processor has gives EFAULT (xstateregs_set in arch/x86/kernel/fpu/regset.c).
 * User-mode Linux up to 6.12 keeps 2,696 bytes of them. A processor with AMX has 11,008, so there its first
 * process cannot be started.
 *
 * Here ptrace(2) is the C library's, but for such a call: the whole area of that process is read, the bytes
 * that were given are laid over its beginning, and all of it is written back. What lies behind them stays
 * what that process had: nothing, since a process that never asked for AMX (arch_prctl,
 * ARCH_REQ_XCOMP_PERM) has none of it.
 *
 * The stacks of User-mode Linux's kernel are small: the area is static, and the next ptrace is looked up
 * before it has any. It needs no header but the compiler's, and no library: whatever C library linux.uml is
 * linked to has what it calls.
 */

#include <cpuid.h>
#include <stddef.h>
#include <stdint.h>

enum { PTRACE_GETREGSET = 0x4204, PTRACE_SETREGSET = 0x4205, NT_X86_XSTATE = 0x202, EFAULT = 14 };
#define RTLD_NEXT ((void *)-1L)

/* Bytes before the first component behind the legacy ones: the legacy area and the header (Intel SDM,
 * volume 1, 13.4). */
enum { LEGACY_BYTES = 512, HEADER_END = 576 };
/* Far more than any processor has: an area that does not fit is refused by the kernel, as before. */
enum { AREA_BYTES = 1 << 16 };

struct iovec {
    void *base;
    size_t bytes;
};

extern void *dlsym(void *handle, const char *symbol);
extern int *__errno_location(void);

typedef long Ptrace(int request, ...);

static Ptrace *next;
static unsigned char area[AREA_BYTES] __attribute__((aligned(64)));
/* Only one thread of User-mode Linux traces processes. Should there be two at a time, one fails: no mix of
 * both is written. */
static char area_is_taken;

__attribute__((constructor)) static void find_next(void) {
    next = (Ptrace *)dlsym(RTLD_NEXT, "ptrace");
}

/* The components (bits of XSTATE_BV) that lie in the first `bytes` of an area. */
static uint64_t components_within(size_t bytes) {
    static size_t of_bytes;
    static uint64_t within;
    if (of_bytes != bytes) {
        within = 3; /* x87 and SSE: the legacy area */
        for (unsigned component = 2; component < 63; component++) {
            unsigned size, offset, flags, reserved;
            __cpuid_count(0xd, component, size, offset, flags, reserved);
            if (size != 0 && (size_t)offset + size <= bytes)
                within |= UINT64_C(1) << component;
        }
        of_bytes = bytes;
    }
    return within;
}

static void copy(void *to, const void *from, size_t bytes) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/* Which components are in use stands in the header, the given bytes' for those that they hold. */
static long write_whole(int process, const struct iovec *given) {
    struct iovec whole = {area, sizeof area};
    if (next(PTRACE_GETREGSET, process, (void *)NT_X86_XSTATE, &whole) < 0)
        return -1;
    if (given->bytes < HEADER_END || given->bytes >= whole.bytes) {
        *__errno_location() = EFAULT;
        return -1;
    }
    uint64_t *in_use = (uint64_t *)(area + LEGACY_BYTES);
    uint64_t within = components_within(given->bytes), behind = *in_use & ~within;
    copy(area, given->base, given->bytes);
    *in_use = (*in_use & within) | behind;
    return next(PTRACE_SETREGSET, process, (void *)NT_X86_XSTATE, &whole);
}

long ptrace(int request, int process, void *address, void *data) {
    int *error = __errno_location(), before = *error;
    long result = next(request, process, address, data);
    if (result >= 0 || request != PTRACE_SETREGSET || address != (void *)NT_X86_XSTATE || *error != EFAULT)
        return result;
    if (__atomic_test_and_set(&area_is_taken, __ATOMIC_ACQUIRE))
        return result;
    result = write_whole(process, data);
    if (result >= 0)
        *error = before;
    __atomic_clear(&area_is_taken, __ATOMIC_RELEASE);
    return result;
}
