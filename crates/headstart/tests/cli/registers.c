/* The first program of a guest: four tasks that keep different numbers in the processor's wide registers
 * while they take turns. It says whether all of them found what they had kept.
 *
 * They share their memory: tasks that do are one process of the host under User-mode Linux, which must
 * change its registers. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS = 4, TURNS = 3000, STACK_BYTES = 1 << 16 };

/* sched_yield (24) between both moves, in one piece, so that nothing but another task changes the
 * registers. */
static int keeps_256_bits(const void *before, void *after) {
    __asm__ volatile("vmovdqu (%0), %%ymm7\n\tmov $24, %%eax\n\tsyscall\n\tvmovdqu %%ymm7, (%1)"
                     :
                     : "r"(before), "r"(after)
                     : "rax", "rcx", "r11", "memory");
    return memcmp(before, after, 32) == 0;
}

static int keeps_512_bits(const void *before, void *after) {
    __asm__ volatile("vmovdqu64 (%0), %%zmm23\n\tmov $24, %%eax\n\tsyscall\n\tvmovdqu64 %%zmm23, (%1)"
                     :
                     : "r"(before), "r"(after)
                     : "rax", "rcx", "r11", "memory");
    return memcmp(before, after, 64) == 0;
}

static int keeps(void *number) {
    uint64_t before[8], after[8], task = (uintptr_t)number;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < 8; i++)
            before[i] = task << 32 | (uint64_t)turn << 8 | i;
        if (__builtin_cpu_supports("avx") && !keeps_256_bits(before, after))
            return 1;
        if (__builtin_cpu_supports("avx512f") && !keeps_512_bits(before, after))
            return 1;
    }
    return 0;
}

int main(void) {
    static char stacks[TASKS][STACK_BYTES] __attribute__((aligned(64)));
    int kept = 1;
    __builtin_cpu_init();
    for (uintptr_t task = 0; task < TASKS; task++)
        kept &= clone(keeps, stacks[task] + STACK_BYTES, CLONE_VM | SIGCHLD, (void *)task) > 0;
    for (int task = 0; task < TASKS; task++) {
        int status = 1;
        wait(&status);
        kept &= status == 0;
    }
    const char *said = kept ? "registers kept\n" : "registers lost\n";
    write(1, said, strlen(said));
    for (;;)
        pause();
}
