/* A thread that has been cancelled ends in `connect`, as it would without the library. */
#include <pthread.h>

#include "together.h"

static struct sockaddr_in address;

static void *connects(void *nothing)
{
    int fd = small_socket();

    pthread_cancel(pthread_self());
    connect(fd, (struct sockaddr *)&address, sizeof address);
    return nothing;
}

static void *closes(void *nothing)
{
    int fd = connected(&address);

    pthread_cancel(pthread_self());
    close(fd);
    return nothing;
}

int main(void)
{
    void *(*const bodies[])(void *) = { connects, closes };

    listener(&address);
    for (size_t each = 0; each < sizeof bodies / sizeof *bodies; each++) {
        pthread_t thread;
        void *result;

        pthread_create(&thread, NULL, bodies[each], NULL);
        pthread_join(thread, &result);
        printf("%zu: %s\n", each, result == PTHREAD_CANCELED ? "cancelled" : "went on");
    }
    return 0;
}
