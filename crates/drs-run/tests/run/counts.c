/* Loaded behind the library: once armed, whoever looks up a function ends the process. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int armed;

void arm(void)
{
    armed = 1;
}

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);

    if (armed) {
        static const char said[] = "dlsym after the start\n";
        if (write(2, said, sizeof said - 1) > 0)
            abort();
    }
    if (next == NULL)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (next == NULL)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return next(handle, name);
}
