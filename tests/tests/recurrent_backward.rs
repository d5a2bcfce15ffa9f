//! The gradients of `gru` and `lstm` against float64, whose own are checked by finite differences beside them.

#[allow(dead_code)]
#[path = "../src/recurrent.rs"]
mod recurrent;

use recurrent::{KINDS, Network, Shape, gradient_tolerance};
use warpwright::ops::recurrent::Choice;
use warpwright::ops::{self, Recurred, Recurrent, RecurrentGradients, RecurrentKind, Upstream};
use warpwright::{DType, Device, Error, Result, Tensor, reference};
use warpwright_tests::{DTYPES, assert_same, assert_within, on_each_device};

fn run(
    kind: RecurrentKind,
    x: &Tensor,
    parameters: &Recurrent,
    upstream: &Upstream,
) -> Result<RecurrentGradients> {
    let of = |forward: Result<Recurred>| -> Result<RecurrentGradients> {
        let forward = forward?;
        match kind {
            RecurrentKind::Gru => ops::gru_backward(x, parameters, &forward, upstream),
            RecurrentKind::Lstm => ops::lstm_backward(x, parameters, &forward, upstream),
        }
    };
    match kind {
        RecurrentKind::Gru => of(ops::gru(x, parameters)),
        RecurrentKind::Lstm => of(ops::lstm(x, parameters)),
    }
}

fn check(network: &Network, upstream: &Upstream, choice: Option<Choice>) -> Result<()> {
    let shape = network.shape;
    let weights = network.weights();
    let parameters = Recurrent { choice, ..network.parameters(&weights) };
    let want = reference::recurrent_backward(shape.kind, &network.x, &parameters, upstream)?;
    let got = run(shape.kind, &network.x, &parameters, upstream)?;
    // The checker's order is the same each time.
    let again = network
        .x
        .device()
        .is_cuda()
        .then(|| run(shape.kind, &network.x, &parameters, upstream))
        .transpose()?;
    compare(network.shape, choice, (&got, again.as_ref()), &want)?;
    // With what the forward pass kept.
    let kept = run(shape.kind, &network.x, &Recurrent { keep: true, ..parameters }, upstream)?;
    compare(network.shape, choice, (&kept, None), &want)
}

/// All gradients of a layer with lengths, behind which x and dy have a value.
fn gradients_with_behind(network: &Network, choice: Choice, behind: f32) -> Result<Vec<Vec<f64>>> {
    let weights = network.weights();
    let parameters = Recurrent { choice: Some(choice), ..network.parameters(&weights) };
    let [x, dy] = [&network.x, &network.dy].map(|of| network.with_behind(of, behind));
    let (x, dy) = (x?, dy?);
    let upstream = Upstream { dy: Some(&dy), dh_n: Some(&network.dh_n), ..Upstream::default() };
    let got = run(network.shape.kind, &x, &parameters, &upstream)?;
    let of = &got.layers[0];
    let all = [&got.dx, &got.dh0, &of.dw_ih, &of.dw_hh].into_iter();
    all.chain(&of.db_ih).chain(&of.db_hh).map(Tensor::to_f64).collect()
}

fn compare(
    shape: Shape,
    choice: Option<Choice>,
    (got, again): (&RecurrentGradients, Option<&RecurrentGradients>),
    want: &RecurrentGradients<Vec<f64>>,
) -> Result<()> {
    let again = again.unwrap_or(got);
    let close = |name: &str, got: &Tensor, again: &Tensor, want: &[f64]| -> Result<()> {
        let what = format!("{name} of {shape:?} {choice:?}");
        let tolerance = gradient_tolerance(shape.dtype, want);
        assert_within(&got.to_f64()?, want, |_| tolerance, &what);
        assert_same(&again.to_bytes()?, &got.to_bytes()?, &what);
        Ok(())
    };
    close("dx", &got.dx, &again.dx, &want.dx)?;
    close("dh0", &got.dh0, &again.dh0, &want.dh0)?;
    assert_eq!(got.dc0.is_some(), want.dc0.is_some());
    if let (Some(got), Some(again), Some(want)) = (&got.dc0, &again.dc0, &want.dc0) {
        close("dc0", got, again, want)?;
    }
    assert_eq!(got.layers.len(), want.layers.len());
    for ((got, again), want) in got.layers.iter().zip(&again.layers).zip(&want.layers) {
        close("dw_ih", &got.dw_ih, &again.dw_ih, &want.dw_ih)?;
        close("dw_hh", &got.dw_hh, &again.dw_hh, &want.dw_hh)?;
        assert_eq!(got.db_ih.is_some(), want.db_ih.is_some());
        for (name, got, again, want) in [
            ("db_ih", &got.db_ih, &again.db_ih, &want.db_ih),
            ("db_hh", &got.db_hh, &again.db_hh, &want.db_hh),
        ] {
            if let (Some(got), Some(again), Some(want)) = (got, again, want) {
                close(name, got, again, want)?;
            }
        }
    }
    Ok(())
}

/// In both directions, and by rows that are far apart: steps begin with what y has.
fn states_begin_at_zero(device: &Device, dtype: DType, seed: u64) -> Result<()> {
    let streams = device.info().is_none_or(|info| info.arch == (9, 0));
    for (kind, bidirectional) in
        [(RecurrentKind::Lstm, false), (RecurrentKind::Lstm, true), (RecurrentKind::Gru, true)]
    {
        let shape =
            Shape { initial: false, bidirectional, layers: 2, ..Shape::new(kind, dtype, [4, 3, 5, 8]) };
        for batch_first in [false, true] {
            let network = Network::random(device, Shape { batch_first, ..shape }, seed)?;
            for choice in
                [Choice::Block, Choice::Persistent, Choice::StreamedWalk, Choice::Streamed, Choice::Steps]
            {
                let serves = match choice {
                    Choice::StreamedWalk => streams && dtype != DType::F32,
                    Choice::Streamed => streams,
                    _ => true,
                };
                if !serves {
                    continue;
                }
                let upstream = Upstream { dy: Some(&network.dy), ..Upstream::default() };
                check(&network, &upstream, Some(choice))?;
            }
        }
    }
    Ok(())
}

/// Each kernel; one group of the batch and several, sub-batches that take turns, and slots that are used again.
fn blocks_that_wait_are_right(device: &Device, kind: RecurrentKind, dtype: fn(usize) -> DType) -> Result<()> {
    let cases: &[([usize; 4], bool)] = match kind {
        RecurrentKind::Gru => &[
            ([4, 9, 3, 32], true),
            ([3, 3, 2, 46], false),
            ([2, 3, 2, 330], false),
            ([2, 25, 1, 674], true),
            ([260, 3, 2, 18], true),
        ],
        RecurrentKind::Lstm => &[
            ([3, 10, 3, 34], true),
            ([2, 3, 2, 258], false),
            ([1, 2, 1, 514], false),
            ([260, 2, 2, 6], false),
        ],
    };
    for (i, &(extents, lengths)) in cases.iter().enumerate() {
        let shape = Shape { lengths, ..Shape::new(kind, dtype(i), extents) };
        let network = Network::random(device, shape, i as u64)?;
        let dc_n = (kind == RecurrentKind::Lstm).then_some(&network.dc_n);
        let upstream = Upstream { dy: (i != 1).then_some(&network.dy), dh_n: Some(&network.dh_n), dc_n };
        check(&network, &upstream, Some(Choice::Persistent))?;
    }
    Ok(())
}

on_each_device! {
    /// From y alone, from the last states alone, and from all.
    fn gradients_are_those_of_the_reference(device: &Device) -> Result<()> {
        for kind in KINDS {
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                for (turn, extents) in [[4, 3, 5, 12], [3, 2, 4, 7], [1, 5, 3, 16]].into_iter().enumerate() {
                    let shape = Shape { bias: turn != 1, initial: turn != 2, ..Shape::new(kind, dtype, extents) };
                    let network = Network::random(device, shape, (i + 3 * turn) as u64)?;
                    let (dy, dh_n) = ((turn != 1).then_some(&network.dy), (turn != 0).then_some(&network.dh_n));
                    let dc_n = (turn != 0 && kind == RecurrentKind::Lstm).then_some(&network.dc_n);
                    for choice in [Choice::Block, Choice::Steps] {
                        check(&network, &Upstream { dy, dh_n, dc_n }, Some(choice))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Units that fill warps and that do not, few rows and more than the multiprocessors take at once; each kernel.
    fn blocks_with_all_weights_are_right(device: &Device) -> Result<()> {
        let extents = [[5, 3, 4, 64], [4, 2, 3, 128], [3, 5, 7, 65], [2, 269, 2, 17], [3, 1, 1, 1], [1, 270, 2, 70]];
        for kind in KINDS {
            for (i, extents) in extents.into_iter().enumerate() {
                for dtype in [[DType::F16, DType::BF16][i % 2], DType::F32] {
                    let network = Network::random(device, Shape::new(kind, dtype, extents), i as u64)?;
                    let dc_n = (kind == RecurrentKind::Lstm).then_some(&network.dc_n);
                    let upstream = Upstream { dy: Some(&network.dy), dh_n: Some(&network.dh_n), dc_n };
                    check(&network, &upstream, Some(Choice::Block))?;
                }
            }
        }
        Ok(())
    }

    /// Not even NaN, of x and of dy; whole packs and columns on their own, times that are rows and rows that are times.
    fn what_lies_behind_lengths_does_not_matter(device: &Device) -> Result<()> {
        let hopper = device.info().is_none_or(|info| info.arch == (9, 0));
        let of_all = [Choice::Block, Choice::Persistent, Choice::Steps];
        let of_hopper = [Choice::Streamed, Choice::StreamedWalk, Choice::Clustered];
        for (i, extents) in [[7, 5, 8, 16], [6, 4, 3, 40]].into_iter().enumerate() {
            for (kind, dtype) in KINDS.into_iter().flat_map(|kind| DTYPES.map(|dtype| (kind, dtype))) {
                let shape = Shape { lengths: true, batch_first: i == 1, ..Shape::new(kind, dtype, extents) };
                let network = Network::random(device, shape, 9)?;
                let count = if !hopper { 0 } else if dtype == DType::F32 { 1 } else { of_hopper.len() };
                let ways = of_all.into_iter().chain(of_hopper.into_iter().take(count));
                for choice in ways {
                    let want = gradients_with_behind(&network, choice, 0.0)?;
                    assert!(want.iter().flatten().all(|value| value.is_finite()), "{shape:?} {choice:?}");
                    let got = gradients_with_behind(&network, choice, f32::NAN)?;
                    assert_eq!(got, want, "{shape:?} {choice:?}");
                }
            }
        }
        Ok(())
    }

    /// On request: numbers of 11 bits.
    fn products_of_all_steps_may_be_rounded(device: &Device) -> Result<()> {
        for kind in KINDS {
            let network = Network::random(device, Shape::new(kind, DType::F32, [3, 5, 40, 24]), 8)?;
            let weights = network.weights();
            let parameters = Recurrent { tf32: true, ..network.parameters(&weights) };
            let upstream = Upstream { dy: Some(&network.dy), ..Upstream::default() };
            let want = reference::recurrent_backward(kind, &network.x, &parameters, &upstream)?;
            let got = run(kind, &network.x, &parameters, &upstream)?;
            for (name, got, want) in [
                ("dx", &got.dx, &want.dx), ("dw_ih", &got.layers[0].dw_ih, &want.layers[0].dw_ih),
                ("dw_hh", &got.layers[0].dw_hh, &want.layers[0].dw_hh),
            ] {
                let most = want.iter().fold(0.0, |most: f64, want| most.max(want.abs()));
                assert_within(&got.to_f64()?, want, |_| 4e-3 * most, format!("{name} of {kind}"));
            }
        }
        Ok(())
    }

    /// Weights that come from memory for each step, where there are Hopper's instructions.
    fn weights_are_streamed(device: &Device) -> Result<()> {
        if device.info().is_some_and(|info| info.arch != (9, 0)) {
            return Ok(());
        }
        let extents = [[4, 3, 5, 64], [3, 9, 4, 23], [1, 1, 3, 1], [2, 66, 2, 46], [3, 2, 2, 198], [3, 40, 2, 64], [3, 5, 2, 136]];
        for kind in KINDS {
            for (i, extents) in extents.into_iter().enumerate() {
                for dtype in [[DType::F16, DType::BF16][i % 2], DType::F32] {
                    let shape = Shape { bias: i != 1, initial: i != 2, lengths: i > 2, ..Shape::new(kind, dtype, extents) };
                    let network = Network::random(device, shape, i as u64)?;
                    let (dy, dh_n) = ((i % 3 != 2).then_some(&network.dy), (i % 3 != 1).then_some(&network.dh_n));
                    let dc_n = (kind == RecurrentKind::Lstm && i != 1).then_some(&network.dc_n);
                    let upstream = Upstream { dy, dh_n, dc_n };
                    check(&network, &upstream, Some(Choice::Streamed))?;
                    let [_, batch, _, hidden] = extents;
                    if dtype != DType::F32 && batch <= 64 && hidden % 4 == 0 {
                        check(&network, &upstream, Some(Choice::StreamedWalk))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn blocks_of_a_gru_wait_for_one_another(device: &Device) -> Result<()> {
        blocks_that_wait_are_right(device, RecurrentKind::Gru, |i| [DType::F16, DType::BF16][i % 2])
    }

    fn blocks_of_an_lstm_wait_for_one_another(device: &Device) -> Result<()> {
        blocks_that_wait_are_right(device, RecurrentKind::Lstm, |i| [DType::F16, DType::BF16][i % 2])
    }

    fn blocks_of_an_f32_gru_wait_for_one_another(device: &Device) -> Result<()> {
        blocks_that_wait_are_right(device, RecurrentKind::Gru, |_| DType::F32)
    }

    fn blocks_of_an_f32_lstm_wait_for_one_another(device: &Device) -> Result<()> {
        blocks_that_wait_are_right(device, RecurrentKind::Lstm, |_| DType::F32)
    }

    /// An odd number, too, and the most of them.
    fn f32_units_may_be_any_number(device: &Device) -> Result<()> {
        for (kind, extents) in [
            (RecurrentKind::Gru, [3, 5, 2, 33]), (RecurrentKind::Lstm, [2, 9, 3, 7]), (RecurrentKind::Gru, [2, 2, 1, 353]),
            (RecurrentKind::Lstm, [2, 2, 1, 529]),
        ] {
            let network = Network::random(device, Shape::new(kind, DType::F32, extents), 9)?;
            let upstream = Upstream { dy: Some(&network.dy), dh_n: Some(&network.dh_n), dc_n: None };
            check(&network, &upstream, Some(Choice::Persistent))?;
        }
        Ok(())
    }

    /// Both passes get the same parameters, and one of them has ways of its own.
    fn a_way_of_the_forward_pass_serves_the_gradient(device: &Device) -> Result<()> {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let shape = Shape::new(kind, [DType::F16, DType::BF16][i], [3, 5, 8, 32]);
            let network = Network::random(device, Shape { layers: 2, ..shape }, 7)?;
            let upstream = Upstream { dy: Some(&network.dy), ..Upstream::default() };
            check(&network, &upstream, Some(Choice::Fused))?;
        }
        Ok(())
    }

    /// More units than a block's share of columns, in pairs of blocks on Hopper, more steps than slots, and weights that do not fit on chip, of which the
    /// checker would take an hour: against a step at a time.
    fn many_units_and_steps_are_right(device: &Device) -> Result<()> {
        if !device.is_cuda() {
            return Ok(());
        }
        for (i, kind) in KINDS.into_iter().enumerate() {
            let half = [DType::F16, DType::BF16][i];
            for (choice, dtype, extents) in [
                (Choice::Persistent, half, [260, 20, 16, 640]),
                (Choice::Persistent, half, [70, 64, 32, 1024]),
                (Choice::Persistent, half, [140, 8, 8, 900]),
                (Choice::Persistent, half, [300, 40, 16, 512]),
                (Choice::StreamedWalk, half, [140, 64, 32, 2048]),
                (Choice::StreamedWalk, half, [41, 61, 32, 2048]),
                (Choice::StreamedWalk, half, [30, 48, 32, 2500]),
                (Choice::StreamedWalk, half, [100, 5, 32, 2048]),
                (Choice::StreamedWalk, half, [60, 32, 16, 1028]),
                (Choice::Streamed, DType::F32, [40, 64, 32, 2048]),
            ] {
                let shape = Shape::new(kind, dtype, extents);
                let network = Network::random(device, Shape { lengths: extents[0] == 140, ..shape }, i as u64)?;
                let dc_n = (kind == RecurrentKind::Lstm).then_some(&network.dc_n);
                let upstream = Upstream { dy: Some(&network.dy), dh_n: Some(&network.dh_n), dc_n };
                let weights = network.weights();
                let by = |choice| {
                    let parameters = Recurrent { choice: Some(choice), ..network.parameters(&weights) };
                    run(kind, &network.x, &parameters, &upstream)
                };
                let (got, again, want) = (by(choice)?, by(choice)?, by(Choice::Steps)?);
                let layers = got.layers.iter().zip(&again.layers).zip(&want.layers);
                let of_layers = layers.flat_map(|((got, again), want)| {
                    [("dw_ih", [&got.dw_ih, &again.dw_ih, &want.dw_ih]), ("dw_hh", [&got.dw_hh, &again.dw_hh, &want.dw_hh])]
                });
                let states = [("dx", [&got.dx, &again.dx, &want.dx]), ("dh0", [&got.dh0, &again.dh0, &want.dh0])];
                let cells = [&got.dc0, &again.dc0, &want.dc0].map(Option::as_ref);
                let cells = if let [Some(got), Some(again), Some(want)] = cells { Some(("dc0", [got, again, want])) } else { None };
                assert_eq!(cells.is_some(), kind == RecurrentKind::Lstm);
                for (name, [got, again, want]) in states.into_iter().chain(cells).chain(of_layers) {
                    let what = format!("{name} of {shape:?} {choice:?}");
                    let want = want.to_f64()?;
                    // Both are rounded, in each step.
                    let tolerance = 2.0 * gradient_tolerance(shape.dtype, &want);
                    assert_within(&got.to_f64()?, &want, |_| tolerance, &what);
                    assert_same(&again.to_bytes()?, &got.to_bytes()?, &what);
                }
            }
        }
        Ok(())
    }

    fn layers_directions_and_lengths_go_together(device: &Device) -> Result<()> {
        for (i, kind) in KINDS.into_iter().enumerate() {
            for turn in 0..3 {
                let shape = Shape {
                    layers: 1 + (turn + i) % 2,
                    bidirectional: turn != 1,
                    batch_first: turn == 0,
                    lengths: turn != 2,
                    ..Shape::new(kind, DTYPES[(turn + i) % 3], [5, 4, 6, 10])
                };
                let network = Network::random(device, shape, turn as u64)?;
                let dc_n = (kind == RecurrentKind::Lstm).then_some(&network.dc_n);
                for choice in [Choice::Block, Choice::Persistent, Choice::Steps] {
                    check(&network, &Upstream { dy: Some(&network.dy), dh_n: Some(&network.dh_n), dc_n }, Some(choice))?;
                }
            }
        }
        Ok(())
    }

    fn keeping_changes_no_result(device: &Device) -> Result<()> {
        let streams = device.info().is_none_or(|info| info.arch == (9, 0));
        for kind in KINDS {
            for dtype in DTYPES {
                let network = Network::random(device, Shape { lengths: true, ..Shape::new(kind, dtype, [3, 4, 5, 36]) }, 5)?;
                let weights = network.weights();
                for choice in [Choice::Block, Choice::Persistent, Choice::Streamed, Choice::Steps] {
                    if choice == Choice::Streamed && !streams {
                        continue;
                    }
                    let parameters = Recurrent { choice: Some(choice), ..network.parameters(&weights) };
                    let of = |keep| {
                        let parameters = Recurrent { keep, ..parameters };
                        match kind {
                            RecurrentKind::Gru => ops::gru(&network.x, &parameters),
                            RecurrentKind::Lstm => ops::lstm(&network.x, &parameters),
                        }
                    };
                    let (got, want) = (of(true)?, of(false)?);
                    assert_eq!((got.kept.len(), want.kept.len()), (1, 0));
                    let what = format!("{kind} {dtype} {choice:?}");
                    assert_same(&got.y.to_bytes()?, &want.y.to_bytes()?, &what);
                    assert_same(&got.h_n.to_bytes()?, &want.h_n.to_bytes()?, &what);
                    if let (Some(got), Some(want)) = (&got.c_n, &want.c_n) {
                        assert_same(&got.to_bytes()?, &want.to_bytes()?, &what);
                    }
                }
            }
        }
        Ok(())
    }

    fn f32_states_may_begin_at_zero(device: &Device) -> Result<()> {
        states_begin_at_zero(device, DType::F32, 0)
    }

    fn f16_states_may_begin_at_zero(device: &Device) -> Result<()> {
        states_begin_at_zero(device, DType::F16, 1)
    }

    fn bf16_states_may_begin_at_zero(device: &Device) -> Result<()> {
        states_begin_at_zero(device, DType::BF16, 2)
    }

    fn without_gradients_of_results_all_are_0(device: &Device) -> Result<()> {
        let network = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F32, [3, 2, 2, 4]), 3)?;
        check(&network, &Upstream::default(), None)
    }

    fn what_does_not_fit_is_refused(device: &Device) -> Result<()> {
        let network = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F32, [3, 2, 2, 4]), 4)?;
        let weights = network.weights();
        let parameters = network.parameters(&weights);
        let forward = ops::gru(&network.x, &parameters)?;
        let refusal = |forward: &Recurred, upstream: &Upstream| {
            ops::gru_backward(&network.x, &parameters, forward, upstream).map(drop).expect_err("refused")
        };
        let dy = Tensor::zeros(device, DType::F32, &[3, 2, 5])?;
        let error = refusal(&forward, &Upstream { dy: Some(&dy), ..Upstream::default() });
        assert!(matches!(error, Error::Shape { arg: "dy", .. }));
        let other = Recurred { y: dy.clone(), ..forward.clone() };
        assert!(matches!(refusal(&other, &Upstream::default()), Error::Shape { arg: "y", .. }));
        let deep = Recurred { inner: vec![dy], ..forward };
        assert!(matches!(refusal(&deep, &Upstream::default()), Error::Parameter { arg: "inner", .. }));
        // Kept by a layer with other units, and of two layers.
        let other = Network::random(device, Shape::new(RecurrentKind::Gru, DType::F32, [3, 2, 2, 6]), 4)?;
        let weights = other.weights();
        let kept = ops::gru(&other.x, &Recurrent { keep: true, ..other.parameters(&weights) })?.kept;
        let misfit = Recurred { kept: kept.clone(), inner: Vec::new(), ..deep.clone() };
        assert!(matches!(refusal(&misfit, &Upstream::default()), Error::Shape { arg: "kept", .. }));
        let many = Recurred { kept: [kept.clone(), kept].concat(), inner: Vec::new(), ..deep.clone() };
        assert!(matches!(refusal(&many, &Upstream::default()), Error::Parameter { arg: "kept", .. }));
        // And by an LSTM, whose gates take as much room.
        let other = Network::random(device, Shape::new(RecurrentKind::Lstm, DType::F32, [3, 2, 2, 3]), 4)?;
        let weights = other.weights();
        let kept = ops::lstm(&other.x, &Recurrent { keep: true, ..other.parameters(&weights) })?.kept;
        let foreign = Recurred { kept, inner: Vec::new(), ..deep };
        assert!(matches!(refusal(&foreign, &Upstream::default()), Error::Parameter { arg: "kept", .. }));
        Ok(())
    }
}
