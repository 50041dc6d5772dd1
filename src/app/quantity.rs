//! Kubernetes quantities, compared by value: `0.5` and `500m` are one amount, and the API server
//! stores the second when it is sent the first.

/// Billionths: the finest amount that Kubernetes keeps.
const NANO: i128 = 1_000_000_000;

/// The value of a quantity in billionths, rounded up as the API server does; none when the text is no quantity.
#[must_use]
pub fn nanos(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = u32::try_from(fraction.len()).ok()?;
    let (multiplier, exponent) = scale(suffix)?;
    let value = digits.checked_mul(multiplier)?.checked_mul(NANO)?;
    let exponent = exponent.checked_sub(i32::try_from(decimals).ok()?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let value = if exponent >= 0 {
        value.checked_mul(power)?
    } else {
        value.div_euclid(power) + i128::from(value.rem_euclid(power) > 0)
    };
    Some(if negative { -value } else { value })
}

/// A suffix as (factor, power of ten).
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_amount_have_one_value() {
        for spellings in [
            &["0.5", "500m", ".5", "5e-1", "+0.50"][..],
            &["1Gi", "1024Mi", "1073741824"],
            &["1k", "1e3", "1E3", "1000", "1000."],
            &["0.1n", "1n"],
            &["-1", "-1000m"],
        ] {
            let values: Vec<_> = spellings.iter().map(|text| nanos(text)).collect();
            assert!(values[0].is_some(), "{spellings:?}");
            assert!(values.iter().all(|v| *v == values[0]), "{spellings:?}: {values:?}");
        }
    }

    #[test]
    fn what_is_no_quantity_has_no_value() {
        for text in [
            "",
            "-",
            ".",
            "1.2.3",
            "1 Gi",
            "1X",
            "Gi",
            "1ee3",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(nanos(text), None, "{text:?}");
        }
    }
}
