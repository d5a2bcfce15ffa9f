//! Values that steer memory access (lengths, token ids) are checked by the kernels that read them.
//!
//! Such a kernel clamps the value, so that nothing is accessed out of bounds, and records the first bad
//! one by an atomic minimum of `index << 32 | value` in a 64-bit word that starts with all bits set; a kernel
//! whose values do not fit 32 bits takes more bits for the value and fewer for the index. The host looks at the words where it waits anyway: at read-backs and synchronisations. On the CPU the
//! operation itself looks, right after its launches.

use std::ops::RangeInclusive;
use std::sync::Arc;

use cuda_std::GlobalMut;
use cuda_std::global::RawView;
use simt::Memory;

use crate::device::{Device, Gpu, Kind};
use crate::error::{Error, Result};
use crate::storage::out_of_memory;
use crate::stream::Stream;

mod gpu;

pub(crate) use gpu::{GpuSlots, GraphSlots, capture};

/// What a word holds where no value was bad.
const NONE: u64 = u64::MAX;
const WORD: usize = size_of::<u64>();

/// What a word checks, for the error message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    op: &'static str,
    arg: &'static str,
    min: i64,
    max: i64,
    /// Bits of the value.
    bits: u32,
    /// Whether the tensor's values have more, so that the word's may be clipped to these.
    wider: bool,
    /// Whether the word is of blocks that gave up waiting: a step and a block.
    waits: bool,
}

impl Check {
    fn result(&self, word: u64) -> Result<()> {
        if word == NONE {
            return Ok(());
        }
        let Check { op, arg, min, max, bits, wider, waits } = *self;
        if waits {
            return Err(Error::Stalled { op, step: word >> bits, block: word & ((1 << bits) - 1) });
        }
        let above = u64::BITS - bits;
        let got = (word << above) as i64 >> above; // with the value's sign
        let furthest = i64::MAX >> above;
        let clipped = wider && (got == furthest || got == !furthest);
        Err(Error::Value { op, arg, index: word >> bits, min, max, got, clipped })
    }
}

/// A word for the first bad value of one argument. It lives at least until [`ValueSlot::finish`], and on a
/// GPU until the work given to the stream before that is done.
pub(crate) struct ValueSlot(Place);

enum Place {
    /// Boxed, since views point to the memory.
    Cpu(Box<Memory>, Check),
    Gpu {
        gpu: Arc<Gpu>,
        stream: Stream,
        reserved: gpu::Reserved,
    },
}

impl Device {
    /// A word for the first value of `arg` that is not in `min..=max`, for kernels on this device's stream.
    pub(crate) fn value_slot(
        &self,
        op: &'static str,
        arg: &'static str,
        min: i64,
        max: i64,
    ) -> Result<ValueSlot> {
        self.clipped_value_slot(op, arg, min..=max, 32, false)
    }

    /// As [`Device::value_slot`], for kernels that record values of so many bits, clipped to these where they have more.
    pub(crate) fn clipped_value_slot(
        &self,
        op: &'static str,
        arg: &'static str,
        allowed: RangeInclusive<i64>,
        bits: u32,
        wider: bool,
    ) -> Result<ValueSlot> {
        let (min, max) = allowed.into_inner();
        self.slot(Check { op, arg, min, max, bits, wider, waits: false })
    }

    /// A word for the first step, and the lowest block of it, that gave up waiting for other blocks of its launch: `step << 32 | block`.
    pub(crate) fn wait_slot(&self, op: &'static str) -> Result<ValueSlot> {
        self.slot(Check { op, arg: "exchange", min: 0, max: 0, bits: 32, wider: false, waits: true })
    }

    fn slot(&self, check: Check) -> Result<ValueSlot> {
        Ok(ValueSlot(match self.kind() {
            Kind::Cpu(..) => {
                let memory = Memory::try_uninit(WORD).ok_or_else(|| out_of_memory(self.to_string(), WORD))?;
                memory.set_name(check.arg);
                memory.write(0, &NONE.to_ne_bytes());
                Place::Cpu(Box::new(memory), check)
            }
            Kind::Cuda(gpu, stream) => {
                let reserved = gpu.slots.reserve(&gpu.context, stream, check)?;
                Place::Gpu { gpu: gpu.clone(), stream: stream.clone(), reserved }
            }
        }))
    }
}

impl ValueSlot {
    /// The word, for the kernel.
    pub(crate) fn view(&self) -> GlobalMut<u64> {
        let raw = match &self.0 {
            Place::Cpu(memory, _) => RawView::checked(memory, 0, WORD),
            Place::Gpu { reserved, .. } => reserved.view(),
        };
        // SAFETY: a 64-bit word, aligned to its size.
        unsafe { GlobalMut::from_raw(raw) }
    }

    /// To be called when all kernels that have the word are launched. On the CPU this reports the bad
    /// value; on a GPU the next read-back or synchronisation does.
    pub(crate) fn finish(self) -> Result<()> {
        match &self.0 {
            Place::Cpu(memory, check) => {
                let mut word = [0; WORD];
                memory.read(0, &mut word);
                check.result(u64::from_ne_bytes(word))
            }
            Place::Gpu { .. } => Ok(()), // when `self` drops
        }
    }
}

impl Drop for ValueSlot {
    fn drop(&mut self) {
        if let Place::Gpu { gpu, stream, reserved } = &self.0 {
            gpu.slots.submit(reserved, stream);
        }
    }
}

/// [`Device::check_values`].
pub(crate) fn check(device: &Device) -> Result<()> {
    match device.kind() {
        Kind::Cpu(..) => Ok(()), // reported by the operations themselves
        Kind::Cuda(gpu, stream) => gpu.slots.check(stream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_no_error() {
        let slot = Device::cpu().value_slot("masked_softmax", "lengths", 0, 128).unwrap();
        slot.finish().unwrap();
    }

    #[test]
    fn a_word_names_index_and_value() {
        let slot = Device::cpu().value_slot("masked_softmax", "lengths", 0, 128).unwrap();
        if let Place::Cpu(memory, _) = &slot.0 {
            memory.write(0, &(7 << 32 | 0xffff_fffe_u64).to_ne_bytes());
        }
        let error = slot.finish().unwrap_err();
        assert_eq!(error.to_string(), "masked_softmax: `lengths[7]` must be in 0..=128, got -2");
    }

    #[test]
    fn a_block_that_gave_up_is_named_with_its_step() {
        let slot = Device::cpu().wait_slot("gru").unwrap();
        if let Place::Cpu(memory, _) = &slot.0 {
            memory.write(0, &(17 << 32 | 5_u64).to_ne_bytes());
        }
        let error = slot.finish().unwrap_err();
        assert_eq!(error.to_string(), "gru: block 5 waited for other blocks in step 17 and gave up");
    }

    #[test]
    fn a_word_has_as_many_bits_for_the_value_as_were_asked_for() {
        for (value, wider, want) in [
            (u64::from(u32::MAX), false, "4294967295"),
            (u64::from(u32::MAX), true, "4294967295 or more"),
            (u64::from(u32::MAX) - 1, true, "4294967294"),
            (0x1_ffff_fffd, true, "-3"),
            (0x1_0000_0000, true, "-4294967296 or less"),
        ] {
            let slot = Device::cpu().clipped_value_slot("embedding", "tokens", 0..=9, 33, wider).unwrap();
            if let Place::Cpu(memory, _) = &slot.0 {
                memory.write(0, &(((1 << 31) - 2) << 33 | value).to_ne_bytes());
            }
            let error = slot.finish().unwrap_err().to_string();
            assert_eq!(error, format!("embedding: `tokens[2147483646]` must be in 0..=9, got {want}"));
        }
    }
}
