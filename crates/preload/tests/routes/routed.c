/*
 * Connects to destinations that only an on-ramp knows, and prints all that it sees. What the on-ramp of the tests does with each is in
 * onramp.rs: .1 stands at once, .2 is refused, .3 has no route, .5 and .7 wait until somebody connects to .6 and then stand or are
 * refused, .8 goes away, .9 has no route, and the on-ramp goes when it has said so.
 */
#include "routed.h"

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";

    if (strcmp(what, "blocking") == 0)
        blocking();
    else if (strcmp(what, "nonblocking") == 0)
        nonblocking();
    else if (strcmp(what, "edges") == 0)
        edges();
    else if (strcmp(what, "signals") == 0)
        signals();
    else if (strcmp(what, "restarted") == 0)
        restarted();
    else if (strcmp(what, "cancelled") == 0)
        cancelled();
    else if (strcmp(what, "names") == 0)
        names();
    else if (strcmp(what, "others") == 0)
        others();
    else if (strcmp(what, "processes") == 0)
        processes(words[0]);
    else if (strcmp(what, "inherited") == 0) {
        local("inherited", atoi(words[2]), "192.0.2.5");
        peer("inherited", atoi(words[2]));
    }
    else if (strcmp(what, "closers") == 0)
        closers();
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "questions") == 0)
        questions(words[0]);
    else if (strcmp(what, "one question") == 0)
        return !asks("192.0.2.3");
    else if (strcmp(what, "interruptions") == 0)
        interruptions();
    else if (strcmp(what, "remembers") == 0)
        remembers();
    else if (strcmp(what, "distances") == 0)
        distances(words[2], atoi(words[3]));
    else if (strcmp(what, "connect") == 0)
        connect_only(words[2]);
    else
        return 64;
    return 0;
}
