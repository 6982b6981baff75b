/* Forks while another thread of the library's or of the program's is where the host's limits are read. The child must come through. */
#define _GNU_SOURCE

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "together.h"

static struct sockaddr_in address;

/* Whether some thread but this one waits in the kernel: in the read that lasts for ever, or, done with its work, for the next. */
static int another_waits(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    int waits = 0;

    while ((task = readdir(tasks)) != NULL) {
        char path[300], text[32] = "";
        FILE *file;
        long number = -1;

        if (atoi(task->d_name) <= 0 || atoi(task->d_name) == gettid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/syscall", task->d_name);
        file = fopen(path, "r");
        if (file != NULL) {
            if (fgets(text, sizeof text, file) != NULL)
                sscanf(text, "%ld", &number);
            fclose(file);
        }
        waits |= number == SYS_pause || number == SYS_nanosleep || number == SYS_clock_nanosleep || number == SYS_futex ||
                 number == SYS_accept;
    }
    closedir(tasks);
    return waits;
}

static void *connects(void *server)
{
    int fd = small_socket();

    connect(fd, (struct sockaddr *)&address, sizeof address);
    accept(*(int *)server, NULL, NULL);
    accept(*(int *)server, NULL, NULL);
    return NULL;
}

int main(void)
{
    int server = listener(&address), status;
    pthread_t thread;

    pthread_create(&thread, NULL, connects, &server);
    while (!another_waits())
        sched_yield();
    if (fork() == 0) {
        int fd = small_socket();

        alarm(30);
        must(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect in the child");
        _exit(3);
    }
    wait(&status);
    if (WIFSIGNALED(status))
        printf("the child was ended by signal %d\n", WTERMSIG(status));
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
