//! Packed sequences of different lengths: positions begin again with each, forward and backward.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use cuda_std::Global;
use kernels_gpu::embedding::{Lookup, Tokens, added, lookup_elements, token_kind};
use pointwise::{Layout, ulp};
use warpwright::ops::{self, Positions};
use warpwright::{DType, Desc, Device, Grid, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, apart, assert_same, assert_within, on_each_device, poisoned, tokens_of,
};

/// Where sequences of these lengths begin, and the last ends.
fn boundaries(lengths: &[usize]) -> Vec<i64> {
    let mut boundaries = vec![0];
    let mut end = 0;
    boundaries.extend(lengths.iter().map(|&length| {
        end += length as i64;
        end
    }));
    boundaries
}

/// Tables and tokens of sequences of these lengths.
struct Text {
    tokens: Tensor,
    wte: Tensor,
    wpe: Tensor,
    cu_seqlens: Tensor,
    dy: Tensor,
    offset: usize,
}

impl Text {
    fn new(device: &Device, dtype: DType, lengths: &[usize], cols: usize, seed: u64) -> Result<Text> {
        let mut random = Random::new(seed);
        let (words, offset, total) = (9, seed as usize % 3, lengths.iter().sum::<usize>());
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let ids: Vec<i64> = (0..total).map(|_| random.below(words) as i64).collect();
        let of = if seed.is_multiple_of(2) { DType::I32 } else { DType::I64 };
        let mut numbers = |rows| Layout::Dense.random(device, dtype, [rows, cols], (-2.0, 2.0), &mut random);
        Ok(Text {
            tokens: tokens_of(device, of, &[total], &ids)?,
            wte: numbers(words as usize)?,
            wpe: numbers(longest + offset + 1)?,
            dy: numbers(total)?,
            cu_seqlens: tokens_of(device, of, &[lengths.len() + 1], &boundaries(lengths))?,
            offset,
        })
    }

    fn positions(&self) -> Option<Positions<'_>> {
        Some(Positions { wpe: &self.wpe, offset: self.offset, cu_seqlens: Some(&self.cu_seqlens) })
    }

    /// One sum in f32 and one rounding.
    fn check_forward(&self, what: &str) -> Result<()> {
        let want = reference::embedding(&self.tokens, &self.wte, self.positions())?;
        let y = ops::embedding(&self.tokens, &self.wte, self.positions())?;
        let tolerance = |i: usize| 0.51 * ulp(y.dtype(), want[i]) + 0.51 * ulp(DType::F32, want[i]);
        assert_within(&y.to_f64()?, &want, tolerance, what);
        Ok(())
    }

    /// Into poisoned memory.
    fn check_backward(&self, what: &str) -> Result<()> {
        let dwte = poisoned(self.tokens.device(), self.dy.dtype(), self.wte.shape(), POISON)?;
        let dwpe = poisoned(self.tokens.device(), self.dy.dtype(), self.wpe.shape(), POISON)?;
        let (tokens, dy) = (&self.tokens, &self.dy);
        ops::embedding_backward_into(tokens, dy, &self.wte, self.positions(), &dwte, Some(&dwpe))?;
        let (rows, positions) = reference::embedding_backward(tokens, dy, &self.wte, self.positions())?;
        // An f32 sum of n terms below 2 is off by at most n roundings of their magnitudes' sum.
        let sums = self.tokens.len() as f64;
        let tolerance = |want: f64| 2.0 * sums * sums * (-24f64).exp2() + 0.51 * ulp(dy.dtype(), want);
        assert_within(&dwte.to_f64()?, &rows, |i| tolerance(rows[i]), format!("{what}: dwte"));
        let want = positions.expect("there are positions");
        assert_within(&dwpe.to_f64()?, &want, |i| tolerance(want[i]), format!("{what}: dwpe"));
        Ok(())
    }
}

/// Sequences of which some are empty, one, none with a token, many short ones with a long one behind them.
fn lengths() -> Vec<Vec<usize>> {
    let many = (0..70).map(|i| i * 7 % 5).chain([33]).collect();
    vec![vec![3, 1, 4], vec![0, 2, 0, 0, 5, 0], vec![7], vec![0, 0], vec![1; 9], many]
}

on_each_device! {
    fn positions_begin_again_with_each_sequence(device: &Device) -> Result<()> {
        let mut seed = 400;
        for lengths in lengths() {
            for dtype in DTYPES {
                for cols in [1, 7, 8, 40] {
                    seed += 1;
                    let text = Text::new(device, dtype, &lengths, cols, seed)?;
                    let what = format!("{dtype} x{cols}, lengths {lengths:?}");
                    text.check_forward(&what)?;
                    text.check_backward(&what)?;
                }
            }
        }
        Ok(())
    }
}

on_each_device! {
    /// More than a warp looks at in one go or two, of which many are empty; rows of packs, of windows, of words and of elements.
    fn positions_of_many_sequences_are_found(device: &Device) -> Result<()> {
        let mut random = Random::new(470);
        let mut lengths: Vec<usize> = (0..1500).map(|_| random.below(4) as usize).collect();
        lengths.splice(300..700, [0; 400]);
        lengths[900] = 500;
        for (seed, (dtype, cols)) in [(DType::F32, 3), (DType::F32, 8), (DType::F32, 37), (DType::BF16, 5), (DType::BF16, 16), (DType::BF16, 131)]
            .into_iter()
            .enumerate()
        {
            let text = Text::new(device, dtype, &lengths, cols, 471 + seed as u64)?;
            text.check_forward(&format!("{dtype} x{cols}"))?;
        }
        Ok(())
    }
}

on_each_device! {
    fn packing_sequences_of_one_length_changes_no_bit(device: &Device) -> Result<()> {
        let (sequences, steps, cols) = (40, 5, 24);
        let text = Text::new(device, DType::F32, &vec![steps; sequences], cols, 480)?;
        let dense = |tensor: &Tensor| tensor.reshape(&[&[sequences, steps], &tensor.shape()[1..]].concat());
        let (tokens, dy) = (dense(&text.tokens)?, dense(&text.dy)?);
        let positions = Some(Positions { offset: text.offset, ..Positions::new(&text.wpe) });
        let y = ops::embedding(&text.tokens, &text.wte, text.positions())?;
        assert_same(&y.to_bytes()?, &ops::embedding(&tokens, &text.wte, positions)?.to_bytes()?, "y");
        let (dwte, dwpe) = ops::embedding_backward(&text.tokens, &text.dy, &text.wte, text.positions())?;
        let (dwte_dense, dwpe_dense) = ops::embedding_backward(&tokens, &dy, &text.wte, positions)?;
        assert_same(&dwte.to_bytes()?, &dwte_dense.to_bytes()?, "dwte");
        let bytes = |dwpe: Option<Tensor>| dwpe.expect("there are positions").to_bytes();
        assert_same(&bytes(dwpe)?, &bytes(dwpe_dense)?, "dwpe");
        Ok(())
    }
}

on_each_device! {
    fn boundaries_are_read_as_they_lie(device: &Device) -> Result<()> {
        let text = Text::new(device, DType::BF16, &[2, 0, 5, 1], 16, 481)?;
        let apart: Vec<i64> = boundaries(&[2, 0, 5, 1]).into_iter().flat_map(|at| [at, -1, 99]).collect();
        for of in [DType::I32, DType::I64] {
            let wide = tokens_of(device, of, &[15], &apart)?;
            let text = Text { cu_seqlens: wide.step(0, 3)?, ..Text::new(device, DType::BF16, &[2, 0, 5, 1], 16, 481)? };
            text.check_forward(&format!("{of} with gaps"))?;
            text.check_backward(&format!("{of} with gaps"))?;
        }
        text.check_forward("without gaps")
    }
}

on_each_device! {
    fn boundaries_that_make_no_sense_are_named(device: &Device) -> Result<()> {
        let device = &apart(device)?;
        let (total, rows) = (8, 6);
        let tokens = Tensor::zeros(device, DType::I32, &[total])?;
        let far = i64::from(i32::MAX);
        for (values, want) in [
            (&[0, 3, 7][..], "`cu_seqlens[2]` must be in 8..=8, got 7"),
            (&[1, 4, 8], "`cu_seqlens[0]` must be in 0..=0, got 1"),
            (&[-2, 2, 5, 8], "`cu_seqlens[0]` must be in 0..=0, got -2"),
            (&[0, 4, 3, 7, 8], "`lengths by cu_seqlens[1]` must be in 0..=4, got -1"),
            (&[0, 5, 8], "`lengths by cu_seqlens[0]` must be in 0..=4, got 5"),
            (&[0, 4, far, 8], "`lengths by cu_seqlens[1]` must be in 0..=4, got 2147483643"),
            (&[0, -far, 4, 8], "`lengths by cu_seqlens[0]` must be in 0..=4, got -2147483647"),
        ] {
            for (of, cols) in [(DType::I32, 5), (DType::I64, 8), (DType::I64, 0)] {
                let cu_seqlens = tokens_of(device, of, &[values.len()], values)?;
                let table = Tensor::zeros(device, DType::F32, &[rows, cols])?;
                let positions = Some(Positions { wpe: &table, offset: 2, cu_seqlens: Some(&cu_seqlens) });
                let forward = ops::embedding(&tokens, &table, positions).and_then(|_| device.check_values());
                assert_eq!(forward.unwrap_err().to_string(), format!("embedding: {want}"), "{values:?} {of}");
                let dy = Tensor::zeros(device, DType::F32, &[total, cols])?;
                let backward = ops::embedding_backward(&tokens, &dy, &table, positions)
                    .and_then(|_| device.check_values());
                let want = format!("embedding_backward: {want}");
                assert_eq!(backward.unwrap_err().to_string(), want, "{values:?} {of}");
            }
        }
        // Beyond what an i64 can differ by.
        let cu_seqlens = Tensor::from_slice(device, &[3], &[0, i64::MIN, 8])?;
        let table = Tensor::zeros(device, DType::F32, &[rows, 4])?;
        let positions = Some(Positions { cu_seqlens: Some(&cu_seqlens), ..Positions::new(&table) });
        let wrong = ops::embedding(&tokens, &table, positions).and_then(|_| device.check_values());
        let want = "embedding: `lengths by cu_seqlens[0]` must be in 0..=6, got -4294967296 or less";
        assert_eq!(wrong.unwrap_err().to_string(), want);
        Ok(())
    }
}

on_each_device! {
    /// On a GPU the boundaries' error comes after the lookup has run with them.
    fn wrong_boundaries_make_no_kernel_read_outside_the_tables(device: &Device) -> Result<()> {
        let (total, cols) = (6, 3);
        let tokens = Tensor::zeros(device, DType::U32, &[total])?;
        let (wte, wpe) = (Tensor::zeros(device, DType::F32, &[1, cols])?, Tensor::zeros(device, DType::F32, &[2, cols])?);
        let fault = Tensor::zeros(device, DType::U64, &[1])?;
        for starts in [[6u32, 0, 6], [3, 3, 0], [0, 6, 6], [6, 6, 6]] {
            let starts = Tensor::from_slice(device, &[3], &starts)?;
            let y = poisoned(device, DType::F32, &[total, cols], POISON)?;
            let kernel = &lookup_elements::kernels::<f32>()[added::PACKED];
            let divisor = |number| cuda_std::divide::Divisor::new(number).expect("not 0");
            let tokens_as =
                Tokens { sequence: 0, step: 1, vocabulary: 1, steps: divisor(total as u32), kind: token_kind::U32 };
            let params = Lookup {
                tokens: tokens_as,
                wte_row: cols as i64,
                wte_column: 1,
                wpe_row: cols as i64,
                wpe_column: 1,
                first: 0,
                units: (total * cols) as u32,
                per_row: divisor(cols as u32),
                sequences: 2,
                positions: 2,
                sectors: 0,
                early: 0,
                unused: 0,
            };
            // SAFETY: the operands hold what the parameters say, the grid covers the units.
            unsafe {
                let words: Global<u32> = tokens.view()?;
                let (starts, y, fault) = (starts.view()?, y.view_mut()?, fault.view_mut()?);
                let args = (words, starts, wte.view()?, wpe.view()?, y, fault, params);
                device.launch(kernel, Grid::covering((total * cols) as u64, 512)?, args)?;
            }
            assert_same(&y.to_vec::<f32>()?, &vec![0.0; total * cols], "rows of zeros");
        }
        Ok(())
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let desc = |dtype, shape: &[usize]| Desc::new(&device, dtype, shape).unwrap();
    let (wte, wpe) = (desc(DType::F32, &[9, 4]), desc(DType::F32, &[6, 4]));
    let message = |tokens: &Desc, cu_seqlens: &Desc, offset| {
        let positions = Some(Positions { wpe: &wpe, offset, cu_seqlens: Some(cu_seqlens) });
        ops::embedding_shape(tokens, &wte, positions).unwrap_err().to_string()
    };
    let (tokens, fits) = (desc(DType::I32, &[10]), desc(DType::I64, &[4]));
    for (got, want) in [
        (
            message(&desc(DType::I32, &[2, 5]), &fits, 0),
            "`tokens` must have shape [total] with `cu_seqlens`, got [2, 5]",
        ),
        (message(&tokens, &desc(DType::U32, &[4]), 0), "`cu_seqlens` must have dtype i32 or i64, got u32"),
        (
            message(&tokens, &desc(DType::I32, &[4, 1]), 0),
            "`cu_seqlens` must have shape [sequences + 1], got [4, 1]",
        ),
        (
            message(&tokens, &desc(DType::I32, &[1]), 0),
            "`cu_seqlens` must have shape [sequences + 1], got [1]",
        ),
        (
            message(&desc(DType::I32, &[0]), &desc(DType::I32, &[0]), 0),
            "`cu_seqlens` must have shape [sequences + 1], got [0]",
        ),
        (message(&tokens, &fits, 6), "`positions[0]` must be in 0..=5, got 6"),
    ] {
        assert_eq!(got, format!("embedding: {want}"));
    }
    // More tokens than positions are no mistake, nor is no sequence at all.
    for (tokens, cu_seqlens) in [(&tokens, &fits), (&desc(DType::I32, &[0]), &desc(DType::I32, &[1]))] {
        let positions = Some(Positions { wpe: &wpe, offset: 5, cu_seqlens: Some(cu_seqlens) });
        assert_eq!(ops::embedding_shape(tokens, &wte, positions).unwrap().shape(), [tokens.len(), 4]);
    }
}
