//! What is wrong with a safetensors file: by name, where its parser says only that something is; and names that are there twice, of
//! which the parser takes the last.

use std::fmt;

use safetensors::tensor::{Dtype, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;

/// What the header says of a tensor.
type Entry = (String, TensorInfo);

/// Most characters of what a message repeats.
const MOST_REPEATED: usize = 40;

/// A fault of the file, if this finds one.
pub fn fault(bytes: &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    let Ok(described) = described(header) else {
        return serde_json::from_slice(header).ok().filter(|header: &Value| !header.is_object()).map(
            |header| {
                format!("the header must be an object with the tensors by name, got {}", repeated(&header))
            },
        );
    };
    let mut entries = Vec::with_capacity(described.len());
    for (name, value) in described {
        match info(&value) {
            Ok(info) => entries.push((name, info)),
            Err(fault) => return Some(format!("tensor `{name}` {fault}")),
        }
    }
    let mut names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Some(format!("tensor `{}` is there twice", twice[0]));
    }
    entries.sort_by(|(a, of_a), (b, of_b)| (of_a.data_offsets, a).cmp(&(of_b.data_offsets, b)));
    entries
        .iter()
        .find_map(|entry| fault_of(entry, data.len()))
        .or_else(|| fault_between(&entries, data.len()))
}

/// Of a tensor by itself.
fn fault_of((name, info): &Entry, data: usize) -> Option<String> {
    let TensorInfo { dtype, shape, data_offsets: (begin, end) } = info;
    if begin > end || *end > data {
        return Some(format!("tensor `{name}` is bytes {begin}..{end} of the data, which has {data}"));
    }
    // As the parser counts, to which an extent of 0 behind others is no help.
    let elements = shape.iter().try_fold(1, |all: usize, extent| all.checked_mul(*extent));
    let bits = elements.and_then(|elements| elements.checked_mul(dtype.bitsize()));
    let got = end - begin;
    match bits {
        Some(bits) if bits == got * 8 => None,
        Some(bits) => {
            let wanted = bits.div_ceil(8);
            Some(format!(
                "tensor `{name}` of shape {shape:?} and type {dtype} must have {wanted} bytes, got {got}"
            ))
        }
        None => Some(format!("tensor `{name}` has a shape that is too large: {shape:?}")),
    }
}

/// Of all of them, in their order: each begins where the one before it ends.
fn fault_between(entries: &[Entry], data: usize) -> Option<String> {
    let mut before: Option<&Entry> = None;
    for entry in entries {
        let (begin, end) = (entry.1.data_offsets.0, before.map_or(0, |(_, info)| info.data_offsets.1));
        match before {
            Some((name, _)) if begin < end => {
                return Some(format!("tensors `{name}` and `{}` share bytes of the data", entry.0));
            }
            _ if begin > end => return Some(format!("bytes {end}..{begin} of the data are of no tensor")),
            _ => before = Some(entry),
        }
    }
    let end = before.map_or(0, |(_, info)| info.data_offsets.1);
    (end < data).then(|| format!("bytes {end}..{data} of the data are of no tensor"))
}

/// What a tensor's description says, or what is wrong with it.
fn info(value: &Value) -> Result<TensorInfo, String> {
    if !value.is_object() {
        return Err(format!(
            "must be an object with `dtype`, `shape` and `data_offsets`, got {}",
            repeated(value)
        ));
    }
    let dtype = Dtype::deserialize(&value["dtype"])
        .map_err(|_| format!("has {}", super::unknown(repeated(&value["dtype"]))))?;
    let shape = Vec::deserialize(&value["shape"]).map_err(|_| {
        format!("must have a `shape` of numbers from 0 on, got {}", repeated(&value["shape"]))
    })?;
    let data_offsets = Deserialize::deserialize(&value["data_offsets"]).map_err(|_| {
        format!("must have `data_offsets` of two numbers from 0 on, got {}", repeated(&value["data_offsets"]))
    })?;
    Ok(TensorInfo { dtype, shape, data_offsets })
}

/// A value of the header in a message: the beginning of a long one; `nothing` for what is not there.
fn repeated(value: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(MOST_REPEATED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The tensors' descriptions, in the order of the header.
fn described(header: &[u8]) -> serde_json::Result<Vec<(String, Value)>> {
    struct Descriptions;
    impl<'de> Visitor<'de> for Descriptions {
        type Value = Vec<(String, Value)>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("tensors by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut described = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                if name == "__metadata__" {
                    map.next_value::<serde::de::IgnoredAny>()?;
                } else {
                    described.push((name, map.next_value()?));
                }
            }
            Ok(described)
        }
    }
    serde_json::Deserializer::from_slice(header).deserialize_map(Descriptions)
}
