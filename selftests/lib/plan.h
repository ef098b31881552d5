/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Schedules of operations that both ends of a connection derive from a seed, so
 * that each knows what the other one does without being told.
 */
#ifndef FERROCE_PLAN_H
#define FERROCE_PLAN_H

#include <stdbool.h>

#include "stream.h"

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FETCH_ADD, CMP_SWAP, ATOMIC_WRITE, KINDS };

/* True when the responder spends a receive on it. */
static inline bool takes_recv(enum kind kind)
{
	return kind == SEND || kind == SEND_IMM || kind == WRITE_IMM;
}

static inline bool has_imm(enum kind kind)
{
	return kind == SEND_IMM || kind == WRITE_IMM;
}

static inline bool is_write(enum kind kind)
{
	return kind == WRITE || kind == WRITE_IMM;
}

/* It works on a word of the responder's. */
static inline bool is_atomic(enum kind kind)
{
	return kind == FETCH_ADD || kind == CMP_SWAP || kind == ATOMIC_WRITE;
}

/* Something comes back. */
static inline bool fetches(enum kind kind)
{
	return kind == READ || kind == FETCH_ADD || kind == CMP_SWAP;
}

/* Returns KINDS if there is none of this name. */
enum kind kind_by_name(const char *name);
const char *kind_name(enum kind kind);

/* The largest payload that an operation may carry inline. */
#define INLINE_MAX 64

struct op {
	enum kind kind;
	uint32_t length;
	uint32_t imm;
	uint64_t remote;	/* WRITE, READ, atomics: offset in the responder's region */
	uint64_t operand, swap;	/* atomics: what is added, compared with or written; swapped in */
	uint64_t found;		/* atomics: what was there before */
	uint64_t key;		/* the payload is the beginning of this stream */
	bool inlined, signalled, fence, solicited;
	bool relay;		/* sends what the READ before it has fetched */
	bool wild_rkey;		/* zero bytes: whatever the R_Key is, it is not checked */
};

/* Words of the responder's that atomics work on, so few that they meet again and again. */
#define WORDS 8

struct word {
	uint64_t at;		/* offset in the region */
	uint64_t first, last;	/* what it is before the round and after it */
};

#define MAX_SIZES 32
#define MAX_OPS 1024

/* What all schedules of a run are made from. */
struct menu {
	uint64_t seed;
	bool kinds[KINDS];
	uint32_t sizes[MAX_SIZES];
	unsigned int sizes_count;
	uint32_t random_max;	/* sizes beside the list are up to this one */
	unsigned int ops;	/* in a round, at most MAX_OPS */
	uint64_t bytes;		/* in a round: it ends early when they are spent */
	unsigned int window;	/* at least one in so many is signalled */
	bool fences, empty;	/* fenced and zero-length operations, too */
};

/* The schedule of one requester, round by round. */
struct planner {
	const struct menu *menu;
	struct rng rng;
	uint64_t key;
	uint64_t planned;
	unsigned int combos[KINDS * MAX_SIZES], combos_count;
};

/* stream: a number that tells this requester from all others of the run. */
void planner_init(struct planner *planner, const struct menu *menu, uint64_t stream);

struct round {
	struct op ops[MAX_OPS];
	unsigned int count;
	uint64_t written, read;	/* sizes of the responder's regions */
	struct word words[WORDS];
};

/*
 * The next round.  Its last operation is a signalled SEND: when that one has
 * arrived, all have.
 */
void plan_round(struct planner *planner, struct round *round);

#endif
