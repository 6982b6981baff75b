/* What the acts do with a socket, and print of it. */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include "routed.h"

__thread struct sockaddr_storage storage;

socklen_t destination(const char *text, int port)
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

void report(const char *what, int result)
{
    printf("%s: %d %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

int to(int fd, const char *text)
{
    socklen_t length = destination(text, 80);

    return connect(fd, (struct sockaddr *)&storage, length);
}

int new_socket(const char *text, int flags)
{
    destination(text, 80);
    return socket(storage.ss_family, SOCK_STREAM | flags, 0);
}

void peer(const char *what, int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char text[INET6_ADDRSTRLEN] = "";
    int result = getpeername(fd, (struct sockaddr *)&address, &length);

    if (result != 0) {
        report(what, result);
        return;
    }
    if (address.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&address)->sin_addr, text, sizeof text);
    else
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&address)->sin6_addr, text, sizeof text);
    printf("%s: %s %d, %u bytes\n", what, text, ntohs(((struct sockaddr_in *)&address)->sin_port), length);
}

/* Whether a socket's address is what the kernel would choose for the destination, or loopback where it knows no way there. */
void local(const char *what, int fd, const char *text)
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

void socket_error(const char *what, int fd)
{
    int error = -1;
    socklen_t length = sizeof error;

    must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "SO_ERROR");
    printf("%s: %s\n", what, error == 0 ? "none" : strerrorname_np(error));
}

void polled(const char *what, int fd, int timeout)
{
    struct pollfd one = { fd, POLLOUT, 0 };
    int count = poll(&one, 1, timeout);

    /* With an error come OUT and HUP, each as soon as the kernel has got there. */
    printf("%s: %d%s\n", what, count, one.revents & POLLERR ? " ERR" : one.revents & POLLOUT ? " OUT" : "");
}

void echo(const char *what, int fd)
{
    char sent[] = "there and back", got[sizeof sent] = "";

    must(send(fd, sent, sizeof sent, MSG_NOSIGNAL) == sizeof sent, "send");
    must(recv(fd, got, sizeof got, MSG_WAITALL) == sizeof got, "recv");
    printf("%s: %s\n", what, got);
}

int descriptors(void)
{
    DIR *open = opendir("/proc/self/fd");
    int count = -3; /* . and .. and this one */

    while (readdir(open) != NULL)
        count++;
    closedir(open);
    return count;
}

void release(void)
{
    int fd = new_socket("192.0.2.6", 0);

    must(to(fd, "192.0.2.6") == 0, "release");
    close(fd);
}

void polled_until_released(int fd)
{
    polled("poll", fd, 0);
    release();
    polled("poll later", fd, -1);
    socket_error("error", fd);
}

void take_numbers(int fd)
{
    for (int each = 1000; each < 1010; each++)
        must(dup2(fd, each) == each, "dup2");
}

void give_numbers_back(void)
{
    for (int each = 1000; each < 1010; each++)
        must(fcntl(each, F_GETFD) == 0 && close(each) == 0, "its own descriptors");
}

/* A question, which has no route for an answer. */
int asks(const char *text)
{
    int fd = new_socket(text, 0), result = to(fd, text), error = errno;

    close(fd);
    return result == -1 && error == EHOSTUNREACH;
}
