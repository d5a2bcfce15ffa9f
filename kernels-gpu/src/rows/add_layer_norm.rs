//! joined = dropout(x + input_bias) + residual, and the layer norm of it as it was rounded. The dropout is optional.
//!
//! Inputs: x, residual. Vectors: weight, bias and input_bias, all optional. Results: joined, y; mean and rstd. The same
//! bits as the sum and its layer norm one after the other. Floor: 4·bytes.

use super::Params;
use super::layer_norm::Normalise;
use super::row_kernels;
use cuda_std::prelude::*;

type AddLayerNorm = Normalise<true, false>;
type AddLayerNormDropout = Normalise<true, true>;

row_kernels!(
    AddLayerNorm,
    add_layer_norm_rows,
    add_layer_norm_streamed,
    add_layer_norm_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 4 },
        { LANES: 4, PACKS: 2; threads: 128, min_blocks: 4 },
        { LANES: 8, PACKS: 4; threads: 128, min_blocks: 4 },
        { LANES: 16, PACKS: 3; threads: 128 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 32, PACKS: 3; threads: 128, min_blocks: 5 },
        { LANES: 64, PACKS: 2; threads: 64 },
        { LANES: 64, PACKS: 3; threads: 64, min_blocks: 10 },
        { LANES: 128, PACKS: 2; threads: 128 },
        { LANES: 128, PACKS: 3; threads: 128, min_blocks: 5 },
        { LANES: 256, PACKS: 2; threads: 256 },
        { LANES: 512, PACKS: 2; threads: 512 },
        { LANES: 512, PACKS: 4; threads: 512 },
        { LANES: 1024, PACKS: 4; threads: 1024 },
    ],
    [{ LANES: 512, PACKS: 2; threads: 512 }],
    add_layer_norm_cluster,
    [{ LANES: 256, PACKS: 3; threads: 256 }, { LANES: 512, PACKS: 4; threads: 512 }]
);
row_kernels!(
    AddLayerNormDropout,
    add_layer_norm_dropout_rows,
    add_layer_norm_dropout_streamed,
    add_layer_norm_dropout_strided,
    [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 3 },
        { LANES: 8, PACKS: 3; threads: 128, min_blocks: 4 },
        { LANES: 32, PACKS: 2; threads: 128, min_blocks: 6 },
        { LANES: 32, PACKS: 3; threads: 128 },
        { LANES: 64, PACKS: 2; threads: 64, min_blocks: 12 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 128, PACKS: 2; threads: 128, min_blocks: 6 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 256, PACKS: 2; threads: 256, min_blocks: 3 },
        { LANES: 256, PACKS: 4; threads: 256 },
    ],
    [{ LANES: 256, PACKS: 2; threads: 256, min_blocks: 2 }]
);
