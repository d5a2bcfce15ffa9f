//! Whether the committed PTX is what a checkout's sources give. `xtask` knows that; this only asks it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Check, Status};
use crate::manifest::Manifest;

const NAME: &str = "PTX freshness";
const REBUILD: &str = "`cargo xtask build-ptx`";
/// The files that only a checkout of this workspace has.
const MARKS: [&str; 4] =
    ["Cargo.toml", "xtask/Cargo.toml", "kernels-gpu/Cargo.toml", "host/ptx/manifest.json"];

/// Of the checkout that holds `dir`.
pub fn freshness(dir: &Path) -> Check {
    let Some(root) = root_above(dir) else { return Check::ok(NAME, "not in a checkout: skipped") };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo).args(["xtask", "build-ptx", "--check"]).current_dir(&root).output();
    let output = match ran {
        Ok(output) => output,
        Err(error) => {
            let check = Check::ok(NAME, format!("not checked: cargo does not start: {error}"));
            return check.with(Status::Warning, "install Rust from rustup.rs");
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    let reason = last.strip_prefix("error: ").unwrap_or(last);
    if output.status.success() {
        return in_program(&root);
    }
    match reason.strip_suffix(": run `cargo xtask build-ptx`") {
        Some(reason) => Check::ok(NAME, format!("stale: {reason}")).with(Status::Failed, REBUILD),
        None => Check::ok(NAME, format!("not checked: {reason}"))
            .with(Status::Warning, "see `cargo xtask build-ptx --check`"),
    }
}

/// The PTX of the checkout is fresh; is it the one in this program?
fn in_program(root: &Path) -> Check {
    let text = std::fs::read_to_string(root.join("host/ptx/manifest.json")).unwrap_or_default();
    match (Manifest::parse(&text), Manifest::embedded()) {
        (Ok(theirs), Ok(ours)) if theirs == ours => {
            Check::ok(NAME, format!("{} families are what the sources give", ours.families.len()))
        }
        _ => Check::ok(NAME, "the checkout's PTX is fresh, but this program holds another one")
            .with(Status::Warning, "`cargo build -p warpwright-cli`"),
    }
}

fn root_above(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| MARKS.iter().all(|mark| dir.join(mark).is_file())).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_is_found_from_inside_and_elsewhere_there_is_none() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(root_above(&here.join("src")).as_deref(), here.parent());
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(root_above(elsewhere.path()), None);
        assert_eq!(freshness(elsewhere.path()), Check::ok(NAME, "not in a checkout: skipped"));
    }
}
