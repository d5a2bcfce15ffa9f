//! `warpwright explain permute`.

use warpwright::ops::permute::explain;
use warpwright::{DType, Desc};

use crate::device::DeviceArgs;
use crate::error::CliError;

/// GB/s that times are told for, unless the user knows better: an H200's copy.
const RATE: f64 = 4200.0;

#[derive(clap::Args)]
pub struct Args {
    /// The input's extents, with commas between them
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', required = true)]
    shape: Vec<usize>,
    /// Its dimensions in the order of the result; negative ones count from the back
    #[arg(long, value_name = "D,D,..", value_delimiter = ',', required = true, allow_hyphen_values = true)]
    dims: Vec<isize>,
    /// The elements' type
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// The result's type, if another: f32, f16 or bf16
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    to: Option<DType>,
    /// What the GPU copies in a second, for the expected time
    #[arg(long, value_name = "GB/S", default_value_t = RATE, value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    #[command(flatten)]
    device: DeviceArgs,
}

fn dtype(name: &str) -> Result<DType, String> {
    let known = || DType::ALL.map(DType::name).join(", ");
    DType::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| format!("known are {}", known()))
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("it must be a positive number".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let Args { shape, dims, dtype, to, rate, device } = args;
    let opened = device.open()?;
    let x = Desc::new(&opened.device, *dtype, shape)?;
    let explanation = explain(&x, dims, to.unwrap_or(*dtype))?;
    let micros = explanation.micros(*rate);
    opened.print(&format!("{explanation}\ntime        {micros:.1} us at {rate} GB/s"))
}
