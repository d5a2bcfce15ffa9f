//! `warpwright list`: the operations, and the kernels that were built for them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::CliError;
use crate::manifest::{Family, Kernel, Manifest};
use crate::ops::{OPS, Op};
use crate::output;
use crate::table::Table;

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    ops: Vec<OpReport>,
    families: BTreeMap<&'a str, FamilyReport<'a>>,
}

#[derive(Serialize)]
struct OpReport {
    name: &'static str,
    summary: &'static str,
    dtypes: Vec<&'static str>,
    inputs: Vec<TensorReport>,
    outputs: Vec<TensorReport>,
    parameters: Vec<ParameterReport>,
    family: &'static str,
}

#[derive(Serialize)]
struct TensorReport {
    name: &'static str,
    dtypes: &'static str,
    shape: &'static str,
    required: bool,
}

#[derive(Serialize)]
struct ParameterReport {
    name: &'static str,
    value: &'static str,
    default: &'static str,
}

#[derive(Serialize)]
struct FamilyReport<'a> {
    rustc: &'a str,
    llvm: &'a str,
    ptxas: Option<&'a str>,
    architectures: Vec<&'a str>,
    kernels: Vec<KernelReport<'a>>,
}

/// A kernel as built for one architecture.
#[derive(Serialize)]
struct KernelReport<'a> {
    name: &'a str,
    architecture: &'a str,
    threads: Option<u32>,
    registers: Option<u32>,
    spill_bytes: Option<u32>,
    shared_bytes: u32,
    dynamic_shared: bool,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let manifest = Manifest::embedded()?;
    if args.json {
        return output::print_json(&Report {
            version: env!("CARGO_PKG_VERSION"),
            ops: OPS.iter().map(|op| report_op(op)).collect(),
            families: manifest.families.iter().map(|(name, f)| (name.as_str(), report_family(f))).collect(),
        });
    }
    let mut text = String::new();
    for op in OPS {
        text.push_str(&op.describe());
        text.push_str(&format!("  computes in {}, kernels of family {}\n\n", op.dtype_names(), op.family));
    }
    for (name, family) in &manifest.families {
        text.push_str(&describe_family(name, family));
    }
    output::print(text.trim_end())
}

fn report_op(op: &Op) -> OpReport {
    let tensors = |specs: &'static [crate::ops::TensorSpec]| {
        let report = |spec: &'static crate::ops::TensorSpec| TensorReport {
            name: spec.name,
            dtypes: spec.dtypes,
            shape: spec.shape,
            required: spec.required,
        };
        specs.iter().map(report).collect()
    };
    let parameter = |spec: &crate::ops::parameters::ParameterSpec| ParameterReport {
        name: spec.name,
        value: spec.kind.required(),
        default: spec.default,
    };
    OpReport {
        name: op.name,
        summary: op.summary,
        dtypes: op.dtypes.iter().map(|dtype| dtype.name()).collect(),
        inputs: tensors(op.inputs),
        outputs: tensors(op.outputs),
        parameters: op.parameters.iter().map(parameter).collect(),
        family: op.family,
    }
}

fn report_family(family: &Family) -> FamilyReport<'_> {
    let kernels = family.files.values().flat_map(|file| {
        file.kernels.iter().map(|kernel| KernelReport {
            name: &kernel.name,
            architecture: &file.arch,
            threads: kernel.bounds.threads(),
            registers: kernel.assembled.map(|assembled| assembled.registers),
            spill_bytes: kernel.assembled.map(|assembled| assembled.spill_bytes),
            shared_bytes: kernel.static_shared_bytes,
            dynamic_shared: kernel.dynamic_shared,
        })
    });
    FamilyReport {
        rustc: &family.rustc,
        llvm: &family.llvm,
        ptxas: family.ptxas.as_deref(),
        architectures: family.files.values().map(|file| file.arch.as_str()).collect(),
        kernels: kernels.collect(),
    }
}

/// A line for each kernel, with its registers on each architecture.
fn describe_family(name: &str, family: &Family) -> String {
    let arches: Vec<&str> = family.files.values().map(|file| file.arch.as_str()).collect();
    let mut kernels: BTreeMap<&str, Vec<Option<&Kernel>>> = BTreeMap::new();
    for (column, file) in family.files.values().enumerate() {
        for kernel in &file.kernels {
            kernels.entry(&kernel.name).or_insert_with(|| vec![None; arches.len()])[column] = Some(kernel);
        }
    }
    let mut table = Table::new(&["kernel", "architectures", "threads", "registers", "spilled", "shared"], 2);
    let or_unknown = |value: Option<u32>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
    for (kernel, builds) in &kernels {
        let present = || builds.iter().flatten();
        let each = |value: &dyn Fn(&Kernel) -> String| {
            let mut texts: Vec<String> = present().map(|kernel| value(kernel)).collect();
            texts.dedup();
            texts.join(" / ")
        };
        let built_for: Vec<&str> =
            builds.iter().zip(&arches).filter(|(build, _)| build.is_some()).map(|(_, &arch)| arch).collect();
        table.row(vec![
            (*kernel).to_owned(),
            built_for.join(" "),
            each(&|kernel| or_unknown(kernel.bounds.threads())),
            each(&|kernel| or_unknown(kernel.assembled.map(|assembled| assembled.registers))),
            each(&|kernel| or_unknown(kernel.assembled.map(|assembled| assembled.spill_bytes))),
            each(&|kernel| {
                let dynamic = if kernel.dynamic_shared { " + dynamic" } else { "" };
                format!("{} B{dynamic}", kernel.static_shared_bytes)
            }),
        ]);
    }
    let count = kernels.len();
    let ptxas = family.ptxas.as_deref().map_or_else(String::new, |version| format!(", ptxas {version}"));
    format!(
        "family {name}: {count} kernels for {}; {}, LLVM {}{ptxas}\n{}\n",
        arches.join(" "),
        family.rustc,
        family.llvm,
        table.render()
    )
}
