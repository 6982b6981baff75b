/*
 * Sends bytes to the receiver beside this file, and lets libdrs watch and right-size the sending side.
 *
 *     cc sender.c $(pkg-config --cflags --libs drs) -o sender
 *     ./sender HOST PORT BYTES [observe|auto|classic|paper+]
 */
#define _POSIX_C_SOURCE 200809L

#include "show.h"

#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints, *found, *at;
    int fd = -1, error;

    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        fprintf(stderr, "sender: %s port %s: %s\n", host, port, gai_strerror(error));
        return -1;
    }
    for (at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0)
        fprintf(stderr, "sender: cannot connect to %s port %s: %s\n", host, port, strerror(errno));
    freeaddrinfo(found);
    return fd;
}

/* Sends all, and waits until the receiver has it. Never waits longer than one step. */
static int send_all(int fd, unsigned long long left, drs_flow *flow)
{
    static char block[65536];
    uint64_t last = 0;
    int shut = 0;

    for (;;) {
        struct pollfd poll_for;
        int error = step_and_show(flow, &last);
        if (error != DRS_OK) {
            fprintf(stderr, "sender: %s\n", drs_strerror(error));
            return 1;
        }
        poll_for.fd = fd;
        poll_for.events = shut ? POLLIN : POLLOUT;
        if (poll(&poll_for, 1, (int)(BETWEEN_STEPS / 1000000u)) < 0 && errno != EINTR)
            break;
        if (poll_for.revents == 0)
            continue;
        if (shut)
            return recv(fd, block, 1, 0) == 0 ? 0 : 1;
        if (left > 0) {
            ssize_t sent = send(fd, block, left < sizeof block ? (size_t)left : sizeof block, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN && errno != EINTR)
                break;
            if (sent > 0)
                left -= (unsigned long long)sent;
        }
        if (left == 0) {
            shutdown(fd, SHUT_WR);
            shut = 1;
        }
    }
    perror("sender");
    return 1;
}

int main(int argc, char **argv)
{
    drs_flow *flow;
    int fd, error, status, mode;

    if (argc < 4 || argc > 5 || (mode = argc == 5 ? mode_of(argv[4]) : DRS_AUTO) < 0) {
        fprintf(stderr, "usage: sender HOST PORT BYTES [observe|auto|classic|paper+]\n");
        return 2;
    }
    fd = connect_to(argv[1], argv[2]);
    if (fd < 0)
        return 1;
    error = drs_flow_new(fd, DRS_SENDING, mode, &flow);
    if (error != DRS_OK) {
        fprintf(stderr, "sender: %s\n", drs_strerror(error));
        close(fd);
        return 1;
    }
    status = send_all(fd, strtoull(argv[3], NULL, 10), flow);
    drs_flow_free(flow);
    close(fd);
    return status;
}
