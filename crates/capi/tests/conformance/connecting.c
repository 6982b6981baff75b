/* Connecting: what connect says, at once and later. */
#include "suite.h"

static void refused(void) {
    struct sockaddr_in nobody = refused_address(), at;
    int fd = socket_v4();
    say_result("connect", connect_to(fd, &nobody));
    say("error:%s", error_word(pending_error(fd)));
    int listening = listener(&at);
    say_result("same-socket-again", connect_to(fd, &at));
    say_result("accept", accept(listening, NULL, NULL));
}

static void unreachable(void) {
    struct sockaddr_in nowhere = given_address("SUITE_UNREACHABLE");
    int fd = socket_v4();
    say_result("connect", connect_to(fd, &nowhere));
    int other = socket_v4();
    set_nonblocking(other, 1);
    /* The kernel knows at once; what has to ask first knows later. */
    int error = connect_to(other, &nowhere) ? errno : 0;
    if (error == EINPROGRESS) {
        wait_for(other, POLLOUT);
        error = pending_error(other);
    }
    say("nonblocking:%s", error_word(error));
}

static void twice(void) {
    struct sockaddr_in at;
    int listening = listener(&at), fd = socket_v4();
    say_result("first", connect_to(fd, &at));
    say_result("second", connect_to(fd, &at));
    struct sockaddr_in nobody = refused_address();
    say_result("elsewhere", connect_to(fd, &nobody));
    close(listening);
}

static void nonblocking_twice(void) {
    struct sockaddr_in silent = given_address("SUITE_SILENT"), at;
    int fd = socket_v4();
    set_nonblocking(fd, 1);
    say_result("first", connect_to(fd, &silent));
    say_result("second", connect_to(fd, &silent));
    say("error:%s", error_word(pending_error(fd)));
    int listening = listener(&at), other = socket_v4();
    set_nonblocking(other, 1);
    say_result("first", connect_to(other, &at));
    wait_for(other, POLLOUT);
    say_result("second", connect_to(other, &at));
    say_result("third", connect_to(other, &at));
    close(listening);
}

static void close_while_connecting(void) {
    struct sockaddr_in silent = given_address("SUITE_SILENT"), at;
    for (int i = 0; i < 50; i++) {
        int fd = socket_v4();
        set_nonblocking(fd, 1);
        if (connect_to(fd, &silent) == 0 || errno != EINPROGRESS)
            die("connect");
        if (close(fd))
            die("close");
    }
    int listening = listener(&at), fd = socket_v4();
    say_result("connect", connect_to(fd, &at));
    say_result("accept", accept(listening, NULL, NULL));
}

static void shutdown_while_connecting(void) {
    struct sockaddr_in silent = given_address("SUITE_SILENT"), at;
    int fd = socket_v4();
    set_nonblocking(fd, 1);
    say_result("connect", connect_to(fd, &silent));
    say_result("shutdown", shutdown(fd, SHUT_RDWR));
    say_events("poll", wait_for(fd, POLLIN | POLLOUT) & POLLHUP);
    set_nonblocking(fd, 0);
    int listening = listener(&at);
    say_result("again", connect_to(fd, &at));
    say_result("accept", accept(listening, NULL, NULL));
}

static void while_connecting(void) {
    struct sockaddr_in silent = given_address("SUITE_SILENT"), peer;
    socklen_t length = sizeof peer;
    char text[4];
    int fd = socket_v4();
    set_nonblocking(fd, 1);
    say_result("connect", connect_to(fd, &silent));
    say_result("getpeername", getpeername(fd, (struct sockaddr *)&peer, &length));
    say_result("recv", recv(fd, text, sizeof text, 0));
    say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    struct pollfd asked = {.fd = fd, .events = POLLIN | POLLOUT};
    say("poll:%d", poll(&asked, 1, 50));
}

static void interrupted(void) {
    struct sockaddr_in silent = given_address("SUITE_SILENT");
    int fd = socket_v4();
    count_signals(SIGALRM, 0);
    ring(1);
    int result = connect_to(fd, &silent);
    int error = errno;
    ring(0);
    say("connect:%s", result ? error_word(error) : "ok");
    struct pollfd asked = {.fd = fd, .events = POLLOUT};
    say("poll:%d", poll(&asked, 1, 50));
    set_nonblocking(fd, 1);
    say_result("again", connect_to(fd, &silent));
}

static void interrupted_and_finished(void) {
    /* A backlog that is full lets nobody in until somebody is accepted; where there is none, the connection stands at once. */
    struct sockaddr_in at;
    int listening = listener(&at), fd = socket_v4();
    count_signals(SIGALRM, SA_RESTART);
    ring(1);
    say_result("connect", connect_to(fd, &at));
    ring(0);
    say_events("poll", wait_for(fd, POLLOUT));
    say_result("accept", accept(listening, NULL, NULL));
}

static void times_out(void) {
    struct sockaddr_in silent = given_address("SUITE_SILENT");
    struct timeval soon = {0, 60000};
    int fd = socket_v4();
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon))
        die("SO_SNDTIMEO");
    say_result("connect", connect_to(fd, &silent));
    set_nonblocking(fd, 1);
    say_result("again", connect_to(fd, &silent));
}

static void addresses_that_are_none(void) {
    struct sockaddr_in at = local_address(0);
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "x"};
    int fd = socket_v4(), file = open("/dev/null", O_RDWR);
    say_result("port-0", connect_to(fd, &at));
    at = local_address(9);
    say_result("short", connect(fd, (struct sockaddr *)&at, 4));
    say_result("unix-family", connect(fd, (struct sockaddr *)&path, sizeof path));
    say_result("null", connect(fd, NULL, sizeof at));
    say_result("file", connect_to(file, &at));
    say_result("closed", connect_to(-1, &at));
}

static void names_of_both_ends(void) {
    struct sockaddr_in at, fresh, client_peer, server_name;
    socklen_t length = sizeof at;
    int listening = listener(&at), client = socket_v4();
    say_result("before", getpeername(client, (struct sockaddr *)&fresh, &length));
    length = sizeof fresh;
    say_result("own-before", getsockname(client, (struct sockaddr *)&fresh, &length));
    say("port:%d", ntohs(fresh.sin_port));
    if (connect_to(client, &at))
        die("connect");
    struct sockaddr_in from;
    length = sizeof from;
    int server = accept(listening, (struct sockaddr *)&from, &length);
    say("accepted-length:%u family:%d port:%d", length, from.sin_family == AF_INET, from.sin_port != 0);
    length = sizeof client_peer;
    say_result("peer", getpeername(client, (struct sockaddr *)&client_peer, &length));
    say("is-listener:%d", client_peer.sin_port == at.sin_port && client_peer.sin_addr.s_addr == at.sin_addr.s_addr);
    length = sizeof server_name;
    say_result("name", getsockname(server, (struct sockaddr *)&server_name, &length));
    say("is-listener:%d", server_name.sin_port == at.sin_port && server_name.sin_addr.s_addr == at.sin_addr.s_addr);
    struct sockaddr_in server_peer;
    length = sizeof server_peer;
    say_result("from", getpeername(server, (struct sockaddr *)&server_peer, &length));
    say("as-accepted:%d", server_peer.sin_port == from.sin_port);
    length = 4;
    say_result("short", getpeername(client, (struct sockaddr *)&client_peer, &length));
    say("needed:%u", length);
}

static void by_ipv6(void) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback}, peer;
    socklen_t length = sizeof at;
    int listening = socket(AF_INET6, SOCK_STREAM, 0), client = socket(AF_INET6, SOCK_STREAM, 0);
    say_result("bind", bind(listening, (struct sockaddr *)&at, sizeof at));
    say_result("listen", listen(listening, 5));
    getsockname(listening, (struct sockaddr *)&at, &length);
    say_result("connect", connect(client, (struct sockaddr *)&at, sizeof at));
    length = sizeof peer;
    int server = accept(listening, (struct sockaddr *)&peer, &length);
    say("family:%d length:%u", peer.sin6_family == AF_INET6, length);
    length = sizeof peer;
    say_result("peer", getpeername(client, (struct sockaddr *)&peer, &length));
    say("is-listener:%d", peer.sin6_port == at.sin6_port && memcmp(&peer.sin6_addr, &at.sin6_addr, 16) == 0);
    char text[4];
    send_all(client, "six", 3);
    read_exactly(server, text, 3);
    say("%.3s", text);
    struct sockaddr_in four = local_address(ntohs(at.sin6_port));
    int other = socket(AF_INET6, SOCK_STREAM, 0);
    say_result("v4-address", connect(other, (struct sockaddr *)&four, sizeof four));
}

static void mapped_addresses(void) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}, peer;
    socklen_t length = sizeof at;
    int zero = 0, listening = socket(AF_INET6, SOCK_STREAM, 0), client = socket_v4();
    setsockopt(listening, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 5) || getsockname(listening, (struct sockaddr *)&at, &length))
        die("listen");
    struct sockaddr_in four = local_address(ntohs(at.sin6_port));
    say_result("connect", connect_to(client, &four));
    length = sizeof peer;
    say_result("accept", accept(listening, (struct sockaddr *)&peer, &length));
    say("mapped:%d", IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr));
    struct sockaddr_in6 mapped = at;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    int other = socket(AF_INET6, SOCK_STREAM, 0);
    say_result("to-mapped", connect(other, (struct sockaddr *)&mapped, sizeof mapped));
    length = sizeof peer;
    say_result("peer", getpeername(other, (struct sockaddr *)&peer, &length));
    say("as-asked:%d", memcmp(&peer.sin6_addr, &mapped.sin6_addr, 16) == 0);
}

static void by_name(void) {
    struct sockaddr_in at;
    int listening = listener(&at);
    char port[8];
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    say("getaddrinfo:%d", getaddrinfo("localhost", port, &hints, &found));
    int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    say_result("connect", connect(fd, found->ai_addr, found->ai_addrlen));
    freeaddrinfo(found);
    say_result("accept", accept(listening, NULL, NULL));
    struct hostent *host = gethostbyname("localhost");
    say("gethostbyname:%d", host != NULL && host->h_addrtype == AF_INET);
}

static void fast_open(void) {
    struct sockaddr_in at;
    char text[8];
    int listening = listener(&at), fd = socket_v4();
    say("sendto:%zd", sendto(fd, "first", 5, MSG_FASTOPEN, (struct sockaddr *)&at, sizeof at));
    int server = accept(listening, NULL, NULL);
    read_exactly(server, text, 5);
    say("%.5s", text);
}

const struct one_case connecting_cases[] = {
    {"refused", refused},
    {"unreachable", unreachable},
    {"connect-twice", twice},
    {"nonblocking-twice", nonblocking_twice},
    {"close-while-connecting", close_while_connecting},
    {"shutdown-while-connecting", shutdown_while_connecting},
    {"while-connecting", while_connecting},
    {"connect-interrupted", interrupted},
    {"connect-restarted", interrupted_and_finished},
    {"connect-times-out", times_out},
    {"addresses-that-are-none", addresses_that_are_none},
    {"names-of-both-ends", names_of_both_ends},
    {"ipv6", by_ipv6},
    {"mapped-addresses", mapped_addresses},
    {"by-name", by_name},
    {"fast-open", fast_open},
    {NULL, NULL},
};
