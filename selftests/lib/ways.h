/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All ways in which a device uses registered memory, one at a time, over one reliable
 * connection between the two ends: what memory is under test is the target, and the other
 * side of each way is plain memory that always works.
 */
#ifndef FERROCE_WAYS_H
#define FERROCE_WAYS_H

#include "verbs.h"

enum registration { REG_PINNED, REG_ON_DEMAND, REG_IMPLICIT, REGISTRATIONS };

extern const char *const registrations[REGISTRATIONS];

enum way_id {
	SEND_FROM, RECEIVE_INTO, WRITE_FROM, WRITE_INTO, READ_FROM, READ_INTO, ATOMIC_ON,
	ATOMIC_INTO, FLUSH_OF, PERSIST_OF, WAYS
};

struct way {
	const char *title;
	int side;		/* the end whose memory it is: 0 asks, 1 responds */
	bool writes;		/* it changes the memory */
	int access;		/* the least rights that it needs */
	enum ibv_wc_status failure;	/* what the owner of memory that fails is told */
};

extern const struct way ways[WAYS];

/* A part of registered memory. */
struct target {
	uint8_t *bytes;
	size_t at;
	uint32_t length;
	struct ibv_mr *mr;
};

/* The bytes that a way uses: those of atomics are eight. */
size_t way_at(enum way_id way, const struct target *target);
uint32_t way_length(enum way_id way, const struct target *target);

/* Opens both ends and connects them. */
void ways_open(void);
/* A new connection in place of one that has failed. */
void ways_again(void);

/* Another connection has no trouble. */
void ways_beside(void);

/* Returns NULL, with an errno, if the memory is refused. */
struct ibv_mr *ways_register(enum registration how, int side, void *bytes, size_t size, int access);

/* Posts one request, with other bytes to be written each time. */
void way_post(enum way_id way, const struct target *target);
/* Nothing has come of it, and nothing comes within the time. */
void way_expect_waiting(enum way_id way, int timeout_ms);
/* Waits for the end of it.  Returns what the target's owner is told; after an error the connection is
 * of no use any more. */
enum ibv_wc_status way_end(enum way_id way);

/* Makes of the target's bytes, as they were, what the way makes of them. */
void way_apply(enum way_id way, const struct target *target, uint8_t *image);
/* What was read of the target, as it has arrived: way_length() bytes.  NULL: nothing is read. */
const uint8_t *way_read(enum way_id way);

/* Prints one cell of the table, for scripts/memory. */
void cell(const char *kind, enum registration how, enum way_id way, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
const char *errno_name(int err);

/* Pages of this process that KSM has merged.  Without KSM the test is skipped. */
size_t merged_pages(void);

/* Has the kernel move pages together.  Before, it has each CPU empty its lists of pages that are on their
 * way to those from which memory is reclaimed. */
void compact_memory(void);

#endif
