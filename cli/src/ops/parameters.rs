//! `--set key=value`, checked against what the operation knows.

use std::collections::BTreeMap;

use crate::error::{CliError, quoted};

/// A parameter of an operation.
pub struct ParameterSpec {
    pub name: &'static str,
    pub kind: Kind,
    /// What holds where it is not given, in words.
    pub default: &'static str,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    Integer,
    /// A number that names something: a seed.
    Unsigned,
    Bool,
    /// Dimensions, with commas between them.
    Dims,
    /// One of these words, which the text lists.
    Word(&'static [&'static str], &'static str),
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f32),
    Integer(i32),
    Unsigned(u64),
    Bool(bool),
    Dims(Vec<isize>),
    Word(&'static str),
}

/// The `default` of a parameter that has none.
pub const REQUIRED: &str = "required";

impl Kind {
    /// What a value must be.
    pub const fn required(self) -> &'static str {
        match self {
            Kind::Number => "a number",
            Kind::Integer => "a 32-bit integer",
            Kind::Unsigned => "a 64-bit integer, not negative",
            Kind::Bool => "true or false",
            Kind::Dims => "dimensions, such as 0,2,1",
            Kind::Word(_, text) => text,
        }
    }

    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Kind::Number => number(text).map(Value::Number),
            Kind::Integer => text.parse().ok().map(Value::Integer),
            Kind::Unsigned => text.parse().ok().map(Value::Unsigned),
            Kind::Bool => text.parse().ok().map(Value::Bool),
            // A tensor without dimensions has an empty list of them.
            Kind::Dims if text.is_empty() => Some(Value::Dims(Vec::new())),
            Kind::Dims => {
                text.split(',').map(|dim| dim.trim().parse().ok()).collect::<Option<_>>().map(Value::Dims)
            }
            Kind::Word(words, _) => words.iter().find(|&&word| word == text).map(|&word| Value::Word(word)),
        }
    }
}

/// In f32, which rounds; but a finite number stays finite, and what is not 0 does not become it.
fn number(text: &str) -> Option<f32> {
    let value: f64 = text.parse().ok()?;
    let rounded = text.parse::<f32>().ok()?;
    // Infinity itself has no digits.
    let is_beyond = value.is_infinite() && text.contains(|of: char| of.is_ascii_digit());
    let is_kept = value.is_finite() == rounded.is_finite() && (value == 0.0) == (rounded == 0.0);
    (is_kept && !is_beyond).then_some(rounded)
}

/// The parameters that were given.
#[derive(Debug)]
pub struct Parameters(BTreeMap<&'static str, Value>);

impl Parameters {
    pub fn parse(
        op: &'static str,
        specs: &'static [ParameterSpec],
        given: &[&str],
    ) -> Result<Parameters, CliError> {
        let known = || match specs {
            [] => "none".to_owned(),
            _ => quoted(specs.iter().map(|spec| spec.name)),
        };
        let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
        let mut values = BTreeMap::new();
        for &pair in given {
            let Some((key, text)) = pair.split_once('=') else {
                return Err(CliError::ParameterForm { op, got: pair.to_owned(), known: known() });
            };
            let Some(spec) = specs.iter().find(|spec| spec.name == key) else {
                return Err(CliError::UnknownParameter { op, got: key.to_owned(), known: known() });
            };
            let name = spec.name;
            if let Some(first) = texts.insert(name, text) {
                let (first, second) = (first.to_owned(), text.to_owned());
                return Err(CliError::DuplicateParameter { op, name, first, second });
            }
            let value = spec.kind.parse(text).ok_or_else(|| {
                let is_beyond = spec.kind == Kind::Number && text.parse::<f64>().is_ok();
                let required = if is_beyond { "a number that f32 can hold" } else { spec.kind.required() };
                let got = text.to_owned();
                CliError::ParameterValue { op, name, required, got }
            })?;
            values.insert(name, value);
        }
        let missing = specs.iter().find(|spec| spec.default == REQUIRED && !values.contains_key(spec.name));
        if let Some(ParameterSpec { name, kind, .. }) = missing {
            return Err(CliError::MissingParameter { op, name, required: kind.required() });
        }
        Ok(Parameters(values))
    }

    pub fn number(&self, name: &str) -> Option<f32> {
        match self.0.get(name) {
            Some(&Value::Number(value)) => Some(value),
            _ => None,
        }
    }

    pub fn integer(&self, name: &str) -> Option<i32> {
        match self.0.get(name) {
            Some(&Value::Integer(value)) => Some(value),
            _ => None,
        }
    }

    pub fn unsigned(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some(&Value::Unsigned(value)) => Some(value),
            _ => None,
        }
    }

    /// One that counts: more than there can be of anything stay so.
    pub fn count(&self, name: &str) -> Option<usize> {
        self.unsigned(name).map(|value| usize::try_from(value).unwrap_or(usize::MAX))
    }

    pub fn dims(&self, name: &str) -> Option<&[isize]> {
        match self.0.get(name) {
            Some(Value::Dims(dims)) => Some(dims),
            _ => None,
        }
    }

    pub fn word(&self, name: &str) -> Option<&'static str> {
        match self.0.get(name) {
            Some(&Value::Word(word)) => Some(word),
            _ => None,
        }
    }

    pub fn bool(&self, name: &str) -> Option<bool> {
        match self.0.get(name) {
            Some(&Value::Bool(value)) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SPECS: [ParameterSpec; 3] = [
        ParameterSpec { name: "scale", kind: Kind::Number, default: "1", about: "" },
        ParameterSpec { name: "causal", kind: Kind::Bool, default: "false", about: "" },
        ParameterSpec { name: "offset", kind: Kind::Integer, default: "0", about: "" },
    ];

    fn parse(given: &[&str]) -> Result<Parameters, String> {
        Parameters::parse("op", &SPECS, given).map_err(|error| error.to_string())
    }

    #[test]
    fn values_have_the_type_of_their_parameter() {
        let got = parse(&["scale=-0.5", "causal=true", "offset=-3"]).unwrap();
        assert_eq!(
            (got.number("scale"), got.bool("causal"), got.integer("offset")),
            (Some(-0.5), Some(true), Some(-3))
        );
        let none = parse(&[]).unwrap();
        assert_eq!((none.number("scale"), none.bool("causal"), none.integer("offset")), (None, None, None));
    }

    static MORE: [ParameterSpec; 3] = [
        ParameterSpec { name: "order", kind: Kind::Dims, default: "none", about: "" },
        ParameterSpec { name: "form", kind: Kind::Word(&["a", "b"], "a or b"), default: REQUIRED, about: "" },
        ParameterSpec { name: "seed", kind: Kind::Unsigned, default: "0", about: "" },
    ];

    #[test]
    fn words_and_seeds_are_read_and_required_ones_asked_for() {
        let parse = |given: &[&str]| Parameters::parse("op", &MORE, given).map_err(|error| error.to_string());
        let got = parse(&["form=b", "seed=18446744073709551615", "order=0,-1,2"]).unwrap();
        assert_eq!(got.dims("order"), Some(&[0, -1, 2][..]));
        assert_eq!((got.word("form"), got.unsigned("seed")), (Some("b"), Some(u64::MAX)));
        assert_eq!((got.count("seed"), got.count("form")), (Some(usize::MAX), None));
        for (given, want) in [
            (&["seed=1"][..], "op: parameter `form` is required: `--set form=` a or b"),
            (&["form=a", "order=0,x"], "op: parameter `order` must be dimensions, such as 0,2,1, got `0,x`"),
            (&["form=c"], "op: parameter `form` must be a or b, got `c`"),
            (&["form=a", "seed=-1"], "op: parameter `seed` must be a 64-bit integer, not negative, got `-1`"),
        ] {
            assert_eq!(parse(given).unwrap_err(), want);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (given, want) in [
            (
                &["scale"][..],
                "op: `--set scale` must be `key=value`: known keys are `scale`, `causal` and `offset`",
            ),
            (&["scal=1"], "op: unknown parameter `scal`: known are `scale`, `causal` and `offset`"),
            (&["scale=1", "scale=2"], "op: parameter `scale` is given twice: `1` and `2`"),
            (&["scale="], "op: parameter `scale` must be a number, got ``"),
            (&["scale=1e39"], "op: parameter `scale` must be a number that f32 can hold, got `1e39`"),
            (&["scale=-1e400"], "op: parameter `scale` must be a number that f32 can hold, got `-1e400`"),
            (&["causal=yes"], "op: parameter `causal` must be true or false, got `yes`"),
            (&["offset=1.5"], "op: parameter `offset` must be a 32-bit integer, got `1.5`"),
            (&["offset=3000000000"], "op: parameter `offset` must be a 32-bit integer, got `3000000000`"),
        ] {
            assert_eq!(parse(given).unwrap_err(), want);
        }
    }
}
