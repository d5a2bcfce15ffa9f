//! Rows of every length and number: around every edge of the plan tables, against float64.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use std::collections::BTreeSet;

use half::{bf16, f16};
use kernels_gpu::masked_softmax::{self as kernels, MAX_CLUSTER};
use softmax::{Form, check, check_by, scores};
use warpwright::ops::masked_softmax::{Causal, Choice, candidates};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Desc, Device, Result, reference};
use warpwright_tests::{DTYPES, Random, floats, on_each_device};

/// Instances of `cluster_row` that hold rows in registers alone; the first ones.
const CLUSTERS_OF_REGISTERS: usize = 3;

/// Instances for rows that are spread.
const SPREAD: usize = 2;

/// Columns that each instance of a table holds, with the elements of a pack.
struct Table {
    pack: usize,
    rows: Vec<usize>,
    long_rows: Vec<usize>,
    clusters: Vec<usize>,
}

macro_rules! capacities {
    ($kernel:ident, $ty:ty $(, $staged:literal)?) => {
        kernels::$kernel::kernels::<$ty>()
            .iter()
            .map(|kernel| {
                let packs = kernel.constant("PACKS") $(+ kernel.constant($staged))?;
                kernel.constant("LANES") * packs * (16 / size_of::<$ty>())
            })
            .collect::<Vec<_>>()
    };
}

macro_rules! table {
    ($ty:ty, $bias:expr) => {{
        let pack = 16 / size_of::<$ty>();
        match $bias {
            true => Table {
                pack,
                rows: capacities!(row_bias, $ty),
                long_rows: Vec::new(),
                clusters: capacities!(cluster_row_bias, $ty, "STAGED"),
            },
            false => Table {
                pack,
                rows: capacities!(row, $ty),
                long_rows: capacities!(long_row, $ty),
                clusters: capacities!(cluster_row, $ty, "STAGED"),
            },
        }
    }};
}

fn table(dtype: DType, bias: bool) -> Table {
    match dtype {
        DType::F16 => table!(f16, bias),
        DType::BF16 => table!(bf16, bias),
        _ => table!(f32, bias),
    }
}

/// Column counts around those that fill an instance: rows of whole packs, and others, which wherever they begin are covered
/// by as many.
fn around(capacity: usize, pack: usize) -> Vec<usize> {
    let covered = capacity - pack + 1;
    vec![covered, covered + 1, capacity, capacity + 1, capacity + pack]
}

impl Table {
    fn row_edges(&self) -> BTreeSet<usize> {
        self.rows.iter().chain(&self.long_rows).flat_map(|&capacity| around(capacity, self.pack)).collect()
    }

    /// Clusters have 2, 4, 8 or 16 blocks; beyond the last, rows are streamed.
    fn cluster_edges(&self) -> BTreeSet<usize> {
        let sizes = (1..).map(|log| 1usize << log).take_while(|&blocks| blocks <= MAX_CLUSTER as usize);
        let filled = sizes.flat_map(|blocks| self.clusters.iter().map(move |&capacity| blocks * capacity));
        let held = self.rows.iter().chain(&self.long_rows).copied().max().unwrap_or(0);
        filled.filter(|&cols| cols > held).flat_map(|cols| around(cols, self.pack)).collect()
    }
}

/// As many rows as fill more than two blocks of short ones, and three of long ones.
fn rows_for(cols: usize) -> usize {
    (4096 / cols).clamp(3, 517)
}

const SCALES: [f32; 5] = [1.0, 0.125, -0.7, 0.0, 2.5];

/// Checks each length with a form of mask and a scale that change from case to case.
fn check_lengths(
    device: &Device,
    dtype: DType,
    lengths: impl IntoIterator<Item = usize>,
    forms: &[Form],
) -> Result<()> {
    for (case, cols) in lengths.into_iter().enumerate() {
        let mut random = Random::new(1000 * case as u64 + cols as u64);
        let shape = [rows_for(cols), cols];
        let x = scores(device, dtype, &shape, &mut random)?;
        let form = forms[case % forms.len()];
        let masking = form.random(device, dtype, cols, &shape, &mut random)?;
        let parameters =
            MaskedSoftmax { scale: SCALES[case % SCALES.len()], mask: masking.mask(), causal: None };
        check(&x, &parameters, &format!("{form:?}"))?;
    }
    Ok(())
}

on_each_device! {
    fn rows_around_every_plan_edge_match_the_reference(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            check_lengths(device, dtype, table(dtype, false).row_edges(), &Form::UNBIASED)?;
        }
        Ok(())
    }

    fn biased_rows_around_every_plan_edge_match_the_reference(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            check_lengths(device, dtype, table(dtype, true).row_edges(), &[Form::Bias, Form::BiasF32])?;
        }
        Ok(())
    }

    fn rows_of_every_length_up_to_70_match_the_reference(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            check_lengths(device, dtype, 1..=70, &Form::ALL)?;
        }
        Ok(())
    }

    fn rows_of_clusters_and_streamed_rows_match_the_reference(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            for (bias, forms) in [(false, [Form::Keep, Form::Both]), (true, [Form::Bias, Form::BiasF32])] {
                let edges = table(dtype, bias).cluster_edges();
                // The CPU takes the shortest row of each size of cluster; of 16-bit types fewer.
                let some = |&cols: &usize| match dtype {
                    _ if device.is_cuda() => true,
                    DType::F32 => cols % 4 == 1 && cols < 300_000,
                    _ => cols % 16 == 1 && cols < 140_000,
                };
                let one_row = edges.iter().copied().filter(some);
                for (case, cols) in one_row.enumerate() {
                    let mut random = Random::new(cols as u64);
                    let rows = if device.is_cuda() { 3 } else { 1 };
                    let x = scores(device, dtype, &[rows, cols], &mut random)?;
                    let masking = forms[case % 2].random(device, dtype, cols, &[rows, cols], &mut random)?;
                    let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
                    check(&x, &parameters, &format!("{:?}", forms[case % 2]))?;
                }
            }
        }
        Ok(())
    }

    fn a_row_past_all_clusters_matches_the_reference(device: &Device) -> Result<()> {
        for (dtype, bias) in [(DType::F32, false), (DType::F16, true)] {
            let cols = table(dtype, bias).cluster_edges().last().copied().unwrap_or(0);
            let mut random = Random::new(5);
            let x = scores(device, dtype, &[1, cols], &mut random)?;
            let form = if bias { Form::BiasF32 } else { Form::Drop };
            let masking = form.random(device, dtype, cols, &[cols], &mut random)?;
            let parameters = MaskedSoftmax { scale: -0.5, mask: masking.mask(), causal: None };
            let want = reference::masked_softmax(&x, &parameters)?;
            let plans = candidates(&x, &parameters)?;
            assert!(!plans.iter().any(|plan| matches!(plan.choice, Choice::Cluster { .. })), "{cols}");
            // Those that are spread go first, but have no bias, and want a GPU that is large enough.
            let spread = plans.iter().filter(|plan| matches!(plan.choice, Choice::Spread { .. })).count();
            assert!(if bias { spread == 0 } else { spread > 0 || device.is_cuda() }, "{cols}");
            assert_eq!(plans[spread].choice, Choice::Streamed, "{cols}");
            for plan in &plans[..=spread] {
                check_by(plan.choice, &want, &x, &parameters, &plan.to_string())?;
            }
        }
        Ok(())
    }

    fn any_number_of_rows_matches_the_reference(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            for rows in [1, 2, 3, 7, 31, 33, 127, 128, 129, 1000, 4099] {
                for cols in [1, 6, 33, 64].into_iter().filter(|cols| rows * cols < 50_000) {
                    let mut random = Random::new(rows as u64);
                    let x = scores(device, dtype, &[rows, cols], &mut random)?;
                    let masking = Form::Lengths.random(device, dtype, cols, &[rows, 1], &mut random)?;
                    let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
                    check(&x, &parameters, "lengths")?;
                }
            }
        }
        Ok(())
    }

    fn every_rank_from_1_to_8_matches_the_reference(device: &Device) -> Result<()> {
        let extents = [2, 3, 1, 2, 3, 2, 5, 11];
        for rank in 1..=8 {
            let shape = &extents[8 - rank..];
            for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
                let mut random = Random::new(rank as u64);
                let x = scores(device, dtype, shape, &mut random)?;
                // Every second dimension broadcast, so that none merges with its neighbour.
                let broadcast: Vec<usize> =
                    shape.iter().enumerate().map(|(i, &n)| if i % 2 == 0 { 1 } else { n }).collect();
                let masking = form.random(device, dtype, 11, &broadcast, &mut random)?;
                let causal = (rank % 2 == 0).then_some(Causal::Offset(4));
                let parameters = MaskedSoftmax { scale: 1.0, mask: masking.mask(), causal };
                check(&x, &parameters, &format!("{form:?}"))?;
            }
        }
        Ok(())
    }

    fn without_rows_or_columns_the_result_is_empty(device: &Device) -> Result<()> {
        for shape in [&[0][..], &[0, 5], &[3, 0], &[2, 0, 5], &[0, 0], &[1, 2, 3, 0, 5, 6, 7, 8]] {
            for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
                let x = floats(device, dtype, shape, &[])?;
                let cols = shape[shape.len() - 1];
                let masking = form.random(device, dtype, cols, shape, &mut Random::new(1))?;
                let parameters =
                    MaskedSoftmax { mask: masking.mask(), causal: Some(Causal::BottomRight), scale: 2.0 };
                let y = ops::masked_softmax(&x, &parameters)?;
                assert_eq!((y.dtype(), y.shape(), y.to_f64()?.len()), (dtype, shape, 0), "{form:?}");
                check(&x, &parameters, "empty")?;
            }
        }
        Ok(())
    }
}

/// A length in the tests above fills each kernel of the tables, with rows that start at packs and that do not.
#[test]
fn the_lengths_reach_every_instance_of_every_table() -> Result<()> {
    let device = Device::cpu();
    for (dtype, bias) in DTYPES.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let table = table(dtype, bias);
        let mut reached = BTreeSet::new();
        for cols in table.row_edges().into_iter().chain(table.cluster_edges()) {
            let (x, mask) = (Desc::new(&device, dtype, &[3, cols])?, Desc::new(&device, dtype, &[cols])?);
            let mask = if bias { Mask::Bias(&mask) } else { Mask::None };
            for plan in candidates(&x, &MaskedSoftmax { mask, ..Default::default() })? {
                match plan.choice {
                    Choice::Row { index } => _ = reached.insert(("row", index, plan.ragged)),
                    Choice::LongRow { index } => _ = reached.insert(("long row", index, plan.ragged)),
                    Choice::Cluster { index, .. } => _ = reached.insert(("cluster", index, plan.ragged)),
                    Choice::Spread { index, .. } => _ = reached.insert(("spread", index, plan.ragged)),
                    Choice::Streamed | Choice::Strided => {}
                }
                assert!(
                    plan.choice == Choice::Strided || plan.ragged != cols.is_multiple_of(table.pack),
                    "{cols}"
                );
            }
        }
        // Clusters without shared memory take rows of whole packs alone, unless they have a bias.
        let crooked = |index: usize| bias || index >= CLUSTERS_OF_REGISTERS;
        let of = |name, count| (0..count).flat_map(move |index| [(name, index, false), (name, index, true)]);
        let want = of("row", table.rows.len())
            .chain(of("long row", table.long_rows.len()))
            .chain(of("spread", if bias { 0 } else { SPREAD }))
            .chain(
                of("cluster", table.clusters.len()).filter(|&(_, index, ragged)| !ragged || crooked(index)),
            )
            .collect();
        assert_eq!(reached, want, "{dtype}, bias {bias}");
    }
    Ok(())
}
