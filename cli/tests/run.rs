//! `warpwright run` on real and on made files.

mod common;

use std::path::Path;
use std::process::Output;

use common::{Folder, data, load, stderr, stdout, tensor, warpwright};

/// Runs masked_softmax on the CPU.
fn softmax(inputs: &[&Path], out: &Path, more: &[&str]) -> Output {
    let mut args: Vec<String> =
        ["run", "masked_softmax", "--device", "cpu"].into_iter().map(str::to_owned).collect();
    for input in inputs {
        args.extend(["--in".into(), input.display().to_string()]);
    }
    args.extend(["--out".into(), out.display().to_string()]);
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    warpwright(args)
}

fn expect_silence(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
    assert_eq!((stdout(output), stderr(output)), ("", ""));
}

#[test]
fn real_scores_give_the_expected_probabilities() {
    let folder = Folder::new();
    for layer in [0, 5] {
        let out = folder.path("out.safetensors");
        let input = data(&format!("minilm_layer{layer}.safetensors"));
        // The second layer replaces the first one's output.
        expect_silence(&softmax(&[&input], &out, &["--set", "scale=0.17677669529663687"]));
        let got = load(&out);
        assert_eq!(got.keys().collect::<Vec<_>>(), ["y"]);
        let want = load(&data(&format!("minilm_layer{layer}_expected.safetensors")));
        assert_eq!(got["y"].shape(), want["y"].shape());
        let (got, want) = (got["y"].to_vec::<f32>().unwrap(), want["y"].to_vec::<f32>().unwrap());
        let error = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
        assert!(error <= 1e-6, "layer {layer}: {error}");
        assert!(got.iter().zip(&want).all(|(&got, &want)| want != 0.0 || got == 0.0), "masked is 0");
        assert_eq!(folder.names(), ["out.safetensors"]);
    }
}

#[test]
fn several_files_are_read_as_one() {
    let folder = Folder::new();
    let scores = load(&data("minilm_layer5.safetensors")).remove("x").unwrap();
    let x = folder.file("x.safetensors", &[("x", scores)]);
    let (by_length, by_mask) = (folder.path("a.safetensors"), folder.path("b.safetensors"));
    let lengths = data("minilm_lengths.safetensors");
    expect_silence(&softmax(&[&x, &lengths], &by_length, &["--set", "scale=0.17677669"]));
    let whole = data("minilm_layer5.safetensors");
    expect_silence(&softmax(&[&whole], &by_mask, &["--set", "scale=0.17677669"]));
    let y = |path: &Path| load(path)["y"].to_vec::<f32>().unwrap();
    assert_eq!(y(&by_length), y(&by_mask), "the same mask in its two forms");
}

#[test]
fn an_operation_may_be_named_behind_its_parameters() {
    let folder = Folder::new();
    let x = folder.file("x.safetensors", &[("x", tensor(&[1, 2], &[0.0f32; 2]))]);
    let out = folder.path("y.safetensors");
    let [x, to] = [&x, &out].map(|path| path.display().to_string());
    let all = ["run", "--device", "cpu", "--in", &x, "--out", &to];
    for set in [&["--set", "scale=2", "masked_softmax"][..], &["--set", "masked_softmax", "--set", "scale=2"]]
    {
        expect_silence(&warpwright([&all, set].concat()));
        assert_eq!(load(&out)["y"].to_vec::<f32>().unwrap(), [0.5, 0.5]);
    }
}

#[test]
fn parameters_do_what_they_say() {
    let folder = Folder::new();
    let x = folder.file("x.safetensors", &[("x", tensor(&[2, 3], &[0.0f32; 6]))]);
    let out = folder.path("y.safetensors");
    let third = 1.0f32 / 3.0;
    for (set, want) in [
        (&["--set", "causal=true"][..], [0.5, 0.5, 0.0, third, third, third]),
        (&["--set", "causal=true", "causal_offset=0"], [1.0, 0.0, 0.0, 0.5, 0.5, 0.0]),
        (&["--set", "causal=true", "--set", "causal_offset=-1"], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        (&["--set", "causal=false", "--check", "none"], [third; 6]),
        (&["--check", "bounds"], [third; 6]),
    ] {
        expect_silence(&softmax(&[&x], &out, set));
        let y = load(&out)["y"].to_vec::<f32>().unwrap();
        assert!(y.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-6), "{set:?}: {y:?}");
    }
}

#[test]
fn each_mask_is_taken_by_its_name() {
    let folder = Folder::new();
    let out = folder.path("y.safetensors");
    let masks = [
        ("keep", tensor(&[4], &[1u8, 1, 0, 0]), [0.5, 0.5, 0.0, 0.0]),
        ("drop", tensor(&[4], &[true, false, false, true]), [0.0, 0.5, 0.5, 0.0]),
        ("bias", tensor(&[4], &[f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 0.0]), [0.0, 0.5, 0.0, 0.5]),
        ("lengths", tensor(&[1], &[2i32]), [0.5, 0.5, 0.0, 0.0]),
        ("starts", tensor(&[1], &[2i32]), [0.0, 0.0, 0.5, 0.5]),
    ];
    for (name, mask, want) in masks {
        let input = folder.file("in.safetensors", &[("x", tensor(&[1, 4], &[2.0f32; 4])), (name, mask)]);
        expect_silence(&softmax(&[&input], &out, &[]));
        let y = load(&out)["y"].to_vec::<f32>().unwrap();
        assert!(y.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-6), "{name}: {y:?}");
    }
    let range = [
        ("x", tensor(&[1, 4], &[2.0f32; 4])),
        ("lengths", tensor(&[1], &[3])),
        ("starts", tensor(&[1], &[2])),
    ];
    let input = folder.file("in.safetensors", &range);
    expect_silence(&softmax(&[&input], &out, &[]));
    assert_eq!(load(&out)["y"].to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0, 0.0]);
}

/// Runs any operation on the CPU and gives its outputs.
fn outputs(
    op: &str,
    input: &Path,
    folder: &Folder,
    set: &[&str],
) -> std::collections::BTreeMap<String, warpwright::Tensor> {
    let out = folder.path("out.safetensors");
    let mut args: Vec<String> =
        ["run", op, "--device", "cpu", "--in"].into_iter().map(str::to_owned).collect();
    args.extend([input.display().to_string(), "--out".into(), out.display().to_string()]);
    set.iter().for_each(|pair| args.extend(["--set".to_owned(), (*pair).to_owned()]));
    expect_silence(&warpwright(args));
    load(&out)
}

/// Three layers in both directions are what their first layer, and the others on its result, give; a weight too few is named.
#[test]
fn networks_of_any_number_of_layers_run_by_their_names() {
    let folder = Folder::new();
    let [steps, batch, columns, units] = [5, 2, 3, 4];
    let numbers = |shape: &[usize], seed: usize| {
        let of = |i: usize| ((i * 37 + seed * 101) % 23) as f32 / 23.0 - 0.5;
        tensor(shape, &(0..shape.iter().product()).map(of).collect::<Vec<_>>())
    };
    let weights = |layer: usize, called: usize| {
        let inputs = if layer == 0 { columns } else { 2 * units };
        let number = if called == 0 { String::new() } else { format!("_l{called}") };
        ["", "_reverse"].into_iter().enumerate().flat_map(move |(back, direction)| {
            [("w_ih", inputs), ("w_hh", units)].into_iter().enumerate().map({
                let number = number.clone();
                move |(i, (name, width))| {
                    let weight = numbers(&[3 * units, width], 4 * layer + 2 * back + i);
                    (format!("{name}{number}{direction}"), weight)
                }
            })
        })
    };
    let run = |x: warpwright::Tensor, layers: &[(usize, usize)]| {
        let all = layers.iter().flat_map(|&(layer, called)| weights(layer, called));
        let named: Vec<_> = [("x".to_owned(), x)].into_iter().chain(all).collect();
        let named: Vec<(&str, warpwright::Tensor)> =
            named.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let input = folder.file("network.safetensors", &named);
        (outputs("gru", &input, &folder, &[]), named.iter().map(|(n, _)| (*n).to_owned()).collect::<Vec<_>>())
    };
    let x = numbers(&[steps, batch, columns], 50);
    let (all, names) = run(x.clone(), &[(0, 0), (1, 1), (2, 2)]);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["h_n", "y", "y_l0", "y_l1"]);
    assert_eq!(all["h_n"].shape(), [6, batch, units]);
    let (first, _) = run(x, &[(0, 0)]);
    let (others, _) = run(first["y"].clone(), &[(1, 0), (2, 1)]);
    let bits = |tensor: &warpwright::Tensor| tensor.to_bytes().unwrap();
    assert_eq!(bits(&all["y_l0"]), bits(&first["y"]));
    assert_eq!((bits(&all["y_l1"]), bits(&all["y"])), (bits(&others["y_l0"]), bits(&others["y"])));

    let mut inputs = load(&folder.path("network.safetensors"));
    assert!(inputs.remove("w_hh_l1").is_some() && names.contains(&"w_hh_l2_reverse".to_owned()));
    let named: Vec<(&str, warpwright::Tensor)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let input = folder.file("less.safetensors", &named);
    let out = folder.path("less_out.safetensors");
    let args = ["run", "gru", "--device", "cpu", "--in"].map(str::to_owned).into_iter();
    let args = args.chain([input.display().to_string(), "--out".into(), out.display().to_string()]);
    let output = warpwright(args.collect::<Vec<_>>());
    assert!(!output.status.success() && !out.exists());
    assert!(stderr(&output).contains("`w_hh_l1`"), "{}", stderr(&output));
}

#[test]
fn operations_on_each_element_run_by_their_names() {
    let folder = Folder::new();
    let x = || tensor(&[2, 2], &[1.0f32, -1.0, 0.0, 3.0]);
    let ones = || tensor(&[2, 2], &[1.0f32; 4]);
    let input = folder.file("x.safetensors", &[("x", x())]);
    let close = |got: &warpwright::Tensor, want: &[f64]| {
        let got = got.to_f64().unwrap();
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6), "{got:?}");
    };
    let erf = [0.841_344_746, -0.158_655_254, 0.0, 2.995_950_306];
    close(&outputs("gelu", &input, &folder, &["approximate=none"])["y"], &erf);
    let tanh = [0.841_191_991, -0.158_808_009, 0.0, 2.996_362_608];
    close(&outputs("gelu", &input, &folder, &["approximate=tanh"])["y"], &tanh);
    let halves = &outputs("cast", &input, &folder, &["dtype=f16"])["y"];
    assert_eq!((halves.dtype(), halves.to_f64().unwrap()), (warpwright::DType::F16, x().to_f64().unwrap()));
    let dropped = &outputs("dropout", &input, &folder, &["p=1", "seed=1"])["y"];
    assert_eq!(dropped.to_f64().unwrap(), [0.0; 4]);

    let input = folder.file("two.safetensors", &[("a", x()), ("b", ones())]);
    assert_eq!(outputs("add", &input, &folder, &[])["y"].to_vec::<f32>().unwrap(), [2.0, 0.0, 1.0, 4.0]);
    let input = folder.file("dy.safetensors", &[("x", x()), ("dy", ones())]);
    let slopes = [1.083_315_471, -0.083_315_471, 0.5, 1.011_945_660];
    close(&outputs("gelu_backward", &input, &folder, &["approximate=none"])["dx"], &slopes);
    let input = folder.file("dy.safetensors", &[("dy", ones())]);
    let (all, set) = (&[2.0, 0.0][..], ["p=0.5", "seed=3", "offset=9"]);
    let dx = outputs("dropout_backward", &input, &folder, &set)["dx"].to_f64().unwrap();
    assert!(dx.iter().all(|dx| all.contains(dx)), "{dx:?}");

    let zeros = || tensor(&[2], &[0.0f32; 2]);
    let input = folder.file("bias.safetensors", &[("x", x()), ("bias", zeros())]);
    close(&outputs("bias_gelu", &input, &folder, &["approximate=none"])["y"], &erf);
    let input = folder.file("bias.safetensors", &[("x", x()), ("bias", zeros()), ("dy", ones())]);
    let got = outputs("bias_gelu_backward", &input, &folder, &["approximate=none"]);
    close(&got["dx"], &slopes);
    close(&got["dbias"], &[slopes[0] + slopes[2], slopes[1] + slopes[3]]);
}

#[test]
fn rows_of_tables_and_their_gradients_run_by_their_names() {
    let folder = Folder::new();
    let tokens = || tensor(&[2, 2], &[2i64, 0, 2, 1]);
    let wte = || tensor(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let wpe = || tensor(&[3, 2], &[9.0f32, 9.0, 0.5, 0.0, 0.0, 0.25]);
    let input = folder.file("in.safetensors", &[("tokens", tokens()), ("wte", wte())]);
    let y = &outputs("embedding", &input, &folder, &[])["y"];
    assert_eq!(y.shape(), [2, 2, 2]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
    let (paths, out) = (input.display().to_string(), folder.path("y").display().to_string());
    let alone = ["run", "embedding", "--in", &paths, "--out", &out, "--set", "position_offset=1"];
    let alone = warpwright(alone.into_iter().chain(["--device", "cpu"]));
    assert_eq!(alone.status.code(), Some(2));
    assert!(
        stderr(&alone).ends_with("embedding: parameter `position_offset` needs `wpe`\n"),
        "{}",
        stderr(&alone)
    );

    let input = folder.file("in.safetensors", &[("tokens", tokens()), ("wte", wte()), ("wpe", wpe())]);
    let y = outputs("embedding", &input, &folder, &["position_offset=1"])["y"].to_vec::<f32>().unwrap();
    assert_eq!(y, [5.5, 6.0, 1.0, 2.25, 5.5, 6.0, 3.0, 4.25]);

    let dy = || tensor(&[2, 2, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let of_rows = [3.0f32, 4.0, 7.0, 8.0, 6.0, 8.0];
    let input = folder.file("dy.safetensors", &[("tokens", tokens()), ("wte", wte()), ("dy", dy())]);
    let got = outputs("embedding_backward", &input, &folder, &[]);
    assert_eq!(got.keys().collect::<Vec<_>>(), ["dwte"]);
    assert_eq!(got["dwte"].to_vec::<f32>().unwrap(), of_rows);
    let all = [("tokens", tokens()), ("wte", wte()), ("wpe", wpe()), ("dy", dy())];
    let input = folder.file("dy.safetensors", &all);
    let got = outputs("embedding_backward", &input, &folder, &["position_offset=1"]);
    assert_eq!(got["dwte"].to_vec::<f32>().unwrap(), of_rows);
    assert_eq!(got["dwpe"].to_vec::<f32>().unwrap(), [0.0, 0.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn packed_sequences_begin_at_cu_seqlens() {
    let folder = Folder::new();
    let tokens = || tensor(&[4], &[2i64, 0, 2, 1]);
    let wte = || tensor(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let wpe = || tensor(&[3, 2], &[0.5f32, 0.0, 0.0, 0.25, 0.75, 0.75]);
    let cu_seqlens = || tensor(&[3], &[0i32, 1, 4]);
    let packed = || [("tokens", tokens()), ("wte", wte()), ("wpe", wpe()), ("cu_seqlens", cu_seqlens())];
    let input = folder.file("in.safetensors", &packed());
    let y = outputs("embedding", &input, &folder, &[])["y"].to_vec::<f32>().unwrap();
    assert_eq!(y, [5.5, 6.0, 1.5, 2.0, 5.0, 6.25, 3.75, 4.75]);
    let dy = tensor(&[4, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let all: Vec<_> = packed().into_iter().chain([("dy", dy)]).collect();
    let got = outputs("embedding_backward", &folder.file("dy.safetensors", &all), &folder, &[]);
    assert_eq!(got["dwpe"].to_vec::<f32>().unwrap(), [4.0, 6.0, 5.0, 6.0, 7.0, 8.0]);
    let (alone, out) = (folder.path("alone").display().to_string(), folder.path("y").display().to_string());
    folder.file("alone", &[("tokens", tokens()), ("wte", wte()), ("cu_seqlens", cu_seqlens())]);
    let alone = warpwright(["run", "embedding", "--device", "cpu", "--in", &alone, "--out", &out]);
    assert_eq!(alone.status.code(), Some(1));
    let want = "embedding: tensor `wpe` is required: [P, C] wte's type; the input has `cu_seqlens`, `tokens` and `wte`\n";
    assert!(stderr(&alone).ends_with(want), "{}", stderr(&alone));
}

#[test]
fn norms_and_gradients_run_by_their_names() {
    let folder = Folder::new();
    let x = || tensor(&[1, 2], &[1.0f32, 3.0]);
    let dy = || tensor(&[1, 2], &[5.0f32, 7.0]);
    let pair = |name: &'static str, values: [f32; 2]| (name, tensor(&[2], &values));
    let row = |name: &'static str, value: f32| (name, tensor(&[1], &[value]));
    let close = |got: &warpwright::Tensor, want: &[f64]| {
        let got = got.to_f64().unwrap();
        assert!(got.len() == want.len(), "{got:?}");
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-5), "{got:?}");
    };
    let vectors = || [pair("weight", [2.0, 3.0]), pair("bias", [0.5, -0.5])];
    let [weight, bias] = vectors();
    let input = folder.file("norm.safetensors", &[("x", x()), weight, bias]);
    let got = outputs("layer_norm", &input, &folder, &["eps=1e-12"]);
    close(&got["y"], &[-1.5, 2.5]);
    close(&got["mean"], &[2.0]);
    close(&got["rstd"], &[1.0]);
    let [weight, bias] = vectors();
    let operands = [("x", x()), ("residual", dy()), pair("input_bias", [1.0, -1.0]), weight, bias];
    let input = folder.file("add.safetensors", &operands);
    let got = outputs("add_layer_norm", &input, &folder, &["eps=1e-12"]);
    close(&got["sum"], &[7.0, 9.0]);
    close(&got["y"], &[-1.5, 2.5]);
    let input = folder.file("rms.safetensors", &[("x", x())]);
    let got = outputs("rms_norm", &input, &folder, &["eps=4"]);
    close(&got["rstd"], &[1.0 / 3.0]);
    close(&got["y"], &[1.0 / 3.0, 1.0]);

    // With two columns dx is 0 but for what dsum adds.
    let operands = || [("dy", dy()), row("mean", 2.0), row("rstd", 1.0)];
    let [dy_of, mean, rstd] = operands();
    let input = folder.file("dy.safetensors", &[("x", x()), dy_of, mean, rstd]);
    let got = outputs("layer_norm_backward", &input, &folder, &[]);
    close(&got["dx"], &[0.0, 0.0]);
    close(&got["dweight"], &[-5.0, 7.0]);
    close(&got["dbias"], &[5.0, 7.0]);
    let [dy_of, mean, rstd] = operands();
    let input = folder.file("dsum.safetensors", &[("sum", x()), dy_of, ("dsum", x()), mean, rstd]);
    close(&outputs("add_layer_norm_backward", &input, &folder, &[])["dx"], &[1.0, 3.0]);
    let input = folder.file("rms.safetensors", &[("x", x()), ("dy", dy()), row("rstd", 0.5)]);
    let got = outputs("rms_norm_backward", &input, &folder, &[]);
    close(&got["dx"], &[0.875, -1.375]);
    close(&got["dweight"], &[2.5, 10.5]);
    let input = folder.file("y.safetensors", &[("y", tensor(&[1, 2], &[0.25f32, 0.75])), ("dy", dy())]);
    close(&outputs("masked_softmax_backward", &input, &folder, &["scale=2"])["dx"], &[-0.75, 0.75]);
}

#[test]
fn products_run_by_their_names() {
    let folder = Folder::new();
    let a = || tensor(&[2, 3], &[1.0f32, 2.0, 3.0, -4.0, 5.0, -6.0]);
    let b = || tensor(&[2, 3], &[1.0f32, 0.0, 2.0, 0.0, 1.0, -1.0]);
    let values = |got: &warpwright::Tensor| got.to_vec::<f32>().unwrap();
    let input =
        folder.file("ab.safetensors", &[("a", a()), ("b", b()), ("c", tensor(&[2], &[1.0f32, 10.0]))]);
    let set = ["transpose_b=true", "alpha=2", "beta=-1"];
    assert_eq!(values(&outputs("matmul", &input, &folder, &set)["y"]), [13.0, -12.0, -33.0, 12.0]);
    let set = ["transpose_a=true"];
    let input = folder.file("ab.safetensors", &[("a", a()), ("b", b())]);
    let want = [1.0, -4.0, 6.0, 2.0, 5.0, -1.0, 3.0, -6.0, 12.0];
    assert_eq!(values(&outputs("matmul", &input, &folder, &set)["y"]), want);

    let dy = || tensor(&[2, 2], &[1.0f32, 1.0, 1.0, 2.0]);
    let input = folder.file("gradients.safetensors", &[("a", a()), ("b", b()), ("dy", dy())]);
    let got = outputs("matmul_backward", &input, &folder, &["transpose_b=true", "alpha=0.5"]);
    let products = |rows: [f32; 6]| rows.map(|sum| sum / 2.0);
    let (rows_a, rows_b) = (values(&a()), values(&b()));
    let of =
        |weights: [f32; 2], rows: &[f32]| [0, 1, 2].map(|i| weights[0] * rows[i] + weights[1] * rows[3 + i]);
    let [first, second] = [[1.0, 1.0], [1.0, 2.0]].map(|weights| of(weights, &rows_b));
    let want = [first[0], first[1], first[2], second[0], second[1], second[2]];
    assert_eq!(values(&got["da"]), products(want));
    let [first, second] = [[1.0, 1.0], [1.0, 2.0]].map(|weights| of(weights, &rows_a));
    let want = [first[0], first[1], first[2], second[0], second[1], second[2]];
    assert_eq!(values(&got["db"]), products(want));

    let bias = || tensor(&[2], &[0.5f32, -0.5]);
    let input = folder.file("layer.safetensors", &[("x", a()), ("weight", b()), ("bias", bias())]);
    let got = outputs("linear", &input, &folder, &["activation=relu", "keep_pre=true"]);
    assert_eq!(
        (values(&got["y"]), values(&got["pre"])),
        (vec![7.5, 0.0, 0.0, 10.5], vec![7.5, -1.5, -15.5, 10.5])
    );
    assert_eq!(outputs("linear", &input, &folder, &["activation=relu"]).len(), 1);
    // A sequence of two rows, and two heads of one column.
    let rows = tensor(&[1, 2, 3], &values(&a()));
    let input = folder.file("heads.safetensors", &[("x", rows), ("weight", b()), ("bias", bias())]);
    let y = &outputs("linear", &input, &folder, &["heads=2"])["y"];
    assert_eq!((y.shape(), values(y)), (&[1, 1, 2, 2, 1][..], vec![7.5, -15.5, -1.5, 10.5]));
    let y = &outputs("linear", &input, &folder, &["parts=2"])["y"];
    assert_eq!((y.shape(), values(y)), (&[2, 1, 1, 2, 1][..], vec![7.5, -15.5, -1.5, 10.5]));
    let pre = tensor(&[2, 2], &[7.5f32, -1.5, -15.5, 10.5]);
    let input = folder.file("dy.safetensors", &[("x", a()), ("weight", b()), ("dy", dy()), ("pre", pre)]);
    let got = outputs("linear_backward", &input, &folder, &["activation=relu"]);
    assert_eq!(values(&got["dx"]), [1.0, 0.0, 2.0, 0.0, 2.0, -2.0]);
    assert_eq!(values(&got["dweight"]), [1.0, 2.0, 3.0, -8.0, 10.0, -12.0]);
    assert_eq!(values(&got["dbias"]), [1.0, 2.0]);
}

#[test]
fn help_lists_the_operations_with_their_keys() {
    let output = warpwright(["run", "--help"]);
    assert!(output.status.success());
    for word in [
        "masked_softmax",
        "causal_offset",
        "lengths",
        "--set",
        "--check",
        "bias_gelu_backward",
        "tanh or none",
    ] {
        assert!(stdout(&output).contains(word), "{word}");
    }
}
