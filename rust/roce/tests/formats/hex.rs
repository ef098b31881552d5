// SPDX-License-Identifier: GPL-2.0

//! Bytes as one writes them in a test.

/// Decodes hexadecimal digits; spaces are for the reader.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    assert!(digits.len() % 2 == 0, "half a byte");
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4) | pair[1])
        .collect()
}
