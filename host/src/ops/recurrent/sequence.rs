//! Whole sequences. See [`gru`] and [`lstm`].

use super::backward::{self, Upward};
use super::layer::{Aside, Layer, Results};
use super::names::inner_name;
use super::plan::{Choice, Plan, Target};
use super::problem::{Problem, of_place, operand};
use super::{Kind, LayerGradients, Recurrent, RecurrentWeights, steps_of_rows};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::rows::uninit;
use crate::ops::{self, masked_softmax::Described};
use crate::tensor::{Desc, Tensor};
use kernels_gpu::recurrent::check_lengths;

/// What [`gru`] and [`lstm`] give.
#[derive(Clone, Debug)]
pub struct Recurred<T = Tensor> {
    /// `[T, B, D·H]`, or `[B, T, D·H]` with `batch_first`: h of the last layer after each step, forward first; 0 beyond a
    /// row's length.
    pub y: T,
    /// h after the last step of each row: `[B, H]`, or `[L·D, B, H]`.
    pub h_n: T,
    /// c likewise, of an LSTM.
    pub c_n: Option<T>,
    /// y of the layers below the last, `[T, B, D·H]`: with x and y all that the gradient needs. Errors call them `y_l0`, `y_l1` and so on.
    pub inner: Vec<T>,
    /// With [`Recurrent::keep`], of each layer and direction, what spares the gradient two products; otherwise nothing.
    pub kept: Vec<Kept<T>>,
}

/// What the gates of a layer and direction were given in each step, in the type of x: of a GRU six times as much as y, of an LSTM nine
/// times. It is handed back as it came, with the same x and parameters: that weights have changed in between goes unnoticed.
#[derive(Clone, Debug)]
pub struct Kept<T = Tensor> {
    /// By x, `[T, B, G·H]`.
    pub(super) gx: T,
    /// By h, likewise.
    pub(super) gh: T,
    /// The c that each step of an LSTM began with, `[T, B, H]`.
    pub(super) c: Option<T>,
}

impl<T> Kept<T> {
    fn tensors(&self) -> impl Iterator<Item = &T> {
        [Some(&self.gx), Some(&self.gh), self.c.as_ref()].into_iter().flatten()
    }
}

impl Kept {
    fn adopted(&self, device: &Device, op: &'static str) -> Result<Kept> {
        let here = |tensor: &Tensor| tensor.adopted(device, op, "kept");
        Ok(Kept { gx: here(&self.gx)?, gh: here(&self.gh)?, c: self.c.as_ref().map(here).transpose()? })
    }
}

/// The gradients of what [`gru`] or [`lstm`] gave; zeros where absent.
#[derive(Debug)]
pub struct Upstream<'a, D = Tensor> {
    /// Of y.
    pub dy: Option<&'a D>,
    /// Of h_n.
    pub dh_n: Option<&'a D>,
    /// Of c_n.
    pub dc_n: Option<&'a D>,
}

impl<D> Clone for Upstream<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Upstream<'_, D> {}

impl<D> Default for Upstream<'_, D> {
    fn default() -> Self {
        Upstream { dy: None, dh_n: None, dc_n: None }
    }
}

/// What [`gru_backward`] and [`lstm_backward`] give, contiguous.
#[derive(Clone, Debug)]
pub struct RecurrentGradients<T = Tensor> {
    /// Of x.
    pub dx: T,
    /// Of h0: `[B, H]`, or `[L·D, B, H]`.
    pub dh0: T,
    /// Of c0, of an LSTM.
    pub dc0: Option<T>,
    /// Of the weights, in their order.
    pub layers: Vec<LayerGradients<T>>,
}

/// A GRU over a sequence x `[T, B, I]`: of one layer or several, in one direction or both.
///
/// Rows of the batch may have lengths: beyond them y is 0 and h stays what it was, and the direction from the end
/// begins at each row's own last step. Any strides of x, weights and initial states are accepted.
///
/// All steps of a layer and direction run in one launch, with the recurrent weights on chip, while these fit: of up to
/// 128 units into each block, otherwise spread over blocks that wait for one another (of 16 bits, up to 512 units and columns of x and few rows of the
/// batch together with w_ih, which spares a large product; up to 2048 units of f16 and bf16, an even
/// number, and 1024 of f32, and as many multiprocessors as they need: [`gru_explain`]). Where they do not, Hopper streams them for up to 256 rows
/// of the batch: they are copied once, of f32 in two parts, which takes as much memory again, and each step reads the copy as fast as
/// memory gives it. Elsewhere each step is a product and a launch for the gates. There h is rounded after each step; otherwise it is
/// carried in f32 and rounded where it is multiplied. Of f32 spread over blocks or streamed, a row becomes NaN where its h0 is not finite, and all
/// of them where w_hh is not. The same input gives the same bits on the same device.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Recurrent, RecurrentWeights}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[2, 1, 1], &[1.0f32, 1.0])?;
/// let w_ih = Tensor::from_slice(&device, &[3, 1], &[0.0f32, 0.0, 1.0])?;
/// let w_hh = Tensor::from_slice(&device, &[3, 1], &[0.0f32, 0.0, 0.0])?;
/// let weights = [RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: None, b_hh: None }];
/// let y = ops::gru(&x, &Recurrent::new(&weights))?.y.to_vec::<f32>()?;
/// // z is 1/2 in both steps, and n is tanh 1.
/// let n = 1f32.tanh();
/// assert!((y[0] - 0.5 * n).abs() < 1e-6 && (y[1] - 0.75 * n).abs() < 1e-6);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](Error::Shape), [`DType`](Error::DType) and [`DeviceMismatch`](Error::DeviceMismatch) for tensors that do not fit,
/// [`Parameter`](Error::Parameter) for a wrong number of weights or a choice that cannot serve, [`Strides`](Error::Strides)
/// for negative strides, [`TooLarge`](Error::TooLarge) for more than 2³⁰ rows in all steps, [`OutOfMemory`](Error::OutOfMemory);
/// [`Value`](Error::Value) for a length outside 0..=T and [`Stalled`](Error::Stalled) where blocks that wait for one another
/// give up: at once on the CPU, and on a GPU by the next read-back or synchronisation.
pub fn gru(x: &Tensor, parameters: &Recurrent) -> Result<Recurred> {
    forward("gru", Kind::Gru, x, parameters)
}

/// An LSTM over a sequence x `[T, B, I]`. As [`gru`] otherwise, with an initial c and a last one.
pub fn lstm(x: &Tensor, parameters: &Recurrent) -> Result<Recurred> {
    forward("lstm", Kind::Lstm, x, parameters)
}

/// Checks the arguments of [`gru`] without computing; gives y, h_n and no c_n.
pub fn gru_shape<D: Described>(x: &D, parameters: &Recurrent<D>) -> Result<Recurred<Desc>> {
    shapes(&Problem::new("gru", Kind::Gru, x, parameters)?, parameters.keep)
}

/// Checks the arguments of [`lstm`] without computing; gives y, h_n and c_n.
pub fn lstm_shape<D: Described>(x: &D, parameters: &Recurrent<D>) -> Result<Recurred<Desc>> {
    shapes(&Problem::new("lstm", Kind::Lstm, x, parameters)?, parameters.keep)
}

/// How [`gru`] would go about the first layer, in each direction. Those above have other columns of x, and may be gone about otherwise.
pub fn gru_explain<D: Described>(x: &D, parameters: &Recurrent<D>) -> Result<Plan> {
    plan(&Problem::new("gru", Kind::Gru, x, parameters)?, parameters.choice)
}

/// How [`lstm`] would go about the first layer; as [`gru_explain`].
pub fn lstm_explain<D: Described>(x: &D, parameters: &Recurrent<D>) -> Result<Plan> {
    plan(&Problem::new("lstm", Kind::Lstm, x, parameters)?, parameters.choice)
}

/// The gradients of [`gru`] for its x and parameters, what it gave, and the gradients of that.
///
/// Of the forward pass only y of each layer is needed. The gates' inputs of all steps are computed again, as two large
/// products, unless the forward pass kept them ([`Recurrent::keep`]); then the steps are walked backwards with dh in f32, in one launch where
/// the weights fit on chip as in the forward pass (spread over blocks up to 1024 units), and the weights' gradients are large products, too. No
/// atomics: the same input gives the same bits.
///
/// # Errors
/// As [`gru`].
pub fn gru_backward(
    x: &Tensor,
    parameters: &Recurrent,
    results: &Recurred,
    upstream: &Upstream,
) -> Result<RecurrentGradients> {
    gradients("gru_backward", Kind::Gru, x, parameters, results, upstream)
}

/// The gradients of [`lstm`]; as [`gru_backward`]. c of each step is computed again, too.
pub fn lstm_backward(
    x: &Tensor,
    parameters: &Recurrent,
    results: &Recurred,
    upstream: &Upstream,
) -> Result<RecurrentGradients> {
    gradients("lstm_backward", Kind::Lstm, x, parameters, results, upstream)
}

fn shapes(problem: &Problem, keep: bool) -> Result<Recurred<Desc>> {
    let inner = Desc::contiguous(problem.op, problem.y.device(), problem.dtype, &of_time(problem))?;
    Ok(Recurred {
        y: problem.y.clone(),
        h_n: problem.state.clone(),
        c_n: (problem.kind == Kind::Lstm).then(|| problem.state.clone()),
        inner: vec![inner; problem.layers - 1],
        kept: if keep { vec![kept(problem)?; problem.layers * problem.directions] } else { Vec::new() },
    })
}

fn kept(problem: &Problem) -> Result<Kept<Desc>> {
    let Problem { op, kind, dtype, steps, batch, hidden, .. } = *problem;
    let of = |units: usize| Desc::contiguous(op, problem.y.device(), dtype, &[steps, batch, units]);
    let gates = of(kind.gates() * hidden)?;
    let c = if kind == Kind::Lstm { Some(of(hidden)?) } else { None };
    Ok(Kept { gx: gates.clone(), gh: gates, c })
}

/// `[T, B, D·H]`.
fn of_time(problem: &Problem) -> [usize; 3] {
    [problem.steps, problem.batch, problem.directions * problem.hidden]
}

fn plan(problem: &Problem, choice: Option<Choice>) -> Result<Plan> {
    let target = Target::of(problem.y.device());
    match choice {
        None => Ok(Plan::new(problem, target)),
        Some(choice) => serving(problem, choice, Plan::by(choice, problem, target)),
    }
}

/// Of the gradient.
fn plan_back(problem: &Problem, choice: Option<Choice>) -> Result<Plan> {
    let target = Target::of(problem.y.device());
    match choice {
        None => Ok(Plan::back(problem, target)),
        Some(choice) => serving(problem, choice, Plan::back_by(choice, problem, target)),
    }
}

fn serving(problem: &Problem, choice: Choice, plan: Plan) -> Result<Plan> {
    if plan.choice != Choice::Steps || choice == Choice::Steps {
        return Ok(plan);
    }
    let (required, got) = (format!("one that can serve: {}", plan.reason), format!("{choice:?}"));
    Err(Error::Parameter { op: problem.op, arg: "choice", required, got })
}

/// Everything on x's stream.
struct Here {
    x: Tensor,
    h0: Option<Tensor>,
    c0: Option<Tensor>,
    lengths: Option<Tensor>,
    layers: Vec<Owned>,
}

struct Owned {
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Option<Tensor>,
    b_hh: Option<Tensor>,
}

impl Owned {
    fn weights(&self) -> RecurrentWeights<'_> {
        let (b_ih, b_hh) = (self.b_ih.as_ref(), self.b_hh.as_ref());
        RecurrentWeights { w_ih: &self.w_ih, w_hh: &self.w_hh, b_ih, b_hh }
    }
}

impl Here {
    fn new(op: &'static str, x: &Tensor, parameters: &Recurrent) -> Result<Here> {
        let device = x.device();
        let here = |tensor: &Tensor, arg| tensor.adopted(device, op, arg);
        let maybe = |tensor: Option<&Tensor>, arg| tensor.map(|tensor| here(tensor, arg)).transpose();
        let owned = |of: &RecurrentWeights| -> Result<Owned> {
            Ok(Owned {
                w_ih: here(of.w_ih, "w_ih")?,
                w_hh: here(of.w_hh, "w_hh")?,
                b_ih: maybe(of.b_ih, "b_ih")?,
                b_hh: maybe(of.b_hh, "b_hh")?,
            })
        };
        Ok(Here {
            x: if parameters.batch_first { x.transpose(0, 1)? } else { x.clone() },
            h0: maybe(parameters.h0, "h0")?,
            c0: maybe(parameters.c0, "c0")?,
            lengths: maybe(parameters.lengths, "lengths")?,
            layers: (parameters.layers.iter().enumerate())
                .map(|(index, of)| owned(of).map_err(|error| of_place(error, index, parameters.directions())))
                .collect::<Result<_>>()?,
        })
    }
}

/// The `[B, H]` of a layer and direction.
fn state(problem: &Problem, of: &Tensor, index: usize) -> Result<Tensor> {
    if problem.state.rank() == 2 { Ok(of.clone()) } else { of.narrow(0, index, 1)?.squeeze(0) }
}

fn check(problem: &Problem, lengths: Option<&Tensor>) -> Result<()> {
    let Some(lengths) = lengths.filter(|lengths| !lengths.is_empty()) else { return Ok(()) };
    let device = lengths.device();
    let slot = device.value_slot(problem.op, "lengths", 0, problem.steps as i64)?;
    let kernel = &check_lengths::ALL[0];
    let grid = Grid::covering(lengths.len() as u64, kernel.bounds.threads.into())?;
    let args = (lengths.view()?, slot.view(), lengths.len() as u32, problem.steps as u32);
    // SAFETY: a thread for each length.
    unsafe { device.launch(kernel, grid, args)? };
    slot.finish()
}

fn forward(op: &'static str, kind: Kind, x: &Tensor, parameters: &Recurrent) -> Result<Recurred> {
    let problem = Problem::new(op, kind, x, parameters)?;
    let plans: Vec<Plan> = (0..problem.layers)
        .map(|layer| plan(&problem.of_layer(layer), parameters.choice))
        .collect::<Result<_>>()?;
    let here = Here::new(op, x, parameters)?;
    check(&problem, here.lengths.as_ref())?;
    let shapes = shapes(&problem, parameters.keep)?;
    let mut results = Recurred {
        y: uninit(&shapes.y)?,
        h_n: uninit(&shapes.h_n)?,
        c_n: shapes.c_n.as_ref().map(uninit).transpose()?,
        inner: shapes.inner.iter().map(uninit).collect::<Result<_>>()?,
        kept: Vec::new(),
    };
    let y = if problem.batch_first { results.y.transpose(0, 1)? } else { results.y.clone() };
    // Copied once for both directions, where it must be; one kernel reads any strides.
    let mut first_x = Some(match plans.first() {
        Some(plan) if plan.choice != Choice::Fused => steps_of_rows(&here.x)?,
        _ => here.x.clone(),
    });
    for (index, owned) in here.layers.iter().enumerate() {
        let (layer, direction) = (index / problem.directions, index % problem.directions);
        if layer > 0 {
            first_x = None;
        }
        let x = first_x.as_ref().unwrap_or_else(|| &results.inner[layer - 1]);
        let y = results.inner.get(layer).unwrap_or(&y);
        let own = y.narrow(2, direction * problem.hidden, problem.hidden)?;
        let initial = |of: &Option<Tensor>| of.as_ref().map(|of| state(&problem, of, index)).transpose();
        let (h0, c0) = (initial(&here.h0)?, initial(&here.c0)?);
        let (h_n, c_n) = (state(&problem, &results.h_n, index)?, initial(&results.c_n)?);
        let layer = Layer {
            op,
            kind,
            x,
            weights: owned.weights(),
            h0: h0.as_ref(),
            c0: c0.as_ref(),
            lengths: here.lengths.as_ref(),
            reverse: direction == 1,
            tf32: parameters.tf32,
        };
        let beside = match shapes.kept.get(index) {
            Some(kept) => Some((kept, uninit(&kept.gh)?, kept.c.as_ref().map(uninit).transpose()?)),
            None => None,
        };
        let aside = beside.as_ref().map(|(_, gh, c)| Aside { gh, c: c.as_ref() });
        let gx = layer.run(
            &plans[index / problem.directions],
            Results { y: &own, h_n: &h_n, c_n: c_n.as_ref(), aside },
        )?;
        if let Some((kept, gh, c)) = beside {
            let gx = gx.map_or_else(|| uninit(&kept.gx), Ok)?;
            results.kept.push(Kept { gx, gh, c });
        }
    }
    Ok(results)
}

fn gradients(
    op: &'static str,
    kind: Kind,
    x: &Tensor,
    parameters: &Recurrent,
    results: &Recurred,
    upstream: &Upstream,
) -> Result<RecurrentGradients> {
    let problem = Problem::new(op, kind, x, parameters)?;
    let plan = plan_back(&problem, parameters.choice)?;
    let desc = x.desc();
    let like = |arg, tensor: &Tensor, wanted: &[usize]| operand(op, arg, tensor.desc(), desc, wanted);
    like("y", &results.y, problem.y.shape())?;
    if results.inner.len() != problem.layers - 1 {
        let (required, got) = (format!("{} tensors", problem.layers - 1), results.inner.len().to_string());
        return Err(Error::Parameter { op, arg: "inner", required, got });
    }
    for (layer, inner) in results.inner.iter().enumerate() {
        like(inner_name(layer), inner, &of_time(&problem))?;
    }
    if !results.kept.is_empty() {
        let wanted = kept(&problem)?;
        let layers = problem.layers * problem.directions;
        if results.kept.len() != layers {
            let (required, got) =
                (format!("nothing, or of {layers} layers and directions"), results.kept.len().to_string());
            return Err(Error::Parameter { op, arg: "kept", required, got });
        }
        for of in &results.kept {
            if of.c.is_some() != wanted.c.is_some() {
                let of_kind = |is_lstm| if is_lstm { "of an LSTM" } else { "of a GRU" }.to_owned();
                let (required, got) = (of_kind(wanted.c.is_some()), of_kind(of.c.is_some()));
                return Err(Error::Parameter { op, arg: "kept", required, got });
            }
            for (tensor, wanted) in of.tensors().zip(wanted.tensors()) {
                like("kept", tensor, wanted.shape())?;
            }
        }
    }
    for (arg, given, wanted) in [
        ("dy", upstream.dy, &problem.y),
        ("dh_n", upstream.dh_n, &problem.state),
        ("dc_n", upstream.dc_n, &problem.state),
    ] {
        if let Some(given) = given {
            like(arg, given, wanted.shape())?;
        }
    }
    let here = Here::new(op, x, parameters)?;
    check(&problem, here.lengths.as_ref())?;
    let turned =
        |tensor: &Tensor| if problem.batch_first { tensor.transpose(0, 1) } else { Ok(tensor.clone()) };
    let adopted = |tensor: &Tensor, arg| tensor.adopted(x.device(), op, arg);
    let y = turned(&adopted(&results.y, "y")?)?;
    let inner: Vec<Tensor> = (results.inner.iter().enumerate())
        .map(|(layer, inner)| adopted(inner, inner_name(layer)))
        .collect::<Result<_>>()?;
    let kept: Vec<Kept> =
        results.kept.iter().map(|kept| kept.adopted(x.device(), op)).collect::<Result<_>>()?;
    let of_states = |given: Option<&Tensor>, arg| given.map(|given| adopted(given, arg)).transpose();
    let (dh_n, dc_n) = (of_states(upstream.dh_n, "dh_n")?, of_states(upstream.dc_n, "dc_n")?);
    let mut dy = upstream.dy.map(|dy| turned(&adopted(dy, "dy")?)).transpose()?;
    let dh0 = uninit(&problem.state)?;
    let dc0 = if kind == Kind::Lstm { Some(uninit(&problem.state)?) } else { None };
    let mut layers = Vec::new();
    let mut dx = None;
    for layer in (0..problem.layers).rev() {
        // Copied once for all products of both directions, where it must be. What goes into other layers is 0 behind the lengths.
        let first_x = match &here.lengths {
            _ if layer > 0 => None,
            Some(lengths) => Some(backward::within_lengths(op, &here.x, lengths)?),
            None => Some(steps_of_rows(&here.x)?),
        };
        let x = first_x.as_ref().unwrap_or_else(|| &inner[layer - 1]);
        let y = inner.get(layer).unwrap_or(&y);
        let mut sum = None;
        for direction in (0..problem.directions).rev() {
            let index = layer * problem.directions + direction;
            let part = |of: &Tensor| of.narrow(2, direction * problem.hidden, problem.hidden);
            let own = |of: &Option<Tensor>| of.as_ref().map(|of| state(&problem, of, index)).transpose();
            let (h0, c0) = (own(&here.h0)?, own(&here.c0)?);
            let of = Layer {
                op,
                kind,
                x,
                weights: here.layers[index].weights(),
                h0: h0.as_ref(),
                c0: c0.as_ref(),
                lengths: here.lengths.as_ref(),
                reverse: direction == 1,
                tf32: parameters.tf32,
            };
            let upward = Upward { dy: dy.as_ref().map(part).transpose()?, dh: own(&dh_n)?, dc: own(&dc_n)? };
            let back = backward::run(&of, &plan, (&part(y)?, kept.get(index)), upward, sum.as_ref())?;
            ops::cast_into(&back.dh, &state(&problem, &dh0, index)?)?;
            if let (Some(dc0), Some(dc)) = (own(&dc0)?, &back.dc) {
                ops::cast_into(dc, &dc0)?;
            }
            sum = Some(back.dx);
            layers.push(back.weights);
        }
        dy = sum.clone();
        dx = sum;
    }
    layers.reverse();
    let dx = dx.ok_or(Error::State { op, reason: "there are no layers" })?;
    let dx = if problem.batch_first { super::dense(&dx.transpose(0, 1)?)? } else { dx };
    Ok(RecurrentGradients { dx, dh0, dc0, layers })
}
