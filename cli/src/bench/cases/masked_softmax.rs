//! The cases of `masked_softmax`: rows of every length, and the shapes of two models.

use std::rc::Rc;

use warpwright::ops::masked_softmax::{self, Choice, Plan, masked_softmax_into_by};
use warpwright::ops::{Mask, MaskedSoftmax};
use warpwright::{DType, Result, Tensor};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::{Data, integers};
use crate::ops::FLOATS;

const SCALE: f32 = 0.125;
const HEADS: usize = 16;
/// Scale, maximum, subtraction, exponential, sum, quotient.
const FLOPS: usize = 6;

/// Row lengths that the plan was tuned at.
const TUNED: [usize; 14] =
    [128, 256, 384, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072, 262_144, 1 << 20];
/// Row lengths that are no multiples of a pack, of which some had a say in the choice of kernels.
const RAGGED: [usize; 5] = [127, 385, 1000, 4095, 50257];
/// Ragged row lengths that had none.
const UNTUNED: [usize; 6] = [77, 197, 577, 1500, 3000, 10007];
/// Row lengths that are timed with every form of mask, and compiled by PyTorch.
const FULL: [usize; 3] = [128, 1024, 4096];
const QUICK: [usize; 5] = [128, 1024, 4096, 16384, 1000];
/// BERT-large on 384 tokens, and a large batch.
const MODELS: [[usize; 4]; 2] = [[8, 16, 384, 384], [64, 16, 512, 512]];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    None,
    Keep,
    Lengths,
    Bias,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Form::None => "none",
            Form::Keep => "keep",
            Form::Lengths => "lengths",
            Form::Bias => "bias",
        }
    }
}

pub fn cases(setting: &Setting) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        let lengths: Vec<usize> = match setting.quick {
            true => QUICK.to_vec(),
            false => [&TUNED[..], &RAGGED, &UNTUNED].concat(),
        };
        for k in lengths {
            let shape = shape_for(k, dtype, setting.bytes);
            let full = FULL.contains(&k);
            let forms = match full && !setting.quick {
                true => &[Form::None, Form::Keep, Form::Lengths, Form::Bias][..],
                false => &[Form::None, Form::Keep],
            };
            cases.extend(forms.iter().map(|&form| case(shape, dtype, form, full)));
        }
        for shape in MODELS {
            let forms = [Form::None, Form::Keep, Form::Lengths];
            cases.extend(forms.into_iter().map(|form| case(shape, dtype, form, true)));
        }
    }
    cases
}

/// [B, 16, Q, K] of about so many bytes, with Q up to 512.
fn shape_for(k: usize, dtype: DType, bytes: usize) -> [usize; 4] {
    let rows = (bytes / (k * dtype.size())).max(HEADS);
    let queries = (rows / HEADS).clamp(1, 512);
    [(rows / HEADS / queries).max(1), HEADS, queries, k]
}

fn case(shape: [usize; 4], dtype: DType, form: Form, compile: bool) -> Case {
    let [b, _, q, k] = shape;
    let elements: usize = shape.iter().product();
    let mask = match form {
        Form::None | Form::Lengths => 0,
        Form::Keep => b * q * k,
        Form::Bias => b * q * k * dtype.size(),
    };
    let set_bytes = 2 * elements * dtype.size() + mask;
    let variant = format!("mask={}", form.name());
    Case::new("masked_softmax", &shape, dtype, variant, set_bytes, move |data, sets| {
        prepare(data, sets, shape, dtype, form)
    })
    .flops(FLOPS * elements)
    .torch([
        ("mask", form.name().into()),
        ("scale", SCALE.into()),
        ("compile_dynamic", (compile && MODELS.contains(&shape)).into()),
    ])
    .compiled(compile)
}

/// A set's tensors: x, the mask if there is one, y.
struct Set {
    x: Tensor,
    mask: Option<Tensor>,
    y: Tensor,
}

impl Set {
    fn parameters(&self, form: Form) -> MaskedSoftmax<'_> {
        let mask = match (form, &self.mask) {
            (Form::Keep, Some(mask)) => Mask::Keep(mask),
            (Form::Bias, Some(mask)) => Mask::Bias(mask),
            (Form::Lengths, lengths) => Mask::Range { lengths: lengths.as_ref(), starts: None },
            _ => Mask::None,
        };
        MaskedSoftmax { scale: SCALE, mask, causal: None }
    }
}

fn prepare(data: &Data, sets: usize, shape: [usize; 4], dtype: DType, form: Form) -> Result<Prepared> {
    let [b, h, q, k] = shape;
    let (elements, of_mask) = (b * h * q * k, [b, 1, q, k]);
    // What is dropped by a length is not read. Of x masked by bytes all is counted.
    let mut read = elements * dtype.size();
    let (masks, mask_bytes) = match form {
        Form::None => (Vec::new(), 0),
        Form::Keep => (data.keep(sets, &of_mask)?, b * q * k),
        Form::Bias => (data.numbers(sets, dtype, &of_mask)?, b * q * k * dtype.size()),
        Form::Lengths => {
            let lengths = integers(b * h * q, k as i32);
            read = lengths.iter().map(|&length| length as usize).sum::<usize>() * dtype.size();
            (data.indices(sets, &[b, h, q], &lengths)?, size_of_val(&lengths[..]))
        }
    };
    let mut masks = masks.into_iter();
    let (x, y) = (data.numbers(sets, dtype, &shape)?, data.outputs(sets, dtype, &shape)?);
    let sets: Rc<[Set]> = x.into_iter().zip(y).map(|(x, y)| Set { x, mask: masks.next(), y }).collect();
    let plans = masked_softmax::candidates(&sets[0].x, &sets[0].parameters(form))?;
    let mut prepared =
        Prepared { floor: (read + mask_bytes + elements * dtype.size()) as u64, ways: Vec::new() };
    let mut seen = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let kind = std::mem::discriminant(&plan.choice);
        seen.push(kind);
        if number > 0
            && !rivals(plan.choice, seen.iter().filter(|other| **other == kind).count(), k * dtype.size())
        {
            continue;
        }
        let (sets, choice) = (sets.clone(), plan.choice);
        prepared = prepared.or(plan_name(plan), move |set| {
            let set = &sets[set];
            masked_softmax_into_by(choice, &set.x, &set.parameters(form), &set.y)
        });
    }
    Ok(prepared)
}

/// Whether a kernel is worth timing, the `nth` of its kind, for rows of so many bytes: those after the first
/// few are meant for longer rows and take long, as does the kernel for any strides.
fn rivals(choice: Choice, nth: usize, bytes: usize) -> bool {
    match choice {
        Choice::Strided => false,
        Choice::Streamed => bytes >= 256 << 10,
        Choice::Cluster { .. } | Choice::Spread { .. } => bytes >= 64 << 10,
        _ => nth <= 4,
    }
}

fn plan_name(plan: &Plan) -> String {
    let ragged = if plan.ragged { " ragged" } else { "" };
    match plan.choice {
        Choice::Row { index } => format!("row {index}{ragged}"),
        Choice::LongRow { index } => format!("long row {index}{ragged}"),
        Choice::Cluster { index, blocks, .. } => format!("cluster {index} of {blocks}{ragged}"),
        Choice::Spread { index, spread } => format!("spread {index} of {}{ragged}", spread.blocks),
        Choice::Streamed => format!("streamed{ragged}"),
        Choice::Strided => "strided".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(quick: bool) -> Setting {
        Setting { dtypes: vec![DType::BF16, DType::U8], bytes: 256 << 20, quick }
    }

    #[test]
    fn shapes_have_the_size_that_was_asked_for() {
        assert_eq!(shape_for(128, DType::F32, 256 << 20), [64, 16, 512, 128]);
        assert_eq!(shape_for(50257, DType::F32, 256 << 20), [1, 16, 83, 50257]);
        assert_eq!(shape_for(1 << 20, DType::BF16, 256 << 20), [1, 16, 8, 1 << 20]);
        assert_eq!(shape_for(1 << 20, DType::F32, 1), [1, 16, 1, 1 << 20]);
    }

    #[test]
    fn every_length_and_form_has_its_case() {
        let all: Vec<String> = cases(&setting(false)).iter().map(Case::to_string).collect();
        assert_eq!(all.len(), 25 * 2 + 3 * 2 + 2 * 3);
        for want in [
            "masked_softmax 8x16x384x384 bf16 mask=lengths",
            "masked_softmax 128x16x512x128 bf16 mask=bias",
            "masked_softmax 1x16x512x10007 bf16 mask=keep",
        ] {
            assert!(all.iter().any(|case| case == want), "{want} of {all:#?}");
        }
        assert_eq!(cases(&setting(true)).len(), 5 * 2 + 2 * 3);
    }
}
