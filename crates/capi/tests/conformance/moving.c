/* Data: whole, in part, peeked at, waited for, both ways at once. */
#include "suite.h"

static void urgent_data(void) {
    int client, server;
    char text[4];
    connected_pair(&client, &server);
    say_result("send", send(client, "!", 1, MSG_OOB));
    say_result("recv", recv(client, text, 1, MSG_OOB));
}

static void partial_writes(void) {
    int client, server, small = 8192;
    static char much[8 << 20];
    connected_pair(&client, &server);
    setsockopt(client, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    set_nonblocking(client, 1);
    ssize_t first = send(client, much, sizeof much, MSG_NOSIGNAL);
    say("part:%d", first > 0 && first < (ssize_t)sizeof much);
    long sent = first;
    ssize_t more;
    while ((more = send(client, much, sizeof much, MSG_NOSIGNAL)) > 0)
        sent += more;
    say_result("full", more);
    shutdown(client, SHUT_WR);
    say("all-arrived:%d", read_to_end(server, malloc((size_t)sent + 1), (size_t)sent + 1) == sent);
}

static void nothing_to_read(void) {
    int client, server;
    char text[4];
    connected_pair(&client, &server);
    say_result("dontwait", recv(client, text, 4, MSG_DONTWAIT));
    set_nonblocking(client, 1);
    say_result("nonblocking", recv(client, text, 4, 0));
    say_result("read", read(client, text, 4));
    say_result("recvfrom", recvfrom(client, text, 4, 0, NULL, NULL));
    send_all(server, "x", 1);
    say_events("poll", wait_for(client, POLLIN));
    say("recv:%zd", recv(client, text, 4, 0));
}

static void timeouts(void) {
    int client, server, small = 4096;
    static char much[8 << 20];
    struct timeval soon = {0, 30000};
    connected_pair(&client, &server);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    setsockopt(client, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    say_result("recv", recv(client, much, 4, 0));
    ssize_t sent;
    int rounds = 0;
    while ((sent = send(client, much, sizeof much, 0)) > 0)
        rounds++;
    say_result("send", sent);
    say("some-before:%d", rounds > 0);
    struct timeval kept;
    socklen_t length = sizeof kept;
    getsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &kept, &length);
    say("kept:%d", kept.tv_sec == 0 && kept.tv_usec >= 30000 && kept.tv_usec < 60000);
}

static void interrupted(void) {
    int client, server;
    char text[4];
    connected_pair(&client, &server);
    count_signals(SIGALRM, 0);
    ring(1);
    ssize_t got = recv(client, text, 4, 0);
    int error = errno;
    ring(0);
    say("recv:%s", got < 0 ? error_word(error) : "ok");
    static char much[16 << 20];
    ring(1);
    ssize_t sent = send(client, much, sizeof much, 0);
    ring(0);
    say("send-in-part:%d", sent > 0 && sent < (ssize_t)sizeof much);
}

static void *sends_later(void *fd) {
    while (signals < 3)
        usleep(1000);
    send_all(*(int *)fd, "late", 4);
    return NULL;
}

static void restarted(void) {
    int client, server;
    char text[4];
    pthread_t thread;
    connected_pair(&client, &server);
    count_signals(SIGALRM, SA_RESTART);
    if (pthread_create(&thread, NULL, sends_later, &server))
        die("thread");
    ring(1);
    ssize_t got = recv(client, text, 4, 0);
    ring(0);
    say("recv:%zd", got);
    pthread_join(thread, NULL);
}

static void peeking(void) {
    int client, server, available = -1;
    char text[8] = "";
    connected_pair(&client, &server);
    send_all(server, "12345", 5);
    say("peek:%zd", recv(client, text, 5, MSG_PEEK | MSG_WAITALL));
    say_result("FIONREAD", ioctl(client, FIONREAD, &available));
    say("available:%d", available);
    say("peek-2:%zd", recv(client, text, 2, MSG_PEEK));
    say("recv-3:%zd", recv(client, text, 3, 0));
    ioctl(client, FIONREAD, &available);
    say("left:%d", available);
    say("recv:%zd %.2s", recv(client, text, 8, 0), text);
}

static void waiting_for_all(void) {
    int client, server;
    char text[12] = "";
    connected_pair(&client, &server);
    if (fork() == 0) {
        for (int i = 0; i < 10; i++) {
            send_all(server, "x", 1);
            usleep(2000);
        }
        _exit(0);
    }
    close(server);
    say("all:%zd", recv(client, text, 8, MSG_WAITALL));
    say("end:%zd", recv(client, text, 8, MSG_WAITALL));
    say("after:%zd", recv(client, text, 8, MSG_WAITALL));
}

static void vectors_and_messages(void) {
    int client, server;
    char first[4] = "", second[8] = "";
    connected_pair(&client, &server);
    struct iovec out[2] = {{"abc", 3}, {"defgh", 5}}, in[2] = {{first, 3}, {second, 5}};
    say("writev:%zd", writev(client, out, 2));
    recv(server, second, 8, MSG_PEEK | MSG_WAITALL);
    say("readv:%zd", readv(server, in, 2));
    say("%.3s/%.5s", first, second);
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 2};
    say("sendmsg:%zd", sendmsg(server, &message, MSG_NOSIGNAL));
    struct sockaddr_in from;
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof from};
    say("recvmsg:%zd", recvmsg(client, &message, MSG_WAITALL));
    say("name:%u flags:%d", message.msg_namelen, message.msg_flags & (MSG_TRUNC | MSG_CTRUNC | MSG_OOB));
    struct sockaddr_in elsewhere = local_address(9);
    say_result("sendto", sendto(client, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&elsewhere, sizeof elsewhere));
    say("nothing:%zd", send(client, "", 0, MSG_NOSIGNAL));
    struct mmsghdr several[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = out + 1, .msg_iovlen = 1}}};
    say("sendmmsg:%d", sendmmsg(client, several, 2, MSG_NOSIGNAL));
}

static unsigned sum_of(const unsigned char *bytes, size_t length) {
    unsigned sum = 1;
    for (size_t i = 0; i < length; i++)
        sum = sum * 16777619u ^ bytes[i];
    return sum;
}

static void fill(unsigned char *bytes, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static void whole_files(void) {
    enum { LENGTH = 3000000 };
    static unsigned char bytes[LENGTH], copy[LENGTH];
    int client, server;
    FILE *file = tmpfile();
    fill(bytes, LENGTH, 7);
    if (!file || fwrite(bytes, 1, LENGTH, file) != LENGTH || fflush(file))
        die("tmpfile");
    connected_pair(&client, &server);
    if (fork() == 0) {
        off_t at = 0;
        while (at < LENGTH)
            if (sendfile(client, fileno(file), &at, (size_t)(LENGTH - at)) <= 0)
                _exit(1);
        close(client);
        _exit(0);
    }
    close(client);
    say("got:%ld", read_to_end(server, copy, LENGTH));
    say("same:%d", memcmp(bytes, copy, LENGTH) == 0);
}

static void both_ways_at_once(void) {
    enum { LENGTH = 6000000 };
    static unsigned char out[2][LENGTH], in[2][LENGTH];
    int fds[2];
    size_t sent[2] = {0, 0}, got[2] = {0, 0};
    connected_pair(&fds[0], &fds[1]);
    for (int i = 0; i < 2; i++) {
        fill(out[i], LENGTH, (unsigned)i);
        set_nonblocking(fds[i], 1);
    }
    while (got[0] < LENGTH || got[1] < LENGTH) {
        struct pollfd asked[2];
        for (int i = 0; i < 2; i++)
            asked[i] = (struct pollfd){.fd = fds[i], .events = (short)(POLLIN | (sent[i] < LENGTH ? POLLOUT : 0))};
        if (poll(asked, 2, -1) < 0)
            die("poll");
        for (int i = 0; i < 2; i++) {
            ssize_t moved;
            if (asked[i].revents & POLLOUT && (moved = write(fds[i], out[i] + sent[i], LENGTH - sent[i])) > 0)
                sent[i] += (size_t)moved;
            if (asked[i].revents & POLLIN && (moved = read(fds[i], in[i] + got[i], LENGTH - got[i])) > 0)
                got[i] += (size_t)moved;
        }
    }
    say("same:%d/%d", sum_of(in[0], LENGTH) == sum_of(out[1], LENGTH), sum_of(in[1], LENGTH) == sum_of(out[0], LENGTH));
}

static void back_pressure(void) {
    int client, server;
    static char much[1 << 20];
    long sent = 0;
    ssize_t more;
    connected_pair(&client, &server);
    set_nonblocking(client, 1);
    /* Nobody reads: it ends, however long it takes for buffers on the way to fill. */
    for (int idle = 0; idle < 20;) {
        if ((more = send(client, much, sizeof much, MSG_NOSIGNAL)) > 0) {
            sent += more;
            idle = 0;
        } else {
            idle++;
            usleep(10000);
        }
        if (sent > 200L << 20)
            break;
    }
    say("bounded:%d", sent < 200L << 20);
    shutdown(client, SHUT_WR);
    long got = 0;
    while ((more = read(server, much, sizeof much)) > 0)
        got += more;
    say("all-arrived:%d", got == sent);
}

const struct one_case moving_cases[] = {
    {"urgent-data", urgent_data},
    {"partial-writes", partial_writes},
    {"nothing-to-read", nothing_to_read},
    {"timeouts", timeouts},
    {"data-interrupted", interrupted},
    {"recv-restarted", restarted},
    {"peeking", peeking},
    {"waiting-for-all", waiting_for_all},
    {"vectors-and-messages", vectors_and_messages},
    {"sendfile", whole_files},
    {"both-ways-at-once", both_ways_at_once},
    {"back-pressure", back_pressure},
    {NULL, NULL},
};
