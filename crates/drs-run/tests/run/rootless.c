/* Without /proc, leaves a connection open, ends its first thread, and then its last. */
#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>

#include "together.h"

static pthread_t first;

static void *last(void *nothing)
{
    pthread_join(first, NULL);
    puts("the last thread ends");
    return nothing;
}

int main(int count, char **words)
{
    struct sockaddr_in address;
    pthread_t thread;

    must(count == 2, "name a folder");
    if (chroot(words[1]) != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot(words[1]) != 0)) {
        puts("left out: may not chroot");
        return 0;
    }
    must(chdir("/") == 0, "chdir");
    listener(&address);
    connected(&address);
    first = pthread_self();
    pthread_create(&thread, NULL, last, NULL);
    pthread_exit(NULL);
}
