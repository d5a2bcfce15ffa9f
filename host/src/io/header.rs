//! What is wrong with a safetensors file: by name, where its parser says only that something is; and names that are there twice, of
//! which the parser takes the last.

use std::fmt;

use safetensors::tensor::TensorInfo;
use serde::de::{Deserializer as _, MapAccess, Visitor};

/// What the header says of a tensor.
type Entry = (String, TensorInfo);

/// A fault of the file, if this finds one.
pub fn fault(bytes: &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    let mut entries = entries(header).ok()?;
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
    let bits = match shape.contains(&0) {
        true => Some(0),
        false => shape.iter().try_fold(dtype.bitsize(), |all, extent| all.checked_mul(*extent)),
    };
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

fn entries(header: &[u8]) -> serde_json::Result<Vec<Entry>> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("tensors by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Entry>, A::Error> {
            let mut entries = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                if name == "__metadata__" {
                    map.next_value::<serde::de::IgnoredAny>()?;
                } else {
                    entries.push((name, map.next_value()?));
                }
            }
            Ok(entries)
        }
    }
    serde_json::Deserializer::from_slice(header).deserialize_map(Entries)
}
