/* Questions to the on-ramp, as often as can be, and answers that are remembered. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "routed.h"

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

void questions(const char *self)
{
    int low, before;

    must(asks("192.0.2.3"), "the first");
    before = descriptors();
    for (int each = 0; each < 20; each++)
        must(asks("192.0.2.3"), "one more");
    report("descriptors more", descriptors() - before);
    for (int each = 3; each < 2000; each++)
        close(each);
    must(close_range(3, ~0u, 0) == 0, "close_range");
    closefrom(3);
    low = open("/dev/null", O_RDONLY);
    report("lowest", low);
    take_numbers(low);
    must(asks("192.0.2.3"), "after all was closed");
    give_numbers_back();
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
    give_numbers_back();
    must(asks("192.0.2.9") && asks("192.0.2.3"), "another on-ramp");
    puts("opened again");
}

void interruptions(void)
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
    report("unanswered", unanswered);

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
void distances(const char *text, int port)
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
            socket_error("error", fd);
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
void remembers(void)
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
