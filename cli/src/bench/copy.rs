//! The yardstick: how fast this GPU copies, in this run, at the size of the cases and in rotation as they are.
//! It is the best of the copy kernels that there are and of the driver's own copy.

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Serialize;
use warpwright::{DType, Device, Result};

use super::data::Data;
use super::harness;
use crate::probe;

/// As many sets as a case of this size has.
const ROTATE: usize = 2 << 30;

#[derive(Clone, Debug, Serialize)]
pub struct Yardstick {
    /// Bytes read and written a nanosecond, by the best.
    pub gbps: f64,
    /// Which was the best.
    pub by: String,
    /// How each did.
    pub all: Vec<Contender>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Contender {
    pub name: String,
    pub gbps: f64,
}

/// Copies tensors of so many bytes in every way there is.
pub fn measure(device: &Device, data: &Data, bytes: usize) -> Result<Yardstick> {
    let words = (bytes / probe::PACK).max(1) * probe::PACK / size_of::<u32>();
    let moved = 2 * words * size_of::<u32>();
    let sets = (ROTATE / moved).clamp(2, 64);
    let (x, y) = (data.words(sets, &[words])?, data.outputs(sets, DType::U32, &[words])?);
    let mut all = Vec::new();
    let mut contend = |name: String, copy: &dyn Fn(usize) -> Result<()>| -> Result<()> {
        let timing = harness::time(device, sets, copy)?;
        all.push(Contender { name, gbps: timing.gbps(moved as u64) });
        Ok(())
    };
    for (instance, name) in probe::copies().enumerate() {
        contend(name.to_owned(), &|set| probe::copy_by(instance, &x[set], &y[set]))?;
    }
    contend("the driver's copy".to_owned(), &|set| y[set].copy_from(&x[set]))?;
    Ok(best(all))
}

/// The rates of copies of other sizes, each measured once in a run.
#[derive(Debug, Default)]
pub struct Likes(RefCell<HashMap<i32, f64>>);

impl Likes {
    /// Steps of size that share a measurement, for each doubling.
    const STEPS: f64 = 8.0;

    /// The number of the nearest step of size.
    fn step(bytes: usize) -> i32 {
        (Self::STEPS * (bytes.max(1) as f64).log2()).round() as i32
    }

    /// GB/s of a copy of so many bytes, to within a sixteenth of a doubling.
    pub fn rate(&self, device: &Device, data: &Data, bytes: usize) -> Result<f64> {
        let step = Self::step(bytes);
        if let Some(rate) = self.0.borrow().get(&step) {
            return Ok(*rate);
        }
        let rate = measure(device, data, (f64::from(step) / Self::STEPS).exp2() as usize)?.gbps;
        self.0.borrow_mut().insert(step, rate);
        Ok(rate)
    }
}

fn best(all: Vec<Contender>) -> Yardstick {
    let best = all.iter().max_by(|a, b| a.gbps.total_cmp(&b.gbps));
    let (gbps, by) = best.map_or((f64::NAN, String::new()), |best| (best.gbps, best.name.clone()));
    Yardstick { gbps, by, all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_about_a_size_are_one() {
        let steps = [0, 1, 256 << 20, 265 << 20, 285 << 20, 512 << 20].map(Likes::step);
        assert_eq!(steps, [0, 0, 224, 224, 225, 232]);
    }

    #[test]
    fn the_fastest_copy_is_the_yardstick() {
        let contender = |name: &str, gbps| Contender { name: name.into(), gbps };
        let yardstick = best(vec![contender("a", 3.0), contender("b", 5.0), contender("c", 4.0)]);
        assert_eq!((yardstick.gbps, yardstick.by.as_str(), yardstick.all.len()), (5.0, "b", 3));
    }
}
