//! The same cases on PyTorch, in the same run: a Python process that is given a case and answers with times, so
//! that each line can be printed complete.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// What the Python process runs.
const SCRIPT: &str = include_str!("torch_bench.py");
/// To import PyTorch and find the GPU, from a cold disk.
const START: Duration = Duration::from_secs(120);

/// Why there is nothing to compare with.
#[derive(Debug, thiserror::Error)]
pub enum AgainstError {
    #[error("`{program}` does not start: {source}; name another with `--python`")]
    Start { program: String, source: std::io::Error },

    #[error("the script for `{program}` cannot be written: {source}")]
    Script { program: String, source: std::io::Error },

    #[error("`{program}`: {reason}")]
    Said { program: String, reason: String },

    #[error("`{program}` ended without an answer: {told}")]
    Ended { program: String, told: String },

    #[error("`{program}` has not answered for {} s", after.as_secs())]
    Slow { program: String, after: Duration },

    #[error("`{program}` answered with what is not an answer: {source}")]
    Garbled { program: String, source: serde_json::Error },
}

/// Times in microseconds by what was timed: `eager`, `compile`, and what else an operation has.
pub type Times = BTreeMap<String, f64>;

/// What PyTorch came to on a case.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Answer {
    pub us: Times,
    /// Why some of the times are missing.
    pub error: Option<String>,
}

/// A line of the process.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Hello { torch: String },
    Times(Answer),
    Failed { error: String },
}

/// A Python process with PyTorch; ends with this.
pub struct Torch {
    /// PyTorch's version.
    pub version: String,
    program: String,
    child: Child,
    /// Closed to end the process.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Gives the last line of what the process said on stderr.
    complaint: Option<JoinHandle<String>>,
    /// Holds the script.
    _folder: tempfile::TempDir,
}

impl Torch {
    /// Starts `program`, which is to use this GPU, and waits until it has found PyTorch.
    pub fn start(program: &str, ordinal: usize) -> Result<Torch, AgainstError> {
        let unwritten = |source| AgainstError::Script { program: program.to_owned(), source };
        // A file, since torch.compile looks for the source of what it compiles.
        let folder = tempfile::tempdir().map_err(unwritten)?;
        let script = folder.path().join("torch_bench.py");
        std::fs::write(&script, SCRIPT).map_err(unwritten)?;
        let mut child = Command::new(program)
            .arg(&script)
            .arg(ordinal.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| AgainstError::Start { program: program.to_owned(), source })?;
        let (send, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                // Ends with the process, or when nobody listens any more.
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let complaint = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let lines = BufReader::new(stderr).lines().map_while(Result::ok);
                lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default()
            })
        });
        let mut torch = Torch {
            version: String::new(),
            program: program.to_owned(),
            requests: child.stdin.take(),
            child,
            answers,
            complaint,
            _folder: folder,
        };
        match torch.listen(START)? {
            Line::Hello { torch: version } => torch.version = version,
            Line::Failed { error } => return Err(torch.said(error)),
            Line::Times(_) => return Err(torch.said("times before the first case".to_owned())),
        }
        Ok(torch)
    }

    /// PyTorch's times for a case, for which it has so long.
    pub fn time(&mut self, request: &Value, limit: Duration) -> Result<Answer, AgainstError> {
        let sent = self.requests.as_mut().map(|pipe| writeln!(pipe, "{request}").and_then(|()| pipe.flush()));
        match sent {
            Some(Ok(())) => {}
            _ => return Err(self.ended()),
        }
        match self.listen(limit)? {
            Line::Times(answer) => Ok(answer),
            Line::Failed { error } => Err(self.said(error)),
            Line::Hello { .. } => Err(self.said("no times".to_owned())),
        }
    }

    /// Whether it can be asked again after this error.
    pub fn lives_after(error: &AgainstError) -> bool {
        matches!(error, AgainstError::Said { .. })
    }

    fn listen(&mut self, limit: Duration) -> Result<Line, AgainstError> {
        match self.answers.recv_timeout(limit) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|source| AgainstError::Garbled { program: self.program.clone(), source }),
            Err(RecvTimeoutError::Timeout) => {
                Err(AgainstError::Slow { program: self.program.clone(), after: limit })
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn said(&self, reason: String) -> AgainstError {
        AgainstError::Said { program: self.program.clone(), reason }
    }

    #[cold]
    fn ended(&mut self) -> AgainstError {
        self.end();
        let told = self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let told = if told.is_empty() { "it said nothing".to_owned() } else { told };
        AgainstError::Ended { program: self.program.clone(), told }
    }

    fn end(&mut self) {
        self.requests = None;
        // It may have ended by itself, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
