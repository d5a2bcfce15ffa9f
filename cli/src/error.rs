//! What can go wrong beside the operations themselves. Each message is one line that names what was
//! required and what came.

use std::error::Error;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{0}")]
    CommandLine(String),

    #[error("unknown operation `{got}`: known are {known}")]
    UnknownOp { got: String, known: String },

    #[error("unknown device `{got}`: known are `cpu`, `cuda` and `cuda:N`")]
    UnknownDevice { got: String },

    #[error("`--check` is for the CPU device, got device `{device}`")]
    ChecksOnGpu { device: String },

    #[error("{op}: `--set {got}` must be `key=value`: known keys are {known}")]
    ParameterForm { op: &'static str, got: String, known: String },

    #[error("{op}: unknown parameter `{got}`: known are {known}")]
    UnknownParameter { op: &'static str, got: String, known: String },

    #[error("{op}: parameter `{name}` is given twice: `{first}` and `{second}`")]
    DuplicateParameter { op: &'static str, name: &'static str, first: String, second: String },

    #[error("{op}: parameter `{name}` must be {required}, got `{got}`")]
    ParameterValue { op: &'static str, name: &'static str, required: &'static str, got: String },

    #[error("{op}: parameter `{name}` is required: `--set {name}=` {required}")]
    MissingParameter { op: &'static str, name: &'static str, required: &'static str },

    #[error("{op}: parameter `{name}` needs `{needs}`")]
    ParameterAlone { op: &'static str, name: &'static str, needs: &'static str },

    #[error("{}: {op} has no tensor `{got}`: known are {known}", path.display())]
    UnknownTensor { op: &'static str, path: PathBuf, got: String, known: String },

    #[error("tensor `{name}` is in two files: {} and {}", first.display(), second.display())]
    DuplicateTensor { name: String, first: PathBuf, second: PathBuf },

    #[error("{op}: tensor `{name}` is required: {required}; the input has {got}")]
    MissingTensor { op: &'static str, name: &'static str, required: String, got: String },

    #[error("{op}: tensor `{name}` must be absent {why}, got one of shape {got:?}")]
    UnwantedTensor { op: &'static str, name: &'static str, why: String, got: Vec<usize> },

    #[error("{op}: at most one mask may be given: {masks}; the input has {got}")]
    MaskConflict { op: &'static str, masks: &'static str, got: String },

    #[error("{}: cannot write: there is no folder {}", path.display(), folder.display())]
    NoFolder { path: PathBuf, folder: PathBuf },

    #[error("bench needs a GPU: {why}")]
    NoGpu { why: String },

    #[error("no case is left: see `--only`, `--dtype` and the operations")]
    NoCases,

    #[error("the chart `{chart}` cannot be drawn: {reason}")]
    Chart { chart: &'static str, reason: String },

    #[error("{failed} of {all} results of the benchmark failed")]
    BenchFailed { failed: usize, all: usize },

    #[error("nothing to compare with: {0}")]
    Against(#[from] crate::bench::AgainstError),

    #[error("cannot find {file}: looked in {looked}; name the folder with `--data DIR`")]
    NoData { file: &'static str, looked: String },

    #[error("{}: tensor `{name}` must be {required}, got {got}", path.display())]
    Data { path: PathBuf, name: &'static str, required: &'static str, got: String },

    #[error("the PTX manifest in this program cannot be read: {source}")]
    Manifest { source: serde_json::Error },

    #[error("the report cannot be written as JSON: {source}")]
    Json { source: serde_json::Error },

    #[error("cannot write to the standard output: {source}")]
    Stdout { source: std::io::Error },

    #[error("{failed} of {all} checks failed")]
    Unhealthy { failed: usize, all: usize },

    #[error("{failed} of {all} results are out of tolerance")]
    Inaccurate { failed: usize, all: usize },

    #[error(transparent)]
    Warpwright(#[from] warpwright::Error),
}

impl CliError {
    /// 2 where the command line alone shows the mistake, else 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            CliError::CommandLine(_)
            | CliError::UnknownOp { .. }
            | CliError::UnknownDevice { .. }
            | CliError::NoCases
            | CliError::ChecksOnGpu { .. }
            | CliError::ParameterForm { .. }
            | CliError::UnknownParameter { .. }
            | CliError::DuplicateParameter { .. }
            | CliError::ParameterValue { .. }
            | CliError::MissingParameter { .. }
            | CliError::ParameterAlone { .. }
            | CliError::Warpwright(warpwright::Error::Parameter { .. }) => 2,
            _ => 1,
        }
    }

    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CliError::Stdout { source } if source.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The message and its causes on one line; a cause that the message ends in is not repeated.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let told = error.to_string();
            if !text.contains(&told) {
                text = format!("{text}: {told}");
            }
            cause = error.source();
        }
        text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

/// "`a`, `b` and `c`"; "nothing" of none.
pub fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match (names.pop(), names.is_empty()) {
        (None, _) => "nothing".to_owned(),
        (Some(only), true) => only,
        (Some(last), false) => format!("{} and {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_as_in_a_sentence() {
        assert_eq!(quoted([]), "nothing");
        assert_eq!(quoted(["a"]), "`a`");
        assert_eq!(quoted(["a", "b", "c"]), "`a`, `b` and `c`");
    }

    #[test]
    fn a_cause_is_told_once() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = CliError::from(warpwright::Error::Io { path: "f".into(), action: "read", source });
        assert_eq!(error.chain(), "f: cannot read: entity not found");
        assert_eq!(error.exit_status(), 1);
    }
}
