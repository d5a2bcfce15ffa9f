//! What kernels say about themselves, as comment lines in the PTX, and what the builder makes of it.
//!
//! rustc has no launch-bounds attribute, but text of `global_asm!` reaches the PTX unchanged. Kernels
//! emit, one line each:
//!
//! ```text
//! //@kernel <entry> maxntid=256 minnctapersm=2 maxnreg=128 reqntid=64,4 cluster=2 max_regs=96
//! //@expect <entry> >=1 ld.global.nc.L1::no_allocate
//! ```
//!
//! `//@kernel` takes any subset of the keys, in one line or several. All but the last two become
//! directives of the entry, `tensor_maps` the alignment of as many parameters; `max_regs` is a limit that `check-ptx` holds `ptxas` to. `//@expect` states
//! how many instructions of the entry begin with a text (contain it, where it is written `*text`);
//! the comparison is one of `>=`, `<=`, `==`, `>`, `<`. The builder removes both kinds of line.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    Arch,
    ptx::{Entry, Module, Param, insert_directives},
    tidy::tidy,
};

/// Extents of a block or a cluster: x, y, z.
///
/// Written as PTX has it, without trailing ones: `256`, or `64, 4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Dim3(pub [u32; 3]);

impl From<Dim3> for String {
    fn from(dim: Dim3) -> String {
        dim.to_string()
    }
}

impl TryFrom<String> for Dim3 {
    type Error = Problem;
    fn try_from(text: String) -> Result<Dim3, Problem> {
        let value = text.replace(' ', "");
        Dim3::parse(&value).ok_or(Problem::Value { key: "block".to_owned(), value })
    }
}

impl Dim3 {
    /// Threads of a block, or blocks of a cluster.
    pub fn total(self) -> u32 {
        self.0.iter().product()
    }

    fn parse(text: &str) -> Option<Dim3> {
        let mut dims = [1; 3];
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > dims.len() {
            return None;
        }
        for (dim, part) in dims.iter_mut().zip(parts) {
            *dim = part.parse().ok().filter(|n| *n > 0)?;
        }
        Some(Dim3(dims))
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [x, y, z] = self.0;
        match (y, z) {
            (1, 1) => write!(f, "{x}"),
            (_, 1) => write!(f, "{x}, {y}"),
            _ => write!(f, "{x}, {y}, {z}"),
        }
    }
}

/// The keys of a `//@kernel` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchBounds {
    /// The largest block that the kernel may be launched with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxntid: Option<Dim3>,
    /// The one block that the kernel may be launched with; the driver refuses any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reqntid: Option<Dim3>,
    /// Blocks that must fit on a multiprocessor at once: limits registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minnctapersm: Option<u32>,
    /// Registers a thread may use, forced upon `ptxas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxnreg: Option<u32>,
    /// The one cluster that the kernel may be launched with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Dim3>,
    /// So many of the first parameters are tensor maps, which the hardware wants at multiples of 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_maps: Option<u32>,
    /// Registers a thread may come to, checked afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_regs: Option<u32>,
}

impl LaunchBounds {
    /// Threads of the largest block that a launch may have, where the kernel states it.
    pub fn threads(&self) -> Option<u32> {
        self.reqntid.or(self.maxntid).map(Dim3::total)
    }

    /// The performance directives of the entry, in a fixed order.
    pub fn directives(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut push = |name: &str, value: Option<String>| {
            lines.extend(value.map(|value| format!(".{name} {value}")));
        };
        push("maxntid", self.maxntid.map(|dim| dim.to_string()));
        push("reqntid", self.reqntid.map(|dim| dim.to_string()));
        push("minnctapersm", self.minnctapersm.map(|n| n.to_string()));
        push("maxnreg", self.maxnreg.map(|n| n.to_string()));
        push("reqnctapercluster", self.cluster.map(|dim| dim.to_string()));
        if self.cluster.is_some() {
            lines.insert(lines.len() - 1, ".explicitcluster".to_owned());
        }
        lines
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Problem> {
        let bad = || Problem::Value { key: key.to_owned(), value: value.to_owned() };
        let dim = || Dim3::parse(value).ok_or_else(bad);
        let number = || value.parse().ok().filter(|n: &u32| *n > 0).ok_or_else(bad);
        match key {
            "maxntid" => put(&mut self.maxntid, dim()?, key),
            "reqntid" => put(&mut self.reqntid, dim()?, key),
            "cluster" => put(&mut self.cluster, dim()?, key),
            "minnctapersm" => put(&mut self.minnctapersm, number()?, key),
            "maxnreg" => put(&mut self.maxnreg, number()?, key),
            "tensor_maps" => put(&mut self.tensor_maps, number()?, key),
            "max_regs" => put(&mut self.max_regs, number()?, key),
            _ => Err(Problem::Key(key.to_owned())),
        }
    }

    fn validate(&self, arch: Arch) -> Result<(), Problem> {
        if self.minnctapersm.is_some() && self.threads().is_none() {
            return Err(Problem::NoBlock);
        }
        if self.threads().is_some_and(|threads| threads > 1024) {
            return Err(Problem::Block(self.threads().unwrap_or(0)));
        }
        if self.cluster.is_some() && arch.number() < 90 {
            return Err(Problem::Cluster(arch));
        }
        Ok(())
    }
}

fn put<T: PartialEq + Copy>(slot: &mut Option<T>, value: T, key: &str) -> Result<(), Problem> {
    match slot {
        Some(old) if *old != value => Err(Problem::Conflict(key.to_owned())),
        _ => {
            *slot = Some(value);
            Ok(())
        }
    }
}

/// How a count of instructions is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names tell
pub enum Comparison {
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = "==")]
    Exactly,
    #[serde(rename = ">")]
    MoreThan,
    #[serde(rename = "<")]
    LessThan,
}

impl Comparison {
    /// Longest first, so that `>=1` is not read as `>` and `=1`.
    const SPELLINGS: [(&'static str, Comparison); 6] = [
        (">=", Comparison::AtLeast),
        ("<=", Comparison::AtMost),
        ("==", Comparison::Exactly),
        ("=", Comparison::Exactly),
        (">", Comparison::MoreThan),
        ("<", Comparison::LessThan),
    ];

    fn holds(self, found: u32, count: u32) -> bool {
        match self {
            Comparison::AtLeast => found >= count,
            Comparison::AtMost => found <= count,
            Comparison::Exactly => found == count,
            Comparison::MoreThan => found > count,
            Comparison::LessThan => found < count,
        }
    }

    fn symbol(self) -> &'static str {
        Comparison::SPELLINGS.iter().find(|(_, comparison)| *comparison == self).map_or("==", |(s, _)| s)
    }
}

/// An `//@expect` line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// How the count compares.
    pub comparison: Comparison,
    /// With what.
    pub count: u32,
    /// What is counted: an instruction, or its beginning.
    pub instruction: String,
}

impl Expectation {
    /// How many instructions of `entry` match, and whether that is what was expected.
    pub fn check(&self, entry: &Entry) -> (u32, bool) {
        let found = entry.count(&self.instruction);
        (found, self.comparison.holds(found, self.count))
    }

    fn parse(text: &str) -> Option<Expectation> {
        let (count, instruction) = text.split_once(char::is_whitespace)?;
        let (symbol, comparison) =
            Comparison::SPELLINGS.into_iter().find(|(symbol, _)| count.starts_with(symbol))?;
        let count = count[symbol.len()..].parse().ok()?;
        let instruction = instruction.split_whitespace().collect::<Vec<_>>().join(" ");
        (!instruction.is_empty()).then_some(Expectation { comparison, count, instruction })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{} {}", self.comparison.symbol(), self.count, self.instruction)
    }
}

/// What the PTX and its metadata say about one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// The entry's name.
    pub name: String,
    /// The block and the blocks that registers are left for.
    pub bounds: LaunchBounds,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of the parameter block, with the padding between parameters.
    pub param_bytes: u32,
    /// Bytes of its static shared memory.
    pub static_shared_bytes: u32,
    /// Whether the kernel names an `.extern .shared` array.
    pub dynamic_shared: bool,
    /// Bytes of `__local_depot` and other local memory: 0 in a kernel fit to ship.
    pub local_bytes: u32,
    /// Functions that are called: none in a kernel fit to ship.
    pub calls: Vec<String>,
    /// What it is expected to be made of.
    pub expects: Vec<Expectation>,
}

/// Why the metadata of a module was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)] // the messages tell
pub enum MetadataError {
    #[error("entry `{0}` has no `//@kernel` line, so its launch bounds are unknown")]
    Missing(String),
    #[error("metadata names entry `{0}`, which the PTX does not have")]
    NoSuchEntry(String),
    #[error("`{line}`: {problem}")]
    Line { line: String, problem: Problem },
    #[error("entry `{entry}`: {problem}")]
    Bounds { entry: String, problem: Problem },
}

/// What is wrong with a metadata line or with the bounds that its lines add up to.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)] // the messages tell
pub enum Problem {
    #[error("must be `//@kernel <entry> key=value …`")]
    Kernel,
    #[error("must be `//@expect <entry> <comparison><count> <instruction>`, as in `>=1 ld.global`")]
    Expect,
    #[error("unknown kind of line: `//@kernel` and `//@expect` are known")]
    Kind,
    #[error(
        "unknown key `{0}`: known are maxntid, reqntid, minnctapersm, maxnreg, cluster, tensor_maps, max_regs"
    )]
    Key(String),
    #[error(
        "`{key}` must be a positive number, or up to three joined by commas for a block or a cluster, got `{value}`"
    )]
    Value { key: String, value: String },
    #[error("`{0}` was given before with another value")]
    Conflict(String),
    #[error("`minnctapersm` needs `maxntid` or `reqntid` beside it")]
    NoBlock,
    #[error("a block has at most 1024 threads, got {0}")]
    Block(u32),
    #[error("`cluster` needs sm_90 or newer, this is {0}")]
    Cluster(Arch),
}

/// PTX fit to be loaded, with what is known of its kernels.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The PTX.
    pub text: String,
    /// What is known of each kernel.
    pub kernels: Vec<KernelFacts>,
    /// Functions left beside the entries: none in a module fit to ship.
    pub functions: Vec<String>,
}

#[derive(Default)]
struct Metadata {
    kernels: BTreeMap<String, LaunchBounds>,
    expects: BTreeMap<String, Vec<Expectation>>,
}

impl Metadata {
    fn add(&mut self, line: &str) -> Result<(), Problem> {
        let (kind, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (entry, rest) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        match kind {
            "//@kernel" => {
                if entry.is_empty() {
                    return Err(Problem::Kernel);
                }
                let bounds = self.kernels.entry(entry.to_owned()).or_default();
                rest.split_whitespace().try_for_each(|pair| {
                    let (key, value) = pair.split_once('=').ok_or(Problem::Kernel)?;
                    bounds.set(key, value)
                })
            }
            "//@expect" => {
                let expectation = Expectation::parse(rest.trim()).ok_or(Problem::Expect)?;
                let list = self.expects.entry(entry.to_owned()).or_default();
                if !list.contains(&expectation) {
                    list.push(expectation);
                }
                Ok(())
            }
            _ => Err(Problem::Kind),
        }
    }
}

/// Takes the metadata lines out of what the compiler printed and writes the directives in.
pub fn finish(raw: &str, arch: Arch) -> Result<Finished, MetadataError> {
    let mut metadata = Metadata::default();
    let mut text = String::with_capacity(raw.len());
    for line in raw.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("//@") {
            let problem = |problem| MetadataError::Line { line: trimmed.to_owned(), problem };
            metadata.add(trimmed).map_err(problem)?;
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    let text = align_tensor_maps(tidy(&number_constants(&text)), &metadata);
    let module = Module::parse(&text);
    for entry in metadata.kernels.keys().chain(metadata.expects.keys()) {
        if module.entry(entry).is_none() {
            return Err(MetadataError::NoSuchEntry(entry.clone()));
        }
    }
    let mut kernels = Vec::with_capacity(module.entries.len());
    for entry in &module.entries {
        let bounds =
            *metadata.kernels.get(&entry.name).ok_or_else(|| MetadataError::Missing(entry.name.clone()))?;
        bounds
            .validate(arch)
            .map_err(|problem| MetadataError::Bounds { entry: entry.name.clone(), problem })?;
        kernels.push(KernelFacts {
            name: entry.name.clone(),
            bounds,
            params: entry.params.clone(),
            param_bytes: entry.param_bytes,
            static_shared_bytes: entry.static_shared_bytes,
            dynamic_shared: entry.dynamic_shared,
            local_bytes: entry.local_bytes,
            calls: entry.calls.clone(),
            expects: metadata.expects.remove(&entry.name).unwrap_or_default(),
        });
    }
    let directives =
        |name: &str| metadata.kernels.get(name).map(LaunchBounds::directives).unwrap_or_default();
    let text = insert_directives(&text, &module, directives);
    Ok(Finished { text, kernels, functions: module.functions })
}

/// rustc aligns a parameter of numbers to 8 bytes; tensor maps need more.
fn align_tensor_maps(mut text: String, metadata: &Metadata) -> String {
    for (name, bounds) in &metadata.kernels {
        for i in 0..bounds.tensor_maps.unwrap_or(0) {
            let declared = |align: u32| format!(".param .align {align} .b8 {name}_param_{i}[128]");
            text = text.replacen(&declared(8), &declared(64), 1);
        }
    }
    text
}

/// LLVM names private constants `anon_$_<hash>_$_<n>`, and the hash depends on where `core`'s source
/// lies. They are numbered in order of appearance instead, so that machines agree.
fn number_constants(text: &str) -> String {
    const PREFIX: &str = "anon_$_";
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        let end =
            tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).unwrap_or(tail.len());
        let next = numbers.len();
        let number = *numbers.entry(&tail[..end]).or_insert(next);
        out.push_str(&format!("anon_const_{number}"));
        rest = &tail[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(metadata: &str) -> String {
        format!(
            "// Generated\n.version 8.0\n{metadata}\n.global .b8 anon_$_0f_$_7[2];\n.visible .entry foo(\n\t\
             .param .u32 foo_param_0\n)\n{{\n\tld.global.nc.b32 %r1, [anon_$_0f_$_7];\n\tret;\n}}\n"
        )
    }

    fn error(metadata: &str, arch: Arch) -> String {
        finish(&sample(metadata), arch).unwrap_err().to_string()
    }

    #[test]
    fn metadata_lines_become_directives_and_facts() {
        let raw = sample(
            "\t//@kernel foo maxntid=256 minnctapersm=2 maxnreg=128 max_regs=96\n//@expect foo >=1  ld.global.nc \n\
             //@expect foo ==0 call",
        );
        let out = finish(&raw, Arch::Sm80).unwrap();
        assert!(!out.text.contains("//@"), "{}", out.text);
        assert!(out.text.contains(")\n.maxntid 256\n.minnctapersm 2\n.maxnreg 128\n{\n"), "{}", out.text);
        assert!(out.text.contains("anon_const_0[2]") && out.text.contains("[anon_const_0]"), "{}", out.text);
        let kernel = &out.kernels[0];
        assert_eq!((kernel.name.as_str(), kernel.param_bytes), ("foo", 4));
        assert_eq!(kernel.bounds.max_regs, Some(96));
        assert_eq!(kernel.bounds.threads(), Some(256));
        assert_eq!(
            kernel.expects.iter().map(|e| e.to_string()).collect::<Vec<_>>(),
            [">=1 ld.global.nc", "==0 call"]
        );
        let module = Module::parse(&out.text);
        assert_eq!(kernel.expects[0].check(&module.entries[0]), (1, true));
    }

    #[test]
    fn tensor_maps_are_aligned_and_other_parameters_are_not() {
        let raw = "//@kernel foo maxntid=32 tensor_maps=1\n.version 8.6\n.visible .entry foo(\n\t\
                   .param .align 8 .b8 foo_param_0[128],\n\t.param .align 8 .b8 foo_param_1[128]\n)\n{\n\tret;\n}\n";
        let out = finish(raw, Arch::Sm90a).unwrap();
        assert_eq!(out.kernels[0].params.iter().map(|p| p.align).collect::<Vec<_>>(), [64, 8]);
        assert_eq!(out.kernels[0].bounds.tensor_maps, Some(1));
    }

    #[test]
    fn blocks_and_clusters_may_have_three_extents() {
        let out = finish(&sample("//@kernel foo reqntid=64,4 cluster=2"), Arch::Sm90a).unwrap();
        let directives = ")\n.reqntid 64, 4\n.explicitcluster\n.reqnctapercluster 2\n{";
        assert!(out.text.contains(directives), "{}", out.text);
        assert_eq!(out.kernels[0].bounds.threads(), Some(256));
        assert_eq!(Dim3::parse("2,3,4"), Some(Dim3([2, 3, 4])));
        for dim in [Dim3([256, 1, 1]), Dim3([1, 4, 1]), Dim3([2, 1, 3])] {
            let text = serde_json::to_string(&dim).unwrap();
            assert_eq!(serde_json::from_str::<Dim3>(&text).unwrap(), dim, "{text}");
        }
        for bad in ["", "0", "1,2,3,4", "1,,2", "-1", "x"] {
            assert_eq!(Dim3::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_kernel_line_may_come_in_parts_that_agree() {
        let out =
            finish(&sample("//@kernel foo maxntid=32\n//@kernel foo maxntid=32 maxnreg=64"), Arch::Sm80);
        assert_eq!(out.unwrap().kernels[0].bounds.maxnreg, Some(64));
        let text = error("//@kernel foo maxntid=32\n//@kernel foo maxntid=64", Arch::Sm80);
        assert_eq!(text, "`//@kernel foo maxntid=64`: `maxntid` was given before with another value");
    }

    #[test]
    fn an_entry_without_bounds_is_an_error_and_so_are_bounds_without_an_entry() {
        let text = error("", Arch::Sm80);
        assert_eq!(text, "entry `foo` has no `//@kernel` line, so its launch bounds are unknown");
        let text = error("//@kernel foo maxntid=32\n//@kernel bar maxntid=32", Arch::Sm80);
        assert_eq!(text, "metadata names entry `bar`, which the PTX does not have");
        let text = error("//@kernel foo maxntid=32\n//@expect bar >=1 ret", Arch::Sm80);
        assert_eq!(text, "metadata names entry `bar`, which the PTX does not have");
    }

    #[test]
    fn each_mistake_in_a_line_is_named() {
        for (line, want) in [
            ("//@kernel", "must be `//@kernel <entry> key=value …`"),
            ("//@kernel foo 256", "must be `//@kernel <entry> key=value …`"),
            ("//@kernel foo ntid=3", "unknown key `ntid`"),
            ("//@kernel foo maxnreg=lots", "`maxnreg` must be a positive number"),
            ("//@kernel foo maxntid=0", "`maxntid` must be a positive number"),
            ("//@kernel foo minnctapersm=2", "`minnctapersm` needs `maxntid` or `reqntid` beside it"),
            ("//@kernel foo maxntid=32,64", "a block has at most 1024 threads, got 2048"),
            ("//@kernel foo maxntid=32 cluster=2", "`cluster` needs sm_90 or newer, this is sm_80"),
            ("//@expect foo 1 ret", "must be `//@expect <entry> <comparison><count> <instruction>`"),
            ("//@expect foo >=1", "must be `//@expect <entry> <comparison><count> <instruction>`"),
            ("//@expects foo >=1 ret", "unknown kind of line"),
        ] {
            let text = error(line, Arch::Sm80);
            assert!(text.contains(want), "{line}: {text}");
        }
    }

    #[test]
    fn comparisons_are_read_longest_first_and_hold_as_written() {
        for (text, found, holds) in [
            (">=2 ret", 2, true),
            (">=2 ret", 1, false),
            (">2 ret", 2, false),
            ("<=2 ret", 2, true),
            ("<2 ret", 2, false),
            ("==2 ret", 2, true),
            ("=2 ret", 3, false),
        ] {
            let expectation = Expectation::parse(text).unwrap();
            assert_eq!(expectation.comparison.holds(found, expectation.count), holds, "{text} {found}");
        }
    }

    #[test]
    fn constants_are_numbered_in_order_of_appearance() {
        let out = number_constants("anon_$_ff_$_9[2] anon_$_00_$_1 {generic(anon_$_ff_$_9), 1} other");
        assert_eq!(out, "anon_const_0[2] anon_const_1 {generic(anon_const_0), 1} other");
    }
}
