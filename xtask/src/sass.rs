//! `cargo xtask sass`: what the assembler makes of a kernel, for reading.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use cuda_builder::{Arch, find_cuda_tool, find_ptxas, ptxas::REMEDY};

use crate::{families::select, manifest::Manifest};

#[derive(clap::Args)]
pub struct Args {
    /// The family whose PTX is assembled
    family: String,
    /// Only kernels whose names contain this
    kernel: Option<String>,
    /// The architecture to assemble for
    #[arg(long, default_value = "sm_90a")]
    arch: Arch,
}

pub fn run(root: &Path, args: &Args) -> Result<()> {
    let family = select(Some(&args.family))?[0];
    let Some(source) = source_for(family.arches, args.arch) else {
        bail!("family `{}` has no PTX that {} can run", family.name, args.arch);
    };
    let ptx = Manifest::folder(root).join(family.file(source));
    if !ptx.is_file() {
        bail!("{} is missing: run `cargo xtask build-ptx`", ptx.display());
    }
    let ptxas = find_ptxas().with_context(|| format!("no ptxas was found: install it with `{REMEDY}`"))?;
    let scratch = tempfile::tempdir().context("no temporary folder")?;
    let cubin = scratch.path().join("kernels.cubin");
    let report = ptxas.assemble(&ptx, args.arch.name(), &cubin)?;
    let matching = |name: &str| args.kernel.as_deref().is_none_or(|part| name.contains(part));
    let text = disassemble(&find_nvdisasm()?, &cubin)?;
    let mut shown = String::new();
    for (name, code) in functions(&text).into_iter().filter(|(name, _)| matching(name)) {
        let figures = report.kernels.iter().find(|kernel| kernel.name == name);
        if let Some(k) = figures {
            shown +=
                &format!("// {name}: {} registers, {} bytes of shared memory\n", k.registers, k.shared_bytes);
        }
        shown += &code;
        shown.push('\n');
    }
    if shown.is_empty() {
        let names: Vec<&str> = report.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        bail!(
            "no kernel of `{}` contains `{}`: there are {}",
            family.name,
            args.kernel.as_deref().unwrap_or(""),
            names.join(", ")
        );
    }
    match io::stdout().write_all(shown.as_bytes()) {
        // A pager that was closed is no mistake.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("stdout"),
        _ => Ok(()),
    }
}

/// The family's PTX that a GPU of `arch` would be given: its own if there is one, else the newest
/// portable one that is not newer than it.
fn source_for(arches: &[Arch], arch: Arch) -> Option<Arch> {
    let portable = arches.iter().filter(|a| a.crate_feature().is_none() && a.number() <= arch.number());
    arches.iter().find(|a| **a == arch).or(portable.max()).copied()
}

/// The disassembler.
pub fn find_nvdisasm() -> Result<PathBuf> {
    let found = find_cuda_tool("nvdisasm");
    found.context("no nvdisasm was found: install it with `pip install nvidia-cuda-nvdisasm`")
}

/// The code in `cubin`.
pub fn disassemble(nvdisasm: &Path, cubin: &Path) -> Result<String> {
    let output = Command::new(nvdisasm)
        .args(["-c", "-ndf"])
        .arg(cubin)
        .output()
        .with_context(|| format!("{} does not start", nvdisasm.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", nvdisasm.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Name and code of each function: after `.text.NAME:` in what nvdisasm prints.
pub fn functions(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
            found.push((name.to_owned(), String::new()));
            inside = true;
        } else if line.trim().starts_with(".section") || line.starts_with("//---") {
            inside = false;
        } else if inside
            && !line.trim().is_empty()
            && let Some((_, code)) = found.last_mut()
        {
            code.push_str(line.trim_end());
            code.push('\n');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_its_own_ptx_or_the_portable_one() {
        let both = [Arch::Sm80, Arch::Sm90a];
        assert_eq!(source_for(&both, Arch::Sm90a), Some(Arch::Sm90a));
        assert_eq!(source_for(&both, Arch::Sm120), Some(Arch::Sm80));
        assert_eq!(source_for(&both, Arch::Sm75), None);
        assert_eq!(source_for(&[Arch::Sm90a], Arch::Sm100), None);
        assert_eq!(source_for(&[Arch::Sm80], Arch::Sm90a), Some(Arch::Sm80));
    }

    #[test]
    fn functions_are_found_in_the_disassembly() {
        let nvdisasm = "\t.section\t.text.foo,\"ax\"\n\t.align 128\n.text.foo:\n        /*0000*/ MOV R1 ;\n\n.L_x_0:\n//------ .text.bar ------\n\t.section\t.text.bar\n.text.bar:\n EXIT ;\n";
        let found = functions(nvdisasm);
        assert_eq!(found[0], ("foo".to_owned(), "        /*0000*/ MOV R1 ;\n.L_x_0:\n".to_owned()));
        assert_eq!(found[1], ("bar".to_owned(), " EXIT ;\n".to_owned()));
    }
}
