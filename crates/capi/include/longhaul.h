/*
 * longhaul: sockets whose connections take routes.
 *
 * These are the calls of BSD sockets, under other names, with one address family more: AF_LSL, whose address names a destination and the depots
 * on the way there. What they give are ordinary descriptors of TCP sockets: poll, select, epoll, fcntl, dup, fork and SCM_RIGHTS work, half-close and
 * resets are what they are over TCP, and read and write may be used on them too. docs/capi.md says what differs.
 *
 *   On-ramp       Sessions are the business of the on-ramp, a program of this user on this machine (`longhaul onramp`), which the library starts if
 *                 none answers: `longhaul` beside the library, in $LONGHAUL_PROGRAM, or in $PATH. $LONGHAUL_ONRAMP names the socket of another one.
 *                 The on-ramp has the identity; routes.toml has the rules for destinations that say nothing of a route.
 *   Falling back  Where no on-ramp or no depot answers, and nothing has been sent, a connection is made directly, unless LSL_CLOSED or
 *                 $LONGHAUL_CLOSED is set. A destination that speaks the session protocol itself (LSL_ACCEPTOR) is not connected to without a session.
 *   Other sockets All functions take any descriptor: what is no TCP socket goes to the system call. AF_INET and AF_INET6 work too, and go by the rules.
 *   Threads       Every function may be called from any thread.
 *   Signals       What is safe in a signal handler as a system call is so here, except lsl_connect, lsl_listen and lsl_setsockopt of SOL_LSL.
 *   Errors        -1 and errno, as the system calls.
 *   Versions      Structures only grow at their end; numbers are never used for something else.
 *
 * Link with `pkg-config --cflags --libs longhaul`, statically with `pkg-config --static --libs` and liblonghaul.a.
 */
#ifndef LONGHAUL_H
#define LONGHAUL_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declared by netdb.h only where POSIX is asked for. */
struct addrinfo;
struct hostent;

/** The version that this header belongs to; lsl_version() tells the library's. */
#define LSL_VERSION "0.1.0"

/** The address family, for lsl_socket() and in addresses: a number that Linux uses for none. */
#define AF_LSL 0x4c53
#define PF_LSL AF_LSL

/** The level of the options in enum lsl_option. */
#define SOL_LSL 0x4c53

/** Most depots of a route. */
#define LSL_HOPS_MAX 16

/** Bits of sockaddr_lsl.slsl_flags. */
#define LSL_ACCEPTOR_FLAG 0x1u /**< The destination speaks the session protocol itself: a program that listens with lsl_listen(), say. */
#define LSL_CLOSED_FLAG 0x2u   /**< No connection where there is no route. */
#define LSL_DIRECT_FLAG 0x4u   /**< The route has no depots, whatever the rules say. */

/** A depot. */
struct lsl_hop {
    char host[254];   /**< Name or address. */
    in_port_t port;   /**< In network byte order; 0 for a depot's usual one (7510). */
    uint8_t loose;    /**< Not 0: depots may add others before this one. 0: it must follow directly. */
    uint8_t reserved; /**< 0. */
    char key[60];     /**< The key that it must show, "lhk1:..."; empty for any. */
};

/**
 * A destination, and the route to it. Begin with zeros and slsl_family. The length that is given with it may be sizeof, or end behind the last
 * hop that is used.
 */
struct sockaddr_lsl {
    sa_family_t slsl_family;                  /**< AF_LSL. */
    in_port_t slsl_port;                      /**< In network byte order. */
    uint32_t slsl_flags;                      /**< LSL_..._FLAG. */
    struct in6_addr slsl_addr;                /**< IPv6, or IPv4 as a mapped address; all zeros for none (to connect) or any (to bind). */
    uint32_t slsl_scope_id;                   /**< Of a link-local address. */
    uint32_t slsl_hop_count;                  /**< How many of slsl_hops are used; 0 leaves the route to the rules. */
    char slsl_name[256];                      /**< The destination's name; empty for none. The far end may know names that are not known here. */
    struct lsl_hop slsl_hops[LSL_HOPS_MAX];   /**< The depots, in order. */
};

/** Options of SOL_LSL. They may be set on any TCP socket, before it connects or listens. Strings may come with or without their zero. */
enum lsl_option {
    LSL_PURPOSE = 1,         /**< String of at most 64 bytes: what it is for. It rides to the depots, for their logs and policies. */
    LSL_SIZE = 2,            /**< uint64_t: bytes that will be sent; 0 for unknown. */
    LSL_RATE = 3,            /**< uint64_t: bits a second that are wished for; 0 for none. */
    LSL_DURATION = 4,        /**< uint64_t: seconds that it may take; 0 for any. */
    LSL_ROUTE = 5,           /**< String: the route, as for lsl_set_route(); for addresses that say nothing of it. */
    LSL_CONNECT_TIMEOUT = 6, /**< uint32_t: milliseconds after which a connect that waits gives up (ETIMEDOUT); 0 for as long as it takes. */
    LSL_CLOSED = 7,          /**< int: as LSL_CLOSED_FLAG. */
    LSL_ACCEPTOR = 8,        /**< int: as LSL_ACCEPTOR_FLAG. */
    LSL_ONRAMP = 9,          /**< String: the socket of the on-ramp to go by, and so the identity to show. Empty for the usual one. */
    LSL_PEER_KEY = 10,       /**< String: the key, "lhk1:...", that the destination must show, which then speaks the session protocol (as LSL_ACCEPTOR); to be read
                                  of an accepted connection: the key that the other end has shown. Empty for none. */
    LSL_REASON = 11,         /**< String, to be read: why the connection goes by a route or directly, or what failed, in words. */
    LSL_ROUTED = 12,         /**< int, to be read: whether it goes through the on-ramp. */
    LSL_PEER = 13            /**< struct sockaddr_lsl, to be read: where it leads. */
};

#ifdef LONGHAUL_SOCKETS_H
/* The system's headers have declared most of the functions below, under these names. */
#include <sys/sendfile.h>
#include <unistd.h>
#else

/** socket(2). AF_LSL gives a TCP socket for destinations of either family; its addresses are told as struct sockaddr_lsl. */
int lsl_socket(int domain, int type, int protocol);

/**
 * connect(2). Errors are those of the system call, also of a connection that was made far away (ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT); besides
 * ENETUNREACH where there is no route and there is to be no direct connection, and EACCES or EPERM where an on-ramp's or depot's policy says no.
 */
int lsl_connect(int fd, const struct sockaddr *address, socklen_t length);

/** bind(2). */
int lsl_bind(int fd, const struct sockaddr *address, socklen_t length);

/**
 * listen(2): takes sessions, through the on-ramp. The descriptor's number stays; register it with epoll afterwards. Without an on-ramp a socket of
 * AF_LSL fails with ENETUNREACH, and one of AF_INET or AF_INET6 listens for ordinary connections.
 */
int lsl_listen(int fd, int backlog);

/** accept(2), accept4(2). LSL_PEER_KEY says who has come. */
int lsl_accept(int fd, struct sockaddr *address, socklen_t *length);
int lsl_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);

/** As the system calls. Urgent data (MSG_OOB) is refused with EOPNOTSUPP where it would go through the on-ramp. */
ssize_t lsl_send(int fd, const void *bytes, size_t length, int flags);
ssize_t lsl_sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *address, socklen_t address_length);
ssize_t lsl_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t lsl_write(int fd, const void *bytes, size_t length);
ssize_t lsl_writev(int fd, const struct iovec *parts, int count);
ssize_t lsl_sendfile(int to, int from, off_t *offset, size_t count);
ssize_t lsl_recv(int fd, void *bytes, size_t length, int flags);
ssize_t lsl_recvfrom(int fd, void *bytes, size_t length, int flags, struct sockaddr *address, socklen_t *address_length);
ssize_t lsl_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t lsl_read(int fd, void *bytes, size_t length);
ssize_t lsl_readv(int fd, const struct iovec *parts, int count);

/** shutdown(2): both directions are closed by themselves, through to the other end. */
int lsl_shutdown(int fd, int how);

/** getsockopt(2), setsockopt(2): those of the system, and SOL_LSL's. */
int lsl_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int lsl_setsockopt(int fd, int level, int name, const void *value, socklen_t length);

/** getsockname(2). */
int lsl_getsockname(int fd, struct sockaddr *address, socklen_t *length);
/** getpeername(2): the destination that was asked for; of an accepted connection, where the last hop came from. */
int lsl_getpeername(int fd, struct sockaddr *address, socklen_t *length);

/** close(2). */
int lsl_close(int fd);

/**
 * getaddrinfo(3). With ai_family AF_LSL among the hints each result is a struct sockaddr_lsl with the name and one of its addresses; a name that is
 * not known here is given without an address, for the far end to resolve. The names of other results are remembered for lsl_connect().
 */
int lsl_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result);
void lsl_freeaddrinfo(struct addrinfo *list);
/** gethostbyname(3). */
struct hostent *lsl_gethostbyname(const char *name);

#endif

/**
 * Puts a route into an address: hops with commas between, each [~][KEY@]HOST[:PORT], with ~ before a loose one; "direct" for none; "" to leave it to
 * the rules. An address that fails with EINVAL stays as it was.
 */
int lsl_set_route(struct sockaddr_lsl *address, const char *route);

/** The library's version, such as "0.1.0". */
const char *lsl_version(void);

#ifdef __cplusplus
}
#endif

#endif
