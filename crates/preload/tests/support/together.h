/* What the test programs share: a listening socket on loopback, and a connection to it. */
#ifndef TOGETHER_H
#define TOGETHER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void must(int held, const char *what)
{
    if (!held) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(99);
    }
}

static inline int listener(struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(fd, (struct sockaddr *)address, sizeof *address) == 0, "bind");
    must(listen(fd, 64) == 0, "listen");
    must(getsockname(fd, (struct sockaddr *)address, &length) == 0, "getsockname");
    return fd;
}

/* A socket whose own receive buffer is small: what the library looks at before it is connected. */
static inline int small_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 16384;

    must(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0, "SO_RCVBUF");
    return fd;
}

static inline int connected(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(connect(fd, (const struct sockaddr *)address, sizeof *address) == 0, "connect");
    return fd;
}

#endif
