//! Which device a command runs on.

use clap::ValueEnum;
use warpwright::{Checks, Device};

use crate::error::CliError;
use crate::output;

/// Arguments that choose a device.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct DeviceArgs {
    /// cpu, cuda or cuda:N [default: cuda where there is a GPU, else cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// What is checked on the CPU: shapes, barriers and masks always [default: full]
    #[arg(long, value_name = "LEVEL")]
    check: Option<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Nothing more
    None,
    /// Bounds and alignment of accesses as well
    Bounds,
    /// Initialisation and races as well
    Full,
}

impl DeviceArgs {
    /// Opens the device; says which on stderr where the caller did not choose.
    pub fn open(&self) -> Result<Device, CliError> {
        let checks = match self.check {
            Some(Level::None) => Checks::None,
            Some(Level::Bounds) => Checks::Bounds,
            Some(Level::Full) | None => Checks::Full,
        };
        match (self.device.as_deref(), self.check) {
            (Some("cpu"), _) | (None, Some(_)) => Ok(Device::cpu_with(checks)),
            (Some(name), check) => {
                let ordinal =
                    ordinal(name).ok_or_else(|| CliError::UnknownDevice { got: name.to_owned() })?;
                match check {
                    Some(_) => Err(CliError::ChecksOnGpu { device: name.to_owned() }),
                    None => Ok(Device::cuda(ordinal)?),
                }
            }
            (None, None) => Ok(match Device::cuda(0) {
                Ok(gpu) => {
                    output::note(&format!("note: on {gpu}, {}", gpu.name()));
                    gpu
                }
                Err(why) => {
                    output::note(&format!("note: on the CPU under the checker ({why})"));
                    Device::cpu_with(checks)
                }
            }),
        }
    }
}

/// The number in `cuda` or `cuda:N`.
pub fn ordinal(name: &str) -> Option<usize> {
    match name.strip_prefix("cuda")? {
        "" => Some(0),
        rest => rest.strip_prefix(':').filter(|n| n.bytes().all(|b| b.is_ascii_digit()))?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_numbered() {
        assert_eq!(ordinal("cuda"), Some(0));
        assert_eq!(ordinal("cuda:12"), Some(12));
        for bad in ["", "gpu", "cuda:", "cuda1", "cuda:-1", "cuda:+1", "cuda:99999999999999999999999"] {
            assert_eq!(ordinal(bad), None, "{bad}");
        }
    }
}
