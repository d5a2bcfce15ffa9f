//! The cases of `attention_scores`: heads of models, with each form of mask.

use std::rc::Rc;

use warpwright::ops::attention_scores::{Choice, attention_scores_into_by, candidates};
use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{Mask, MaskedSoftmax};
use warpwright::{DType, Result, Tensor};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::ops::FLOATS;

const NAME: &str = "attention_scores";

/// [B, H, Q, K, D]: B·H products of Q queries and K keys of D numbers.
type Shape = [usize; 5];

/// What the checker has time for.
const SMALL: Shape = [2, 1, 20, 40, 16];
/// BERT-large on 384 tokens.
const BERT: Shape = [8, 16, 384, 384, 64];
/// Shorter and longer sequences, wider heads, few queries, one, and extents that are no multiples of a pack.
const OTHERS: [Shape; 9] = [
    [32, 16, 128, 128, 64],
    [16, 16, 256, 256, 64],
    [8, 16, 512, 512, 64],
    [4, 16, 1024, 1024, 64],
    [8, 16, 384, 384, 128],
    [8, 12, 197, 197, 64],
    [64, 16, 16, 512, 64],
    [64, 16, 1, 256, 64],
    [512, 4, 64, 64, 32],
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    None,
    /// Of the keys of each of the batch, as BERT has it.
    Keys,
    /// Of queries and keys.
    Keep,
    /// Numbers for queries and keys.
    Bias,
    /// Numbers for the keys of each of the batch, as models have BERT's mask.
    KeyBias,
    Lengths,
    Causal,
}

impl Form {
    const ALL: [Form; 7] =
        [Form::None, Form::Keys, Form::Keep, Form::Bias, Form::KeyBias, Form::Lengths, Form::Causal];

    const fn name(self) -> &'static str {
        match self {
            Form::None => "none",
            Form::Keys => "keys",
            Form::Keep => "keep",
            Form::Bias => "bias",
            Form::KeyBias => "key_bias",
            Form::Lengths => "lengths",
            Form::Causal => "causal",
        }
    }

    /// Elements of the mask.
    const fn shape(self, [b, _, q, k, _]: Shape) -> [usize; 4] {
        match self {
            Form::None | Form::Causal => [0; 4],
            Form::Keys | Form::KeyBias => [b, 1, 1, k],
            Form::Keep | Form::Bias => [b, 1, q, k],
            Form::Lengths => [b, 1, 1, 1],
        }
    }
}

pub fn cases(setting: &Setting) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        cases.extend(
            [SMALL, BERT].into_iter().flat_map(|shape| Form::ALL.map(|form| case(shape, dtype, form))),
        );
        if !setting.quick {
            let forms = [Form::None, Form::Keys, Form::Keep];
            cases.extend(OTHERS.into_iter().flat_map(|shape| forms.map(|form| case(shape, dtype, form))));
        }
    }
    cases
}

/// Bytes of q, k and y.
fn bytes([b, h, q, k, d]: Shape, dtype: DType) -> usize {
    b * h * (q * d + k * d + q * k) * dtype.size()
}

fn case(shape: Shape, dtype: DType, form: Form) -> Case {
    let [b, h, q, k, d] = shape;
    let variant = format!("mask={}", form.name());
    Case::new(NAME, &shape, dtype, variant, bytes(shape, dtype), move |data, sets| {
        prepare(data, sets, shape, dtype, form)
    })
    .flops(2 * b * h * q * k * d)
    .torch([("mask", form.name().into())])
}

struct Set {
    q: Tensor,
    k: Tensor,
    mask: Option<Tensor>,
    y: Tensor,
}

impl Set {
    fn parameters(&self, form: Form) -> MaskedSoftmax<'_> {
        let mask = match (form, &self.mask) {
            (Form::Keys | Form::Keep, Some(mask)) => Mask::Keep(mask),
            (Form::Bias | Form::KeyBias, Some(mask)) => Mask::Bias(mask),
            (Form::Lengths, lengths) => Mask::Range { lengths: lengths.as_ref(), starts: None },
            _ => Mask::None,
        };
        let width = self.q.shape()[3] as f32;
        let causal = (form == Form::Causal).then_some(Causal::BottomRight);
        MaskedSoftmax { scale: 1.0 / width.sqrt(), mask, causal }
    }
}

fn prepare(data: &Data, sets: usize, shape: Shape, dtype: DType, form: Form) -> Result<Prepared> {
    let [b, h, q, k, d] = shape;
    let of_mask = form.shape(shape);
    // From a half to all of the keys.
    let lengths: Vec<i32> = (0..b).map(|i| (k - i * k / (2 * b)) as i32).collect();
    let masks = match form {
        Form::None | Form::Causal => Vec::new(),
        Form::Keys | Form::Keep => data.keep(sets, &of_mask)?,
        Form::Bias | Form::KeyBias => data.numbers(sets, dtype, &of_mask)?,
        Form::Lengths => data.indices(sets, &of_mask[..3], &lengths)?,
    };
    let mut masks = masks.into_iter();
    let sets: Rc<[Set]> = (0..sets)
        .map(|_| {
            let of = |rows: usize| Ok(data.numbers(1, dtype, &[b, h, rows, d])?.remove(0));
            let y = data.outputs(1, dtype, &[b, h, q, k])?.remove(0);
            Ok(Set { q: of(q)?, k: of(k)?, mask: masks.next(), y })
        })
        .collect::<Result<_>>()?;
    let mask_bytes = sets[0].mask.as_ref().map_or(0, |mask| mask.len() * mask.dtype().size());
    let dropped = match form {
        Form::Lengths => {
            lengths.iter().map(|&length| k - length as usize).sum::<usize>() * h * d * dtype.size()
        }
        _ => 0,
    };
    let floor = (bytes(shape, dtype) + mask_bytes - dropped) as u64;
    let mut prepared = Prepared { floor, ways: Vec::new() };
    for plan in candidates(&sets[0].q, &sets[0].k, &sets[0].parameters(form))? {
        let (sets, choice): (_, Choice) = (sets.clone(), plan.choice());
        prepared = prepared.or(plan.to_string(), move |set| {
            let set = &sets[set];
            attention_scores_into_by(choice, &set.q, &set.k, &set.parameters(form), &set.y)
        });
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_the_operands_the_mask_and_the_result_once() {
        let data = Data::small(&warpwright::Device::cpu());
        let floor = |form| prepare(&data, 1, SMALL, DType::BF16, form).unwrap().floor;
        let plain = 2 * 2 * (20 * 16 + 40 * 16 + 20 * 40);
        assert_eq!((floor(Form::None), floor(Form::Causal)), (plain, plain));
        assert_eq!((floor(Form::Keys), floor(Form::Keep)), (plain + 2 * 40, plain + 2 * 20 * 40));
        assert_eq!((floor(Form::Bias), floor(Form::KeyBias)), (plain + 2 * 2 * 20 * 40, plain + 2 * 2 * 40));
        assert_eq!(floor(Form::Lengths), plain + 2 * 4 - 10 * 16 * 2);
    }
}
