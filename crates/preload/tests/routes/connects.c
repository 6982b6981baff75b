/* Connects that nothing disturbs: blocking and not, by address and by name. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>

#include "routed.h"

void blocking(void)
{
    static const char *const all[] = { "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1" };
    int fd = new_socket("192.0.2.3", 0), before;

    report("no route", to(fd, "192.0.2.3"));
    close(fd);
    before = descriptors();
    for (size_t each = 0; each < sizeof all / sizeof *all; each++) {
        fd = new_socket(all[each], 0);
        report("connect", to(fd, all[each]));
        peer("peer", fd);
        local("local", fd, all[each]);
        socket_error("error", fd);
        echo("echo", fd);
        report("connect again", to(fd, all[each]));
        shutdown(fd, SHUT_WR);
        report("end", (int)recv(fd, &storage, 1, 0));
        report("close", close(fd));
    }
    fd = new_socket("192.0.2.2", 0);
    report("refused", to(fd, "192.0.2.2"));
    socket_error("error", fd);
    peer("peer", fd);
    report("send", (int)send(fd, "x", 1, MSG_NOSIGNAL));
    report("connect after it", to(fd, "192.0.2.1"));
    echo("echo", fd);
    close(fd);
    fd = new_socket("192.0.2.3", 0);
    report("no route", to(fd, "192.0.2.3"));
    close(fd);
    report("descriptors left", descriptors() - before);
}

void nonblocking(void)
{
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), before = descriptors(), size, now, copy, buffer = 4096;
    socklen_t length = sizeof size;

    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length);
    report("connect", to(fd, "192.0.2.5"));
    polled("poll", fd, 0);
    socket_error("error", fd);
    peer("peer", fd);
    local("local", fd, "192.0.2.5");
    report("connect again", to(fd, "192.0.2.5"));
    report("send", (int)send(fd, "x", 1, MSG_NOSIGNAL));
    report("recv", (int)recv(fd, &buffer, 1, 0));
    copy = dup(fd);
    close(fd);
    release();
    polled("poll later", copy, -1);
    socket_error("error", copy);
    peer("peer", copy);
    report("connect once more", to(copy, "192.0.2.5"));
    report("and again", to(copy, "192.0.2.5"));
    fcntl(copy, F_SETFL, 0);
    echo("echo", copy);
    now = 0;
    getsockopt(copy, SOL_SOCKET, SO_SNDBUF, &now, &length);
    printf("the send buffer %s\n", now >= size ? "is the kernel's again" : "is small");
    close(copy);

    fd = new_socket("192.0.2.7", SOCK_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    report("connect", to(fd, "192.0.2.7"));
    polled_until_released(fd);
    socket_error("error again", fd);
    peer("peer", fd);
    close(fd);

    fd = new_socket("192.0.2.7", SOCK_NONBLOCK);
    report("connect", to(fd, "192.0.2.7"));
    release();
    polled("poll later", fd, -1);
    report("connect tells", to(fd, "192.0.2.7"));
    report("connect after it", to(fd, "192.0.2.1"));
    polled("poll", fd, -1);
    socket_error("error", fd);
    close(fd);
    report("descriptors left", descriptors() - before + 1);
}

void edges(void)
{
    struct epoll_event event = { EPOLLOUT | EPOLLIN | EPOLLET, { 0 } };
    int fd = new_socket("192.0.2.5", SOCK_NONBLOCK), set = epoll_create1(0);

    report("connect", to(fd, "192.0.2.5"));
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    report("events", epoll_wait(set, &event, 1, 0));
    release();
    report("events later", epoll_wait(set, &event, 1, -1));
    printf("%s\n", event.events == EPOLLOUT ? "writable" : "something else");
    socket_error("error", fd);
    report("no more events", epoll_wait(set, &event, 1, 0));
}

void names(void)
{
    struct addrinfo hints, *found;
    int fd = -1;

    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    must(getaddrinfo("one.example", "80", &hints, &found) == 0, "getaddrinfo");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    report("by getaddrinfo", connect(fd, found->ai_addr, found->ai_addrlen));
    freeaddrinfo(found);
    echo("echo", fd);
    close(fd);
    struct hostent *host = gethostbyname("two.example");
    must(host != NULL, "gethostbyname");
    destination("192.0.2.1", 80);
    memcpy(&((struct sockaddr_in *)&storage)->sin_addr, host->h_addr_list[0], 4);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    report("by gethostbyname", connect(fd, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)));
    echo("echo", fd);
}

void others(void)
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
    report("sendto opens", (int)sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)));
    report("recv", (int)recv(fd, &byte, 1, 0));
    peer("peer", fd);
    close(fd);
    fd = new_socket("192.0.2.1", 0);
    message.msg_namelen = destination("192.0.2.1", 80);
    report("sendmsg opens", (int)sendmsg(fd, &message, MSG_FASTOPEN));
    report("recv", (int)recv(fd, &byte, 1, 0));
    close(fd);
    fd = new_socket("192.0.2.2", SOCK_NONBLOCK);
    destination("192.0.2.2", 80);
    report("sendto begins", (int)sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)));
    polled("poll", fd, -1);
    socket_error("error", fd);
    close(fd);
}

void connect_only(const char *text)
{
    int fd = new_socket(text, SOCK_NONBLOCK);

    report("connect", to(fd, text));
}
