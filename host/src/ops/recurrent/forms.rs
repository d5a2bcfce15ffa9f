//! The kernels of whole sequences, and what each has room for.

use super::problem::Problem;
use crate::dtype::DType;
use cuda_std::f16;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{
    BLOCK_UNITS, CHUNK, CLUSTERED_UNITS, ClusteredForm, FLOAT_UNITS, FloatBackForm, Form, FusedForm,
    HalfBackForm, HalfForm, PACK_UNITS, PARTS, WARPS, block_backward, block_backward_f32,
    block_backward_f32_shared_bytes, block_backward_f32_units, block_backward_shared_bytes, block_sequence,
    block_sequence_f32, block_sequence_f32_shared_bytes, block_sequence_shared_bytes, clustered_sequence,
    clustered_sequence_back, fused_sequence, sequence, sequence_back, sequence_back_f32,
    sequence_back_hopper, sequence_f32, sequence_hopper,
};

/// A kernel whose blocks hold all weights.
pub struct Held {
    pub gates: usize,
    /// The most hidden units.
    pub units: usize,
    /// Rows of a block.
    pub rows: usize,
    pub shared_bytes: u32,
}

impl Held {
    /// Those of a type. Instances of both 16-bit types are alike.
    pub fn all(dtype: DType) -> Vec<Held> {
        let (floats, halves) = (block_sequence_f32::kernels::<f32>(), block_sequence::kernels::<f16>());
        match dtype {
            DType::F32 => floats.iter().map(|of| Held::float(of, of.constant("ROWS"))).collect(),
            _ => halves.iter().map(Held::half).collect(),
        }
    }

    /// Those for the gradient.
    pub fn all_back(dtype: DType) -> Vec<Held> {
        let (floats, halves) = (block_backward_f32::kernels::<f32>(), block_backward::kernels::<f16>());
        match dtype {
            DType::F32 => floats.iter().map(Held::float_back).collect(),
            _ => halves.iter().map(Held::half_back).collect(),
        }
    }

    fn half<A>(kernel: &Kernel<A>) -> Held {
        let [gates, pairs, rows] = ["GATES", "PAIRS", "ROWS"].map(|name| kernel.constant(name));
        let units = (CHUNK as usize * pairs).min(BLOCK_UNITS as usize);
        Held { gates, units, rows, shared_bytes: block_sequence_shared_bytes(pairs, rows) }
    }

    fn half_back<A>(kernel: &Kernel<A>) -> Held {
        let pairs = kernel.constant("PAIRS");
        let of = Held::half(kernel);
        Held { shared_bytes: block_backward_shared_bytes(of.gates, pairs, of.rows), ..of }
    }

    fn float<A>(kernel: &Kernel<A>, rows: usize) -> Held {
        let [gates, packs, held] = ["GATES", "PACKS", "HELD"].map(|name| kernel.constant(name));
        let units = (PACK_UNITS as usize * packs).min(FLOAT_UNITS as usize);
        Held { gates, units, rows, shared_bytes: block_sequence_f32_shared_bytes(gates, packs, held, rows) }
    }

    fn float_back<A>(kernel: &Kernel<A>) -> Held {
        let [gates, packs, held] = ["GATES", "PACKS", "HELD"].map(|name| kernel.constant(name));
        let units = block_backward_f32_units(gates, packs) as usize;
        Held { gates, units, rows: 1, shared_bytes: block_backward_f32_shared_bytes(gates, packs, held) }
    }
}

/// A kernel that spreads the weights over blocks.
pub struct Spread {
    pub gates: usize,
    /// Hidden units of a block.
    pub units: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Parts in which numbers are multiplied.
    pub parts: usize,
    /// Sub-batches of a turn, of which a group has whole ones.
    pub span: usize,
    /// Whether a sub-batch may have fewer rows than columns.
    pub few: bool,
    /// Whether it takes Hopper's instructions.
    pub warpgroups: bool,
    /// For so many sub-batches.
    pub shared_bytes: Box<dyn Fn(u32) -> u32>,
}

impl Spread {
    fn half<A>(kernel: &Kernel<A>, warpgroups: bool) -> Spread {
        let span = if warpgroups { kernel.constant("SPAN") } else { 1 };
        let [gates, tiles, pairs, held] = constants(kernel);
        let form = HalfForm { gates, tiles, pairs, held, span };
        let shared_bytes = Box::new(move |subs| form.shared_bytes(subs));
        let (units, few) = (form.units() as usize, form.has_few());
        Spread { gates, units, pairs, parts: 1, span, few, warpgroups, shared_bytes }
    }

    /// Those of a type, of 16 bits those of all architectures first: see [`half_sequence`]. Instances of both 16-bit types are alike.
    pub fn all(dtype: DType) -> Vec<Spread> {
        match dtype {
            DType::F32 => sequence_f32::kernels::<f32>().iter().map(Spread::float).collect(),
            _ => {
                let common = sequence::kernels::<f16>().iter().map(|of| Spread::half(of, false));
                common
                    .chain(sequence_hopper::kernels::<f16>().iter().map(|of| Spread::half(of, true)))
                    .collect()
            }
        }
    }

    /// Columns of all warps.
    pub fn columns(&self) -> usize {
        self.pairs * (WARPS * CHUNK) as usize
    }

    /// Blocks that share so many units.
    pub fn blocks(&self, hidden: usize) -> usize {
        hidden.div_ceil(self.units)
    }

    fn float<A>(kernel: &Kernel<A>) -> Spread {
        let [gates, tiles, pairs, held] = constants(kernel);
        let form = Form { gates, tiles, pairs, held };
        let shared_bytes = Box::new(move |subs| form.shared_bytes(subs));
        Spread {
            gates,
            units: form.units() as usize,
            pairs,
            parts: PARTS,
            span: 1,
            few: false,
            warpgroups: false,
            shared_bytes,
        }
    }
}

/// Gates, tiles, chunks of columns, and how much of the weights registers hold.
fn constants<A>(kernel: &Kernel<A>) -> [usize; 4] {
    ["GATES", "TILES", "PAIRS", "HELD"].map(|name| kernel.constant(name))
}

/// A kernel that spreads the weights over blocks for the gradient.
pub struct SpreadBack {
    pub gates: usize,
    /// Blocks of a cluster, which share out the columns.
    pub cluster: usize,
    /// Chunks of columns of all warps of a cluster.
    pub chunks: usize,
    /// Whether a sub-batch may have fewer rows than columns.
    pub few: bool,
    /// For so many sub-batches.
    pub shared_bytes: Box<dyn Fn(u32) -> u32>,
}

impl SpreadBack {
    /// Those of a type, of 16 bits those of all architectures first: see [`half_sequence_back`]. Instances of both 16-bit types are alike.
    pub fn all(dtype: DType) -> Vec<SpreadBack> {
        match dtype {
            DType::F32 => sequence_back_f32::kernels::<f32>().iter().map(SpreadBack::float).collect(),
            _ => {
                let common = sequence_back::kernels::<f16>().iter().map(|of| SpreadBack::half(of, 1));
                common
                    .chain(sequence_back_hopper::kernels::<f16>().iter().map(|of| SpreadBack::half(of, 2)))
                    .collect()
            }
        }
    }

    /// `shared_bytes([gates, pairs, held], subs)` is what a block takes.
    fn new<A>(
        kernel: &Kernel<A>,
        (cluster, few): (usize, bool),
        shared_bytes: impl Fn([usize; 3], u32) -> u32 + 'static,
    ) -> SpreadBack {
        let constants = ["GATES", "PAIRS", "HELD"].map(|name| kernel.constant(name));
        let [gates, pairs, _] = constants;
        let shared_bytes = Box::new(move |subs| shared_bytes(constants, subs));
        SpreadBack { gates, cluster, chunks: cluster * pairs * WARPS as usize, few, shared_bytes }
    }

    fn half<A>(kernel: &Kernel<A>, cluster: usize) -> SpreadBack {
        SpreadBack::new(kernel, (cluster, cluster == 1), move |[gates, pairs, held], subs| {
            HalfBackForm { gates, cluster, pairs, held }.shared_bytes(subs)
        })
    }

    fn float<A>(kernel: &Kernel<A>) -> SpreadBack {
        SpreadBack::new(kernel, (1, false), |[gates, pairs, held], subs| {
            FloatBackForm { gates, pairs, held }.shared_bytes(subs)
        })
    }
}

/// A kernel whose clusters hold all weights.
pub struct Clustered {
    pub gates: usize,
    pub form: ClusteredForm,
}

impl Clustered {
    /// Those of a forward pass. Instances of both 16-bit types are alike.
    pub fn all() -> Vec<Clustered> {
        clustered_sequence::kernels::<f16>()
            .iter()
            .map(|of| Clustered::new(of, ClusteredForm::forward))
            .collect()
    }

    /// Those of a gradient.
    pub fn all_back() -> Vec<Clustered> {
        let kernels = clustered_sequence_back::kernels::<f16>();
        kernels.iter().map(|of| Clustered::new(of, ClusteredForm::backward)).collect()
    }

    /// Whether it has room for the weights, of so many columns for a unit.
    pub fn fits(&self, problem: &Problem, columns: usize) -> bool {
        let blocks = problem.hidden.div_ceil(CLUSTERED_UNITS as usize);
        self.gates == problem.kind.gates() && columns * blocks <= self.form.chunks()
    }

    fn new<A>(kernel: &Kernel<A>, form: impl Fn(usize, usize) -> ClusteredForm) -> Clustered {
        let [gates, pairs] = ["GATES", "PAIRS"].map(|name| kernel.constant(name));
        Clustered { gates, form: form(gates, pairs) }
    }
}

/// A kernel that spreads 16-bit weights over blocks, by its place in [`Spread::all`].
pub fn half_sequence<T: sequence::Instances + sequence_hopper::Instances>(
    index: usize,
) -> &'static Kernel<sequence::Args<T>> {
    let mut all = sequence::kernels::<T>().iter().chain(sequence_hopper::kernels::<T>());
    all.nth(index).expect("plans take places of this list")
}

/// A kernel that spreads 16-bit weights over blocks for the gradient, by its place in [`SpreadBack::all`].
pub fn half_sequence_back<T: sequence_back::Instances + sequence_back_hopper::Instances>(
    index: usize,
) -> &'static Kernel<sequence_back::Args<T>> {
    let mut all = sequence_back::kernels::<T>().iter().chain(sequence_back_hopper::kernels::<T>());
    all.nth(index).expect("plans take places of this list")
}

/// Those that take the input's product, too. Instances of both 16-bit types are alike.
pub fn fused_forms() -> Vec<FusedForm> {
    let form = |kernel: &Kernel<_>| {
        let [gates, pairs, held_of_x] = ["GATES", "PAIRS", "HELD_OF_X"].map(|name| kernel.constant(name));
        FusedForm { gates, pairs, held_of_x }
    };
    fused_sequence::kernels::<f16>().iter().map(form).collect()
}
