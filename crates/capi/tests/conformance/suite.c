/* Conformance of stream sockets: suite [CASE ...]. Prints a line for each case, and ends with the number of cases that could not be run to their end.
 * SUITE_SILENT and SUITE_UNREACHABLE name an address that never answers and one that has no route. */
#include "suite.h"

/** Seconds that a case may take before it counts as hanging. */
#define MAX_SECONDS 120

static char line[4096];
static size_t used;
volatile sig_atomic_t signals;

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (used + 1 < sizeof line) {
        line[used++] = ' ';
        int length = vsnprintf(line + used, sizeof line - used, format, arguments);
        used += length < 0 ? 0 : (size_t)length;
        if (used >= sizeof line)
            used = sizeof line - 1;
    }
    va_end(arguments);
}

const char *error_word(int error) {
    const char *name = error == 0 ? "no-error" : strerrorname_np(error);
    return name ? name : "unknown-error";
}

void say_result(const char *what, long result) {
    int error = errno;
    say("%s:%s", what, result < 0 ? error_word(error) : "ok");
}

void say_events(const char *what, int events) {
    static const struct {
        int bit;
        const char *name;
    } names[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"}, {POLLERR, "ERR"}, {POLLHUP, "HUP"}, {POLLRDHUP, "RDHUP"}};
    char text[64] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (events & names[i].bit) {
            strcat(text, *text ? "+" : "");
            strcat(text, names[i].name);
        }
    say("%s:%s", what, *text ? text : "none");
}

void die(const char *what) {
    say("DIED %s: %s", what, error_word(errno));
    printf("%s\n", line);
    fflush(stdout);
    _exit(1);
}

struct sockaddr_in local_address(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}

struct sockaddr_in given_address(const char *variable) {
    struct sockaddr_in address = local_address(4711);
    const char *text = getenv(variable);
    if (!text || inet_pton(AF_INET, text, &address.sin_addr) != 1)
        die(variable);
    return address;
}

int socket_v4(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        die("socket");
    return fd;
}

struct sockaddr_in refused_address(void) {
    /* A port that somebody holds without listening is given to nobody else. */
    int fd = socket_v4();
    struct sockaddr_in address = local_address(0);
    socklen_t length = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, length) || getsockname(fd, (struct sockaddr *)&address, &length))
        die("bind");
    return address;
}

int listener(struct sockaddr_in *at) {
    int fd = socket_v4();
    socklen_t length = sizeof *at;
    *at = local_address(0);
    if (bind(fd, (struct sockaddr *)at, length) || listen(fd, 128) || getsockname(fd, (struct sockaddr *)at, &length))
        die("listen");
    return fd;
}

int connect_to(int fd, const struct sockaddr_in *to) {
    return connect(fd, (const struct sockaddr *)to, sizeof *to);
}

void connected_pair(int *client, int *server) {
    struct sockaddr_in at;
    int listening = listener(&at);
    *client = socket_v4();
    if (connect_to(*client, &at))
        die("connect");
    *server = accept(listening, NULL, NULL);
    if (*server < 0)
        die("accept");
    close(listening);
}

void set_nonblocking(int fd, int on) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK))
        die("fcntl");
}

int wait_for(int fd, int events) {
    struct pollfd asked = {.fd = fd, .events = (short)events};
    int found;
    while ((found = poll(&asked, 1, -1)) < 0 && errno == EINTR)
        ;
    if (found < 0)
        die("poll");
    return asked.revents;
}

void until_refused(const struct sockaddr_in *at) {
    for (;;) {
        int fd = socket_v4(), failed = connect_to(fd, at), error = errno;
        close(fd);
        if (failed && error == ECONNREFUSED)
            return;
        usleep(1000);
    }
}

int pending_error(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
        die("SO_ERROR");
    return error;
}

void send_all(int fd, const void *bytes, size_t length) {
    const char *at = bytes;
    while (length) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            die("send");
        at += sent;
        length -= (size_t)sent;
    }
}

long read_to_end(int fd, void *bytes, size_t length) {
    size_t got = 0;
    for (;;) {
        char rest[1];
        ssize_t more = got < length ? recv(fd, (char *)bytes + got, length - got, 0) : recv(fd, rest, 1, 0);
        if (more <= 0)
            return more < 0 ? -1 : (long)got;
        got += (size_t)more;
    }
}

void read_exactly(int fd, void *bytes, size_t length) {
    size_t got = 0;
    while (got < length) {
        ssize_t more = recv(fd, (char *)bytes + got, length - got, 0);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            die("recv");
        got += (size_t)more;
    }
}

static void counted(int signal) {
    (void)signal;
    signals++;
}

void count_signals(int signal, int flags) {
    struct sigaction action = {.sa_handler = counted, .sa_flags = flags};
    if (sigaction(signal, &action, NULL))
        die("sigaction");
}

void ring(int on) {
    struct itimerval often = {{0, on ? 20000 : 0}, {0, on ? 20000 : 0}};
    if (setitimer(ITIMER_REAL, &often, NULL))
        die("setitimer");
}

/** Runs a case in a child; gives whether it came to its end. */
static int runs(const struct one_case *one) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        used = (size_t)snprintf(line, sizeof line, "%s:", one->name);
        one->run();
        printf("%s\n", line);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    /* The bound is there for what hangs; nothing waits for it else. */
    for (int tenths = 0; waitpid(child, &status, WNOHANG) == 0; tenths++) {
        if (tenths == MAX_SECONDS * 100) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            printf("%s: HANGS\n", one->name);
            return 0;
        }
        usleep(10000);
    }
    if (WIFSIGNALED(status))
        printf("%s: KILLED %s\n", one->name, sigabbrev_np(WTERMSIG(status)));
    return status == 0;
}

int main(int argc, char **argv) {
    const struct one_case *tables[] = {closing_cases, connecting_cases, waiting_cases, listening_cases, moving_cases, descriptor_cases};
    int failed = 0;
    for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
        for (const struct one_case *one = tables[table]; one->name; one++) {
            int wanted = argc < 2;
            for (int i = 1; i < argc; i++)
                wanted |= strcmp(argv[i], one->name) == 0;
            if (wanted && !runs(one))
                failed++;
        }
    fflush(stdout);
    return failed != 0;
}
