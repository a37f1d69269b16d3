/* A processor whose area of extended registers (XSAVE) is larger than it is, as one with AMX has it; loaded
 * by LD_PRELOAD.
 *
 * PTRACE_GETREGSET of NT_X86_XSTATE gives the real area and 4 KiB behind it. PTRACE_SETREGSET takes only as
 * much, as the kernel does, and expects the end to be what was read; the real part is passed on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { BEHIND = 4096, REAL_AT_MOST = 1 << 15, PATTERN = 0xa5 };

static long (*next)(int request, ...);
/* Bytes of the real area, once it was asked for. Static, as the buffer: User-mode Linux calls this on a
 * small stack. */
static size_t real_bytes;
static unsigned char real[REAL_AT_MOST];

__attribute__((constructor)) static void find_next(void) {
    next = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
}

static long get(int process, void *kind, struct iovec *asked) {
    struct iovec all = {real, sizeof real};
    long result = next(PTRACE_GETREGSET, process, kind, &all);
    if (result < 0)
        return result;
    real_bytes = all.iov_len;
    memset(real + real_bytes, PATTERN, BEHIND);
    if (asked->iov_len > real_bytes + BEHIND)
        asked->iov_len = real_bytes + BEHIND;
    memcpy(asked->iov_base, real, asked->iov_len);
    return result;
}

static long set(int process, void *kind, struct iovec *given) {
    if (real_bytes == 0) {
        struct iovec all = {real, sizeof real};
        long result = next(PTRACE_GETREGSET, process, kind, &all);
        if (result < 0)
            return result;
        real_bytes = all.iov_len;
    }
    if (given->iov_len < real_bytes + BEHIND) {
        errno = EFAULT;
        return -1;
    }
    const unsigned char *bytes = given->iov_base;
    /* The last half: what is given for the first one may be of another process. */
    for (size_t at = real_bytes + BEHIND / 2; at < real_bytes + BEHIND; at++)
        if (bytes[at] != PATTERN) {
            errno = EINVAL;
            return -1;
        }
    struct iovec part = {given->iov_base, real_bytes};
    return next(PTRACE_SETREGSET, process, kind, &part);
}

long ptrace(enum __ptrace_request request, ...) {
    va_list arguments;
    va_start(arguments, request);
    int process = va_arg(arguments, int);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    if (address == (void *)NT_X86_XSTATE && request == PTRACE_GETREGSET)
        return get(process, address, data);
    if (address == (void *)NT_X86_XSTATE && request == PTRACE_SETREGSET)
        return set(process, address, data);
    return next(request, process, address, data);
}
