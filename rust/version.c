// SPDX-License-Identifier: GPL-2.0
/*
 * The version of the module, which scripts/version prints. Rust's module! has no field for it.
 */

#include <linux/module.h>

MODULE_VERSION(FERROCE_VERSION);
