//! Rows of tables, chosen by tokens, against the same rows in float64.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use pointwise::{Layout, round, ulp};
use warpwright::ops::{self, Positions};
use warpwright::{DType, Desc, Device, Error, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, apart, assert_same, assert_within, on_each_device, poisoned, tokens_of,
};

const TOKEN_TYPES: [DType; 3] = [DType::U32, DType::I32, DType::I64];
/// Sequences, steps, columns, rows of wte: columns around a pack of each type, rows around blocks of threads.
const SHAPES: [[usize; 4]; 8] = [
    [1, 1, 1, 1],
    [2, 3, 8, 5],
    [3, 5, 7, 11],
    [1, 9, 64, 4],
    [4, 2, 129, 3],
    [2, 70, 4, 1000],
    [5, 1, 768, 6],
    [1, 2, 2056, 2],
];

fn random_tokens(count: usize, words: usize, random: &mut Random) -> Vec<i64> {
    (0..count).map(|_| random.below(words as u64) as i64).collect()
}

/// One sum in f32 and one rounding; without positions none.
fn check(tokens: &Tensor, wte: &Tensor, positions: Option<Positions>, what: &str) -> Result<()> {
    let want = reference::embedding(tokens, wte, positions)?;
    let got = ops::embedding(tokens, wte, positions)?;
    assert_eq!(got.shape(), [tokens.shape(), &wte.shape()[1..]].concat(), "{what}");
    let sum = if positions.is_some() { 1.0 } else { 0.0 };
    let tolerance = |i: usize| sum * (0.51 * ulp(wte.dtype(), want[i]) + 0.51 * ulp(DType::F32, want[i]));
    assert_within(&got.to_f64()?, &want, tolerance, what);
    Ok(())
}

on_each_device! {
    fn every_type_and_shape_gives_the_rows(device: &Device) -> Result<()> {
        let mut random = Random::new(300);
        for (i, [sequences, steps, cols, words]) in SHAPES.into_iter().enumerate() {
            for (j, dtype) in DTYPES.into_iter().enumerate() {
                let token_type = TOKEN_TYPES[(i + j) % 3];
                let ids = random_tokens(sequences * steps, words, &mut random);
                let tokens = tokens_of(device, token_type, &[sequences, steps], &ids)?;
                let wte = Layout::Dense.random(device, dtype, [words, cols], (-2.0, 2.0), &mut random)?;
                let wpe = Layout::Dense.random(device, dtype, [steps + 3, cols], (-2.0, 2.0), &mut random)?;
                let what = format!("{:?} {dtype} {token_type}", SHAPES[i]);
                check(&tokens, &wte, None, &what)?;
                for offset in [0, 3] {
                    let positions = Some(Positions { offset, ..Positions::new(&wpe) });
                    check(&tokens, &wte, positions, &format!("{what} from position {offset}"))?;
                }
                let flat = tokens.reshape(&[sequences * steps])?;
                check(&flat, &wte, None, &format!("{what}, flat"))?;
            }
        }
        Ok(())
    }
}

on_each_device! {
    /// Of every start within a pack, in tables that end within one; rows of a table that are apart; one row.
    fn rows_that_packs_do_not_fit_are_cut_from_packs(device: &Device) -> Result<()> {
        let mut random = Random::new(303);
        for cols in [63, 64, 65, 66, 67, 70, 127].into_iter().chain(129..=137).chain([255, 258, 511, 520, 767, 1027]) {
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                let (steps, words) = (5, [1, 3, 7][(cols + i) % 3]);
                let ids = random_tokens(2 * steps, words, &mut random);
                let tokens = tokens_of(device, TOKEN_TYPES[i], &[2, steps], &ids)?;
                let table = |rows, random: &mut Random| {
                    Layout::Dense.random(device, dtype, [rows, cols + 3], (-2.0, 2.0), random)
                };
                let (wide_wte, wide_wpe) = (table(words, &mut random)?, table(steps + 2, &mut random)?);
                let narrow = |wide: &Tensor| wide.narrow(1, 0, cols);
                let dense = |wide: &Tensor| wide.reshape(&[wide.len()])?.narrow(0, 0, wide.shape()[0] * cols)?.reshape(&[wide.shape()[0], cols]);
                for (how, wte, wpe) in [
                    ("dense", dense(&wide_wte)?, dense(&wide_wpe)?),
                    ("apart", narrow(&wide_wte)?, dense(&wide_wpe)?),
                    ("both apart", narrow(&wide_wte)?, narrow(&wide_wpe)?),
                ] {
                    let what = format!("{cols} columns {dtype}, {how}");
                    check(&tokens, &wte, None, &what)?;
                    for offset in 0..3 {
                        let positions = Some(Positions { offset, ..Positions::new(&wpe) });
                        check(&tokens, &wte, positions, &format!("{what}, from position {offset}"))?;
                    }
                }
            }
        }
        Ok(())
    }
}

on_each_device! {
    fn tables_and_tokens_are_read_as_they_lie(device: &Device) -> Result<()> {
        let mut random = Random::new(301);
        let [sequences, steps, words] = [3, 4, 6];
        let ids = random_tokens(2 * steps * 2 * sequences, words, &mut random);
        for (i, layout) in Layout::ALL.into_iter().enumerate() {
            for (j, dtype) in DTYPES.into_iter().enumerate() {
                let wide = tokens_of(device, TOKEN_TYPES[(i + j) % 3], &[2 * steps, 2 * sequences], &ids)?;
                // Every second token of a turned matrix.
                let tokens = wide.step(0, 2)?.step(1, 2)?.transpose(0, 1)?;
                let cols = if i % 2 == 0 { 24 } else { 17 };
                let other = Layout::ALL[(i + j) % Layout::ALL.len()];
                let wte = layout.random(device, dtype, [words, cols], (-2.0, 2.0), &mut random)?;
                let wpe = other.random(device, dtype, [steps, cols], (-2.0, 2.0), &mut random)?;
                let what = format!("{layout:?} and {other:?} {dtype} x{cols}");
                check(&tokens, &wte, None, &what)?;
                check(&tokens, &wte, Some(Positions::new(&wpe)), &what)?;
            }
        }
        Ok(())
    }
}

on_each_device! {
    fn without_positions_bits_are_copied(device: &Device) -> Result<()> {
        for cols in [8, 5] {
            let bits: Vec<u8> = (0..3 * cols * 2).flat_map(|i| [0x7f, 0xff - i as u8]).collect();
            let wte = Tensor::from_bytes(device, DType::BF16, &[6, cols], &bits)?;
            let tokens = Tensor::from_slice(device, &[6], &[5i32, 4, 3, 2, 1, 0])?;
            let got = ops::embedding(&tokens, &wte, None)?.to_bytes()?;
            let want: Vec<u8> = bits.chunks(2 * cols).rev().flatten().copied().collect();
            assert_same(&got, &want, format!("{cols} columns of NaN"));
        }
        Ok(())
    }
}

on_each_device! {
    /// Tokens that the launch ahead writes, in memory that held others: a lookup that starts early may look at those, but use none. Of as many
    /// blocks as do so.
    fn tokens_may_come_from_the_launch_ahead(device: &Device) -> Result<()> {
        let ([sequences, steps, cols, words], rounds) = match device.is_cuda() {
            true => ([8, 1024, 768, 5000], 12),
            false => ([2, 5, 8, 7], 2),
        };
        let mut random = Random::new(451);
        let rows = random.floats(words * cols, -1.0, 1.0);
        let wte = Tensor::from_slice(device, &[words, cols], &rows)?;
        for token_type in TOKEN_TYPES {
            let mut ids = || random_tokens(sequences * steps, words, &mut random);
            let of_rounds: Vec<Vec<i64>> = (0..rounds).map(|_| ids()).collect();
            let sources = of_rounds.iter().map(|ids| tokens_of(device, token_type, &[steps, sequences], ids));
            let sources = sources.collect::<Result<Vec<Tensor>>>()?;
            let tokens = tokens_of(device, token_type, &[sequences, steps], &ids())?;
            let mut results = Vec::new();
            for source in &sources {
                ops::permute_into(source, &[1, 0], &tokens)?;
                results.push(ops::embedding(&tokens, &wte, None)?);
            }
            for (round, (ids, y)) in of_rounds.iter().zip(results).enumerate() {
                let y = y.to_vec::<f32>()?;
                for (number, got) in y.chunks(cols).enumerate() {
                    let (sequence, step) = (number / steps, number % steps);
                    let row = ids[step * sequences + sequence] as usize;
                    let want = &rows[row * cols..][..cols];
                    assert!(got == want, "{token_type}, round {round}: token {number} is not row {row}");
                }
            }
        }
        Ok(())
    }
}

on_each_device! {
    fn outputs_are_filled_wherever_they_lie(device: &Device) -> Result<()> {
        let mut random = Random::new(302);
        let (tokens, cols) = (Tensor::from_slice(device, &[2, 2], &[1u32, 0, 2, 1])?, 16);
        for dtype in DTYPES {
            let wte = Layout::Dense.random(device, dtype, [3, cols], (-2.0, 2.0), &mut random)?;
            for by in [0, 1] {
                let room = poisoned(device, dtype, &[by + 4 * cols + 1], POISON)?;
                let y = room.narrow(0, by, 4 * cols)?.reshape(&[2, 2, cols])?;
                ops::embedding_into(&tokens, &wte, None, &y)?;
                assert_same(&y.to_f64()?, &reference::embedding(&tokens, &wte, None)?, format!("{dtype} {by}"));
                let edge = room.narrow(0, by + 4 * cols, 1)?.to_bytes()?;
                assert!(edge.iter().all(|&byte| byte == POISON), "{dtype}: written beyond the end");
            }
        }
        Ok(())
    }
}

on_each_device! {
    fn tokens_without_a_row_are_named_and_not_read(device: &Device) -> Result<()> {
        let device = &apart(device)?;
        let cases: [(DType, &[i64], &str); 6] = [
            (DType::I32, &[0, 4, 5, -1], "embedding: `tokens[2]` must be in 0..=4, got 5"),
            (DType::I32, &[0, -7, 5, 1], "embedding: `tokens[1]` must be in 0..=4, got -7"),
            (DType::U32, &[4_294_967_295, 0, 0, 0], "embedding: `tokens[0]` must be in 0..=4, got 4294967295"),
            (DType::I64, &[1, 2, 3, i64::MIN], "embedding: `tokens[3]` must be in 0..=4, got -4294967296 or less"),
            (DType::I64, &[1, 2, 1 << 32, 9], "embedding: `tokens[2]` must be in 0..=4, got 4294967295 or more"),
            (DType::I64, &[1, 2, 3, 5], "embedding: `tokens[3]` must be in 0..=4, got 5"),
        ];
        for (token_type, ids, want) in cases {
            for cols in [0, 3, 67, 16] {
                let tokens = tokens_of(device, token_type, &[2, 2], ids)?;
                let wte = Tensor::zeros(device, DType::F32, &[5, cols])?;
                let error = ops::embedding(&tokens, &wte, None).and_then(|_| device.check_values()).unwrap_err();
                match cols {
                    0 => assert!(matches!(error, Error::Value { arg: "tokens", .. }), "{error}"),
                    _ => assert_eq!(error.to_string(), want, "{token_type} {cols} columns"),
                }
            }
        }
        let tokens = Tensor::from_slice(device, &[1], &[0i32])?;
        for cols in [0, 4] {
            let nothing = Tensor::zeros(device, DType::F32, &[0, cols])?;
            let error = ops::embedding(&tokens, &nothing, None).and_then(|_| device.check_values()).unwrap_err();
            assert_eq!(error.to_string(), "embedding: `tokens[0]` must be in 0..0, which is empty, got 0");
        }
        Ok(())
    }
}

on_each_device! {
    fn nothing_in_nothing_out(device: &Device) -> Result<()> {
        for (tokens, table) in [([0, 3], [2, 4]), ([3, 0], [2, 4]), ([0, 0], [0, 4]), ([2, 3], [2, 0])] {
            let tokens = Tensor::zeros(device, DType::I32, &tokens)?;
            let wte = Tensor::zeros(device, DType::F16, &table)?;
            let wpe = Tensor::zeros(device, DType::F16, &[3, table[1]])?;
            let y = ops::embedding(&tokens, &wte, Some(Positions::new(&wpe)))?;
            assert_eq!(y.shape(), [tokens.shape(), &table[1..]].concat());
            assert!(y.to_f64()?.is_empty());
        }
        Ok(())
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let desc = |dtype, shape: &[usize]| Desc::new(&device, dtype, shape).unwrap();
    let (tokens, wte) = (desc(DType::I32, &[2, 5]), desc(DType::F32, &[9, 4]));
    let message = |tokens: &Desc, wte: &Desc, wpe: Option<(&Desc, usize)>| {
        let positions = wpe.map(|(wpe, offset)| Positions { offset, ..Positions::new(wpe) });
        ops::embedding_shape(tokens, wte, positions).unwrap_err().to_string()
    };
    let wpe = desc(DType::F32, &[6, 4]);
    for (got, want) in [
        (
            message(&desc(DType::U8, &[5]), &wte, None),
            "embedding: `tokens` must have dtype u32, i32 or i64, got u8",
        ),
        (
            message(&desc(DType::I32, &[1, 2, 3]), &wte, None),
            "embedding: `tokens` must have shape [T] or [B, T], got [1, 2, 3]",
        ),
        (
            message(&tokens, &desc(DType::F64, &[9, 4]), None),
            "embedding: `wte` must have dtype f32, f16 or bf16, got f64",
        ),
        (message(&tokens, &desc(DType::F32, &[9]), None), "embedding: `wte` must have shape [V, C], got [9]"),
        (
            message(&tokens, &wte, Some((&desc(DType::F16, &[6, 4]), 0))),
            "embedding: `wpe` must have dtype f32, got f16",
        ),
        (
            message(&tokens, &wte, Some((&desc(DType::F32, &[6, 5]), 0))),
            "embedding: `wpe` must have shape [P, 4], got [6, 5]",
        ),
        (message(&tokens, &wte, Some((&wpe, 2))), "embedding: `positions[4]` must be in 0..=5, got 6"),
        (
            message(&desc(DType::I32, &[1 << 31]), &wte, None),
            "embedding: elements of `tokens` must be at most 2147483647, got 2147483648",
        ),
    ] {
        assert_eq!(got, want);
    }
    let fits =
        ops::embedding_shape(&tokens, &wte, Some(Positions { offset: 1, ..Positions::new(&wpe) })).unwrap();
    assert_eq!((fits.shape(), fits.dtype()), (&[2, 5, 4][..], DType::F32));
}

#[test]
fn the_result_must_lie_apart_from_the_tables() {
    let device = Device::cpu();
    let tokens = Tensor::from_slice(&device, &[2], &[1u32, 0]).unwrap();
    let wte = Tensor::zeros(&device, DType::F32, &[2, 4]).unwrap();
    let error = ops::embedding_into(&tokens, &wte, None, &wte).unwrap_err().to_string();
    assert_eq!(error, "embedding: `y` must have memory apart from the inputs', got strides [4, 1]");
}

/// The sum of a row of positions is rounded once: f16 sums of numbers whose f32 sum is no f16.
#[test]
fn sums_are_rounded_once() {
    let device = Device::cpu();
    let tokens = Tensor::from_slice(&device, &[1], &[0u32]).unwrap();
    for dtype in DTYPES {
        let [wte, wpe] = [1.0f32, 1.0 / 512.0 + 1.0 / 4096.0]
            .map(|value| warpwright_tests::floats(&device, dtype, &[1, 9], &[value; 9]).unwrap());
        let y = ops::embedding(&tokens, &wte, Some(Positions::new(&wpe))).unwrap();
        let exact = wte.to_f64().unwrap()[0] + wpe.to_f64().unwrap()[0];
        assert_eq!(y.to_f64().unwrap(), [round(dtype, exact); 9], "{dtype}");
    }
}
