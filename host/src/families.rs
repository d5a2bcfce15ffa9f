//! The PTX that is built into the library, packed by the build script: one family for each group of
//! operations.

use crate::cuda::{PtxArch, PtxFamily};
use crate::error::{Error, Result};
use crate::launch::Entry;

macro_rules! family {
    ($name:literal) => {
        PtxFamily::packed(
            $name,
            &[
                (PtxArch::Sm90a, include!(concat!(env!("OUT_DIR"), "/", $name, ".sm_90a.rs"))),
                (PtxArch::Sm80, include!(concat!(env!("OUT_DIR"), "/", $name, ".sm_80.rs"))),
            ],
        )
    };
    ($name:literal, hopper) => {
        PtxFamily::packed(
            $name,
            &[(PtxArch::Sm90a, include!(concat!(env!("OUT_DIR"), "/", $name, ".sm_90a.rs")))],
        )
    };
    ($name:literal, portable) => {
        PtxFamily::packed(
            $name,
            &[(PtxArch::Sm80, include!(concat!(env!("OUT_DIR"), "/", $name, ".sm_80.rs")))],
        )
    };
}

/// Families without portable kernels: another family has their counterparts.
#[cfg(test)]
const HOPPER_ONLY: [&str; 5] =
    ["attention_scores_hopper", "masked_softmax_hopper", "matmul_hopper", "recurrent_hopper", "rows_hopper"];

/// Kernels that measure and test the machine.
pub static PROBE: PtxFamily = family!("probe");
/// The probabilities of attention from queries and keys.
pub static ATTENTION_SCORES: PtxFamily = family!("attention_scores", portable);
/// The same with Hopper's instructions.
pub static ATTENTION_SCORES_HOPPER: PtxFamily = family!("attention_scores_hopper", hopper);
/// Sums of columns, the second step of gradients of biases and weights.
pub static COLUMN_SUMS: PtxFamily = family!("column_sums", portable);
/// Rows of tables, and their gradients.
pub static EMBEDDING: PtxFamily = family!("embedding", portable);
/// The masked softmax, forward.
pub static MASKED_SOFTMAX: PtxFamily = family!("masked_softmax", portable);
/// The masked softmax's kernels for long rows on Hopper.
pub static MASKED_SOFTMAX_HOPPER: PtxFamily = family!("masked_softmax_hopper", hopper);
/// Products of matrices.
pub static MATMUL: PtxFamily = family!("matmul", portable);
/// Products of matrices with Hopper's instructions.
pub static MATMUL_HOPPER: PtxFamily = family!("matmul_hopper", hopper);
/// Elements in another order of their dimensions.
pub static PERMUTE: PtxFamily = family!("permute", portable).letting_next_start();
/// Operations on each element: GELU, sums, casts, dropout.
pub static POINTWISE: PtxFamily = family!("pointwise", portable).letting_next_start();
/// Recurrent layers.
pub static RECURRENT: PtxFamily = family!("recurrent", portable);
/// Steps of recurrent layers whose weights do not fit on chip, with Hopper's instructions.
pub static RECURRENT_HOPPER: PtxFamily = family!("recurrent_hopper", hopper);
/// Operations along rows with a statistic: layer norm, RMS norm, gradients.
pub static ROWS: PtxFamily = family!("rows", portable).letting_next_start();
/// The same for rows that a cluster holds.
pub static ROWS_HOPPER: PtxFamily = family!("rows_hopper", hopper);

static FAMILIES: [&PtxFamily; 15] = [
    &PROBE,
    &ATTENTION_SCORES,
    &ATTENTION_SCORES_HOPPER,
    &COLUMN_SUMS,
    &EMBEDDING,
    &MASKED_SOFTMAX,
    &MASKED_SOFTMAX_HOPPER,
    &MATMUL,
    &MATMUL_HOPPER,
    &PERMUTE,
    &POINTWISE,
    &RECURRENT,
    &RECURRENT_HOPPER,
    &ROWS,
    &ROWS_HOPPER,
];

/// Every family.
pub fn families() -> &'static [&'static PtxFamily] {
    &FAMILIES
}

/// What `cargo xtask build-ptx` noted about the PTX, as JSON: sources, compiler, and each kernel's registers.
pub fn manifest() -> &'static str {
    include_str!("../ptx/manifest.json")
}

/// The family that holds a kernel.
pub(crate) fn find(entry: Entry) -> Result<&'static PtxFamily> {
    FAMILIES.iter().copied().find(|family| family.name == entry.family).ok_or_else(|| Error::Missing {
        op: entry.name,
        arg: format!("host/ptx/{}.*.ptx", entry.family),
        required: "the kernel's family must be one that is built into the library",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_family_is_found_by_its_kernels_and_has_portable_code_or_a_counterpart() {
        assert_eq!(find((&kernels_gpu::probe::copy::ALL[0]).into()).unwrap().name, "probe");
        for family in families() {
            let portable = family.archs().contains(&PtxArch::Sm80);
            assert_eq!(portable, !HOPPER_ONLY.contains(&family.name), "{}", family.name);
            assert!(!family.kernels().is_empty(), "{}", family.name);
        }
    }

    /// Family, architecture and name of each kernel of the manifest.
    fn manifest_kernels() -> Vec<(&'static PtxFamily, PtxArch, String)> {
        let manifest: Value = serde_json::from_str(manifest()).unwrap();
        let mut kernels = Vec::new();
        for family in families() {
            for file in manifest["families"][family.name]["files"].as_object().unwrap().values() {
                let of_file = |arch: &&PtxArch| file["arch"] == arch.to_string();
                let arch = *family.archs().iter().find(of_file).unwrap();
                let names =
                    file["kernels"].as_array().unwrap().iter().map(|kernel| kernel["name"].as_str().unwrap());
                kernels.extend(names.map(|name| (*family, arch, name.to_owned())));
            }
        }
        kernels
    }

    #[test]
    fn every_kernel_of_the_manifest_is_a_module_of_its_own() {
        for (family, arch, name) in manifest_kernels() {
            assert!(family.kernels().contains(&name.as_str()), "{name}");
            let ptx = family.ptx(arch, &name).unwrap();
            assert!(ptx.starts_with(".version ") && ptx.contains(&format!("\n.target {arch}\n")), "{name}");
            assert_eq!(ptx.matches(".entry").count(), 1, "{name}");
            assert!(ptx.contains(&format!(".visible .entry {name}(")), "{name}");
        }
    }

    #[test]
    fn every_kernel_can_start_early() {
        for (family, arch, name) in manifest_kernels() {
            let ptx = family.ptx_that_waits(arch, &name).expect(&name);
            let first = |instruction| ptx.find(instruction);
            let (wait, next) = (
                first("griddepcontrol.wait;"),
                first("griddepcontrol.launch_dependents;").unwrap_or(ptx.len()),
            );
            assert!(wait.is_some_and(|wait| wait < next), "{name}");
            // A compiler may move such a load in front of the wait.
            assert!(!ptx.contains(".nc."), "{name}");
            assert!(!ptx.contains("begins_behind_what_is_ahead"), "{name}");
        }
    }

    #[test]
    fn modules_of_one_kernel_assemble() {
        let Some(ptxas) = cuda_builder::find_ptxas() else { return };
        let kernels = manifest_kernels();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.ptx");
        for (family, arch, name) in kernels.iter().step_by(kernels.len() / 8) {
            for device in [(8, 0), (9, 0)] {
                let ptx = match device {
                    (8, 0) => family.ptx(*arch, name),
                    _ => family.ptx_that_waits(*arch, name),
                };
                let ptx = ptx.expect(name);
                std::fs::write(&path, ptx).unwrap();
                let target = if device == (9, 0) { "sm_90a".to_owned() } else { arch.to_string() };
                let report = ptxas.assemble(&path, &target, &path.with_extension("cubin")).unwrap();
                assert_eq!(report.kernels.len(), 1, "{name}");
                assert_eq!(report.kernels[0].name, *name);
            }
        }
    }

    #[test]
    fn the_program_stays_small() {
        let packed: usize = families().iter().map(|family| family.packed_bytes()).sum();
        println!("{packed} bytes");
        // 6 MiB: all of it is in every program.
        assert!(packed < 6 << 20, "{packed} bytes of packed PTX");
    }
}
