//! Parses resource quantities such as `500m` or `1Gi`. Equal amounts give equal numbers, however they are written.

/// Parses a quantity into billionths, the finest unit that Kubernetes keeps. Finer amounts are rounded away from zero,
/// as there. `None` if the text is not a quantity, or too large.
pub fn billionths(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let digits: i128 = format!("0{whole}{part}").parse().ok()?;
    let (binary, tens) = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?),
    };
    let value = digits.checked_mul(1_i128.checked_shl(binary)?)?;
    let tens = tens + 9 - i32::try_from(part.len()).ok()?;
    let power = 10_i128.checked_pow(tens.unsigned_abs());
    let value = match (tens, power) {
        (0.., power) => value.checked_mul(power?)?,
        (_, Some(power)) => value / power + i128::from(value % power != 0),
        // A divisor beyond all measure leaves next to nothing, which is still rounded up.
        (_, None) => i128::from(value != 0),
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_amount_has_many_texts() {
        for same in [
            &["1", "1000m", "1.0", "1e0", "+1", "1000000u", "1000000000n", "0.001k"][..],
            &["1Gi", "1024Mi", "1073741824", "1048576Ki"],
            &["0.5", "500m", "5e-1", ".5", "5E-1"],
            &["1M", "1000k", "1e6", "1E6"],
            &["0", "0m", "0Gi", "0.0"],
            &["1.5Gi", "1536Mi"],
            &["-1", "-1000m"],
            &["2E", "2e18"],
        ] {
            for text in same {
                assert_eq!(billionths(text), billionths(same[0]), "{text} and {}", same[0]);
                assert!(billionths(text).is_some(), "{text}");
            }
        }
        assert_ne!(billionths("1G"), billionths("1Gi"));
        assert_ne!(billionths("100m"), billionths("100M"));
    }

    #[test]
    fn amounts_are_counted_in_billionths() {
        for (text, expected) in [
            ("500m", 500_000_000),
            ("1n", 1),
            ("0.1n", 1),
            ("1e-400", 1),
            ("1e3", 1_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000_000_000_000),
            ("1Ki", 1_024_000_000_000),
        ] {
            assert_eq!(billionths(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_amounts() {
        for text in ["", ".", "m", "1x", "1.2.3", "one", "1 Gi", "1Gib", "1e", "1e999999999", "--1", "é1", "1é"] {
            assert_eq!(billionths(text), None, "{text}");
        }
    }
}
