/* Sends standard input to a host by a route: send HOST PORT [ROUTE] */
#include <longhaul.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what, int fd) {
    char reason[300] = "";
    socklen_t length = sizeof reason;
    perror(what);
    if (fd >= 0 && lsl_getsockopt(fd, SOL_LSL, LSL_REASON, reason, &length) == 0 && *reason)
        fprintf(stderr, "%s\n", reason);
    exit(1);
}

int main(int argc, char **argv) {
    struct addrinfo hints = {0}, *found;
    char bytes[65536], purpose[] = "nightly results";
    ssize_t count;

    hints.ai_family = AF_LSL;
    if (argc < 3 || lsl_getaddrinfo(argv[1], argv[2], &hints, &found) != 0) {
        fprintf(stderr, "usage: send HOST PORT [ROUTE]\n");
        return 2;
    }
    struct sockaddr_lsl to = *(struct sockaddr_lsl *)found->ai_addr;
    lsl_freeaddrinfo(found);

    /* Depots on the way, such as "depot.example,~backbone.example"; without, the rules decide. */
    if (argc > 3 && lsl_set_route(&to, argv[3]) != 0)
        fail("route", -1);

    int fd = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket", fd);
    lsl_setsockopt(fd, SOL_LSL, LSL_PURPOSE, purpose, sizeof purpose);
    if (lsl_connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("connect", fd);

    while ((count = read(0, bytes, sizeof bytes)) > 0)
        for (ssize_t sent = 0, more; sent < count; sent += more)
            if ((more = lsl_send(fd, bytes + sent, (size_t)(count - sent), MSG_NOSIGNAL)) < 0)
                fail("send", fd);

    /* The other end reads to the end, and says what it thinks of it. */
    lsl_shutdown(fd, SHUT_WR);
    while ((count = lsl_recv(fd, bytes, sizeof bytes, 0)) > 0)
        fwrite(bytes, 1, (size_t)count, stdout);
    if (count < 0)
        fail("recv", fd);
    return lsl_close(fd);
}
