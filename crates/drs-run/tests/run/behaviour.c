/*
 * Does what programs do with descriptors and connections, and prints all that it can see of it: the output must be the same with and
 * without the preload library.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, long result)
{
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

static int listener(struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 8192;

    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    bind(fd, (struct sockaddr *)address, sizeof *address);
    listen(fd, 4);
    getsockname(fd, (struct sockaddr *)address, &length);
    return fd;
}

static int connected(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 16384;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    tell("connect", connect(fd, (const struct sockaddr *)address, sizeof *address));
    return fd;
}

static void send_all(int fd, size_t left)
{
    static char block[65536];

    while (left > 0) {
        ssize_t sent = send(fd, block, left < sizeof block ? left : sizeof block, MSG_NOSIGNAL);
        if (sent < 0)
            break;
        left -= (size_t)sent;
    }
    tell("left to send", (long)left);
}

static long receive_all(int fd)
{
    char block[65536];
    long all = 0;
    ssize_t got;

    while ((got = recv(fd, block, sizeof block, 0)) > 0)
        all += got;
    return all;
}

static void errors(void)
{
    struct sockaddr_in address;
    int fd = listener(&address), null = open("/dev/null", O_RDWR);

    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    tell("refused", connect(fd, (struct sockaddr *)&address, sizeof address));
    tell("close", close(fd));
    tell("close again", close(fd));
    tell("close none", close(-1));
    tell("close what was never open", close(1000));
    tell("close far", close(70000));
    tell("dup none", dup(-1));
    tell("dup2 none", dup2(-1, 5));
    tell("dup2 itself", dup2(null, null));
    tell("dup3 itself", dup3(null, null, 0));
    tell("accept on a file", accept(null, NULL, NULL));
    tell("listen on a file", listen(null, 1));
    tell("connect a file", connect(null, (struct sockaddr *)&address, sizeof address));
    tell("close file", close(null));
    errno = 33;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    close(fd);
    tell("errno after success", errno);
}

static void forks(void)
{
    struct sockaddr_in address;
    int fd = listener(&address), status, one, other;
    pid_t child;

    one = connected(&address);
    other = accept(fd, NULL, NULL);
    tell("numbers", fd * 10000 + one * 100 + other);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        long all;
        close(one);
        close(fd);
        all = receive_all(other);
        tell("child received", all);
        fflush(stdout);
        _exit(all == 4000000 ? 7 : 8);
    }
    close(other);
    send_all(one, 4000000);
    shutdown(one, SHUT_WR);
    waitpid(child, &status, 0);
    tell("child ended with", WEXITSTATUS(status));
    tell("end seen", recv(one, &status, 1, 0));
    close(one);
    close(fd);
}

static void copies(void)
{
    struct sockaddr_in address;
    int fd = listener(&address), one = connected(&address), other = accept(fd, NULL, NULL), copy, status;
    pid_t child;

    copy = dup(one);
    tell("copy", copy);
    tell("dup2", dup2(other, 30));
    tell("dup3", dup3(one, 31, O_CLOEXEC));
    close(other);
    close(one);
    fflush(stdout);
    child = vfork();
    if (child == 0) {
        close(copy);
        close(30);
        _exit(3);
    }
    waitpid(child, &status, 0);
    tell("borrowed child ended with", WEXITSTATUS(status));
    send_all(31, 20000);
    tell("dup2 over a connection", dup2(1, 31));
    shutdown(copy, SHUT_WR);
    tell("received by the copy", receive_all(30));
    tell("close_range", close_range(3, ~0u, 0));
    tell("lowest", open("/dev/null", O_RDONLY));
    closefrom(3);
    tell("lowest again", open("/dev/null", O_RDONLY));
    close(3);
}

static void *accepts(void *fd)
{
    accept(*(int *)fd, NULL, NULL);
    return NULL;
}

static void interrupted(int signal)
{
    (void)signal;
    close(-1);
}

static void threads(void)
{
    struct sockaddr_in address;
    struct sigaction action;
    struct itimerval soon = { { 0, 20000 }, { 0, 20000 } }, never = { { 0, 0 }, { 0, 0 } };
    pthread_t thread;
    void *result;
    int fd = listener(&address), one, other;

    pthread_create(&thread, NULL, accepts, &fd);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    tell("cancelled", result == PTHREAD_CANCELED);

    one = connected(&address);
    other = accept(fd, NULL, NULL);
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    tell("accept interrupted", accept(fd, NULL, NULL));
    setitimer(ITIMER_REAL, &never, NULL);
    close(one);
    tell("closed by the other", recv(other, &one, 1, 0));
    close(other);
    close(fd);
}

int main(void)
{
    errors();
    forks();
    copies();
    threads();
    return 5;
}
