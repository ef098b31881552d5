// SPDX-License-Identifier: GPL-2.0
#include <string.h>

#include "plan.h"

#define MAX_GAP 70

static const char *const kind_names[KINDS] = {
	[SEND] = "send", [SEND_IMM] = "send_imm", [WRITE] = "write", [WRITE_IMM] = "write_imm",
	[READ] = "read", [FETCH_ADD] = "fetch_add", [CMP_SWAP] = "cmp_swap",
	[ATOMIC_WRITE] = "atomic_write",
};

enum kind kind_by_name(const char *name)
{
	enum kind kind;

	for (kind = 0; kind < KINDS; kind++)
		if (!strcmp(name, kind_names[kind]))
			break;
	return kind;
}

const char *kind_name(enum kind kind)
{
	return kind_names[kind];
}

/* All pairs of kind and size, shuffled: each of them comes before any comes again. */
static void make_combos(struct planner *planner)
{
	const struct menu *menu = planner->menu;
	unsigned int kind, size, i, j, swap;

	for (kind = 0; kind < KINDS; kind++)
		for (size = 0; menu->kinds[kind] && size < menu->sizes_count; size++)
			planner->combos[planner->combos_count++] = kind * MAX_SIZES + size;
	for (i = planner->combos_count; i > 1; i--) {
		j = rng_below(&planner->rng, i);
		swap = planner->combos[i - 1];
		planner->combos[i - 1] = planner->combos[j];
		planner->combos[j] = swap;
	}
}

void planner_init(struct planner *planner, const struct menu *menu, uint64_t stream)
{
	memset(planner, 0, sizeof(*planner));
	planner->menu = menu;
	planner->key = mix(menu->seed, stream);
	planner->rng.state = planner->key;
	make_combos(planner);
}

/* Small sizes are as likely as large ones. */
static uint32_t random_size(struct planner *planner)
{
	uint64_t limit = 2;

	while (limit <= planner->menu->random_max && rng_below(&planner->rng, 12))
		limit *= 2;
	if (limit > planner->menu->random_max)
		limit = planner->menu->random_max + 1ULL;
	return rng_below(&planner->rng, limit);
}

static enum kind random_kind(struct planner *planner)
{
	unsigned int combo = rng_below(&planner->rng, planner->combos_count);

	return planner->combos[combo] / MAX_SIZES;
}

static uint32_t allowed_size(const struct menu *menu, uint32_t size)
{
	return size || menu->empty ? size : 1;
}

/* Every other operation is the next combination, so that all of them come. */
static void choose(struct planner *planner, struct op *op)
{
	unsigned int combo;

	if (planner->planned % 2) {
		op->kind = random_kind(planner);
		op->length = allowed_size(planner->menu, random_size(planner));
		return;
	}
	combo = planner->combos[planner->planned / 2 % planner->combos_count];
	op->kind = combo / MAX_SIZES;
	op->length = allowed_size(planner->menu, planner->menu->sizes[combo % MAX_SIZES]);
}

static void adorn(struct planner *planner, struct op *op)
{
	struct rng *rng = &planner->rng;

	op->imm = rng_next(rng);
	op->key = mix(planner->key, planner->planned);
	if (is_atomic(op->kind))
		op->length = sizeof(uint64_t);
	op->inlined = op->kind != READ && !is_atomic(op->kind) && op->length <= INLINE_MAX &&
		      rng_one_in(rng, 2);
	op->signalled = rng_one_in(rng, 2);
	op->fence = planner->menu->fences && rng_one_in(rng, 10);
	op->solicited = takes_recv(op->kind) && rng_one_in(rng, 4);
	op->wild_rkey = !op->length && !takes_recv(op->kind) && rng_one_in(rng, 2);
}

/* The op sends again what the READ before it has fetched, which takes a fence. */
static void make_relay(struct op *op, const struct op *read)
{
	if (op->length > read->length)
		op->length = read->length;
	op->key = read->key;
	op->relay = true;
	op->fence = true;
	op->inlined = false;
	op->wild_rkey = false;
}

static uint64_t place(struct planner *planner, uint64_t *end, uint32_t length)
{
	uint64_t at = *end + rng_below(&planner->rng, MAX_GAP);

	*end = at + length;
	return at;
}

/* All of a connection's are carried out in their order, each once: so this tells what they find. */
static void plan_atomic(struct planner *planner, struct round *round, struct op *op)
{
	struct rng *rng = &planner->rng;
	struct word *word = &round->words[rng_below(rng, WORDS)];

	op->remote = word->at;
	op->found = word->last;
	op->operand = rng_next(rng);
	switch (op->kind) {
	case FETCH_ADD:
		word->last += op->operand;
		break;
	case CMP_SWAP:
		op->swap = rng_next(rng);
		if (rng_one_in(rng, 2))
			op->operand = word->last;
		if (op->operand == word->last)
			word->last = op->swap;
		break;
	default:
		word->last = op->operand;
	}
}

static void plan_words(struct planner *planner, struct round *round)
{
	uint64_t end = 0;
	unsigned int i;

	for (i = 0; i < WORDS; i++) {
		round->words[i].at = end + sizeof(uint64_t) * rng_below(&planner->rng, 9);
		round->words[i].first = round->words[i].last = rng_next(&planner->rng);
		end = round->words[i].at + sizeof(uint64_t);
	}
}

static void plan_op(struct planner *planner, struct round *round)
{
	struct op *op = &round->ops[round->count], *before = op - 1;

	memset(op, 0, sizeof(*op));
	choose(planner, op);
	adorn(planner, op);
	if (is_atomic(op->kind))
		plan_atomic(planner, round, op);
	else if (round->count && before->kind == READ && op->kind != READ &&
	    planner->menu->fences && rng_one_in(&planner->rng, 2))
		make_relay(op, before);
	if (is_write(op->kind))
		op->remote = place(planner, &round->written, op->length);
	if (op->kind == READ)
		op->remote = place(planner, &round->read, op->length);
	round->count++;
	planner->planned++;
}

static void plan_last(struct planner *planner, struct round *round)
{
	struct op *op = &round->ops[round->count++];

	memset(op, 0, sizeof(*op));
	op->kind = SEND;
	op->length = allowed_size(planner->menu, rng_below(&planner->rng, 100));
	op->key = mix(planner->key, ~planner->planned);
	op->signalled = true;
}

void plan_round(struct planner *planner, struct round *round)
{
	const struct menu *menu = planner->menu;
	unsigned int silent = 0;
	uint64_t bytes = 0;

	round->count = 0;
	round->written = 0;
	round->read = 0;
	plan_words(planner, round);
	while (round->count + 1 < menu->ops && bytes < menu->bytes) {
		plan_op(planner, round);
		bytes += round->ops[round->count - 1].length;
		if (++silent >= menu->window)
			round->ops[round->count - 1].signalled = true;
		if (round->ops[round->count - 1].signalled)
			silent = 0;
	}
	plan_last(planner, round);
}
