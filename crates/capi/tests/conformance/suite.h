/* What the cases of the suite stand on. A case prints one line of words that do not depend on ports, times or numbers of descriptors, so that the
 * lines of two runs can be compared. Each case runs in a process of its own. */
#ifndef SUITE_H
#define SUITE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/** A case. It ends the line that it says something on. */
struct one_case {
    const char *name;
    void (*run)(void);
};

/* The tables of the cases, each ended by a NULL name. */
extern const struct one_case closing_cases[], connecting_cases[], listening_cases[], moving_cases[], descriptor_cases[], waiting_cases[];

/** Adds to the line of this case, with a space before it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Adds WHAT and "ok", or the name of errno if the result is negative. */
void say_result(const char *what, long result);
/** Adds WHAT and the names of the bits of poll. */
void say_events(const char *what, int events);
/** Ends the case: the machine does not do what the case needs to begin with. */
void die(const char *what) __attribute__((noreturn));
/** The name of an error. */
const char *error_word(int error);

/** An IPv4 address of this machine with a port of host byte order. */
struct sockaddr_in local_address(int port);
/** An address that a test network has been given for this purpose, and a port nobody listens on. */
struct sockaddr_in given_address(const char *variable);
/** A port of this machine that nobody listens on. */
struct sockaddr_in refused_address(void);
/** A listener on a free port of 127.0.0.1; its address goes to `at`. */
int listener(struct sockaddr_in *at);
int socket_v4(void);
int connect_to(int fd, const struct sockaddr_in *to);
/** Two connected sockets: the one that connected, and the one that was accepted. */
void connected_pair(int *client, int *server);
void set_nonblocking(int fd, int on);
/** Waits until the descriptor has one of these events; gives those it has. It waits as long as the case may. */
int wait_for(int fd, int events);
/** Connects until nobody listens there any more: what listens may be another process, which hears of a listener's end a moment later. */
void until_refused(const struct sockaddr_in *at);
/** What SO_ERROR says. */
int pending_error(int fd);
/** Sends all of it. */
void send_all(int fd, const void *bytes, size_t length);
/** Reads to the end of the stream, at most so much; gives how much, or -1. */
long read_to_end(int fd, void *bytes, size_t length);
/** Reads exactly so much. */
void read_exactly(int fd, void *bytes, size_t length);
/** A signal handler that counts in `signals`, with these flags of sigaction. */
void count_signals(int signal, int flags);
extern volatile sig_atomic_t signals;
/** Lets SIGALRM come every 20 ms, and no more. */
void ring(int on);

#endif
