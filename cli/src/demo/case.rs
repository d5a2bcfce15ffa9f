//! What an operation supplies to the demo, and what it gets.

use std::fmt;
use std::path::PathBuf;

use warpwright::{DType, Device, Result, Tensor};

use super::deviation::Deviation;
use super::random;
use crate::error::CliError;

/// What the list of cases depends on.
pub struct Setting {
    /// A GPU takes large sizes, the checker small ones.
    pub gpu: bool,
    /// The folder with real tensors.
    pub data: PathBuf,
}

/// One line of the demo's table.
pub trait Case {
    fn label(&self) -> Label;
    /// Bytes of device memory that one set of inputs and outputs takes.
    fn bytes(&self) -> usize;
    /// Makes the inputs.
    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError>;
}

/// A case with its inputs on the device, in one set or several that take turns.
pub trait Prepared {
    fn sets(&self) -> usize;
    /// Launches the operation on a set.
    fn launch(&self, set: usize) -> Result<()>;
    /// Compares a set's output with the float64 reference: all of it, or whole rows of a large one.
    fn compare(&self, set: usize) -> Result<Deviation>;
    /// The least that the operation must read and write.
    fn floor_bytes(&self) -> u64;
}

/// What a case is called.
#[derive(Clone, Debug)]
pub struct Label {
    pub shape: Vec<usize>,
    pub dtype: DType,
    pub mask: String,
    /// Where the input comes from.
    pub data: String,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", shape_name(&self.shape), self.dtype, self.mask)
    }
}

pub fn shape_name(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×")
}

/// The device, and the random tensors of the previous case, which the next one may have a use for.
pub struct Bench {
    device: Device,
    held: Option<Held>,
}

/// Random tensors of a shape and type, one for each set.
type Held = ((Vec<usize>, DType), Vec<Tensor>);

/// Sets of a small case: enough to go round, not so many that making them takes long.
const MOST_SETS: usize = 256;
/// Random scores are uniform in ± this, whose deviation is 8: that of q·k with 64 unit normals each.
const SCORES: f32 = 14.0;

impl Bench {
    pub fn new(device: &Device) -> Bench {
        Bench { device: device.clone(), held: None }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether a case fits beside the tensors of the copy rate and of the case before.
    pub fn room_for(&self, case: &dyn Case) -> bool {
        self.device.info().is_none_or(|info| case.bytes() <= info.total_memory / 4)
    }

    /// How many sets of this size pass twice the L2 cache, so that none is still in it when its turn comes.
    pub fn sets(&self, bytes: usize) -> usize {
        let l2 = self.device.info().map_or(0, |info| info.l2_bytes);
        (2 * l2).div_ceil(bytes.max(1)).clamp(1, MOST_SETS)
    }

    /// Random scores, different in each set, the same in each run.
    pub fn scores(&mut self, shape: &[usize], dtype: DType, sets: usize) -> Result<Vec<Tensor>> {
        let key = (shape.to_vec(), dtype);
        match &self.held {
            Some((held, tensors)) if *held == key && tensors.len() >= sets => {
                return Ok(tensors[..sets].to_vec());
            }
            _ => self.held = None, // frees the memory first
        }
        let tensors: Vec<Tensor> = (0..sets as u64)
            .map(|set| random::tensor(&self.device, dtype, shape, SCORES, set))
            .collect::<Result<_>>()?;
        self.held = Some((key, tensors.clone()));
        Ok(tensors)
    }
}
