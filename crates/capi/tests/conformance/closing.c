/* How connections end: half-closed, reset, written to after their end. */
#include "suite.h"

static void half_close_by_client(void) {
    int client, server;
    char text[64] = "";
    connected_pair(&client, &server);
    send_all(client, "question", 8);
    say_result("shutdown", shutdown(client, SHUT_WR));
    say("server-got:%ld", read_to_end(server, text, sizeof text));
    send_all(server, "an answer", 9);
    close(server);
    say("client-got:%ld", read_to_end(client, text, sizeof text));
    say("%.9s", text);
}

static void half_close_by_server(void) {
    int client, server;
    char text[64] = "";
    connected_pair(&client, &server);
    send_all(server, "greeting", 8);
    say_result("shutdown", shutdown(server, SHUT_WR));
    say("client-got:%ld", read_to_end(client, text, sizeof text));
    send_all(client, "more", 4);
    close(client);
    say("server-got:%ld", read_to_end(server, text, sizeof text));
}

static void half_close_both(void) {
    int client, server;
    char text[8];
    connected_pair(&client, &server);
    shutdown(client, SHUT_WR);
    shutdown(server, SHUT_WR);
    say("client:%ld server:%ld", read_to_end(client, text, sizeof text), read_to_end(server, text, sizeof text));
    say_result("send", send(client, "x", 1, MSG_NOSIGNAL));
    say_events("poll", wait_for(client, POLLHUP));
    say("error:%s", error_word(pending_error(client)));
}

static void shutdown_of_reading(void) {
    int client, server;
    char text[8];
    connected_pair(&client, &server);
    say_result("shutdown", shutdown(client, SHUT_RD));
    say("recv:%zd", recv(client, text, sizeof text, 0));
    send_all(client, "still", 5);
    read_exactly(server, text, 5);
    say("server-got:%.5s", text);
}

static void shutdown_twice_and_unconnected(void) {
    int client, server, fresh = socket_v4();
    connected_pair(&client, &server);
    say_result("fresh", shutdown(fresh, SHUT_WR));
    say_result("first", shutdown(client, SHUT_WR));
    say_result("second", shutdown(client, SHUT_WR));
    say_result("nonsense", shutdown(client, 77));
}

static void reset_on_close(int fd) {
    struct linger hard = {1, 0};
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard) || close(fd))
        die("linger");
}

static void reset_by_server(void) {
    int client, server;
    char text[8];
    connected_pair(&client, &server);
    reset_on_close(server);
    say_result("recv", recv(client, text, sizeof text, 0));
    say("then:%zd", recv(client, text, sizeof text, 0));
}

static void reset_by_client(void) {
    int client, server;
    char text[8];
    connected_pair(&client, &server);
    reset_on_close(client);
    say_result("recv", recv(server, text, sizeof text, 0));
    say_result("send", send(server, "x", 1, MSG_NOSIGNAL));
}

static void reset_seen_by_poll(void) {
    int client, server;
    connected_pair(&client, &server);
    reset_on_close(server);
    say_events("poll", wait_for(client, POLLIN | POLLRDHUP));
    say("first:%s", error_word(pending_error(client)));
    say("second:%s", error_word(pending_error(client)));
}

static void close_with_unread_data_resets(void) {
    int client, server;
    char text[8];
    connected_pair(&client, &server);
    send_all(client, "unread", 6);
    recv(server, text, 6, MSG_PEEK | MSG_WAITALL);
    close(server);
    say_result("recv", recv(client, text, sizeof text, 0));
}

static void data_before_a_close_arrives(void) {
    int client, server;
    static char much[200000], copy[200000];
    memset(much, 'm', sizeof much);
    connected_pair(&client, &server);
    pid_t child = fork();
    if (child == 0) {
        close(client);
        send_all(server, much, sizeof much);
        close(server);
        _exit(0);
    }
    close(server);
    say("got:%ld", read_to_end(client, copy, sizeof copy));
    say("same:%d", memcmp(much, copy, sizeof copy) == 0);
}

/** Sends until it fails. */
static void send_until_error(int fd, int flags) {
    while (send(fd, "x", 1, flags) == 1)
        usleep(1000); /* the answer to what was sent has to come back */
}

static void writing_after_the_end(void) {
    int client, server;
    char text[8];
    count_signals(SIGPIPE, 0);
    connected_pair(&client, &server);
    close(server);
    say("end:%ld", read_to_end(client, text, sizeof text));
    send_until_error(client, MSG_NOSIGNAL);
    say("send:%s signals:%d", error_word(errno), (int)signals);
    say_result("again", send(client, "x", 1, 0));
    say("signals:%d", (int)signals);
    say_result("write", write(client, "x", 1));
    say("signals:%d", (int)signals);
    say("recv:%zd", recv(client, text, 1, 0));
}

static void writing_after_own_shutdown(void) {
    int client, server;
    count_signals(SIGPIPE, 0);
    connected_pair(&client, &server);
    shutdown(client, SHUT_WR);
    say_result("nosignal", send(client, "x", 1, MSG_NOSIGNAL));
    say("signals:%d", (int)signals);
    say_result("write", write(client, "x", 1));
    say("signals:%d", (int)signals);
}

static void sigpipe_kills(void) {
    int client, server, status;
    connected_pair(&client, &server);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        shutdown(client, SHUT_WR);
        send(client, "x", 1, 0);
        _exit(0);
    }
    waitpid(child, &status, 0);
    say("killed:%s", WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "no");
}

static void hangup_is_seen_by_poll(void) {
    int client, server;
    connected_pair(&client, &server);
    shutdown(server, SHUT_WR);
    say_events("half", wait_for(client, POLLIN | POLLRDHUP));
    shutdown(client, SHUT_WR);
    say_events("both", wait_for(client, POLLHUP) & (POLLHUP | POLLERR));
}

static void disconnecting_by_af_unspec(void) {
    int client, server;
    char text[8];
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    connected_pair(&client, &server);
    say_result("disconnect", connect(client, &nowhere, sizeof nowhere));
    say_result("send", send(client, "x", 1, MSG_NOSIGNAL));
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    say_result("getpeername", getpeername(client, (struct sockaddr *)&peer, &length));
    say_result("peer-recv", recv(server, text, sizeof text, 0));
    struct sockaddr_in at;
    int listening = listener(&at);
    say_result("connect-again", connect_to(client, &at));
    say_result("accept", accept(listening, NULL, NULL));
}

static void *receives(void *fd) {
    char text[8];
    return (void *)(long)recv(*(int *)fd, text, sizeof text, 0);
}

static void shutdown_wakes_a_reader(void) {
    int client, server;
    void *result = NULL;
    pthread_t thread;
    connected_pair(&client, &server);
    if (pthread_create(&thread, NULL, receives, &client))
        die("thread");
    shutdown(client, SHUT_RDWR);
    pthread_join(thread, &result);
    say("recv:%ld", (long)result);
}

const struct one_case closing_cases[] = {
    {"half-close-by-client", half_close_by_client},
    {"half-close-by-server", half_close_by_server},
    {"half-close-both", half_close_both},
    {"shutdown-of-reading", shutdown_of_reading},
    {"shutdown-twice-and-unconnected", shutdown_twice_and_unconnected},
    {"reset-by-server", reset_by_server},
    {"reset-by-client", reset_by_client},
    {"reset-seen-by-poll", reset_seen_by_poll},
    {"close-with-unread-data-resets", close_with_unread_data_resets},
    {"data-before-a-close-arrives", data_before_a_close_arrives},
    {"writing-after-the-end", writing_after_the_end},
    {"writing-after-own-shutdown", writing_after_own_shutdown},
    {"sigpipe-kills", sigpipe_kills},
    {"hangup-is-seen-by-poll", hangup_is_seen_by_poll},
    {"disconnecting-by-af-unspec", disconnecting_by_af_unspec},
    {"shutdown-wakes-a-reader", shutdown_wakes_a_reader},
    {NULL, NULL},
};
