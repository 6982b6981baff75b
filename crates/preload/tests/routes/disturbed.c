/* Connects beside signals, cancellation, forks, threads, and a program that closes what it does not know. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "routed.h"

static void interrupted(int signal)
{
    (void)signal;
}

static void *releases(void *nothing)
{
    release();
    return nothing;
}

void signals(void)
{
    /* Again and again: the first may come before anything waits. */
    struct itimerval soon = { { 0, 50000 }, { 0, 50000 } }, never = { { 0, 0 }, { 0, 0 } };
    struct timeval send_timeout = { 0, 50000 };
    struct sigaction action;
    pthread_t thread;
    int fd;

    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    sigaction(SIGALRM, &action, NULL);
    fd = new_socket("192.0.2.5", 0);
    setitimer(ITIMER_REAL, &soon, NULL);
    report("interrupted", to(fd, "192.0.2.5"));
    setitimer(ITIMER_REAL, &never, NULL);
    polled_until_released(fd);
    echo("echo", fd);
    close(fd);

    fd = new_socket("192.0.2.5", 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof send_timeout);
    report("out of time", to(fd, "192.0.2.5"));
    polled_until_released(fd);
    close(fd);

    fd = new_socket("192.0.2.5", 0);
    setitimer(ITIMER_REAL, &soon, NULL);
    report("interrupted", to(fd, "192.0.2.5"));
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_create(&thread, NULL, releases, NULL);
    report("connect again waits", to(fd, "192.0.2.5"));
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

void restarted(void)
{
    struct itimerval soon = { { 0, 0 }, { 0, 50000 } };
    struct sigaction action;
    int fd = new_socket("192.0.2.5", 0);

    memset(&action, 0, sizeof action);
    action.sa_handler = restarts;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    report("connect", to(fd, "192.0.2.5"));
    echo("echo", fd);
}

static void *waits(void *fd)
{
    to(*(int *)fd, "192.0.2.5");
    return NULL;
}

void cancelled(void)
{
    int fd = new_socket("192.0.2.5", 0);
    pthread_t thread;
    void *result;

    pthread_create(&thread, NULL, waits, &fd);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "went on");
    report("close", close(fd));
}

void processes(const char *self)
{
    char number[16];
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), status;

    report("connect", to(fd, "192.0.2.5"));
    fflush(stdout);
    if (fork() == 0) {
        polled("the child polls", fd, -1);
        socket_error("the child's error", fd);
        peer("the child's peer", fd);
        fflush(stdout);
        _exit(0);
    }
    release();
    wait(&status);
    polled("poll", fd, -1);
    socket_error("error", fd);
    fflush(stdout);
    if (fork() == 0) {
        snprintf(number, sizeof number, "%d", fd);
        execl(self, self, "inherited", number, NULL);
        _exit(9);
    }
    wait(&status);
    dup2(1, fd);
    report("not a socket any more", getpeername(fd, (struct sockaddr *)&storage, &(socklen_t){ sizeof storage }));
}

/* A program may close what it does not know, and get the numbers for its own. */
void closers(void)
{
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), low;

    report("connect", to(fd, "192.0.2.5"));
    for (int each = fd + 1; each < 2000; each++)
        close(each);
    report("close_range", close_range((unsigned)fd + 1, ~0u, 0));
    low = open("/dev/null", O_RDONLY);
    report("lowest", low == fd + 1 ? 0 : low);
    take_numbers(low);
    release();
    polled("poll", fd, -1);
    socket_error("error", fd);
    peer("peer", fd);
    give_numbers_back();
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

void threads(void)
{
    pthread_t all[8];

    for (int each = 0; each < 8; each++)
        pthread_create(&all[each], NULL, many, NULL);
    for (int each = 0; each < 8; each++)
        pthread_join(all[each], NULL);
    puts("all came back");
}
