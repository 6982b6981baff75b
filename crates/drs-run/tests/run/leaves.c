/* Leaves a connection open, ends its first thread, and then its last. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static pthread_t first;

static void *last(void *nothing)
{
    pthread_join(first, NULL);
    puts("the last thread ends");
    return nothing;
}

int main(void)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    pthread_t thread;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);

    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(one, (struct sockaddr *)&address, sizeof address) != 0)
        return 1;
    first = pthread_self();
    pthread_create(&thread, NULL, last, NULL);
    pthread_exit(NULL);
}
