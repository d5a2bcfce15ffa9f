//! The demo's language model: a GRU that learns to write a text, character by character, with the operations of the
//! library alone: `embedding`, `gru`, `linear`, `cross_entropy` and their gradients. The same device and seed give the same
//! curve.

mod adam;
mod model;
mod text;

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use warpwright::Device;

use crate::error::CliError;
use model::{Model, Size};
use text::Text;

/// The text, in the folder of the demo's data.
const FILE: &str = "shakespeare.txt";

/// What is trained, and how long.
struct Course {
    size: Size,
    steps: usize,
    /// Steps between the losses that are kept.
    every: usize,
    rate: f32,
    /// Characters that are written at the end.
    sample: usize,
}

const ON_GPU: Course = Course {
    size: Size { time: 64, batch: 64, width: 64, hidden: 256 },
    steps: 300,
    every: 30,
    rate: 3e-3,
    sample: 300,
};
/// What the checker has time for.
const ON_CPU: Course = Course {
    size: Size { time: 8, batch: 8, width: 16, hidden: 32 },
    steps: 12,
    every: 3,
    rate: 2e-2,
    sample: 24,
};

/// What came of it.
#[derive(Serialize)]
pub struct Trained {
    /// Characters of the text.
    characters: usize,
    steps: usize,
    /// Of the steps so far, nats a character: the mean of each stretch of steps.
    losses: Vec<(usize, f32)>,
    sample: String,
    ms_per_step: f64,
}

/// Trains and writes.
pub fn train(device: &Device, folder: &Path) -> Result<Trained, CliError> {
    let course = if device.is_cuda() { ON_GPU } else { ON_CPU };
    let text = Text::read(&folder.join(FILE))?;
    let mut model = Model::new(device, text.kinds(), course.size, course.rate)?;
    let begun = Instant::now();
    let (mut losses, mut sum) = (Vec::new(), 0.0);
    for step in 1..=course.steps {
        sum += model.step(&text.batch(course.size.time, course.size.batch, step as u64))?;
        if step % course.every == 0 {
            losses.push((step, sum / course.every as f32));
            sum = 0.0;
        }
    }
    let ms_per_step = begun.elapsed().as_secs_f64() * 1e3 / course.steps as f64;
    let sample = text.spelled(&model.write(&text.numbers("\n"), course.sample)?);
    Ok(Trained { characters: text.len(), steps: course.steps, losses, sample, ms_per_step })
}

impl Trained {
    pub fn render(&self) -> String {
        let losses: Vec<String> =
            self.losses.iter().map(|(step, loss)| format!("{step}: {loss:.3}")).collect();
        format!(
            "A GRU learns {} characters of Shakespeare, {} steps of {:.1} ms. Loss in nats a character, by step:\n  {}\n\
             It writes:\n{}\n",
            self.characters,
            self.steps,
            self.ms_per_step,
            losses.join("  "),
            self.sample.lines().map(|line| format!("  | {line}\n")).collect::<String>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_falls_and_the_same_seed_gives_the_same_curve() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
        let train = || train(&Device::cpu_with(warpwright::Checks::None), &folder).unwrap();
        let (first, second) = (train(), train());
        let losses: Vec<f32> = first.losses.iter().map(|(_, loss)| *loss).collect();
        // A batch is small, so a stretch of steps may be worse than the one before.
        let (begun, ended) = (losses[0], losses[losses.len() - 1]);
        assert!(begun < 4.5 && ended < begun - 0.3, "{losses:?}");
        assert_eq!((first.losses, first.sample), (second.losses, second.sample));
    }
}
