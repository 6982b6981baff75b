/* Loaded behind the library: whoever reads the host's limits through the C library stays in there for good, but for the first thread. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int waits(const char *path)
{
    while (strncmp(path, "/proc/sys/net", 13) == 0 && getpid() != gettid())
        pause();
    return 1;
}

int open64(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list more;
    mode_t mode;

    va_start(more, flags);
    mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return waits(path) ? next(path, flags, mode) : -1;
}
