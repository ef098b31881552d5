/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The harness of the kernel, for a program that is a set of tests: TEST() and TEST_HARNESS_MAIN, or a
 * TEST_F() of a fixture with variants. lib/program.sh runs each test by itself.
 *
 * The shell that runs a test limits its time and ends its processes, by their group. So the harness
 * must do neither.
 */
#ifndef FERROCE_HARNESS_H
#define FERROCE_HARNESS_H

#include <unistd.h>

#define setpgrp() ((void)0)
#include <kselftest_harness.h>
#undef setpgrp

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT (-1)

#endif
