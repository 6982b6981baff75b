/*
 * Makes a program of BSD sockets one whose connections take routes, when it is compiled anew:
 *
 *   cc -include longhaul-sockets.h program.c $(pkg-config --cflags --libs longhaul)
 *
 * This only gives names other meanings. It includes nothing, so a program's own choice of feature macros stands: the system's headers, where they
 * declare connect, declare lsl_connect, with the same type. Include it before them, if not by -include.
 *
 * What is replaced works on any descriptor, and concerns TCP sockets only. C programs only: in C++ these names are members of other things. Members of
 * structures and local names with these names are renamed everywhere alike, which changes nothing. Compiled with _FORTIFY_SOURCE, read and recv are
 * the system's: a program that meets a failed connect with them first, and asks neither SO_ERROR nor connect, reads ECONNRESET.
 */
#ifndef LONGHAUL_SOCKETS_H
#define LONGHAUL_SOCKETS_H

#ifdef __cplusplus
#error "longhaul-sockets.h is for C: in C++, call the functions of longhaul.h"
#endif

#define socket lsl_socket
#define connect lsl_connect
#define bind lsl_bind
#define listen lsl_listen
#define accept lsl_accept
#define accept4 lsl_accept4
#define send lsl_send
#define sendto lsl_sendto
#define sendmsg lsl_sendmsg
#define write lsl_write
#define writev lsl_writev
#define sendfile lsl_sendfile
#define recv lsl_recv
#define recvfrom lsl_recvfrom
#define recvmsg lsl_recvmsg
#define read lsl_read
#define readv lsl_readv
#define shutdown lsl_shutdown
#define getsockopt lsl_getsockopt
#define setsockopt lsl_setsockopt
#define getsockname lsl_getsockname
#define getpeername lsl_getpeername
#define close lsl_close
#define getaddrinfo lsl_getaddrinfo
#define freeaddrinfo lsl_freeaddrinfo
#define gethostbyname lsl_gethostbyname

#endif
