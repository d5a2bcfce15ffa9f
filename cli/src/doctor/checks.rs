//! The checks.

use cuda_builder::{discover_toolchain, find_ptxas, ptxas};
use warpwright::{Device, Error};

use super::{Check, Status, checkout};
use crate::probe;

/// What a machine without a usable GPU can do.
const NO_GPU: &str = "operations run on the CPU under the checker";

pub fn all() -> Vec<Check> {
    let mut checks = compiler();
    checks.push(assembler());
    checks.extend(gpus());
    checks.push(checkout::freshness(&std::env::current_dir().unwrap_or_default()));
    checks.push(checker());
    checks
}

/// Needed to build kernels, not to run them: a released rustc, and the source of its `core`.
fn compiler() -> Vec<Check> {
    let names = ["kernel compiler", "core source"];
    match discover_toolchain() {
        Ok(toolchain) => {
            let found = [toolchain.to_string(), toolchain.source.display().to_string()];
            names.into_iter().zip(found).map(|(name, found)| Check::ok(name, found)).collect()
        }
        Err(error) => {
            let remedy = || format!("only to build kernels: `{}`", error.remedy);
            let lacks = ["no rustc that has the source of its core", "none that belongs to a rustc"];
            let check = |(name, lacks)| Check::ok(name, lacks).with(Status::Note, remedy());
            names.into_iter().zip(lacks).map(check).collect()
        }
    }
}

/// Needed to check kernels without a GPU, not to run them.
fn assembler() -> Check {
    match find_ptxas() {
        Some(found) => Check::ok("ptxas", format!("{} ({})", found.version, found.path.display())),
        None => Check::ok("ptxas", "not found")
            .with(Status::Note, format!("only to check kernels: `{}`", ptxas::REMEDY)),
    }
}

/// The driver, and each GPU it has.
fn gpus() -> Vec<Check> {
    let driver = match warpwright::driver_version() {
        Ok((major, minor)) => Check::ok("driver", format!("supports CUDA {major}.{minor}")),
        Err(Error::NoDriver { reason }) => {
            let remedy = format!("to use a GPU, install NVIDIA's driver; {NO_GPU}");
            let driver = Check::ok("driver", format!("none: {reason}")).with(Status::Note, remedy);
            return vec![driver, Check::ok("GPU", "none without a driver").with(Status::Note, NO_GPU)];
        }
        Err(error) => {
            let check = Check::ok("driver", error.to_string());
            return vec![check.with(Status::Warning, "reinstall NVIDIA's driver")];
        }
    };
    let found = match warpwright::device_count() {
        Ok(0) => vec![Check::ok("GPU", "none").with(Status::Note, NO_GPU)],
        Ok(count) => (0..count).map(gpu).collect(),
        Err(error) => {
            vec![Check::ok("GPU", error.to_string()).with(Status::Warning, "see NVIDIA's `nvidia-smi`")]
        }
    };
    std::iter::once(driver).chain(found).collect()
}

fn gpu(ordinal: usize) -> Check {
    let name = format!("GPU cuda:{ordinal}");
    let device = match Device::cuda(ordinal) {
        Ok(device) => device,
        Err(error @ Error::Architecture { .. }) => {
            return Check::ok(name, format!("too old: {error}")).with(Status::Warning, NO_GPU);
        }
        Err(error) => return Check::ok(name, error.to_string()).with(Status::Warning, "see `nvidia-smi`"),
    };
    let about = device.info().map_or_else(String::new, |info| {
        let gib = info.total_memory as f64 / f64::from(1 << 30);
        format!("{}, compute capability {}.{}, {gib:.0} GiB", info.name, info.arch.0, info.arch.1)
    });
    match probe::self_test(&device) {
        Ok(None) => Check::ok(name, format!("{about}, usable")),
        Ok(Some(wrong)) => Check::ok(name, format!("{about}: {wrong}"))
            .with(Status::Failed, "its results cannot be trusted: update the driver, or test the hardware"),
        Err(error) => Check::ok(name, format!("{about}: {error}")).with(Status::Failed, "update the driver"),
    }
}

/// The CPU device does what it should, and notices what it should not do.
fn checker() -> Check {
    let name = "CPU checker";
    let broken = "this program is broken: build it anew, and report it";
    match probe::self_test(&Device::cpu()) {
        Ok(None) => Check::ok(name, "the copy kernel is right, and a read of unwritten memory is reported"),
        Ok(Some(wrong)) => Check::ok(name, wrong).with(Status::Failed, broken),
        Err(error) => Check::ok(name, error.to_string()).with(Status::Failed, broken),
    }
}
