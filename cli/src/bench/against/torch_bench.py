"""PyTorch's side of `warpwright bench --against torch`.

Reads a case a line, as JSON, from the standard input, and answers each with a line of JSON:

    {"op": "gelu", "shape": [4096, 4096], "dtype": "bf16", "sets": 32, "compile": true}
    {"us": {"eager": 21.7, "compile": 20.9}}    or    {"error": "..."}    or both of them

The first line that it writes says which PyTorch it is. Times are medians of CUDA-graph replays of calls that
rotate through `sets` sets of tensors, as on the other side. `--check` instead runs every operation once on the
CPU, on small tensors.

To add an operation, write a function that takes a Case and returns a Work, and list it in OPS.
"""

import json
import math
import os
import sys
from time import perf_counter

CALLS, REPLAYS = 16, 9
EPS = 1e-5


class Case:
    """What the other side says of a case, and the tensors for it."""

    def __init__(self, facts, device):
        self.facts, self.device = facts, device
        self.shape, self.sets = tuple(facts["shape"]), facts["sets"]
        self.dtype = dtype_of(facts["dtype"])
        self.width, self.rows = self.shape[-1], self.shape[:-1]

    def get(self, name, default=None):
        return self.facts.get(name, default)

    def numbers(self, *shape, dtype=None):
        """A random tensor: of the case's shape and type unless it says otherwise."""
        dtype = dtype or self.dtype
        if not dtype.is_floating_point:
            return torch.randint(-128, 128, shape or self.shape, device=self.device, dtype=dtype)
        return torch.randn(shape or self.shape, device=self.device, dtype=dtype)

    def indices(self, end, *shape):
        return torch.randint(0, end, shape, device=self.device)

    def words(self, end, *shape):
        """As `indices`, as often as words are in a text: Zipf's law, as on the other side."""
        places = torch.rand(shape, device=self.device, dtype=torch.float64) * math.log(end + 1)
        return (places.exp() - 1).clamp(max=end - 1).long()

    def each(self, make):
        """A tuple of arguments for each set."""
        return [make() for _ in range(self.sets)]


class Work:
    """A function and, for each set, its arguments. `others` are further functions of the same arguments that
    are timed, by name."""

    def __init__(self, function, arguments, **others):
        self.function, self.arguments, self.others = function, arguments, others


def dtype_of(name):
    types = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    return (types | {"i8": torch.int8})[name]


def masked_softmax(case):
    if case.get("dropout"):
        # As a model that is trained keeps them: the probabilities, what was kept, and the result.
        def dropped(x):
            probabilities = torch.softmax(x * case.get("scale"), -1)
            return probabilities, *torch.native_dropout(probabilities, case.get("dropout"), True)

        return Work(dropped, case.each(lambda: (case.numbers(),)))
    (b, h, q, k), mask = case.shape, case.get("mask", "none")
    scale = case.get("scale", 1.0)

    def none(x, _):
        return torch.softmax(x * scale, -1)

    def drop(x, drop):
        return torch.softmax((x * scale).masked_fill(drop, float("-inf")), -1)

    def bias(x, bias):
        return torch.softmax(x * scale + bias, -1)

    def lengths(x, lengths):
        columns = torch.arange(k, device=x.device)
        return torch.softmax((x * scale).masked_fill(columns >= lengths, float("-inf")), -1)

    masks = {
        "none": lambda: None,
        "keep": lambda: torch.rand(b, 1, q, k, device=case.device) < 0.2,
        "bias": lambda: case.numbers(b, 1, q, k),
        "lengths": lambda: case.indices(k + 1, b, h, q, 1),
    }
    function = {"none": none, "keep": drop, "bias": bias, "lengths": lengths}[mask]
    # Beside the whole, the softmax alone: one kernel of PyTorch's, which does less.
    return Work(
        function,
        case.each(lambda: (case.numbers(), masks[mask]())),
        softmax=lambda x, _: torch.softmax(x, -1),
    )


def masked_softmax_backward(case):
    scale = case.get("scale", 1.0)
    if case.get("dropout"):
        def dropped(dy, y, kept):
            dy = aten.native_dropout_backward(dy, kept, 1 / (1 - case.get("dropout")))
            return aten._softmax_backward_data(dy, y, -1, y.dtype) * scale

        def arguments():
            return case.numbers(), torch.softmax(case.numbers(), -1), torch.rand_like(case.numbers()) < 0.9

        return Work(dropped, case.each(arguments))

    def function(dy, y):
        return aten._softmax_backward_data(dy, y, -1, y.dtype) * scale

    return Work(function, case.each(lambda: (case.numbers(), torch.softmax(case.numbers(), -1))))


def gelu(case):
    form = case.get("approximate", "none")
    return Work(lambda x: F.gelu(x, approximate=form), case.each(lambda: (case.numbers(),)))


def bias_gelu(case):
    form = case.get("approximate", "none")
    arguments = case.each(lambda: (case.numbers(), case.numbers(case.width)))
    return Work(lambda x, bias: F.gelu(x + bias, approximate=form), arguments)


def gelu_backward(case):
    form = case.get("approximate", "none")
    arguments = case.each(lambda: (case.numbers(), case.numbers()))
    return Work(lambda dy, x: aten.gelu_backward(dy, x, approximate=form), arguments)


def bias_gelu_backward(case):
    form = case.get("approximate", "none")

    def function(dy, x, bias):
        dx = aten.gelu_backward(dy, x + bias, approximate=form)
        return dx, dx.reshape(-1, case.width).sum(0)

    return Work(function, case.each(lambda: (case.numbers(), case.numbers(), case.numbers(case.width))))


def layer_norm(case):
    arguments = case.each(lambda: (case.numbers(), case.numbers(case.width), case.numbers(case.width)))
    # With mean and rstd, which ours writes too; eager does in any case, a compiled layer norm only where they are asked for.
    return Work(lambda x, weight, bias: aten.native_layer_norm(x, [case.width], weight, bias, EPS), arguments)


def add_layer_norm(case):
    def function(x, residual, weight, bias):
        total = F.dropout(x, case.get("dropout")) + residual if case.get("dropout") else x + residual
        return total, *aten.native_layer_norm(total, [case.width], weight, bias, EPS)

    def arguments():
        return case.numbers(), case.numbers(), case.numbers(case.width), case.numbers(case.width)

    return Work(function, case.each(arguments))


def layer_norm_arguments(case):
    x, weight, bias = case.numbers(), case.numbers(case.width), case.numbers(case.width)
    _, mean, rstd = aten.native_layer_norm(x, [case.width], weight, bias, EPS)
    return case.numbers(), x, mean, rstd, weight, bias


def layer_norm_backward(case):
    def function(dy, x, mean, rstd, weight, bias):
        return aten.native_layer_norm_backward(dy, x, [case.width], mean, rstd, weight, bias, [True] * 3)

    return Work(function, case.each(lambda: layer_norm_arguments(case)))


def add_layer_norm_backward(case):
    def function(dtotal, dy, total, mean, rstd, weight, bias):
        dx, dweight, dbias = aten.native_layer_norm_backward(
            dy, total, [case.width], mean, rstd, weight, bias, [True] * 3
        )
        return dx + dtotal, dweight, dbias

    return Work(function, case.each(lambda: (case.numbers(), *layer_norm_arguments(case))))


def normalized(x, weight, width):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (width,), weight, EPS)
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight


def rms_norm(case):
    arguments = case.each(lambda: (case.numbers(), case.numbers(case.width)))
    return Work(lambda x, weight: normalized(x, weight, case.width), arguments)


def add_rms_norm(case):
    def function(x, residual, weight):
        total = x + residual
        return total, normalized(total, weight, case.width)

    return Work(function, case.each(lambda: (case.numbers(), case.numbers(), case.numbers(case.width))))


def rms_norm_gradients(dy, x, rstd, weight, width):
    # As autograd would, in f32: there is no one function of PyTorch's that is there in every version.
    hat, wide = x.float() * rstd, dy.float()
    scaled = wide * weight.float()
    dx = rstd * (scaled - hat * (scaled * hat).mean(-1, keepdim=True))
    return dx.to(x.dtype), (wide * hat).reshape(-1, width).sum(0).to(weight.dtype)


def rms_norm_arguments(case):
    x = case.numbers()
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS)
    return case.numbers(), x, rstd, case.numbers(case.width)


def rms_norm_backward(case):
    def function(dy, x, rstd, weight):
        return rms_norm_gradients(dy, x, rstd, weight, case.width)

    return Work(function, case.each(lambda: rms_norm_arguments(case)))


def add_rms_norm_backward(case):
    def function(dtotal, dy, total, rstd, weight):
        dx, dweight = rms_norm_gradients(dy, total, rstd, weight, case.width)
        return dx + dtotal, dweight

    return Work(function, case.each(lambda: (case.numbers(), *rms_norm_arguments(case))))


def steps_of(case):
    """The most steps of a sequence, and with packed sequences (`lengths`) the step of each token."""
    lengths = case.get("lengths")
    if not lengths:
        return case.rows[-1], None
    return max(lengths), torch.cat([torch.arange(length) for length in lengths]).to(case.device)


def embedding(case):
    """The shape is the result's; `vocabulary` the rows of the table, `wpe` whether positions are added."""
    words, (steps, places) = case.get("vocabulary", 50257), steps_of(case)
    table, positions = case.numbers(words, case.width), case.numbers(steps, case.width)

    def tokens(ids):
        return F.embedding(ids, table)

    def tokens_and_positions(ids):
        return F.embedding(ids, table) + positions

    def tokens_and_places(ids):
        return F.embedding(ids, table) + F.embedding(places, positions)

    function = tokens_and_positions if case.get("wpe") else tokens
    return Work(function if places is None else tokens_and_places, case.each(lambda: (case.indices(words, *case.rows),)))


def embedding_backward(case):
    """The shape is dy's; the tokens are a text's. With `wpe`, the gradient of the positions too."""
    words, (steps, places) = case.get("vocabulary", 50257), steps_of(case)
    arguments = case.each(lambda: (case.numbers(), case.words(words, *case.rows)))

    def tokens(dy, ids):
        return aten.embedding_dense_backward(dy, ids, words, -1, False)

    def tokens_and_positions(dy, ids):
        return tokens(dy, ids), dy.reshape(-1, case.rows[-1], case.width).sum(0)

    def tokens_and_places(dy, ids):
        return tokens(dy, ids), aten.embedding_dense_backward(dy, places, steps, -1, False)

    function = tokens_and_positions if case.get("wpe") else tokens
    return Work(function if places is None else tokens_and_places, arguments)


def cross_entropy(case):
    """The shape is that of the logits, [.., classes]."""
    facts = {
        "reduction": case.get("reduction", "none"),
        "ignore_index": case.get("ignore_index", -100),
        "label_smoothing": case.get("label_smoothing", 0.0),
    }

    def function(x, labels):
        return F.cross_entropy(x.reshape(-1, case.width), labels.reshape(-1), **facts)

    return Work(function, case.each(lambda: (case.numbers(), case.indices(case.width, *case.rows))))


def cross_entropy_backward(case):
    """From the logits, as a fused kernel does: probabilities less one at the label, times the loss's gradient."""

    def function(x, labels, dloss):
        logits = x.reshape(-1, case.width)
        logp = aten._log_softmax(logits, 1, False)
        total = torch.zeros((), device=logits.device, dtype=logits.dtype)
        gradient = aten.nll_loss_backward(dloss, logp, labels.reshape(-1), None, 0, -100, total)
        return aten._log_softmax_backward_data(gradient, logp, 1, logits.dtype)

    def arguments():
        rows = 1
        for extent in case.rows:
            rows *= extent
        return case.numbers(), case.indices(case.width, *case.rows), case.numbers(rows)

    return Work(function, case.each(arguments))


def add(case):
    return Work(lambda a, b: a + b, case.each(lambda: (case.numbers(), case.numbers())))


def dropout(case):
    p = case.get("p", 0.1)
    return Work(lambda x: F.dropout(x, p, training=True), case.each(lambda: (case.numbers(),)))


def dropout_backward(case):
    p = case.get("p", 0.1)
    scale = 1 / (1 - p)

    def arguments():
        dy = case.numbers()
        return dy, torch.rand_like(dy) >= p

    # From a mask in memory: PyTorch does not draw the numbers again.
    return Work(lambda dy, mask: aten.native_dropout_backward(dy, mask, scale), case.each(arguments))


def cast(case):
    to = dtype_of(case.get("to", "bf16"))
    return Work(lambda x: x.to(to), case.each(lambda: (case.numbers(),)))


def permute(case):
    dims = case.get("dims", tuple(reversed(range(len(case.shape)))))
    return Work(lambda x: x.permute(dims).contiguous(), case.each(lambda: (case.numbers(),)))


def split_heads(case):
    def function(x, bias):
        return (x if bias is None else x + bias).permute(2, 0, 3, 1, 4).contiguous()

    def arguments():
        return case.numbers(), case.numbers(*case.shape[2:]) if case.get("bias") else None

    return Work(function, case.each(arguments))


def merge_heads(case):
    def function(x, bias):
        rows = x.permute(1, 3, 0, 2, 4)
        return rows.contiguous() if bias is None else (rows + bias).contiguous()

    def arguments():
        p, _, h, _, d = case.shape
        return case.numbers(), case.numbers(p, h, d) if case.get("bias") else None

    return Work(function, case.each(arguments))


def transpose_in_place(case):
    return Work(lambda x: x.copy_(x.transpose(-1, -2).contiguous()), case.each(lambda: (case.numbers(),)))


def copy(case):
    # An elementwise kernel; a graph's own copy node is slower.
    return Work(lambda x: torch.add(x, 0), case.each(lambda: (case.numbers(),)))


def matmul(case):
    """The shape is [batch.., m, n, k]."""
    *batch, m, n, k = case.shape
    swap_a, swap_b = case.get("transpose_a", False), case.get("transpose_b", False)
    tf32 = case.get("tf32", False)

    def function(a, b):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        y = torch.matmul(a.mT if swap_a else a, b.mT if swap_b else b)
        torch.backends.cuda.matmul.allow_tf32 = False
        return y

    def arguments():
        a, b = ((k, m) if swap_a else (m, k)), ((n, k) if swap_b else (k, n))
        return case.numbers(*batch, *a), case.numbers(*batch, *b)

    return Work(function, case.each(arguments))


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: F.relu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": lambda x: F.gelu(x),
}


def matmul_backward(case):
    """The shape is [batch.., m, n, k]: the gradients of a and b as these lie."""
    *batch, m, n, k = case.shape
    swap_a, swap_b = case.get("transpose_a", False), case.get("transpose_b", False)

    def function(a, b, dy):
        rows_a, rows_b = (a.mT if swap_a else a), (b.mT if swap_b else b)
        da = rows_b @ dy.mT if swap_a else dy @ rows_b.mT
        db = dy.mT @ rows_a if swap_b else rows_a.mT @ dy
        return da, db

    def arguments():
        a, b = ((k, m) if swap_a else (m, k)), ((n, k) if swap_b else (k, n))
        return case.numbers(*batch, *a), case.numbers(*batch, *b), case.numbers(*batch, m, n)

    return Work(function, case.each(arguments))


def linear(case):
    """The shape is [.., m, n, k]. Beside the whole, the product alone."""
    *batch, m, n, k = case.shape
    activate, residual = ACTIVATIONS[case.get("activation", "none")], case.get("residual", False)
    heads = case.get("heads")

    def function(x, weight, bias, added):
        y = activate(F.linear(x, weight, bias))
        if heads:
            # Queries, keys and values of sequences, each by heads.
            return y.view(*batch, m, 3, heads, -1).permute(2, 0, 3, 1, 4).contiguous()
        return y + added if residual else y

    def arguments():
        added = case.numbers(m, n) if residual else None
        return case.numbers(*batch, m, k), case.numbers(n, k), case.numbers(n), added

    return Work(function, case.each(arguments), product=lambda x, weight, *_: F.linear(x, weight))


def linear_backward(case):
    """The shape is [.., m, n, k]; the slopes are taken at what the activation got."""
    *_, m, n, k = case.shape
    slopes = {
        "none": lambda dy, pre: dy,
        "relu": lambda dy, pre: aten.threshold_backward(dy, pre, 0),
        "gelu_tanh": lambda dy, pre: aten.gelu_backward(dy, pre, approximate="tanh"),
        "gelu_erf": lambda dy, pre: aten.gelu_backward(dy, pre, approximate="none"),
    }[case.get("activation", "none")]

    def function(x, weight, dy, pre):
        d = slopes(dy, pre)
        return d @ weight, d.mT @ x, d.sum(0)

    def arguments():
        return case.numbers(m, k), case.numbers(n, k), case.numbers(m, n), case.numbers(m, n)

    return Work(function, case.each(arguments))


def attention_scores(case):
    """The shape is [b, h, q, k, d]: b * h products of q queries and k keys of d numbers."""
    (*front, q, k, d), mask = case.shape, case.get("mask", "none")
    b, scale = front[0], d**-0.5

    def scores(queries, keys):
        return torch.matmul(queries, keys.mT) * scale

    def dropped(scores, drop):
        return torch.softmax(scores.masked_fill(drop, float("-inf")), -1)

    def kept(*shape):
        return torch.rand(*shape, device=case.device) < 0.2

    columns, rows = torch.arange(k, device=case.device), torch.arange(q, device=case.device)
    future = columns > rows[:, None] + k - q
    function, make = {
        "none": (lambda x, _: torch.softmax(x, -1), lambda: None),
        "keys": (dropped, lambda: kept(b, 1, 1, k)),
        "keep": (dropped, lambda: kept(b, 1, q, k)),
        "bias": (lambda x, bias: torch.softmax(x + bias, -1), lambda: case.numbers(b, 1, q, k)),
        "key_bias": (lambda x, bias: torch.softmax(x + bias, -1), lambda: case.numbers(b, 1, 1, k)),
        "lengths": (lambda x, end: dropped(x, columns >= end), lambda: case.indices(k + 1, b, 1, 1, 1)),
        "causal": (dropped, lambda: future),
    }[mask]

    def arguments():
        return case.numbers(*front, q, d), case.numbers(*front, k, d), make()

    return Work(lambda queries, keys, mask: function(scores(queries, keys), mask), case.each(arguments))


def cell_of(case, module, backward=False):
    """The shape is [.., batch, inputs, hidden]. `launched` is without a graph, as most programs are."""
    b, i, h = case.shape[-3:]
    module = module(i, h, device=case.device, dtype=case.dtype)
    is_lstm = isinstance(module, torch.nn.LSTMCell)

    def forward(x, h, c, _):
        with torch.no_grad():
            return module(x, (h, c) if is_lstm else h)

    def both(x, h, c, dh):
        y = module(x, (h, c) if is_lstm else h)
        of = [x, h, *([c] if is_lstm else []), *module.parameters()]
        return torch.autograd.grad(y[0] if is_lstm else y, of, dh)

    def arguments():
        states = [case.numbers(b, n).requires_grad_(backward) for n in (i, h, h)]
        return *states, case.numbers(b, h)

    function = both if backward else forward
    return Work(function, case.each(arguments), launched=function)


def gru_cell(case):
    return cell_of(case, torch.nn.GRUCell)


def lstm_cell(case):
    return cell_of(case, torch.nn.LSTMCell)


def gru_cell_backward(case):
    """Forward and backward."""
    return cell_of(case, torch.nn.GRUCell, backward=True)


def lstm_cell_backward(case):
    """Forward and backward."""
    return cell_of(case, torch.nn.LSTMCell, backward=True)


def gates_of(case, gates, function):
    """The shape is [.., batch, hidden]."""
    b, h = case.shape[-2:]

    def arguments():
        return [case.numbers(b, n) for n in (gates * h, gates * h, h, h)]

    return Work(function, case.each(arguments))


def gru_step(gx, gh, h):
    (xr, xz, xn), (hr, hz, hn) = gx.chunk(3, -1), gh.chunk(3, -1)
    z, n = torch.sigmoid(xz + hz), torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return n + z * (h - n)


def lstm_step(gx, gh, c):
    i, f, g, o = (gx + gh).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_cell_pointwise(case):
    """On a GPU PyTorch's own fused kernel."""
    fused = case.device == "cuda"
    return gates_of(case, 3, lambda gx, gh, h, _: aten._thnn_fused_gru_cell(gx, gh, h) if fused else gru_step(gx, gh, h))


def lstm_cell_pointwise(case):
    """On a GPU PyTorch's own fused kernel."""
    fused = case.device == "cuda"
    return gates_of(case, 4, lambda gx, gh, c, _: aten._thnn_fused_lstm_cell(gx, gh, c) if fused else lstm_step(gx, gh, c))


def gru_cell_pointwise_backward(case):
    """Forward and backward by autograd."""

    def function(gx, gh, h, dh):
        of = [t.detach().requires_grad_() for t in (gx, gh, h)]
        return torch.autograd.grad(gru_step(*of), of, dh)

    return gates_of(case, 3, function)


def lstm_cell_pointwise_backward(case):
    """Forward and backward by autograd."""

    def function(gx, gh, c, dh):
        of = [t.detach().requires_grad_() for t in (gx, gh, c)]
        return torch.autograd.grad(lstm_step(*of)[0], of, dh)

    return gates_of(case, 4, function)


def sequence_of(case, module, backward=False):
    """The shape is [steps, batch, inputs, hidden]: cuDNN. `launched` is without a graph, as most programs are.

    cuDNN rounds f32 operands to tf32 unless it is told not to: it does where the case may."""
    t, b, i, h = case.shape
    module = module(i, h, device=case.device, dtype=case.dtype)

    def forward(x, _):
        torch.backends.cudnn.allow_tf32 = case.get("tf32", False)
        with torch.no_grad():
            return module(x)

    def both(x, dy):
        torch.backends.cudnn.allow_tf32 = case.get("tf32", False)
        return torch.autograd.grad(module(x)[0], [x, *module.parameters()], dy)

    def arguments():
        return case.numbers(t, b, i).requires_grad_(backward), case.numbers(t, b, h)

    function = both if backward else forward
    return Work(function, case.each(arguments), launched=function)


def gru(case):
    return sequence_of(case, torch.nn.GRU)


def lstm(case):
    return sequence_of(case, torch.nn.LSTM)


def gru_backward(case):
    """Forward and backward."""
    return sequence_of(case, torch.nn.GRU, backward=True)


def lstm_backward(case):
    """Forward and backward."""
    return sequence_of(case, torch.nn.LSTM, backward=True)


OPS = {
    "masked_softmax": masked_softmax,
    "masked_softmax_backward": masked_softmax_backward,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "bias_gelu": bias_gelu,
    "bias_gelu_backward": bias_gelu_backward,
    "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward,
    "add_layer_norm": add_layer_norm,
    "add_layer_norm_backward": add_layer_norm_backward,
    "rms_norm": rms_norm,
    "rms_norm_backward": rms_norm_backward,
    "add_rms_norm": add_rms_norm,
    "add_rms_norm_backward": add_rms_norm_backward,
    "embedding": embedding,
    "embedding_backward": embedding_backward,
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "add": add,
    "dropout": dropout,
    "dropout_backward": dropout_backward,
    "cast": cast,
    "permute": permute,
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "transpose_in_place": transpose_in_place,
    "matmul": matmul,
    "matmul_backward": matmul_backward,
    "linear": linear,
    "linear_backward": linear_backward,
    "attention_scores": attention_scores,
    "gru_cell": gru_cell,
    "gru_cell_backward": gru_cell_backward,
    "gru_cell_pointwise": gru_cell_pointwise,
    "gru_cell_pointwise_backward": gru_cell_pointwise_backward,
    "lstm_cell": lstm_cell,
    "lstm_cell_backward": lstm_cell_backward,
    "lstm_cell_pointwise": lstm_cell_pointwise,
    "lstm_cell_pointwise_backward": lstm_cell_pointwise_backward,
    "gru": gru,
    "gru_backward": gru_backward,
    "lstm": lstm,
    "lstm_backward": lstm_backward,
    "copy": copy,
}


def time(sets, run):
    """Microseconds a call of run(set)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(min(sets, 4)):
            run(i)
    torch.cuda.synchronize()
    graph, calls = torch.cuda.CUDAGraph(), -(-CALLS // sets) * sets
    # Results are held until their set's next turn, so that they rotate too.
    held = [None] * sets
    with torch.cuda.graph(graph):
        for call in range(calls):
            held[call % sets] = run(call % sets)
    graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) * 1e3 / calls for a, b in zip(marks, marks[1:]))
    return times[len(times) // 2]


def time_launched(sets, run):
    """Microseconds a call of run(set), launched by the host each time."""
    times = []
    for call in range(2 + REPLAYS):
        torch.cuda.synchronize()
        begun = perf_counter()
        run(call % sets)
        torch.cuda.synchronize()
        times.append((perf_counter() - begun) * 1e6)
    times = sorted(times[2:])
    return times[len(times) // 2]


def answer(facts):
    if facts["op"] not in OPS:
        raise LookupError(f"no {facts['op']} in OPS")
    case = Case(facts, "cuda")
    work = OPS[facts["op"]](case)
    us = {"eager": time(case.sets, lambda i: work.function(*work.arguments[i]))}
    for name, function in work.others.items():
        clock = time_launched if name == "launched" else time
        us[name] = clock(case.sets, lambda i: function(*work.arguments[i]))
    # A fresh compilation for each case, as a user with fixed shapes would have, and for some cases one for any shape, which PyTorch makes
    # once it has seen a second.
    for name, dynamic in ("compile", False), ("compile_dynamic", True):
        if not facts.get(name):
            continue
        try:
            torch._dynamo.reset()
            compiled = torch.compile(work.function, mode="default", dynamic=dynamic)
            us[name] = time(case.sets, lambda i: compiled(*work.arguments[i]))
        except Exception as error:  # the other times stand
            return {"us": us, "error": "torch.compile: " + one_line(error)}
    return {"us": us}


def one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# Answers have the standard output for themselves: what libraries print goes where errors go.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(what):
    print(json.dumps(what), file=ANSWERS, flush=True)


def serve():
    for line in sys.stdin:
        try:
            said = answer(json.loads(line))
        except Exception as error:  # the next case may do better
            said = {"error": one_line(error)}
        say(said)
        torch.cuda.empty_cache()


def check():
    """Each operation once, on the CPU."""
    failed = 0
    for name, make in OPS.items():
        for extra in ({}, {"mask": "keep"}, {"mask": "lengths"}, {"mask": "bias"}):
            shape = {"split_heads": [2, 3, 3, 4, 8], "merge_heads": [3, 2, 4, 3, 8], "transpose_in_place": [2, 8, 8]}
            shape["attention_scores"] = [2, 3, 4, 8, 16]
            facts = {"op": name, "shape": shape.get(name, [2, 3, 4, 8]), "dtype": "f32", "sets": 2, "vocabulary": 9, **extra}
            work = make(Case(facts, "cpu"))
            for function in (work.function, *work.others.values()):
                try:
                    function(*work.arguments[1])
                except Exception as error:
                    failed += 1
                    print(f"{name} {extra}: {one_line(error)}")
    print(f"{len(OPS)} operations, {failed} failures")
    return failed


try:
    import torch
    import torch.nn.functional as F

    aten = torch.ops.aten
except Exception as error:  # a broken installation fails in many ways
    say({"error": f"PyTorch cannot be imported: {one_line(error)}"})
    sys.exit(1)

if "--check" in sys.argv:
    sys.exit(check() != 0)
if not torch.cuda.is_available():
    say({"error": f"PyTorch {torch.__version__} sees no GPU"})
    sys.exit(1)
if len(sys.argv) > 1:
    torch.cuda.set_device(int(sys.argv[1]))
say({"torch": torch.__version__})
serve()
