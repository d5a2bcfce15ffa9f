//! The op families: what is compiled into one PTX file per architecture.

use anyhow::{Result, bail};
use cuda_builder::{Arch, CudaBuilder};
use std::path::Path;

/// A feature of `kernels-gpu` and how its kernels are compiled.
pub struct Family {
    pub name: &'static str,
    pub arches: &'static [Arch],
    /// Arguments for LLVM, for every architecture.
    pub llvm_args: &'static [&'static str],
}

/// The portable floor, and Hopper.
const BOTH: &[Arch] = &[Arch::Sm80, Arch::Sm90a];
/// The portable floor alone: for kernels without anything of Hopper's, whose PTX would be the same twice.
const PORTABLE: &[Arch] = &[Arch::Sm80];
/// Hopper alone: for kernels of which another family has the portable counterparts.
const HOPPER: &[Arch] = &[Arch::Sm90a];

/// Kernels hold their rows in arrays that become registers only where every loop over them is unrolled
/// completely, which LLVM's default threshold ends too early. Unrolling a loop whose length is not known
/// makes the code longer and nothing else.
const UNROLL: &[&str] = &["-unroll-threshold=20000", "-unroll-runtime=0"];

/// In the order in which they are built.
pub const FAMILIES: &[Family] = &[
    Family { name: "probe", arches: BOTH, llvm_args: UNROLL },
    Family { name: "attention_scores", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "attention_scores_hopper", arches: HOPPER, llvm_args: UNROLL },
    Family { name: "column_sums", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "embedding", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "masked_softmax", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "masked_softmax_hopper", arches: HOPPER, llvm_args: UNROLL },
    Family { name: "matmul", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "matmul_hopper", arches: HOPPER, llvm_args: UNROLL },
    Family { name: "permute", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "pointwise", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "recurrent", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "recurrent_hopper", arches: HOPPER, llvm_args: UNROLL },
    Family { name: "rows", arches: PORTABLE, llvm_args: UNROLL },
    Family { name: "rows_hopper", arches: HOPPER, llvm_args: UNROLL },
];

impl Family {
    pub fn builder(&self, root: &Path, arch: Arch) -> CudaBuilder {
        let builder = CudaBuilder::new(root.join("kernels-gpu"))
            .arch(arch)
            .no_default_features(true)
            .features([self.name]);
        self.llvm_args.iter().fold(builder, |builder, argument| builder.llvm_arg(*argument))
    }

    pub fn file(&self, arch: Arch) -> String {
        format!("{}.{arch}.ptx", self.name)
    }
}

/// The family of a name, or all of them.
pub fn select(name: Option<&str>) -> Result<Vec<&'static Family>> {
    let Some(name) = name else { return Ok(FAMILIES.iter().collect()) };
    let Some(family) = FAMILIES.iter().find(|family| family.name == name) else {
        let known: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        bail!("unknown family `{name}`: known are {}", known.join(", "));
    };
    Ok(vec![family])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_family_and_architecture() {
        let files: Vec<String> = FAMILIES[0].arches.iter().map(|arch| FAMILIES[0].file(*arch)).collect();
        assert_eq!(files, ["probe.sm_80.ptx", "probe.sm_90a.ptx"]);
    }

    #[test]
    fn one_family_or_all_can_be_selected() {
        assert_eq!(select(None).unwrap().len(), FAMILIES.len());
        assert_eq!(select(Some("probe")).unwrap()[0].name, "probe");
        let error = select(Some("prob")).err().unwrap().to_string();
        assert!(
            error.starts_with("unknown family `prob`: known are probe, attention_scores, attention_scores_hopper, column_sums"),
            "{error}"
        );
    }
}
