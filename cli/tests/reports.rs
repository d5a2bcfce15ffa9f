//! `list`, `doctor`, `demo`, `bench` and `profile`: what they print, and their exit status.

mod common;

use std::process::Stdio;

use common::{Folder, program, stderr, stdout, warpwright};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = warpwright(args);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

#[test]
fn the_version_is_printed() {
    let output = warpwright(["--version"]);
    assert!(output.status.success());
    assert_eq!(stdout(&output), concat!("warpwright ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn list_tells_operations_and_kernels() {
    let report = json(&["list", "--json"]);
    assert_eq!(report["ops"][0]["name"], "masked_softmax");
    assert_eq!(report["ops"][0]["dtypes"], serde_json::json!(["f32", "f16", "bf16"]));
    let family = &report["families"]["masked_softmax"];
    assert_eq!(family["architectures"], serde_json::json!(["sm_80"]));
    assert_eq!(report["families"]["masked_softmax_hopper"]["architectures"], serde_json::json!(["sm_90a"]));
    let kernels = family["kernels"].as_array().unwrap();
    assert!(kernels.len() > 10);
    for kernel in kernels {
        assert!(
            kernel["name"].is_string() && kernel["threads"].is_u64() && kernel["shared_bytes"].is_u64(),
            "{kernel}"
        );
    }
    let output = warpwright(["list"]);
    for kernel in kernels {
        assert!(stdout(&output).contains(kernel["name"].as_str().unwrap()), "{kernel}");
    }
}

#[test]
fn doctor_has_a_line_and_a_status_for_each_check() {
    let folder = Folder::new();
    let run = |args: &[&str]| program().args(args).current_dir(folder.path("")).output().unwrap();
    let output = run(&["doctor", "--json"]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(report["healthy"], true);
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<&str> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    for name in ["kernel compiler", "core source", "ptxas", "driver", "PTX freshness", "CPU checker"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for check in checks {
        assert!(check["status"] == "ok" || check["remedy"].is_string(), "{check}");
    }
    assert_eq!(stdout(&run(&["doctor"])).lines().count(), checks.len());
}

/// A folder that looks like a checkout, and a cargo that answers `xtask build-ptx --check`.
#[cfg(unix)]
fn doctor_with_cargo(script: &str) -> std::process::Output {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    for mark in
        ["Cargo.toml", "xtask/Cargo.toml", "kernels-gpu/Cargo.toml", "host/ptx/manifest.json", "cargo"]
    {
        let path = folder.path(mark);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
    }
    // That of the program, whatever the real checkout's is by now.
    std::fs::write(folder.path("host/ptx/manifest.json"), warpwright::manifest()).unwrap();
    let cargo = folder.path("cargo");
    std::fs::write(&cargo, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    program().arg("doctor").env("CARGO", cargo).current_dir(folder.path("xtask")).output().unwrap()
}

#[cfg(unix)]
#[test]
fn stale_ptx_of_a_checkout_fails_and_what_cannot_be_checked_does_not() {
    let stale =
        "echo 'error: family `probe` was built from other sources: run `cargo xtask build-ptx`' >&2; exit 1";
    for (script, status, want) in [
        ("test \"$*\" = 'xtask build-ptx --check'", 0, "families are what the sources give"),
        (stale, 1, "stale: family `probe` was built from other sources; `cargo xtask build-ptx`"),
        ("echo 'error: no such command: `xtask`' >&2; exit 101", 0, "not checked: no such command: `xtask`"),
    ] {
        let output = doctor_with_cargo(script);
        assert_eq!(output.status.code(), Some(status), "{}", stdout(&output));
        let line = stdout(&output).lines().find(|line| line.contains("PTX freshness")).unwrap();
        assert!(line.contains(want), "{line}");
        let error = if status == 1 { "error: 1 of " } else { "" };
        assert!(stderr(&output).starts_with(error), "{}", stderr(&output));
    }
}

#[test]
fn demo_is_within_tolerance_on_the_cpu() {
    let report = json(&["demo", "--device", "cpu", "--json"]);
    assert_eq!(report["device"], "cpu");
    assert!(report["copy_gb_per_s"].is_null());
    let rows = report["rows"].as_array().unwrap();
    for (key, values) in [
        ("dtype", &["f32", "f16", "bf16"][..]),
        ("data", &["MiniLM layer 0", "MiniLM layer 5", "random"]),
        ("mask", &["none", "keep", "drop", "bias", "lengths", "starts", "causal", "causal, keep"]),
    ] {
        for value in values {
            assert!(rows.iter().any(|row| row[key] == *value), "{key} {value}");
        }
    }
    for row in rows {
        assert!(row["passed"] == true && row["compared"].as_u64() > Some(0), "{row}");
        assert!(row["share"].is_null() && row["time_ms"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn demo_prints_a_table_and_says_where_it_runs() {
    let output = warpwright(["demo", "--check", "bounds"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(lines[0].starts_with("cpu: the GPU's kernels under the checker"), "{}", lines[0]);
    assert!(lines[2].starts_with("op ") && lines[2].contains("max error") && lines[2].ends_with("of limit"));
    for op in [
        "gelu ",
        "gelu_backward ",
        "bias_gelu ",
        "bias_gelu_backward ",
        "add ",
        "cast ",
        "dropout ",
        "layer_norm ",
        "layer_norm_backward ",
        "add_layer_norm ",
        "add_layer_norm_backward ",
        "rms_norm ",
        "rms_norm_backward ",
        "masked_softmax_backward ",
    ] {
        let rows: Vec<&&str> = lines.iter().filter(|line| line.starts_with(op)).collect();
        assert!(rows.len() >= 3 && rows.iter().all(|row| row.contains(" ok ")), "{op}: {rows:#?}");
    }
    let rows: Vec<&&str> = lines.iter().filter(|line| line.starts_with("masked_softmax")).collect();
    assert!(
        rows.len() > 20 && rows.iter().all(|row| row.contains(" ok ") && row.ends_with('–')),
        "{rows:#?}"
    );
    assert!(lines.iter().any(|line| line.ends_with("all within tolerance")));
    assert_eq!(stderr(&output), "", "no bar where there is no terminal");
}

#[test]
fn explain_tells_the_kernel_and_what_is_copied() {
    let explain = |args: &[&str]| {
        let output = warpwright(["explain"].iter().chain(args).chain(&["--device", "cpu"]));
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let text = explain(&["matmul", "1", "4096", "4096", "--transpose-b", "--dtype", "f16"]);
    assert!(
        text.starts_with("matmul 1x4096x4096 f16: thin 8x16, 1x256 tiles; a along k; b along k\n"),
        "{text}"
    );
    let text = explain(&["matmul", "111", "6068", "53"]);
    assert!(text.starts_with("matmul 111x6068x53 bf16: loose "), "{text}");
    assert!(text.contains("a along k; b along its rows\n"), "{text}");
    let text = explain(&["matmul", "1000", "2001", "3001", "--batch", "3"]);
    assert!(text.starts_with("matmul 3 times 1000x2001x3001 bf16: "), "{text}");
    assert!(text.contains("a along k, copied first; b along its rows, copied first"), "{text}");
    let text = explain(&["linear", "4096", "4096", "4096", "--dtype", "f32"]);
    assert!(
        text.starts_with("linear 4096x4096x4096 f32: parted (two of f16) 128x128, 32x32 tiles"),
        "{text}"
    );
    // What is done behind a product has a say in it.
    let shape = ["linear", "3072", "4096", "1024"];
    let text = explain(&[&shape[..], &["--activation", "gelu_tanh"]].concat());
    assert!(text.contains("alternating 192x128"), "{text}");
    let text = explain(&[&shape[..], &["--activation", "gelu_tanh", "--residual"]].concat());
    assert!(text.contains("pipelined"), "{text}");
    let text = explain(&["linear", "384", "3072", "1024", "--batch", "8", "--parts", "3", "--heads", "16"]);
    assert!(
        text.starts_with("linear 8 times 384x3072x1024 bf16: alternating 192x128, 16x24 tiles; "),
        "{text}"
    );
    assert!(text.contains("\nheads split in the epilogue, y [3, 8, 16, 384, 64]\n"), "{text}");
    let text = explain(&["matmul", "4096", "4096", "4096", "--dtype", "f32", "--tf32"]);
    assert!(
        text.starts_with("matmul 4096x4096x4096 f32: tf32_pipelined (rounded to tf32) 128x256"),
        "{text}"
    );
    assert!(text.contains("; a along k; b along k, copied first\n"), "{text}");
    let text = explain(&["attention_scores", "384", "384", "64", "--heads", "128", "--mask", "keep"]);
    let want = "attention_scores 128 times 384x384x64 bf16: whole_rows 32x384, 4 tiles a block, 3 blocks a product, 57 KB";
    assert_eq!(text.trim_end(), want);
    let text = explain(&["attention_scores", "384", "384", "64", "--heads", "128", "--mask", "lengths"]);
    assert!(text.contains(": by_warpgroups 64x384, 3 tiles a block, 2 blocks a product, 113 KB"), "{text}");
    let text = explain(&["attention_scores", "384", "1032", "64"]);
    assert!(text.contains("; softmax row ") && text.contains("rows in registers"), "{text}");
    let text = explain(&["masked_softmax", "4096", "128", "--mask", "lengths"]);
    assert!(text.starts_with("masked_softmax 4096x128 f32: row "), "{text}");
    let text = explain(&["masked_softmax", "512", "50257", "--dtype", "bf16", "--mask", "keep"]);
    assert!(text.contains(" cluster_row ") && text.contains("; 1 row a cluster, which may start"), "{text}");
    assert!(text.contains("; masks are turned into bits first"), "{text}");
    let text = explain(&["masked_softmax", "64", "50257", "--dtype", "bf16", "--mask", "keep"]);
    assert!(text.contains(" long_row ") && text.contains("; 1 row a block, which may start"), "{text}");
    let output = warpwright(["explain", "matmul", "1", "2"]);
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1));
    for rate in ["0", "-1", "inf", "nan", "fast"] {
        let args =
            ["explain", "permute", "--shape", "4,5", "--dims", "1,0", "--device", "cpu", "--rate", rate];
        let output = warpwright(args);
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1));
        assert!(stderr(&output).contains("must be a positive number"), "{}", stderr(&output));
    }
    // What is more than any number of bytes or tiles.
    let most = "1073741824";
    for (refused, args) in [
        (true, &["matmul", most, most, most][..]),
        (false, &["attention_scores", "4096", most, "65535", "--dtype", "f16", "--heads", "65535"]),
        (
            true,
            &[
                "linear",
                "1",
                "1048576",
                "65535",
                "--dtype",
                "f32",
                "--batch",
                "8589934592",
                "--activation",
                "gelu_tanh",
            ],
        ),
    ] {
        let output = warpwright(["explain"].iter().chain(args).chain(&["--device", "cpu"]));
        let (told, want) = match refused {
            true => (stderr(&output), ": tiles of a launch must be at most 2147483647, got "),
            false => (stdout(&output), " tiles"),
        };
        assert!(told.contains(want), "{args:?}: {told}");
        assert_eq!(
            (output.status.code(), stderr(&output).lines().count()),
            (Some(refused.into()), refused.into())
        );
    }
    let output =
        warpwright(["explain", "attention_scores", "99999999999", "99999999999", "64", "--device", "cpu"]);
    let want = "error: attention_scores: rows of the result must be at most 1073741824, got 99999999999";
    assert_eq!((output.status.code(), stderr(&output).trim()), (Some(1), want));
    let many = (1_usize << 30).to_string();
    let batch = ["matmul", &many, "1", "1", "--batch", &many, "--dtype", "f32", "--device", "cpu"];
    let output = warpwright(["explain"].iter().chain(&batch));
    let want = "error: matmul: tiles of a launch must be at most 2147483647, got ";
    assert!(output.status.code() == Some(1) && stderr(&output).starts_with(want), "{}", stderr(&output));
    let most = usize::MAX.to_string();
    let output = warpwright(["explain", "matmul", &most, "1", "1", "--device", "cpu"]);
    assert!(
        stderr(&output).starts_with("error: matmul: the tensor's bytes must be at most "),
        "{}",
        stderr(&output)
    );
    let output = warpwright(["explain", "gru", "10", &most, "5", &most, "--device", "cpu"]);
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1), "{}", stderr(&output));
}

#[test]
fn bench_refuses_the_cpu_and_a_report_without_a_folder() {
    let folder = Folder::new();
    let report = folder.path("none/report.html");
    for (args, want) in [
        (&["bench", "--device", "cpu"][..], "error: bench needs a GPU: the CPU device is a checker"),
        (&["bench", "--report", report.to_str().unwrap()], "cannot write: there is no folder"),
    ] {
        let output = warpwright(args);
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
        assert!(
            stderr(&output).contains(want) && stderr(&output).lines().count() == 1,
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn profile_tells_each_kernel_and_writes_a_trace() {
    let folder = Folder::new();
    let trace = folder.path("trace.json");
    let line = ["profile", "embedding_backward", "--device", "cpu", "--dtype", "bf16", "--calls", "2"];
    let report = json(&[&line[..], &["--json", "--trace", trace.to_str().unwrap()]].concat());
    assert_eq!((&report["device"], &report["op"]), (&"cpu".into(), &"embedding_backward".into()));
    assert_eq!((&report["dtype"], &report["calls"]), (&"bf16".into(), &2.into()));
    let kernels = report["kernels"].as_array().unwrap();
    let launches: u64 = kernels.iter().map(|kernel| kernel["launches"].as_u64().unwrap()).sum();
    assert_eq!(launches as f64, 2.0 * report["call"]["launches"].as_f64().unwrap());
    for kernel in kernels {
        let positive = |key: &str| kernel[key].as_f64() > Some(0.0);
        assert!(kernel["kernel"].as_str().unwrap().starts_with("embedding_"), "{kernel}");
        assert!(
            ["host_us", "device_us", "bytes", "gbps", "share_of_time"].into_iter().all(positive),
            "{kernel}"
        );
        assert!(kernel["share_of_copy"].is_null(), "the CPU has no copy to compare with: {kernel}");
    }
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let of = |category: &str| {
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == category).count()
            as u64
    };
    assert_eq!((of("kernel"), of("call"), of("range")), (launches, launches, 2));
    let output = warpwright(line);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(lines[0].starts_with("embedding_backward ") && lines[2].starts_with("kernel "), "{lines:#?}");
    for kernel in kernels {
        let name = kernel["kernel"].as_str().unwrap();
        assert!(lines.iter().any(|line| line.starts_with(name)), "{lines:#?}");
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn profile_refuses_what_it_does_not_know() {
    let folder = Folder::new();
    let trace = folder.path("none/trace.json");
    for (args, status, want) in [
        (&["profile", "softmax"][..], 2, "error: unknown operation `softmax`: known are "),
        (&["profile", "gelu", "--device", "cpu", "--only", "x7777"], 2, "error: no case is left"),
        (&["profile", "gelu", "--trace", trace.to_str().unwrap()], 1, "cannot write: there is no folder"),
        (&["profile", "gelu", "--calls", "0"], 2, "0 is not in 1..=10000"),
    ] {
        let output = warpwright(args);
        assert_eq!((output.status.code(), stdout(&output)), (Some(status), ""), "{args:?}");
        let error = stderr(&output);
        assert!(error.contains(want) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = program().arg("list").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = program().arg("list").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("error: cannot write to the standard output: No space left"),
        "{}",
        stderr(&output)
    );
}
