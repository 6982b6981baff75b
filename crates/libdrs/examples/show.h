/* What both examples share: the clock of their steps, and how a report is printed. */
#ifndef SHOW_H
#define SHOW_H

#include <drs.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Nanoseconds between two looks at the socket. */
#define BETWEEN_STEPS 20000000u

static uint64_t monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int mode_of(const char *word)
{
    int mode;
    for (mode = DRS_OBSERVE; mode <= DRS_PAPER_PLUS; mode++)
        if (strcmp(word, drs_mode_word(mode)) == 0)
            return mode;
    return -1;
}

/* Steps when the last step is long enough ago. Gives an error code of libdrs. */
static int step_and_show(drs_flow *flow, uint64_t *last)
{
    struct drs_report report;
    uint32_t i;
    int error;
    uint64_t now = monotonic();

    if (now - *last < BETWEEN_STEPS)
        return DRS_OK;
    *last = now;
    report.size = sizeof report;
    error = drs_flow_step(flow, now, &report);
    if (error != DRS_OK)
        return error;
    if (report.flags & DRS_HAS_VERDICT)
        printf("limit %s goodput_mbps %.2f rtt_ms %.1f send_buffer %llu receive_buffer %llu\n",
               drs_limit_word((int)report.limit), report.goodput_bps / 1e6, (double)report.rtt_us / 1e3,
               (unsigned long long)report.send_buffer, (unsigned long long)report.receive_buffer);
    for (i = 0; i < report.action_count; i++)
        printf("action %s %llu%s: %s\n", drs_action_word((int)report.actions[i].kind),
               (unsigned long long)report.actions[i].made, report.actions[i].failed ? " (refused)" : "",
               report.actions[i].cause);
    if (report.flags & DRS_HAS_ADVICE)
        printf("advice %s: %s\n", drs_advice_word((int)report.advice), report.advice_text);
    return DRS_OK;
}

#endif
