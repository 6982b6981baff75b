/* Descriptors: duplicated, inherited, passed on, and those that are no stream sockets. */
#include "suite.h"

static void duplicates(void) {
    int client, server;
    char text[8];
    struct sockaddr_in peer, again;
    socklen_t length = sizeof peer;
    connected_pair(&client, &server);
    getpeername(client, (struct sockaddr *)&peer, &length);
    int copy = dup(client), other = fcntl(client, F_DUPFD_CLOEXEC, 50), third = dup2(client, 60);
    close(client);
    send_all(copy, "one", 3);
    close(copy);
    send_all(other, "two", 3);
    close(other);
    length = sizeof again;
    say_result("getpeername", getpeername(third, (struct sockaddr *)&again, &length));
    say("same:%d", memcmp(&peer, &again, sizeof peer) == 0);
    close(third);
    say("got:%ld", read_to_end(server, text, 8));
    say("%.6s", text);
}

static void duplicate_over_a_socket(void) {
    int client, server, other_client, other_server;
    char text[8];
    connected_pair(&client, &server);
    connected_pair(&other_client, &other_server);
    dup2(other_client, client);
    say("replaced:%ld", read_to_end(server, text, 8));
    send_all(client, "other", 5);
    read_exactly(other_server, text, 5);
    say("%.5s", text);
}

static void duplicates_of_listeners(void) {
    struct sockaddr_in at, name;
    socklen_t length = sizeof name;
    int listening = listener(&at), copy = dup(listening);
    close(listening);
    say_result("connect", connect_to(socket_v4(), &at));
    say_result("name", getsockname(copy, (struct sockaddr *)&name, &length));
    say("same:%d", name.sin_port == at.sin_port);
    say_result("accept", accept(copy, NULL, NULL));
    close(copy);
    until_refused(&at);
}

static void fork_with_both_writing(void) {
    enum { COUNT = 20000 };
    int client, server, children[2] = {0, 0};
    static char text[2 * COUNT + 1];
    connected_pair(&client, &server);
    for (int child = 0; child < 2; child++)
        if (fork() == 0) {
            char byte = (char)('a' + child);
            for (int i = 0; i < COUNT; i++)
                send_all(client, &byte, 1);
            _exit(0);
        }
    close(client);
    long got = read_to_end(server, text, sizeof text);
    for (long i = 0; i < got; i++)
        children[text[i] == 'b']++;
    say("got:%ld a:%d b:%d", got, children[0], children[1]);
}

static void fork_keeps_the_connection(void) {
    int client, server;
    char text[8];
    connected_pair(&client, &server);
    pid_t child = fork();
    if (child == 0) {
        close(server);
        read_exactly(client, text, 2);
        send_all(client, "child", 5);
        _exit(0);
    }
    close(client);
    send_all(server, "go", 2);
    say("got:%ld", read_to_end(server, text, 8));
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    say_result("getpeername", getpeername(server, (struct sockaddr *)&peer, &length));
}

static void pass(int by, int fd) {
    char byte = 'f', room[CMSG_SPACE(sizeof fd)] = "";
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(by, &message, 0) != 1)
        die("sendmsg");
}

static int passed(int by) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    int fd = -1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(by, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        die("recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/** Begins this program anew, where nothing is known of what its descriptors are. */
static void *become(const char *what, int by) {
    char number[16];
    snprintf(number, sizeof number, "%d", by);
    setenv("SUITE_BY", number, 1);
    execl("/proc/self/exe", "suite", what, (char *)NULL);
    die("exec");
}

static void passed_connection(void) {
    int client, server, ends[2];
    char text[16] = "";
    connected_pair(&client, &server);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    if (fork() == 0) {
        close(client);
        close(server);
        close(ends[0]);
        int fd = passed(ends[1]);
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int named = getpeername(fd, (struct sockaddr *)&peer, &length) == 0;
        send_all(fd, named ? "passed" : "no-peer", 6);
        _exit(0);
    }
    pass(ends[0], client);
    close(client);
    say("got:%ld", read_to_end(server, text, sizeof text));
    say("%s", text);
}

static void passed_listener(void) {
    struct sockaddr_in at;
    int ends[2], listening = listener(&at);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    if (fork() == 0) {
        close(listening);
        fcntl(ends[1], F_SETFD, 0);
        fflush(stdout);
        close(1);
        become("as-passed-listener", ends[1]);
    }
    close(ends[1]);
    pass(ends[0], listening);
    close(listening);
    int client = socket_v4();
    char text[16] = "";
    say_result("connect", connect_to(client, &at));
    say("got:%ld", read_to_end(client, text, sizeof text - 1));
    say("%s", text);
}

/** The other process of the case above: no case of its own. */
static void as_passed_listener(void) {
    const char *number = getenv("SUITE_BY");
    if (!number) {
        say("only-in-another-case");
        return;
    }
    int listening = passed(atoi(number));
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int named = getsockname(listening, (struct sockaddr *)&name, &length) == 0 && name.sin_family == AF_INET && name.sin_port != 0;
    int server = accept(listening, NULL, NULL);
    if (server < 0)
        die("accept");
    send_all(server, named ? "elsewhere" : "unnamed", named ? 9 : 7);
}

static void inherited_across_exec(void) {
    int client, server;
    char text[16] = "";
    connected_pair(&client, &server);
    if (fork() == 0) {
        close(server);
        dup2(client, 1);
        close(client);
        execl("/bin/echo", "echo", "from", "exec", (char *)NULL);
        _exit(1);
    }
    close(client);
    say("got:%ld", read_to_end(server, text, sizeof text - 1));
    say("%.9s", text);
}

static void closed_on_exec(void) {
    struct sockaddr_in at;
    int listening = listener(&at), client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
    say("flag:%d", (fcntl(client, F_GETFD) & FD_CLOEXEC) != 0);
    if (connect_to(client, &at))
        die("connect");
    int server = accept(listening, NULL, NULL);
    say("flags:%d/%d", (fcntl(client, F_GETFD) & FD_CLOEXEC) != 0, (fcntl(listening, F_GETFD) & FD_CLOEXEC) != 0);
    fcntl(server, F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    char text[4];
    close(server);
    say("end:%ld", read_to_end(client, text, 4));
}

static void numbers_are_used_again(void) {
    struct sockaddr_in at;
    int listening = listener(&at), wrong = 0, first = -1;
    for (int i = 0; i < 300; i++) {
        int client = socket_v4();
        first = first < 0 ? client : first;
        char byte = 0;
        if (client != first || connect_to(client, &at))
            die("connect");
        int server = accept(listening, NULL, NULL);
        send_all(client, "n", 1);
        read_exactly(server, &byte, 1);
        wrong += byte != 'n';
        close(client);
        close(server);
    }
    int fd = open("/dev/null", O_RDWR);
    say("wrong:%d same-number:%d write:%zd", wrong, fd == first, write(fd, "x", 1));
}

static void *pairs(void *at) {
    long wrong = 0;
    (void)at;
    for (int i = 0; i < 40; i++) {
        int client, server;
        char text[4] = "";
        connected_pair(&client, &server);
        send_all(client, "ping", 4);
        read_exactly(server, text, 4);
        wrong += memcmp(text, "ping", 4) != 0;
        close(client);
        close(server);
    }
    return (void *)wrong;
}

static void threads(void) {
    pthread_t ids[6];
    long wrong = 0;
    for (int i = 0; i < 6; i++)
        if (pthread_create(&ids[i], NULL, pairs, NULL))
            die("thread");
    for (int i = 0; i < 6; i++) {
        void *result;
        pthread_join(ids[i], &result);
        wrong += (long)result;
    }
    say("wrong:%ld", wrong);
}

static void other_sockets_pass(void) {
    int ends[2], udp = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    struct sockaddr_in at = local_address(0);
    socklen_t length = sizeof at;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    send_all(ends[0], "unix", 4);
    read_exactly(ends[1], text, 4);
    say("%.4s", text);
    say_result("bind", bind(udp, (struct sockaddr *)&at, sizeof at));
    getsockname(udp, (struct sockaddr *)&at, &length);
    say_result("connect", connect_to(other, &at));
    say("send:%zd", send(other, "udp", 3, 0));
    say("recv:%zd", recv(udp, text, 8, 0));
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    snprintf(path.sun_path + 1, sizeof path.sun_path - 1, "suite-%d", (int)getpid());
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    say_result("unix-bind", bind(listening, (struct sockaddr *)&path, sizeof path));
    say_result("unix-listen", listen(listening, 1));
    say_result("unix-connect", connect(client, (struct sockaddr *)&path, sizeof path));
    say_result("unix-accept", accept(listening, NULL, NULL));
    say_result("close-twice", close(udp) + close(udp));
}

const struct one_case descriptor_cases[] = {
    {"duplicates", duplicates},
    {"duplicate-over-a-socket", duplicate_over_a_socket},
    {"duplicates-of-listeners", duplicates_of_listeners},
    {"fork-with-both-writing", fork_with_both_writing},
    {"fork-keeps-the-connection", fork_keeps_the_connection},
    {"passed-connection", passed_connection},
    {"passed-listener", passed_listener},
    {"as-passed-listener", as_passed_listener},
    {"inherited-across-exec", inherited_across_exec},
    {"closed-on-exec", closed_on_exec},
    {"numbers-are-used-again", numbers_are_used_again},
    {"threads", threads},
    {"other-sockets-pass", other_sockets_pass},
    {NULL, NULL},
};
