//! The input tensors of an operation, from one file or several.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use warpwright::{Device, Tensor, io};

use super::Op;
use crate::error::{CliError, quoted};

/// Tensors by name, with the file each came from.
pub struct Tensors {
    op: &'static Op,
    by_name: BTreeMap<String, (Tensor, PathBuf)>,
}

impl Tensors {
    /// Reads the files. Tensors that the operation does not know, and names in two files, are errors.
    pub fn load(op: &'static Op, paths: &[PathBuf], device: &Device) -> Result<Tensors, CliError> {
        let mut tensors = Tensors { op, by_name: BTreeMap::new() };
        for path in paths {
            for (name, tensor) in io::load(path, device)? {
                tensors.add(name, tensor, path)?;
            }
        }
        Ok(tensors)
    }

    fn add(&mut self, name: String, tensor: Tensor, path: &Path) -> Result<(), CliError> {
        if !self.op.inputs.iter().any(|spec| spec.names(&name)) {
            let (op, known) = (self.op.name, self.op.known_tensors());
            return Err(CliError::UnknownTensor { op, path: path.to_owned(), got: name, known });
        }
        if let Some((_, first)) = self.by_name.get(&name) {
            let (first, second) = (first.clone(), path.to_owned());
            return Err(CliError::DuplicateTensor { name, first, second });
        }
        self.by_name.insert(name, (tensor, path.to_owned()));
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name).map(|(tensor, _)| tensor)
    }

    /// A tensor that the operation cannot do without.
    pub fn require(&self, name: &'static str) -> Result<&Tensor, CliError> {
        self.get(name).ok_or_else(|| {
            let spec = self.op.inputs.iter().find(|spec| spec.names(name));
            let required = spec.map_or_else(String::new, |spec| format!("{} {}", spec.shape, spec.dtypes));
            CliError::MissingTensor { op: self.op.name, name, required, got: quoted(self.names()) }
        })
    }

    /// The operation that they are for.
    pub fn op(&self) -> &'static str {
        self.op.name
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}
