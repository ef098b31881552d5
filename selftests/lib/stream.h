/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reproducible random numbers, and random payloads that need not be kept: the
 * byte at any position of a stream follows from the stream's key.
 */
#ifndef FERROCE_STREAM_H
#define FERROCE_STREAM_H

#include <stdint.h>
#include <stddef.h>

/* Mixes a number into a key; good for making keys of keys. */
uint64_t mix(uint64_t key, uint64_t number);

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* From 0 to limit - 1. */
uint64_t rng_below(struct rng *rng, uint64_t limit);
/* True once in n times. */
static inline int rng_one_in(struct rng *rng, unsigned int n)
{
	return rng_below(rng, n) == 0;
}

/* Bytes [position, position + size) of a stream. */
void stream_fill(void *to, size_t size, uint64_t key, uint64_t position);

/* The first offset at which the bytes differ from the stream; size if nowhere. */
size_t stream_compare(const void *bytes, size_t size, uint64_t key, uint64_t position);

#endif
