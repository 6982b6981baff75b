/*
 * A child of a fork has one thread until its fork is over, in whatever it does there; after that its inherited connection is looked at
 * once it calls anything of the kind.
 */
#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>

#include "together.h"

static int threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = -2; /* . and .. */

    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count;
}

static int in_handler, closed_in_handler = -1;

static void child_handler(void)
{
    close(closed_in_handler);
    in_handler = threads();
}

int main(void)
{
    struct sockaddr_in address;
    int server = listener(&address), one = connected(&address), other = accept(server, NULL, NULL), status;

    closed_in_handler = dup(one);
    pthread_atfork(NULL, NULL, child_handler);
    if (fork() == 0) {
        printf("in the handler: %d, after it: %d\n", in_handler, threads());
        close(server);
        printf("after the first call: %d\n", threads());
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    close(other);
    close(one);
    return WEXITSTATUS(status);
}
