/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a test program requires, and how it fails: with the exit statuses of kselftest.h, which the
 * harness of the kernel understands (harness.h). Any function of a program may call these, in any
 * thread.
 */
#ifndef FERROCE_REQUIRE_H
#define FERROCE_REQUIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#ifndef ARRAY_SIZE /* kselftest.h has it, too */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif
#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL
/* The size of a page, which kernels of arm64 choose, and the largest of Debian's. */
#define PAGE ((unsigned long)sysconf(_SC_PAGESIZE))
#define PAGE_MOST 16384UL

/* Ends the process, which is the test or a part of it. */
_Noreturn void fail_at(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line of diagnostics. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)

/* Fails the test unless the condition holds; then comes a printf format. */
#define require(condition, ...)				\
	do {						\
		if (!(condition))			\
			fail(__VA_ARGS__);		\
	} while (0)

/* For calls that return 0 or an errno. */
#define require_ok(call)						\
	do {								\
		int err_ = (call);					\
		if (err_)						\
			fail("%s: %s", #call, strerror(err_));		\
	} while (0)

/* For calls that return -1 and set errno when they fail. */
#define require_sys(call)						\
	do {								\
		if ((call) < 0)						\
			fail("%s: %s", #call, strerror(errno));		\
	} while (0)

/* CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* How many times as long as usual things may take: TIME_SCALE of the environment, or 1. */
int time_scale(void);

/*
 * How many seconds to try what is left to chance: a few, a minute with LONG=1 in the environment,
 * and more of either on a slow kernel.
 */
int64_t chance_ns(void);

/* Runs a shell command, which must succeed. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed memory; never NULL. */
void *xcalloc(size_t count, size_t size);

#endif
