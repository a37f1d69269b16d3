/* The first program of a guest. It reads its settings from the initramfs in which it lies
 * (first_program.rs writes them), and does what they say: it sets the read-ahead of the disk and mounts it as
 * the root, and it leaves a process behind that watches the guest's other processes. Then it executes the
 * guest's own first program.
 *
 * It is linked to no library, so it needs nothing of the guest's. Numbers of system calls are x86-64's.
 * Passing the root on follows Linux's init/do_mounts.c and init/main.c.
 */

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SYS_READ = 0, SYS_WRITE = 1, SYS_OPEN = 2, SYS_CLOSE = 3, SYS_POLL = 7, SYS_IOCTL = 16, SYS_GETPID = 39,
    SYS_SOCKET = 41, SYS_BIND = 49, SYS_FORK = 57, SYS_EXECVE = 59, SYS_EXIT = 60, SYS_CHDIR = 80,
    SYS_MKDIR = 83, SYS_MKNOD = 133, SYS_PRCTL = 157, SYS_CHROOT = 161, SYS_MOUNT = 165,
    SYS_GETDENTS64 = 217, SYS_CLOCK_GETTIME = 228, SYS_OPENAT = 257, SYS_UNSHARE = 272,
};
enum { O_RDWR = 2, O_NOCTTY = 0x100, O_DIRECTORY = 0x10000 };
enum { MS_MOVE = 0x2000, MS_REC = 0x4000, MS_SILENT = 0x8000, MS_PRIVATE = 0x40000, CLONE_NEWNS = 0x20000, S_IFCHR = 0x2000 };
enum { BLKRASET = 0x1262, TCGETS = 0x5401, TCSETS = 0x5402, PR_SET_NAME = 15, POLLIN = 1 };
enum { CLOCK_MONOTONIC = 1, AF_NETLINK = 16, SOCK_RAW = 3 };

static long call(long number, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}
#define CALL(number, a, b, c, d, e) call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

/* The compiler may call these. */
void *memcpy(void *to, const void *from, size_t bytes) {
    void *begin = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return begin;
}

void *memset(void *to, int value, size_t bytes) {
    void *begin = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
    return begin;
}

static size_t length(const char *text) {
    size_t bytes = 0;
    while (text[bytes] != 0)
        bytes++;
    return bytes;
}

static int is_same(const char *text, const char *other) {
    while (*text != 0 && *text == *other) {
        text++;
        other++;
    }
    return *text == *other;
}

static uint64_t number_in(const char **text) {
    uint64_t number = 0;
    while (**text >= '0' && **text <= '9')
        number = number * 10 + (uint64_t)(*(*text)++ - '0');
    return number;
}

static char *put(char *to, const char *text, size_t bytes) {
    memcpy(to, text, bytes);
    return to + bytes;
}

static char *put_number(char *to, uint64_t number) {
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    to = put(to, digits + first, sizeof digits - first);
    *to = ' ';
    return to + 1;
}

static __attribute__((noreturn)) void fail(const char *message) {
    CALL(SYS_WRITE, 1, message, length(message), 0, 0);
    CALL(SYS_WRITE, 1, "\n", 1, 0, 0);
    for (;;)
        CALL(SYS_EXIT, 1, 0, 0, 0, 0);
}

/* ---- Settings: lines of a name, a space and a value. ---- */

enum { MOST_PROGRAMS = 8, SETTINGS_BYTES = 8192 };

static char text_of_settings[SETTINGS_BYTES];
static struct {
    const char *disk;        /* the disk to mount as the root; without one, the initramfs goes on */
    const char *file_system; /* on it */
    const char *read_ahead;  /* sectors that its kernel reads ahead, where they are to be set */
    const char *watch;       /* the minor number of the serial line for what is seen of processes */
    const char *programs[MOST_PROGRAMS];
    const char *failed; /* said when no program could be executed */
} settings;

static void take_setting(const char *name, const char *value) {
    struct { const char *name, **value; } all[] = {
        {"disk", &settings.disk}, {"file-system", &settings.file_system}, {"read-ahead", &settings.read_ahead},
        {"watch", &settings.watch}, {"failed", &settings.failed},
    };
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        if (is_same(name, all[index].name))
            *all[index].value = value;
    if (is_same(name, "program"))
        for (size_t index = 0; index < MOST_PROGRAMS; index++)
            if (settings.programs[index] == NULL) {
                settings.programs[index] = value;
                break;
            }
}

static void read_settings(void) {
    long file = CALL(SYS_OPEN, "/headstart/settings", 0, 0, 0, 0);
    long bytes = CALL(SYS_READ, file, text_of_settings, SETTINGS_BYTES - 1, 0, 0);
    if (file < 0 || bytes < 0)
        fail("headstart: the settings of the first program cannot be read");
    CALL(SYS_CLOSE, file, 0, 0, 0, 0);
    for (char *at = text_of_settings; *at != 0;) {
        char *name = at, *value = NULL;
        for (; *at != 0 && *at != '\n'; at++)
            if (*at == ' ' && value == NULL) {
                *at = 0;
                value = at + 1;
            }
        if (*at == '\n')
            *at++ = 0;
        if (value != NULL)
            take_setting(name, value);
    }
}

/* ---- The watcher. It writes lines, all times in microseconds:
 *
 *   live NOW PID PARENT CPU NAME            a process that lives, when it is new or has changed
 *   end  NOW PID PROCESS PARENT AGE CPU NAME    a thread that ended; of the process PROCESS
 *   look NOW                                all that live were looked at
 */

enum { LOOK_EVERY_MS = 200, US_A_TICK = 10000, REMEMBERED = 4096, BUFFER_BYTES = 8192 };

static long line_to;
static long ends = -1; /* tells of the ends of tasks; without it, each look writes all that live */
static long folder_of_processes;
static uint64_t remembered[REMEMBERED]; /* by the last bits of the number: what was written of a process */
static uint32_t threads_of_kernel[REMEMBERED]; /* by the same bits: not looked at again */
static char buffer[BUFFER_BYTES] __attribute__((aligned(8)));

static uint64_t now_us(void) {
    int64_t now[2] = {0, 0};
    CALL(SYS_CLOCK_GETTIME, CLOCK_MONOTONIC, now, 0, 0, 0);
    return (uint64_t)now[0] * 1000000 + (uint64_t)now[1] / 1000;
}

static void write_line(char *line, char *end) {
    *end++ = '\n';
    for (long written; line < end; line += written) {
        written = CALL(SYS_WRITE, line_to, line, end - line, 0, 0);
        if (written <= 0)
            return;
    }
}

/* A name may hold anything; a line ends at its end. */
static char *put_name(char *to, const char *name, size_t bytes) {
    for (size_t index = 0; index < bytes && name[index] != 0; index++)
        *to++ = name[index] < ' ' && name[index] >= 0 ? '?' : name[index];
    return to;
}

/* /proc/PID/stat: PID (NAME) STATE PARENT ..., the 14th and 15th field are ticks in user and kernel mode. */
static void look_at_one(const char *pid) {
    char path[32], line[160], stat[512];
    const char *digits = pid;
    uint64_t number = number_in(&digits);
    if (threads_of_kernel[number % REMEMBERED] == number)
        return;
    char *end = put(path, pid, length(pid));
    put(end, "/stat", 6);
    long file = CALL(SYS_OPENAT, folder_of_processes, path, 0, 0, 0);
    if (file < 0)
        return;
    long bytes = CALL(SYS_READ, file, stat, sizeof stat - 1, 0, 0);
    CALL(SYS_CLOSE, file, 0, 0, 0, 0);
    if (bytes <= 0)
        return;
    stat[bytes] = 0;
    const char *name = stat, *behind = NULL;
    while (*name != 0 && *name++ != '(')
        ;
    for (const char *at = name; *at != 0; at++)
        if (*at == ')')
            behind = at;
    if (behind == NULL || behind[1] == 0 || behind[2] == 0 || behind[3] == 0)
        return;
    /* One that has ended and still has its number. */
    if (behind[2] == 'Z' || behind[2] == 'X')
        return;
    const char *at = behind + 4;
    uint64_t parent = number_in(&at);
    if (parent == 2 || number == 2) {
        threads_of_kernel[number % REMEMBERED] = (uint32_t)number;
        return;
    }
    for (int field = 4; field < 14 && *at != 0; at++)
        field += *at == ' ';
    uint64_t ticks = number_in(&at);
    at += *at == ' ';
    ticks += number_in(&at);
    uint64_t mark = (number << 32 ^ ticks) * 0x9e3779b97f4a7c15 + parent;
    for (const char *letter = name; letter < behind; letter++)
        mark = mark * 31 + (unsigned char)*letter;
    if (ends >= 0 && remembered[number % REMEMBERED] == mark)
        return;
    remembered[number % REMEMBERED] = mark;
    end = put_number(put(line, "live ", 5), now_us());
    end = put_number(put_number(put_number(end, number), parent), ticks * US_A_TICK);
    write_line(line, put_name(end, name, (size_t)(behind - name)));
}

struct entry {
    uint64_t inode, offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static void look(void) {
    char line[64];
    long folder = CALL(SYS_OPENAT, folder_of_processes, ".", O_DIRECTORY, 0, 0);
    for (long bytes; (bytes = CALL(SYS_GETDENTS64, folder, buffer, BUFFER_BYTES, 0, 0)) > 0;)
        for (char *at = buffer; at < buffer + bytes;) {
            struct entry *entry = (struct entry *)at;
            if (entry->name[0] >= '1' && entry->name[0] <= '9')
                look_at_one(entry->name);
            at += entry->bytes;
        }
    CALL(SYS_CLOSE, folder, 0, 0, 0, 0);
    write_line(line, put_number(put(line, "look ", 5), now_us()) - 1);
}

static void tell_end(const struct taskstats *of) {
    char line[200];
    uint64_t process = of->ac_pid;
#if TASKSTATS_VERSION >= 12
    if (of->version >= 12)
        process = of->ac_tgid;
#endif
    if (of->ac_ppid == 2)
        return;
    char *end = put_number(put(line, "end ", 4), now_us());
    end = put_number(put_number(put_number(end, of->ac_pid), process), of->ac_ppid);
    end = put_number(put_number(end, of->ac_etime), of->ac_utime + of->ac_stime);
    write_line(line, put_name(end, of->ac_comm, sizeof of->ac_comm));
}

/* The attribute of this kind in [at, end). */
static const struct nlattr *attribute(const char *at, const char *end, int kind) {
    while (end - at >= NLA_HDRLEN) {
        const struct nlattr *found = (const struct nlattr *)at;
        if (found->nla_len < NLA_HDRLEN || found->nla_len > end - at)
            return NULL;
        if ((found->nla_type & NLA_TYPE_MASK) == kind)
            return found;
        at += NLA_ALIGN(found->nla_len);
    }
    return NULL;
}

static const char *content(const struct nlattr *of) { return (const char *)of + NLA_HDRLEN; }
static const char *end_of(const struct nlattr *of) { return (const char *)of + of->nla_len; }

static void take_message(const struct nlmsghdr *message) {
    /* It refused to tell of ends. */
    if (message->nlmsg_type == NLMSG_ERROR) {
        ends = -1;
        return;
    }
    const char *end = (const char *)message + message->nlmsg_len;
    const char *begin = (const char *)message + NLMSG_HDRLEN + GENL_HDRLEN;
    const struct nlattr *one = attribute(begin, end, TASKSTATS_TYPE_AGGR_PID);
    const struct nlattr *stats =
        one != NULL ? attribute(content(one), end_of(one), TASKSTATS_TYPE_STATS) : NULL;
    if (stats == NULL)
        return;
    /* Older kernels have fewer fields. */
    static struct taskstats of;
    size_t bytes = (size_t)(end_of(stats) - content(stats));
    memset(&of, 0, sizeof of);
    memcpy(&of, content(stats), bytes < sizeof of ? bytes : sizeof of);
    tell_end(&of);
}

static void take_messages(long socket) {
    long bytes = CALL(SYS_READ, socket, buffer, BUFFER_BYTES, 0, 0);
    for (long at = 0; at + (long)NLMSG_HDRLEN <= bytes;) {
        const struct nlmsghdr *message = (const struct nlmsghdr *)(buffer + at);
        if (message->nlmsg_len < NLMSG_HDRLEN || message->nlmsg_len > bytes - at)
            return;
        take_message(message);
        at += NLMSG_ALIGN(message->nlmsg_len);
    }
}

/* Sends a request of generic netlink with one attribute. */
static long ask(long socket, int family, int command, int kind, const char *value) {
    static char request[256] __attribute__((aligned(4)));
    size_t bytes = length(value) + 1, all = NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN + bytes;
    memset(request, 0, sizeof request);
    struct nlmsghdr *header = (struct nlmsghdr *)request;
    struct genlmsghdr *general = (struct genlmsghdr *)(request + NLMSG_HDRLEN);
    struct nlattr *only = (struct nlattr *)(request + NLMSG_HDRLEN + GENL_HDRLEN);
    header->nlmsg_len = (uint32_t)all;
    header->nlmsg_type = (uint16_t)family;
    header->nlmsg_flags = NLM_F_REQUEST;
    general->cmd = (uint8_t)command;
    general->version = 1;
    only->nla_type = (uint16_t)kind;
    only->nla_len = (uint16_t)(NLA_HDRLEN + bytes);
    memcpy(request + NLMSG_HDRLEN + GENL_HDRLEN + NLA_HDRLEN, value, bytes);
    return CALL(SYS_WRITE, socket, request, all, 0, 0);
}

/* A socket that tells of the ends of tasks (Documentation/accounting/taskstats.rst), or a negative number:
 * then only those that live are seen. */
static long ends_of_tasks(void) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK};
    long socket = CALL(SYS_SOCKET, AF_NETLINK, SOCK_RAW, NETLINK_GENERIC, 0, 0);
    if (socket < 0 || CALL(SYS_BIND, socket, &address, sizeof address, 0, 0) < 0)
        return -1;
    ask(socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, TASKSTATS_GENL_NAME);
    long bytes = CALL(SYS_READ, socket, buffer, BUFFER_BYTES, 0, 0);
    const struct nlmsghdr *answer = (const struct nlmsghdr *)buffer;
    if (bytes < (long)(NLMSG_HDRLEN + GENL_HDRLEN) || answer->nlmsg_type == NLMSG_ERROR)
        return -1;
    const struct nlattr *id =
        attribute(buffer + NLMSG_HDRLEN + GENL_HDRLEN, buffer + bytes, CTRL_ATTR_FAMILY_ID);
    if (id == NULL)
        return -1;
    uint16_t family;
    memcpy(&family, content(id), sizeof family);
    /* A mask that names processors which are not there is refused. */
    long file = CALL(SYS_OPEN, "/sys/devices/system/cpu/possible", 0, 0, 0, 0);
    char mask[64] = "0";
    long read = file < 0 ? 0 : CALL(SYS_READ, file, mask, sizeof mask - 1, 0, 0);
    CALL(SYS_CLOSE, file, 0, 0, 0, 0);
    if (read > 1)
        mask[read - 1] = 0;
    ask(socket, family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, mask);
    return socket;
}

static long open_line(uint64_t minor) {
    CALL(SYS_MKNOD, "/headstart/line", S_IFCHR | 0600, 4 << 8 | minor, 0, 0);
    long line = CALL(SYS_OPEN, "/headstart/line", O_RDWR | O_NOCTTY, 0, 0, 0);
    /* Input, output, control and local modes come first: no echo, and what is written stays as it is. */
    uint32_t modes[16] = {0};
    if (line >= 0 && CALL(SYS_IOCTL, line, TCGETS, modes, 0, 0) >= 0) {
        modes[0] = modes[1] = modes[3] = 0;
        CALL(SYS_IOCTL, line, TCSETS, modes, 0, 0);
    }
    return line;
}

/* The guest's root is changed and its initramfs emptied later: what is needed is open, in mounts of its own,
 * which take no part in the others. systemd kills no process of an initramfs whose first argument begins with
 * an at sign (systemd.io/ROOT_STORAGE_DAEMONS). */
static void prepare_to_watch(char *first_argument) {
    first_argument[0] = '@';
    CALL(SYS_PRCTL, PR_SET_NAME, "headstart-watch", 0, 0, 0);
    line_to = open_line(number_in(&settings.watch));
    CALL(SYS_UNSHARE, CLONE_NEWNS, 0, 0, 0, 0);
    CALL(SYS_MOUNT, 0, "/", 0, MS_REC | MS_PRIVATE, 0);
    CALL(SYS_MOUNT, "sysfs", "/sys", "sysfs", 0, 0);
    ends = ends_of_tasks();
    CALL(SYS_MOUNT, "proc", "/headstart", "proc", 0, 0);
    folder_of_processes = CALL(SYS_OPEN, "/headstart", O_DIRECTORY, 0, 0, 0);
    if (line_to < 0 || folder_of_processes < 0)
        CALL(SYS_EXIT, 1, 0, 0, 0, 0);
    /* What firmware wrote on the line ends here. */
    CALL(SYS_WRITE, line_to, "\n", 1, 0, 0);
}

static __attribute__((noreturn)) void watch(void) {
    for (uint64_t next = 0;;) {
        uint64_t now = now_us();
        if (now >= next) {
            look();
            next = now_us() + LOOK_EVERY_MS * 1000;
            continue;
        }
        struct { int32_t file; int16_t events, happened; } wanted = {(int32_t)ends, POLLIN, 0};
        CALL(SYS_POLL, &wanted, ends >= 0, (next - now) / 1000 + 1, 0, 0);
        if (wanted.happened != 0)
            take_messages(ends);
    }
}

/* ---- The root. ---- */

static void enter_root(void) {
    CALL(SYS_MOUNT, "devtmpfs", "/dev", "devtmpfs", 0, 0);
    if (settings.read_ahead != NULL) {
        long disk = CALL(SYS_OPEN, settings.disk, 0, 0, 0, 0);
        if (CALL(SYS_IOCTL, disk, BLKRASET, number_in(&settings.read_ahead), 0, 0) < 0)
            fail("headstart: the read-ahead of /dev/ubda cannot be set");
        CALL(SYS_CLOSE, disk, 0, 0, 0, 0);
    }
    if (CALL(SYS_MOUNT, settings.disk, "/root", settings.file_system, MS_SILENT, 0) != 0)
        fail("headstart: /dev/ubda cannot be mounted as the root");
    /* A root without /dev has none. */
    CALL(SYS_MOUNT, "/dev", "/root/dev", 0, MS_MOVE, 0);
    CALL(SYS_CHDIR, "/root", 0, 0, 0, 0);
    CALL(SYS_MOUNT, ".", "/", 0, MS_MOVE, 0);
    CALL(SYS_CHROOT, ".", 0, 0, 0, 0);
    CALL(SYS_CHDIR, "/", 0, 0, 0, 0);
}

/* The kernel passes the words of its command line that are not its own, as arguments and as environment. */
__attribute__((noreturn, used)) void begin(long *stack) {
    long count = stack[0];
    char **arguments = (char **)(stack + 1), **environment = arguments + count + 1;
    read_settings();
    /* In a running initramfs, which has it only watch: when this process has ended, all is prepared. */
    if (settings.watch != NULL && settings.programs[0] == NULL) {
        prepare_to_watch(arguments[0]);
        long child = CALL(SYS_FORK, 0, 0, 0, 0, 0);
        if (child == 0)
            watch();
        CALL(SYS_EXIT, child < 0, 0, 0, 0, 0);
    }
    if (settings.watch != NULL && CALL(SYS_FORK, 0, 0, 0, 0, 0) == 0) {
        prepare_to_watch(arguments[0]);
        watch();
    }
    if (settings.disk != NULL)
        enter_root();
    for (size_t index = 0; index < MOST_PROGRAMS && settings.programs[index] != NULL; index++) {
        arguments[0] = (char *)settings.programs[index];
        CALL(SYS_EXECVE, settings.programs[index], arguments, environment, 0, 0);
    }
    fail(settings.failed != NULL ? settings.failed : "headstart: there is no first program");
}

__asm__(".global _start\n_start:\nmov %rsp, %rdi\nand $-16, %rsp\ncall begin\n");
