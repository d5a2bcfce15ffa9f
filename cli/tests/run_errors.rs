//! Every mistake is told in one line, sets the exit status, and leaves no output behind.

mod common;

use std::path::Path;

use common::{Folder, data, load, stderr, stdout, tensor, warpwright};
use warpwright::{DType, Device, Tensor};

/// Runs the words, where `{}` stands for the folder; gives the exit status and the error's text, with
/// `{}` for the folder again. Nothing may be written.
fn failure(folder: &Folder, line: &str) -> (i32, String) {
    let before = folder.names();
    let dir = folder.path("").display().to_string();
    let dir = dir.trim_end_matches('/');
    let output = warpwright(line.replace("{}", dir).split_whitespace());
    let text = stderr(&output);
    assert_eq!(stdout(&output), "", "{line}");
    assert_eq!(folder.names(), before, "{line}");
    assert_eq!(text.lines().count(), 1, "{line}: {text}");
    let text = text.trim_end().strip_prefix("error: ").unwrap_or_else(|| panic!("{line}: {text}"));
    (output.status.code().unwrap(), text.replace(dir, "{}"))
}

fn x() -> warpwright::Tensor {
    tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])
}

#[test]
fn mistakes_on_the_command_line_exit_with_2() {
    let folder = Folder::new();
    folder.file("x", &[("x", x())]);
    let known = "known are `scale`, `causal`, `causal_offset`, `packed_keys`, `p`, `seed` and `offset`";
    let operations = "`masked_softmax`, `gelu`, `gelu_backward`, `bias_gelu`, `bias_gelu_backward`, `add`, `cast`, \
                      `dropout`, `dropout_backward`, `embedding`, `embedding_backward`, `layer_norm`, \
                      `layer_norm_backward`, `add_layer_norm`, `add_layer_norm_backward`, `rms_norm`, \
                      `rms_norm_backward`, `masked_softmax_backward`, `cross_entropy`, \
                      `cross_entropy_backward`, `matmul`, `matmul_backward`, `linear`, `linear_backward`, `attention_scores`, `permute`, `split_heads`, \
                      `merge_heads`, `transpose_in_place`, `gru_cell`, `gru_cell_backward`, `gru_cell_pointwise`, \
                      `gru_cell_pointwise_backward`, `lstm_cell`, `lstm_cell_backward`, `lstm_cell_pointwise`, \
                      `lstm_cell_pointwise_backward`, `gru`, `gru_backward`, `lstm` and `lstm_backward`";
    for (words, want) in [
        ("run softmax --device cpu", format!("unknown operation `softmax`: known are {operations}")),
        ("run masked_softmax --device gpu", "unknown device `gpu`: known are `cpu`, `cuda` and `cuda:N`".into()),
        ("run masked_softmax --device cuda:x", "unknown device `cuda:x`: known are `cpu`, `cuda` and `cuda:N`".into()),
        ("run masked_softmax --device cuda --check full", "`--check` is for the CPU device, got device `cuda`".into()),
        ("run masked_softmax --set scal=1", format!("masked_softmax: unknown parameter `scal`: {known}")),
        (
            "run masked_softmax --set scale",
            "masked_softmax: `--set scale` must be `key=value`: known keys are `scale`, `causal`, `causal_offset`, `packed_keys`, `p`, `seed` and `offset`".into(),
        ),
        (
            "run masked_softmax --set scale=1 --set scale=2",
            "masked_softmax: parameter `scale` is given twice: `1` and `2`".into(),
        ),
        ("run masked_softmax --set scale=big", "masked_softmax: parameter `scale` must be a number, got `big`".into()),
        (
            "run masked_softmax --set scale=1e-46",
            "masked_softmax: parameter `scale` must be a number that f32 can hold, got `1e-46`".into(),
        ),
        (
            "run masked_softmax --set scale=1e39",
            "masked_softmax: parameter `scale` must be a number that f32 can hold, got `1e39`".into(),
        ),
        ("run gelu --device cpu", "gelu: parameter `approximate` is required: `--set approximate=` tanh or none".into()),
        ("run cast --set dtype=f64", "cast: parameter `dtype` must be f32, f16 or bf16, got `f64`".into()),
        (
            "run masked_softmax --device cpu --set causal_offset=1",
            "masked_softmax: parameter `causal_offset` needs `causal=true`".into(),
        ),
    ] {
        let got = failure(&folder, &format!("{words} --in {{}}/x --out {{}}/y"));
        assert_eq!(got, (2, want), "{words}");
    }
    let required =
        "the following required arguments were not provided: --out <FILE> (see `warpwright --help`)";
    assert_eq!(failure(&folder, "run masked_softmax --in {}/x"), (2, required.into()));
    let unnamed = "`NAME`, the operation, is required (see `warpwright run --help`)";
    assert_eq!(failure(&folder, "run --in {}/x --out {}/y --set scale=1"), (2, unnamed.into()));
    let unknown = failure(&folder, "run --in {}/x --out {}/y --set scale=1 softmx");
    assert!(unknown.0 == 2 && unknown.1.starts_with("unknown operation `softmx`"), "{}", unknown.1);
    assert_eq!(failure(&folder, "").0, 2);
    assert_eq!(failure(&folder, "demo --check most").0, 2);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = Folder::new();
    let whole = std::fs::read(data("minilm_layer0.safetensors")).unwrap();
    std::fs::write(folder.path("corrupt"), [&[0xff; 16], &whole[16..]].concat()).unwrap();
    std::fs::write(folder.path("truncated"), &whole[..whole.len() - 1]).unwrap();
    std::fs::write(folder.path("empty"), "").unwrap();
    std::fs::create_dir(folder.path("folder")).unwrap();
    for (file, want) in [
        ("corrupt", "{}/corrupt: not a safetensors file that can be read: "),
        ("truncated", "{}/truncated: not a safetensors file that can be read: "),
        ("empty", "{}/empty: not a safetensors file that can be read: "),
        ("missing", "{}/missing: cannot read: No such file or directory"),
        ("folder", "{}/folder: cannot read: Is a directory"),
    ] {
        let (status, text) =
            failure(&folder, &format!("run masked_softmax --device cpu --in {{}}/{file} --out {{}}/y"));
        assert!(status == 1 && text.starts_with(want), "{status} {text}");
        assert_eq!(text.matches("No such file").count(), usize::from(file == "missing"), "told once: {text}");
    }
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let folder = Folder::new();
    let keep = || tensor(&[3], &[1u8, 1, 0]);
    folder.file("int", &[("x", tensor(&[2], &[1i32, 2]))]);
    folder.file("scores", &[("scores", x())]);
    folder.file("mask", &[("keep", keep())]);
    folder.file("both", &[("x", x()), ("keep", keep()), ("drop", keep())]);
    folder.file("long", &[("x", x()), ("lengths", tensor(&[2], &[3i32, 4]))]);
    folder.file("negative", &[("x", x()), ("starts", tensor(&[2], &[-1i32, 0]))]);
    folder.file("narrow", &[("x", x()), ("keep", tensor(&[2], &[1u8, 1]))]);
    folder.file("plain", &[("x", x())]);
    for (file, want) in [
        ("int", "masked_softmax: `x` must have dtype f32, f16 or bf16, got i32"),
        (
            "scores",
            "{}/scores: masked_softmax has no tensor `scores`: known are `x`, `keep`, `drop`, `bias`, `lengths`, `starts` and `cu_seqlens`",
        ),
        ("mask", "masked_softmax: tensor `x` is required: [.., K] f32, f16 or bf16; the input has `keep`"),
        (
            "both",
            "masked_softmax: at most one mask may be given: `keep`, `drop`, `bias`, `cu_seqlens`, or `lengths` and `starts`; the input has `drop` and `keep`",
        ),
        ("long", "masked_softmax: `lengths[1]` must be in 0..=3, got 4"),
        ("negative", "masked_softmax: `starts[0]` must be in 0..=3, got -1"),
        ("plain --in {}/plain", "tensor `x` is in two files: {}/plain and {}/plain"),
        ("plain --set scale=inf", "masked_softmax: `scale` must be finite, got inf"),
    ] {
        let line = format!("run masked_softmax --device cpu --in {{}}/{file} --out {{}}/y");
        // A parameter out of its range is the command line's mistake.
        let status = if file.contains("--set") { 2 } else { 1 };
        assert_eq!(failure(&folder, &line), (status, want.to_owned()), "{file}");
    }
    folder.file("product", &[("a", x()), ("b", x())]);
    let line = "run matmul --device cpu --in {}/product --set transpose_b=true beta=2 --out {}/y";
    assert_eq!(failure(&folder, line), (2, "matmul: parameter `beta` needs `c`".to_owned()));
    #[cfg(unix)]
    {
        std::os::unix::net::UnixListener::bind(folder.path("socket")).unwrap();
        let line = "run masked_softmax --device cpu --in {}/plain --out {}/socket";
        let want = "{}/socket: cannot write: what is there is not a file";
        assert_eq!(failure(&folder, line), (1, want.to_owned()));
    }
    folder.file("scores_of_both", &[("q", x()), ("k", x()), ("keep", keep()), ("drop", keep())]);
    let line = "run attention_scores --device cpu --in {}/scores_of_both --out {}/y";
    let want = "attention_scores: at most one mask may be given: `keep`, `drop`, `bias`, or `lengths` and `starts`; the \
                input has `drop` and `keep`";
    assert_eq!(failure(&folder, line), (1, want.to_owned()));
    let (status, text) = failure(&folder, "run masked_softmax --device cpu --in {}/narrow --out {}/y");
    assert!(status == 1 && text.starts_with("masked_softmax: `keep` must have shape "), "{text}");
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    folder.file("x", &[("x", x())]);
    let line = "run masked_softmax --device cpu --in {}/x --out {}/none/y";
    let want = "{}/none/y: cannot write: there is no folder {}/none";
    assert_eq!(failure(&folder, line), (1, want.into()));
    std::fs::create_dir(folder.path("taken")).unwrap();
    let (status, text) = failure(&folder, "run masked_softmax --device cpu --in {}/x --out {}/taken");
    assert!(status == 1 && text.starts_with("{}/taken: cannot write: "), "{text}");
}

#[test]
fn a_failure_leaves_the_earlier_output_as_it_was() {
    let folder = Folder::new();
    folder.file("y", &[("earlier", x())]);
    folder.file("long", &[("x", x()), ("lengths", tensor(&[2], &[3i32, 4]))]);
    assert_eq!(failure(&folder, "run masked_softmax --device cpu --in {}/long --out {}/y").0, 1);
    assert_eq!(load(&folder.path("y")).into_keys().collect::<Vec<_>>(), ["earlier"]);
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    let folder = Folder::new();
    folder.file("x", &[("x", x())]);
    let (status, text) = failure(&folder, "run masked_softmax --device cuda:4095 --in {}/x --out {}/y");
    let (driver, device) = ("no NVIDIA driver: ", "no CUDA device 4095: ");
    assert!(status == 1 && (text.starts_with(driver) || text.starts_with(device)), "{text}");
    match warpwright::driver_version() {
        Ok(_) => eprintln!("skipped: this machine has a driver"),
        Err(_) => {
            let (status, text) = failure(&folder, "run masked_softmax --device cuda --in {}/x --out {}/y");
            assert!(status == 1 && text.starts_with(driver), "{text}");
        }
    }
}

#[test]
fn missing_data_of_the_demo_is_an_error_with_its_remedy() {
    let folder = Folder::new();
    let want = "cannot find minilm_layer0.safetensors: looked in {}; name the folder with `--data DIR`";
    assert_eq!(failure(&folder, "demo --device cpu --data {}"), (1, want.into()));
    assert!(Path::new(&data("minilm_layer0.safetensors")).exists());
}

/// Tensors of which only the presence is asked for, or that one of two parameters makes needless, must fit all the same.
#[test]
fn what_is_not_read_must_fit() {
    let folder = Folder::new();
    let of = |shape: &[usize]| Tensor::zeros(&Device::cpu(), DType::F32, shape).unwrap();
    let norm = [("sum", of(&[2, 5])), ("dy", of(&[2, 5])), ("mean", of(&[2])), ("rstd", of(&[2]))];
    let with_bias = |bias: Tensor| norm.iter().cloned().chain([("input_bias", bias)]).collect::<Vec<_>>();
    folder.file("short", &with_bias(of(&[4])));
    folder.file("other", &with_bias(Tensor::zeros(&Device::cpu(), DType::F16, &[5]).unwrap()));
    let linear = [("x", of(&[3, 4])), ("weight", of(&[9, 4])), ("dy", of(&[3, 9])), ("pre", of(&[9, 9]))];
    folder.file("linear", &linear);
    let gates = ["w_ih", "w_hh", "w_ih_l1", "w_hh_l1"].map(|name| (name, of(&[12, 4])));
    let layers = [("x", of(&[2, 3, 4])), ("y", of(&[2, 3, 4])), ("dy", of(&[2, 3, 4]))];
    let layers: Vec<_> = layers.into_iter().chain(gates).collect();
    folder.file("layers", &layers);
    let and = |more: &[(&'static str, Tensor)]| [&layers[..], more].concat();
    folder.file("inner", &and(&[("y_l0", of(&[3, 2, 4]))]));
    folder.file("more", &and(&[("y_l0", of(&[2, 3, 4])), ("y_l1", of(&[2, 3, 4]))]));
    let [own, wide, short] = [&[12, 4][..], &[12, 8], &[12, 3]].map(of);
    let of_both = |w_ih_l1: &Tensor, w_hh_l1_reverse: &Tensor| {
        let names = ["w_ih_reverse", "w_hh_reverse", "w_ih_l1", "w_ih_l1_reverse", "w_hh_l1_reverse", "y_l0"];
        let tensors = [&own, &own, w_ih_l1, &wide, w_hh_l1_reverse, &wide].map(Tensor::clone);
        let others = layers.iter().filter(|(name, _)| !names.contains(name)).cloned();
        others.chain(names.into_iter().zip(tensors)).collect::<Vec<_>>()
    };
    folder.file("forward", &of_both(&own, &own));
    folder.file("reverse", &of_both(&wide, &short));
    folder.file("keys", &[("x", of(&[3, 4]))]);
    for (op, file, status, want) in [
        (
            "add_layer_norm_backward",
            "short",
            1,
            "add_layer_norm_backward: `input_bias` must have shape [5], got [4]",
        ),
        (
            "add_layer_norm_backward",
            "other",
            1,
            "add_layer_norm_backward: `input_bias` must have dtype f32, as `sum` is, got f16",
        ),
        ("gru_backward", "inner", 1, "gru_backward: `y_l0` must have shape [2, 3, 4], got [3, 2, 4]"),
        (
            "gru_backward",
            "more",
            1,
            "gru_backward: tensor `y_l1` must be absent with the weights of 2 layers, got one of shape [2, 3, 4]",
        ),
        ("gru_backward", "forward", 1, "gru_backward: `w_ih_l1` must have shape [12, 8], got [12, 4]"),
        (
            "gru_backward",
            "reverse",
            1,
            "gru_backward: `w_hh_l1_reverse` must have shape [3·H, H], got [12, 3]",
        ),
        ("linear_backward", "linear", 1, "linear_backward: `pre` must have shape [3, 9], got [9, 9]"),
        (
            "masked_softmax",
            "keys --set packed_keys=true",
            2,
            "masked_softmax: parameter `packed_keys` needs `cu_seqlens`",
        ),
    ] {
        let line = format!("run {op} --device cpu --in {{}}/{file} --out {{}}/y");
        assert_eq!(failure(&folder, &line), (status, want.to_owned()), "{op}");
    }
    let (_, error) = failure(&folder, "run gru_backward --device cpu --in {}/layers --out {}/y");
    assert!(error.starts_with("gru_backward: tensor `y_l0` is required"), "{error}");
}
