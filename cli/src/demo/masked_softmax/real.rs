//! Attention scores of MiniLM: see tests/data/README.md.

use std::path::Path;

use half::{bf16, f16};
use warpwright::{DType, Device, Result, Tensor, io};

use super::form::Form;
use crate::error::CliError;

/// Batch, heads, queries, keys.
pub const SHAPE: [usize; 4] = [8, 12, 37, 37];
/// 1/sqrt(32).
pub const SCALE: f32 = 0.176_776_7;

/// x and its mask, on the host.
pub struct Real {
    x: Tensor,
    mask: Tensor,
    /// Elements of x that are not masked.
    pub kept: u64,
}

impl Real {
    /// Copies on a device.
    pub fn on(&self, device: &Device) -> Result<(Tensor, Tensor)> {
        let copy = |t: &Tensor| Tensor::from_bytes(device, t.dtype(), t.shape(), &t.to_bytes()?);
        Ok((copy(&self.x)?, copy(&self.mask)?))
    }
}

/// A layer's scores, in `dtype`, with the lengths or else the mask.
pub fn load(folder: &Path, layer: u32, dtype: DType, form: Form) -> Result<Real, CliError> {
    let file = format!("minilm_layer{layer}.safetensors");
    let x = tensor(folder, &file, "x", "f32 8×12×37×37", DType::F32, &SHAPE)?;
    let keep = tensor(folder, &file, "keep", "u8 8×1×1×37", DType::U8, &[8, 1, 1, 37])?;
    let kept = keep.expand(&SHAPE)?.to_vec::<u8>()?.into_iter().map(u64::from).sum();
    let mask = match form {
        Form::Lengths => {
            tensor(folder, "minilm_lengths.safetensors", "lengths", "i32 8×1×1", DType::I32, &[8, 1, 1])?
        }
        _ => keep,
    };
    Ok(Real { x: rounded(&x, dtype)?, mask, kept })
}

fn tensor(
    folder: &Path,
    file: &str,
    name: &'static str,
    required: &'static str,
    dtype: DType,
    shape: &[usize],
) -> Result<Tensor, CliError> {
    let path = folder.join(file);
    match io::load(&path, &Device::cpu())?.remove(name) {
        Some(tensor) if tensor.dtype() == dtype && tensor.shape() == shape => Ok(tensor),
        Some(other) => {
            let got = format!("{} {}", other.dtype(), crate::demo::case::shape_name(other.shape()));
            Err(CliError::Data { path, name, required, got })
        }
        None => Err(CliError::Data { path, name, required, got: "nothing".into() }),
    }
}

fn rounded(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let values = || x.to_vec::<f32>().map(Vec::into_iter);
    match dtype {
        DType::F16 => {
            Tensor::from_slice(x.device(), x.shape(), &values()?.map(f16::from_f32).collect::<Vec<_>>())
        }
        DType::BF16 => {
            Tensor::from_slice(x.device(), x.shape(), &values()?.map(bf16::from_f32).collect::<Vec<_>>())
        }
        _ => Ok(x.clone()),
    }
}
