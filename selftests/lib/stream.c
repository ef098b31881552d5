// SPDX-License-Identifier: GPL-2.0
#include <string.h>

#include "stream.h"

#define GOLDEN 0x9e3779b97f4a7c15ULL

static uint64_t scramble(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

uint64_t mix(uint64_t key, uint64_t number)
{
	return scramble(scramble(key + GOLDEN) ^ (number * GOLDEN));
}

uint64_t rng_next(struct rng *rng)
{
	rng->state += GOLDEN;
	return scramble(rng->state);
}

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
	return rng_next(rng) % limit;
}

static uint64_t stream_word(uint64_t key, uint64_t index)
{
	uint64_t z = key + index * GOLDEN;

	z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ULL;
	return z ^ (z >> 29);
}

void stream_fill(void *to, size_t size, uint64_t key, uint64_t position)
{
	uint64_t index = position / 8, word;
	size_t skip = position % 8, part;
	uint8_t *bytes = to;

	while (size) {
		word = stream_word(key, index++);
		if (!skip && size >= 8) {
			memcpy(bytes, &word, 8);
			part = 8;
		} else {
			part = 8 - skip < size ? 8 - skip : size;
			memcpy(bytes, (uint8_t *)&word + skip, part);
			skip = 0;
		}
		bytes += part;
		size -= part;
	}
}

size_t stream_compare(const void *bytes, size_t size, uint64_t key, uint64_t position)
{
	const uint8_t *is = bytes;
	uint8_t wanted[4096];
	size_t done, part, i;

	for (done = 0; done < size; done += part) {
		part = size - done < sizeof(wanted) ? size - done : sizeof(wanted);
		stream_fill(wanted, part, key, position + done);
		if (memcmp(is + done, wanted, part) == 0)
			continue;
		for (i = 0; is[done + i] == wanted[i]; i++)
			;
		return done + i;
	}
	return size;
}
