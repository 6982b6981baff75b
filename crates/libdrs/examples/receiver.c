/*
 * Receives one connection to its end, and lets libdrs watch and right-size the receiving side.
 *
 *     cc receiver.c $(pkg-config --cflags --libs drs) -o receiver
 *     ./receiver PORT [observe|auto|classic|paper+]
 *
 * With port 0 the system chooses one; it is printed either way.
 */
#define _POSIX_C_SOURCE 200809L

#include "show.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int accept_one(unsigned short port)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int listener, fd, on = 1;

    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        close(listener);
        return -1;
    }
    printf("listening on port %u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    fd = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}

static int receive_all(int fd, drs_flow *flow)
{
    static char block[262144];
    unsigned long long received = 0;
    uint64_t last = 0, start = monotonic();

    for (;;) {
        struct pollfd poll_for;
        ssize_t got;
        int error = step_and_show(flow, &last);
        if (error != DRS_OK) {
            fprintf(stderr, "receiver: %s\n", drs_strerror(error));
            return 1;
        }
        poll_for.fd = fd;
        poll_for.events = POLLIN;
        if (poll(&poll_for, 1, (int)(BETWEEN_STEPS / 1000000u)) < 0 && errno != EINTR)
            break;
        if (poll_for.revents == 0)
            continue;
        got = recv(fd, block, sizeof block, MSG_DONTWAIT);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            break;
        if (got == 0) {
            double seconds = (double)(monotonic() - start) / 1e9;
            printf("received %llu bytes in %.3f s\n", received, seconds);
            return 0;
        }
        if (got > 0)
            received += (unsigned long long)got;
    }
    perror("receiver");
    return 1;
}

int main(int argc, char **argv)
{
    drs_flow *flow;
    int fd, error, status, mode;

    if (argc < 2 || argc > 3 || (mode = argc == 3 ? mode_of(argv[2]) : DRS_AUTO) < 0) {
        fprintf(stderr, "usage: receiver PORT [observe|auto|classic|paper+]\n");
        return 2;
    }
    fd = accept_one((unsigned short)strtoul(argv[1], NULL, 10));
    if (fd < 0) {
        perror("receiver: cannot listen");
        return 1;
    }
    error = drs_flow_new(fd, DRS_RECEIVING, mode, &flow);
    if (error != DRS_OK) {
        fprintf(stderr, "receiver: %s\n", drs_strerror(error));
        close(fd);
        return 1;
    }
    status = receive_all(fd, flow);
    drs_flow_free(flow);
    close(fd);
    return status;
}
