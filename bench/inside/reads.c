/* The only program of a guest: loads the modules of a virtio disk, reads the disk in the ways of its kernel's command
 * line (`reads=NAME:BLOCK_BYTES:THREADS:is-random,…`), says how many reads each took, and turns the machine off. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 64, NAME_BYTES = 32 };
static long block_bytes, disk_bytes;
static int is_random;
static volatile int ends;

struct reader { pthread_t thread; unsigned seed; long reads, at; };

static void die(const char *what) {
    perror(what);
    sync();
    reboot(RB_POWER_OFF);
    _exit(1);
}

static void *read_on(void *argument) {
    struct reader *self = argument;
    long blocks = disk_bytes / block_bytes;
    void *buffer;
    int disk = open("/dev/vda", O_RDONLY | O_DIRECT);
    if (disk < 0 || posix_memalign(&buffer, 4096, block_bytes)) die("open /dev/vda");
    for (self->at = self->seed * (blocks / MOST_THREADS); !ends; self->reads++) {
        long block = is_random ? ((long)rand_r(&self->seed) << 15 ^ rand_r(&self->seed)) % blocks : self->at++ % blocks;
        if (pread(disk, buffer, block_bytes, block * block_bytes) != block_bytes) die("read");
    }
    close(disk);
    free(buffer);
    return NULL;
}

static void measure(const char *name, int threads, int seconds) {
    static struct reader readers[MOST_THREADS];
    struct timespec from, to;
    long reads = 0;
    ends = 0;
    printf("begin %s\n", name);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < threads; i++) {
        readers[i] = (struct reader){.seed = i};
        if (pthread_create(&readers[i].thread, NULL, read_on, &readers[i])) die("pthread_create");
    }
    sleep(seconds);
    ends = 1;
    for (int i = 0; i < threads; i++) pthread_join(readers[i].thread, NULL), reads += readers[i].reads;
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("end %s %ld %.6f\n", name, reads, to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9);
}

int main(void) {
    char name[NAME_BYTES], *next = getenv("reads"), *modules = strdup(getenv("modules"));
    int threads, used;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (char *module = strtok(modules, ","); module; module = strtok(NULL, ",")) {
        int file = open(module, O_RDONLY);
        if (file < 0 || syscall(SYS_finit_module, file, "", 0)) die(module);
    }
    if (mount("dev", "/dev", "devtmpfs", 0, NULL)) die("mount /dev");
    int disk = open("/dev/vda", O_RDONLY);
    disk_bytes = lseek(disk, 0, SEEK_END);
    /* All of it is in the server's cache afterwards. */
    char *buffer = malloc(1 << 20);
    while (read(disk, buffer, 1 << 20) > 0) {}
    close(disk);
    while (sscanf(next, "%31[^:]:%ld:%d:%d%n", name, &block_bytes, &threads, &is_random, &used) == 4) {
        measure(name, threads, atoi(getenv("seconds")));
        next += used;
        next += *next == ',';
    }
    reboot(RB_POWER_OFF);
}
