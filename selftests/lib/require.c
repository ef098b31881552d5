// SPDX-License-Identifier: GPL-2.0
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <kselftest.h>

#include "require.h"

int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int time_scale(void)
{
	const char *scale = getenv("TIME_SCALE");

	return scale && atoi(scale) > 0 ? atoi(scale) : 1;
}

int64_t chance_ns(void)
{
	int seconds = getenv("LONG") ? 60 : getenv("QUICK") ? 2 : 4;

	return seconds * NS_PER_S * (time_scale() > 1 ? 3 : 1);
}

void *xcalloc(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	require(memory, "out of memory");
	return memory;
}

static void vnote(const char *format, va_list args)
{
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
}

void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vnote(format, args);
	va_end(args);
}

void fail_at(const char *file, int line, const char *format, ...)
{
	va_list args;

	printf("%s:%d: ", file, line);
	va_start(args, format);
	vnote(format, args);
	va_end(args);
	_exit(KSFT_FAIL);
}

/* As the harness writes a reason. */
void skip(const char *format, ...)
{
	va_list args;

	printf("#      SKIP      ");
	va_start(args, format);
	vnote(format, args);
	va_end(args);
	_exit(KSFT_SKIP);
}

void shell(const char *format, ...)
{
	char *command;
	va_list args;
	int status;

	va_start(args, format);
	require(vasprintf(&command, format, args) > 0, "out of memory");
	va_end(args);
	fflush(stdout);
	status = system(command);
	require(status == 0, "status 0x%x: %s", status, command);
	free(command);
}
