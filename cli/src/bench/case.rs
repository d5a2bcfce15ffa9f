//! What an operation supplies to `bench`: its cases, and for each a way to run it.
//!
//! # Adding the cases of an operation
//!
//! 1. Write `bench/cases/NAME.rs` with `pub fn cases(setting: &Setting) -> Vec<Case>`: one [`Case::new`] for each
//!    shape, type of `setting.dtypes` and variant. Its closure makes the inputs and outputs of that many sets from
//!    [`Data`] and returns [`Prepared::new`]: the floor of the operation's module doc in bytes, and a closure
//!    that launches the operation on one set, into outputs that are there already.
//! 2. Declare the module in `bench/cases/mod.rs`, and name its function in the `bench` field of the operation's
//!    `Op` (`ops/NAME.rs`).
//! 3. [`Case::torch`] adds what PyTorch must know beside operation, shape and type. The other side is a function of
//!    the same name in `bench/against/torch_bench.py`, listed in its `OPS`.
//!
//! The tests then run every small case on the CPU under the checker, and look for the operation in the script.

use std::fmt;

use serde_json::{Map, Value};
use warpwright::{DType, Result};

use super::data::Data;

/// Bytes that the sets of a case add up to, well over any L2: no call finds its input in the cache.
const ROTATE: usize = 2 << 30;
/// A small case has not more sets, since each is a node or two of a graph.
const MOST_SETS: usize = 256;

/// What the list of cases depends on.
pub struct Setting {
    pub dtypes: Vec<DType>,
    /// Bytes of the largest input of a case whose shape is not given by somebody's model.
    pub bytes: usize,
    /// Only what shows a regression.
    pub quick: bool,
}

impl Setting {
    /// Those types of an operation that are asked for.
    pub fn dtypes<'a>(&'a self, of: &'a [DType]) -> impl Iterator<Item = DType> + 'a {
        self.dtypes.iter().copied().filter(|dtype| of.contains(dtype))
    }
}

type Prepare = Box<dyn Fn(&Data, usize) -> Result<Prepared>>;

/// An operation on a shape and type, in one variant.
pub struct Case {
    pub op: &'static str,
    pub shape: Vec<usize>,
    pub dtype: DType,
    /// What else tells it from other cases, such as `mask=keep`; may be empty.
    pub variant: String,
    /// Arithmetic operations of a call, roughly: for the roofline.
    pub flops: u64,
    /// Whether PyTorch's side is also compiled, which takes seconds.
    pub compile: bool,
    /// Whether it is compared with a copy of as many bytes too: a copy of few does not reach the yardstick.
    pub beside_copy: bool,
    /// Whether each call has the same set: what is small enough is found in L2 then, as behind the operation that made it.
    cached: bool,
    /// Bytes of device memory that one set of inputs and outputs takes.
    set_bytes: usize,
    torch: Map<String, Value>,
    prepare: Prepare,
}

impl Case {
    /// `prepare` makes the given number of sets.
    pub fn new(
        op: &'static str,
        shape: &[usize],
        dtype: DType,
        variant: impl Into<String>,
        set_bytes: usize,
        prepare: impl Fn(&Data, usize) -> Result<Prepared> + 'static,
    ) -> Case {
        Case {
            op,
            shape: shape.to_vec(),
            dtype,
            variant: variant.into(),
            flops: 0,
            compile: false,
            beside_copy: false,
            cached: false,
            set_bytes,
            torch: Map::new(),
            prepare: Box::new(prepare),
        }
    }

    /// With the number of arithmetic operations of a call.
    pub fn flops(self, flops: usize) -> Case {
        Case { flops: flops as u64, ..self }
    }

    /// With what PyTorch's side must know beside the operation's name, the shape and the type.
    pub fn torch<const N: usize>(mut self, facts: [(&str, Value); N]) -> Case {
        self.torch.extend(facts.map(|(key, value)| (key.to_owned(), value)));
        self
    }

    /// With `torch.compile` on the other side too, if so.
    pub fn compiled(self, compile: bool) -> Case {
        Case { compile, ..self }
    }

    /// With a copy of as many bytes to compare with.
    pub fn beside_copy(self) -> Case {
        Case { beside_copy: true, ..self }
    }

    /// With the same inputs and outputs in each call, and so without a copy of others to compare with.
    pub fn cached(self) -> Case {
        Case { cached: true, beside_copy: false, ..self }
    }

    /// How many sets take turns.
    pub fn sets(&self) -> usize {
        if self.cached {
            return 1;
        }
        (ROTATE / self.set_bytes.max(1)).clamp(2, MOST_SETS)
    }

    /// Makes the inputs and outputs of so many sets.
    pub fn prepare(&self, data: &Data, sets: usize) -> Result<Prepared> {
        (self.prepare)(data, sets)
    }

    /// What PyTorch's side gets to know.
    pub fn request(&self, compile: bool) -> Value {
        let mut request = self.torch.clone();
        request.insert("op".into(), self.op.into());
        request.insert("shape".into(), self.shape.clone().into());
        request.insert("dtype".into(), self.dtype.name().into());
        request.insert("sets".into(), self.sets().into());
        request.insert("compile".into(), compile.into());
        request.into()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.op, shape_name(&self.shape), self.dtype, self.variant)
    }
}

/// `64x16x512x128`: what can be typed after `--only`.
pub fn shape_name(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// A case with its tensors on the device.
pub struct Prepared {
    /// The least bytes that a call must read and write.
    pub floor: u64,
    /// How the operation goes about it, and with `--sweep` how else it could.
    pub ways: Vec<Way>,
}

/// One way of running a case.
pub struct Way {
    /// Which kernel, in words; empty where there is but one.
    pub plan: String,
    /// Launches it on a set.
    pub launch: Box<dyn Fn(usize) -> Result<()>>,
}

impl Prepared {
    /// `launch` runs the operation as its users would, on the set that it is given.
    pub fn new(
        floor: usize,
        plan: impl Into<String>,
        launch: impl Fn(usize) -> Result<()> + 'static,
    ) -> Prepared {
        Prepared { floor: floor as u64, ways: Vec::new() }.or(plan, launch)
    }

    /// With another way.
    pub fn or(mut self, plan: impl Into<String>, launch: impl Fn(usize) -> Result<()> + 'static) -> Prepared {
        self.ways.push(Way { plan: plan.into(), launch: Box::new(launch) });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(set_bytes: usize) -> Case {
        Case::new("op", &[2, 3], DType::BF16, "a=b", set_bytes, |_, _| Ok(Prepared::new(1, "", |_| Ok(()))))
    }

    #[test]
    fn sets_add_up_to_more_than_a_cache() {
        assert_eq!(case(512 << 20).sets(), 4);
        assert_eq!(case(4 << 30).sets(), 2);
        assert_eq!(case(0).sets(), MOST_SETS);
        assert_eq!(case(1 << 20).cached().sets(), 1);
    }

    #[test]
    fn the_other_side_is_told_all() {
        let case = case(1 << 30).torch([("scale", 0.5.into())]).compiled(true);
        assert_eq!(case.to_string(), "op 2x3 bf16 a=b");
        let want = serde_json::json!({
            "op": "op", "shape": [2, 3], "dtype": "bf16", "sets": 2, "compile": false, "scale": 0.5
        });
        assert_eq!(case.request(false), want);
        assert_eq!(case.request(true)["compile"], true);
    }
}
