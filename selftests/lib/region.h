/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Registered memory every byte of which is accounted for: payloads at known
 * places, and a background pattern everywhere else, that is between them, in the
 * rest of the memory region, and before and behind it in its first and last page.
 */
#ifndef FERROCE_REGION_H
#define FERROCE_REGION_H

#include "stream.h"
#include "verbs.h"

/* What is registered. */
enum memory { PINNED, HUGE_PAGES, ON_DEMAND, IMPLICIT, DMA_BUF, MEMORIES };

/* Returns MEMORIES if there is none of this name. */
enum memory memory_by_name(const char *name);

struct segment {
	uint64_t offset, length;
	uint64_t key, position;		/* in the stream that it holds */
	bool is_word;			/* it holds the key's bytes, and no stream */
	unsigned int op;		/* for messages */
};

struct region {
	const char *name;
	struct ibv_pd *pd;
	int access;
	enum memory memory;
	size_t align;		/* of the first byte that is registered */
	struct raw_mr raw;	/* of a dma-buf, and what there is to see of it: */
	struct ibv_mr raw_shown;
	uint8_t *map;		/* whole pages */
	size_t map_size;
	uint8_t *bytes;		/* what is registered: an odd part of them */
	size_t size;
	struct ibv_mr *mr;
	uint64_t background;
	uint64_t end;		/* of the segments */
	struct segment *segments;
	unsigned int count, capacity;
};

void region_init(struct region *region, const char *name, struct ibv_pd *pd, int access,
		 enum memory memory, size_t align);

/* Forgets all segments, and chooses another background. */
void region_reset(struct region *region, uint64_t background);

/* Adds a segment at an offset that is not before the end of the last one. */
struct segment *region_add(struct region *region, unsigned int op, uint64_t offset,
			   uint64_t length, uint64_t key, uint64_t position);

/*
 * Makes room for the segments and `tail` more bytes, registers the memory if it
 * isn't yet, or sometimes anew, and fills it: with the segments if `sent`, else
 * with background only.  Returns the errno of the verb that failed, or 0.
 */
int region_prepare(struct region *region, struct rng *rng, size_t tail, bool sent);

/* Fails unless the segment has arrived. */
void region_check_segment(const struct region *region, const struct segment *segment);
/* Fails unless all segments and nothing else has arrived. */
void region_check(const struct region *region);

void region_destroy(struct region *region);

#endif
