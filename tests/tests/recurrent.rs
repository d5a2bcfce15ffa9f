//! `gru` and `lstm`, forward, against float64.

#[allow(dead_code)]
#[path = "../src/recurrent.rs"]
mod recurrent;

use recurrent::{KINDS, Network, Shape, tolerance};
use warpwright::ops::recurrent::Choice;
use warpwright::ops::{
    self, Recurred, Recurrent, RecurrentKind, RecurrentWeights, gru_explain, lstm_explain,
};
use warpwright::{DType, Device, Error, Result, Tensor, reference};
use warpwright_tests::{DTYPES, apart, assert_same, assert_within, on_each_device};

fn forward(kind: RecurrentKind, x: &Tensor, parameters: &Recurrent) -> Result<Recurred> {
    match kind {
        RecurrentKind::Gru => ops::gru(x, parameters),
        RecurrentKind::Lstm => ops::lstm(x, parameters),
    }
}

/// In the way that the plan takes, or the given one; on a GPU twice, and the same bits.
fn check(network: &Network, choice: Option<Choice>) -> Result<()> {
    let shape = network.shape;
    let weights = network.weights();
    let parameters = Recurrent { choice, ..network.parameters(&weights) };
    let want = reference::recurrent(shape.kind, &network.x, &parameters)?;
    let got = forward(shape.kind, &network.x, &parameters)?;
    // The checker's order is the same each time.
    let again = if network.x.device().is_cuda() {
        forward(shape.kind, &network.x, &parameters)?
    } else {
        got.clone()
    };
    let close = |name: &str, got: &Tensor, again: &Tensor, want: &[f64]| -> Result<()> {
        let what = format!("{name} of {shape:?} {choice:?}");
        assert_within(&got.to_f64()?, want, |_| tolerance(shape.dtype), &what);
        assert_same(&again.to_bytes()?, &got.to_bytes()?, &what);
        Ok(())
    };
    close("y", &got.y, &again.y, &want.y)?;
    close("h_n", &got.h_n, &again.h_n, &want.h_n)?;
    assert_eq!(got.c_n.is_some(), shape.kind == RecurrentKind::Lstm);
    if let (Some(got), Some(again), Some(want)) = (&got.c_n, &again.c_n, &want.c_n) {
        close("c_n", got, again, want)?;
    }
    for (i, want) in want.inner.iter().enumerate() {
        close("inner", &got.inner[i], &again.inner[i], want)?;
    }
    Ok(())
}

/// In the given way three times, against a step at a time: of more units than float64 has time for.
fn check_by_steps(device: &Device, shape: Shape, choice: Choice) -> Result<()> {
    let network = Network::random(device, shape, 11)?;
    let weights = network.weights();
    let of = |choice| {
        let parameters = Recurrent { choice: Some(choice), ..network.parameters(&weights) };
        forward(shape.kind, &network.x, &parameters)?.y.to_f64()
    };
    let want = of(Choice::Steps)?;
    for turn in 0..3 {
        assert_within(&of(choice)?, &want, |_| tolerance(shape.dtype), format!("{shape:?} {turn}"));
    }
    Ok(())
}

/// Whether weights can be streamed: on Hopper, and under the checker.
fn has_warpgroups(device: &Device) -> bool {
    device.info().is_none_or(|info| info.arch == (9, 0))
}

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// Each instance: slices of columns of one chunk to eight.
fn weights_are_held(device: &Device, kind: RecurrentKind, units: &[usize]) -> Result<()> {
    for (i, &hidden) in units.iter().enumerate() {
        for dtype in [HALVES[i % 2], DType::F32] {
            if dtype == DType::F32 && hidden > 1024 {
                continue;
            }
            let shape = Shape::new(kind, dtype, [2, 3, 2, hidden]);
            check(&Network::random(device, shape, i as u64)?, Some(Choice::Persistent))?;
        }
    }
    Ok(())
}

on_each_device! {
    /// Units that fill blocks and that do not, rows of packs and of words, one group of the batch and several.
    fn all_steps_in_one_launch_are_right(device: &Device) -> Result<()> {
        let extents = [[3, 5, 4, 32], [4, 9, 7, 20], [1, 1, 3, 2], [2, 17, 5, 46], [3, 8, 16, 48]];
        for kind in KINDS {
            for (i, extents) in extents.into_iter().enumerate() {
                for dtype in [HALVES[i % 2], DType::F32] {
                    let shape = Shape::new(kind, dtype, extents);
                    let shape = Shape { bias: i % 3 != 1, initial: i % 3 != 2, ..shape };
                    check(&Network::random(device, shape, i as u64)?, Some(Choice::Persistent))?;
                }
            }
        }
        Ok(())
    }

    /// With the input's product in the same launch: columns and units that fill chunks and that do not, of several warps and blocks, more
    /// steps than slots, x and y with the batch in front, and weights that are slices.
    fn the_inputs_product_goes_along(device: &Device) -> Result<()> {
        let all = [[3, 5, 8, 32], [4, 9, 40, 20], [1, 1, 16, 2], [2, 17, 264, 46], [3, 8, 136, 300], [262, 3, 8, 18]];
        for (i, (kind, extents)) in KINDS.into_iter().flat_map(|kind| all.map(|of| (kind, of))).enumerate() {
            let shape = Shape::new(kind, HALVES[i % 2], extents);
            let (bias, initial) = (i % 3 != 1, i % 4 != 2);
            let shape = Shape { bias, initial, batch_first: i % 2 == 0, lengths: i % 3 != 0, ..shape };
            check(&Network::random(device, shape, i as u64)?, Some(Choice::Fused))?;
        }
        for (i, kind) in KINDS.into_iter().enumerate() {
            let shape = Shape::new(kind, HALVES[i], [5, 4, 24, 16]);
            let shape = Shape { layers: 3, bidirectional: true, lengths: true, ..shape };
            check(&Network::random(device, shape, 5)?, Some(Choice::Fused))?;
        }
        Ok(())
    }

    /// x begins between packs: contiguous, and as a slice of rows of whole packs.
    fn x_may_begin_between_packs(device: &Device) -> Result<()> {
        let [steps, batch, input, hidden] = [3, 5, 8, 20];
        let network = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F16, [steps, batch, input, hidden]), 6)?;
        let weights = network.weights();
        let parameters = Recurrent { choice: Some(Choice::Fused), ..network.parameters(&weights) };
        let want = ops::gru(&network.x, &parameters)?.y.to_bytes()?;
        let x = network.x.to_vec::<half::f16>()?;
        for (columns, first) in [(input, 3), (input + 8, 5)] {
            // Rows of so many columns, behind numbers that are not of x.
            let mut padded = vec![half::f16::ONE; first];
            for row in x.chunks(input) {
                padded.extend_from_slice(row);
                padded.resize(padded.len() + columns - input, half::f16::ONE);
            }
            let all = Tensor::from_slice(device, &[padded.len()], &padded)?;
            let rows = all.narrow(0, first, steps * batch * columns)?.reshape(&[steps, batch, columns])?;
            let x = rows.narrow(2, 0, input)?;
            assert_same(&ops::gru(&x, &parameters)?.y.to_bytes()?, &want, format!("rows of {columns}"));
        }
        Ok(())
    }

    /// Numbers that are not finite in columns of x stay in their rows, and where columns end in the middle of a chunk no others are read.
    fn what_is_not_finite_stays_in_its_row(device: &Device) -> Result<()> {
        let [steps, batch, input, hidden] = [2, 9, 8, 20];
        let network = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F16, [steps, batch, input, hidden]), 3)?;
        let weights = network.weights();
        let parameters = Recurrent { choice: Some(Choice::Fused), ..network.parameters(&weights) };
        let want = ops::gru(&network.x, &parameters)?.y.to_vec::<half::f16>()?;
        let mut x = network.x.to_vec::<half::f16>()?;
        x[3 * input] = half::f16::INFINITY;
        x[5 * input + 2] = half::f16::NAN;
        let got = ops::gru(&Tensor::from_slice(device, &[steps, batch, input], &x)?, &parameters)?.y.to_vec::<half::f16>()?;
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let row = i / hidden % batch;
            assert!(row == 3 || row == 5 || got == want, "{i}: {got}, {want}");
        }
        assert!(got[5 * hidden..6 * hidden].iter().all(|h| h.is_nan()));
        // An infinite gate is a gate that is open or shut.
        assert!(got[3 * hidden..4 * hidden].iter().all(|h| h.to_f32().abs() <= 1.0));
        Ok(())
    }

    /// Of f32 an odd number of units, too, and numbers far from 1: f16, in whose parts they are multiplied, ends at 65504 and
    /// begins to lose bits at 2^-14. Beside rows with numbers that are not finite nothing changes.
    fn floats_of_any_size_are_multiplied(device: &Device) -> Result<()> {
        let ways: &[Choice] = match has_warpgroups(device) {
            true => &[Choice::Persistent, Choice::Streamed],
            false => &[Choice::Persistent],
        };
        for (kind, way) in KINDS.into_iter().flat_map(|kind| ways.iter().map(move |way| (kind, *way))) {
            for (i, (extents, size)) in [
                ([3, 5, 4, 33], 1.0), ([2, 9, 3, 1], 1.0), ([3, 3, 2, 21], 1e7), ([2, 2, 2, 17], 1e-9),
            ].into_iter().enumerate() {
                let network = Network::random(device, Shape::new(kind, DType::F32, extents), i as u64)?;
                let scaled = |tensor: &Tensor, by: f32| {
                    let values: Vec<f32> = tensor.to_f64()?.into_iter().map(|x| x as f32 * by).collect();
                    Tensor::from_slice(device, tensor.shape(), &values)
                };
                let weights = network.weights();
                let h0 = scaled(network.h0.as_ref().unwrap(), size)?;
                let w_hh = scaled(weights[0].w_hh, 1.0 / size)?;
                let layers = [RecurrentWeights { w_hh: &w_hh, ..weights[0] }];
                let choice = Some(way);
                let parameters = Recurrent { h0: Some(&h0), choice, ..network.parameters(&layers) };
                let want = reference::recurrent(kind, &network.x, &parameters)?;
                let got = forward(kind, &network.x, &parameters)?.y.to_f64()?;
                let most = want.y.iter().fold(1.0, |most: f64, y| most.max(y.abs()));
                assert_within(&got, &want.y, |_| 1e-5 * most, format!("{kind} {way:?} {extents:?} {size}"));

                let mut values: Vec<f32> = h0.to_f64()?.into_iter().map(|x| x as f32).collect();
                values[0] = f32::INFINITY;
                let h0 = Tensor::from_slice(device, h0.shape(), &values)?;
                let dirty = forward(kind, &network.x, &Recurrent { h0: Some(&h0), ..parameters })?.y.to_f64()?;
                let [_, batch, _, hidden] = extents;
                for (at, (got, dirty)) in got.chunks(hidden).zip(dirty.chunks(hidden)).enumerate() {
                    if at % batch != 0 {
                        assert_same(dirty, got, format!("{kind} row {at}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Units that fill warps and that do not, an odd number of them, few rows and more than the multiprocessors take at once.
    fn blocks_with_all_weights_are_right(device: &Device) -> Result<()> {
        let extents = [
            [3, 5, 4, 32], [6, 9, 7, 19], [1, 1, 3, 1], [2, 3, 5, 64], [4, 3, 16, 65], [5, 4, 2, 128],
            [2, 301, 3, 33], [3, 290, 2, 70],
        ];
        for kind in KINDS {
            for (i, extents) in extents.into_iter().enumerate() {
                for dtype in [HALVES[i % 2], DType::F32] {
                    let shape = Shape::new(kind, dtype, extents);
                    let shape = Shape { bias: i % 3 != 1, initial: i % 3 != 2, ..shape };
                    check(&Network::random(device, shape, i as u64)?, Some(Choice::Block))?;
                }
            }
        }
        Ok(())
    }

    fn gru_weights_of_every_size_are_held(device: &Device) -> Result<()> {
        weights_are_held(device, RecurrentKind::Gru, &[256, 290, 520, 1040])
    }

    fn lstm_weights_of_every_size_are_held(device: &Device) -> Result<()> {
        weights_are_held(device, RecurrentKind::Lstm, &[272, 514, 1030])
    }

    /// Sub-batches enough for that.
    fn h_may_come_ahead_of_its_products(device: &Device) -> Result<()> {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let shape = Shape { lengths: true, ..Shape::new(kind, HALVES[i], [3, 33, 2, 1058]) };
            check(&Network::random(device, shape, i as u64)?, Some(Choice::Persistent))?;
        }
        Ok(())
    }

    /// As many units as there are in use, and more steps than slots, of which the checker would take hours.
    fn many_units_and_steps_are_right(device: &Device) -> Result<()> {
        if !device.is_cuda() {
            return Ok(());
        }
        for (i, kind) in KINDS.into_iter().enumerate() {
            for [steps, batch, hidden] in [[140, 64, 2048], [70, 16, 2048], [300, 64, 1024], [70, 100, 1000]] {
                check_by_steps(device, Shape::new(kind, HALVES[i], [steps, batch, 32, hidden]), Choice::Persistent)?;
            }
        }
        Ok(())
    }

    /// As many as there are in use where the input's product goes along, of which the checker would take an hour.
    fn many_units_with_the_inputs_product_are_right(device: &Device) -> Result<()> {
        if !device.is_cuda() {
            return Ok(());
        }
        for (i, kind) in KINDS.into_iter().enumerate() {
            for extents in [[128, 32, 512, 512], [300, 32, 512, 510], [600, 16, 256, 256], [50, 25, 488, 400]] {
                check_by_steps(device, Shape::new(kind, HALVES[i], extents), Choice::Fused)?;
            }
        }
        Ok(())
    }

    /// More steps than slots: these are poisoned and used again.
    fn slots_are_used_again(device: &Device) -> Result<()> {
        for (kind, dtype, steps) in [
            (RecurrentKind::Gru, DType::F16, 300), (RecurrentKind::Lstm, DType::BF16, 260), (RecurrentKind::Gru, DType::F32, 270),
        ] {
            let shape = Shape { lengths: true, ..Shape::new(kind, dtype, [steps, 3, 2, 18]) };
            let network = Network::random(device, shape, 1)?;
            let weights = network.weights();
            let parameters = Recurrent { choice: Some(Choice::Persistent), ..network.parameters(&weights) };
            let plan = match kind {
                RecurrentKind::Gru => gru_explain(&network.x, &parameters)?,
                RecurrentKind::Lstm => lstm_explain(&network.x, &parameters)?,
            };
            assert!(plan.slots < steps, "{plan}");
            check(&network, Some(Choice::Persistent))?;
        }
        Ok(())
    }

    /// Weights that come from memory for each step, where there are Hopper's instructions: units that fill chunks of terms and that do not,
    /// more rows than a block has, more terms than one takes.
    fn weights_are_streamed(device: &Device) -> Result<()> {
        if !has_warpgroups(device) {
            return Ok(());
        }
        let extents = [[3, 5, 4, 64], [4, 9, 7, 23], [1, 1, 3, 1], [2, 66, 5, 46], [3, 2, 2, 198]];
        for kind in KINDS {
            for (i, extents) in extents.into_iter().enumerate() {
                for dtype in [HALVES[i % 2], DType::F32] {
                    let shape = Shape::new(kind, dtype, extents);
                    let shape = Shape { bias: i % 3 != 1, initial: i % 3 != 2, lengths: i > 2, ..shape };
                    check(&Network::random(device, shape, i as u64)?, Some(Choice::Streamed))?;
                }
            }
        }
        // More terms than a block takes.
        let shape = Shape::new(RecurrentKind::Gru, DType::F32, [2, 3, 2, 1100]);
        check(&Network::random(device, shape, 9)?, Some(Choice::Streamed))
    }

    /// As many steps and units as there are in use, of which the checker would take hours: launches that overlap, and memory that they share,
    /// against a step at a time.
    fn streamed_steps_that_overlap_are_right(device: &Device) -> Result<()> {
        if !device.is_cuda() || !has_warpgroups(device) {
            return Ok(());
        }
        for (kind, dtype, hidden) in [
            (RecurrentKind::Gru, DType::F32, 2048), (RecurrentKind::Lstm, DType::F32, 1500), (RecurrentKind::Gru, DType::F16, 2304),
        ] {
            let network = Network::random(device, Shape::new(kind, dtype, [40, 64, 32, hidden]), 11)?;
            let weights = network.weights();
            let of = |choice| {
                let parameters = Recurrent { choice: Some(choice), ..network.parameters(&weights) };
                forward(kind, &network.x, &parameters)?.y.to_f64()
            };
            let want = of(Choice::Steps)?;
            for turn in 0..3 {
                assert_within(&of(Choice::Streamed)?, &want, |_| tolerance(dtype), format!("{kind} {dtype} {turn}"));
            }
        }
        Ok(())
    }

    /// On request, for f32 alone.
    fn products_of_all_steps_may_be_rounded(device: &Device) -> Result<()> {
        for kind in KINDS {
            let network = Network::random(device, Shape::new(kind, DType::F32, [3, 5, 40, 24]), 8)?;
            let weights = network.weights();
            let parameters = Recurrent { tf32: true, ..network.parameters(&weights) };
            let want = reference::recurrent(kind, &network.x, &parameters)?;
            let got = forward(kind, &network.x, &parameters)?;
            assert_within(&got.y.to_f64()?, &want.y, |_| 2e-3, format!("y of {kind}"));
            let half = Network::random(device, Shape::new(kind, DType::F16, [3, 5, 40, 24]), 8)?;
            let weights = half.weights();
            let parameters = Recurrent { tf32: true, ..half.parameters(&weights) };
            let refused = forward(kind, &half.x, &parameters).map(drop).expect_err("f16");
            assert!(matches!(refused, Error::Parameter { arg: "tf32", .. }), "{refused}");
        }
        Ok(())
    }

    fn a_step_at_a_time_is_right(device: &Device) -> Result<()> {
        for kind in KINDS {
            for i in 0..DTYPES.len() {
                let extents = [[3, 5, 4, 32], [4, 3, 7, 21], [2, 9, 1, 1]][i];
                for turn in 0..3 {
                    let shape = Shape::new(kind, DTYPES[(i + turn) % 3], extents);
                    let shape = Shape { bias: i != 1, initial: i != 2, ..shape };
                    check(&Network::random(device, shape, i as u64)?, Some(Choice::Steps))?;
                }
            }
        }
        Ok(())
    }

    /// Several layers, both directions, rows of different lengths, the batch in front: by either way.
    fn layers_directions_and_lengths_go_together(device: &Device) -> Result<()> {
        for (i, kind) in KINDS.into_iter().enumerate() {
            for turn in 0..6 {
                let shape = Shape {
                    layers: 1 + turn % 3,
                    bidirectional: turn != 1,
                    batch_first: turn % 2 == 0,
                    lengths: turn != 2,
                    bias: turn != 3,
                    initial: turn != 4,
                    ..Shape::new(kind, DTYPES[(turn + i) % 3], [5, 4, 6, 18])
                };
                let network = Network::random(device, shape, turn as u64)?;
                check(&network, Some(Choice::Block))?;
                check(&network, Some(Choice::Steps))?;
                check(&network, Some(Choice::Persistent))?;
                if has_warpgroups(device) {
                    check(&network, Some(Choice::Streamed))?;
                }
            }
        }
        Ok(())
    }

    /// Views of larger tensors, for every operand.
    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        for (kind, dtype) in [(RecurrentKind::Gru, DType::BF16), (RecurrentKind::Lstm, DType::F32)] {
            let shape = Shape::new(kind, dtype, [4, 3, 6, 16]);
            let wide = Network::random(device, Shape { steps: 8, hidden: 32, input: 12, ..shape }, 2)?;
            let weights = wide.weights();
            let rows = kind.gates() * 16;
            let (w_ih, w_hh) = (weights[0].w_ih.narrow(0, 3, rows)?.step(1, 2)?, weights[0].w_hh.step(1, 2)?.narrow(0, 1, rows)?);
            let (b_ih, b_hh) = (weights[0].b_ih.unwrap().narrow(0, 5, rows)?, weights[0].b_hh.unwrap().step(0, 2)?);
            let x = wide.x.step(0, 2)?.step(2, 2)?;
            let h0 = wide.h0.as_ref().unwrap().narrow(1, 7, 16)?;
            let of = [RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: Some(&b_ih), b_hh: Some(&b_hh) }];
            let parameters = Recurrent { h0: Some(&h0), ..Recurrent::new(&of) };
            let want = reference::recurrent(kind, &x, &parameters)?;
            let got = forward(kind, &x, &parameters)?;
            assert_within(&got.y.to_f64()?, &want.y, |_| tolerance(dtype), "y");
        }
        Ok(())
    }

    fn what_is_not_there_takes_no_steps(device: &Device) -> Result<()> {
        for kind in KINDS {
            for dtype in [DType::F16, DType::F32] {
                for extents in [[0, 3, 2, 4], [3, 0, 2, 4], [2, 3, 0, 4], [2, 3, 4, 0]] {
                    check(&Network::random(device, Shape::new(kind, dtype, extents), 3)?, None)?;
                }
            }
        }
        Ok(())
    }

    /// Rows beside one with NaN, or with a length of 0, do not change by a bit.
    fn rows_do_not_touch_one_another(device: &Device) -> Result<()> {
        for kind in KINDS {
            let network = Network::random(device, Shape::new(kind, DType::F16, [4, 6, 3, 24]), 4)?;
            let weights = network.weights();
            let clean = forward(kind, &network.x, &network.parameters(&weights))?.y.to_f64()?;
            let mut values: Vec<f32> = network.x.to_f64()?.into_iter().map(|x| x as f32).collect();
            values[2 * 3] = f32::NAN; // time 0, row 2
            let x = warpwright_tests::floats(device, DType::F16, &[4, 6, 3], &values)?;
            let dirty = forward(kind, &x, &network.parameters(&weights))?.y.to_f64()?;
            for (at, (clean, dirty)) in clean.chunks(24).zip(dirty.chunks(24)).enumerate() {
                match at % 6 {
                    2 => assert!(dirty.iter().all(|y| y.is_nan()), "row {at}"),
                    _ => assert_same(dirty, clean, format!("row {at}")),
                }
            }
        }
        Ok(())
    }

    fn a_length_that_is_none_is_named(device: &Device) -> Result<()> {
        let device = &apart(device)?;
        for (dtype, bad) in [(DType::F32, 5), (DType::F16, -1)] {
            let network = Network::random(device, Shape::new(RecurrentKind::Gru, dtype, [4, 3, 2, 4]), 5)?;
            let weights = network.weights();
            let lengths = Tensor::from_slice(device, &[3], &[4, 0, bad])?;
            let parameters = Recurrent { lengths: Some(&lengths), ..network.parameters(&weights) };
            let done = ops::gru(&network.x, &parameters).and_then(|done| done.y.to_f64());
            let want = format!("gru: `lengths[2]` must be in 0..=4, got {bad}");
            assert_eq!(done.expect_err("no length").to_string(), want);
        }
        Ok(())
    }

    fn what_does_not_fit_is_refused(device: &Device) -> Result<()> {
        let network = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F32, [4, 3, 2, 4]), 6)?;
        let weights = network.weights();
        let good = network.parameters(&weights);
        let of = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let refusal = |x: &Tensor, parameters: &Recurrent| {
            ops::gru_shape(x, parameters).map(drop).expect_err("refused")
        };
        let lstm = |parameters: &Recurrent| ops::lstm_shape(&network.x, parameters).map(drop).expect_err("refused");
        let x = &network.x;
        assert!(matches!(refusal(&of(DType::I32, &[4, 3, 2])?, &good), Error::DType { arg: "x", .. }));
        assert!(matches!(refusal(&of(DType::F32, &[4, 3])?, &good), Error::Shape { arg: "x", .. }));
        assert!(matches!(refusal(&of(DType::F32, &[4, 3, 3])?, &good), Error::Shape { arg: "w_ih", .. }));
        assert!(matches!(lstm(&good), Error::Shape { arg: "w_hh", .. }));
        let none = Recurrent { layers: &[], ..good };
        assert!(matches!(refusal(x, &none), Error::Parameter { arg: "layers", .. }));
        assert!(matches!(refusal(x, &Recurrent { bidirectional: true, ..good }), Error::Parameter { arg: "layers", .. }));
        let (h0, lengths) = (of(DType::F32, &[3, 5])?, of(DType::I64, &[3])?);
        assert!(matches!(refusal(x, &Recurrent { h0: Some(&h0), ..good }), Error::Shape { arg: "h0", .. }));
        assert!(matches!(refusal(x, &Recurrent { lengths: Some(&lengths), ..good }), Error::DType { arg: "lengths", .. }));
        let c0 = of(DType::F32, &[3, 4])?;
        assert!(matches!(refusal(x, &Recurrent { c0: Some(&c0), ..good }), Error::Parameter { arg: "c0", .. }));
        let half = of(DType::F16, &[12])?;
        let mixed = [RecurrentWeights { b_ih: Some(&half), ..weights[0] }];
        assert!(matches!(refusal(x, &Recurrent { layers: &mixed, ..good }), Error::DType { arg: "b_ih", .. }));
        // Of bytes, of which there can be none of the most columns.
        let most = of(DType::U8, &[0, isize::MAX as usize])?;
        let beyond = [RecurrentWeights { w_hh: &most, ..weights[0] }];
        assert!(matches!(refusal(x, &Recurrent { layers: &beyond, ..good }), Error::Shape { arg: "w_hh", .. }));
        // The wrong one of a further layer's.
        let (w_ih, w_hh) = (of(DType::F32, &[12, 4])?, of(DType::F32, &[15, 5])?);
        let further = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: None, b_hh: None };
        let error = refusal(x, &Recurrent { layers: &[weights[0], further], ..good }).to_string();
        assert_eq!(error, "gru: `w_hh_l1` must have shape [12, 4], as that of the first layer, got [15, 5]");
        let odd = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F16, [2, 1, 2, 3]), 6)?;
        let weights = odd.weights();
        let parameters = Recurrent { choice: Some(Choice::Persistent), ..odd.parameters(&weights) };
        let want = "gru: `choice` must be one that can serve: an odd number of units has rows that start between words, got Persistent";
        assert_eq!(ops::gru(&odd.x, &parameters).map(drop).expect_err("odd").to_string(), want);
        Ok(())
    }
}
