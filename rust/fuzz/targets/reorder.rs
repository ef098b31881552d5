// SPDX-License-Identifier: GPL-2.0

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::reorder(input));
