//! `gru_cell` and `lstm_cell`, with their products and without, forward and backward, against float64.

#[allow(dead_code)]
#[path = "../src/recurrent.rs"]
mod recurrent;

use recurrent::{KINDS, gradient_tolerance, tolerance};
use warpwright::ops::{self, LayerGradients, RecurrentKind, RecurrentWeights};
use warpwright::{DType, Device, Error, Result, Tensor, reference};
use warpwright_tests::{DTYPES, Random, assert_within, floats, on_each_device};

/// Rows of the batch, columns of x, units: whole quads, single units, one, and rows beyond a block.
const EXTENTS: [[usize; 3]; 8] =
    [[4, 6, 16], [3, 5, 7], [1, 1, 1], [70, 24, 40], [17, 520, 8], [5, 8, 272], [9, 33, 66], [2, 3, 260]];

/// Those of 16 bits go to clusters on Hopper: units and columns that no box ends with, more rows than a cluster has, one block of two
/// without terms, more terms than its stages hold once and twice, clusters that wait for others, and each number of a cluster's units. Last
/// those of which blocks of f32 have 16 units, and 64 rows or 32.
const MANY_UNITS: [[usize; 3]; 12] = [
    [3, 248, 272],
    [70, 256, 256],
    [2, 8, 504],
    [1, 1096, 264],
    [65, 8, 520],
    [1, 2120, 264],
    [65, 1000, 648],
    [257, 8, 264],
    [260, 72, 376],
    [258, 136, 424],
    [66, 36, 944],
    [33, 40, 936],
];

struct Operands {
    x: Tensor,
    h: Tensor,
    c: Tensor,
    dh: Tensor,
    dc: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    gx: Tensor,
    gh: Tensor,
}

impl Operands {
    fn random(
        device: &Device,
        kind: RecurrentKind,
        dtype: DType,
        [batch, input, hidden]: [usize; 3],
    ) -> Result<Operands> {
        let mut random = Random::new((batch * hidden) as u64);
        let mut of = |shape: &[usize], range: f32| {
            floats(device, dtype, shape, &random.floats(shape.iter().product(), -range, range))
        };
        let (rows, range) = (kind.gates() * hidden, 1.0 / (hidden as f32).sqrt());
        Ok(Operands {
            x: of(&[batch, input], 1.0)?,
            h: of(&[batch, hidden], 1.0)?,
            c: of(&[batch, hidden], 1.0)?,
            dh: of(&[batch, hidden], 1.0)?,
            dc: of(&[batch, hidden], 1.0)?,
            w_ih: of(&[rows, input], range)?,
            w_hh: of(&[rows, hidden], range)?,
            b_ih: of(&[rows], range)?,
            b_hh: of(&[rows], range)?,
            gx: of(&[batch, rows], 4.0)?,
            gh: of(&[batch, rows], 4.0)?,
        })
    }

    fn weights(&self, bias: bool) -> RecurrentWeights<'_> {
        let (b_ih, b_hh) = (bias.then_some(&self.b_ih), bias.then_some(&self.b_hh));
        RecurrentWeights { w_ih: &self.w_ih, w_hh: &self.w_hh, b_ih, b_hh }
    }
}

fn close(what: &str, got: &Tensor, want: &[f64]) -> Result<()> {
    assert_within(&got.to_f64()?, want, |_| tolerance(got.dtype()), what);
    Ok(())
}

fn close_gradient(what: &str, got: &Tensor, want: &[f64]) -> Result<()> {
    let tolerance = gradient_tolerance(got.dtype(), want);
    assert_within(&got.to_f64()?, want, |_| tolerance, what);
    Ok(())
}

/// Each kind, type and shape.
fn each(device: &Device, check: impl Fn(RecurrentKind, DType, &Operands, usize) -> Result<()>) -> Result<()> {
    each_of(device, &KINDS, &EXTENTS, check)
}

/// As [`each`], of some kinds and shapes.
fn each_of(
    device: &Device,
    kinds: &[RecurrentKind],
    extents: &[[usize; 3]],
    check: impl Fn(RecurrentKind, DType, &Operands, usize) -> Result<()>,
) -> Result<()> {
    for &kind in kinds {
        for (i, dtype) in DTYPES.into_iter().enumerate() {
            for (turn, &extents) in extents.iter().enumerate() {
                check(kind, dtype, &Operands::random(device, kind, dtype, extents)?, i + turn)?;
            }
        }
    }
    Ok(())
}

/// With biases in every other turn.
fn next_state_is_right(kind: RecurrentKind, dtype: DType, of: &Operands, turn: usize) -> Result<()> {
    let what = format!("{kind:?} {dtype} {:?}", of.h.shape());
    let weights = of.weights(turn.is_multiple_of(2));
    let is_lstm = kind == RecurrentKind::Lstm;
    let (h, c) = reference::cell(kind, &of.x, (&of.h, is_lstm.then_some(&of.c)), &weights)?;
    if is_lstm {
        let next = ops::lstm_cell(&of.x, &of.h, &of.c, &weights)?;
        close(&what, &next.h, &h)?;
        close(&what, &next.c, &c)
    } else {
        close(&what, &ops::gru_cell(&of.x, &of.h, &weights)?, &h)
    }
}

/// Of 16-bit types, which are dealt out alike, the checker takes one and the other in turn.
fn of_many_units(device: &Device, kind: RecurrentKind) -> Result<()> {
    for (turn, &extents) in MANY_UNITS.iter().enumerate() {
        let left_out = (!device.is_cuda()).then_some([DType::F16, DType::BF16][turn % 2]);
        for (i, dtype) in DTYPES.into_iter().enumerate().filter(|&(_, dtype)| Some(dtype) != left_out) {
            next_state_is_right(kind, dtype, &Operands::random(device, kind, dtype, extents)?, i + turn)?;
        }
    }
    Ok(())
}

on_each_device! {
    fn cells_are_right(device: &Device) -> Result<()> {
        each(device, next_state_is_right)
    }

    fn gru_cells_of_many_units_are_right(device: &Device) -> Result<()> {
        of_many_units(device, RecurrentKind::Gru)
    }

    fn lstm_cells_of_many_units_are_right(device: &Device) -> Result<()> {
        of_many_units(device, RecurrentKind::Lstm)
    }

    fn steps_for_given_inputs_of_the_gates_are_right(device: &Device) -> Result<()> {
        each(device, |kind, dtype, of, _| {
            let what = format!("{kind:?} {dtype} {:?}", of.h.shape());
            if kind == RecurrentKind::Lstm {
                let (h, c) = reference::cell_pointwise(kind, &of.gx, &of.gh, &of.c)?;
                let next = ops::lstm_cell_pointwise(&of.gx, &of.gh, &of.c)?;
                close(&what, &next.h, &h)?;
                close(&what, &next.c, &c)
            } else {
                let (h, _) = reference::cell_pointwise(kind, &of.gx, &of.gh, &of.h)?;
                close(&what, &ops::gru_cell_pointwise(&of.gx, &of.gh, &of.h)?, &h)
            }
        })
    }

    fn gradients_of_such_steps_are_right(device: &Device) -> Result<()> {
        each(device, |kind, dtype, of, turn| {
            let what = format!("{kind:?} {dtype} {:?}", of.h.shape());
            let is_lstm = kind == RecurrentKind::Lstm;
            let dc = (is_lstm && turn % 2 == 0).then_some(&of.dc);
            let state = if is_lstm { &of.c } else { &of.h };
            let want = reference::cell_pointwise_backward(kind, &of.gx, &of.gh, state, (&of.dh, dc))?;
            let got = match kind {
                RecurrentKind::Gru => ops::gru_cell_pointwise_backward(&of.gx, &of.gh, &of.h, &of.dh)?,
                RecurrentKind::Lstm => ops::lstm_cell_pointwise_backward(&of.gx, &of.gh, &of.c, &of.dh, dc)?,
            };
            close_gradient(&what, &got.dgx, &want.dgx)?;
            close_gradient(&what, &got.dgh, &want.dgh)?;
            close_gradient(&what, &got.dstate, &want.dstate)
        })
    }

    fn gradients_of_cells_are_right(device: &Device) -> Result<()> {
        // The checker takes its time over the products.
        each_of(device, &KINDS, &EXTENTS[..3], |kind, dtype, of, turn| {
            let what = format!("{kind:?} {dtype} {:?}", of.h.shape());
            let weights = of.weights(turn % 2 == 1);
            let is_lstm = kind == RecurrentKind::Lstm;
            let (c, dc) = (is_lstm.then_some(&of.c), is_lstm.then_some(&of.dc));
            let want = reference::cell_backward(kind, &of.x, (&of.h, c), &weights, (&of.dh, dc))?;
            let got = match kind {
                RecurrentKind::Gru => ops::gru_cell_backward(&of.x, &of.h, &weights, &of.dh)?,
                RecurrentKind::Lstm => ops::lstm_cell_backward(&of.x, &of.h, &of.c, &weights, &of.dh, dc)?,
            };
            close_gradient(&what, &got.dx, &want.dx)?;
            close_gradient(&what, &got.dh, &want.dh)?;
            let all = |of: &LayerGradients| [Some(of.dw_ih.clone()), Some(of.dw_hh.clone()), of.db_ih.clone(), of.db_hh.clone()];
            let wanted = [Some(want.weights.dw_ih), Some(want.weights.dw_hh), want.weights.db_ih, want.weights.db_hh];
            for (got, want) in all(&got.weights).into_iter().zip(wanted) {
                assert_eq!(got.is_some(), want.is_some(), "{what}");
                if let (Some(got), Some(want)) = (got, want) {
                    close_gradient(&what, &got, &want)?;
                }
            }
            assert_eq!(got.dc.is_some(), is_lstm);
            if let (Some(got), Some(want)) = (got.dc, want.dc) {
                close_gradient(&what, &got, &want)?;
            }
            Ok(())
        })
    }

    /// Infinite inputs saturate the gates; NaN stays in its unit.
    fn values_at_the_edges_are_pytorchs(device: &Device) -> Result<()> {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        // r, z, n of four units.
        let gx = [-inf, inf, 0.0, nan, inf, -inf, 0.0, 0.0, 1.0, 5.0, -inf, 0.0];
        let gx = Tensor::from_slice(device, &[1, 12], &gx)?;
        let gh = Tensor::zeros(device, DType::F32, &[1, 12])?;
        let h = Tensor::from_slice(device, &[1, 4], &[0.25f32, 0.5, 1.0, 0.0])?;
        let next = ops::gru_cell_pointwise(&gx, &gh, &h)?.to_vec::<f32>()?;
        assert_eq!((next[0], next[2]), (0.25, 0.0));
        assert!((next[1] - 5f32.tanh()).abs() < 1e-6 && next[3].is_nan(), "{next:?}");
        Ok(())
    }

    fn what_does_not_fit_is_refused(device: &Device) -> Result<()> {
        let of = Operands::random(device, RecurrentKind::Gru, DType::F32, [4, 6, 16])?;
        let weights = of.weights(true);
        let zeros = |shape: &[usize]| Tensor::zeros(device, DType::F32, shape);
        let refusal = |x: &Tensor, h: &Tensor, weights: &RecurrentWeights| {
            ops::gru_cell_shape(x, h, weights).map(drop).expect_err("refused")
        };
        assert!(matches!(refusal(&zeros(&[4, 5])?, &of.h, &weights), Error::Shape { arg: "w_ih", .. }));
        assert!(matches!(refusal(&of.x, &zeros(&[4, 15])?, &weights), Error::Shape { arg: "h", .. }));
        let square = zeros(&[16, 16])?;
        let wrong = RecurrentWeights { w_hh: &square, ..weights };
        assert!(matches!(refusal(&of.x, &of.h, &wrong), Error::Shape { arg: "w_hh", .. }));
        let error = ops::lstm_cell_shape(&of.x, &of.h, &of.c, &weights).map(drop).expect_err("3 gates");
        assert!(matches!(error, Error::Shape { arg: "w_hh", .. }));
        let error = ops::gru_cell_pointwise(&zeros(&[4, 47])?, &of.gh, &of.h).map(drop).expect_err("47");
        assert_eq!(error.to_string(), "gru_cell_pointwise: `gx` must have shape [B, 3·H], got [4, 47]");
        let error = ops::gru_cell_pointwise(&zeros(&[4, 48])?, &of.gh, &zeros(&[4, 15])?).map(drop).expect_err("15");
        assert_eq!(error.to_string(), "gru_cell_pointwise: `h` must have shape [4, 16], got [4, 15]");
        // What is too much to count, of no bytes.
        let none = |rows: usize, columns: usize| zeros(&[rows, columns]);
        let error = ops::gru_cell_pointwise(&none(1 << 31, 0)?, &none(1 << 31, 0)?, &none(1 << 31, 0)?);
        let want = "gru_cell_pointwise: rows of the batch must be at most 1073741824, got 2147483648";
        assert_eq!(error.expect_err("too many rows").to_string(), want);
        let (gates, units) = (none(0, 3 << 31)?, none(0, 1 << 31)?);
        let error = ops::gru_cell_pointwise(&gates, &gates, &units).expect_err("too many units").to_string();
        assert_eq!(error, "gru_cell_pointwise: gates of a row must be at most 1073741824, got 6442450944");
        let no_weights = RecurrentWeights { w_ih: &none(0, 1 << 31)?, w_hh: &none(0, 0)?, b_ih: None, b_hh: None };
        let error = refusal(&none(0, 1 << 31)?, &none(0, 0)?, &no_weights).to_string();
        assert_eq!(error, "gru_cell: columns of `w_ih` must be at most 1073741824, got 2147483648");
        Ok(())
    }
}
