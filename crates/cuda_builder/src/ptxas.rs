//! Finds NVIDIA's assembler, runs it, and reads its report. It needs no GPU and no driver.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::toolchain::on_path;

/// The command that installs `ptxas` where there is no CUDA toolkit.
pub const REMEDY: &str = "pip install nvidia-cuda-nvcc";

/// A `ptxas` that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    /// The program.
    pub path: PathBuf,
    /// `13.0.88`
    pub version: String,
}

/// What `ptxas -v` said about one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The kernels, in the order of its output.
    pub kernels: Vec<Assembled>,
    /// Lines that are warnings, and notes on lost performance (`C7510` and the like).
    pub warnings: Vec<String>,
}

/// What a kernel came to on one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// The kernel's name.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that are stored to local memory.
    pub spill_store_bytes: u32,
    /// Bytes of them that are loaded again.
    pub spill_load_bytes: u32,
    /// Bytes of a thread's stack.
    pub stack_bytes: u32,
    /// Bytes of static shared memory of a block.
    pub shared_bytes: u32,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages tell
pub enum PtxasError {
    #[error("`{path}` does not start: {source}", path = path.display())]
    Start { path: PathBuf, source: io::Error },
    /// The messages are `ptxas`'s own, in full.
    #[error("ptxas refuses {ptx} for {arch}:\n{messages}", ptx = ptx.display())]
    Refused { ptx: PathBuf, arch: String, messages: String },
}

/// Finds `ptxas`: the variable `PTXAS` (where it is set, nothing else will do), `PATH`, the CUDA toolkit
/// of `CUDA_HOME` or `CUDA_PATH` or its usual place, and pip's `nvidia` packages.
pub fn find_ptxas() -> Option<Ptxas> {
    if let Some(named) = named() {
        return Ptxas::at(&named);
    }
    candidates("ptxas").find_map(|path| Ptxas::at(&path))
}

/// Finds another tool of the CUDA toolkit, such as `nvdisasm`: beside the `ptxas` of the variable `PTXAS`, and in the same places.
pub fn find_cuda_tool(name: &str) -> Option<PathBuf> {
    let beside = named().map(|ptxas| ptxas.with_file_name(name));
    beside.into_iter().chain(candidates(name)).find(|path| path.is_file())
}

/// The variable `PTXAS`; an empty one names nothing.
fn named() -> Option<PathBuf> {
    env::var_os("PTXAS").filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn candidates(name: &str) -> impl Iterator<Item = PathBuf> {
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let usual = [PathBuf::from("/usr/local/cuda")];
    let in_toolkits = toolkits.chain(usual).map(move |dir| dir.join("bin").join(name));
    // Asking Python takes a tenth of a second: last, and only when it comes to that.
    let in_packages = std::iter::once_with(move || in_site_packages(&site_packages(), name)).flatten();
    on_path(name).into_iter().chain(in_toolkits).chain(in_packages)
}

fn in_site_packages(folders: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        let Ok(packages) = fs::read_dir(folder.join("nvidia")) else { continue };
        found.extend(packages.flatten().map(|p| p.path().join("bin").join(name)).filter(|p| p.is_file()));
    }
    // The names of the folders end in the CUDA version: the newest comes first.
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// Where Python looks for packages; empty without Python.
fn site_packages() -> Vec<PathBuf> {
    let listing = Command::new("python3").args(["-c", "import sys; print('\\n'.join(sys.path))"]).output();
    let Ok(listing) = listing else { return Vec::new() };
    let text = String::from_utf8_lossy(&listing.stdout).into_owned();
    text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect()
}

impl Ptxas {
    fn at(path: &Path) -> Option<Ptxas> {
        let output =
            Command::new(path).arg("--version").output().ok().filter(|output| output.status.success())?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Ptxas { path: path.to_owned(), version })
    }

    /// Assembles a PTX file for an architecture such as `sm_90a` into a cubin.
    pub fn assemble(&self, ptx: &Path, arch: &str, cubin: &Path) -> Result<Report, PtxasError> {
        let output = Command::new(&self.path)
            .arg("-v")
            .arg(format!("-arch={arch}"))
            .arg(ptx)
            .arg("-o")
            .arg(cubin)
            .output()
            .map_err(|source| PtxasError::Start { path: self.path.clone(), source })?;
        let mut messages = String::from_utf8_lossy(&output.stderr).into_owned();
        messages.push_str(&String::from_utf8_lossy(&output.stdout));
        if output.status.success() {
            Ok(Report::parse(&messages))
        } else {
            Err(PtxasError::Refused { ptx: ptx.to_owned(), arch: arch.to_owned(), messages })
        }
    }
}

fn parse_version(text: &str) -> Option<String> {
    let release = text.lines().find(|line| line.contains("release"))?;
    Some(release.rsplit_once(", V")?.1.trim().to_owned())
}

impl Report {
    /// Reads what `ptxas -v` prints.
    pub fn parse(messages: &str) -> Report {
        let mut report = Report::default();
        // `Function properties` may speak of a device function; then it is no kernel's.
        let mut properties_of: Option<String> = None;
        for line in messages.lines() {
            if let Some((_, rest)) = line.split_once("Compiling entry function '") {
                let name = rest.split('\'').next().unwrap_or_default().to_owned();
                properties_of = Some(name.clone());
                report.kernels.push(Assembled { name, ..Assembled::default() });
            } else if let Some((_, name)) = line.split_once("Function properties for ") {
                properties_of = Some(name.trim().to_owned());
            } else if line.contains("bytes stack frame") {
                let function = properties_of.as_deref();
                if let Some(kernel) = report.kernels.iter_mut().find(|k| Some(k.name.as_str()) == function) {
                    kernel.stack_bytes = number_before(line, " bytes stack frame");
                    kernel.spill_store_bytes = number_before(line, " bytes spill stores");
                    kernel.spill_load_bytes = number_before(line, " bytes spill loads");
                }
            } else if line.contains("Used ") && line.contains(" registers") {
                if let Some(kernel) = report.kernels.last_mut() {
                    kernel.registers = number_before(line, " registers");
                    kernel.shared_bytes = number_before(line, " bytes smem");
                }
            } else if line.contains("warning") || line.contains("(C7") {
                report.warnings.push(line.trim().to_owned());
            }
        }
        report
    }
}

fn number_before(line: &str, unit: &str) -> u32 {
    let Some(end) = line.find(unit) else { return 0 };
    let digits = line[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
    line[digits..end].parse().unwrap_or(0)
}

/// Registers of a multiprocessor, the same from `sm_70` to `sm_120`.
const REGISTERS_PER_SM: u32 = 65_536;
/// Registers are given to whole warps, in units of this many.
const REGISTERS_UNIT: u32 = 256;
/// Registers that an instruction can name.
const REGISTERS_PER_THREAD: u32 = 255;
/// A multiprocessor has four parts with a quarter of the registers each; a warp lives in one.
const SM_PARTS: u32 = 4;

/// The most registers a thread may use so that `blocks` blocks of `threads` threads fit on one
/// multiprocessor. 0 if they cannot fit at all.
pub fn register_limit(threads: u32, blocks: u32) -> u32 {
    let fits = |registers: &u32| blocks_that_fit(*registers, threads) >= blocks.max(1);
    (1..=REGISTERS_PER_THREAD).rev().find(fits).unwrap_or(0)
}

/// How many blocks of `threads` threads fit on one multiprocessor as far as registers go.
pub fn blocks_that_fit(registers: u32, threads: u32) -> u32 {
    let per_warp = (registers.max(1) * 32).next_multiple_of(REGISTERS_UNIT);
    let warps = REGISTERS_PER_SM / SM_PARTS / per_warp * SM_PARTS;
    warps / threads.max(1).div_ceil(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "ptxas info    : 2 bytes gmem
ptxas info    : Compiling entry function 'bad' for 'sm_80'
ptxas info    : Function properties for bad
    528 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Function properties for helper
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 528 bytes cumulative stack size, 4096 bytes smem, 364 bytes cmem[0]
ptxas info    : Compile time = 4.1 ms
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x in function 'bad'
ptxas warning : Value of threads per SM for entry good is out of range. .minnctapersm will be ignored
ptxas info    : Compiling entry function 'good' for 'sm_80'
ptxas info    : Function properties for good
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
";

    #[test]
    fn the_report_is_read_per_kernel() {
        let report = Report::parse(OUTPUT);
        let bad = Assembled {
            name: "bad".into(),
            registers: 40,
            spill_store_bytes: 12,
            spill_load_bytes: 16,
            stack_bytes: 528,
            shared_bytes: 4096,
        };
        let good = Assembled { name: "good".into(), registers: 8, ..Assembled::default() };
        assert_eq!(report.kernels, [bad, good]);
        assert_eq!(report.warnings.len(), 2);
        assert!(report.warnings[0].contains("(C7510)"));
        assert!(report.warnings[1].contains("minnctapersm will be ignored"));
    }

    #[test]
    fn the_version_is_the_full_one() {
        let text = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 13.0, V13.0.88\nBuild x\n";
        assert_eq!(parse_version(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_version("nothing of the kind"), None);
    }

    #[test]
    fn registers_are_bounded_by_threads_and_blocks() {
        for (threads, blocks, limit) in [
            (1024, 1, 64),
            (1024, 2, 32),
            (256, 1, 255),
            (256, 2, 128),
            (256, 3, 80), // 65536 / 768 is 85, which is no multiple of 8
            (128, 4, 128),
            (32, 1, 255),
            (160, 2, 168), // 10 warps: three in two of the four parts
            (0, 0, 255),
            (1024, 64, 0), // 2048 warps never fit
        ] {
            assert_eq!(register_limit(threads, blocks), limit, "{threads} threads, {blocks} blocks");
        }
    }

    #[test]
    fn one_register_above_the_limit_costs_a_block() {
        assert_eq!(blocks_that_fit(128, 256), 2);
        assert_eq!(blocks_that_fit(129, 256), 1);
        assert_eq!(blocks_that_fit(64, 1024), 1);
        assert_eq!(blocks_that_fit(65, 1024), 0);
    }

    #[test]
    fn the_newest_of_pips_packages_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        for package in ["cu12", "cu13", "cudnn"] {
            fs::create_dir_all(dir.path().join("nvidia").join(package).join("bin")).unwrap();
        }
        for package in ["cu12", "cu13"] {
            fs::write(dir.path().join("nvidia").join(package).join("bin/ptxas"), "").unwrap();
        }
        let found = in_site_packages(&[dir.path().to_owned(), dir.path().join("none")], "ptxas");
        let ends: Vec<bool> = found
            .iter()
            .zip(["cu13", "cu12"])
            .map(|(p, c)| p.ends_with(format!("nvidia/{c}/bin/ptxas")))
            .collect();
        assert_eq!(ends, [true, true]);
    }
}
