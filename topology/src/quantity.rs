//! Quantities as people write them: `64MiB`, `100Mbit/s`, `0.1ms`. Reading is exact or refused, never rounded to zero.

use crate::units::{Bytes, BytesPerSecond, Nanos};
use std::str::FromStr;

/// Why a quantity was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("no number before the unit; write {expected}")]
    Number { expected: &'static str },
    #[error("unknown unit `{unit}`; write {expected}")]
    Unit { unit: String, expected: &'static str },
    #[error("out of range; write {expected}")]
    Range { expected: &'static str },
}

const BYTES: &str = "a size such as \"64MiB\", \"512KiB\", \"1GB\" or a number of bytes";
const RATE: &str = "a rate such as \"100Mbit/s\", \"1Gbit/s\" or \"12.5MB/s\"";
const TIME: &str = "a time such as \"0.1ms\", \"50us\" or \"3s\"";

fn byte_unit(unit: &str) -> Option<f64> {
    Some(match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => f64::from(1u32 << 10),
        "MiB" => f64::from(1u32 << 20),
        "GiB" => f64::from(1u32 << 30),
        "TiB" => (1u64 << 40) as f64,
        _ => return None,
    })
}

fn rate_unit(unit: &str) -> Option<f64> {
    let per_second = unit.strip_suffix("/s")?;
    Some(match per_second {
        "bit" => 0.125,
        "kbit" | "Kbit" => 125.0,
        "Mbit" => 125e3,
        "Gbit" => 125e6,
        "" => return None,
        bytes => return byte_unit(bytes),
    })
}

fn time_unit(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    })
}

fn quantity(
    text: &str,
    unit_of: fn(&str) -> Option<f64>,
    expected: &'static str,
) -> Result<u64, QuantityError> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = number.replace('_', "");
    if number.is_empty() || number.len() > 32 {
        return Err(QuantityError::Number { expected });
    }
    let unit = unit.trim();
    let factor = unit_of(unit)
        .ok_or_else(|| QuantityError::Unit { unit: unit.chars().take(20).collect(), expected })?;
    if let Ok(whole) = number.parse::<u64>()
        && factor >= 1.0
    {
        return whole.checked_mul(factor as u64).ok_or(QuantityError::Range { expected });
    }
    let value = number.parse::<f64>().map_err(|_| QuantityError::Number { expected })? * factor;
    let rounded = value.round();
    if (value > 0.0 && rounded == 0.0) || rounded >= u64::MAX as f64 {
        return Err(QuantityError::Range { expected });
    }
    Ok(rounded as u64)
}

impl FromStr for Bytes {
    type Err = QuantityError;
    /// `B kB MB GB TB` are powers of 1000, `KiB MiB GiB TiB` powers of 1024; no unit is bytes.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity(text, byte_unit, BYTES).map(Bytes)
    }
}

impl FromStr for BytesPerSecond {
    type Err = QuantityError;
    /// `bit kbit Mbit Gbit` (decimal) or a byte unit, then `/s`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity(text, rate_unit, RATE).map(BytesPerSecond)
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity(text, time_unit, TIME).map(Nanos)
    }
}

impl Bytes {
    /// The exact value as topology files write it.
    #[must_use]
    pub fn spec_text(self) -> String {
        format!("{}B", self.0)
    }
}

impl BytesPerSecond {
    /// The exact value as topology files write it.
    #[must_use]
    pub fn spec_text(self) -> String {
        format!("{}B/s", self.0)
    }
}

impl Nanos {
    /// The exact value as topology files write it.
    #[must_use]
    pub fn spec_text(self) -> String {
        format!("{}ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_exactly() {
        for (text, value) in [
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("512", 512),
            ("1_000B", 1000),
            ("1GB", 1_000_000_000),
            ("0.5KiB", 512),
            ("0", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(value)), "{text}");
        }
        for (text, value) in
            [("100Mbit/s", 12_500_000), ("1Gbit/s", 125_000_000), ("12.5MB/s", 12_500_000), ("8bit/s", 1)]
        {
            assert_eq!(text.parse::<BytesPerSecond>(), Ok(BytesPerSecond(value)), "{text}");
        }
        for (text, value) in [("0.1ms", 100_000), ("3s", 3_000_000_000), ("50us", 50_000), ("7ns", 7)] {
            assert_eq!(text.parse::<Nanos>(), Ok(Nanos(value)), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "MiB", "-1B", "1XB", "1e3", "99999999999999999999TiB", "0.0001B", "1.2.3KB", "∞"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for text in ["100", "100Mbit", "1/s", "0.001bit/s", "100Mbps"] {
            assert!(text.parse::<BytesPerSecond>().is_err(), "{text}");
        }
        for text in ["3", "3 hours", "0.1ns"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<BytesPerSecond>();
            let _ = text.parse::<Nanos>();
        }

        #[test]
        fn spec_text_reads_back(value: u64) {
            prop_assert_eq!(Bytes(value).spec_text().parse(), Ok(Bytes(value)));
            prop_assert_eq!(BytesPerSecond(value).spec_text().parse(), Ok(BytesPerSecond(value)));
            prop_assert_eq!(Nanos(value).spec_text().parse(), Ok(Nanos(value)));
        }
    }
}
