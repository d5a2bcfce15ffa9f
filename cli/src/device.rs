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
    /// Opens the device.
    pub fn open(&self) -> Result<Opened, CliError> {
        let checks = match self.check {
            Some(Level::None) => Checks::None,
            Some(Level::Bounds) => Checks::Bounds,
            Some(Level::Full) | None => Checks::Full,
        };
        match (self.device.as_deref(), self.check) {
            (Some("cpu"), _) | (None, Some(_)) => Ok(Opened::chosen(Device::cpu_with(checks))),
            (Some(name), check) => {
                let ordinal =
                    ordinal(name).ok_or_else(|| CliError::UnknownDevice { got: name.to_owned() })?;
                match check {
                    Some(_) => Err(CliError::ChecksOnGpu { device: name.to_owned() }),
                    None => Ok(Opened::chosen(Device::cuda(ordinal)?)),
                }
            }
            (None, None) => Ok(match Device::cuda(0) {
                Ok(gpu) => Opened { note: Some(format!("note: on {gpu}, {}", gpu.name())), device: gpu },
                Err(why) => Opened {
                    device: Device::cpu_with(checks),
                    note: Some(format!("note: on the CPU under the checker ({why})")),
                },
            }),
        }
    }
}

/// A device, and what is to be said of it where the caller did not choose it.
#[must_use]
pub struct Opened {
    pub device: Device,
    note: Option<String>,
}

impl Opened {
    fn chosen(device: Device) -> Opened {
        Opened { device, note: None }
    }

    /// Says on stderr which device it is: once the work is done, so that an error is the only line, or before work that takes long.
    pub fn say(&self) {
        if let Some(note) = &self.note {
            output::note(note);
        }
    }

    /// [`Self::say`], and the result on stdout.
    pub fn print(&self, text: &str) -> Result<(), CliError> {
        self.say();
        output::print(text)
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
