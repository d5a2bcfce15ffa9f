//! What is asked: the checked arguments.

use super::{OP, Positions};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::masked_softmax::Described;
use crate::ops::packed::Packed;
use crate::ops::pointwise::{float, on_device, reach};
use crate::tensor::{Desc, Tensor};

/// Most tokens, rows and columns: kernels count them in 31 bits.
const MOST: usize = (1 << 31) - 1;

/// A checked request.
#[derive(Debug)]
pub struct Problem {
    /// The type of the tables and of y.
    pub dtype: DType,
    pub y: Desc,
    /// Sequences and steps, and the strides of the tokens along them.
    pub tokens: [(usize, isize); 2],
    pub token_dtype: DType,
    /// Rows of wte.
    pub vocabulary: usize,
    /// Columns of the tables.
    pub cols: usize,
    pub wte_strides: [isize; 2],
    /// Strides of wpe; 0 without one.
    pub wpe_strides: [isize; 2],
    pub packed: Option<Packed>,
}

impl Problem {
    /// Checks everything that can be checked without reading a token.
    pub fn new<D: Described>(
        op: &'static str,
        tokens: &Desc,
        wte: &Desc,
        positions: Option<Positions<D>>,
    ) -> Result<Problem> {
        if !matches!(tokens.dtype(), DType::U32 | DType::I32 | DType::I64) {
            let (required, got) = ("u32, i32 or i64".to_owned(), tokens.dtype());
            return Err(Error::DType { op, arg: "tokens", required, got });
        }
        let axis = |dim: usize| (tokens.shape()[dim], tokens.strides()[dim]);
        let axes = match tokens.rank() {
            1 => [(1, 0), axis(0)],
            2 => [axis(0), axis(1)],
            _ => {
                let (required, got) = ("[T] or [B, T]".to_owned(), tokens.shape().to_vec());
                return Err(Error::Shape { op, arg: "tokens", required, got });
            }
        };
        reach(op, "tokens", tokens)?;
        limit(op, "elements of `tokens`", tokens.len())?;
        float(op, "wte", wte)?;
        let [vocabulary, cols] = table(op, "wte", wte, tokens)?;
        limit(op, "rows of `wte`", vocabulary)?;
        limit(op, "columns of `wte`", cols)?;
        let (mut wpe_strides, mut packed) = ([0; 2], None);
        if let Some(Positions { wpe, offset, cu_seqlens }) = positions {
            let wpe = wpe.described();
            if wpe.dtype() != wte.dtype() {
                let required = wte.dtype().to_string();
                return Err(Error::DType { op, arg: "wpe", required, got: wpe.dtype() });
            }
            let [rows, wpe_cols] = table(op, "wpe", wpe, tokens)?;
            if wpe_cols != cols {
                let (required, got) = (format!("[P, {cols}]"), wpe.shape().to_vec());
                return Err(Error::Shape { op, arg: "wpe", required, got });
            }
            match cu_seqlens {
                None => check_positions(op, axes[1].0, offset, rows)?,
                Some(cu_seqlens) => {
                    // How many steps there are only the device knows; one, if there are tokens.
                    check_positions(op, axes[1].0.min(1), offset, rows)?;
                    if tokens.rank() != 1 {
                        let (required, got) =
                            ("[total] with `cu_seqlens`".to_owned(), tokens.shape().to_vec());
                        return Err(Error::Shape { op, arg: "tokens", required, got });
                    }
                    let (total, most) = (tokens.len(), rows.saturating_sub(offset));
                    packed = Some(Packed::new(op, tokens, cu_seqlens.described(), total, most)?);
                }
            }
            wpe_strides = [wpe.strides()[0], wpe.strides()[1]];
        }
        let shape = [tokens.shape(), &[cols]].concat();
        Ok(Problem {
            dtype: wte.dtype(),
            y: Desc::contiguous(op, tokens.device(), wte.dtype(), &shape)?,
            tokens: axes,
            token_dtype: tokens.dtype(),
            vocabulary,
            cols,
            wte_strides: [wte.strides()[0], wte.strides()[1]],
            wpe_strides,
            packed,
        })
    }

    /// How many tokens there are.
    pub fn token_count(&self) -> usize {
        self.tokens[0].0 * self.tokens[1].0
    }

    /// Steps of a sequence; the most where they are packed.
    pub fn steps(&self) -> usize {
        self.packed.map_or(self.tokens[1].0, |packed| packed.most)
    }

    /// Where packed sequences begin, checked; nothing where they are of one length.
    pub fn boundaries(
        &self,
        op: &'static str,
        tokens: &Tensor,
        positions: Option<Positions>,
    ) -> Result<Option<Tensor>> {
        let cu_seqlens = positions.and_then(|positions| positions.cu_seqlens);
        self.packed
            .zip(cu_seqlens)
            .map(|(packed, cu_seqlens)| packed.read(op, tokens, cu_seqlens))
            .transpose()
    }

    /// Sequences.
    pub fn sequences(&self) -> usize {
        self.packed.map_or(self.tokens[0].0, |packed| packed.sequences)
    }
}

/// The rows and columns of a table.
fn table(op: &'static str, arg: &'static str, table: &Desc, tokens: &Desc) -> Result<[usize; 2]> {
    let &[rows, cols] = table.shape() else {
        let required = if arg == "wte" { "[V, C]" } else { "[P, C]" };
        return Err(Error::Shape { op, arg, required: required.to_owned(), got: table.shape().to_vec() });
    };
    on_device(op, arg, table, tokens)?;
    reach(op, arg, table)?;
    Ok([rows, cols])
}

/// Wants a row for every position: those of `steps` steps, from `offset` on.
fn check_positions(op: &'static str, steps: usize, offset: usize, rows: usize) -> Result<()> {
    // The first step without a row.
    let index = rows.saturating_sub(offset);
    if index >= steps {
        return Ok(());
    }
    let got = i64::try_from(offset).unwrap_or(i64::MAX).saturating_add(index as i64);
    Err(Error::Value {
        op,
        arg: "positions",
        index: index as u64,
        min: 0,
        max: rows as i64 - 1,
        got,
        clipped: false,
    })
}

fn limit(op: &'static str, what: &'static str, got: usize) -> Result<()> {
    match got {
        0..=MOST => Ok(()),
        _ => Err(Error::TooLarge { op, what, limit: MOST as u64, got: got.to_string() }),
    }
}

/// The request of the forward pass.
pub fn forward<D: Described>(tokens: &D, wte: &D, positions: Option<Positions<D>>) -> Result<Problem> {
    Problem::new(OP, tokens.described(), wte.described(), positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_a_row_up_to_the_last() {
        let check = |steps, offset, rows| check_positions("op", steps, offset, rows);
        let message = |steps, offset, rows| check(steps, offset, rows).unwrap_err().to_string();
        for (steps, offset, rows) in [(4, 0, 4), (4, 6, 10), (0, 99, 3), (0, 0, 0)] {
            check(steps, offset, rows).unwrap();
        }
        assert_eq!(message(5, 0, 4), "op: `positions[4]` must be in 0..=3, got 4");
        assert_eq!(message(4, 7, 10), "op: `positions[3]` must be in 0..=9, got 10");
        assert_eq!(message(1, 11, 10), "op: `positions[0]` must be in 0..=9, got 11");
        assert_eq!(message(1, 0, 0), "op: `positions[0]` must be in 0..0, which is empty, got 0");
    }
}
