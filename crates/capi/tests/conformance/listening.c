/* Listeners. */
#include "suite.h"

static void many_pending(void) {
    enum { COUNT = 50 };
    struct sockaddr_in at;
    int listening = listener(&at), seen[COUNT] = {0}, distinct = 0;
    for (int i = 0; i < COUNT; i++) {
        int fd = socket_v4();
        unsigned char number = (unsigned char)i;
        if (connect_to(fd, &at))
            die("connect");
        send_all(fd, &number, 1);
    }
    for (int i = 0; i < COUNT; i++) {
        unsigned char number = 255;
        int server = accept(listening, NULL, NULL);
        if (server < 0)
            die("accept");
        read_exactly(server, &number, 1);
        if (number < COUNT && !seen[number]++)
            distinct++;
        close(server);
    }
    say("accepted:%d", distinct);
}

static void small_backlog(void) {
    struct sockaddr_in at = local_address(0);
    socklen_t length = sizeof at;
    int listening = socket_v4();
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 3) || getsockname(listening, (struct sockaddr *)&at, &length))
        die("listen");
    for (int i = 0; i < 3; i++)
        say_result("connect", connect_to(socket_v4(), &at));
    for (int i = 0; i < 3; i++)
        say_result("accept", accept(listening, NULL, NULL));
    say_result("listen-again", listen(listening, 10));
    say_result("connect", connect_to(socket_v4(), &at));
    say_result("accept", accept(listening, NULL, NULL));
}

static void without_bind(void) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    int listening = socket_v4(), client = socket_v4();
    say_result("listen", listen(listening, 5));
    say_result("name", getsockname(listening, (struct sockaddr *)&at, &length));
    say("any:%d port:%d", at.sin_addr.s_addr == INADDR_ANY, at.sin_port != 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    say_result("connect", connect_to(client, &at));
    say_result("accept", accept(listening, NULL, NULL));
}

static void nonblocking_accept(void) {
    struct sockaddr_in at, from;
    socklen_t length = sizeof from;
    int listening = listener(&at), client = socket_v4();
    set_nonblocking(listening, 1);
    say_result("none", accept(listening, NULL, NULL));
    struct pollfd asked = {.fd = listening, .events = POLLIN};
    say("poll:%d", poll(&asked, 1, 0));
    if (connect_to(client, &at))
        die("connect");
    say_events("poll", wait_for(listening, POLLIN));
    int server = accept(listening, (struct sockaddr *)&from, &length);
    say_result("one", server);
    say("inherits-nonblocking:%d", (fcntl(server, F_GETFL) & O_NONBLOCK) != 0);
    say_result("none", accept(listening, NULL, NULL));
    say("peer-set:%d", length == sizeof from && from.sin_family == AF_INET && from.sin_port != 0);
}

static void by_epoll(void) {
    struct sockaddr_in at;
    int listening = listener(&at), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, found;
    set_nonblocking(listening, 1);
    epoll_ctl(set, EPOLL_CTL_ADD, listening, &event);
    say("idle:%d", epoll_wait(set, &found, 1, 0));
    for (int i = 0; i < 3; i++) {
        if (connect_to(socket_v4(), &at))
            die("connect");
        say("wait:%d", epoll_wait(set, &found, 1, -1));
        say_events("events", (int)found.events);
        int server = -1;
        while (server < 0 && (server = accept(listening, NULL, NULL)) < 0 && errno == EAGAIN)
            ;
        say_result("accept", server);
    }
    say("idle:%d", epoll_wait(set, &found, 1, 0));
}

static void accept4_flags(void) {
    struct sockaddr_in at;
    int listening = listener(&at), client = socket_v4(), other = socket_v4();
    if (connect_to(client, &at) || connect_to(other, &at))
        die("connect");
    int plain = accept4(listening, NULL, NULL, 0), both = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("plain:%d/%d", (fcntl(plain, F_GETFL) & O_NONBLOCK) != 0, (fcntl(plain, F_GETFD) & FD_CLOEXEC) != 0);
    say("both:%d/%d", (fcntl(both, F_GETFL) & O_NONBLOCK) != 0, (fcntl(both, F_GETFD) & FD_CLOEXEC) != 0);
    say_result("nonsense", accept4(listening, NULL, NULL, 77));
}

static void interrupted(void) {
    struct sockaddr_in at;
    int listening = listener(&at);
    count_signals(SIGALRM, 0);
    ring(1);
    int result = accept(listening, NULL, NULL);
    int error = errno;
    ring(0);
    say("accept:%s", result < 0 ? error_word(error) : "ok");
    struct timeval soon = {0, 30000};
    setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    say_result("timeout", accept(listening, NULL, NULL));
}

static void *connects_later(void *at) {
    static int fd;
    while (signals < 3)
        usleep(1000);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    return (void *)(long)connect_to(fd, at);
}

static void restarted(void) {
    struct sockaddr_in at;
    pthread_t thread;
    int listening = listener(&at);
    count_signals(SIGALRM, SA_RESTART);
    if (pthread_create(&thread, NULL, connects_later, &at))
        die("thread");
    ring(1);
    int result = accept(listening, NULL, NULL);
    ring(0);
    say("accept:%s signals:%d", result < 0 ? error_word(errno) : "ok", signals >= 3);
    pthread_join(thread, NULL);
}

static void closed_listener(void) {
    struct sockaddr_in at;
    int listening = listener(&at);
    close(listening);
    until_refused(&at);
    int again = socket_v4(), one = 1;
    setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    say_result("bind", bind(again, (struct sockaddr *)&at, sizeof at));
    say_result("listen", listen(again, 5));
    say_result("connect", connect_to(socket_v4(), &at));
}

static void shut_down_listener(void) {
    struct sockaddr_in at;
    int listening = listener(&at);
    say_result("writing", shutdown(listening, SHUT_WR));
    say_result("connect", connect_to(socket_v4(), &at));
    say_result("accept", accept(listening, NULL, NULL));
    say_result("reading", shutdown(listening, SHUT_RD));
    say_result("accept", accept(listening, NULL, NULL));
    until_refused(&at);
}

static void *accepts(void *fd) {
    return (void *)(long)(accept(*(int *)fd, NULL, NULL) < 0 ? errno : 0);
}

static void shutdown_wakes_accept(void) {
    struct sockaddr_in at;
    int listening = listener(&at);
    pthread_t thread;
    void *error = NULL;
    if (pthread_create(&thread, NULL, accepts, &listening))
        die("thread");
    usleep(20000); /* it waits by then, or finds the listener shut down: the same to it */
    say_result("shutdown", shutdown(listening, SHUT_RDWR));
    pthread_join(thread, &error);
    say("accept:%s", error_word((int)(long)error));
}

static void address_in_use(void) {
    struct sockaddr_in at;
    listener(&at);
    int other = socket_v4();
    say_result("bind", bind(other, (struct sockaddr *)&at, sizeof at));
}

static void what_listeners_refuse(void) {
    struct sockaddr_in at;
    char text[4];
    int listening = listener(&at), udp = socket(AF_INET, SOCK_DGRAM, 0), fresh = socket_v4(), file = open("/dev/null", O_RDONLY), client, server;
    socklen_t length = sizeof at;
    say_result("connect", connect_to(listening, &at));
    say_result("recv", recv(listening, text, sizeof text, 0));
    say_result("send", send(listening, "x", 1, MSG_NOSIGNAL));
    say_result("getpeername", getpeername(listening, (struct sockaddr *)&at, &length));
    say_result("bind", bind(listening, (struct sockaddr *)&at, sizeof at));
    say_result("accept-fresh", accept(fresh, NULL, NULL));
    say_result("accept-udp", accept(udp, NULL, NULL));
    say_result("accept-file", accept(file, NULL, NULL));
    say_result("accept-closed", accept(-1, NULL, NULL));
    say_result("listen-udp", listen(udp, 1));
    connected_pair(&client, &server);
    say_result("listen-connected", listen(client, 1));
    say_result("accept-connected", accept(client, NULL, NULL));
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

static void options_of_listeners(void) {
    struct sockaddr_in at = local_address(0);
    socklen_t length = sizeof at;
    int one = 1, size = 30000, listening = socket_v4(), client = socket_v4();
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listening, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 5) || getsockname(listening, (struct sockaddr *)&at, &length))
        die("listen");
    say_result("nodelay", setsockopt(listening, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    say_result("buffer", setsockopt(listening, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    say("accepts:%d stream:%d domain:%d protocol:%d", option(listening, SOL_SOCKET, SO_ACCEPTCONN), option(listening, SOL_SOCKET, SO_TYPE) == SOCK_STREAM,
        option(listening, SOL_SOCKET, SO_DOMAIN) == AF_INET, option(listening, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    say("reuse:%d keep:%d nodelay:%d error:%d", option(listening, SOL_SOCKET, SO_REUSEADDR), option(listening, SOL_SOCKET, SO_KEEPALIVE),
        option(listening, IPPROTO_TCP, TCP_NODELAY), option(listening, SOL_SOCKET, SO_ERROR));
    if (connect_to(client, &at))
        die("connect");
    int server = accept(listening, NULL, NULL);
    say("accepted: accepts:%d keep:%d nodelay:%d buffer:%d", option(server, SOL_SOCKET, SO_ACCEPTCONN), option(server, SOL_SOCKET, SO_KEEPALIVE),
        option(server, IPPROTO_TCP, TCP_NODELAY), option(server, SOL_SOCKET, SO_SNDBUF) == 60000);
    say_result("nonsense", setsockopt(listening, IPPROTO_TCP, 9999, &one, sizeof one));
}

static void out_of_descriptors(void) {
    struct sockaddr_in at;
    char text[4];
    int listening = listener(&at), client = socket_v4(), fds[2000], count = 0;
    if (connect_to(client, &at))
        die("connect");
    send_all(client, "kept", 4);
    wait_for(listening, POLLIN);
    while (count < 2000 && (fds[count] = dup(listening)) >= 0)
        count++;
    if (count == 2000)
        die("RLIMIT_NOFILE is too high for this case");
    say_result("accept", accept(listening, NULL, NULL));
    for (int i = 0; i < count; i++)
        close(fds[i]);
    int server = accept(listening, NULL, NULL);
    say_result("accept", server);
    read_exactly(server, text, 4);
    say("%.4s", text);
}

static void several_processes_accept(void) {
    struct sockaddr_in at;
    int listening = listener(&at), served = 0, status;
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            for (int done = 0; done < 4; done++) {
                int server = accept(listening, NULL, NULL);
                char text[4];
                read_exactly(server, text, 4);
                send_all(server, text, 4);
                close(server);
            }
            _exit(0);
        }
    close(listening);
    for (int i = 0; i < 12; i++) {
        char text[8] = "";
        int client = socket_v4();
        if (connect_to(client, &at))
            die("connect");
        send_all(client, "ping", 4);
        served += read_to_end(client, text, sizeof text) == 4 && memcmp(text, "ping", 4) == 0;
        close(client);
    }
    say("served:%d", served);
    for (int i = 0; i < 3; i++)
        wait(&status);
    until_refused(&at);
}

const struct one_case listening_cases[] = {
    {"many-pending", many_pending},
    {"small-backlog", small_backlog},
    {"listening-without-bind", without_bind},
    {"nonblocking-accept", nonblocking_accept},
    {"accept-by-epoll-edge", by_epoll},
    {"accept4-flags", accept4_flags},
    {"accept-interrupted", interrupted},
    {"accept-restarted", restarted},
    {"closed-listener", closed_listener},
    {"shut-down-listener", shut_down_listener},
    {"shutdown-wakes-accept", shutdown_wakes_accept},
    {"address-in-use", address_in_use},
    {"what-listeners-refuse", what_listeners_refuse},
    {"options-of-listeners", options_of_listeners},
    {"out-of-descriptors", out_of_descriptors},
    {"several-processes-accept", several_processes_accept},
    {NULL, NULL},
};
