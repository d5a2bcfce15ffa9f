//! Every way a call can fail. A variant is a kind of mistake, never an operation; its fields are data,
//! so callers can match on them. Each message is one line that names the operation, the argument,
//! what was required and what came.

#![allow(missing_docs)] // the fields are named by the messages

use std::path::PathBuf;

/// A result with Warpwright's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's shape does not fit the operation.
    #[error("{op}: `{arg}` must have shape {required}, got {got:?}")]
    Shape { op: &'static str, arg: &'static str, required: String, got: Vec<usize> },

    /// A tensor's element type is not one the operation takes here.
    #[error("{op}: `{arg}` must have dtype {required}, got {got}")]
    DType { op: &'static str, arg: &'static str, required: String, got: crate::DType },

    /// A tensor lives on another device than the operation's first tensor.
    #[error("{op}: `{arg}` must be on {required}, got {got}")]
    DeviceMismatch { op: &'static str, arg: &'static str, required: String, got: String },

    /// Strides that the operation does not accept, such as an output that overlaps itself.
    #[error("{op}: `{arg}` must have {required}, got strides {got:?}")]
    Strides { op: &'static str, arg: &'static str, required: &'static str, got: Vec<i64> },

    /// An element of a tensor whose values steer memory access is out of range. `clipped`: it may be further out than
    /// `got`, which is as far as kernels record values of 64 bits.
    #[error("{op}: `{arg}[{index}]` must be in {}, got {}", range(*min, *max), found(*got, *clipped))]
    Value { op: &'static str, arg: &'static str, index: u64, min: i64, max: i64, got: i64, clipped: bool },

    /// Blocks of one launch that wait for one another gave up: another program may have stopped them.
    #[error("{op}: block {block} waited for other blocks in step {step} and gave up")]
    Stalled { op: &'static str, step: u64, block: u64 },

    /// A scalar parameter is out of its domain.
    #[error("{op}: `{arg}` must be {required}, got {got}")]
    Parameter { op: &'static str, arg: &'static str, required: String, got: String },

    /// Two arguments that exclude one another.
    #[error("{op}: at most one of {arguments} may be given, got {got}")]
    Conflict { op: &'static str, arguments: &'static str, got: String },

    /// A required argument is missing.
    #[error("{op}: `{arg}` is required: {required}")]
    Missing { op: &'static str, arg: String, required: &'static str },

    /// The number of elements or bytes does not fit 64-bit arithmetic, or another hard limit.
    #[error("{op}: {what} must be at most {limit}, got {got}")]
    TooLarge { op: &'static str, what: &'static str, limit: u64, got: String },

    /// No NVIDIA driver could be opened.
    #[error("no NVIDIA driver: {reason}; install one, or use the CPU device")]
    NoDriver { reason: String },

    /// The driver is there, the device is not.
    #[error("no CUDA device {ordinal}: this machine has {count}")]
    NoDevice { ordinal: usize, count: usize },

    /// The GPU is older than what the kernels are built for.
    #[error("{device} has compute capability {}.{}, Warpwright needs {}.{} or newer", got.0, got.1, required.0, required.1)]
    Architecture { device: String, required: (u32, u32), got: (u32, u32) },

    /// A kernel that uses instructions of one architecture, which no other has.
    #[error("{kernel} runs on compute capability {}.{} only, {device} has {}.{}", required.0, required.1, got.0, got.1)]
    ArchitectureSpecific { kernel: &'static str, device: String, required: (u32, u32), got: (u32, u32) },

    /// An allocation failed.
    #[error("{device}: out of memory allocating {requested} bytes ({free} of {total} bytes are free)")]
    OutOfMemory { device: String, requested: usize, free: usize, total: usize },

    /// A driver call failed.
    #[error("{call} failed: {name} ({code}): {description}")]
    Driver { call: &'static str, name: String, code: u32, description: String },

    /// The driver refused a PTX module.
    #[error("the driver could not load the kernels of `{family}` for {arch}: {name}: {}", one_line(log))]
    Module { family: &'static str, arch: String, name: String, log: String },

    /// A launch outside of what the kernel or the device allows.
    #[error("{kernel}: {what} must be at most {limit}, got {got}")]
    LaunchLimit { kernel: &'static str, what: &'static str, limit: u64, got: u64 },

    /// A launch whose block does not have the size that the kernel was compiled for.
    #[error("{kernel}: the block must have {required} threads, got {got}")]
    BlockSize { kernel: &'static str, required: u32, got: u32 },

    /// The CPU checker found a mistake in a kernel.
    #[error("the checker stopped `{kernel}`: {}", one_line(report))]
    Checker { kernel: String, report: String },

    /// A stream is in a state in which the call is not allowed, such as a read-back during capture.
    #[error("{op}: {reason}")]
    State { op: &'static str, reason: &'static str },

    /// A file could not be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io { path: PathBuf, action: &'static str, source: std::io::Error },

    /// A file's content is not what is read here.
    #[error("{}: not a safetensors file that can be read: {}", path.display(), one_line(reason))]
    Format { path: PathBuf, reason: String },
}

impl Error {
    /// The same of another argument, where it is about a tensor's shape, type, device or strides.
    pub(crate) fn of_argument(mut self, name: impl FnOnce(&'static str) -> &'static str) -> Error {
        if let Error::Shape { arg, .. }
        | Error::DType { arg, .. }
        | Error::DeviceMismatch { arg, .. }
        | Error::Strides { arg, .. } = &mut self
        {
            *arg = name(arg);
        }
        self
    }
}

/// Driver logs and checker reports have many lines; an error message has one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// A value, which was clipped towards 0 or was not.
fn found(got: i64, clipped: bool) -> String {
    match (clipped, got < 0) {
        (false, _) => got.to_string(),
        (true, true) => format!("{got} or less"),
        (true, false) => format!("{got} or more"),
    }
}

/// From `min` to `max`; a table without rows has none.
fn range(min: i64, max: i64) -> String {
    if min <= max { format!("{min}..={max}") } else { format!("{min}..{min}, which is empty") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_one_line_with_the_values() {
        let (device, log) = ("GPU".to_owned(), "ptxas error\n\n  line 3; bad\n".to_owned());
        let cases = [
            (
                Error::NoDriver { reason: "libcuda.so.1 was not found".into() },
                "no NVIDIA driver: libcuda.so.1 was not found; install one, or use the CPU device",
            ),
            (Error::NoDevice { ordinal: 3, count: 1 }, "no CUDA device 3: this machine has 1"),
            (
                Error::Architecture { device: device.clone(), required: (8, 0), got: (7, 5) },
                "GPU has compute capability 7.5, Warpwright needs 8.0 or newer",
            ),
            (
                Error::ArchitectureSpecific { kernel: "k", device, required: (9, 0), got: (12, 0) },
                "k runs on compute capability 9.0 only, GPU has 12.0",
            ),
            (
                Error::OutOfMemory { device: "cpu".into(), requested: 9, free: 7, total: 8 },
                "cpu: out of memory allocating 9 bytes (7 of 8 bytes are free)",
            ),
            (
                Error::Module {
                    family: "probe",
                    arch: "sm_80".into(),
                    name: "CUDA_ERROR_INVALID_PTX".into(),
                    log,
                },
                "the driver could not load the kernels of `probe` for sm_80: CUDA_ERROR_INVALID_PTX: \
                 ptxas error; line 3; bad",
            ),
            (
                Error::Conflict { op: "op", arguments: "`keep`, `drop`", got: "both".into() },
                "op: at most one of `keep`, `drop` may be given, got both",
            ),
        ];
        for (error, want) in cases {
            assert_eq!(error.to_string(), want);
        }
    }
}
