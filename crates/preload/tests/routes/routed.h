/* What the parts of the program share. What the on-ramp of the tests does with each destination is in onramp.rs, and said in routed.c. */
#ifndef ROUTED_H
#define ROUTED_H

#include "../support/together.h"

/* The last destination, of each thread. */
extern __thread struct sockaddr_storage storage;

/* Writes a destination into `storage`; its length. */
socklen_t destination(const char *text, int port);
/* Connects to port 80 there. */
int to(int fd, const char *text);
/* A socket of its family. */
int new_socket(const char *text, int flags);
/* Lets go what waits for a connection to .6. */
void release(void);
/* Copies a descriptor to the numbers at which the library keeps its own, of which a program need not know. */
void take_numbers(int fd);
/* Closes the copies, all of which must be there still. */
void give_numbers_back(void);
/* A question, which has no route for an answer. */
int asks(const char *text);
/* How many are open. */
int descriptors(void);

/* Each prints what it was, and what came of it. */
void report(const char *what, int result);
void peer(const char *what, int fd);
void local(const char *what, int fd, const char *text);
void socket_error(const char *what, int fd);
void polled(const char *what, int fd, int timeout);
void echo(const char *what, int fd);
/* Polls before and after `release`, and what error is left. */
void polled_until_released(int fd);

/* Connects that nothing disturbs. */
void blocking(void);
void nonblocking(void);
void edges(void);
void names(void);
void others(void);
void connect_only(const char *text);

/* Connects that something disturbs. */
void signals(void);
void restarted(void);
void cancelled(void);
void processes(const char *self);
void closers(void);
void threads(void);

/* Questions to the on-ramp. */
void questions(const char *self);
void interruptions(void);
void distances(const char *text, int port);
void remembers(void);

#endif
