/*
 * drs.h: measures TCP connections, says what limits them, and right-sizes them where that helps.
 *
 * A flow is bound to a socket that the program has already. It is looked at by drs_flow_step(), which the program
 * calls now and then (some 20 to 100 times a second while data moves; more often is harmless). Nothing else is asked of the
 * program, and no thread is started.
 *
 * Rules for the caller
 *
 *   Descriptors   A flow borrows its descriptor: it never closes it and never duplicates it. The program frees the flow before it
 *                 closes the socket; a step after the close gives DRS_EBADF, or looks at whatever has that number now.
 *   Threads       Every function may be called from any thread. Different flows never wait for each other. Steps of the same flow
 *                 are put one behind the other by a lock inside. Freeing a flow while another thread uses it is
 *                 an error of the caller, as with free(3).
 *   Signals       Not for signal handlers.
 *   Memory        Allocated by drs_flow_new() and drs_budget_new() only, never by a step.
 *   Versions      Structures begin with their size, which the caller sets; later versions only add members at the end. Numbers of
 *                 enumerations are never used for something else. Expect numbers that this header does not have.
 *   errno         Is left as it was.
 *
 * Link with `pkg-config --cflags --libs drs`, statically with `pkg-config --static --libs` and libdrs.a.
 */
#ifndef DRS_H
#define DRS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version that this header belongs to; drs_version() tells the library's. */
#define DRS_VERSION "0.1.0"

/** A connection that is measured and, unless it is only observed, right-sized. */
typedef struct drs_flow drs_flow;

/** Buffer memory that several flows share. */
typedef struct drs_budget drs_budget;

/** Which end of the data this socket is. */
enum drs_side {
    DRS_SENDING = 1,  /**< It sends the bulk of the data. */
    DRS_RECEIVING = 2 /**< It receives the bulk of the data. */
};

/** What a flow may do. */
enum drs_mode {
    DRS_OBSERVE = 0,   /**< Measures, changes nothing. */
    DRS_AUTO = 1,      /**< Acts only where the kernel's own tuning is held down. The one to take. */
    DRS_CLASSIC = 2,   /**< The Dynamic Right-Sizing of the paper: twice the window estimated by the receiver. */
    DRS_PAPER_PLUS = 3 /**< The same with answers to the paper's open questions: it shrinks, and shares memory. */
};

/** What holds a connection to its present rate. drs_limit_word() gives each a short word. */
enum drs_limit {
    DRS_LIMIT_SENDING_APPLICATION = 1,   /**< The sending program gives the socket less than the path could carry. */
    DRS_LIMIT_RECEIVING_APPLICATION = 2, /**< The receiving program reads slower than data arrives. */
    DRS_LIMIT_SEND_BUFFER = 3,           /**< The send buffer. */
    DRS_LIMIT_RECEIVE_WINDOW = 4,        /**< The receive window, although the program reads all there is. */
    DRS_LIMIT_PACING = 5,                /**< A pacing rate that someone set. */
    DRS_LIMIT_GROWING = 6,               /**< Nothing yet: the congestion window still grows. */
    DRS_LIMIT_LOSS = 7,                  /**< Losses that no full queue explains. */
    DRS_LIMIT_PATH = 8,                  /**< The path is full. */
    DRS_LIMIT_SENDER = 9                 /**< Something at the sending end; only the receiving side says so. */
};

/** What was set on a socket. drs_action_word() gives each a short word. Sizes are in bytes. */
enum drs_action_kind {
    DRS_ACTION_UNLOCK_RECEIVE = 1,     /**< The receive buffer was given back to autotuning (SO_BUF_LOCK). */
    DRS_ACTION_UNLOCK_SEND = 2,        /**< The send buffer was given back to autotuning. */
    DRS_ACTION_RECEIVE_BUFFER = 3,     /**< SO_RCVBUF. */
    DRS_ACTION_SEND_BUFFER = 4,        /**< SO_SNDBUF. */
    DRS_ACTION_WINDOW_CLAMP = 5,       /**< TCP_WINDOW_CLAMP. */
    DRS_ACTION_UNSENT_LIMIT = 6,       /**< TCP_NOTSENT_LOWAT. */
    DRS_ACTION_PACING_RATE = 7,        /**< SO_MAX_PACING_RATE, in bytes a second. */
    DRS_ACTION_CONGESTION_CONTROL = 8  /**< TCP_CONGESTION; cause says which. */
};

/** What no socket option of this side can do, for the program or its user. drs_advice_word() gives each a short word. */
enum drs_advice_kind {
    DRS_ADVICE_STREAMS = 1,    /**< Use advice_value connections side by side. */
    DRS_ADVICE_DEPOT = 2,      /**< A relay on the way shortens the loop that repairs losses. */
    DRS_ADVICE_RAISE = 3,      /**< Whoever administers this host may raise a limit to advice_value; advice_text names it. */
    DRS_ADVICE_LIFT_PACING = 4 /**< Whoever set a pacing rate may lift it. */
};

/** Errors. All are negative; drs_strerror() says what to do. */
enum drs_error {
    DRS_OK = 0,
    DRS_ENULL = -1,    /**< A pointer that must not be NULL is. */
    DRS_EINVAL = -2,   /**< A side, a mode, a size or a number is none that this knows. */
    DRS_EBADF = -3,    /**< The descriptor is not open. */
    DRS_ENOTTCP = -4,  /**< The descriptor is no TCP socket, or a listening one. */
    DRS_ESYSTEM = -5,  /**< The kernel refused, or is too old. */
    DRS_EINTERNAL = -6 /**< A defect of this library; the flow is unusable, the socket is as it was. */
};

/** Bits of drs_report.flags. */
#define DRS_HAS_VERDICT 0x1u /**< An interval closed in this step: limit and the figures below it are new. */
#define DRS_HAS_ADVICE 0x2u  /**< advice and its members are set. */
#define DRS_HAS_PACING 0x4u  /**< pacing_bps is known. */
#define DRS_HAS_DELIVERY 0x8u /**< delivery_bps is known. */

/** Room for actions in a report. */
#define DRS_ACTIONS_MAX 8

/** One thing that a step set. */
struct drs_action {
    uint32_t kind;    /**< enum drs_action_kind. */
    int32_t failed;   /**< 0 when the kernel took it; else the errno of its refusal. */
    uint64_t asked;   /**< What was asked for; 0 where it is no number. */
    uint64_t made;    /**< What the kernel made of it: buffers count their bookkeeping, so they are twice what was asked. */
    char cause[128];  /**< Why, as a sentence with the numbers that decided, zero-ended. */
};

/** What a step found. Set size to sizeof(struct drs_report) before the first step; it stays good for the next. */
struct drs_report {
    uint32_t size;  /**< In: the caller's size of this structure. Out: how much of it was filled. */
    uint32_t flags; /**< DRS_HAS_ bits. */
    uint32_t limit; /**< enum drs_limit. Without DRS_HAS_VERDICT: 0. */
    uint32_t action_count;                      /**< How many of actions are set. */
    struct drs_action actions[DRS_ACTIONS_MAX]; /**< What was done in this step. */
    uint32_t advice;       /**< enum drs_advice_kind; 0 for none. */
    uint32_t advice_value; /**< Its number, where it has one. */
    char advice_text[256]; /**< The advice as a sentence, zero-ended. */

    /* The evidence for the verdict, over its interval. Rates in bit/s, times in microseconds, sizes in bytes. */
    uint64_t interval_us;             /**< Length of the interval. */
    uint64_t rtt_us;                  /**< Smoothed round-trip time at its end. */
    uint64_t min_rtt_us;              /**< The least round-trip time known. */
    double goodput_bps;               /**< Payload that got through. */
    double pacing_bps;                /**< Pacing rate. */
    double delivery_bps;              /**< The kernel's estimate of the delivery rate. */
    uint64_t congestion_window;       /**< The congestion window. */
    uint64_t in_flight;               /**< Sent and not acknowledged. */
    uint64_t peer_window;             /**< The window that the peer offers. */
    uint64_t send_buffer;             /**< SO_SNDBUF, as the kernel accounts it. */
    uint64_t receive_buffer;          /**< SO_RCVBUF, likewise. */
    uint64_t unsent;                  /**< Written by the program, not yet sent once. */
    uint64_t unread;                  /**< Received, not yet read by the program. */
    double busy;                      /**< Share of the interval with data to send, 0 to 1. */
    double receive_window_limited;    /**< Share stalled on the peer's window. */
    double send_buffer_limited;       /**< Share stalled on the send buffer. */
    uint32_t retransmits;             /**< Segments sent again in the interval. */
    uint32_t reserved;                /**< 0. */
};

/**
 * Binds a flow to an open TCP socket. The socket may be unconnected still; a step then gives no verdict.
 *
 * @param fd    the socket; borrowed until drs_flow_free()
 * @param side  enum drs_side
 * @param mode  enum drs_mode
 * @param flow  gets the flow; set to NULL on an error
 * @return DRS_OK, DRS_ENULL, DRS_EINVAL, DRS_EBADF, DRS_ENOTTCP, DRS_ESYSTEM or DRS_EINTERNAL
 */
int drs_flow_new(int fd, int side, int mode, drs_flow **flow);

/**
 * Like drs_flow_new(), with buffer memory taken from a budget that other flows take from too. The flow keeps the budget alive:
 * it may be freed before the flow.
 *
 * @return as drs_flow_new()
 */
int drs_flow_new_shared(int fd, int side, int mode, drs_budget *budget, drs_flow **flow);

/** As drs_flow_step()'s now: read CLOCK_MONOTONIC. */
#define DRS_NOW UINT64_MAX

/**
 * Looks at the socket once, and acts where the mode and what was found ask for it.
 *
 * @param now     nanoseconds on a clock that never goes back, the same for all steps of a flow; DRS_NOW to read CLOCK_MONOTONIC
 * @param report  what was found; may be NULL
 * @return DRS_OK; DRS_ENULL; DRS_EINVAL when report->size is less than that of the first version; DRS_EBADF, DRS_ENOTTCP or
 *         DRS_ESYSTEM, after which the report holds zeros; DRS_EINTERNAL
 */
int drs_flow_step(drs_flow *flow, uint64_t now, struct drs_report *report);

/** Frees a flow. The socket stays open and as it is. NULL is allowed. */
void drs_flow_free(drs_flow *flow);

/**
 * Makes a budget: the sum of the buffers that its flows may set.
 *
 * @param bytes   how much, as the kernel accounts buffers; not 0
 * @param budget  gets it; set to NULL on an error
 * @return DRS_OK, DRS_ENULL, DRS_EINVAL or DRS_EINTERNAL
 */
int drs_budget_new(uint64_t bytes, drs_budget **budget);

/** Frees the caller's hold on a budget. Flows that use it go on using it. NULL is allowed. */
void drs_budget_free(drs_budget *budget);

/**
 * The short stable word for a number, as logs have it: "receive-window", "auto", "sending". "unknown" for numbers that this library
 * does not have. The strings live as long as the program.
 */
const char *drs_limit_word(int limit);
const char *drs_mode_word(int mode);
const char *drs_side_word(int side);
const char *drs_action_word(int kind);
const char *drs_advice_word(int kind);

/** One line for an error code: what happened and what to do. Lives as long as the program. */
const char *drs_strerror(int error);

/** The library's version, such as "0.1.0". */
const char *drs_version(void);

#ifdef __cplusplus
}
#endif

#endif
