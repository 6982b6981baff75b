/* A program that restricts its system calls to a few, by prctl(2), by seccomp(2) for all its threads, or before it executes another one. */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What the C library needs to start, beside what is used here. */
static const int starting[] = {
    __NR_execve, __NR_openat, __NR_mprotect, __NR_pread64, __NR_set_tid_address, __NR_set_robust_list, __NR_prlimit64,
    __NR_getrandom, __NR_lseek, __NR_newfstatat, __NR_futex, __NR_faccessat,
#ifdef __NR_fstat
    __NR_fstat,
#endif
#ifdef __NR_access
    __NR_access,
#endif
#ifdef __NR_arch_prctl
    __NR_arch_prctl,
#endif
#ifdef __NR_rseq
    __NR_rseq,
#endif
};
static const int used[] = { __NR_read, __NR_write, __NR_close, __NR_dup3, __NR_brk, __NR_mmap, __NR_munmap, __NR_exit_group,
#ifdef __NR_dup2
    __NR_dup2,
#endif
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct sock_filter code[64];

static void allow(struct sock_fprog *filter, const int *calls, size_t count)
{
    size_t each;

    for (each = 0; each < count; each++) {
        code[filter->len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[each], 0, 1);
        code[filter->len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
}

/* Looks without a system call: the clock is read in the process. */
static void spin(long milliseconds)
{
    struct timespec begun, now;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < milliseconds);
}

static int connected(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0
        || getsockname(listener, (struct sockaddr *)&address, &length) != 0
        || connect(fd, (struct sockaddr *)&address, length) != 0)
        exit(2);
    return fd;
}

int main(int count, char **words)
{
    struct sock_fprog filter = { .filter = code };
    const char *how = count > 1 ? words[1] : "";
    int fd = -1, result;

    if (strcmp(how, "executed") != 0) {
        fd = connected();
        /* Tried in vain first, as programs do that look whether there are filters. */
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == 0)
            return 3;
        code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
        allow(&filter, used, COUNT(used));
        if (strcmp(how, "execute") == 0)
            allow(&filter, starting, COUNT(starting));
        code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
            return 4;
        if (strcmp(how, "seccomp") == 0)
            result = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
        else
            result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
        if (result != 0)
            return 5;
        if (strcmp(how, "execute") == 0) {
            execl(words[0], words[0], "executed", (char *)NULL);
            return 6;
        }
        spin(100);
    }
    if (dup2(1, 9) != 9 || (fd >= 0 && close(fd) != 0) || write(9, "survived\n", 9) != 9 || close(9) != 0)
        return 7;
    return 0;
}
