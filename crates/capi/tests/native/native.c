/* AF_LSL: addresses, options, names. Prints a line for each thing that it tries. */
#include <longhaul.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *result(long value) {
    return value < 0 ? strerrorname_np(errno) : "ok";
}

static int listener(struct sockaddr_lsl *at) {
    socklen_t length = sizeof *at;
    memset(at, 0, sizeof *at);
    at->slsl_family = AF_LSL;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &at->slsl_addr);
    int fd = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    printf("bind: %s\n", result(lsl_bind(fd, (struct sockaddr *)at, sizeof *at)));
    printf("listen: %s\n", result(lsl_listen(fd, 5)));
    printf("name: %s", result(lsl_getsockname(fd, (struct sockaddr *)at, &length)));
    printf(" family:%d port:%d length:%d\n", at->slsl_family == AF_LSL, at->slsl_port != 0, length == sizeof *at);
    return fd;
}

static void text_option(int fd, int name, const char *what) {
    char text[4096] = "";
    socklen_t length = sizeof text;
    int got = lsl_getsockopt(fd, SOL_LSL, name, text, &length);
    printf("%s: %s \"%s\" %d\n", what, result(got), text, length == strlen(text) + 1);
}

static void connecting(void) {
    struct sockaddr_lsl at, from, peer;
    socklen_t length = sizeof from;
    int routed = 0, listening = listener(&at), fd = lsl_socket(AF_LSL, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t size = 123456789, rate = 5000000000, duration = 60;
    char text[8] = "";

    lsl_setsockopt(fd, SOL_LSL, LSL_PURPOSE, "nightly", 7);
    lsl_setsockopt(fd, SOL_LSL, LSL_SIZE, &size, sizeof size);
    lsl_setsockopt(fd, SOL_LSL, LSL_RATE, &rate, sizeof rate);
    lsl_setsockopt(fd, SOL_LSL, LSL_DURATION, &duration, sizeof duration);
    strcpy(at.slsl_name, "store.example");
    printf("route: %s\n", result(lsl_set_route(&at, "depot.example,~[2001:db8::1]:99,direct.example") + lsl_set_route(&at, "direct")));
    at.slsl_flags |= LSL_ACCEPTOR_FLAG;
    printf("connect: %s\n", result(lsl_connect(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_lsl, slsl_hops))));
    int server = lsl_accept(listening, (struct sockaddr *)&from, &length);
    printf("accept: %s family:%d length:%d\n", result(server), from.slsl_family == AF_LSL, length == sizeof from);
    text_option(fd, LSL_REASON, "reason");
    text_option(fd, LSL_PURPOSE, "purpose");
    char key[80] = "";
    length = sizeof key;
    lsl_getsockopt(server, SOL_LSL, LSL_PEER_KEY, key, &length);
    printf("key: %.5s %d\n", key, length);
    text_option(fd, LSL_PEER_KEY, "no-key");
    length = sizeof routed;
    printf("routed: %s", result(lsl_getsockopt(fd, SOL_LSL, LSL_ROUTED, &routed, &length)));
    printf(" %d\n", routed);
    length = sizeof peer;
    printf("peer: %s", result(lsl_getpeername(fd, (struct sockaddr *)&peer, &length)));
    printf(" name:%s same:%d\n", peer.slsl_name, peer.slsl_port == at.slsl_port && memcmp(&peer.slsl_addr, &at.slsl_addr, 16) == 0);
    lsl_send(fd, "hello", 5, 0);
    printf("recv: %zd", lsl_recv(server, text, 5, MSG_WAITALL));
    printf(" %.5s\n", text);
    lsl_close(server);
    printf("end: %zd\n", lsl_recv(fd, text, 5, 0));
    lsl_close(fd);
    lsl_close(listening);
}

/* A listener at any address, and the key that it must show. */
static void with_a_key(void) {
    struct sockaddr_lsl at = {.slsl_family = AF_LSL}, own;
    socklen_t length = sizeof at;
    char key[80] = "", other[] = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    int listening = lsl_socket(AF_LSL, SOCK_STREAM, 0), fd = lsl_socket(AF_LSL, SOCK_STREAM, 0), server;
    if (lsl_bind(listening, (struct sockaddr *)&at, sizeof at) || lsl_listen(listening, 5) || lsl_getsockname(listening, (struct sockaddr *)&at, &length))
        exit(1);
    inet_pton(AF_INET6, "::ffff:127.0.0.3", &at.slsl_addr);
    at.slsl_flags = LSL_ACCEPTOR_FLAG;
    if (lsl_connect(fd, (struct sockaddr *)&at, sizeof at) || (server = lsl_accept(listening, NULL, NULL)) < 0)
        exit(1);
    length = sizeof own;
    printf("came-to: %s", result(lsl_getsockname(server, (struct sockaddr *)&own, &length)));
    printf(" same:%d\n", own.slsl_port == at.slsl_port && memcmp(&own.slsl_addr, &at.slsl_addr, 16) == 0);
    length = sizeof key;
    lsl_getsockopt(server, SOL_LSL, LSL_PEER_KEY, key, &length);
    lsl_close(fd);
    lsl_close(server);
    at.slsl_flags = 0;
    fd = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    printf("no-such-key: %s\n", result(lsl_setsockopt(fd, SOL_LSL, LSL_PEER_KEY, "lhk1:aa", 7)));
    lsl_setsockopt(fd, SOL_LSL, LSL_PEER_KEY, other, sizeof other);
    text_option(fd, LSL_PEER_KEY, "other-key");
    printf("another: %s\n", result(lsl_connect(fd, (struct sockaddr *)&at, sizeof at)));
    lsl_close(fd);
    fd = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    lsl_setsockopt(fd, SOL_LSL, LSL_PEER_KEY, key, length);
    printf("right-key: %s\n", result(lsl_connect(fd, (struct sockaddr *)&at, sizeof at)));
    printf("accept: %s\n", result(lsl_accept(listening, NULL, NULL)));
}

static void by_name_alone(void) {
    struct sockaddr_lsl to = {.slsl_family = AF_LSL, .slsl_port = htons(9), .slsl_flags = LSL_ACCEPTOR_FLAG};
    int fd = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    strcpy(to.slsl_name, "no.such.name.invalid");
    printf("unknown-name: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
}

static void directly(void) {
    struct sockaddr_in plain = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    struct sockaddr_lsl to = {.slsl_family = AF_LSL};
    socklen_t length = sizeof plain;
    int routed = 1, listening = socket(AF_INET, SOCK_STREAM, 0), fd = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&plain, length) || listen(listening, 5) || getsockname(listening, (struct sockaddr *)&plain, &length))
        exit(1);
    inet_pton(AF_INET6, "::ffff:127.0.0.2", &to.slsl_addr);
    to.slsl_port = plain.sin_port;
    lsl_set_route(&to, "direct");
    printf("direct: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
    printf("accept: %s\n", result(accept(listening, NULL, NULL)));
    length = sizeof routed;
    lsl_getsockopt(fd, SOL_LSL, LSL_ROUTED, &routed, &length);
    printf("routed: %d\n", routed);
    text_option(fd, LSL_REASON, "reason");
}

static void mistakes(void) {
    struct sockaddr_lsl to = {.slsl_family = AF_LSL, .slsl_port = htons(9)};
    int fd = lsl_socket(AF_LSL, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), closed = 1;
    uint32_t soon = 50;
    printf("nowhere: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
    strcpy(to.slsl_name, "h.example");
    printf("short: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, 100)));
    to.slsl_hop_count = 17;
    printf("hops: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
    to.slsl_hop_count = 0;
    printf("udp: %s\n", result(lsl_connect(udp, (struct sockaddr *)&to, sizeof to)));
    printf("datagrams: %s\n", result(lsl_socket(AF_LSL, SOCK_DGRAM, 0)));
    printf("route: %s\n", result(lsl_set_route(&to, "a,,b")));
    printf("null-route: %s\n", result(lsl_set_route(NULL, "a")));
    printf("option: %s\n", result(lsl_setsockopt(fd, SOL_LSL, 99, &closed, sizeof closed)));
    printf("option-udp: %s\n", result(lsl_setsockopt(udp, SOL_LSL, LSL_CLOSED, &closed, sizeof closed)));
    printf("option-closed: %s\n", result(lsl_setsockopt(-1, SOL_LSL, LSL_CLOSED, &closed, sizeof closed)));
    printf("option-short: %s\n", result(lsl_setsockopt(fd, SOL_LSL, LSL_SIZE, &closed, sizeof closed)));
    printf("read-only: %s\n", result(lsl_setsockopt(fd, SOL_LSL, LSL_REASON, "x", 1)));
    /* An address that never answers. */
    inet_pton(AF_INET6, "::ffff:192.0.2.77", &to.slsl_addr);
    lsl_setsockopt(fd, SOL_LSL, LSL_CONNECT_TIMEOUT, &soon, sizeof soon);
    printf("timeout: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
}

static void no_onramp(void) {
    struct sockaddr_lsl to = {.slsl_family = AF_LSL, .slsl_port = htons(9)};
    int fd = lsl_socket(AF_LSL, SOCK_STREAM, 0), closed = 1;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.slsl_addr);
    lsl_setsockopt(fd, SOL_LSL, LSL_ONRAMP, "/nowhere/socket", 15);
    printf("open: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
    text_option(fd, LSL_REASON, "reason");
    lsl_setsockopt(fd, SOL_LSL, LSL_CLOSED, &closed, sizeof closed);
    printf("closed: %s\n", result(lsl_connect(fd, (struct sockaddr *)&to, sizeof to)));
    printf("listen: %s\n", result(lsl_listen(fd, 5)));
    int other = lsl_socket(AF_LSL, SOCK_STREAM, 0);
    lsl_setsockopt(other, SOL_LSL, LSL_ONRAMP, "/nowhere/socket", 15);
    to.slsl_flags = LSL_ACCEPTOR_FLAG;
    printf("acceptor: %s\n", result(lsl_connect(other, (struct sockaddr *)&to, sizeof to)));
}

static void names(void) {
    struct addrinfo hints = {.ai_family = AF_LSL}, *found = NULL;
    printf("localhost: %d", lsl_getaddrinfo("localhost", "80", &hints, &found));
    struct sockaddr_lsl *address = (struct sockaddr_lsl *)found->ai_addr;
    printf(" family:%d name:%s port:%d length:%d\n", found->ai_family == AF_LSL, address->slsl_name, ntohs(address->slsl_port),
           found->ai_addrlen == sizeof *address);
    lsl_freeaddrinfo(found);
    printf("elsewhere: %d", lsl_getaddrinfo("only.known.there.invalid", "81", &hints, &found));
    address = (struct sockaddr_lsl *)found->ai_addr;
    printf(" name:%s port:%d address:%d next:%d\n", address->slsl_name, ntohs(address->slsl_port), !IN6_IS_ADDR_UNSPECIFIED(&address->slsl_addr),
           found->ai_next != NULL);
    lsl_freeaddrinfo(found);
    hints.ai_flags = AI_NUMERICHOST;
    printf("numeric: %d\n", lsl_getaddrinfo("a.name", "81", &hints, &found) == EAI_NONAME);
    hints.ai_flags = 0;
    printf("address: %d", lsl_getaddrinfo("192.0.2.9", NULL, &hints, &found));
    address = (struct sockaddr_lsl *)found->ai_addr;
    printf(" name:\"%s\" mapped:%d\n", address->slsl_name, IN6_IS_ADDR_V4MAPPED(&address->slsl_addr));
    lsl_freeaddrinfo(found);
    lsl_freeaddrinfo(NULL);
}

int main(void) {
    connecting();
    with_a_key();
    by_name_alone();
    directly();
    mistakes();
    no_onramp();
    names();
    return 0;
}
