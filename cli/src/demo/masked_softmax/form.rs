//! The forms of mask, each with a rule that says which columns of a row it keeps.

use std::ops::Range;

use warpwright::ops::masked_softmax::{Causal, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor};

use crate::demo::random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    None,
    /// Padding at the end: `[B,1,1,K]`.
    Keep,
    /// Local attention, with a query now and then that sees nothing: `[1,1,Q,K]`.
    Window,
    /// Padding in front: `[B,1,1,K]`.
    Drop,
    /// One bias for each head: `[1,H,Q,K]`.
    Bias,
    /// Padding at the end: `[B,1,1]`.
    Lengths,
    /// Padding in front: `[B,1,1]`.
    Starts,
    Causal,
    CausalKeep,
}

/// Biases are uniform in ± this.
const BIAS: f32 = 2.0;
/// Of the window, from the query's own column.
const WINDOW: usize = 16;
/// One of so many queries sees nothing through the window.
const BLIND: usize = 13;

impl Form {
    pub const ALL: [Form; 9] = [
        Form::None,
        Form::Keep,
        Form::Window,
        Form::Drop,
        Form::Bias,
        Form::Lengths,
        Form::Starts,
        Form::Causal,
        Form::CausalKeep,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Form::None => "none",
            Form::Keep => "keep",
            Form::Window => "keep, window",
            Form::Drop => "drop",
            Form::Bias => "bias",
            Form::Lengths => "lengths",
            Form::Starts => "starts",
            Form::Causal => "causal",
            Form::CausalKeep => "causal, keep",
        }
    }

    /// The columns that query `q` of batch `b` keeps.
    fn range(self, [_, _, queries, keys]: [usize; 4], b: usize, q: usize) -> Range<usize> {
        // From a quarter of the keys to all.
        let length = keys - b * 7919 % (keys * 3 / 4 + 1);
        let past = (q + keys + 1).saturating_sub(queries).min(keys);
        match self {
            Form::None | Form::Bias => 0..keys,
            Form::Keep | Form::Lengths => 0..length,
            Form::Window if q % BLIND == BLIND - 1 => 0..0,
            Form::Window => q.saturating_sub(WINDOW).min(keys)..(q + WINDOW).min(keys),
            Form::Drop | Form::Starts => keys - length..keys,
            Form::Causal => 0..past,
            Form::CausalKeep => 0..past.min(length),
        }
    }

    /// Elements of x that are kept.
    pub fn kept(self, shape: [usize; 4]) -> u64 {
        let [batches, heads, queries, _] = shape;
        let row = |b, q| self.range(shape, b, q).len() as u64;
        (0..batches).flat_map(|b| (0..queries).map(move |q| row(b, q))).sum::<u64>() * heads as u64
    }

    /// The operand that carries the mask.
    pub fn mask(self, device: &Device, shape: [usize; 4], dtype: DType, seed: u64) -> Result<Option<Tensor>> {
        let [batches, heads, queries, keys] = shape;
        // Padding: the same for all queries, so the last one's range, which no causal limit cuts.
        let padding = |form: Form, b| form.range(shape, b, queries - 1);
        let bytes = |shape: &[usize], ranges: &mut dyn Iterator<Item = Range<usize>>, inside: u8| {
            let row = |range: Range<usize>| (0..keys).map(move |j| inside ^ u8::from(!range.contains(&j)));
            Tensor::from_slice(device, shape, &ranges.flat_map(row).collect::<Vec<u8>>())
        };
        let of_batches = [batches, 1, 1, keys];
        let numbers = |numbers: Vec<i32>| Tensor::from_slice(device, &[batches, 1, 1], &numbers);
        Ok(Some(match self {
            Form::None | Form::Causal => return Ok(None),
            Form::Keep | Form::CausalKeep => {
                bytes(&of_batches, &mut (0..batches).map(|b| padding(Form::Keep, b)), 1)?
            }
            Form::Drop => bytes(&of_batches, &mut (0..batches).map(|b| padding(Form::Drop, b)), 0)?,
            Form::Window => {
                bytes(&[1, 1, queries, keys], &mut (0..queries).map(|q| self.range(shape, 0, q)), 1)?
            }
            Form::Bias => random::tensor(device, dtype, &[1, heads, queries, keys], BIAS, (1 << 31) + seed)?,
            Form::Lengths => numbers((0..batches).map(|b| padding(self, b).end as i32).collect())?,
            Form::Starts => numbers((0..batches).map(|b| padding(self, b).start as i32).collect())?,
        }))
    }

    /// The operation's parameters. `offset` is the causal one, where x is not all of the queries.
    pub fn parameters<'a>(
        self,
        scale: f32,
        mask: Option<&'a Tensor>,
        offset: Option<i32>,
    ) -> MaskedSoftmax<'a> {
        let causal = matches!(self, Form::Causal | Form::CausalKeep)
            .then(|| offset.map_or(Causal::BottomRight, Causal::Offset));
        let mask = match (self, mask) {
            (Form::None | Form::Causal, _) | (_, None) => Mask::None,
            (Form::Keep | Form::Window | Form::CausalKeep, Some(mask)) => Mask::Keep(mask),
            (Form::Drop, Some(mask)) => Mask::Drop(mask),
            (Form::Bias, Some(mask)) => Mask::Bias(mask),
            (Form::Lengths, lengths) => Mask::Range { lengths, starts: None },
            (Form::Starts, starts) => Mask::Range { lengths: None, starts },
        };
        MaskedSoftmax { scale, mask, causal }
    }
}
