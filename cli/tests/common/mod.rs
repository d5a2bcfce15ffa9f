//! Runs the program, and makes files for it.

#![allow(dead_code)] // not every test file uses all of it

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use warpwright::{Device, Element, Tensor, io};

/// The program, which does not see this test's environment of cargo.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpwright"));
    command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    command
}

pub fn warpwright<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    program().args(args).output().unwrap()
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A tensor of the real model's, or what it should come to.
pub fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(file)
}

pub fn tensor<T: Element>(shape: &[usize], elements: &[T]) -> Tensor {
    Tensor::from_slice(&Device::cpu(), shape, elements).unwrap()
}

pub fn load(path: &Path) -> BTreeMap<String, Tensor> {
    io::load(path, &Device::cpu()).unwrap()
}

/// A folder that is removed at the end, with files of tensors.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, tensors: &[(&str, Tensor)]) -> PathBuf {
        let path = self.path(name);
        io::save(&path, tensors.iter().map(|(name, tensor)| (*name, tensor)), &BTreeMap::new()).unwrap();
        path
    }

    /// The names of all files, hidden ones too.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
