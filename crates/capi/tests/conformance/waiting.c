/* Waiting for connections that are being made: poll, select, epoll, by level and by edge; and what they say when it fails. */
#include "suite.h"

static int begun(const struct sockaddr_in *to) {
    int fd = socket_v4();
    set_nonblocking(fd, 1);
    if (connect_to(fd, to) == 0)
        say("connect:at-once");
    else
        say("connect:%s", error_word(errno));
    return fd;
}

static void exchange(int client, int listening) {
    char text[8];
    int server = accept(listening, NULL, NULL);
    if (server < 0)
        die("accept");
    set_nonblocking(client, 0);
    send_all(client, "there", 5);
    read_exactly(server, text, 5);
    send_all(server, "back", 4);
    read_exactly(client, text, 4);
    say("exchange:ok");
}

static void by_poll(void) {
    struct sockaddr_in at;
    int listening = listener(&at), fd = begun(&at);
    say_events("poll", wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
    say("error:%s", error_word(pending_error(fd)));
    exchange(fd, listening);
}

static void by_select(void) {
    struct sockaddr_in at;
    int listening = listener(&at), fd = begun(&at);
    fd_set reading, writing, failing;
    FD_ZERO(&reading);
    FD_SET(fd, &reading);
    writing = failing = reading;
    say("select:%d", select(fd + 1, &reading, &writing, &failing, NULL));
    say("read:%d write:%d except:%d", FD_ISSET(fd, &reading) != 0, FD_ISSET(fd, &writing) != 0, FD_ISSET(fd, &failing) != 0);
    say("error:%s", error_word(pending_error(fd)));
    exchange(fd, listening);
}

static void by_epoll(unsigned how, int before) {
    struct sockaddr_in at;
    int set = epoll_create1(0), listening = listener(&at), fd = before ? socket_v4() : begun(&at);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | how}, found;
    if (before) {
        set_nonblocking(fd, 1);
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
        /* What a socket says that is not connected yet. */
        say("fresh:%d", epoll_wait(set, &found, 1, 0));
        say_events("events", (int)found.events);
        say_result("connect", connect_to(fd, &at));
    } else if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
        die("epoll");
    say("wait:%d", epoll_wait(set, &found, 1, -1));
    say_events("events", (int)found.events);
    say("error:%s", error_word(pending_error(fd)));
    /* By edge it is told once; by level as long as it holds. */
    say("again:%d", epoll_wait(set, &found, 1, 0));
    exchange(fd, listening);
}

static void by_level(void) {
    by_epoll(0, 0);
}

static void by_edge(void) {
    by_epoll(EPOLLET, 0);
}

static void by_level_before(void) {
    by_epoll(0, 1);
}

static void by_edge_before(void) {
    by_epoll(EPOLLET, 1);
}

static void refused_by_poll(void) {
    struct sockaddr_in nobody = refused_address();
    int fd = begun(&nobody);
    say_events("poll", wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
    say("error:%s", error_word(pending_error(fd)));
    say("then:%s", error_word(pending_error(fd)));
    say_events("after", wait_for(fd, POLLIN | POLLOUT));
    char text[4];
    say_result("recv", recv(fd, text, 4, 0));
}

static void refused_by_edge(void) {
    struct sockaddr_in nobody = refused_address();
    int set = epoll_create1(0), fd = begun(&nobody);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET}, found;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    say("wait:%d", epoll_wait(set, &found, 1, -1));
    say_events("events", (int)found.events);
    say("error:%s", error_word(pending_error(fd)));
}

static void refused_by_read(void) {
    struct sockaddr_in nobody = refused_address();
    int fd = begun(&nobody);
    char text[4];
    wait_for(fd, POLLIN);
    say_result("read", read(fd, text, 4));
    say_result("again", read(fd, text, 4));
    int other = begun(&nobody);
    wait_for(other, POLLIN);
    say_result("recv", recv(other, text, 4, 0));
}

static void refused_by_write(void) {
    struct sockaddr_in nobody = refused_address();
    int fd = begun(&nobody);
    count_signals(SIGPIPE, 0);
    wait_for(fd, POLLOUT);
    say_result("write", write(fd, "x", 1));
    say_result("again", write(fd, "x", 1));
    say("signals:%d", (int)signals);
    int other = begun(&nobody);
    wait_for(other, POLLOUT);
    say_result("send", send(other, "x", 1, MSG_NOSIGNAL));
}

static void refused_by_connect(void) {
    struct sockaddr_in nobody = refused_address(), at;
    int fd = begun(&nobody);
    wait_for(fd, POLLOUT);
    say_result("connect", connect_to(fd, &nobody));
    int listening = listener(&at);
    say_result("elsewhere", connect_to(fd, &at));
    say_events("poll", wait_for(fd, POLLOUT));
    say("error:%s", error_word(pending_error(fd)));
    exchange(fd, listening);
}

static void through_a_duplicate(void) {
    struct sockaddr_in nobody = refused_address();
    int fd = begun(&nobody), copy = dup(fd);
    close(fd);
    wait_for(copy, POLLOUT);
    say("error:%s", error_word(pending_error(copy)));
}

static void in_a_child(void) {
    struct sockaddr_in nobody = refused_address();
    int fd = begun(&nobody), ends[2], error = -1;
    if (pipe(ends))
        die("pipe");
    if (fork() == 0) {
        wait_for(fd, POLLOUT);
        error = pending_error(fd);
        if (write(ends[1], &error, sizeof error) < 0)
            _exit(1);
        _exit(0);
    }
    if (read(ends[0], &error, sizeof error) != sizeof error)
        die("read");
    say("child:%s", error_word(error));
}

static void many_at_once(void) {
    enum { COUNT = 40 };
    struct sockaddr_in at, nobody = refused_address();
    int listening = listener(&at), stood = 0, refused = 0, set = epoll_create1(0), fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = socket_v4();
        set_nonblocking(fds[i], 1);
        if (connect_to(fds[i], i % 2 ? &at : &nobody) == 0 || errno != EINPROGRESS)
            die("connect");
        struct epoll_event event = {.events = EPOLLOUT, .data.fd = fds[i]};
        epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event);
    }
    for (int left = COUNT; left > 0; left--) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, -1) != 1)
            die("epoll_wait");
        int error = pending_error(event.data.fd);
        stood += error == 0;
        refused += error == ECONNREFUSED;
        epoll_ctl(set, EPOLL_CTL_DEL, event.data.fd, NULL);
    }
    say("stood:%d refused:%d", stood, refused);
    for (int i = 0; i < stood; i++)
        if (accept(listening, NULL, NULL) < 0)
            die("accept");
}

const struct one_case waiting_cases[] = {
    {"connecting-by-poll", by_poll},
    {"connecting-by-select", by_select},
    {"connecting-by-epoll-level", by_level},
    {"connecting-by-epoll-edge", by_edge},
    {"connecting-by-epoll-level-from-before", by_level_before},
    {"connecting-by-epoll-edge-from-before", by_edge_before},
    {"refused-by-poll", refused_by_poll},
    {"refused-by-epoll-edge", refused_by_edge},
    {"refused-by-read", refused_by_read},
    {"refused-by-write", refused_by_write},
    {"refused-by-connect", refused_by_connect},
    {"refused-through-a-duplicate", through_a_duplicate},
    {"refused-in-a-child", in_a_child},
    {"connecting-many-at-once", many_at_once},
    {NULL, NULL},
};
