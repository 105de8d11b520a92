//! Numbers as text, without `core::fmt`: that would add four kilobytes to the component.

use alloc::string::String;
use alloc::vec::Vec;

/// A number in decimal digits.
pub fn decimal(number: u64) -> String {
    digits(number, 10)
}

/// A number as Go's `%x` writes it: in lower case, without padding.
pub fn hexadecimal(number: u64) -> String {
    digits(number, 16)
}

fn digits(mut number: u64, base: u32) -> String {
    let mut text = Vec::new();
    loop {
        let digit = (number % u64::from(base)) as u8;
        text.insert(0, if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
        number /= u64::from(base);
        if number == 0 {
            return String::from_utf8(text).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{decimal, hexadecimal};

    #[test]
    fn numbers_are_written_as_others_write_them() {
        for number in [0, 9, 10, 1_024, 4_097, u64::MAX] {
            assert_eq!(decimal(number), std::format!("{number}"));
        }
        for number in [0, 15, 16, 0x1F, 0x8000_0000_0000_0000, u64::MAX] {
            assert_eq!(hexadecimal(number), std::format!("{number:x}"));
        }
    }
}
