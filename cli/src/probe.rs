//! The copy kernel: whether a device works, and the rate that memory-bound operations are compared with.

use kernels_gpu::probe;
use warpwright::{DType, Device, Error, Grid, Result, Tensor};

/// Bytes that the copy kernel moves at once.
pub const PACK: usize = 16;

/// The names of the copy kernel's instances.
pub fn copies() -> impl Iterator<Item = &'static str> {
    probe::copy::ALL.iter().map(|kernel| kernel.name)
}

/// y = x. Both are contiguous u32 of one length, whole packs, on one device.
pub fn copy(x: &Tensor, y: &Tensor) -> Result<()> {
    copy_by(0, x, y)
}

/// [`copy`] by an instance of the kernel, in the order of [`copies`].
pub fn copy_by(instance: usize, x: &Tensor, y: &Tensor) -> Result<()> {
    let kernel = &probe::copy::ALL[instance];
    let packs = (x.len().min(y.len()) * size_of::<u32>() / PACK) as u64;
    let grid = Grid::covering(packs, u64::from(kernel.bounds.threads) * packs_a_thread(kernel.consts))?;
    // SAFETY: both tensors hold as many packs, and live until their stream is done with them.
    unsafe { x.device().launch(kernel, grid, (x.view()?, y.view_mut()?, packs)) }
}

/// How many packs each thread of an instance moves: one, unless it says otherwise.
fn packs_a_thread(consts: &[(&str, usize)]) -> u64 {
    consts.iter().find(|(name, _)| *name == "PACKS").map_or(1, |&(_, packs)| packs as u64)
}

/// Why the copy kernel does not do on the device what it should, if so.
pub fn self_test(device: &Device) -> Result<Option<String>> {
    const LEN: usize = 10_000; // a last block that is not full
    let data: Vec<u32> = (0..LEN as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let x = Tensor::from_slice(device, &[LEN], &data)?;
    let y = Tensor::uninit(device, DType::U32, &[LEN])?;
    copy(&x, &y)?;
    let got = y.to_vec::<u32>()?;
    let wrong = got.iter().zip(&data).position(|(got, want)| got != want);
    if let Some(index) = wrong {
        return Ok(Some(format!("element {index} of the copy is {}, not {}", got[index], data[index])));
    }
    if device.is_cuda() {
        return Ok(None);
    }
    // The checker must notice a read of what nobody wrote.
    match copy(&Tensor::uninit(device, DType::U32, &[LEN])?, &y) {
        Err(Error::Checker { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(Some("a read of uninitialised memory was not reported".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpwright::Checks;

    #[test]
    fn every_instance_copies_all() {
        let data: Vec<u32> = (0..9_000).collect();
        let x = Tensor::from_slice(&Device::cpu(), &[data.len()], &data).unwrap();
        for instance in 0..copies().count() {
            let y = Tensor::zeros(&Device::cpu(), DType::U32, &[data.len()]).unwrap();
            copy_by(instance, &x, &y).unwrap();
            assert_eq!(y.to_vec::<u32>().unwrap(), data, "{instance}");
        }
        assert_eq!((packs_a_thread(&[("A", 3), ("PACKS", 2)]), packs_a_thread(&[])), (2, 1));
    }

    #[test]
    fn the_checker_passes_and_its_absence_is_noticed() {
        assert_eq!(self_test(&Device::cpu()).unwrap(), None);
        let blind = self_test(&Device::cpu_with(Checks::None)).unwrap();
        assert_eq!(blind.as_deref(), Some("a read of uninitialised memory was not reported"));
    }
}
