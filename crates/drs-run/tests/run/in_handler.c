/* Calls all that may be called in a signal handler, for the first time in one. With an argument, on a stack of the least size. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "together.h"

static struct sockaddr_in address;
static int server, one, other, small;

static void handler(int signal)
{
    (void)signal;
    must(connect(small, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    must(accept(server, NULL, NULL) >= 0, "accept");
    must(dup2(one, 40) == 40, "dup2");
    must(dup3(one, 41, O_CLOEXEC) == 41, "dup3");
    must(close(dup(one)) == 0, "dup");
    must(close(other) == 0, "close");
    must(close(one) == 0, "close");
    must(close(40) == 0 && close(41) == 0, "close a copy");
    must(listen(server, 4) == 0, "listen");
}

int main(int count, char **words)
{
    void (*arm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "arm");
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size;
    struct sigaction action;
    stack_t stack;

    (void)words;
    server = listener(&address);
    small = small_socket();
    one = connected(&address);
    other = accept(server, NULL, NULL);
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    if (count > 1) {
        char *memory;

        memset(&stack, 0, sizeof stack);
        /* The frame that the kernel makes, and what POSIX means to be left for a handler. */
        stack.ss_size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 1024;
        size = (stack.ss_size + page - 1) / page * page;
        memory = mmap(NULL, size + 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(memory != MAP_FAILED && mprotect(memory + 16 * page, size, PROT_READ | PROT_WRITE) == 0, "mmap");
        /* Against the wall: what needs more than there is meets it. */
        stack.ss_sp = memory + 16 * page;
        action.sa_flags = SA_ONSTACK;
        must(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    }
    must(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    if (arm != NULL)
        arm();
    raise(SIGUSR1);
    close(small);
    close(server);
    puts("came back");
    return 0;
}
