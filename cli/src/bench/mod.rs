//! `warpwright bench`: how fast the operations are on this GPU, as shares of what a copy reaches in the same
//! run, and beside another library on the same shapes.
//!
//! `case` tells how an operation's cases are added. `data` makes their input, `harness` times them, `copy` is the
//! yardstick, `against` the other library; `row` is what comes of a case, and `print` and `report` show it.
//!
//! `--json` prints a line with what is known at the beginning ([`Begun`]), one for each result ([`Row`]), and one with
//! `ended` ([`Ended`]).

mod against;
pub mod args;
pub mod case;
pub mod cases;
mod cold;
pub mod copy;
pub mod data;
mod harness;
mod print;
mod report;
mod row;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::Serialize;
use warpwright::ops::Approximate;
use warpwright::{DType, Device, Error, Tensor};

use crate::device;
use crate::error::CliError;
use crate::ops::{self, OPS, Op};
use crate::output;
pub use against::AgainstError;
use against::Torch;
pub use args::{Args, Type};
use case::{Case, Setting};
use cold::ColdStart;
use copy::{Likes, Yardstick};
use data::Data;
use print::Printer;
use report::{Machine, Report};
use row::Row;

/// What PyTorch has for a case at most, compilation and all.
const ANSWER: Duration = Duration::from_secs(180);
/// Where less of the budget is left, PyTorch compiles no more.
const COMPILING: Duration = Duration::from_secs(30);

/// What is known before the first case.
#[derive(Clone, Debug, Serialize)]
pub struct Begun {
    device: String,
    name: String,
    /// The newest CUDA that the driver supports.
    driver_cuda: (u32, u32),
    size_mib: u32,
    cold_start: ColdStart,
    copy: Yardstick,
    #[serde(skip_serializing_if = "Option::is_none")]
    torch: Option<TorchBegun>,
}

#[derive(Clone, Debug, Serialize)]
struct TorchBegun {
    version: String,
    /// Of its elementwise kernel, where it could be timed.
    copy_gbps: Option<f64>,
}

/// What is known after the last case.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// Once more: a GPU that grew warm copies more slowly. None where that failed.
    copy: Option<Yardstick>,
    cases: usize,
    failed: usize,
    /// Cases that were not begun.
    skipped: usize,
    seconds: f64,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let begun = Instant::now();
    let cases = selected(args)?;
    if let Some(file) = &args.report {
        output::expect_place(file)?;
    }
    let device = open(&args.device)?;
    let data = Data::new(&device);
    let ahead = args.behind.map(|numbers| data.ahead(numbers as usize)).transpose()?;
    let mut bench = Bench {
        begun,
        budget: args.budget.map(Duration::from_secs),
        sweep: args.sweep,
        compile_all: args.compile_all,
        printer: Printer::new(args.json, &cases),
        data,
        ahead,
        yardstick: f64::NAN,
        likes: Likes::default(),
        torch: None,
        rows: Vec::new(),
    };
    let begun = bench.begin(args, &device)?;
    let skipped = bench.cases(&device, &cases)?;
    let copy = copy::measure(&device, &bench.data, bytes(args));
    if let Err(error) = &copy {
        output::note(&format!("note: the copy at the end failed: {error}"));
    }
    let failed = bench.rows.iter().filter(|row| row.error.is_some()).count();
    let ended = Ended {
        copy: copy.ok(),
        cases: cases.len() - skipped,
        failed,
        skipped,
        seconds: bench.begun.elapsed().as_secs_f64(),
    };
    bench.printer.end(&ended)?;
    if let Some(file) = &args.report {
        let machine = Machine::of(&device);
        Report { begun: &begun, ended: &ended, machine, rows: &bench.rows }.write(file)?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(CliError::BenchFailed { failed, all: bench.rows.len() }),
    }
}

fn bytes(args: &Args) -> usize {
    (args.size as usize) << 20
}

/// The cases that the arguments ask for.
fn selected(args: &Args) -> Result<Vec<Case>, CliError> {
    let ops: Vec<&Op> = match args.ops.is_empty() {
        true => OPS.to_vec(),
        false => args.ops.iter().map(|name| ops::find(name)).collect::<Result<_, _>>()?,
    };
    let dtypes = args.dtype.iter().map(|dtype| dtype.dtype()).collect();
    let setting = Setting { dtypes, bytes: bytes(args), quick: args.quick };
    let mut cases: Vec<Case> = ops.iter().flat_map(|op| (op.bench)(&setting)).collect();
    if !args.only.is_empty() {
        cases.retain(|case| args.only.iter().any(|only| case.to_string().contains(only.as_str())));
    }
    if cases.is_empty() {
        return Err(CliError::NoCases);
    }
    Ok(cases)
}

fn open(name: &str) -> Result<Device, CliError> {
    if name == "cpu" {
        return Err(CliError::NoGpu {
            why: "the CPU device is a checker, whose times say nothing".to_owned(),
        });
    }
    let ordinal = device::ordinal(name).ok_or_else(|| CliError::UnknownDevice { got: name.to_owned() })?;
    Device::cuda(ordinal).map_err(|error| CliError::NoGpu {
        why: match error {
            // Its advice, the CPU device, is none here.
            Error::NoDriver { reason } => format!("no NVIDIA driver: {reason}"),
            error => error.to_string(),
        },
    })
}

struct Bench {
    begun: Instant,
    budget: Option<Duration>,
    sweep: bool,
    compile_all: bool,
    printer: Printer,
    data: Data,
    /// What is run ahead of each operation: GELU of the one into the other.
    ahead: Option<[Tensor; 2]>,
    /// In GB/s.
    yardstick: f64,
    likes: Likes,
    /// The other side, as long as it answers.
    torch: Option<Torch>,
    rows: Vec<Row>,
}

impl Bench {
    /// Starts the other side, measures the yardstick and prints both.
    fn begin(&mut self, args: &Args, device: &Device) -> Result<Begun, CliError> {
        let cold_start = cold::measure(device, self.begun)?;
        if args.against.is_some() {
            self.torch = Some(Torch::start(&args.python, device.ordinal())?);
        }
        let copy = copy::measure(device, &self.data, bytes(args))?;
        self.yardstick = copy.gbps;
        let begun = Begun {
            device: device.to_string(),
            name: device.name().to_owned(),
            driver_cuda: warpwright::driver_version()?,
            size_mib: args.size,
            cold_start,
            copy,
            torch: self.torch.as_mut().map(|torch| TorchBegun {
                version: torch.version.clone(),
                copy_gbps: torch_copy(torch, bytes(args)),
            }),
        };
        self.printer.begin(&begun)?;
        Ok(begun)
    }

    /// Times the cases, as far as the budget goes; gives how many were left out.
    fn cases(&mut self, device: &Device, cases: &[Case]) -> Result<usize, CliError> {
        for (done, case) in cases.iter().enumerate() {
            if self.left().is_some_and(|left| left.is_zero()) {
                return Ok(cases.len() - done);
            }
            let mut rows = self.time(device, case);
            let left = self.left().unwrap_or(ANSWER);
            let compile = (case.compile || self.compile_all) && left > COMPILING;
            let limit = ANSWER.min(left + COMPILING);
            let planned = rows.first_mut().filter(|row| row.figures.is_some());
            if let (Some(row), Some(torch)) = (planned, &mut self.torch) {
                match torch.time(&case.request(compile), limit) {
                    Ok(answer) => (row.torch_us, row.error) = (answer.us, answer.error),
                    Err(error) => {
                        row.error = Some(error.to_string());
                        if !Torch::lives_after(&error) {
                            output::note(&format!("note: no more comparisons: {error}"));
                            self.torch = None;
                        }
                    }
                }
            }
            rows.iter().try_for_each(|row| self.printer.row(row))?;
            self.rows.extend(rows);
        }
        Ok(0)
    }

    /// A row for each way that is asked for; the planned one is the first. The tensors are gone afterwards.
    fn time(&self, device: &Device, case: &Case) -> Vec<Row> {
        let sets = case.sets();
        let prepared = case.prepare(&self.data, sets).and_then(|prepared| {
            // Half of the floor is read and half is written.
            let bytes = (prepared.floor / 2) as usize;
            let like_copy =
                case.beside_copy.then(|| self.likes.rate(device, &self.data, bytes)).transpose()?;
            Ok((prepared, like_copy))
        });
        let (prepared, like_copy) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return vec![Row::failed(case, "", error.to_string())],
        };
        let ways = prepared.ways.iter().take(if self.sweep { usize::MAX } else { 1 });
        let row = |way: &case::Way| {
            let launch = |set| {
                if let Some([x, y]) = &self.ahead {
                    warpwright::ops::gelu_into(x, Approximate::Tanh, y)?;
                }
                (way.launch)(set)
            };
            match harness::time(device, sets, &launch) {
                Ok(timing) => Row::timed(case, way, prepared.floor, timing, self.yardstick, like_copy),
                Err(error) => Row::failed(case, &way.plan, error.to_string()),
            }
        };
        ways.map(row).collect()
    }

    /// What is left of the budget.
    fn left(&self) -> Option<Duration> {
        self.budget.map(|budget| budget.saturating_sub(self.begun.elapsed()))
    }
}

/// The rate of PyTorch's elementwise kernel, which is no part of the yardstick.
fn torch_copy(torch: &mut Torch, bytes: usize) -> Option<f64> {
    let elements = bytes / DType::F32.size();
    let case = Case::new("copy", &[elements], DType::F32, "", 2 * bytes, |_, _| {
        Ok(case::Prepared::new(0, "", |_| Ok(())))
    });
    let answer = torch.time(&case.request(false), ANSWER).ok()?;
    Some(2.0 * bytes as f64 / answer.us.get("eager")? / 1e3)
}
