/* Takes one session and counts its bytes: receive PORT. Prints the port, then what has come and from whom. */
#include <longhaul.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    struct sockaddr_lsl at = {0};
    socklen_t length = sizeof at;
    char bytes[65536], key[80] = "";
    long total = 0;
    ssize_t count;

    at.slsl_family = AF_LSL;
    at.slsl_port = htons((in_port_t)(argc > 1 ? atoi(argv[1]) : 0));
    int listening = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    if (listening < 0 || lsl_bind(listening, (struct sockaddr *)&at, sizeof at) || lsl_listen(listening, 5) ||
        lsl_getsockname(listening, (struct sockaddr *)&at, &length)) {
        perror("listen");
        return 1;
    }
    printf("listening on port %d\n", ntohs(at.slsl_port));
    fflush(stdout);

    int fd = lsl_accept(listening, NULL, NULL);
    if (fd < 0) {
        perror("accept");
        return 1;
    }
    length = sizeof key;
    lsl_getsockopt(fd, SOL_LSL, LSL_PEER_KEY, key, &length);
    while ((count = lsl_recv(fd, bytes, sizeof bytes, 0)) > 0)
        total += count;
    printf("%ld bytes from %s\n", total, key);
    length = (socklen_t)snprintf(bytes, sizeof bytes, "%ld bytes, thank you\n", total);
    lsl_send(fd, bytes, length, MSG_NOSIGNAL);
    lsl_close(fd);
    lsl_close(listening);
    return count < 0;
}
