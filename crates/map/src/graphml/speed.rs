//! Speeds of links as written in drawings of networks: `10Gbps`, `OC-192c`, `2 x 10GE`, `STM-16`,
//! `45 Mbps DS-3`, `<45Mb`, `1-10Gbps`.

use quantities::Rate;

use crate::model::{Capacity, CapacitySource};

/// Basic rate of SONET (ANSI T1.105), in bit/s: OC-n is n times this.
const SONET_STEP: f64 = 51.84e6;
/// Basic rate of SDH (ITU-T G.707), in bit/s: STM-n is n times this.
const SDH_STEP: f64 = 155.52e6;
/// North American hierarchy (ITU-T G.702), in bit/s: DS-0 to DS-4, whose lines are T1 to T4.
const DIGITAL_SIGNALS: [f64; 5] = [64e3, 1.544e6, 6.312e6, 44.736e6, 274.176e6];
/// European hierarchy (ITU-T G.702), in bit/s: E0 to E4.
const EUROPEAN_LINES: [f64; 5] = [64e3, 2.048e6, 8.448e6, 34.368e6, 139.264e6];

/// Maximum number of tokens of a label to examine.
const MAX_TOKENS: usize = 64;

/// Returns the first speed that a label states.
pub fn read(label: &str) -> Option<Capacity> {
    let tokens = tokens(label);
    (0..tokens.len())
        .find_map(|at| read_at(tokens.get(at..).unwrap_or_default(), before(&tokens, at)))
}

/// Returns the speed of a number and a unit in separate fields: `10` and `G`.
pub fn with_unit(number: &str, unit: &str) -> Option<Capacity> {
    read(&format!("{} {}", number.trim(), unit.trim()))
}

#[derive(Debug, Clone, PartialEq)]
enum LabelToken<'a> {
    Number(f64),
    Word(&'a str),
    Sign(char),
}

fn tokens(label: &str) -> Vec<LabelToken<'_>> {
    let mut tokens = Vec::new();
    let mut rest = label.trim_start();
    while let Some(first) = rest.chars().next() {
        if tokens.len() == MAX_TOKENS {
            break;
        }
        let end = |is_part: fn(char) -> bool| rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (token, length) = if first.is_ascii_digit() {
            let end = end(|c| c.is_ascii_digit() || c == '.');
            let digits = rest.get(..end).unwrap_or_default().trim_end_matches('.');
            match digits.parse() {
                Ok(number) => (LabelToken::Number(number), digits.len()),
                Err(_) => (LabelToken::Sign('?'), end),
            }
        } else if first.is_ascii_alphabetic() {
            let end = end(|c| c.is_ascii_alphabetic());
            (LabelToken::Word(rest.get(..end).unwrap_or_default()), end)
        } else {
            (LabelToken::Sign(first), first.len_utf8())
        };
        tokens.push(token);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    tokens
}

fn before<'a>(tokens: &'a [LabelToken<'a>], at: usize) -> Option<&'a LabelToken<'a>> {
    tokens.get(at.checked_sub(1)?)
}

/// Parses a speed that begins with the first of these tokens.
fn read_at(tokens: &[LabelToken<'_>], before: Option<&LabelToken<'_>>) -> Option<Capacity> {
    use LabelToken::{Number, Sign, Word};
    // "2 x 10G", "2x10G", "n x 10G".
    if let [first, Word("x" | "X") | Sign('×' | '*'), rest @ ..] = tokens {
        let one = read_at(rest, None)?;
        return match first {
            Number(count) if *count >= 1.0 => multiply(one, *count),
            Word("n" | "N") => capacity(one.rate.bits_per_second(), CapacitySource::Bound),
            _ => None,
        };
    }
    if let [Word("nx" | "Nx" | "NX"), rest @ ..] = tokens {
        return capacity(
            read_at(rest, None)?.rate.bits_per_second(),
            CapacitySource::Bound,
        );
    }
    let is_bound = matches!(before, Some(Sign('<' | '>' | '~' | '≤' | '≥')));
    let source = if is_bound {
        CapacitySource::Bound
    } else {
        CapacitySource::Stated
    };
    match tokens {
        // "1-10Gbps": the first number has the second one's unit.
        [
            Number(least),
            Sign('-' | '–'),
            Number(most),
            Word(unit),
            rest @ ..,
        ] if least <= most => capacity(least * unit_factor(unit, rest)?, CapacitySource::Bound),
        // "10Gbps-40Gbps" is read by the next arm: the first number, as a bound.
        [Number(number), Word(unit), rest @ ..] => {
            let ranges = matches!(rest, [Sign('-' | '–'), Number(_), Word(_), ..]);
            let source = if ranges {
                CapacitySource::Bound
            } else {
                source
            };
            capacity(number * unit_factor(unit, rest)?, source)
        }
        [Word(line), Sign('-'), Number(level), ..] | [Word(line), Number(level), ..] => {
            capacity(line_rate(line, *level).or_else(|| ethernet(line))?, source)
        }
        [Word(first), Word(second), ..] if second.eq_ignore_ascii_case("ethernet") => {
            capacity(ethernet(first)?, source)
        }
        [Word(word), ..] => capacity(ethernet(word)?, source),
        _ => None,
    }
}

fn multiply(one: Capacity, count: f64) -> Option<Capacity> {
    capacity(one.rate.bits_per_second() * count, one.source)
}

fn capacity(rate: f64, source: CapacitySource) -> Option<Capacity> {
    let rate = Rate::new(rate).filter(|rate| *rate > Rate::ZERO)?;
    Some(Capacity { rate, source })
}

/// Returns the factor of a unit, in bit/s. A capital B after the prefix means bytes, which are not
/// taken for bits.
fn unit_factor(unit: &str, behind: &[LabelToken<'_>]) -> Option<f64> {
    let prefix = unit.chars().next()?;
    let factor = match prefix {
        'k' | 'K' => 1e3,
        'm' | 'M' => 1e6,
        'g' | 'G' => 1e9,
        't' | 'T' => 1e12,
        'b' if matches!(unit, "bps" | "bit" | "bits" | "b") => return Some(1.0),
        // "100BaseT" is in Mbit/s.
        'b' | 'B' if starts_with(unit, "base") => return Some(1e6),
        _ => return None,
    };
    let name = unit.get(1..)?;
    let lower = name.to_ascii_lowercase();
    let is_ethernet = matches!(lower.as_str(), "e" | "be" | "ige" | "igabitethernet")
        || starts_with(name, "base");
    if is_ethernet {
        return Some(factor);
    }
    if name.starts_with('B') {
        return None;
    }
    let bits = matches!(
        lower.as_str(),
        "" | "b"
            | "bps"
            | "bit"
            | "bits"
            | "bitps"
            | "ps"
            | "ig"
            | "igabit"
            | "igabits"
            | "egabit"
            | "egabits"
            | "ilobit"
            | "ilobits"
            | "erabit"
            | "erabits"
    );
    // "10 G of fibre" is a speed like "10 G", but "10 m cable" is not.
    let length = unit == "m" && !matches!(behind, [] | [LabelToken::Sign('/' | ')' | ','), ..]);
    (bits && !length).then_some(factor)
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

/// Returns the rate of a line by its name and level: `OC` and 192, `T` and 1.
fn line_rate(line: &str, level: f64) -> Option<f64> {
    let of = |rates: &[f64], least: f64| {
        let whole = level.fract() == 0.0 && level >= least;
        whole.then(|| rates.get(level as usize).copied()).flatten()
    };
    let steps = |step: f64| (level >= 1.0 && level.fract() == 0.0).then_some(step * level);
    match line {
        "OC" | "oc" | "STS" => steps(SONET_STEP),
        "STM" | "stm" => steps(SDH_STEP),
        "DS" | "ds" => of(&DIGITAL_SIGNALS, 0.0),
        // In lower case, these more likely number an edge.
        "T" => of(&DIGITAL_SIGNALS, 1.0),
        "E" => of(&EUROPEAN_LINES, 0.0),
        _ => None,
    }
}

/// Returns the rate of an Ethernet variant.
fn ethernet(word: &str) -> Option<f64> {
    match word.to_ascii_lowercase().as_str() {
        "gige" | "gbe" | "ge" | "gigabit" | "gigabitethernet" => Some(1e9),
        "fe" | "fast" | "fastethernet" => Some(1e8),
        _ => None,
    }
}
