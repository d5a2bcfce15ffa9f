//! The registry of operations: one file each, which `run`, `list`, `demo` and `bench` share.

pub mod add;
pub mod attention_scores;
pub mod bias_gelu;
pub mod cast;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod gelu;
pub mod layer_norm;
pub mod linear;
pub mod masked_softmax;
pub mod matmul;
pub mod parameters;
pub mod permute;
pub mod recurrent;
pub mod rms_norm;
pub mod softmax_backward;
pub mod tensors;

use std::fmt::Write;

use warpwright::{DType, Tensor};

use crate::bench;
use crate::demo::{Case, Setting};
use crate::error::{CliError, quoted};
use parameters::{ParameterSpec, Parameters};
use tensors::Tensors;

/// Output tensors by name.
pub type Outputs = Vec<(&'static str, Tensor)>;

/// What the command line knows of an operation.
pub struct Op {
    pub name: &'static str,
    pub summary: &'static str,
    /// The types that the operation computes in.
    pub dtypes: &'static [DType],
    pub inputs: &'static [TensorSpec],
    pub outputs: &'static [TensorSpec],
    pub parameters: &'static [ParameterSpec],
    /// The PTX family of its kernels.
    pub family: &'static str,
    /// Computes the outputs, named.
    pub run: fn(&Tensors, &Parameters) -> Result<Outputs, CliError>,
    /// What `demo` runs.
    pub cases: fn(&Setting) -> Vec<Box<dyn Case>>,
    /// What `bench` times.
    pub bench: fn(&bench::case::Setting) -> Vec<bench::case::Case>,
}

/// A tensor in a file, or those of all layers behind the first.
pub struct TensorSpec {
    /// With [`LAYER`] in it, the name for each layer's number.
    pub name: &'static str,
    pub dtypes: &'static str,
    pub shape: &'static str,
    pub required: bool,
    pub about: &'static str,
}

/// Stands in names for the number of a layer, 1 and more.
pub const LAYER: &str = "{N}";

impl TensorSpec {
    /// The same of another type.
    const fn of_types(self, dtypes: &'static str) -> TensorSpec {
        TensorSpec { dtypes, ..self }
    }

    /// Whether a tensor of this name is meant.
    pub fn names(&self, name: &str) -> bool {
        let Some((before, behind)) = self.name.split_once(LAYER) else { return self.name == name };
        let layer = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
        layer.is_some_and(|layer| {
            !layer.starts_with(['0', '+']) && layer.parse::<usize>().is_ok_and(|layer| layer < MOST_LAYERS)
        })
    }
}

/// Layers of a network.
pub const MOST_LAYERS: usize = 64;

/// Every operation, by name.
pub static OPS: &[&Op] = &[
    &masked_softmax::OP,
    &gelu::OP,
    &gelu::BACKWARD,
    &bias_gelu::OP,
    &bias_gelu::BACKWARD,
    &add::OP,
    &cast::OP,
    &dropout::OP,
    &dropout::BACKWARD,
    &embedding::OP,
    &embedding::BACKWARD,
    &layer_norm::OP,
    &layer_norm::BACKWARD,
    &layer_norm::ADD,
    &layer_norm::ADD_BACKWARD,
    &rms_norm::OP,
    &rms_norm::BACKWARD,
    &softmax_backward::OP,
    &cross_entropy::OP,
    &cross_entropy::BACKWARD,
    &matmul::OP,
    &matmul::BACKWARD,
    &linear::OP,
    &linear::BACKWARD,
    &attention_scores::OP,
    &permute::OP,
    &permute::SPLIT,
    &permute::MERGE,
    &permute::IN_PLACE,
    &recurrent::GRU_CELL,
    &recurrent::GRU_CELL_BACKWARD,
    &recurrent::GRU_POINTWISE,
    &recurrent::GRU_POINTWISE_BACKWARD,
    &recurrent::LSTM_CELL,
    &recurrent::LSTM_CELL_BACKWARD,
    &recurrent::LSTM_POINTWISE,
    &recurrent::LSTM_POINTWISE_BACKWARD,
    &recurrent::GRU,
    &recurrent::GRU_BACKWARD,
    &recurrent::LSTM,
    &recurrent::LSTM_BACKWARD,
];

/// The floating-point types.
pub const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

pub fn find(name: &str) -> Result<&'static Op, CliError> {
    OPS.iter().copied().find(|op| op.name == name).ok_or_else(|| CliError::UnknownOp {
        got: name.to_owned(),
        known: quoted(OPS.iter().map(|op| op.name)),
    })
}

/// A tensor that the operation cannot do without, or one that it makes.
const fn tensor(
    name: &'static str,
    dtypes: &'static str,
    shape: &'static str,
    about: &'static str,
) -> TensorSpec {
    TensorSpec { name, dtypes, shape, required: true, about }
}

/// A tensor that may be absent.
const fn optional(
    name: &'static str,
    dtypes: &'static str,
    shape: &'static str,
    about: &'static str,
) -> TensorSpec {
    TensorSpec { name, dtypes, shape, required: false, about }
}

impl Op {
    /// The names of its input tensors.
    pub fn known_tensors(&self) -> String {
        let names = quoted(self.inputs.iter().map(|tensor| tensor.name));
        let of_layers = self.inputs.iter().any(|tensor| tensor.name.contains(LAYER));
        if of_layers { format!("{names}, of up to {MOST_LAYERS} layers") } else { names }
    }

    pub fn dtype_names(&self) -> String {
        self.dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" ")
    }

    /// Some lines about the operation, its tensors and its parameters.
    pub fn describe(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.summary);
        let mut line = |kind: &str, name: &str, what: &str, about: &str| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "  {kind:<4} {name:<14} {what:<25} {about}");
        };
        for tensor in self.inputs {
            let what = format!("{} {}", tensor.shape, tensor.dtypes);
            let words = [tensor.about, if tensor.required { "" } else { "optional" }];
            let words = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
            line("in", tensor.name, &what, &words.join(", "));
        }
        for tensor in self.outputs {
            line("out", tensor.name, &format!("{} {}", tensor.shape, tensor.dtypes), tensor.about);
        }
        for parameter in self.parameters {
            let what = format!("{} [{}]", parameter.kind.required(), parameter.default);
            line("set", parameter.name, &what, parameter.about);
        }
        text
    }
}

/// The operations, for `run --help`.
pub fn help() -> String {
    let ops: Vec<String> = OPS.iter().map(|op| op.describe()).collect();
    format!("Operations, with the tensors of their files and the keys of --set:\n\n{}", ops.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_names_the_tensors_of_all_layers() {
        let spec = optional("w_ih_l{N}_reverse", "", "", "");
        for name in ["w_ih_l1_reverse", "w_ih_l2_reverse", "w_ih_l63_reverse"] {
            assert!(spec.names(name), "{name}");
        }
        for name in [
            "w_ih_l0_reverse",
            "w_ih_l64_reverse",
            "w_ih_l_reverse",
            "w_ih_l1",
            "w_ih_l01_reverse",
            "w_ih_l+1_reverse",
        ] {
            assert!(!spec.names(name), "{name}");
        }
        assert!(tensor("x", "", "", "").names("x") && !tensor("x", "", "", "").names("xx"));
    }

    #[test]
    fn names_are_found_and_belong_to_a_family_of_the_library() {
        for op in OPS {
            assert_eq!(find(op.name).unwrap().name, op.name);
            assert!(warpwright::families().iter().any(|family| family.name == op.family), "{}", op.name);
            assert!(help().contains(op.summary));
        }
        let error = find("softmax").err().unwrap();
        let want = "unknown operation `softmax`: known are `masked_softmax`, ";
        assert!(error.to_string().starts_with(want), "{error}");
    }
}
