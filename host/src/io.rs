//! Tensors in safetensors files.

mod header;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The tensors of a file, by name.
pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<BTreeMap<String, Tensor>> {
    load_with_metadata(path, device).map(|(tensors, _)| tensors)
}

/// The tensors of a file and the notes in its header.
pub fn load_with_metadata(
    path: impl AsRef<Path>,
    device: &Device,
) -> Result<(BTreeMap<String, Tensor>, BTreeMap<String, String>)> {
    let path = path.as_ref();
    // Read, not mapped: a mapped file that somebody shortens would end the process.
    let bytes = std::fs::read(path).map_err(|source| io_error(path, "read", source))?;
    let format = |reason: String| Error::Format { path: path.into(), reason };
    let parsed = SafeTensors::deserialize(&bytes);
    if let Some(fault) = header::fault(&bytes) {
        return Err(format(fault));
    }
    let file = parsed.map_err(|error| format(error.to_string()))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let refuse = |what: String| format(format!("tensor `{name}` has {what}"));
        let dtype = from_file(view.dtype()).ok_or_else(|| refuse(unknown(view.dtype())))?;
        if view.shape().len() > crate::MAX_RANK {
            return Err(refuse(format!("{} dimensions, of at most {}", view.shape().len(), crate::MAX_RANK)));
        }
        let tensor = Tensor::from_bytes(device, dtype, view.shape(), view.data());
        let tensor = tensor.map_err(|error| match error {
            Error::TooLarge { .. } => refuse(format!("a shape that is too large: {:?}", view.shape())),
            other => other,
        })?;
        tensors.insert(name.to_owned(), tensor);
    }
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| format(error.to_string()))?;
    let metadata = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok((tensors, metadata))
}

/// Writes tensors, of any strides, and notes. The file appears complete or not at all; one that was there
/// is replaced, and so is the one that a symbolic link leads to. Anything but a file is refused, such as a device or a pipe.
pub fn save<'a, N: Into<String>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, &'a Tensor)>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    let mut held = BTreeMap::new();
    for (name, tensor) in tensors {
        let (name, got) = (name.into(), tensor.dtype());
        let dtype = to_file(got).ok_or_else(|| {
            let required = format!("of a file, for `{name}` one of {}", known());
            Error::DType { op: "save", arg: "tensor", required, got }
        })?;
        held.insert(name, (dtype, tensor, tensor.to_bytes()?));
    }
    let failed = |error: SafeTensorError| match error {
        SafeTensorError::IoError(source) => io_error(path, "write", source),
        other => Error::Format { path: path.into(), reason: other.to_string() },
    };
    let mut views = Vec::new();
    for (name, (dtype, tensor, bytes)) in &held {
        let view = TensorView::new(*dtype, tensor.shape().to_vec(), bytes).map_err(failed)?;
        views.push((name.as_str(), view));
    }
    let notes: HashMap<String, String> = metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let notes = (!notes.is_empty()).then_some(notes);

    let io = |source| io_error(path, "write", source);
    let path = &destination(path)?;
    let file = new_file(folder_of(path)).map_err(io)?;
    serialize_to_file(views, notes, file.path()).map_err(failed)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

/// Where a file of this name would be written, links followed; an error if there is anything but a file.
pub fn destination(path: &Path) -> Result<PathBuf> {
    let io = |source| io_error(path, "write", source);
    let place = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(path.to_owned()),
        Err(error) => return Err(io(error)),
        Ok(found) if found.is_symlink() => match path.canonicalize() {
            // A link to a file that is not there yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return destination(&folder_of(path).join(path.read_link().map_err(io)?));
            }
            place => place.map_err(io)?,
        },
        Ok(_) => path.to_owned(),
    };
    if !std::fs::metadata(&place).map_err(io)?.is_file() {
        return Err(io(std::io::Error::other("what is there is not a file")));
    }
    Ok(place)
}

/// Writes a file that appears complete or not at all, as [`save`] does.
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
    let place = destination(path.as_ref())?;
    let written = new_file(folder_of(&place)).and_then(|mut file| {
        file.write_all(contents.as_ref())?;
        file.persist(&place).map_err(|error| error.error)
    });
    written.map(drop).map_err(|source| io_error(path.as_ref(), "write", source))
}

/// Whether [`save`] and [`write()`] find a place for the file: tries to make one beside it, which does not stay.
pub fn probe(path: impl AsRef<Path>) -> Result<()> {
    let place = destination(path.as_ref())?;
    new_file(folder_of(&place)).map(drop).map_err(|source| io_error(path.as_ref(), "write", source))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is deleted unless it is given its name, with the rights that a new file usually has.
fn new_file(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".warpwright-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(|error| {
        // Without the name of that file, for which nobody has asked.
        match error.to_string().split_once(" at path ") {
            Some((told, _)) => std::io::Error::new(error.kind(), told),
            None => error,
        }
    })
}

fn io_error(path: &Path, action: &'static str, source: std::io::Error) -> Error {
    Error::Io { path: path.into(), action, source }
}

/// The types of tensors, as files name them.
const DTYPES: [(Dtype, DType); 16] = [
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::F64, DType::F64),
    (Dtype::BOOL, DType::Bool),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::I8),
    (Dtype::F8_E4M3, DType::F8E4M3),
    (Dtype::F8_E5M2, DType::F8E5M2),
    (Dtype::F8_E8M0, DType::F8E8M0),
    (Dtype::I16, DType::I16),
    (Dtype::U16, DType::U16),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
    (Dtype::I64, DType::I64),
    (Dtype::U64, DType::U64),
];

fn from_file(dtype: Dtype) -> Option<DType> {
    DTYPES.into_iter().find_map(|(named, ours)| (named == dtype).then_some(ours))
}

/// What a message says of a type that tensors cannot have.
fn unknown(dtype: impl std::fmt::Display) -> String {
    format!("dtype {dtype}, not one of {}", known())
}

/// What a file's types may be, in one line.
fn known() -> String {
    DTYPES.map(|(named, _)| named.to_string()).join(", ")
}

fn to_file(dtype: DType) -> Option<Dtype> {
    DTYPES.into_iter().find_map(|(named, ours)| (ours == dtype).then_some(named))
}

#[cfg(test)]
mod tests;
