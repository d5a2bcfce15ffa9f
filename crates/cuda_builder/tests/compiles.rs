//! Compiles a device crate for real. The first run compiles `core`, so these are run on request:
//! `cargo test -p cuda_builder -- --ignored`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cuda_builder::{Arch, BuildError, CudaBuilder, Emit, find_ptxas};

fn device() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/device")
}

fn builder(crate_folder: &Path) -> CudaBuilder {
    CudaBuilder::new(crate_folder).target_dir(Path::new(env!("CARGO_TARGET_TMPDIR")).join("device"))
}

/// The device crate at another place.
fn copy(to: &Path) {
    fs::create_dir_all(to.join("src")).unwrap();
    for file in ["Cargo.toml", "src/lib.rs"] {
        fs::copy(device().join(file), to.join(file)).unwrap();
    }
}

#[test]
#[ignore = "compiles core"]
fn kernels_get_their_bounds_and_facts() {
    let out = tempfile::tempdir().unwrap();
    let ptx = out.path().join("new/device.ptx");
    let built = builder(&device()).copy_to(&ptx).build().unwrap();
    assert_eq!(fs::read_to_string(&ptx).unwrap(), built.text);
    assert!(built.text.contains(".version 8.0\n.target sm_80\n"), "{}", built.text);
    assert!(built.text.contains(")\n.maxntid 256\n.minnctapersm 2\n{"), "{}", built.text);
    assert!(built.text.contains(")\n.reqntid 32\n{"), "{}", built.text);
    assert!(!built.text.contains("//@"), "{}", built.text);
    let facts: Vec<_> =
        built.kernels.iter().map(|k| (k.name.as_str(), k.param_bytes, k.expects.len())).collect();
    assert_eq!(facts, [("add", 40, 0), ("scale", 28, 2)]);
    assert!(built.functions.is_empty());
    assert!(built.kernels.iter().all(|k| k.calls.is_empty() && k.local_bytes == 0));
    let Some(ptxas) = find_ptxas() else { return };
    let report = ptxas.assemble(&ptx, "sm_80", &out.path().join("device.cubin")).unwrap();
    assert_eq!(report.kernels.len(), 2);
    assert!(
        report.warnings.is_empty() && report.kernels.iter().all(|k| k.registers > 0 && k.stack_bytes == 0)
    );
}

#[test]
#[ignore = "compiles core"]
fn hopper_gets_its_feature_and_its_ptx_version() {
    let out = tempfile::tempdir().unwrap();
    let built = builder(&device()).arch(Arch::Sm90a).copy_to(out.path().join("h.ptx")).build().unwrap();
    assert!(built.text.contains(".version 8.6\n.target sm_90a\n"), "{}", built.text);
    assert!(
        built.text.contains("hopper()\n.maxntid 32\n.explicitcluster\n.reqnctapercluster 2\n"),
        "{}",
        built.text
    );
    if let Some(ptxas) = find_ptxas() {
        ptxas.assemble(&built.ptx, "sm_90a", &out.path().join("h.cubin")).unwrap();
    }
}

#[test]
#[ignore = "compiles core"]
fn the_same_sources_give_the_same_bytes_wherever_they_lie() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let deep = b.path().join("some/where/else");
    copy(a.path());
    copy(&deep);
    // Constants and a panic are in it, so that names and messages with paths would show.
    let build = |folder: &Path, target: &Path| {
        let builder = CudaBuilder::new(folder).features(["unfit"]).target_dir(target);
        builder.copy_to(target.join("x.ptx")).build().unwrap().text
    };
    let first = build(a.path(), &Path::new(env!("CARGO_TARGET_TMPDIR")).join("device"));
    let second = build(&deep, &b.path().join("target"));
    assert_eq!(first, second);
    for path in [a.path(), b.path(), Path::new(env!("CARGO_TARGET_TMPDIR"))] {
        assert!(!first.contains(path.to_str().unwrap()), "{first}");
    }
}

#[test]
#[ignore = "compiles core"]
fn fatal_shapes_are_reported() {
    let out = tempfile::tempdir().unwrap();
    let built = builder(&device()).features(["unfit"]).copy_to(out.path().join("u.ptx")).build().unwrap();
    let unfit = built.kernels.iter().find(|kernel| kernel.name == "unfit").unwrap();
    assert!(unfit.local_bytes >= 512, "{unfit:?}");
    assert!(unfit.calls.iter().all(|name| name.contains("panic")) && !unfit.calls.is_empty(), "{unfit:?}");
    assert!(!built.functions.is_empty());
}

#[test]
#[ignore = "compiles core"]
fn options_do_what_they_say() {
    let out = tempfile::tempdir().unwrap();
    let built = |builder: CudaBuilder, name: &str| builder.copy_to(out.path().join(name)).build().unwrap();
    let plain = built(builder(&device()), "plain.ptx");
    assert!(!plain.text.contains("fma.rn.f32"));
    let fused = built(builder(&device()).fma_contraction(true), "fused.ptx");
    assert!(fused.text.contains("fma.rn.f32"), "{}", fused.text);
    let unfused = built(builder(&device()).fma_contraction(false), "unfused.ptx");
    // The first line names the arguments.
    let code = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    assert!(unfused.text.lines().next().unwrap().ends_with(" -nvptx-fma-level=0"), "{}", unfused.text);
    assert_eq!(code(&unfused.text), code(&plain.text));
    let lines = built(builder(&device()).generate_line_info(true), "lines.ptx");
    assert!(lines.text.contains(".loc") && lines.text.contains("src/lib.rs"), "{}", lines.text);
    assert!(!lines.text.contains(env!("CARGO_MANIFEST_DIR")), "{}", lines.text);
    assert_eq!(lines.kernels, plain.kernels);
    let ir = built(builder(&device()).emit(Emit::LlvmIr), "ir.ptx");
    assert_eq!(ir.text, plain.text);
    assert!(fs::read_to_string(ir.llvm_ir.unwrap()).unwrap().contains("define "));
}

#[test]
#[ignore = "compiles core"]
fn mistakes_in_the_crate_are_told_in_the_compilers_words() {
    let out = tempfile::tempdir().unwrap();
    let failure = |feature: &str| {
        builder(&device()).features([feature]).copy_to(out.path().join("x.ptx")).build().unwrap_err()
    };
    let broken = failure("broken");
    assert!(matches!(broken, BuildError::Compile { .. }));
    let text = broken.to_string();
    assert!(text.starts_with("device does not compile for sm_80:\n"), "{text}");
    assert!(text.contains("error[E0308]: mismatched types") && text.contains("src/lib.rs:"), "{text}");
    let unbounded = "device for sm_80: entry `add` has no `//@kernel` line, so its launch bounds are unknown";
    assert_eq!(failure("unbounded").to_string(), unbounded);
    assert!(failure("nothing").to_string().ends_with("tests/device: has no feature `nothing`"));
    assert!(!out.path().join("x.ptx").exists());
}
