/*
 * Connects to destinations that only an on-ramp knows, and prints all that it sees. What the on-ramp of the tests does with each is in
 * onramp.rs: .1 stands at once, .2 is refused, .3 has no route, .5 and .7 wait until somebody connects to .6 and then stand or are
 * refused, .8 goes away, .9 has no route, and the on-ramp goes when it has said so.
 */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "../support/together.h"

static __thread struct sockaddr_storage storage;

static socklen_t destination(const char *text, int port)
{
    struct sockaddr_in *four = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&storage;

    memset(&storage, 0, sizeof storage);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        return sizeof *four;
    }
    must(inet_pton(AF_INET6, text, &six->sin6_addr) == 1, text);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    return sizeof *six;
}

static void tell(const char *what, int result)
{
    printf("%s: %d %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

static int to(int fd, const char *text)
{
    socklen_t length = destination(text, 80);

    return connect(fd, (struct sockaddr *)&storage, length);
}

static int new_socket(const char *text, int flags)
{
    destination(text, 80);
    return socket(storage.ss_family, SOCK_STREAM | flags, 0);
}

static void peer(const char *what, int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char text[INET6_ADDRSTRLEN] = "";
    int result = getpeername(fd, (struct sockaddr *)&address, &length);

    if (result != 0) {
        tell(what, result);
        return;
    }
    if (address.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&address)->sin_addr, text, sizeof text);
    else
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&address)->sin6_addr, text, sizeof text);
    printf("%s: %s %d, %u bytes\n", what, text, ntohs(((struct sockaddr_in *)&address)->sin_port), length);
}

/* Whether a socket's address is what the kernel would choose for the destination, or loopback where it knows no way there. */
static void local(const char *what, int fd, const char *text)
{
    struct sockaddr_storage told, real, chosen;
    socklen_t told_length = sizeof told, length = sizeof real;
    int probe, four;
    size_t bytes;
    char *own, *expected;

    memset(&told, 0, sizeof told);
    must(getsockname(fd, (struct sockaddr *)&told, &told_length) == 0, "getsockname");
    must(syscall(SYS_getsockname, fd, &real, &length) == 0, "a bare getsockname");
    length = destination(text, 80);
    probe = socket(storage.ss_family, SOCK_DGRAM, 0);
    must(probe >= 0, "a socket of UDP");
    chosen = real;
    if (connect(probe, (struct sockaddr *)&storage, length) == 0) {
        length = sizeof chosen;
        must(getsockname(probe, (struct sockaddr *)&chosen, &length) == 0, "getsockname");
    }
    close(probe);
    four = told.ss_family == AF_INET;
    own = four ? (char *)&((struct sockaddr_in *)&told)->sin_addr : (char *)&((struct sockaddr_in6 *)&told)->sin6_addr;
    expected = four ? (char *)&((struct sockaddr_in *)&chosen)->sin_addr : (char *)&((struct sockaddr_in6 *)&chosen)->sin6_addr;
    bytes = four ? 4 : 16;
    printf("%s: %s, %s, %u bytes\n", what, memcmp(own, expected, bytes) == 0 ? "as it would be" : "another",
           ((struct sockaddr_in *)&told)->sin_port == ((struct sockaddr_in *)&real)->sin_port ? "its port" : "another port",
           told_length);
}

static void error(const char *what, int fd)
{
    int error = -1;
    socklen_t length = sizeof error;

    must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "SO_ERROR");
    printf("%s: %s\n", what, error == 0 ? "none" : strerrorname_np(error));
}

static void polled(const char *what, int fd, int timeout)
{
    struct pollfd one = { fd, POLLOUT, 0 };
    int count = poll(&one, 1, timeout);

    /* With an error come OUT and HUP, each as soon as the kernel has got there. */
    printf("%s: %d%s\n", what, count, one.revents & POLLERR ? " ERR" : one.revents & POLLOUT ? " OUT" : "");
}

static void echo(const char *what, int fd)
{
    char sent[] = "there and back", got[sizeof sent] = "";

    must(send(fd, sent, sizeof sent, MSG_NOSIGNAL) == sizeof sent, "send");
    must(recv(fd, got, sizeof got, MSG_WAITALL) == sizeof got, "recv");
    printf("%s: %s\n", what, got);
}

static int descriptors(void)
{
    DIR *open = opendir("/proc/self/fd");
    int count = -3; /* . and .. and this one */

    while (readdir(open) != NULL)
        count++;
    closedir(open);
    return count;
}

static void release(void)
{
    int fd = new_socket("192.0.2.6", 0);

    must(to(fd, "192.0.2.6") == 0, "release");
    close(fd);
}

static void blocking(void)
{
    static const char *const all[] = { "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1" };
    int fd = new_socket("192.0.2.3", 0), before;

    tell("no route", to(fd, "192.0.2.3"));
    close(fd);
    before = descriptors();
    for (size_t each = 0; each < sizeof all / sizeof *all; each++) {
        fd = new_socket(all[each], 0);
        tell("connect", to(fd, all[each]));
        peer("peer", fd);
        local("local", fd, all[each]);
        error("error", fd);
        echo("echo", fd);
        tell("connect again", to(fd, all[each]));
        shutdown(fd, SHUT_WR);
        tell("end", (int)recv(fd, &storage, 1, 0));
        tell("close", close(fd));
    }
    fd = new_socket("192.0.2.2", 0);
    tell("refused", to(fd, "192.0.2.2"));
    error("error", fd);
    peer("peer", fd);
    tell("send", (int)send(fd, "x", 1, MSG_NOSIGNAL));
    tell("connect after it", to(fd, "192.0.2.1"));
    echo("echo", fd);
    close(fd);
    fd = new_socket("192.0.2.3", 0);
    tell("no route", to(fd, "192.0.2.3"));
    close(fd);
    tell("descriptors left", descriptors() - before);
}

static void nonblocking(void)
{
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), before = descriptors(), size, now, copy, buffer = 4096;
    socklen_t length = sizeof size;

    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length);
    tell("connect", to(fd, "192.0.2.5"));
    polled("poll", fd, 0);
    error("error", fd);
    peer("peer", fd);
    local("local", fd, "192.0.2.5");
    tell("connect again", to(fd, "192.0.2.5"));
    tell("send", (int)send(fd, "x", 1, MSG_NOSIGNAL));
    tell("recv", (int)recv(fd, &buffer, 1, 0));
    copy = dup(fd);
    close(fd);
    release();
    polled("poll later", copy, -1);
    error("error", copy);
    peer("peer", copy);
    tell("connect once more", to(copy, "192.0.2.5"));
    tell("and again", to(copy, "192.0.2.5"));
    fcntl(copy, F_SETFL, 0);
    echo("echo", copy);
    now = 0;
    getsockopt(copy, SOL_SOCKET, SO_SNDBUF, &now, &length);
    printf("the send buffer %s\n", now >= size ? "is the kernel's again" : "is small");
    close(copy);

    fd = new_socket("192.0.2.7", SOCK_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    tell("connect", to(fd, "192.0.2.7"));
    polled("poll", fd, 0);
    release();
    polled("poll later", fd, -1);
    error("error", fd);
    error("error again", fd);
    peer("peer", fd);
    close(fd);

    fd = new_socket("192.0.2.7", SOCK_NONBLOCK);
    tell("connect", to(fd, "192.0.2.7"));
    release();
    polled("poll later", fd, -1);
    tell("connect tells", to(fd, "192.0.2.7"));
    tell("connect after it", to(fd, "192.0.2.1"));
    polled("poll", fd, -1);
    error("error", fd);
    close(fd);
    tell("descriptors left", descriptors() - before + 1);
}

static void edges(void)
{
    struct epoll_event event = { EPOLLOUT | EPOLLIN | EPOLLET, { 0 } };
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), set = epoll_create1(0);

    tell("connect", to(fd, "192.0.2.5"));
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    tell("events", epoll_wait(set, &event, 1, 0));
    release();
    tell("events later", epoll_wait(set, &event, 1, -1));
    printf("%s\n", event.events == EPOLLOUT ? "writable" : "something else");
    error("error", fd);
    tell("no more events", epoll_wait(set, &event, 1, 0));
}

static void interrupted(int signal)
{
    (void)signal;
}

static void *releases(void *nothing)
{
    release();
    return nothing;
}

static void signals(void)
{
    /* Again and again: the first may come before anything waits. */
    struct itimerval soon = { { 0, 50000 }, { 0, 50000 } }, never = { { 0, 0 }, { 0, 0 } };
    struct timeval patience = { 0, 50000 };
    struct sigaction action;
    pthread_t thread;
    int fd;

    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    sigaction(SIGALRM, &action, NULL);
    fd = new_socket("192.0.2.5", 0);
    setitimer(ITIMER_REAL, &soon, NULL);
    tell("interrupted", to(fd, "192.0.2.5"));
    setitimer(ITIMER_REAL, &never, NULL);
    polled("poll", fd, 0);
    release();
    polled("poll later", fd, -1);
    error("error", fd);
    echo("echo", fd);
    close(fd);

    fd = new_socket("192.0.2.5", 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    tell("out of time", to(fd, "192.0.2.5"));
    polled("poll", fd, 0);
    release();
    polled("poll later", fd, -1);
    error("error", fd);
    close(fd);

    fd = new_socket("192.0.2.5", 0);
    setitimer(ITIMER_REAL, &soon, NULL);
    tell("interrupted", to(fd, "192.0.2.5"));
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_create(&thread, NULL, releases, NULL);
    tell("connect again waits", to(fd, "192.0.2.5"));
    pthread_join(thread, NULL);
    echo("echo", fd);
    close(fd);
}

static void restarts(int signal)
{
    pthread_t thread;

    (void)signal;
    pthread_create(&thread, NULL, releases, NULL);
    pthread_detach(thread);
}

static void restarted(void)
{
    struct itimerval soon = { { 0, 0 }, { 0, 50000 } };
    struct sigaction action;
    int fd = new_socket("192.0.2.5", 0);

    memset(&action, 0, sizeof action);
    action.sa_handler = restarts;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    tell("connect", to(fd, "192.0.2.5"));
    echo("echo", fd);
}

static void *waits(void *fd)
{
    to(*(int *)fd, "192.0.2.5");
    return NULL;
}

static void cancelled(void)
{
    int fd = new_socket("192.0.2.5", 0);
    pthread_t thread;
    void *result;

    pthread_create(&thread, NULL, waits, &fd);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "went on");
    tell("close", close(fd));
}

static void names(void)
{
    struct addrinfo hints, *found;
    int fd = -1;

    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    must(getaddrinfo("one.example", "80", &hints, &found) == 0, "getaddrinfo");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    tell("by getaddrinfo", connect(fd, found->ai_addr, found->ai_addrlen));
    freeaddrinfo(found);
    echo("echo", fd);
    close(fd);
    struct hostent *host = gethostbyname("two.example");
    must(host != NULL, "gethostbyname");
    destination("192.0.2.1", 80);
    memcpy(&((struct sockaddr_in *)&storage)->sin_addr, host->h_addr_list[0], 4);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    tell("by gethostbyname", connect(fd, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)));
    echo("echo", fd);
}

static void others(void)
{
    char byte = 'x';
    int fd = socket(AF_INET, SOCK_DGRAM, 0), server, one;
    struct sockaddr_in address;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { &storage, 0, &part, 1, NULL, 0, 0 };

    must(fd >= 0, "socket");
    server = listener(&address);
    one = connected(&address);
    peer("peer on loopback is not asked for", server);
    local("on loopback", one, "127.0.0.1");
    close(accept(server, NULL, NULL));
    close(one);

    fd = new_socket("192.0.2.1", 0);
    destination("192.0.2.1", 80);
    tell("sendto opens", (int)sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)));
    tell("recv", (int)recv(fd, &byte, 1, 0));
    peer("peer", fd);
    close(fd);
    fd = new_socket("192.0.2.1", 0);
    message.msg_namelen = destination("192.0.2.1", 80);
    tell("sendmsg opens", (int)sendmsg(fd, &message, MSG_FASTOPEN));
    tell("recv", (int)recv(fd, &byte, 1, 0));
    close(fd);
    fd = new_socket("192.0.2.2", SOCK_NONBLOCK);
    destination("192.0.2.2", 80);
    tell("sendto begins", (int)sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)));
    polled("poll", fd, -1);
    error("error", fd);
    close(fd);
}

static void processes(const char *self)
{
    char number[16];
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), status;

    tell("connect", to(fd, "192.0.2.5"));
    fflush(stdout);
    if (fork() == 0) {
        polled("the child polls", fd, -1);
        error("the child's error", fd);
        peer("the child's peer", fd);
        fflush(stdout);
        _exit(0);
    }
    release();
    wait(&status);
    polled("poll", fd, -1);
    error("error", fd);
    fflush(stdout);
    if (fork() == 0) {
        snprintf(number, sizeof number, "%d", fd);
        execl(self, self, "inherited", number, NULL);
        _exit(9);
    }
    wait(&status);
    dup2(1, fd);
    tell("not a socket any more", getpeername(fd, (struct sockaddr *)&storage, &(socklen_t){ sizeof storage }));
}

/* A program may close what it does not know, and get the numbers for its own. */
static void closers(void)
{
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), low;

    tell("connect", to(fd, "192.0.2.5"));
    for (int each = fd + 1; each < 2000; each++)
        close(each);
    tell("close_range", close_range((unsigned)fd + 1, ~0u, 0));
    low = open("/dev/null", O_RDONLY);
    tell("lowest", low == fd + 1 ? 0 : low);
    for (int each = 1000; each < 1010; each++)
        must(dup2(low, each) == each, "dup2");
    release();
    polled("poll", fd, -1);
    error("error", fd);
    peer("peer", fd);
    for (int each = 1000; each < 1010; each++)
        must(fcntl(each, F_GETFD) == 0 && close(each) == 0, "its own descriptors");
}

static void *many(void *nothing)
{
    for (int each = 0; each < 50; each++) {
        int fd = new_socket("192.0.2.1", each % 2 ? SOCK_NONBLOCK : 0);
        struct pollfd one = { fd, POLLOUT, 0 };
        char byte;

        if (to(fd, "192.0.2.1") != 0) {
            must(errno == EINPROGRESS, "connect");
            must(poll(&one, 1, -1) == 1 && to(fd, "192.0.2.1") == 0, "later");
            fcntl(fd, F_SETFL, 0);
        }
        must(send(fd, "x", 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1 && byte == 'x', "echo");
        close(fd);
    }
    return nothing;
}

static void threads(void)
{
    pthread_t all[8];

    for (int each = 0; each < 8; each++)
        pthread_create(&all[each], NULL, many, NULL);
    for (int each = 0; each < 8; each++)
        pthread_join(all[each], NULL);
    puts("all came back");
}

/* A question, which has no route for an answer. */
static int asks(const char *text)
{
    int fd = new_socket(text, 0), result = to(fd, text), error = errno;

    close(fd);
    return result == -1 && error == EHOSTUNREACH;
}

static volatile sig_atomic_t handled, unanswered;

static void asks_in_handler(int signal)
{
    (void)signal;
    handled++;
    unanswered += !asks("192.0.2.3");
}

static void *asks_on(void *stop)
{
    while (!*(volatile int *)stop)
        must(asks("192.0.2.3"), "a question");
    return NULL;
}

static void questions(const char *self)
{
    int low, before;

    must(asks("192.0.2.3"), "the first");
    before = descriptors();
    for (int each = 0; each < 20; each++)
        must(asks("192.0.2.3"), "one more");
    tell("descriptors more", descriptors() - before);
    for (int each = 3; each < 2000; each++)
        close(each);
    must(close_range(3, ~0u, 0) == 0, "close_range");
    closefrom(3);
    low = open("/dev/null", O_RDONLY);
    tell("lowest", low);
    for (int each = 1000; each < 1010; each++)
        must(dup2(low, each) == each, "dup2");
    must(asks("192.0.2.3"), "after all was closed");
    for (int each = 1000; each < 1010; each++)
        must(fcntl(each, F_GETFD) == 0 && close(each) == 0, "its own descriptors");
    puts("kept");
    fflush(stdout);

    /* A child has one of its own, and so has what is executed. */
    if (fork() == 0)
        _exit(asks("192.0.2.3") && asks("192.0.2.3") ? 0 : 1);
    must(asks("192.0.2.3"), "beside a child");
    must(wait(&low) > 0 && low == 0, "the child");
    if (fork() == 0) {
        execl(self, self, "one question", NULL);
        _exit(9);
    }
    must(wait(&low) > 0 && low == 0, "what was executed");
    must(asks("192.0.2.3"), "beside what was executed");

    /* Closed behind its back, and its number taken; and an on-ramp that was started anew. */
    must(syscall(SYS_close_range, 3u, ~0u, 0) == 0, "a bare close_range");
    low = open("/dev/null", O_RDWR);
    for (int each = 1000; each < 1010; each++)
        must(syscall(SYS_dup2, low, each) == each, "a bare dup2");
    must(asks("192.0.2.3"), "after that");
    for (int each = 1000; each < 1010; each++)
        must(fcntl(each, F_GETFD) == 0 && close(each) == 0, "its own descriptors");
    must(asks("192.0.2.9") && asks("192.0.2.3"), "another on-ramp");
    puts("opened again");
}

static void interruptions(void)
{
    struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };
    struct sigaction action;
    pthread_t all[4];
    int stop = 0, status;

    memset(&action, 0, sizeof action);
    action.sa_handler = asks_in_handler;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < 200)
        must(asks("192.0.2.3"), "an interrupted question");
    setitimer(ITIMER_REAL, &never, NULL);
    tell("unanswered", unanswered);

    for (int each = 0; each < 4; each++)
        pthread_create(&all[each], NULL, asks_on, &stop);
    fflush(stdout);
    for (int each = 0; each < 50; each++) {
        if (fork() == 0)
            _exit(asks("192.0.2.3") && asks("192.0.2.3") ? 0 : 1);
        must(wait(&status) > 0 && status == 0, "a child of many threads");
    }
    stop = 1;
    for (int each = 0; each < 4; each++)
        pthread_join(all[each], NULL);
    puts("all were answered");
}

/* Direct connections to a server of this machine: the on-ramp would know how far it is. */
static void distances(const char *text, int port)
{
    struct pollfd one = { -1, POLLOUT, 0 };
    socklen_t length;
    int fd, status;

    length = destination(text, port);
    fd = socket(storage.ss_family, SOCK_STREAM, 0);
    must(connect(fd, (struct sockaddr *)&storage, length) == 0, "connect");
    close(fd);
    for (int asks = 0; asks < 2; asks++) {
        fd = socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        status = connect(fd, (struct sockaddr *)&storage, length);
        must(status == 0 || errno == EINPROGRESS, "connect");
        one.fd = fd;
        must(poll(&one, 1, -1) == 1, "poll");
        if (asks)
            error("error", fd);
        close(fd);
    }
}

/* A direct connection, of which nothing is sent: the socket's own address is one that leads nowhere else. */
static void direct(const char *text)
{
    struct sockaddr_in loopback;
    int fd = new_socket(text, 0);

    memset(&loopback, 0, sizeof loopback);
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0, "bind");
    must(to(fd, text) == -1 && (errno == EINVAL || errno == ENETUNREACH), "what the kernel says");
    close(fd);
}

/* Something is to be read at the line, or it has ended. */
static void line_speaks(void)
{
    struct pollfd line = { 1000, POLLIN, 0 };

    while (fcntl(line.fd, F_GETFD) < 0)
        must(++line.fd < 1010, "a line");
    must(poll(&line, 1, -1) == 1, "poll");
}

/* Answers that are remembered, and the questions that are asked again. */
static void remembers(void)
{
    int status;

    for (int each = 0; each < 4; each++)
        direct("192.0.2.10");
    /* Told to forget before the answer, and after. */
    direct("192.0.2.11");
    direct("192.0.2.10");
    direct("192.0.2.10");
    direct("192.0.2.12");
    line_speaks();
    direct("192.0.2.10");
    /* A child does not go by what its parent was told. */
    if (fork() == 0) {
        direct("192.0.2.10");
        direct("192.0.2.10");
        _exit(0);
    }
    must(wait(&status) > 0 && status == 0, "the child");
    /* The on-ramp has gone. */
    must(asks("192.0.2.9"), "the last question");
    line_speaks();
    direct("192.0.2.10");
    direct("192.0.2.10");
    puts("done");
}

static void connect_only(const char *text)
{
    int fd = new_socket(text, SOCK_NONBLOCK);

    tell("connect", to(fd, text));
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";

    if (strcmp(what, "blocking") == 0)
        blocking();
    else if (strcmp(what, "nonblocking") == 0)
        nonblocking();
    else if (strcmp(what, "edges") == 0)
        edges();
    else if (strcmp(what, "signals") == 0)
        signals();
    else if (strcmp(what, "restarted") == 0)
        restarted();
    else if (strcmp(what, "cancelled") == 0)
        cancelled();
    else if (strcmp(what, "names") == 0)
        names();
    else if (strcmp(what, "others") == 0)
        others();
    else if (strcmp(what, "processes") == 0)
        processes(words[0]);
    else if (strcmp(what, "inherited") == 0) {
        local("inherited", atoi(words[2]), "192.0.2.5");
        peer("inherited", atoi(words[2]));
    }
    else if (strcmp(what, "closers") == 0)
        closers();
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "questions") == 0)
        questions(words[0]);
    else if (strcmp(what, "one question") == 0)
        return !asks("192.0.2.3");
    else if (strcmp(what, "interruptions") == 0)
        interruptions();
    else if (strcmp(what, "remembers") == 0)
        remembers();
    else if (strcmp(what, "distances") == 0)
        distances(words[2], atoi(words[3]));
    else if (strcmp(what, "connect") == 0)
        connect_only(words[2]);
    else
        return 64;
    return 0;
}
