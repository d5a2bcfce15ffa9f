//! The gradients of the tables of `embedding`, against sums in float64.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use kernels_gpu::embedding::{FEW, MERGE_TILE};
use pointwise::{Layout, ulp};
use warpwright::ops::{self, Positions};
use warpwright::{DType, Desc, Device, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, apart, assert_same, assert_within, on_each_device, poisoned, tokens_of,
};

/// How tokens are chosen.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// Each row as often as another.
    Even,
    /// Half of the tokens are one.
    Frequent,
    /// All tokens are one.
    One,
    /// Each token is less than the one before, or begins again.
    Falling,
}

impl Text {
    fn tokens(self, count: usize, words: usize, random: &mut Random) -> Vec<i64> {
        let token = |i: usize| match self {
            Text::Even => random.below(words as u64) as usize,
            Text::Frequent => {
                if random.below(2) == 0 {
                    words / 2
                } else {
                    random.below(words as u64) as usize
                }
            }
            Text::One => words - 1,
            Text::Falling => words - 1 - i % words,
        };
        (0..count).map(token).map(|token| token as i64).collect()
    }
}

/// What both gradients are, into poisoned memory, against the sums in float64.
fn check(tokens: &Tensor, dy: &Tensor, wte: &Tensor, wpe: (&Tensor, usize), what: &str) -> Result<()> {
    let (device, dtype) = (tokens.device(), dy.dtype());
    let positions = Some(Positions { offset: wpe.1, ..Positions::new(wpe.0) });
    let dwte = poisoned(device, dtype, wte.shape(), POISON)?;
    let dwpe = poisoned(device, dtype, wpe.0.shape(), POISON)?;
    ops::embedding_backward_into(tokens, dy, wte, positions, &dwte, Some(&dwpe))?;
    let (of_rows, of_positions) = reference::embedding_backward(tokens, dy, wte, positions)?;
    // An f32 sum of n terms is off by at most n roundings of the sum of their magnitudes.
    let magnitudes: Vec<f32> = dy.to_f64()?.into_iter().map(|dy| dy.abs() as f32).collect();
    let magnitudes = Tensor::from_slice(&Device::cpu(), dy.shape(), &magnitudes)?;
    let here = |tensor: &Tensor| tensor.to_device(&Device::cpu());
    let (tokens, wte, wpe) =
        (here(tokens)?, here(&ops::cast(wte, DType::F32)?)?, here(&ops::cast(wpe.0, DType::F32)?)?);
    let positions =
        Some(Positions { offset: positions.map_or(0, |positions| positions.offset), ..Positions::new(&wpe) });
    let (row_reach, position_reach) = reference::embedding_backward(&tokens, &magnitudes, &wte, positions)?;
    let roundings = tokens.len() as f64 * (-24f64).exp2();
    for (got, want, reach, name) in [
        (&dwte, of_rows, row_reach, "dwte"),
        (&dwpe, of_positions.unwrap_or_default(), position_reach.unwrap_or_default(), "dwpe"),
    ] {
        let tolerance = |i: usize| match reach[i] {
            0.0 => 0.0,
            reach => roundings * reach + 0.51 * ulp(dtype, want[i]),
        };
        assert_within(&got.to_f64()?, &want, tolerance, format!("{what}: {name}"));
    }
    Ok(())
}

on_each_device! {
    fn every_type_and_shape_gives_the_sums(device: &Device) -> Result<()> {
        let mut random = Random::new(310);
        let (tile, few) = (MERGE_TILE as usize, FEW as usize);
        // Sequences, steps, columns, rows of wte.
        let shapes = [
            (Text::One, [1, 1, 1, 1]),
            (Text::Even, [3, 5, 7, 11]),
            (Text::Frequent, [2, few / 2, 8, 5]),
            (Text::One, [1, few, 36, 2]),
            (Text::Falling, [few - 1, 1, 40, 7]),
            (Text::Frequent, [1, few + 1, 8, 5]),
            (Text::One, [3, 64, 4, 2]),
            (Text::Falling, [1, tile, 33, 6]),
            (Text::Falling, [1, tile + 1, 8, 300]),
            (Text::Even, [5, 41, 64, 300]),
            (Text::Frequent, [11, 70, 24, 9]),
            (Text::Even, [4, 9, 260, 3]),
            (Text::Even, [19, 9, 260, 3]),
            // As many pieces behind the first as a warp looks at, and more; and several tiles.
            (Text::One, [3, 11 * 16, 4, 2]),
            (Text::One, [1, 34 * 16 + 5, 5, 1]),
            (Text::Falling, [3, 3 * tile, 4, 1000]),
        ];
        for (i, (text, [sequences, steps, cols, words])) in shapes.into_iter().enumerate() {
            for (j, dtype) in DTYPES.into_iter().enumerate() {
                let token_type = [DType::U32, DType::I32, DType::I64][(i + j) % 3];
                let ids = text.tokens(sequences * steps, words, &mut random);
                let tokens = tokens_of(device, token_type, &[sequences, steps], &ids)?;
                let layout = Layout::ALL[(i + j) % Layout::ALL.len()];
                let dy = layout.random(device, dtype, [sequences * steps, cols], (-1.0, 1.0), &mut random)?;
                let dy = dy.reshape(&[sequences, steps, cols])?;
                let wte = Tensor::zeros(device, dtype, &[words, cols])?;
                let wpe = Tensor::zeros(device, dtype, &[steps + 2, cols])?;
                let what = format!("{text:?} {:?} {dtype} {token_type} {layout:?}", shapes[i].1);
                check(&tokens, &dy, &wte, (&wpe, j), &what)?;
            }
        }
        Ok(())
    }
}

/// More tokens than are merged: they are sorted by their digits.
const MANY: usize = (1 << 14) + 7;

on_each_device! {
    fn many_tokens_and_rows_take_all_tiles_and_digits(device: &Device) -> Result<()> {
        let mut random = Random::new(311);
        // As many as shared memory has of merged tiles, and more; then keys of one, two and three digits, those of two with more zeros than
        // dy has elements.
        let merged = 32 * MERGE_TILE as usize;
        for (text, count, words, cols) in [
            (Text::Even, merged, 5000, 1),
            (Text::Frequent, merged + 1, 5000, 1),
            (Text::Falling, (1 << 14) - 3, 20_000, 1),
            (Text::Frequent, MANY, 200, 4),
            (Text::Even, MANY, 30_000, 1),
            (Text::Frequent, MANY, 70_000, 1),
        ] {
            let ids = text.tokens(count, words, &mut random);
            let tokens = tokens_of(device, DType::I32, &[count], &ids)?;
            let dy = Layout::Dense.random(device, DType::F32, [count, cols], (-1.0, 1.0), &mut random)?;
            let (wte, wpe) = (
                Tensor::zeros(device, DType::F32, &[words, cols])?,
                Tensor::zeros(device, DType::F32, &[count, cols])?,
            );
            check(&tokens, &dy, &wte, (&wpe, 0), &format!("{text:?} {count} of {words}"))?;
        }
        Ok(())
    }
}

on_each_device! {
    fn sequences_are_summed_in_few_groups_beside_the_sort(device: &Device) -> Result<()> {
        // Two groups, each a row of partial sums as wide as a sequence; and of dy so many bytes that another stream of a
        // GPU has the positions.
        let mut random = Random::new(318);
        let (sequences, steps, words) = (32, MANY.div_ceil(32), 5000);
        for (dtype, cols) in [(DType::F32, 64), (DType::BF16, 136), (DType::F16, 131)] {
            let ids = Text::Frequent.tokens(sequences * steps, words, &mut random);
            let tokens = tokens_of(device, DType::I64, &[sequences, steps], &ids)?;
            let dy = Layout::Dense.random(device, dtype, [sequences * steps, cols], (-1.0, 1.0), &mut random)?;
            let dy = dy.reshape(&[sequences, steps, cols])?;
            let wte = Tensor::zeros(device, dtype, &[words, cols])?;
            let wpe = Tensor::zeros(device, dtype, &[steps + 3, cols])?;
            check(&tokens, &dy, &wte, (&wpe, 1), &format!("{dtype}, {cols} columns"))?;
        }
        Ok(())
    }
}

on_each_device! {
    fn many_sequences_are_summed_in_groups(device: &Device) -> Result<()> {
        let mut random = Random::new(312);
        for (dtype, cols) in [(DType::F32, 4), (DType::BF16, 8), (DType::F16, 3)] {
            let sequences = 100;
            let tokens = tokens_of(device, DType::U32, &[sequences, 2], &vec![0; 2 * sequences])?;
            let dy = Layout::Dense.random(device, dtype, [2 * sequences, cols], (-1.0, 1.0), &mut random)?;
            let dy = dy.reshape(&[sequences, 2, cols])?;
            let (wte, wpe) =
                (Tensor::zeros(device, dtype, &[1, cols])?, Tensor::zeros(device, dtype, &[5, cols])?);
            check(&tokens, &dy, &wte, (&wpe, 2), &format!("{dtype} x{cols}"))?;
        }
        Ok(())
    }
}

on_each_device! {
    fn the_same_input_gives_the_same_bits(device: &Device) -> Result<()> {
        let mut random = Random::new(313);
        let (sequences, steps, cols, words) = (7, 99, 20, 12);
        let ids = Text::Frequent.tokens(sequences * steps, words, &mut random);
        let tokens = tokens_of(device, DType::I64, &[sequences, steps], &ids)?;
        let dy = Layout::Dense.random(device, DType::F32, [sequences * steps, cols], (-1.0, 1.0), &mut random)?;
        let dy = dy.reshape(&[sequences, steps, cols])?;
        let wte = Tensor::zeros(device, DType::F32, &[words, cols])?;
        let wpe = Tensor::zeros(device, DType::F32, &[steps, cols])?;
        let positions = Some(Positions::new(&wpe));
        let bits = || -> Result<(Vec<u8>, Vec<u8>)> {
            let (dwte, dwpe) = ops::embedding_backward(&tokens, &dy, &wte, positions)?;
            Ok((dwte.to_bytes()?, dwpe.map_or(Ok(vec![]), |dwpe| dwpe.to_bytes())?))
        };
        let first = bits()?;
        for _ in 0..3 {
            let (dwte, dwpe) = bits()?;
            assert_same(&dwte, &first.0, "dwte");
            assert_same(&dwpe, &first.1, "dwpe");
        }
        // The type of the tokens does not matter, nor whether there are positions.
        let others = tokens_of(device, DType::U32, &[sequences, steps], &ids)?;
        let (dwte, dwpe) = ops::embedding_backward(&others, &dy, &wte, None)?;
        assert_same(&dwte.to_bytes()?, &first.0, "dwte of u32");
        assert!(dwpe.is_none());
        Ok(())
    }
}

on_each_device! {
    fn tokens_without_a_row_are_named_and_write_nothing(device: &Device) -> Result<()> {
        let device = &apart(device)?;
        let few = FEW as usize;
        for (cols, words, steps) in [(0, 3, 2), (5, 3, 2), (5, 3, few), (8, 3, 2), (8, 3, few), (8, 0, 2)] {
            let mut ids = vec![0, 7, -1, 2];
            ids.resize(2 * steps, 2);
            let tokens = tokens_of(device, DType::I64, &[2, steps], &ids)?;
            let dy = Tensor::zeros(device, DType::F32, &[2, steps, cols])?;
            let wte = Tensor::zeros(device, DType::F32, &[words, cols])?;
            let done = ops::embedding_backward(&tokens, &dy, &wte, None).and_then(|_| device.check_values());
            let want = match words {
                0 => "embedding_backward: `tokens[0]` must be in 0..0, which is empty, got 0",
                _ => "embedding_backward: `tokens[1]` must be in 0..=2, got 7",
            };
            assert_eq!(done.unwrap_err().to_string(), want, "{words} rows of {cols} columns, {steps} steps");
        }
        Ok(())
    }
}

on_each_device! {
    fn a_table_of_which_few_rows_are_chosen_is_zeros_else(device: &Device) -> Result<()> {
        // With positions and without; the last with more of the table than a stream beside the sort is worth.
        for (dtype, [words, cols], count) in [
            (DType::F32, [1500, 768], 300),
            (DType::BF16, [3001, 712], 129),
            (DType::F16, [40_000, 57], 999),
            (DType::F32, [20_000, 64], MANY.next_multiple_of(3)),
        ] {
            let mut random = Random::new(cols as u64);
            let ids = Text::Frequent.tokens(count, words, &mut random);
            let tokens = tokens_of(device, DType::U32, &[3, count / 3], &ids)?;
            let dy = Layout::Dense.random(device, dtype, [count, cols], (-1.0, 1.0), &mut random)?;
            let dy = dy.reshape(&[3, count / 3, cols])?;
            let wte = Tensor::zeros(device, dtype, &[words, cols])?;
            let wpe = Tensor::zeros(device, dtype, &[count / 3 + 2, cols])?;
            check(&tokens, &dy, &wte, (&wpe, 2), &format!("{dtype} {words}x{cols}"))?;
            let alone = poisoned(device, dtype, wte.shape(), POISON)?;
            ops::embedding_backward_into(&tokens, &dy, &wte, None, &alone, None)?;
            let positions = Some(Positions::new(&wpe));
            let (beside, _) = ops::embedding_backward(&tokens, &dy, &wte, positions)?;
            assert_same(&alone.to_f64()?, &beside.to_f64()?, "without positions");
        }
        Ok(())
    }
}

on_each_device! {
    fn without_tokens_gradients_are_zeros(device: &Device) -> Result<()> {
        for shape in [[0, 3], [3, 0]] {
            let tokens = Tensor::zeros(device, DType::U32, &shape)?;
            let (dy, wte) = (
                Tensor::zeros(device, DType::BF16, &[shape[0], shape[1], 9])?,
                Tensor::zeros(device, DType::BF16, &[4, 9])?,
            );
            let wpe = Tensor::zeros(device, DType::BF16, &[5, 9])?;
            check(&tokens, &dy, &wte, (&wpe, 1), &format!("{shape:?}"))?;
        }
        // Any offset will do where there is no step.
        let tokens = Tensor::zeros(device, DType::U32, &[0])?;
        let (dy, wte) = (Tensor::zeros(device, DType::F32, &[0, 9])?, Tensor::zeros(device, DType::F32, &[4, 9])?);
        let wpe = Tensor::from_slice(device, &[5, 9], &[1.0f32; 45])?;
        let positions = Positions { offset: usize::MAX, ..Positions::new(&wpe) };
        let (_, dwpe) = ops::embedding_backward(&tokens, &dy, &wte, Some(positions))?;
        assert_same(&dwpe.expect("there are positions").to_f64()?, &[0.0; 45], "dwpe");
        Ok(())
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let desc = |dtype, shape: &[usize]| Desc::new(&device, dtype, shape).unwrap();
    let (tokens, wte) = (desc(DType::I32, &[2, 5]), desc(DType::F32, &[9, 4]));
    let message = |dy: &Desc| ops::embedding_backward_shape(&tokens, dy, &wte, None).unwrap_err().to_string();
    for (dy, want) in [
        (desc(DType::F32, &[2, 4, 4]), "embedding_backward: `dy` must have shape [2, 5, 4], got [2, 4, 4]"),
        (desc(DType::F16, &[2, 5, 4]), "embedding_backward: `dy` must have dtype f32, got f16"),
    ] {
        assert_eq!(message(&dy), want);
    }
    let tensor = |dtype, shape: &[usize]| Tensor::zeros(&device, dtype, shape).unwrap();
    let (tokens, dy, table) =
        (tensor(DType::I32, &[2]), tensor(DType::F32, &[2, 4]), tensor(DType::F32, &[3, 4]));
    let positions = Some(Positions::new(&table));
    let into = |positions, dwte: &Tensor, dwpe: Option<&Tensor>| {
        ops::embedding_backward_into(&tokens, &dy, &table, positions, dwte, dwpe).unwrap_err().to_string()
    };
    let out = tensor(DType::F32, &[3, 4]);
    for (got, want) in [
        (into(positions, &out, None), "embedding_backward: `dwpe` is required: positions have a gradient"),
        (
            into(None, &out, Some(&table)),
            "embedding_backward: `wpe` is required: `dwpe` is the gradient of its table",
        ),
        (
            into(positions, &out, Some(&out)),
            "embedding_backward: `dwpe` must have memory apart from the inputs', got strides [4, 1]",
        ),
        (into(None, &dy, None), "embedding_backward: `dwte` must have shape [3, 4], got [2, 4]"),
    ] {
        assert_eq!(got, want);
    }
}
