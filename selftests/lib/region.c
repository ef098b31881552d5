// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <sys/mman.h>

#include "region.h"

#define MIN_GUARD 64

static const char *const memory_names[MEMORIES] = {
	[PINNED] = "pinned", [HUGE_PAGES] = "huge", [ON_DEMAND] = "on_demand",
	[IMPLICIT] = "implicit", [DMA_BUF] = "dma_buf",
};

enum memory memory_by_name(const char *name)
{
	enum memory memory;

	for (memory = 0; memory < MEMORIES; memory++)
		if (!strcmp(name, memory_names[memory]))
			break;
	return memory;
}

void region_init(struct region *region, const char *name, struct ibv_pd *pd, int access,
		 enum memory memory, size_t align)
{
	memset(region, 0, sizeof(*region));
	region->name = name;
	region->pd = pd;
	region->access = access;
	region->memory = memory;
	region->align = align;
}

void region_reset(struct region *region, uint64_t background)
{
	region->background = background;
	region->count = 0;
	region->end = 0;
}

struct segment *region_add(struct region *region, unsigned int op, uint64_t offset,
			   uint64_t length, uint64_t key, uint64_t position)
{
	struct segment *segment;

	if (region->count == region->capacity) {
		region->capacity = region->capacity ? region->capacity * 2 : 64;
		region->segments = realloc(region->segments,
					   region->capacity * sizeof(*segment));
		require(region->segments, "out of memory");
	}
	require(offset >= region->end, "segments of %s are out of order", region->name);
	segment = &region->segments[region->count++];
	*segment = (struct segment){
		.offset = offset, .length = length, .key = key, .position = position, .op = op,
	};
	region->end = offset + length;
	return segment;
}

static int unmap(struct region *region)
{
	int err;

	if (!region->mr)
		return 0;
	err = region->memory == DMA_BUF ? dereg_raw(region->pd, &region->raw) :
					  ibv_dereg_mr(region->mr);
	if (err)
		return err;
	munmap(region->map, region->map_size);
	region->mr = NULL;
	return 0;
}

/* Returns an errno. */
static int register_dmabuf(struct region *region, int buffer)
{
	int err = reg_dmabuf(region->pd, buffer, region->bytes - region->map, region->size,
			     (uintptr_t)region->bytes, region->access, &region->raw);

	close(buffer);
	if (err)
		return err;
	region->raw_shown.lkey = region->raw.lkey;
	region->raw_shown.rkey = region->raw.rkey;
	region->mr = &region->raw_shown;
	return 0;
}

static int map(struct region *region, struct rng *rng, size_t size)
{
	size_t before = MIN_GUARD + rng_below(rng, PAGE), after = MIN_GUARD + rng_below(rng, 256);
	size_t page = region->memory == HUGE_PAGES ? huge_page_size() : PAGE;
	int huge = region->memory == HUGE_PAGES ? MAP_HUGETLB : 0, buffer = -1;

	before -= before % region->align;
	region->map_size = (before + size + after + page - 1) / page * page;
	if (region->memory == DMA_BUF)
		buffer = make_dmabuf(region->map_size, &region->map);
	else
		region->map = mmap(NULL, region->map_size, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | huge, -1, 0);
	require(region->map != MAP_FAILED, "mmap of %zu bytes: %s", region->map_size,
		strerror(errno));
	region->bytes = region->map + before;
	region->size = size;
	switch (region->memory) {
	case DMA_BUF:
		return register_dmabuf(region, buffer);
	case IMPLICIT:
		region->mr = ibv_reg_mr(region->pd, NULL, SIZE_MAX,
					region->access | IBV_ACCESS_ON_DEMAND);
		break;
	case ON_DEMAND:
		region->mr = ibv_reg_mr(region->pd, region->bytes, size,
					region->access | IBV_ACCESS_ON_DEMAND);
		break;
	default:
		region->mr = ibv_reg_mr(region->pd, region->bytes, size, region->access);
	}
	return region->mr ? 0 : errno;
}

static bool is_on_demand(const struct region *region)
{
	return region->memory == ON_DEMAND || region->memory == IMPLICIT;
}

static void make_background(const struct region *region, uint8_t pattern[PAGE])
{
	stream_fill(pattern, PAGE, region->background, 0);
}

static void fill_background(struct region *region)
{
	uint8_t pattern[PAGE];
	size_t at;

	make_background(region, pattern);
	for (at = 0; at < region->map_size; at += PAGE)
		memcpy(region->map + at, pattern, PAGE);
}

static void fill(const struct segment *segment, uint8_t *to)
{
	if (segment->is_word)
		memcpy(to, (const uint8_t *)&segment->key + segment->position, segment->length);
	else
		stream_fill(to, segment->length, segment->key, segment->position);
}

int region_prepare(struct region *region, struct rng *rng, size_t tail, bool sent)
{
	size_t needed = region->end + tail + 1;
	const struct segment *segment;
	int err;

	if (!region->mr || region->size < needed || region->size / 4 > needed ||
	    rng_one_in(rng, 8)) {
		err = unmap(region);
		if (!err)
			err = map(region, rng, needed);
		if (err)
			return err;
	}
	/* Then the device has to find other ones. */
	if (is_on_demand(region) && rng_one_in(rng, 2))
		drop_pages(region->map, region->map_size);
	fill_background(region);
	if (!sent)
		return 0;
	for (segment = region->segments; segment < region->segments + region->count; segment++)
		fill(segment, region->bytes + segment->offset);
	return 0;
}

void region_check_segment(const struct region *region, const struct segment *segment)
{
	const uint8_t *bytes = region->bytes + segment->offset;
	uint8_t wanted, word[sizeof(segment->key)];
	size_t at;

	if (segment->is_word) {
		fill(segment, word);
		require(!memcmp(bytes, word, segment->length),
			"wrong word in %s: operation %u, bytes %llu to %llu of 0x%016llx",
			region->name, segment->op, (unsigned long long)segment->position,
			(unsigned long long)(segment->position + segment->length),
			(unsigned long long)segment->key);
		return;
	}
	at = stream_compare(bytes, segment->length, segment->key, segment->position);
	if (at == segment->length)
		return;
	stream_fill(&wanted, 1, segment->key, segment->position + at);
	fail("wrong data in %s: operation %u, byte %zu of %llu: 0x%02x, not 0x%02x", region->name,
	     segment->op, at, (unsigned long long)segment->length, bytes[at], wanted);
}

/* Offsets in the mapping. */
static void check_background(const struct region *region, const uint8_t *pattern, size_t from,
			     size_t to)
{
	size_t part, i;

	for (; from < to; from += part) {
		part = PAGE - from % PAGE;
		if (part > to - from)
			part = to - from;
		if (memcmp(region->map + from, pattern + from % PAGE, part) == 0)
			continue;
		for (i = from; region->map[i] == pattern[i % PAGE]; i++)
			;
		fail("%s has changed where nothing was to be written: offset %td, 0x%02x, not 0x%02x",
		     region->name, region->map + i - region->bytes, region->map[i],
		     pattern[i % PAGE]);
	}
}

void region_check(const struct region *region)
{
	size_t skew = region->bytes - region->map, done = 0;
	const struct segment *segment;
	uint8_t pattern[PAGE];

	make_background(region, pattern);
	for (segment = region->segments; segment < region->segments + region->count; segment++) {
		check_background(region, pattern, done, skew + segment->offset);
		region_check_segment(region, segment);
		done = skew + segment->offset + segment->length;
	}
	check_background(region, pattern, done, region->map_size);
}

void region_destroy(struct region *region)
{
	require_ok(unmap(region));
	free(region->segments);
}
