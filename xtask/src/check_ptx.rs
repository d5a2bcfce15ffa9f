//! `cargo xtask check-ptx`: assembles every PTX file for every architecture it may meet, without a GPU,
//! and fails on what must not ship.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, bail};
use cuda_builder::{
    Ptxas, find_ptxas,
    ptx::Module,
    ptxas::{Assembled, REMEDY, Report, register_limit},
};

use crate::{
    copies::{has_kept_copies, judge_copies},
    families::select,
    manifest::{FileEntry, KernelEntry, Manifest, sha256},
    sass::{disassemble, find_nvdisasm},
};

#[derive(clap::Args)]
pub struct Args {
    /// Only this family
    #[arg(long)]
    family: Option<String>,
    /// Without ptxas or nvdisasm, check only what can be seen without
    #[arg(long)]
    allow_missing_ptxas: bool,
}

/// Where portable PTX is expected to run: Ampere, Ada, Hopper, Blackwell, in datacentres and desktops.
const PORTABLE: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"];

/// The largest block that may be launched when a kernel states none.
const LARGEST_BLOCK: u32 = 1024;

pub fn run(root: &Path, args: &Args) -> Result<()> {
    let manifest = Manifest::load(root)?;
    let ptxas = find_ptxas();
    if ptxas.is_none() && !args.allow_missing_ptxas {
        bail!("no ptxas was found: install it with `{REMEDY}`, or name it in PTXAS");
    }
    let nvdisasm = match find_nvdisasm() {
        Err(error) if !args.allow_missing_ptxas => return Err(error),
        found => found.ok(),
    };
    let mut files = Vec::new();
    for family in select(args.family.as_deref())? {
        let entry = manifest.families.get(family.name);
        let entry = entry.with_context(|| format!("family `{}` was never built", family.name))?;
        files.extend(entry.files.iter().map(|(name, file)| (name.as_str(), file)));
    }
    let mut findings = Vec::new();
    let mut with_kept_copies = BTreeSet::new();
    for (name, file) in &files {
        let path = Manifest::folder(root).join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        if sha256(text.as_bytes()) != file.sha256 {
            bail!("host/ptx/{name} is not the file that was built: run `cargo xtask build-ptx`");
        }
        if has_kept_copies(&text) {
            with_kept_copies.insert(*name);
        }
        findings.extend(shapes(&text, file).into_iter().map(|finding| format!("{name}: {finding}")));
    }
    let kernels: usize = files.iter().map(|(_, file)| file.kernels.len()).sum();
    match ptxas {
        Some(ptxas) => {
            println!("ptxas {} ({})", ptxas.version, ptxas.path.display());
            let jobs = jobs(&files, &with_kept_copies);
            let results = assemble_all(root, &Tools { ptxas, nvdisasm }, &jobs)?;
            print!("{}", table(&jobs, &results));
            findings.extend(judge_all(&jobs, &results));
        }
        None => println!("no ptxas, so nothing was assembled: `{REMEDY}`"),
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("clean: {} files, {kernels} kernels", files.len());
            Ok(())
        }
        count => bail!("{count} findings in host/ptx"),
    }
}

/// What the PTX shows by itself.
fn shapes(text: &str, file: &FileEntry) -> Vec<String> {
    let module = Module::parse(text);
    let mut findings: Vec<String> = module
        .functions
        .iter()
        .map(|function| format!("function `{function}` is left: not inlined, or a panic can be reached"))
        .collect();
    for entry in &module.entries {
        let name = &entry.name;
        if let Some(target) = entry.calls.first() {
            findings.push(format!("{name}: {} calls, first of `{target}`", entry.calls.len()));
        }
        if entry.local_bytes > 0 {
            findings.push(format!("{name}: {} bytes of local memory", entry.local_bytes));
        }
        if !file.kernels.iter().any(|kernel| kernel.name == *name) {
            findings.push(format!("{name}: not in the manifest"));
        }
    }
    for kernel in &file.kernels {
        let Some(entry) = module.entry(&kernel.name) else {
            findings.push(format!("{}: in the manifest, but not in the PTX", kernel.name));
            continue;
        };
        for expectation in &kernel.expects {
            let (found, holds) = expectation.check(entry);
            if !holds {
                findings.push(format!("{}: expected {expectation}, found {found}", kernel.name));
            }
        }
    }
    findings
}

/// NVIDIA's programs.
struct Tools {
    ptxas: Ptxas,
    /// The disassembler, where the caller does without if there is none.
    nvdisasm: Option<PathBuf>,
}

struct Job<'a> {
    name: &'a str,
    file: &'a FileEntry,
    arch: &'a str,
    /// Whether there are copies to look at: see [`has_kept_copies`].
    kept_copies: bool,
}

/// The longest first, so that the last to finish is a short one.
fn jobs<'a>(files: &[(&'a str, &'a FileEntry)], with_kept_copies: &BTreeSet<&str>) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for &(name, file) in files {
        // PTX with a generation's own instructions runs on that generation alone.
        let own = [file.arch.as_str()];
        let arches: &[&str] = if file.arch.ends_with('a') { &own } else { &PORTABLE };
        jobs.extend(arches.iter().map(|arch| {
            let arch = PORTABLE.into_iter().find(|known| known == arch).unwrap_or(&file.arch);
            Job { name, file, arch, kept_copies: with_kept_copies.contains(name) }
        }));
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(job.file.bytes));
    jobs
}

/// What `ptxas` made of a module.
struct Assembly {
    report: Report,
    /// What is wrong with its asynchronous copies: see [`judge_copies`].
    copies: Vec<String>,
}

/// That, or `ptxas`'s refusal.
type Outcome = Result<Assembly, String>;

fn assemble_all(root: &Path, tools: &Tools, jobs: &[Job]) -> Result<Vec<Outcome>> {
    let scratch = tempfile::tempdir().context("no temporary folder")?;
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Outcome>> = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return };
            let cubin = scratch.path().join(format!("{index}.cubin"));
            let outcome = assemble(root, tools, job, &cubin).map_err(|error| error.to_string());
            // Nothing reads it any more, and there may be hundreds.
            let _ = fs::remove_file(&cubin);
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(index, outcome);
        }
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len().max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(results.into_values().collect())
}

fn assemble(root: &Path, tools: &Tools, job: &Job, cubin: &Path) -> Result<Assembly> {
    let ptx = Manifest::folder(root).join(job.name);
    let report = tools.ptxas.assemble(&ptx, job.arch, cubin)?;
    // Looking takes seconds, so only where there is such a copy.
    let copies = match &tools.nvdisasm {
        Some(nvdisasm) if job.kept_copies => judge_copies(&disassemble(nvdisasm, cubin)?),
        _ => vec![],
    };
    Ok(Assembly { report, copies })
}

/// One line for what holds on several architectures.
fn judge_all(jobs: &[Job], results: &[Outcome]) -> Vec<String> {
    let mut places: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (job, result) in jobs.iter().zip(results) {
        for finding in judge(job, result) {
            places.entry((job.name, finding)).or_default().push(job.arch);
        }
    }
    let line = |((name, finding), arches): ((&str, String), Vec<&str>)| {
        format!("{name} on {}: {finding}", arches.join(", "))
    };
    places.into_iter().map(line).collect()
}

/// Findings in what `ptxas` made of one file for one architecture.
fn judge(job: &Job, outcome: &Outcome) -> Vec<String> {
    let Assembly { report, copies } = match outcome {
        Ok(assembly) => assembly,
        Err(refusal) => return vec![refusal.clone()],
    };
    let mut findings: Vec<String> =
        report.warnings.iter().filter(|line| !is_harmless(line, job)).cloned().collect();
    findings.extend_from_slice(copies);
    for kernel in &job.file.kernels {
        match report.kernels.iter().find(|assembled| assembled.name == kernel.name) {
            Some(assembled) => {
                let found = judge_kernel(kernel, assembled, job.arch == job.file.arch);
                findings.extend(found.into_iter().map(|finding| format!("{}: {finding}", kernel.name)));
            }
            None => findings.push(format!("{}: ptxas reported nothing", kernel.name)),
        }
    }
    findings
}

/// Architectures with room for fewer threads on a multiprocessor ignore a `.minnctapersm` that the
/// file's own architecture can satisfy.
fn is_harmless(warning: &str, job: &Job) -> bool {
    job.arch != job.file.arch && warning.contains(".minnctapersm will be ignored")
}

fn judge_kernel(kernel: &KernelEntry, assembled: &Assembled, at_home: bool) -> Vec<String> {
    let mut findings = Vec::new();
    let Assembled { registers, spill_store_bytes, spill_load_bytes, stack_bytes, .. } = *assembled;
    if spill_store_bytes + spill_load_bytes > 0 {
        findings.push(format!("spills: {spill_store_bytes} bytes stored, {spill_load_bytes} loaded"));
    } else if stack_bytes > 0 {
        findings.push(format!("{stack_bytes} bytes of stack"));
    }
    let threads = kernel.bounds.threads().unwrap_or(LARGEST_BLOCK);
    // Elsewhere, fewer threads may fit than the kernel was planned for; one block must fit anywhere.
    let blocks = if at_home { kernel.bounds.minnctapersm.unwrap_or(1) } else { 1 };
    let limit = register_limit(threads, blocks);
    if registers > limit {
        findings.push(format!(
            "{registers} registers, at most {limit} fit {blocks} x {threads} threads on a multiprocessor"
        ));
    }
    if let Some(limit) = kernel.bounds.max_regs.filter(|limit| registers > *limit) {
        findings.push(format!("{registers} registers, the kernel states at most {limit}"));
    }
    findings
}

/// One line per architecture.
fn table(jobs: &[Job], results: &[Outcome]) -> String {
    let mut rows: BTreeMap<String, [u32; 4]> = BTreeMap::new();
    for (job, result) in jobs.iter().zip(results) {
        let origin = if job.file.arch.ends_with('a') { " (own)" } else { "" };
        // Sorts sm_100 behind sm_90a.
        let digits: u32 = job.arch.trim_start_matches("sm_").trim_end_matches('a').parse().unwrap_or(0);
        let row = rows.entry(format!("{digits:04}{}{origin}", job.arch)).or_default();
        row[0] += 1;
        for kernel in result.iter().flat_map(|assembly| &assembly.report.kernels) {
            row[1] += 1;
            row[2] = row[2].max(kernel.registers);
            row[3] = row[3].max(kernel.shared_bytes);
        }
    }
    let mut out =
        format!("{:<14}{:>6}{:>9}{:>10}{:>10}\n", "arch", "files", "kernels", "max regs", "max smem");
    for (key, [files, kernels, registers, shared]) in rows {
        out.push_str(&format!("{:<14}{files:>6}{kernels:>9}{registers:>10}{shared:>10}\n", &key[4..]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_builder::{Dim3, LaunchBounds};

    fn kernel(bounds: LaunchBounds) -> KernelEntry {
        KernelEntry {
            name: "k".into(),
            bounds,
            param_bytes: 0,
            static_shared_bytes: 0,
            dynamic_shared: false,
            expects: vec![],
            assembled: None,
        }
    }

    fn file(arch: &str, kernels: Vec<KernelEntry>) -> FileEntry {
        FileEntry { arch: arch.into(), sha256: String::new(), bytes: 1, kernels }
    }

    fn bounds(threads: u32, blocks: u32) -> LaunchBounds {
        LaunchBounds {
            maxntid: Some(Dim3([threads, 1, 1])),
            minnctapersm: Some(blocks),
            ..LaunchBounds::default()
        }
    }

    fn used(registers: u32) -> Assembled {
        Assembled { name: "k".into(), registers, ..Assembled::default() }
    }

    fn job<'a>(file: &'a FileEntry, arch: &'a str) -> Job<'a> {
        Job { name: "f", file, arch, kept_copies: false }
    }

    fn assembly(report: Report) -> Assembly {
        Assembly { report, copies: vec![] }
    }

    #[test]
    fn registers_are_held_to_the_launch_bounds() {
        let bounded = kernel(bounds(256, 2));
        assert!(judge_kernel(&bounded, &used(128), true).is_empty());
        let found = judge_kernel(&bounded, &used(129), true);
        assert_eq!(found, ["129 registers, at most 128 fit 2 x 256 threads on a multiprocessor"]);
        assert!(judge_kernel(&bounded, &used(129), false).is_empty(), "one block is enough elsewhere");
        let unbounded = kernel(LaunchBounds::default());
        assert!(judge_kernel(&unbounded, &used(64), true).is_empty());
        assert_eq!(judge_kernel(&unbounded, &used(65), true).len(), 1);
        let stated = kernel(LaunchBounds { max_regs: Some(40), ..bounds(256, 1) });
        assert_eq!(judge_kernel(&stated, &used(41), true), ["41 registers, the kernel states at most 40"]);
        assert!(judge_kernel(&stated, &used(40), true).is_empty());
    }

    #[test]
    fn spills_and_stack_are_findings() {
        let k = kernel(bounds(32, 1));
        let spilled = Assembled { spill_store_bytes: 8, spill_load_bytes: 12, stack_bytes: 8, ..used(10) };
        assert_eq!(judge_kernel(&k, &spilled, true), ["spills: 8 bytes stored, 12 loaded"]);
        let stack = Assembled { stack_bytes: 16, ..used(10) };
        assert_eq!(judge_kernel(&k, &stack, true), ["16 bytes of stack"]);
    }

    #[test]
    fn the_ptx_itself_shows_calls_functions_local_memory_and_unmet_expectations() {
        let text = ".func helper() { ret; }\n.visible .entry k()\n{\n.local .align 4 .b8 __local_depot0[16];\n\
                    call.uni helper;\n ret;\n}\n.visible .entry other()\n{\nret;\n}\n";
        let mut k = kernel(LaunchBounds::default());
        k.expects = ["\">=\"", "\"==\""]
            .iter()
            .map(|c| {
                serde_json::from_str(&format!(
                    r#"{{"comparison": {c}, "count": 1, "instruction": "ld.global"}}"#
                ))
            })
            .collect::<Result<_, _>>()
            .unwrap();
        k.expects[0].instruction = "ret".into();
        let gone = KernelEntry { name: "gone".into(), ..kernel(LaunchBounds::default()) };
        assert_eq!(
            shapes(text, &file("sm_80", vec![k, gone])),
            [
                "function `helper` is left: not inlined, or a panic can be reached",
                "k: 1 calls, first of `helper`",
                "k: 16 bytes of local memory",
                "other: not in the manifest",
                "k: expected ==1 ld.global, found 0",
                "gone: in the manifest, but not in the PTX",
            ]
        );
    }

    #[test]
    fn portable_ptx_is_assembled_for_all_and_hoppers_for_hopper() {
        let (portable, hopper) = (file("sm_80", vec![]), file("sm_90a", vec![]));
        let jobs = jobs(&[("a.ptx", &portable), ("b.ptx", &hopper)], &BTreeSet::new());
        let pairs: Vec<(&str, &str)> = jobs.iter().map(|job| (job.name, job.arch)).collect();
        assert_eq!(pairs.iter().filter(|(name, _)| *name == "a.ptx").count(), PORTABLE.len());
        assert_eq!(
            pairs.iter().filter(|(name, _)| *name == "b.ptx").collect::<Vec<_>>(),
            [&("b.ptx", "sm_90a")]
        );
    }

    #[test]
    fn warnings_are_findings_except_for_what_only_other_architectures_ignore() {
        let k = file("sm_80", vec![kernel(bounds(1024, 2))]);
        let warnings = vec![
            "ptxas info : (C7510) Potential Performance Loss".to_owned(),
            "ptxas warning : Value of threads per SM is out of range. .minnctapersm will be ignored"
                .to_owned(),
        ];
        let outcome = Ok(assembly(Report { kernels: vec![used(32)], warnings }));
        let count = |arch: &'static str| judge(&job(&k, arch), &outcome).len();
        assert_eq!((count("sm_80"), count("sm_86")), (2, 1));
        let refused = Err("ptxas refuses f".to_owned());
        assert_eq!(judge(&job(&k, "sm_80"), &refused), ["ptxas refuses f"]);
        let silent = Ok(assembly(Report::default()));
        assert_eq!(judge(&job(&k, "sm_80"), &silent), ["k: ptxas reported nothing"]);
    }

    #[test]
    fn a_finding_on_several_architectures_is_one_line() {
        let k = file("sm_80", vec![kernel(bounds(32, 1))]);
        let jobs = ["sm_80", "sm_86", "sm_89"].map(|arch| job(&k, arch));
        let report = |stack_bytes| {
            Ok(assembly(Report { kernels: vec![Assembled { stack_bytes, ..used(9) }], warnings: vec![] }))
        };
        let lines = judge_all(&jobs, &[report(8), report(0), report(8)]);
        assert_eq!(lines, ["f on sm_80, sm_89: k: 8 bytes of stack"]);
    }

    #[test]
    fn the_table_has_a_line_per_architecture_in_order() {
        let k = file("sm_80", vec![kernel(bounds(32, 1))]);
        let jobs = ["sm_100", "sm_80"].map(|arch| job(&k, arch));
        let report = Report { kernels: vec![Assembled { shared_bytes: 64, ..used(9) }], warnings: vec![] };
        let text = table(&jobs, &[Ok(assembly(report.clone())), Ok(assembly(report))]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["sm_80", "1", "1", "9", "64"]);
        assert_eq!(lines[2], ["sm_100", "1", "1", "9", "64"]);
    }
}
