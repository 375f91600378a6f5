//! Parses and formats durations in Go's notation, such as `2m30s`, and formats them for Prometheus.

use jiff::SignedDuration;

const SECOND: i128 = 1_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a duration such as \"30s\", \"10m\" or \"1h30m\"")]
pub struct BadDuration {
    pub given: String,
}

/// Numbers with units and an optional sign; a bare `0` is allowed.
pub fn parse(text: &str) -> Result<SignedDuration, BadDuration> {
    nanoseconds(text)
        .and_then(|nanos| i64::try_from(nanos).ok())
        .map(SignedDuration::from_nanos)
        .ok_or_else(|| BadDuration { given: text.to_owned() })
}

fn nanoseconds(text: &str) -> Option<i128> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        total = total.checked_add(amount(number, scale(unit)?)?)?;
        rest = after;
    }
    Some(sign * total)
}

fn scale(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

fn amount(number: &str, scale: i128) -> Option<i128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // More digits are below a nanosecond even for hours.
    let part = &part[..part.len().min(15)];
    let fraction: i128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let unit = 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?;
    whole.checked_mul(scale)?.checked_add(fraction.checked_mul(scale)? / unit)
}

/// Go's format: `5m0s`, `1h0m0s`, `1.5s`, `200ms`.
pub fn go(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.abs());
    let decimal = |scale: i128, digits: usize| {
        let text = format!("{}.{:0digits$}", nanos / scale, nanos % scale);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let text = match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(1_000, 3)),
        1_000_000..SECOND => format!("{}ms", decimal(1_000_000, 6)),
        _ => {
            let (minutes, rest) = (nanos / (60 * SECOND), nanos % (60 * SECOND));
            let seconds = format!("{}.{:09}", rest / SECOND, rest % SECOND);
            let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// Range of a Prometheus query: the largest unit that divides it, at least one second.
pub fn prometheus(duration: SignedDuration) -> String {
    match duration.as_secs() {
        ..1 => "1s".to_owned(),
        seconds if seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        seconds if seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}
